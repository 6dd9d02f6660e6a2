//! The rules of a change, packet by packet: test runs of the program that steers count their packets as
//! sent to a CPU, and nobody takes them, so what waits is what the test says. Needs root.

use aya::programs::{TestRun as _, TestRunOptions};
use rxsteer_core::dissect::{Dissected, Start, dissect};
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::Aware;
use rxsteer_core::table::Epoch;
use rxsteer_ebpf::{Config, OPTIONS};

use super::*;
use crate::attach::{Settings, monotonic_ns};
use crate::{host_cpus, missing_capabilities};

const ZERO: CpuId = CpuId(0);
const ONE: CpuId = CpuId(1);

struct Bed {
    programs: Programs,
    fds: MapFds,
    backlogs: Backlogs,
    config: Config,
}

/// UDP 10.0.0.1:1000 > 10.0.0.2:2000 over IPv4.
fn udp() -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x03, 0xe8, 0x07, 0xd0, 0, 8, 0, 0]);
    frame
}

impl Bed {
    /// Returns programs that send to CPUs 0 and 1, attached to nothing; `None`, and says why, where this
    /// process may not have them.
    fn new(test: &str) -> Option<Self> {
        let missing = missing_capabilities();
        if !missing.is_empty() {
            eprintln!("skipped {test}: this process lacks {missing:?}");
            return None;
        }
        if host_cpus().unwrap().nr_cpu_ids() < 2 {
            eprintln!("skipped {test}: needs 2 CPUs");
            return None;
        }
        let settings = Settings::new("none", CpuSet::from_list("0-1").unwrap());
        let mut programs = Programs::prepare(&settings, 0, &MapFds::default(), &[]).unwrap();
        let fds = programs.load().unwrap();
        let config = Config {
            hasher: SoftHasher { k0: 11, k1: 13 },
            tcp_buckets: settings.buckets(),
            udp_buckets: settings.buckets(),
            aware: Aware::default(),
        };
        let mut backlogs = Backlogs::new(&fds, Vec::new()).unwrap();
        backlogs.let_in(&mut programs, &settings.cpus, 64).unwrap();
        Some(Self { programs, fds, backlogs, config })
    }

    fn tell(&self, cpus: &[CpuId], before: &[CpuId]) {
        self.fds.tell(&self.config, cpus, before).unwrap();
    }

    /// Steers a packet and returns the CPU that it goes to.
    fn steer(&mut self) -> CpuId {
        let sent = |this: &Self, cpu| this.backlogs.word(cpu, cpu_state::TAIL);
        let before = [ZERO, ONE].map(|cpu| sent(self, cpu));
        let frame = udp();
        let options = TestRunOptions { data_in: Some(&frame), ..TestRunOptions::new() };
        self.programs.steers().test_run(options).unwrap();
        let after = [ZERO, ONE].map(|cpu| sent(self, cpu));
        match [after[0] - before[0], after[1] - before[1]] {
            [1, 0] => ZERO,
            [0, 1] => ONE,
            other => panic!("{other:?} were sent"),
        }
    }

    /// Lets a CPU be done with all but so many.
    fn leave(&self, cpu: CpuId, waiting: u64) {
        let done = self.backlogs.word(cpu, cpu_state::TAIL) - waiting;
        for word in [cpu_state::TAKEN, cpu_state::HEAD] {
            self.backlogs.states.word(cpu, word).store(done, Ordering::SeqCst);
        }
    }

    /// Makes the flow known: where its reader runs, and where its packets go.
    fn know(&self, wanted: CpuId, current: CpuId) {
        let mut out = Dissected::EMPTY;
        dissect(udp().as_slice(), Start::Ethernet, &OPTIONS, &mut out).unwrap();
        let hash = self.config.hasher.hash_symmetric(&out.key);
        let (maps, now) = (self.fds.maps().unwrap(), Epoch::from_ns(monotonic_ns()));
        let [_, table] = maps.flows().tables().unwrap();
        table.record(hash, wanted, now);
        let (entry, place) = table.lookup(hash, now).entry().unwrap();
        assert!(table.place(place, entry, current, false));
    }
}

#[test]
fn a_hash_goes_by_the_list_of_before_until_nothing_waits_there() {
    let Some(mut bed) = Bed::new("a_hash_goes_by_the_list_of_before_until_nothing_waits_there")
    else {
        return;
    };
    bed.tell(&[ZERO], &[]);
    assert_eq!([bed.steer(), bed.steer()], [ZERO; 2]);
    bed.tell(&[ONE], &[ZERO]);
    assert_eq!(bed.steer(), ZERO);
    bed.leave(ZERO, 1);
    assert_eq!(bed.steer(), ZERO);
    bed.leave(ZERO, 0);
    assert_eq!(bed.steer(), ONE);
    // Once is enough: what comes to the old CPU later is not of this hash.
    bed.backlogs.states.word(ZERO, cpu_state::TAIL).fetch_add(5, Ordering::SeqCst);
    assert_eq!(bed.steer(), ONE);
    bed.fds.spread_over(&[ZERO], 0).unwrap();
    assert_eq!(bed.steer(), ZERO);
}

#[test]
fn a_held_flow_moves_only_when_it_is_let_go() {
    let Some(mut bed) = Bed::new("a_held_flow_moves_only_when_it_is_let_go") else { return };
    bed.tell(&[ZERO, ONE], &[]);
    bed.know(ONE, ZERO);
    bed.backlogs.hold(true);
    for _ in 0..3 {
        assert_eq!(bed.steer(), ZERO);
        bed.leave(ZERO, 0);
    }
    bed.backlogs.hold(false);
    assert_eq!(bed.steer(), ONE);
}

#[test]
fn a_cpu_that_leaves_is_closed_when_it_has_rested_and_its_flows_have_gone() {
    let test = "a_cpu_that_leaves_is_closed_when_it_has_rested_and_its_flows_have_gone";
    let Some(mut bed) = Bed::new(test) else { return };
    bed.tell(&[ONE], &[]);
    bed.know(ZERO, ZERO);
    assert_eq!(bed.steer(), ZERO);
    bed.backlogs.let_out(ZERO);
    assert_eq!(bed.steer(), ZERO);
    bed.backlogs.settle();
    bed.backlogs.settle();
    assert_eq!(bed.backlogs.word(ZERO, cpu_state::ONLINE), cpu_state::LEAVES, "packets wait");
    bed.leave(ZERO, 0);
    assert_eq!(bed.steer(), ONE);
    bed.backlogs.settle();
    bed.backlogs.settle();
    assert_eq!(bed.backlogs.word(ZERO, cpu_state::ONLINE), 0);
    assert_eq!(bed.steer(), ONE);
}

#[test]
fn what_the_thread_of_a_cpu_that_is_gone_takes_elsewhere_is_counted_there() {
    let test = "what_the_thread_of_a_cpu_that_is_gone_takes_elsewhere_is_counted_there";
    let Some(mut bed) = Bed::new(test) else { return };
    bed.tell(&[ZERO], &[]);
    assert_eq!([bed.steer(), bed.steer(), bed.steer()], [ZERO; 3]);
    bed.leave(ZERO, 2);
    bed.backlogs.cut_off(ZERO);
    // One was taken on the other CPU by now.
    bed.backlogs.states.word(ONE, cpu_state::TAKEN).store(1, Ordering::SeqCst);
    bed.backlogs.settle();
    let sent = |bed: &Bed| [ZERO, ONE].map(|cpu| bed.backlogs.word(cpu, cpu_state::TAIL));
    assert_eq!(sent(&bed), [2, 1]);
    // The other after the CPU came back: nobody waits for it there.
    bed.backlogs.let_in(&mut bed.programs, &CpuSet::from_list("0").unwrap(), 64).unwrap();
    assert_eq!(sent(&bed), [1, 1]);
    assert!(bed.backlogs.rests(ZERO));
    bed.backlogs.states.word(ONE, cpu_state::TAKEN).store(2, Ordering::SeqCst);
    bed.backlogs.settle();
    assert_eq!(sent(&bed), [1, 2]);
    bed.backlogs.settle();
    assert_eq!(sent(&bed), [1, 2]);
}
