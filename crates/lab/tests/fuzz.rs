//! The fuzz targets without a fuzzer: over the committed seeds, and over mutations of them.
//!
//! `RXSTEER_WRITE_SEEDS=1` writes the seeds; `RXSTEER_FUZZ_RUNS=N` says how many mutations there are.

#[path = "../../../fuzz/src/capture.rs"]
#[expect(unreachable_pub, reason = "it is public where it is a library")]
mod capture;
#[path = "../../../fuzz/src/dissect.rs"]
#[expect(unreachable_pub, reason = "it is public where it is a library")]
mod dissect;

mod capture_support;
mod fuzz_seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use fuzz_seeds::Seed;
use rxsteer_lab::generate::Rng;

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
}

/// Compares a folder with the seeds that belong there, and returns them.
fn committed(target: &str, seeds: Vec<Seed>) -> Vec<Seed> {
    let folder = folder(target);
    if std::env::var_os("RXSTEER_WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        for (name, bytes) in &seeds {
            std::fs::write(folder.join(name), bytes).expect("the folder can be written");
        }
    }
    for (name, bytes) in &seeds {
        let found =
            std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == *bytes, "{target}/{name} is not what the code makes of it");
    }
    let files = std::fs::read_dir(&folder).expect("the folder is there").count();
    assert_eq!(files, seeds.len(), "{target} has files that the code does not make");
    seeds
}

#[test]
fn the_committed_captures_are_those_of_the_code_and_keep_the_promises() {
    for (name, bytes) in committed("capture", fuzz_seeds::captures()) {
        eprintln!("{name}");
        capture::check(&bytes);
    }
}

#[test]
fn the_committed_frames_are_those_of_the_code_and_keep_the_promises() {
    for (name, bytes) in committed("dissect", fuzz_seeds::frames()) {
        eprintln!("{name}");
        dissect::check(&bytes);
    }
}

/// Values at which lengths and counters turn over.
const EDGES: [u64; 12] =
    [0, 1, 3, 4, 11, 12, 0x7f, 0xff, 0x7fff_ffff, 0xffff_fffc, u32::MAX as u64, u64::MAX];

/// Changes a few places of the bytes, as a fuzzer would.
fn mutate(bytes: &mut Vec<u8>, others: &[Seed], rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.bits() as u8),
            2 => {
                let other = &others[rng.below(others.len() as u64) as usize].1;
                let from = rng.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
            3 => {
                let end = (at + 1 + rng.below(64) as usize).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            4 | 5 => {
                let value = EDGES[rng.below(EDGES.len() as u64) as usize];
                let width = [1, 2, 4, 8][rng.below(4) as usize];
                let value = if rng.below(2) == 0 {
                    value.to_le_bytes()[..width].to_vec()
                } else {
                    value.to_be_bytes()[8 - width..].to_vec()
                };
                // Lengths stand at multiples of 4 in a capture.
                let at = if rng.below(2) == 0 { at & !3 } else { at };
                for (place, new) in bytes.iter_mut().skip(at).zip(value) {
                    *place = new;
                }
            }
            6 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.bits() as u8;
                }
            }
        }
    }
    bytes.truncate(8192);
}

/// Checks mutations of the seeds: the same ones each time, more of them if asked.
fn mutations(seeds: Vec<Seed>, runs: u64, check: fn(&[u8])) {
    let asked = std::env::var("RXSTEER_FUZZ_RUNS").ok();
    let runs = asked.map_or(runs, |asked| asked.parse().expect("RXSTEER_FUZZ_RUNS is a number"));
    let mut rng = Rng::new(0x0672_7873, 0);
    for run in 0..runs {
        let (name, bytes) = &seeds[rng.below(seeds.len() as u64) as usize];
        let mut bytes = bytes.clone();
        mutate(&mut bytes, &seeds, &mut rng);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&bytes))) {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("run {run}, made of {name}: {hex}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn mutated_captures_keep_the_promises() {
    mutations(fuzz_seeds::captures(), 3_000, capture::check);
}

#[test]
fn mutated_frames_keep_the_promises() {
    mutations(fuzz_seeds::frames(), 20_000, dissect::check);
}
