//! The fuzz target of the datagram checks without a fuzzer: over the committed seeds, and over mutations
//! of them.
//!
//! `RXSTEER_WRITE_SEEDS=1` writes the seeds; `RXSTEER_FUZZ_RUNS=N` says how many mutations there are.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../../../fuzz/src/datagram.rs"]
#[expect(unreachable_pub, reason = "it is public where it is a library")]
mod datagram;

use std::path::PathBuf;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// A UDP segment with this payload; `checksum` is written as it is.
fn segment(payload: &[u8], checksum: u16) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut bytes = vec![0x1b, 0x58, 0, 53];
    bytes.extend(length.to_be_bytes());
    bytes.extend(checksum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The checksum of a segment under these addresses (RFC 768).
fn right(addresses: &[u8], segment: &[u8]) -> u16 {
    let words = |bytes: &[u8]| {
        let word = |w: &[u8]| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0));
        bytes.chunks(2).map(word).sum::<u32>()
    };
    let mut sum = words(addresses) + words(segment) + segment.len() as u32 + 17;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    if sum == 0xffff { 0xffff } else { !sum as u16 }
}

fn v4(payload: &[u8], options: &[u8], fragment: u16) -> Vec<u8> {
    let addresses = [192, 0, 2, 1, 198, 51, 100, 7];
    let sum = right(&addresses, &segment(payload, 0));
    let segment = segment(payload, sum);
    let header_len = 20 + options.len();
    let total = (header_len + segment.len()) as u16;
    let mut bytes = vec![0x40 | (header_len / 4) as u8, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 9]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, 17, 0, 0]);
    bytes.extend(addresses);
    bytes.extend(options);
    let header: u32 =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let header = !((header & 0xffff) + (header >> 16)) as u16;
    bytes[10..12].copy_from_slice(&header.to_be_bytes());
    bytes.extend(segment);
    bytes
}

fn v6(payload: &[u8], extension: &[u8], checksum: Option<u16>) -> Vec<u8> {
    let mut addresses = [0; 32];
    addresses[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    addresses[16..20].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    addresses[31] = 7;
    let sum = checksum.unwrap_or_else(|| right(&addresses, &segment(payload, 0)));
    let segment = segment(payload, sum);
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(((extension.len() + segment.len()) as u16).to_be_bytes());
    bytes.extend([if extension.is_empty() { 17 } else { 0 }, 64]);
    bytes.extend(addresses);
    bytes.extend(extension);
    bytes.extend(segment);
    bytes
}

/// Packets of both versions, one for each thing that is looked at, under rules of all kinds.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let text =
        b"a payload that is longer than what is verified at arrival, of an odd number of bytes";
    let packets = [
        ("v4", v4(b"x", &[], 0)),
        ("v4-long", v4(text, &[], 0x4000)),
        ("v4-empty", v4(b"", &[], 0)),
        ("v4-options", v4(b"xy", &[1, 1, 1, 0], 0)),
        ("v4-fragment", v4(b"xy", &[], 0x2000)),
        ("v6", v6(b"x", &[], None)),
        ("v6-long", v6(text, &[], None)),
        ("v6-hop-by-hop", v6(b"xy", &[17, 0, 1, 4, 0, 0, 0, 0], None)),
        ("v6-no-checksum", v6(b"xy", &[], Some(0))),
        ("v6-wrong", v6(b"xy", &[], Some(0x1234))),
    ];
    let mut seeds = Vec::new();
    for (rules, (name, packet)) in (0..).zip(packets) {
        seeds.push((name.to_owned(), [&[rules & 3], packet.as_slice()].concat()));
    }
    let mut wrong = v4(text, &[], 0);
    wrong[30] ^= 1;
    seeds.push(("v4-wrong".into(), [&[0], wrong.as_slice()].concat()));
    let mut jumbo = v6(b"xy", &[], None);
    jumbo[44..46].fill(0);
    seeds.push(("v6-no-length".into(), [&[0], jumbo.as_slice()].concat()));
    seeds
}

#[test]
fn the_committed_packets_are_those_of_the_code_and_keep_the_promises() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/datagram");
    let seeds = seeds();
    if std::env::var_os("RXSTEER_WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in &seeds {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
    for (name, bytes) in &seeds {
        let found = std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found == *bytes, "{name} is not what the code makes of it");
        datagram::check(bytes);
    }
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(files, seeds.len(), "there are files that the code does not make");
}

/// The seeds are what they are called: some are accepted, some refused.
#[test]
fn seeds_reach_both_verdicts() {
    use rxsteer_sockets::datagram::{Rules, check_packet};
    for (name, bytes) in seeds() {
        let rules =
            Rules { device_verified: bytes[0] & 1 != 0, ipv6_zero_allowed: bytes[0] & 2 != 0 };
        let refused = ["v4-fragment", "v4-wrong", "v6-no-checksum", "v6-no-length"];
        let result = check_packet(&bytes[1..], rules);
        assert_eq!(result.is_err(), refused.contains(&name.as_str()), "{name}: {result:?}");
    }
}

/// A change of a packet, as a fuzzer would make it.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Cut(Index),
    Insert(Index, Vec<u8>),
    Word(Index, u16),
}

fn change() -> impl Strategy<Value = Change> {
    let edges = prop::sample::select(&[0, 1, 7, 8, 9, 0x7fff, 0xffff_u16][..]);
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        any::<Index>().prop_map(Change::Cut),
        (any::<Index>(), vec(any::<u8>(), 1..40)).prop_map(|(at, new)| Change::Insert(at, new)),
        (any::<Index>(), edges).prop_map(|(at, word)| Change::Word(at, word)),
    ]
}

#[test]
fn mutated_packets_keep_the_promises() {
    let asked = std::env::var("RXSTEER_FUZZ_RUNS").ok();
    let cases = asked.map_or(3_000, |asked| asked.parse().expect("RXSTEER_FUZZ_RUNS is a number"));
    let seeds: Vec<_> = seeds().into_iter().map(|(_, bytes)| bytes).collect();
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let inputs = (prop::sample::select(seeds), vec(change(), 0..5));
    runner
        .run(&inputs, |(mut bytes, changes)| {
            for change in changes {
                match change {
                    Change::Set(at, byte) if !bytes.is_empty() => *at.get_mut(&mut bytes) = byte,
                    Change::Flip(at, bit) if !bytes.is_empty() => {
                        *at.get_mut(&mut bytes) ^= 1 << bit;
                    }
                    Change::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
                    Change::Insert(at, new) => {
                        let at = at.index(bytes.len() + 1);
                        bytes.splice(at..at, new);
                    }
                    Change::Word(at, word) if bytes.len() > 2 => {
                        let at = at.index(bytes.len() - 1);
                        bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
                    }
                    Change::Set(..) | Change::Flip(..) | Change::Word(..) => {}
                }
            }
            datagram::check(&bytes);
            Ok(())
        })
        .unwrap();
}
