//! `attach` and `status` on a real link. Needs root; without it the test says so and ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{Said, rxsteer};
use rxsteer_testbed::{Pair, PairSpec, Testbed, TestbedError};
use serde_json::Value;

/// Starts `attach` in the receiver's namespace and returns it with what it said first.
fn attached(pair: &Pair, line: &str) -> (Child, BufReader<ChildStdout>, String) {
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_rxsteer"))
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = pair.sink.run(start).unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    (child, out, first)
}

#[test]
fn an_interface_is_attached_looked_at_and_let_go() {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        Err(TestbedError::Privilege(missing)) => {
            eprintln!("skipped an_interface_is_attached_looked_at_and_let_go: {missing}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    let inside = |line: &str| -> Said { pair.sink.run(|| rxsteer(line)).unwrap() };

    let said = inside("attach rx0 --check --cpus 0");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("this kernel accepts all programs"), "{said:?}");
    assert_eq!(inside("status").out, "nothing is attached in this network namespace\n");
    assert_eq!(inside("attach no-such").code, 1);

    let (child, mut out, first) = attached(&pair, "attach rx0 --mode native --table-entries 1k");
    assert!(first.starts_with("attached to rx0 in native mode: flow-aware, CPUs "), "{first}");
    assert!(first.ends_with(", 1024 flows a table\n"), "{first}");
    let receiver = pair.sink.run(|| UdpSocket::bind((Pair::SINK_V4, 0)).unwrap()).unwrap();
    let sender = pair.source.run(|| UdpSocket::bind((Pair::SOURCE_V4, 0)).unwrap()).unwrap();
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..10 {
        sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut [0; 8]).unwrap();
    }
    let json: Value = serde_json::from_str(&inside("status --json").out).unwrap();
    let one = &json["attached"][0];
    assert_eq!(json["schema_version"], 1);
    assert_eq!((&one["interface"], &one["mode"]), (&"rx0".into(), &"native".into()));
    assert_eq!(one["flows"]["udp"], 1);
    let udp = |reason: &str| one["classes"]["udp"][reason].as_u64().unwrap();
    // Held: found, and not yet moved to where its reader now runs.
    assert_eq!((udp("hit") + udp("held"), udp("miss")), (9, 1));
    assert!(inside("status").out.starts_with("rx0  native mode, program "));

    let second = inside("attach rx0");
    assert_eq!(second.code, 1);
    assert!(second.err.contains("rx0 has an XDP program already: rxsteer_steer"), "{second:?}");

    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("detached; "), "{rest}");
    assert!({ child }.wait().unwrap().success());
    assert_eq!(inside("status --json").out, "{\"attached\":[],\"schema_version\":1}\n");
}

#[test]
fn what_cannot_be_attached_is_told_by_its_flag() {
    let said = rxsteer("attach");
    assert_eq!((said.code, said.err.contains("IFACE: name an interface")), (2, true), "{said:?}");
    let said = rxsteer("attach eth0 --policy rfs");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("--policy: there are flow-aware, rps, none"), "{said:?}");
}
