//! The flow table against a `BTreeMap`, over generated operations.
//!
//! The map has no limit; the table may give a flow up, but must say whom it gave up, unless that
//! entry was stale. So the two agree on every flow that is fresh.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rxsteer_core::table::{Bucket, Epoch, FlowTable, Probe, Recorded};
use rxsteer_core::{CpuId, FlowHash};

/// What the map knows of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Known {
    wanted: CpuId,
    current: Option<CpuId>,
    moving: bool,
    told: u32,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Record(usize, u16),
    Withdraw(usize),
    Place(usize, u16, bool),
    /// Time passes; the whole table is swept first if eight epochs would go by without.
    Wait(u32),
    Sweep(usize, usize),
    Resize(u32),
}

const POOL: usize = 160;

/// Hashes that meet: few low bits, so few homes, and all eight classes of the top bits.
fn hash(n: usize) -> FlowHash {
    let n = n as u32;
    FlowHash((n % 8) << 29 | (n / 8) << 8 | (1 + n % 5))
}

fn op() -> impl Strategy<Value = Op> {
    let flow = 0..POOL;
    prop_oneof![
        12 => (flow.clone(), 0..CpuId::LIMIT).prop_map(|(f, cpu)| Op::Record(f, cpu)),
        6 => (flow.clone(), 0..3u16).prop_map(|(f, cpu)| Op::Record(f, cpu)),
        4 => flow.clone().prop_map(Op::Withdraw),
        4 => (flow, 0..CpuId::LIMIT, any::<bool>()).prop_map(|(f, cpu, m)| Op::Place(f, cpu, m)),
        2 => (1..9u32).prop_map(Op::Wait),
        1 => (0..20usize, 0..20usize).prop_map(|(first, count)| Op::Sweep(first, count)),
        1 => (0..7u32).prop_map(Op::Resize),
    ]
}

struct Run {
    table: FlowTable<Vec<Bucket>>,
    model: BTreeMap<FlowHash, Known>,
    now: u32,
    swept: u32,
}

fn table(log: u32) -> FlowTable<Vec<Bucket>> {
    FlowTable::new((0..1 << log).map(|_| Bucket::empty()).collect()).unwrap()
}

impl Run {
    fn new(log: u32, now: u32) -> Self {
        Self { table: table(log), model: BTreeMap::new(), now, swept: now }
    }

    fn is_fresh(&self, known: &Known) -> bool {
        self.now.wrapping_sub(known.told) <= Epoch::FRESH
    }

    fn apply(&mut self, op: Op) {
        let now = Epoch(self.now);
        match op {
            Op::Record(flow, cpu) => self.record(hash(flow), CpuId(cpu)),
            Op::Withdraw(flow) => {
                let hash = hash(flow);
                let there = self.table.withdraw(hash);
                let known = self.model.remove(&hash);
                // A stale entry may have given way unseen before.
                match known {
                    Some(known) if self.is_fresh(&known) => assert!(there),
                    Some(_) => {}
                    None => assert!(!there),
                }
            }
            Op::Place(flow, cpu, moving) => {
                if let Some((entry, place)) = self.table.lookup(hash(flow), now).entry() {
                    assert!(self.table.place(place, entry, CpuId(cpu), moving));
                    let known = self.model.get_mut(&hash(flow)).unwrap();
                    (known.current, known.moving) = (Some(CpuId(cpu)), moving);
                }
            }
            Op::Wait(epochs) => {
                if self.now.wrapping_add(epochs).wrapping_sub(self.swept) > 8 {
                    self.sweep_all();
                }
                self.now = self.now.wrapping_add(epochs);
            }
            Op::Sweep(first, count) => {
                let before = self.table.count();
                let removed = self.table.sweep(first, count, now);
                assert_eq!(self.table.count(), before - removed);
            }
            Op::Resize(log) => self.resize(log),
        }
    }

    fn record(&mut self, hash: FlowHash, cpu: CpuId) {
        let had = self.table.lookup(hash, Epoch(self.now)).probe;
        let answer = self.table.record(hash, cpu, Epoch(self.now));
        let new = Known { wanted: cpu, current: None, moving: false, told: self.now };
        let old = self.model.get(&hash).copied();
        // The stale entry of a flow is still its own, unless it gave way before.
        let old = old.filter(|old| self.is_fresh(old) || had == Probe::Stale);
        match (old, answer) {
            (Some(old), Recorded::Unchanged) => {
                assert_eq!((old.wanted, old.told), (cpu, self.now));
            }
            (Some(old), Recorded::Refreshed) => {
                assert!(old.wanted == cpu && old.told != self.now);
                self.model.insert(hash, Known { current: old.current, moving: old.moving, ..new });
            }
            (Some(old), Recorded::Moved) => {
                assert_ne!(old.wanted, cpu);
                self.model.insert(hash, Known { current: old.current, moving: old.moving, ..new });
            }
            (None, Recorded::Inserted) => {
                self.model.insert(hash, new);
            }
            (None, Recorded::Evicted(victim)) => {
                assert!(self.model.remove(&victim).is_some(), "{victim:?} was not there");
                self.model.insert(hash, new);
            }
            (old, answer) => panic!("{hash:?} was {old:?} and the answer is {answer:?}"),
        }
    }

    fn sweep_all(&mut self) {
        self.table.sweep(0, usize::MAX, Epoch(self.now));
        let now = self.now;
        self.model.retain(|_, known| now.wrapping_sub(known.told) <= Epoch::FRESH);
        self.swept = now;
        assert_eq!(self.table.count(), self.model.len());
    }

    fn resize(&mut self, log: u32) {
        self.sweep_all();
        let (other, now) = (table(log), Epoch(self.now));
        assert_eq!(self.table.copy_to(&other, now), self.model.len());
        // A smaller table keeps what it has room for; `check` compares what it kept.
        self.model.retain(|hash, _| other.lookup(*hash, now).entry().is_some());
        assert_eq!(other.count(), self.model.len());
        self.table = other;
    }

    fn check(&self) {
        let now = Epoch(self.now);
        for n in 0..POOL {
            let hash = hash(n);
            let lookup = self.table.lookup(hash, now);
            let known = self.model.get(&hash).filter(|known| self.is_fresh(known));
            let found = lookup.entry().map(|(entry, _)| {
                assert_eq!(entry.hash(), hash);
                Known {
                    wanted: entry.wanted_cpu(),
                    current: entry.current_cpu(),
                    moving: entry.is_moving(),
                    told: self.now.wrapping_sub(entry.age(now)),
                }
            });
            assert_eq!(found.as_ref(), known, "{hash:?}");
            assert_eq!(lookup.probe == Probe::Hit, known.is_some());
        }
        assert!(self.table.count() <= self.table.capacity());
    }

    /// Takes every flow out: nothing is left, and no probe looks into a second bucket any more.
    fn empty(&mut self) {
        self.sweep_all();
        for hash in self.model.keys() {
            assert!(self.table.withdraw(*hash));
        }
        assert_eq!(self.table.count(), 0);
        for n in 0..POOL {
            let lookup = self.table.lookup(hash(n), Epoch(self.now));
            assert_eq!((lookup.probe, lookup.second_line), (Probe::Empty, false));
        }
    }
}

proptest! {
    #[test]
    fn the_table_and_a_map_agree_on_every_fresh_flow(
        log in 0..6u32,
        start in prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()],
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut run = Run::new(log, start);
        for op in ops {
            run.apply(op);
            run.check();
        }
        run.empty();
    }
}
