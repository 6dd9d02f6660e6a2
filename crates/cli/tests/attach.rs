//! `attach` and `status` on a real link. Needs root; without it the test says so and ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Said, rxsteer};
use rxsteer_testbed::{Pair, PairSpec, Testbed, TestbedError};
use serde_json::Value;

/// Makes a pair, or says why not.
fn pair(test: &str) -> Option<Pair> {
    match Testbed::new() {
        Ok(testbed) => Some(Pair::new(&testbed, &PairSpec::default()).unwrap()),
        Err(TestbedError::Privilege(missing)) => {
            eprintln!("skipped {test}: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Starts `attach` in the receiver's namespace and returns it with what it said first.
fn attached(pair: &Pair, line: &str) -> (Child, BufReader<ChildStdout>, String) {
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_rxsteer"))
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
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
    let Some(pair) = pair("an_interface_is_attached_looked_at_and_let_go") else { return };
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

/// The kernel ends an attachment with its interface, and says nothing.
#[test]
fn an_interface_that_is_removed_ends_the_command_with_an_error() {
    let Some(pair) = pair("an_interface_that_is_removed_ends_the_command_with_an_error") else {
        return;
    };
    let (mut child, mut out, first) = attached(&pair, "attach rx0 --cpus 0 --table-entries 1k");
    assert!(first.starts_with("attached to rx0 "), "{first}");
    pair.sink.remove_device(Pair::SINK_DEVICE).unwrap();
    // Ends by itself, or not at all: then the test ends it, and fails.
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(1));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("detached; "), "{rest}");
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(err.contains("the interface rx0 is gone from this network namespace"), "{err}");
}

/// The programs and maps of the largest tables, which some kernels may have no memory for.
#[test]
fn the_largest_tables_can_be_made() {
    let Some(pair) = pair("the_largest_tables_can_be_made") else { return };
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let free: u64 = free.trim().trim_end_matches(" kB").parse().unwrap();
    if free < 8 << 20 {
        eprintln!("skipped the_largest_tables_can_be_made: {free} kB are free, of 8 GiB");
        return;
    }
    let said = pair.sink.run(|| rxsteer("attach rx0 --check --table-entries 16M")).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("this kernel accepts all programs"), "{said:?}");
}

#[test]
fn what_cannot_be_attached_is_told_by_its_flag() {
    let said = rxsteer("attach");
    assert_eq!((said.code, said.err.contains("IFACE: name an interface")), (2, true), "{said:?}");
    let said = rxsteer("attach eth0 --policy rfs");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("--policy: there are flow-aware, rps, none"), "{said:?}");
}
