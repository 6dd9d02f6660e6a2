//! Replays generated traffic and prints packets per second: two thirds of the packets are of
//! conversations, one third of clients that come once.
//!
//! `cargo run --release -p rxsteer-lab --example replay_rate -- [PACKETS] [FLOWS] [THREADS] [POLICY…]`
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::io::Cursor;
use std::ops::ControlFlow;
use std::time::Instant;

use rxsteer_core::steer::PolicyKind;
use rxsteer_lab::capture::{CaptureOptions, Captures};
use rxsteer_lab::generate::{self, Crowd, CrowdKind, EPOCH_NS, Scenario, Uniform};
use rxsteer_lab::host::Host;
use rxsteer_lab::replay::{Replay, ReplayOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let packets: u64 = args.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let flows: u64 = args.next().map_or(Ok(4096), |n| n.parse())?;
    let threads = args.next().map_or(Ok(0), |n| n.parse())?;
    let mut policies: Vec<PolicyKind> =
        args.map(|name| name.parse::<PolicyKind>()).collect::<Result<_, _>>()?;
    if policies.is_empty() {
        policies.push(PolicyKind::FlowAware);
    }
    let capture = capture(packets, flows)?;
    println!("{packets} packets, {} bytes", capture.len());

    let count = policies.len();
    let options = ReplayOptions { policies, threads, ..ReplayOptions::default() };
    let reader = Box::new(Cursor::new(capture));
    let start = Instant::now();
    let mut captures = Captures::from_reader("generated", reader, &CaptureOptions::default())?;
    let replay = Replay::new(Host::simple(8, 2)?, options)?;
    let report = replay.run(&mut captures, &[], &mut |_| ControlFlow::Continue(()))?;
    let seconds = start.elapsed().as_secs_f64();
    let packets = report.input.packets_read as f64;
    println!(
        "{seconds:.2} s, {:.2} M packets/s, {count} policies: {:.2} M packets/s and policy",
        packets / seconds / 1e6,
        packets * count as f64 / seconds / 1e6
    );
    Ok(())
}

fn capture(packets: u64, flows: u64) -> std::io::Result<Vec<u8>> {
    let mut scenario = Scenario::new(1).snap_len(64);
    let long = Uniform {
        flows,
        packets_per_flow: packets / flows + 1,
        gap_ns: 1500,
        ..Uniform::default()
    };
    let once = Crowd {
        requests: packets / 6 + 1, // each with an answer
        gap_ns: 6000,
        ..Crowd::new("192.0.2.10:53".parse().expect("an address"), CrowdKind::Dns, EPOCH_NS)
    };
    scenario.add(long).add(once);
    let mut bytes = Vec::new();
    generate::write_pcap(&mut bytes, &mut scenario.frames(), packets)?;
    Ok(bytes)
}
