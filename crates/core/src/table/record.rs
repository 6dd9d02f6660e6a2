//! What the socket side does with a flow table where Rust knows no compare-and-swap: an eBPF
//! program records and withdraws flows in the map that [`super::FlowTable`] would hold natively.
//!
//! Simpler than [`super::FlowTable`] in one point: a flow that finds both its buckets full drives
//! out the oldest entry of the first, instead of moving others about. Marks that are no longer
//! needed stay until [`super::FlowTable::sweep`] takes them back.
//!
//! Always true: an entry goes only if it has the very hash that is withdrawn, or is the oldest of
//! a full bucket; a mark is set before its guest is written and again after.
//! Elsewhere: the probe ([`super::probe_buckets`]); who is a flow ([`crate::steer`]).

use super::Recorded;
use super::bucket::{Bucket, Geometry, Scan, WAYS, mark_class};
use super::entry::{Entry, Epoch, MARK};
use crate::sync::{AtomicU64, Ordering};
use crate::{CpuId, FlowHash};

/// Records that the consumer of a flow runs on `cpu`.
///
/// Writes nothing if the table says so already and was told in this epoch. `bucket` returns a
/// bucket by its index, `swap` is a compare-and-swap of one word; see
/// [`place_entry`](super::place_entry).
#[inline(always)]
pub fn record_entry<'a>(
    geometry: Geometry,
    hash: FlowHash,
    cpu: CpuId,
    now: Epoch,
    bucket: impl Fn(u32) -> Option<&'a Bucket>,
    swap: impl Fn(&AtomicU64, u64, u64) -> bool,
) -> Recorded {
    record(geometry, hash, cpu, now, 0, || true, bucket, swap)
}

/// The same for a flow that no connected socket vouches for, so that a flood of such displaces nobody:
/// it gets an entry only if `may_enter`, and not in the place of a flow that was confirmed in this epoch
/// or the one before.
///
/// [`Recorded::NotAFlow`] if it gets none.
#[inline(always)]
pub fn record_entry_if<'a>(
    geometry: Geometry,
    hash: FlowHash,
    cpu: CpuId,
    now: Epoch,
    may_enter: impl FnOnce() -> bool,
    bucket: impl Fn(u32) -> Option<&'a Bucket>,
    swap: impl Fn(&AtomicU64, u64, u64) -> bool,
) -> Recorded {
    record(geometry, hash, cpu, now, IDLE, may_enter, bucket, swap)
}

/// Age, in epochs, from which an entry may give way to a flow that only asks for a place.
const IDLE: u32 = 2;

#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "the table, the flow, its terms, and two ways to memory"
)]
fn record<'a>(
    geometry: Geometry,
    hash: FlowHash,
    cpu: CpuId,
    now: Epoch,
    least_age: u32,
    may_enter: impl FnOnce() -> bool,
    bucket: impl Fn(u32) -> Option<&'a Bucket>,
    swap: impl Fn(&AtomicU64, u64, u64) -> bool,
) -> Recorded {
    if hash.is_none() {
        return Recorded::NotAFlow;
    }
    let Some(home) = bucket(geometry.home(hash)) else { return Recorded::NotAFlow };
    let further = match home.scan_in_steps(hash) {
        Scan::Found(entry, slot) => return confirm(home, slot, entry, cpu, now, swap),
        Scan::Missed { further, .. } => further,
    };
    let second = bucket(geometry.second(hash));
    if let (true, Some(second)) = (further, second)
        && let Scan::Found(entry, slot) = second.scan_in_steps(hash)
    {
        return confirm(second, slot, entry, cpu, now, swap);
    }

    if !may_enter() {
        return Recorded::NotAFlow;
    }
    let new = Entry::new(hash, cpu, now);
    let (slot, old) = home.least(now);
    if old.is_empty() || old.is_stale(now) {
        return first(home, slot, old, new, swap, Recorded::Inserted);
    }
    if let Some(second) = second
        && geometry.second(hash) != geometry.home(hash)
    {
        let (slot, old) = second.least(now);
        if old.is_empty() || old.is_stale(now) {
            let class = mark_class(hash);
            home.mark(class, &swap);
            let wrote = second.replace_by(slot, old, new.as_guest(true), &swap);
            // Someone may have taken the mark back between the two.
            home.mark(class, &swap);
            return if wrote { Recorded::Inserted } else { Recorded::Contended };
        }
    }
    if old.age(now) < least_age {
        return Recorded::NotAFlow;
    }
    first(home, slot, old, new, swap, Recorded::Evicted(old.hash()))
}

/// Forgets a flow and no other: the entry goes only if it has this very hash.
///
/// Returns whether there was one.
#[inline(always)]
pub fn withdraw_entry<'a>(
    geometry: Geometry,
    hash: FlowHash,
    bucket: impl Fn(u32) -> Option<&'a Bucket>,
    swap: impl Fn(&AtomicU64, u64, u64) -> bool,
) -> bool {
    if hash.is_none() {
        return false;
    }
    let mut found = false;
    // After a race the flow may be in both buckets: look into both, whatever the marks say.
    for index in [geometry.home(hash), geometry.second(hash)] {
        let Some(bucket) = bucket(index) else { continue };
        for _ in 0..2 {
            if let Scan::Found(entry, slot) = bucket.scan_in_steps(hash) {
                found |= bucket.replace_by(slot, entry, Entry(0), &swap);
            }
        }
    }
    found
}

/// Writes into an entry that is there what it does not say yet.
#[inline(always)]
fn confirm(
    bucket: &Bucket,
    slot: u8,
    entry: Entry,
    cpu: CpuId,
    now: Epoch,
    swap: impl Fn(&AtomicU64, u64, u64) -> bool,
) -> Recorded {
    let new = entry.with_wanted(cpu).with_epoch(now);
    if new == entry {
        return Recorded::Unchanged;
    }
    match bucket.replace_by(slot, entry, new, swap) {
        true if entry.wanted_cpu() == cpu => Recorded::Refreshed,
        true => Recorded::Moved,
        false => Recorded::Contended,
    }
}

/// Puts a flow into its first bucket, and takes it out again if another writer did so before.
#[inline(always)]
fn first(
    home: &Bucket,
    slot: u8,
    old: Entry,
    new: Entry,
    swap: impl Fn(&AtomicU64, u64, u64) -> bool,
    recorded: Recorded,
) -> Recorded {
    if !home.replace_by(slot, old, new, &swap) {
        return Recorded::Contended;
    }
    match home.scan_in_steps(new.hash()) {
        Scan::Found(_, earlier) if earlier < slot => {
            home.replace_by(slot, new, Entry(0), &swap);
            Recorded::Contended
        }
        _ => recorded,
    }
}

impl Bucket {
    /// Returns the slot that gives way first, and what is in it: an empty one, else the oldest.
    #[inline(always)]
    fn least(&self, now: Epoch) -> (u8, Entry) {
        let (mut best, mut found, mut age) = (0, Entry(0), 0);
        for slot in 0..WAYS {
            let entry = self.word(slot).without_mark();
            // An empty slot is older than all.
            let this = if entry.is_empty() { u32::MAX } else { entry.age(now) };
            if slot == 0 || this > age {
                (best, found, age) = (slot as u8, entry, this);
            }
        }
        (best, found)
    }

    /// Says that entries of a class may live in their second bucket.
    #[inline(always)]
    fn mark(&self, class: u32, swap: impl Fn(&AtomicU64, u64, u64) -> bool) {
        let Some(word) = self.slot(class as usize) else { return };
        // Lost only if others change this one word three times in between: then the guest is not
        // found, and its next record puts it in again.
        for _ in 0..3 {
            let old = word.load(Ordering::Relaxed);
            if old & MARK != 0 || swap(word, old, old | MARK) {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::table::bucket::compare_and_swap;
    use crate::table::{FlowTable, probe_buckets};

    struct Map(Vec<Bucket>);

    impl Map {
        fn new(buckets: usize) -> (Self, Geometry) {
            let map = (0..buckets).map(|_| Bucket::empty()).collect();
            (Self(map), Geometry::new(buckets).unwrap())
        }

        fn at<'a>(&'a self) -> impl Fn(u32) -> Option<&'a Bucket> {
            |index| self.0.get(index as usize)
        }
    }

    fn flows(count: u32) -> impl Iterator<Item = FlowHash> {
        (1..=count).map(|n| FlowHash(n.wrapping_mul(0x9e37_79b9) ^ n >> 3))
    }

    #[test]
    fn what_was_recorded_is_found_until_it_is_withdrawn() {
        let (map, geometry) = Map::new(64);
        let mut model = BTreeMap::new();
        for (n, hash) in flows(256).enumerate() {
            let cpu = CpuId(n as u16 % 7);
            let said = record_entry(geometry, hash, cpu, Epoch(3), map.at(), compare_and_swap);
            if let Recorded::Evicted(other) = said {
                assert!(model.remove(&other.0).is_some(), "only what is there can be driven out");
            }
            model.insert(hash.0, cpu);
            let again = record_entry(geometry, hash, cpu, Epoch(3), map.at(), compare_and_swap);
            assert_eq!(again, Recorded::Unchanged);
        }
        // Half full: two choices of eight lose next to nothing.
        assert!(model.len() >= 254, "{}", model.len());
        let know = |hash: u32| {
            let said = probe_buckets(geometry, FlowHash(hash), Epoch(3), map.at());
            said.entry().map(|(entry, _)| entry.wanted_cpu())
        };
        for (hash, cpu) in &model {
            assert_eq!(know(*hash), Some(*cpu));
        }
        for (n, hash) in flows(256).enumerate() {
            if n % 2 == 0 {
                let there = model.remove(&hash.0).is_some();
                assert_eq!(withdraw_entry(geometry, hash, map.at(), compare_and_swap), there);
            }
        }
        for hash in flows(256) {
            assert_eq!(know(hash.0), model.get(&hash.0).copied());
        }
        let table = FlowTable::new(map.0).unwrap();
        assert_eq!(table.count(), model.len());
    }

    #[test]
    fn a_full_table_drives_out_the_oldest_and_a_stale_entry_goes_first() {
        let (map, geometry) = Map::new(1);
        let record = |hash, cpu, epoch| {
            let (hash, epoch) = (FlowHash(hash), Epoch(epoch));
            record_entry(geometry, hash, CpuId(cpu), epoch, map.at(), compare_and_swap)
        };
        for n in 1..=8 {
            assert_eq!(record(n, 0, if n == 5 { 1 } else { 2 }), Recorded::Inserted);
        }
        assert_eq!(record(9, 0, 3), Recorded::Evicted(FlowHash(5)));
        assert_eq!(record(9, 1, 3), Recorded::Moved);
        assert_eq!(record(9, 1, 4), Recorded::Refreshed);
        // All but the ninth are stale by now: nobody is driven out.
        assert_eq!(record(10, 0, 11), Recorded::Inserted);
        assert_eq!(record(0, 0, 11), Recorded::NotAFlow);
    }

    #[test]
    fn who_asks_for_a_place_displaces_only_what_nobody_confirmed_for_an_epoch() {
        let (map, geometry) = Map::new(1);
        let vouched = |hash, epoch| {
            let (hash, epoch) = (FlowHash(hash), Epoch(epoch));
            record_entry(geometry, hash, CpuId(0), epoch, map.at(), compare_and_swap)
        };
        let asks = |hash, cpu, epoch, may: bool| {
            let (hash, epoch) = (FlowHash(hash), Epoch(epoch));
            let may = || may;
            record_entry_if(geometry, hash, CpuId(cpu), epoch, may, map.at(), compare_and_swap)
        };
        for n in 1..=7 {
            assert_eq!(vouched(n, 1), Recorded::Inserted);
        }
        assert_eq!(asks(8, 3, 1, false), Recorded::NotAFlow);
        assert_eq!(asks(8, 3, 1, true), Recorded::Inserted);
        // Who is in is heard, whatever would be said of it now.
        assert_eq!(asks(8, 4, 1, false), Recorded::Moved);
        // In this epoch and the next nobody gives way, then the oldest.
        assert_eq!(asks(9, 3, 1, true), Recorded::NotAFlow);
        assert_eq!(asks(8, 4, 2, false), Recorded::Refreshed);
        assert_eq!(asks(9, 3, 2, true), Recorded::NotAFlow);
        assert_eq!(vouched(1, 2), Recorded::Refreshed);
        assert_eq!(asks(9, 3, 3, true), Recorded::Evicted(FlowHash(2)));
        // A connected socket's flow has the right of one, as ever.
        assert!(matches!(vouched(10, 3), Recorded::Evicted(_)));
        for confirmed in [1, 8, 9, 10] {
            let said = probe_buckets(geometry, FlowHash(confirmed), Epoch(3), map.at());
            assert!(said.entry().is_some(), "{confirmed}");
        }
    }

    #[test]
    fn both_writers_of_a_table_understand_each_other() {
        let (map, geometry) = Map::new(16);
        let table = FlowTable::new(&map.0[..]).unwrap();
        for (n, hash) in flows(100).enumerate() {
            if n % 2 == 0 {
                table.record(hash, CpuId(1), Epoch(0));
            } else {
                record_entry(geometry, hash, CpuId(1), Epoch(0), map.at(), compare_and_swap);
            }
        }
        let before = table.count();
        table.sweep(0, 16, Epoch(0));
        assert_eq!(table.count(), before);
        let mut known = 0;
        for (n, hash) in flows(100).enumerate() {
            if table.lookup(hash, Epoch(0)).entry().is_some() {
                known += 1;
                let gone = if n % 2 == 0 {
                    withdraw_entry(geometry, hash, map.at(), compare_and_swap)
                } else {
                    table.withdraw(hash)
                };
                assert!(gone && table.lookup(hash, Epoch(0)).entry().is_none());
            }
        }
        assert_eq!((known, table.count()), (before, 0));
    }
}
