//! The programs in the running kernel. Needs root; without it each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::collections::BTreeSet;

use rxsteer_core::CpuId;
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{Aware, Reason};
use rxsteer_ebpf::{Config, program};
use rxsteer_kernel::{Action, OBJECT, TestBed, Twin, missing_capabilities, verify};
use rxsteer_lab::generate::sample;

const CONFIG: Config = Config {
    hasher: SoftHasher { k0: 11, k1: 13 },
    tcp_buckets: 64,
    udp_buckets: 64,
    aware: Aware { spill_above_packets: u32::MAX, learn_after: 8, flows_after: 2 },
};
const CPU: CpuId = CpuId(0);

/// Says why the test cannot run here, if it cannot.
fn is_skipped(test: &str) -> bool {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return false;
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    eprintln!("skipped {test}: this process lacks {}", names.join(", "));
    true
}

fn twin(config: Config) -> Twin {
    Twin::new(config, vec![CPU]).expect("powers of two")
}

/// UDP 10.0.0.1:1000 > 10.0.0.2:2000 over IPv4.
fn udp() -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x03, 0xe8, 0x07, 0xd0, 0, 8, 0, 0]);
    frame
}

#[test]
fn the_verifier_accepts_every_program() {
    if is_skipped("the_verifier_accepts_every_program") {
        return;
    }
    let reports = verify(OBJECT).expect("all are accepted");
    let names: BTreeSet<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    let mut expected = BTreeSet::from(program::EVENTS.map(|(name, _)| name));
    expected.extend([program::BARE, program::OBSERVE, program::PASS, program::STEER]);
    expected.extend([program::TAKEN, program::RELEASED, program::OUT]);
    assert_eq!(names, expected);
    for report in &reports {
        assert!(report.stack_bytes <= 512, "{report:?}");
        assert!(report.verified_instructions >= 2, "{report:?}");
    }
}

#[test]
fn a_known_flow_is_a_hit_and_is_redirected() {
    if is_skipped("a_known_flow_is_a_hit_and_is_redirected") {
        return;
    }
    let twin = twin(CONFIG);
    twin.record(&udp(), CPU);
    let mut bed = TestBed::new(&twin.setup()).expect("the programs load");
    let seen = bed.observe(&udp()).expect("the program runs");
    assert_eq!(seen.reason_index(), Reason::Hit.index());
    assert_eq!(seen.cpu(), CPU);
    assert_eq!(seen, twin.observe(&udp(), CPU));
    let run = bed.run(program::STEER, &udp(), 1).expect("the program runs");
    assert_eq!(run.action, Action::Redirect);
}

#[test]
fn an_unknown_flow_is_a_miss_and_what_cannot_be_hashed_passes() {
    if is_skipped("an_unknown_flow_is_a_miss_and_what_cannot_be_hashed_passes") {
        return;
    }
    let mut setup = twin(CONFIG).setup();
    let mut bed = TestBed::new(&setup).expect("the programs load");
    let seen = bed.observe(&udp()).expect("the program runs");
    assert_eq!(seen.reason_index(), Reason::Miss.index());
    // A queue without CPUs has no say: the packet stays where it came in.
    setup.cpus.clear();
    let mut bed = TestBed::new(&setup).expect("the programs load");
    let seen = bed.observe(&udp()).expect("the program runs");
    assert_eq!(seen.reason_index(), Reason::Local.index());
    let run = bed.run(program::STEER, &udp(), 1).expect("the program runs");
    assert_eq!(run.action, Action::Pass);
}

#[test]
fn another_key_gives_another_hash_and_is_told_apart() {
    if is_skipped("another_key_gives_another_hash_and_is_told_apart") {
        return;
    }
    let other = Config { hasher: SoftHasher { k0: 11, k1: 14 }, ..CONFIG };
    let mut bed = TestBed::new(&twin(CONFIG).setup()).expect("the programs load");
    let seen = bed.observe(&udp()).expect("the program runs");
    assert_eq!(seen, twin(CONFIG).observe(&udp(), CPU));
    assert_ne!(seen, twin(other).observe(&udp(), CPU));
}

#[test]
fn program_and_native_core_say_the_same_of_the_sample() {
    if is_skipped("program_and_native_core_say_the_same_of_the_sample") {
        return;
    }
    let twin = twin(CONFIG);
    let mut bed = TestBed::new(&twin.setup()).expect("the programs load");
    let mut frames = sample().frames();
    let mut count = 0;
    while let Some(frame) = frames.next_frame() {
        let frame = &frame.bytes;
        if !TestBed::FRAME_BYTES.contains(&frame.len()) || count == 2000 {
            continue;
        }
        let seen = bed.observe(frame).expect("the program runs");
        assert_eq!(seen, twin.observe(frame, CPU), "{frame:02x?}");
        count += 1;
    }
    assert_eq!(count, 2000);
}
