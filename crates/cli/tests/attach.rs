//! `attach`, `detach` and `status` on a real link. Needs root; without it a test says so and ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::live::{Steering, inside, pair, status};
use common::{rxsteer, rxsteer_in, scratch};
use rxsteer_testbed::{Offloads, Pair, PairSpec};
use serde_json::Value;

/// Returns a connected receiver, and a sender that it is connected to.
fn connected(pair: &Pair) -> (UdpSocket, UdpSocket) {
    let receiver = pair.sink.run(|| UdpSocket::bind((Pair::SINK_V4, 0)).unwrap()).unwrap();
    let sender = pair.source.run(|| UdpSocket::bind((Pair::SOURCE_V4, 0)).unwrap()).unwrap();
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (receiver, sender)
}

fn exchange((receiver, sender): &(UdpSocket, UdpSocket), count: usize) {
    for _ in 0..count {
        sender.send(b"x").unwrap();
        receiver.recv(&mut [0; 8]).unwrap();
    }
}

#[test]
fn an_interface_is_attached_looked_at_and_let_go() {
    let test = "an_interface_is_attached_looked_at_and_let_go";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let said = inside(&pair, "attach rx0 --check --cpus 0");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("this kernel accepts all programs"), "{said:?}");
    assert_eq!(inside(&pair, "status").out, "nothing is attached in this network namespace\n");
    assert_eq!(inside(&pair, "attach no-such").code, 1);

    let mut steering = Steering::new(
        &pair.sink,
        "attach rx0 --mode native --table-entries 1k --qsize 512",
        |_| {},
    );
    let first = &steering.first;
    assert!(first.starts_with("attached to rx0 in native mode: flow-aware, CPUs "), "{first}");
    assert!(first.ends_with(", 1024 flows a table\n"), "{first}");
    exchange(&connected(&pair), 10);
    let one = status(&pair);
    assert_eq!((&one["interface"], &one["mode"]), (&"rx0".into(), &"native".into()));
    let udp = |reason: &str| one["classes"]["udp"][reason].as_u64().unwrap();
    // Held: found, and not yet moved to where its reader now runs.
    assert_eq!((udp("hit") + udp("held"), udp("miss")), (9, 1));
    // What only the process knows.
    let process = &one["process"];
    assert_eq!(process["pid"], steering.child.id());
    assert_eq!(process["settings"]["qsize"], "512");
    assert_eq!(process["settings"]["policy"], "flow-aware");
    assert!(inside(&pair, "status").out.starts_with("rx0  native mode, program "));

    let second = inside(&pair, "attach rx0");
    assert_eq!(second.code, 1);
    let named = format!(
        "rx0 has an XDP program already: rxsteer_steer (number {}, native mode, held by process {} \
         (rxsteer))",
        one["program_id"],
        steering.child.id()
    );
    assert!(second.err.contains(&named), "{second:?}");
    assert!(second.err.contains("rxsteer detach rx0"), "{second:?}");

    steering.signal("TERM");
    let said = steering.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("detached; "), "{said:?}");
    assert_eq!(inside(&pair, "status --json").out, "{\"attached\":[],\"schema_version\":1}\n");
}

#[test]
fn rates_are_what_happened_between_two_looks() {
    let test = "rates_are_what_happened_between_two_looks";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let _steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    let sockets = connected(&pair);
    exchange(&sockets, 50);
    let before = status(&pair)["packets"].as_u64().unwrap();
    assert_eq!(before, 50);
    // Nothing happens meanwhile: all that was before must not be in the rates.
    let said = inside(&pair, "status rx0 --watch 0.1 -n 2 --json");
    let lines: Vec<Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{said:?}");
    let documented = include_str!("../../../docs/json-schema.md");
    for line in &lines {
        let one = &line["attached"][0];
        for object in [one, &one["process"], &one["kernel"], &one["rates"], &one["by_cpu"][0]] {
            let keys = object.as_object().unwrap().keys();
            let missing: Vec<_> =
                keys.filter(|key| !documented.contains(&format!("`{key}`"))).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
        assert_eq!((&one["packets"], &one["rates"]["packets"]), (&50.into(), &Value::from(0.0)));
        assert!(one["rates"]["seconds"].as_f64().unwrap() >= 0.1, "{one}");
        assert_eq!(one["rates"]["hit_rate"], Value::Null);
    }
    let text = inside(&pair, "status --watch 0.1 -n 1").out;
    // No table was asked in that time: there is no share of what it knew.
    assert!(text.contains("; now 0/s\n") && text.contains("processed/s"), "{text}");
    assert!(text.contains("\n  settings ports on, shed on, beside on\n"), "{text}");
    let wrong = inside(&pair, "status --watch 0");
    assert_eq!((wrong.code, wrong.err.contains("0 is not from 0.1 to")), (2, true), "{wrong:?}");
    assert!(inside(&pair, "status lo").out.starts_with("nothing is attached to lo "));
}

#[test]
fn the_check_names_what_the_other_end_of_a_veth_leaves_undone() {
    // xdp-project/xdp-tutorial#357
    let test = "the_check_names_what_the_other_end_of_a_veth_leaves_undone";
    let left = PairSpec { source: Offloads::ALL, ..PairSpec::default() };
    let Some((_testbed, pair)) = pair(test, &left) else { return };
    let found = |line: &str, about: &str| -> Vec<(String, String)> {
        let said = inside(&pair, line);
        let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
        assert_eq!(json["schema_version"], 1);
        assert_eq!(json["would_attach"], said.code == 0, "{said:?}");
        let findings = json["findings"].as_array().unwrap();
        let all = findings.iter().filter(|finding| finding["about"] == about);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        all.map(|finding| (text(&finding["weight"]), text(&finding["text"]))).collect()
    };
    let warned = found("attach rx0 --check --json", "veth");
    assert_eq!(warned.len(), 1, "{warned:?}");
    let (weight, text) = &warned[0];
    assert_eq!(weight, "warns");
    assert!(text.contains("the other end, tx0, leaves checksums to its device"), "{text}");
    let way = format!("`ip netns exec {} ethtool -K tx0 tx off`", pair.source.name());
    assert!(text.contains(&way), "{text}");
    assert_eq!(found("attach rx0 --check --json --mode skb", "veth")[0].0, "fine");
    // The same words when it is attached.
    let steering = Steering::new(&pair.sink, "attach rx0 --mode native", |_| {});
    steering.signal("TERM");
    let said = { steering }.end();
    assert!(said.err.contains(text.as_str()), "{said:?}");

    pair.source.set_offloads(Pair::SOURCE_DEVICE, Offloads::NONE).unwrap();
    let fine = found("attach rx0 --check --json", "veth");
    assert_eq!(fine, [("fine".into(), "the other end, tx0, writes its checksums".into())]);
    let driver = found("attach rx0 --check --json --mode native", "driver");
    assert_eq!(driver, [("fine".into(), "veth has native XDP and redirect".into())]);
    pair.source.set_mtu(Pair::SOURCE_DEVICE, 9000).unwrap();
    pair.sink.set_mtu(Pair::SINK_DEVICE, 9000).unwrap();
    let mtu = found("attach rx0 --check --json --mode native", "MTU");
    assert_eq!(mtu[0].0, "blocks", "{mtu:?}");
    // The kernel agrees, and the error says the same way out.
    let refused = inside(&pair, "attach rx0 --mode native");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains(&mtu[0].1), "{refused:?}");
}

#[test]
fn in_skb_mode_unwritten_checksums_lose_nothing() {
    let test = "in_skb_mode_unwritten_checksums_lose_nothing";
    let left = PairSpec { source: Offloads::ALL, ..PairSpec::default() };
    let Some((_testbed, pair)) = pair(test, &left) else { return };
    let _steering = Steering::new(&pair.sink, "attach rx0 --mode skb", |_| {});
    exchange(&connected(&pair), 100);
    assert_eq!(status(&pair)["packets"], 100);
}

#[test]
fn the_kernels_own_steering_is_shown_and_said_to_fight() {
    let test = "the_kernels_own_steering_is_shown_and_said_to_fight";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let before = pair.sink.offloads(Pair::SINK_DEVICE).unwrap();
    let steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    let seen = || -> Value {
        let said = pair.sink.run_with_sys(|| rxsteer("status --json")).unwrap();
        serde_json::from_str::<Value>(&said.out).unwrap()["attached"][0].clone()
    };
    let abouts = |one: &Value| -> Vec<String> {
        let findings = one["findings"].as_array().unwrap().iter();
        let notes = findings.filter(|finding| finding["weight"] == "note");
        notes.map(|finding| finding["about"].as_str().unwrap().to_owned()).collect()
    };
    let quiet = seen();
    assert_eq!(quiet["kernel"]["is_visible"], true);
    assert_eq!(quiet["kernel"]["rps_cpus"][0], "");
    assert_eq!(quiet["kernel"]["gro"], before.gro);
    assert!(abouts(&quiet).iter().all(|about| about != "RPS"), "{quiet}");
    pair.sink.write_sys(Pair::SINK_DEVICE, "queues/rx-0/rps_cpus", "1").unwrap();
    let fighting = seen();
    assert_eq!(fighting["kernel"]["rps_cpus"][0], "0");
    assert!(abouts(&fighting).contains(&"RPS".to_owned()), "{fighting}");
    let text = pair.sink.run_with_sys(|| rxsteer("status")).unwrap().out;
    assert!(text.contains("RPS rx-0: 0;") && text.contains("fights with ours"), "{text}");
    // Where /sys is of another namespace, that is said instead of a guess.
    let hidden = status(&pair);
    assert_eq!(hidden["kernel"]["is_visible"], false);
    assert!(abouts(&hidden).contains(&"RPS, RFS".to_owned()), "{hidden}");
    // xdp-project/xdp-tutorial#292: what attaching changes of the offloads is put back by the end.
    drop(steering);
    assert_eq!(pair.sink.offloads(Pair::SINK_DEVICE).unwrap(), before);
}

/// The programs and maps of the largest tables, which some kernels may have no memory for.
#[test]
fn the_largest_tables_can_be_made() {
    let test = "the_largest_tables_can_be_made";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let free: u64 = free.trim().trim_end_matches(" kB").parse().unwrap();
    if free < 8 << 20 {
        eprintln!("skipped {test}: {free} kB are free, of 8 GiB");
        return;
    }
    let said = inside(&pair, "attach rx0 --check --table-entries 16M");
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
    let said = rxsteer("detach");
    assert_eq!((said.code, said.err.contains("<IFACE|--all>")), (2, true), "{said:?}");
    assert_eq!(rxsteer("detach eth0 --all").code, 2);
}

#[test]
fn of_an_interface_that_is_not_there_nothing_else_is_said() {
    let said = rxsteer("attach no-such-device --check");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("there is no interface no-such-device"), "{said:?}");
    assert!(!said.out.contains("RPS"), "{said:?}");
}

#[test]
fn a_file_of_settings_is_checked_without_attaching() {
    let dir = scratch("check-config");
    let write = |text: &str| std::fs::write(dir.join("x.toml"), text).unwrap();
    write("cpus = 'all'\nqsize = 0x100\nmetrics = '127.0.0.1:9477'\n");
    let said = rxsteer_in(&dir, &["check-config", "x.toml"], &[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("x.toml may be used; on this host it comes to:\n"), "{said:?}");
    assert!(said.out.contains("\n  qsize           256\n"), "{said:?}");
    assert!(said.out.contains("\n  metrics         127.0.0.1:9477\n"), "{said:?}");
    write("cpus = '0'\ntable-entries = 1000\nports = false\nshed = 'off'\n");
    let said = rxsteer_in(&dir, &["check-config", "x.toml"], &[]);
    assert!(said.out.contains("\n  table-entries   1000, rounded up to 1024\n"), "{said:?}");
    assert!(
        said.out
            .ends_with("\n  ports           off\n  flow-ports      none\n  shed            off\n  beside          on\n"),
        "{said:?}"
    );
    write("cpus = 4\n");
    let said = rxsteer_in(&dir, &["check-config", "x.toml"], &[]);
    assert_eq!(
        (said.code, said.err.contains("x.toml:1:8: cpus: the number 4 could be")),
        (1, true)
    );
    write("qsizes = 5\nmode = 'fast'\n\n[eth0]\n");
    let said = rxsteer_in(&dir, &["check-config", "x.toml"], &[]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(said.err.contains("x.toml:1:1: qsizes: there is no such key; did you mean qsize?"));
    assert!(said.err.contains("x.toml:4:2: eth0: there is no such key"), "{said:?}");
    let said = rxsteer_in(&dir, &["check-config", "none.toml"], &[]);
    assert_eq!((said.code, said.err.contains("none.toml: No such file")), (1, true), "{said:?}");
    let said = rxsteer_in(&dir, &["attach", "eth0", "--config", "x.toml"], &[]);
    assert_eq!((said.code, said.err.contains("x.toml:1:1: ")), (2, true), "{said:?}");
}

#[test]
fn the_settings_of_the_documentation_may_be_used() {
    let text = include_str!("../../../docs/attach.md");
    let block = text.split("```toml attach\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = scratch("documented-settings");
    // CPUs that every host has.
    std::fs::write(dir.join("x.toml"), block.replace("\"0-3\"", "\"0\"")).unwrap();
    let said = rxsteer_in(&dir, &["check-config", "x.toml"], &[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("\n  table-entries   262144\n"), "{said:?}");
}
