//! Time of a run of the program, by the kernel's own clock, next to that of a program that does
//! nothing and of one that spreads by a plain hash.
//!
//! Shown and never judged: on a shared machine a time is a rumour and a ratio a hint.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use rxsteer_core::CpuId;
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::Aware;
use rxsteer_ebpf::{Config, program};
use rxsteer_kernel::{Action, TestBed, Twin};
use rxsteer_lab::generate::{Layer, Tcp, TcpFlags, V4, V6, packet};

/// Rounds, of which the fastest counts: others were interrupted more.
const ROUNDS: u32 = 5;

/// Prints one line for each shape of frame and state of the table.
pub(super) fn print(repeat: u32) -> Result<()> {
    let config = Config {
        hasher: SoftHasher { k0: 1, k1: 2 },
        tcp_buckets: 8192,
        udp_buckets: 8192,
        aware: Aware::default(),
    };
    println!(
        "{:<28} {:>6} {:>6} {:>6} {:>11} {:>13}",
        "test run, ns per packet", "pass", "bare", "steer", "above pass", "times bare"
    );
    for (name, frame) in shapes() {
        for is_known in [true, false] {
            let twin = Twin::new(config, vec![CpuId(0), CpuId(1)]).context("table sizes")?;
            if is_known {
                twin.record(&frame, CpuId(0));
            }
            let bed = TestBed::new(&twin.setup())?;
            let [mut pass, mut bare, mut steer] = [u128::MAX; 3];
            for _ in 0..ROUNDS {
                // By turns, so that all meet the same neighbours.
                pass = pass.min(bed.run(program::PASS, &frame, repeat)?.mean.as_nanos());
                bare = bare.min(bed.run(program::BARE, &frame, repeat)?.mean.as_nanos());
                steer = steer.min(bed.run(program::STEER, &frame, repeat)?.mean.as_nanos());
            }
            let name = format!("{name}, {}", if is_known { "hit" } else { "miss" });
            let above = steer as i128 - pass as i128;
            // What it cannot read it passes: no work to compare with.
            let is_read = bed.run(program::BARE, &frame, 1)?.action == Action::Redirect;
            let (bare, times) = if is_read {
                (bare.to_string(), format!("{:.2}", steer as f64 / bare.max(1) as f64))
            } else {
                ("-".to_owned(), "-".to_owned())
            };
            println!("{name:<28} {pass:>6} {bare:>6} {steer:>6} {above:>11} {times:>13}");
        }
    }
    Ok(())
}

fn shapes() -> Vec<(&'static str, Vec<u8>)> {
    let ethernet = Layer::Ethernet { back: false };
    let v4 = Layer::V4(V4::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2)));
    let v6 = Layer::V6(V6::new(
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    ));
    let udp = Layer::Udp { src: 40_000, dst: 443, checksum: true };
    let tag = |vid| Layer::Vlan { tpid: 0x8100, vid };
    let tcp = Layer::Tcp(Tcp {
        src: 40_000,
        dst: 443,
        seq: 1,
        ack: 1,
        flags: TcpFlags { ack: true, ..TcpFlags::default() },
    });
    vec![
        ("ipv4 udp", packet(&[ethernet, v4, udp], &[0; 20])),
        ("ipv4 tcp", packet(&[ethernet, v4, tcp], &[0; 20])),
        ("ipv6 udp", packet(&[ethernet, v6, udp], &[0; 20])),
        ("two tags, ipv4 udp", packet(&[ethernet, tag(100), tag(200), v4, udp], &[0; 20])),
    ]
}
