//! The flow table alone, against `hashbrown`, at sizes in and beyond the caches.
//!
//! Each table has as many entries as its name says and half as many flows; the map holds the same
//! flows, with room for them. Probes come in random order from a list of 2^20, so that a large
//! table's buckets are not in the caches near the core.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::rc::Rc;

use hashbrown::HashMap;
use rxsteer_core::table::{Bucket, Epoch, FlowTable};
use rxsteer_core::{CpuId, FlowHash};

use super::{Case, Random};

/// Probes of one run.
const RUN: usize = 4096;
const LIST: usize = 1 << 20;
const NOW: Epoch = Epoch(1);

/// The sizes, and their names.
pub(crate) const SIZES: [(&str, usize); 3] =
    [("64K entries", 1 << 16), ("1M entries", 1 << 20), ("16M entries", 1 << 24)];

pub(crate) type Table = FlowTable<Vec<Bucket>>;

/// Makes a table of this many entries and records `flows` in it.
pub(crate) fn table(entries: usize, flows: impl Iterator<Item = FlowHash>) -> Table {
    let buckets = (0..entries / 8).map(|_| Bucket::empty()).collect();
    let table = FlowTable::new(buckets).expect("a power of two");
    for hash in flows {
        table.record(hash, CpuId((hash.0 >> 8 & 63) as u16), NOW);
        if let Some((entry, place)) = table.lookup(hash, NOW).entry() {
            // As the first packet of a flow does, so that those after it write nothing.
            table.place(place, entry, entry.wanted_cpu(), false);
        }
    }
    table
}

/// The hash is well mixed already: use it as it is.
#[derive(Clone, Copy, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u32");
    }

    fn write_u32(&mut self, hash: u32) {
        // hashbrown takes its seven tag bits from the top of 64.
        self.0 = u64::from(hash) | u64::from(hash) << 32;
    }
}

/// Walks through a list, a run at a time.
struct Walk {
    list: Rc<[FlowHash]>,
    at: usize,
}

impl Walk {
    fn new(list: &Rc<[FlowHash]>) -> Self {
        Self { list: Rc::clone(list), at: 0 }
    }

    fn next(&mut self) -> &[FlowHash] {
        self.at = (self.at + RUN) % LIST;
        black_box(&self.list[self.at..self.at + RUN])
    }
}

fn cpu(table: &Table, hash: FlowHash) -> u64 {
    table.lookup(hash, NOW).entry().map_or(1, |(entry, _)| u64::from(entry.wanted_cpu().0))
}

fn ours(group: &str, name: &'static str, table: &Rc<Table>, list: &Rc<[FlowHash]>) -> Case {
    let (table, mut walk) = (Rc::clone(table), Walk::new(list));
    Case::new(group, name, RUN, move || {
        walk.next().iter().fold(0, |sum, hash| sum + cpu(&table, *hash))
    })
}

fn ours_in_bursts(
    group: &str,
    name: &'static str,
    table: &Rc<Table>,
    list: &Rc<[FlowHash]>,
) -> Case {
    let (table, mut walk) = (Rc::clone(table), Walk::new(list));
    Case::new(group, name, RUN, move || {
        walk.next().chunks(32).fold(0, |sum, burst| {
            burst.iter().for_each(|hash| table.touch(*hash));
            burst.iter().fold(sum, |sum, hash| sum + cpu(&table, *hash))
        })
    })
}

fn map<B: BuildHasher + 'static>(
    group: &str,
    name: &'static str,
    map: &Rc<HashMap<u32, u16, B>>,
    list: &Rc<[FlowHash]>,
) -> Case {
    let (map, mut walk) = (Rc::clone(map), Walk::new(list));
    Case::new(group, name, RUN, move || {
        walk.next().iter().fold(0, |sum, hash| sum + map.get(&hash.0).map_or(1, |c| u64::from(*c)))
    })
}

fn filled<B: BuildHasher + Default>(
    flows: impl Iterator<Item = FlowHash>,
) -> Rc<HashMap<u32, u16, B>> {
    Rc::new(flows.map(|hash| (hash.0, (hash.0 >> 8 & 63) as u16)).collect())
}

/// The cases at one size; only one size is held in memory at a time.
pub(crate) fn all(name: &str, entries: usize) -> Vec<Case> {
    let group = format!("probe/{name}");
    let mut random = Random(entries as u64);
    let flows: Vec<_> = (0..entries / 2).map(|_| FlowHash((random.next() as u32).max(1))).collect();
    let known: Rc<[FlowHash]> =
        (0..LIST + RUN).map(|_| flows[random.next() as usize % flows.len()]).collect();
    let strange: Rc<[FlowHash]> =
        (0..LIST + RUN).map(|_| FlowHash((random.next() as u32).max(1))).collect();
    let table = Rc::new(table(entries, flows.iter().copied()));
    let plain = filled::<BuildHasherDefault<AsItIs>>(flows.iter().copied());
    let keyed = filled::<RandomState>(flows.iter().copied());
    vec![
        ours(&group, "hit", &table, &known),
        ours_in_bursts(&group, "hit, burst of 32 touched", &table, &known),
        map(&group, "hit, hashbrown, hash as it is", &plain, &known),
        map(&group, "hit, hashbrown, SipHash of std", &keyed, &known),
        ours(&group, "miss", &table, &strange),
        ours_in_bursts(&group, "miss, burst of 32 touched", &table, &strange),
        map(&group, "miss, hashbrown, hash as it is", &plain, &strange),
    ]
}
