//! What is left of an attachment when its process ends: nothing. Needs root; without it the tests
//! say so.
//!
//! The process that is killed is this test itself, started again to hold an attachment.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{connected, pair, until};
use rxsteer_kernel::{Attachment, OnInterface, Settings, programs_on_interfaces, status};
use rxsteer_testbed::{Pair, allowed_cpus};

const ROLE: &str = "RXSTEER_TEST_ROLE";

/// Not a test by itself: the part of the process that is killed.
#[test]
fn holder_of_an_attachment() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let settings = Settings::new(Pair::SINK_DEVICE, allowed_cpus().unwrap());
    let held = Attachment::new(settings).unwrap();
    println!("holding {}", held.mode());
    std::thread::sleep(Duration::from_secs(60));
}

fn holder(pair: &Pair) -> Child {
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holder_of_an_attachment", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = pair.sink.run(start).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.map(Result::unwrap).find(|line| line.contains("holding "));
    assert!(ready.is_some(), "the holder says that it holds");
    child
}

fn there(pair: &Pair) -> Vec<OnInterface> {
    pair.sink.run(|| programs_on_interfaces().unwrap()).unwrap()
}

#[test]
fn nothing_stays_attached_when_the_process_is_killed_and_packets_flow() {
    let test = "nothing_stays_attached_when_the_process_is_killed_and_packets_flow";
    let Some(pair) = pair(test) else { return };
    let (receiver, sender) = connected(&pair, false);
    let exchange = |count: u64| {
        for _ in 0..count {
            sender.send(b"x").unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
        }
    };
    exchange(3);
    let mut child = holder(&pair);
    assert_eq!(there(&pair).len(), 1);
    exchange(40);
    // Another process can look on.
    let seen = pair.sink.run(|| status().unwrap()).unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].on.interface, Pair::SINK_DEVICE);
    assert!(seen[0].counters.seen() >= 40, "{:?}", seen[0].counters);
    assert_eq!(seen[0].flows, [0, 1]);
    assert_eq!(seen[0].cpus, allowed_cpus().unwrap().iter().collect::<Vec<_>>());

    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    // The kernel closes what a process held as part of its end, some of it a moment later.
    until(|| there(&pair), Vec::is_empty);
    exchange(40);
    assert!(pair.sink.run(|| status().unwrap()).unwrap().is_empty());
}
