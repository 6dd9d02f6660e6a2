//! How many probes of active flows hit, by number of flows, next to other ways to build the table.
//!
//! `cargo test -p rxsteer-core --release --test hit_rate -- --nocapture` prints the numbers. Flows
//! send in random order, seeded; a consumer records its flow with each packet, as a connected
//! socket does. Nothing here depends on time.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::atomic::AtomicU32;

use rxsteer_core::table::{Bucket, Epoch, FlowTable, Probe, Recorded, SockTable};
use rxsteer_core::{CpuId, FlowHash};

/// Entries of the tables under comparison: 512 KiB of ours.
const ENTRIES: usize = 65_536;
const NOW: Epoch = Epoch(0);
const CPU: CpuId = CpuId(1);

/// A stream of well-mixed numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn hash(&mut self) -> FlowHash {
        FlowHash((self.next() as u32).max(1))
    }
}

/// A table that is probed for a packet and then told by the consumer.
trait Model {
    /// Returns whether the probe hit.
    fn packet(&mut self, hash: FlowHash) -> bool;
}

impl Model for FlowTable<Vec<Bucket>> {
    fn packet(&mut self, hash: FlowHash) -> bool {
        let hit = self.lookup(hash, NOW).probe == Probe::Hit;
        self.record(hash, CPU, NOW);
        hit
    }
}

impl Model for SockTable<Vec<AtomicU32>> {
    fn packet(&mut self, hash: FlowHash) -> bool {
        let hit = self.lookup(hash).0 == Probe::Hit;
        self.record(hash, CPU);
        hit
    }
}

/// Eight ways without a second bucket, each bucket in order of use: the textbook cache.
struct PlainEightWay(Vec<[u32; 8]>);

impl Model for PlainEightWay {
    fn packet(&mut self, hash: FlowHash) -> bool {
        let home = hash.0 as usize % self.0.len();
        let bucket = &mut self.0[home];
        let found = bucket.iter().position(|tag| *tag == hash.0);
        bucket[..=found.unwrap_or(7)].rotate_right(1);
        bucket[0] = hash.0;
        found.is_some()
    }
}

fn ours() -> FlowTable<Vec<Bucket>> {
    FlowTable::new((0..ENTRIES / 8).map(|_| Bucket::empty()).collect()).unwrap()
}

/// Linux's table of this many 4-byte words, on a host of 64 CPUs.
fn linux(words: usize) -> SockTable<Vec<AtomicU32>> {
    SockTable::new((0..words).map(|_| AtomicU32::new(0)).collect(), 64, true).unwrap()
}

fn flows(count: usize) -> Vec<FlowHash> {
    let mut random = Random(17);
    (0..count).map(|_| random.hash()).collect()
}

/// Lets each flow send once, then all in random order, 4 packets each to warm up, and returns the
/// share of hits in the next 4.
fn hit_rate(table: &mut impl Model, flows: &[FlowHash]) -> f64 {
    for hash in flows {
        table.packet(*hash);
    }
    let mut random = Random(23);
    let mut send = |table: &mut _, packets: usize| {
        let hits = (0..packets)
            .filter(|_| Model::packet(table, flows[random.next() as usize % flows.len()]))
            .count();
        hits as f64 / packets as f64
    };
    send(table, flows.len() * 4);
    send(table, flows.len() * 4)
}

#[test]
fn active_flows_are_found_at_every_load_better_than_in_linux_at_equal_memory() {
    println!("active flows | ours | plain 8-way | Linux, as many entries | Linux, equal memory");
    for (percent, at_least) in [(25, 0.9999), (50, 0.995), (75, 0.99), (90, 0.98), (100, 0.95)] {
        let flows = flows(ENTRIES * percent / 100);
        let ours = hit_rate(&mut ours(), &flows);
        let plain = hit_rate(&mut PlainEightWay(vec![[0; 8]; ENTRIES / 8]), &flows);
        let direct = hit_rate(&mut linux(ENTRIES), &flows);
        let equal = hit_rate(&mut linux(ENTRIES * 2), &flows);
        println!("{percent:3} % | {ours:.4} | {plain:.4} | {direct:.4} | {equal:.4}");
        assert!(ours >= at_least, "{percent} %: {ours}");
        assert!(ours >= plain && ours >= equal, "{percent} %: {ours} {plain} {equal}");
    }
}

#[test]
fn the_models_have_the_hit_rates_that_theory_gives_them() {
    // Direct-mapped, every flow equally active: a probe hits if the slot's last writer was the
    // flow itself, for load a on average (1 - e^-a) / a.
    for load in [0.5, 1.0] {
        let flows = flows((ENTRIES as f64 * load) as usize);
        let theory = (1.0 - f64::exp(-load)) / load;
        let measured = hit_rate(&mut linux(ENTRIES), &flows);
        assert!((measured - theory).abs() < 0.01, "load {load}: {measured}, theory {theory}");
    }
}

#[test]
fn few_probes_read_a_second_cache_line() {
    for (percent, at_most) in [(50, 0.02), (75, 0.25)] {
        let (mut table, flows) = (ours(), flows(ENTRIES * percent / 100));
        hit_rate(&mut table, &flows);
        let far = |hashes: &mut dyn Iterator<Item = FlowHash>| {
            let (count, far) = hashes.fold((0, 0), |(count, far), hash| {
                (count + 1, far + usize::from(table.lookup(hash, NOW).second_line))
            });
            far as f64 / f64::from(count)
        };
        let hits = far(&mut flows.iter().copied());
        let mut random = Random(99);
        let misses = far(&mut (0..1_000_000).map(|_| random.hash()));
        println!("{percent} %: second line for {hits:.4} of hits, {misses:.4} of misses");
        assert!(hits <= at_most && misses <= at_most, "{percent} %: {hits} {misses}");
    }
}

#[test]
fn a_million_strangers_change_nothing() {
    // One second of 1 M packets/s from random sources, none of which is a flow.
    let (mut table, flows) = (ours(), flows(ENTRIES / 2));
    let before = hit_rate(&mut table, &flows);
    let all = |table: &FlowTable<Vec<Bucket>>| -> Vec<_> {
        flows.iter().map(|hash| table.lookup(*hash, NOW)).collect()
    };
    let (entries, count) = (all(&table), table.count());
    let mut random = Random(4711);
    let taken =
        (0..1_000_000).filter(|_| table.lookup(random.hash(), NOW).probe == Probe::Hit).count();
    assert_eq!(all(&table), entries);
    assert_eq!(table.count(), count);
    // Mistaken for a flow: only a stranger with the very same 32-bit hash, 1 in 131,072 here.
    println!("strangers with the hash of a flow: {taken} of 1,000,000");
    assert!(taken < 30, "{taken}");
    let after = hit_rate(&mut table, &flows);
    assert!((after - before).abs() < 0.001, "{before} {after}");
}

#[test]
fn the_same_strangers_ruin_a_table_that_they_write_to() {
    // What requirement B4 is about: an old table in which packets of non-flows clear their slot.
    let (mut table, flows) = (linux(ENTRIES), flows(ENTRIES / 2));
    let before = hit_rate(&mut table, &flows);
    let mut random = Random(4711);
    let cleared =
        (0..1_000_000).filter(|_| table.clear(random.hash()) == Recorded::Cleared).count();
    let left = flows.iter().filter(|hash| table.lookup(**hash).0 == Probe::Hit).count();
    println!("{before:.4} before; {cleared} cleared, {left} of {} left", flows.len());
    assert!(left < flows.len() / 1000);
}
