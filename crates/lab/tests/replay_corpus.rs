//! Every capture of a corpus through every policy: the books balance, whatever is in it.
//!
//! Reads the folder `corpus` below `RXSTEER_SHARED`. Skips where that is not set.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod replay_common;

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use replay_common::checked;
use rxsteer_core::dissect::Mode;
use rxsteer_lab::capture::{CaptureOptions, Captures};
use rxsteer_lab::host::Host;
use rxsteer_lab::replay::{LocalRule, Replay, ReplayOptions};

#[test]
fn every_packet_of_the_corpus_has_one_reason_and_one_end_under_every_policy() {
    let Some(shared) = std::env::var_os("RXSTEER_SHARED") else {
        eprintln!("skipped: RXSTEER_SHARED does not say where the corpus is");
        return;
    };
    let corpus = PathBuf::from(shared).join("corpus");
    let table = fs::read_to_string(corpus.join("captures.tsv")).unwrap();
    let (mut captures_read, mut packets, mut received) = (0, 0, 0);
    for (number, line) in table.lines().skip(1).enumerate() {
        let name = line.split('\t').next().unwrap();
        let path = ["captures", ""].iter().map(|dir| corpus.join(dir).join(name));
        let path = path.into_iter().find(|path| path.is_file()).unwrap();
        let options = ReplayOptions {
            mode: if number % 2 == 0 { Mode::Kernel } else { Mode::Inner },
            track_fragments: number % 3 == 0,
            local: if number % 5 == 0 { LocalRule::All } else { LocalRule::Infer },
            workers: 1 + number as u32 % 3,
            ..ReplayOptions::default()
        };
        let mut captures = Captures::open(&[&path], &CaptureOptions::default()).unwrap();
        let replay = Replay::new(Host::simple(4, 2).unwrap(), options).unwrap();
        let report =
            replay.run(&mut captures, &[name.into()], &mut |_| ControlFlow::Continue(())).unwrap();
        let report = checked(report);
        captures_read += 1;
        packets += report.input.packets_read;
        received += report.input.received;
    }
    assert!(captures_read > 0);
    println!("{captures_read} captures, {packets} packets, {received} received");
    assert!(received * 4 > packets, "most packets have a direction");
}
