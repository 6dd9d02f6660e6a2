//! The means against overload, each alone and together, on a host in virtual time.
//!
//! Costs are the defaults of the engine: 675 ns of packet work and 1,500 ns of reading, so one CPU
//! carries 460,000 packets/s at most, and two, of which one only reads, 617,000 (1.62 µs with the
//! packet's way between caches).
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod host;

use host::{Case, Report, Sender, run};
use rxsteer_core::steer::PolicyKind;
use rxsteer_engine::Mode;
use rxsteer_engine::overload::Means;

/// Packets/s that one CPU carries, if all of its time is put to use.
const ONE: f64 = 1e9 / (675.0 + 1_500.0);

const SHED: Means = Means { shed: true, fair: true, in_flight: true, ..Means::NONE };
const GOVERN: Means = Means { govern: true, ..Means::NONE };
const BESIDE: Means = Means { beside: true, ..Means::NONE };

/// Reader and packets on CPU 0, no steering, no means.
const ON_ONE: Case = Case {
    policy: PolicyKind::None,
    means: Means::NONE,
    mode: Mode::Inline,
    costs: None,
    read_batch: 1,
    readers: &[0],
    mask: &[],
    connected: true,
};

/// The reader on the CPU that takes the packets, steering over this CPU and the next.
const STEERED: Case = Case { policy: PolicyKind::FlowAware, mask: &[0, 1], ..ON_ONE };

const FLOW: Sender =
    Sender { packets_per_s: 0.0, socket: 0, prefix: Some(1), hash: Some(0x2000_0001) };

fn at(case: &Case, times: f64) -> Report {
    let report = run(case, &[Sender { packets_per_s: times * ONE, ..FLOW }], 20, 6);
    assert_eq!(report.reordered, 0);
    report
}

/// Packets/s read of one flow, as part of what one CPU carries, at a load of so many times that.
fn read(case: &Case, times: f64) -> f64 {
    at(case, times).read_per_s() / ONE
}

#[test]
fn each_means_alone_and_together_against_livelock() {
    let inline = |means| read(&Case { means, ..ON_ONE }, 16.0);
    let without = inline(Means::NONE);
    assert!(without < 0.01, "livelock: {without}");
    // Cheap drops help as far as they go: sixteen times the load is too much even for them.
    let shed_at_4 = read(&Case { means: SHED, ..ON_ONE }, 4.0);
    let shed_at_16 = inline(SHED);
    assert!(shed_at_4 > 0.4, "{shed_at_4}");
    assert!(shed_at_16 > 2.0 * without && shed_at_16 < 0.05, "{shed_at_16}");
    // At most half of the time for packets, though many of them find no room, and few interrupts.
    let govern = inline(GOVERN);
    assert!((0.65..0.95).contains(&govern), "{govern}");
    // Both: nearly all of the CPU is put to use.
    let both = inline(Means { govern: true, ..SHED });
    assert!(both > 0.95, "{both}");
    // Without steering nobody can be placed.
    let beside = inline(BESIDE);
    assert!(beside < 0.01, "{beside}");
    // With it, beside alone carries four times the load half as well as one CPU without overload.
    let beside = read(&Case { means: BESIDE, ..STEERED }, 4.0);
    let steered = read(&STEERED, 4.0);
    assert!(beside > 0.45 && steered < 0.01, "{beside} {steered}");
}

#[test]
fn delivery_at_four_times_the_load_is_four_fifths_of_what_two_cpus_deliver() {
    let best = [2.0, 4.0].map(|times| read(&Case { readers: &[1], ..ON_ONE }, times));
    let best = best.into_iter().fold(0.0, f64::max);
    for mode in Mode::ALL {
        let report = at(&Case { means: Means::ALL, mode, ..STEERED }, 4.0);
        let read = report.read_per_s() / ONE;
        assert!(read >= 0.8 * best, "{}: {read} of {best}", mode.name());
        assert_eq!(report.control.moves().placed, 1);
    }
}

/// Delivered at loads from half to 64 times of what one CPU carries.
fn never_falls(case: &Case) -> f64 {
    let loads = [0.5, 1.0, 2.0, 4.0, 16.0, 64.0];
    let read = loads.map(|times| read(case, times));
    let mut best = 0.0f64;
    for now in read {
        assert!(now > 0.98 * best, "{}: {read:?}", case.mode.name());
        best = best.max(now);
    }
    best
}

#[test]
fn what_is_delivered_never_falls_as_the_load_grows_on_one_cpu() {
    for mode in Mode::ALL {
        let means = Means { govern: true, ..SHED };
        assert!(never_falls(&Case { means, mode, ..ON_ONE }) > 0.93);
    }
}

#[test]
fn what_is_delivered_never_falls_as_the_load_grows_with_all_means() {
    for mode in Mode::ALL {
        assert!(never_falls(&Case { means: Means::ALL, mode, ..STEERED }) > 1.05);
    }
}

#[test]
fn what_is_delivered_never_falls_where_packets_follow_the_reader_to_another_cpu() {
    let followed = Case { readers: &[1], ..STEERED };
    // Following alone is the livelock of the reader's CPU.
    assert!(read(&followed, 16.0) < 0.01);
    assert!(never_falls(&Case { means: SHED, ..followed }) > 0.8);
    assert!(never_falls(&Case { means: Means::ALL, ..followed }) > 1.3);
}

#[test]
fn many_small_flows_stay_on_the_cpu_of_their_readers() {
    const READERS: [u16; 64] = [0; 64];
    let case = Case { means: Means::ALL, readers: &READERS, ..STEERED };
    let sender = |n: u32| Sender {
        packets_per_s: 4.0 * ONE / 64.0,
        socket: n,
        prefix: Some(n as u8),
        hash: Some(0x0123_4567_u32.wrapping_mul(2 * n + 1)),
    };
    let senders: Vec<Sender> = (0..64).map(sender).collect();
    let report = run(&case, &senders, 20, 10);
    assert_eq!((report.control.moves().placed, report.reordered), (0, 0));
    // Each packet wakes its reader: 400 ns, and 600 to switch to it.
    let one = 1e9 / (675.0 + 1_500.0 + 1_000.0);
    assert!(report.read_per_s() > 0.9 * one, "{} of {one}", report.read_per_s());
}

/// One flow of a twentieth of what the CPU carries, familiar, beside a flood that its CPU can
/// still take off the ring in half of its time.
fn beside_a_flood(means: Means, flood: Sender) -> Report {
    let case =
        Case { means, connected: false, readers: &[0, 0], policy: PolicyKind::None, ..ON_ONE };
    let legit = Sender { packets_per_s: 0.05 * ONE, prefix: Some(7), hash: Some(77), ..FLOW };
    run(&case, &[legit, Sender { packets_per_s: 2.5 * ONE, ..flood }], 400, 100)
}

#[test]
fn a_legit_flow_loses_nothing_beside_a_flood_that_its_cpu_can_take() {
    let means = Means { govern: true, ..SHED };
    let random = Sender { prefix: None, hash: None, ..FLOW };
    let prefix = Sender { prefix: Some(9), hash: None, ..FLOW };
    let flow = Sender { prefix: Some(9), hash: Some(99), ..FLOW };
    let elsewhere = Sender { socket: 1, ..flow };
    for flood in [random, prefix, flow, elsewhere] {
        let report = beside_a_flood(means, flood);
        let legit = report.senders[0];
        assert_eq!((legit.shed, legit.no_room, legit.other), (0, 0, 0), "{flood:?} {legit:?}");
        assert!(report.read_per_s() > 0.5 * ONE, "{flood:?}: {}", report.read_per_s() / ONE);
    }
    // Without shares the same flow loses nearly all.
    let unfair = beside_a_flood(Means { fair: false, ..means }, random).senders[0];
    assert!(unfair.read * 2 < unfair.offered, "{unfair:?}");
}
