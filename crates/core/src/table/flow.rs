//! Flow table: on which CPU the consumer of each known flow runs, and where its packets go.
//!
//! Buckets of eight entries, one 64-byte cache line each; the low bits of the flow hash choose the
//! bucket and the whole hash is compared, so an entry answers for its own 32-bit hash only. A full
//! bucket moves one of its entries, or the new one, to a second bucket that has room or can make
//! some; only if all buckets in question are full does the oldest entry of the first give way.
//!
//! Readers and writers run at once, without locks: every change is one compare-and-swap of one
//! 64-bit word. What a race can do is bounded: for a moment a flow may be in the table twice or
//! not be found; it is never found with the hash of another flow or with a CPU nobody wrote.
//!
//! Always true: the number of buckets is a power of two; without a race a hash is in the table at
//! most once; a probe reads one cache line, or two if the mark of its class is set.
//! Elsewhere: hashing ([`crate::hash`]); when a flow may change CPU ([`crate::steer`]).
//! Source: the use is that of the two tables of Linux, Documentation/networking/scaling.rst,
//! "RFS"; buckets, identity and age are ours.

use super::bucket::{Bucket, Geometry, Scan, WAYS, compare_and_swap, mark_class};
use super::entry::{Entry, Epoch};
use super::probe::{Lookup, Place, place_entry, probe_buckets};
use super::{Recorded, TableSizeError};
use crate::{CpuId, FlowHash};

/// A table of flows in borrowed or owned storage `S`, shared by readers and writers.
///
/// # Examples
/// ```
/// use rxsteer_core::table::{Bucket, Epoch, FlowTable};
/// use rxsteer_core::{CpuId, FlowHash};
/// let storage = [const { Bucket::empty() }; 8]; // 8 buckets of 8: 64 flows, 512 bytes
/// let table = FlowTable::new(&storage[..]).expect("8 is a power of two");
/// table.record(FlowHash(0x51cc_c178), CpuId(3), Epoch(0));
/// let known = table.lookup(FlowHash(0x51cc_c178), Epoch(1));
/// assert_eq!(known.entry().map(|(entry, _)| entry.wanted_cpu()), Some(CpuId(3)));
/// assert_eq!(table.lookup(FlowHash(8), Epoch(1)).entry(), None); // same bucket, another flow
/// ```
#[derive(Clone, Debug)]
pub struct FlowTable<S> {
    buckets: S,
    geometry: Geometry,
}

impl<S: AsRef<[Bucket]>> FlowTable<S> {
    /// Makes a table of the given buckets; what they hold stays.
    ///
    /// # Errors
    /// If their number is not a power of two from 1 to 2^28.
    pub fn new(buckets: S) -> Result<Self, TableSizeError> {
        let count = buckets.as_ref().len();
        let geometry = Geometry::new(count).ok_or(TableSizeError { count })?;
        Ok(Self { buckets, geometry })
    }

    /// Returns the number of flows that fit.
    pub fn capacity(&self) -> usize {
        self.geometry.buckets() * WAYS
    }

    /// Returns the buckets, for a copy of the table elsewhere.
    pub fn buckets(&self) -> &[Bucket] {
        self.buckets.as_ref()
    }

    /// Returns the arrangement of the buckets.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline(always)]
    fn bucket(&self, index: u32) -> Option<&Bucket> {
        self.buckets.as_ref().get(index as usize)
    }

    /// Returns what the table knows of a flow: one 64-byte line, rarely two, no write.
    #[inline(always)]
    pub fn lookup(&self, hash: FlowHash, now: Epoch) -> Lookup {
        probe_buckets(self.geometry, hash, now, |index| self.bucket(index))
    }

    /// Loads from the bucket that a probe of `hash` reads first, and does nothing with it.
    ///
    /// For a burst: touch all hashes in a loop that does nothing else, then probe them. The loads
    /// do not wait for each other, so the burst waits for memory about once and not once a packet.
    /// A plain load, since a prefetch instruction cannot be had without `unsafe`; it holds up what
    /// comes after it as soon as the processor's window (some hundred instructions) is full, so no
    /// other work belongs between two touches.
    #[inline(always)]
    pub fn touch(&self, hash: FlowHash) {
        if let Some(bucket) = self.bucket(self.geometry.home(hash)) {
            bucket.touch();
        }
    }

    /// Records that the consumer of a flow runs on `cpu`.
    ///
    /// Writes nothing if the table says so already and was told in this epoch. Takes CPU ids below
    /// [`CpuId::LIMIT`]; a higher one is cut to 12 bits.
    pub fn record(&self, hash: FlowHash, cpu: CpuId, now: Epoch) -> Recorded {
        if hash.is_none() {
            return Recorded::NotAFlow;
        }
        for _ in 0..4 {
            if let Some((place, entry)) = self.locate(hash) {
                let new = entry.with_wanted(cpu).with_epoch(now);
                if new == entry {
                    return Recorded::Unchanged;
                }
                if self.swap(place, entry, new) {
                    return if entry.wanted_cpu() == cpu {
                        Recorded::Refreshed
                    } else {
                        Recorded::Moved
                    };
                }
            } else if let Some((place, recorded)) = self.insert(hash, cpu, now) {
                match self.locate(hash) {
                    // Another writer put the same flow into an earlier place: keep that one.
                    Some((earlier, _)) if earlier != place => {
                        self.remove_at(place, hash);
                    }
                    _ => return recorded,
                }
            }
        }
        Recorded::Contended
    }

    /// Forgets a flow and no other: the entry goes only if it has this very hash.
    ///
    /// Returns whether there was one.
    pub fn withdraw(&self, hash: FlowHash) -> bool {
        if hash.is_none() {
            return false;
        }
        let (home, second) = (self.geometry.home(hash), self.geometry.second(hash));
        let mut found = false;
        // The flow may be on its way between its buckets, or in both after a race: look into all
        // places, whatever the marks say, and into the first ones again.
        for bucket in [home, second, home] {
            for slot in 0..WAYS as u8 {
                found |= self.remove_at(Place { bucket, slot }, hash);
            }
        }
        found
    }

    /// Notes to which CPU a flow's packets go now; `false` if the entry changed since it was read.
    ///
    /// `moving` says that the order table of the queue keeps the position of its last packet.
    #[inline(always)]
    pub fn place(&self, place: Place, seen: Entry, cpu: CpuId, moving: bool) -> bool {
        place_entry(place, seen, cpu, moving, |index| self.bucket(index), compare_and_swap)
    }

    /// Removes stale entries and marks without guests from `count` buckets, starting at `first`
    /// and going round at the end; returns the number of entries removed.
    ///
    /// Every bucket wants a visit at least once in eight epochs, see [`Epoch`].
    pub fn sweep(&self, first: usize, count: usize, now: Epoch) -> usize {
        let buckets = self.geometry.buckets();
        let mut removed = 0;
        for index in (first..first + count.min(buckets)).map(|index| (index % buckets) as u32) {
            let Some(bucket) = self.bucket(index) else { continue };
            for slot in 0..WAYS {
                let entry = bucket.entry(slot);
                if !entry.is_empty() && entry.is_stale(now) {
                    let place = Place { bucket: index, slot: slot as u8 };
                    removed += usize::from(self.remove_seen(place, entry));
                }
            }
            for class in 0..WAYS as u32 {
                if bucket.is_marked(class) {
                    self.tidy_mark(index, class);
                }
            }
        }
        removed
    }

    /// Returns the number of entries, stale ones included: reads the whole table.
    pub fn count(&self) -> usize {
        let buckets = self.buckets.as_ref().iter();
        buckets.map(|b| (0..WAYS).filter(|slot| !b.entry(*slot).is_empty()).count()).sum()
    }

    /// Records every entry that is not stale in `other`: the way to change the size while in use.
    ///
    /// Epochs and CPUs are taken along. Both tables may be written meanwhile, `other` with what the
    /// consumers say: what it knows already is newer and stays, and a flow that is withdrawn from this
    /// table while it is copied is withdrawn from the other. Returns the number of flows copied.
    pub fn copy_to<T: AsRef<[Bucket]>>(&self, other: &FlowTable<T>, now: Epoch) -> usize {
        let mut copied = 0;
        for bucket in self.buckets.as_ref() {
            for slot in 0..WAYS {
                let entry = bucket.entry(slot);
                if entry.is_empty() || entry.is_stale(now) {
                    continue;
                }
                let (hash, told) = (entry.hash(), Epoch(now.0.wrapping_sub(entry.age(now))));
                if other.locate(hash).is_none_or(|(_, known)| known.is_stale(now)) {
                    other.record(hash, entry.wanted_cpu(), told);
                }
                if let (Some(cpu), Some((place, new))) = (entry.current_cpu(), other.locate(hash))
                    && new.current_cpu().is_none()
                {
                    other.place(place, new, cpu, entry.is_moving());
                }
                if self.locate(hash).is_none() {
                    other.withdraw(hash);
                } else {
                    copied += 1;
                }
            }
        }
        copied
    }

    /// Returns the first place that holds a flow, fresh or stale.
    fn locate(&self, hash: FlowHash) -> Option<(Place, Entry)> {
        let home = self.geometry.home(hash);
        let first = self.bucket(home)?;
        match first.scan_in_steps(hash) {
            Scan::Found(entry, slot) => Some((Place { bucket: home, slot }, entry)),
            Scan::Missed { further: false, .. } => None,
            Scan::Missed { further: true, .. } => {
                let index = self.geometry.second(hash);
                match self.bucket(index)?.scan_in_steps(hash) {
                    Scan::Found(entry, slot) => Some((Place { bucket: index, slot }, entry)),
                    Scan::Missed { .. } => None,
                }
            }
        }
    }

    #[inline(always)]
    fn swap(&self, place: Place, seen: Entry, new: Entry) -> bool {
        self.bucket(place.bucket).is_some_and(|bucket| bucket.replace(place.slot, seen, new))
    }

    /// Empties a place if it still holds `hash`, and takes back the mark of a guest.
    fn remove_at(&self, place: Place, hash: FlowHash) -> bool {
        let Some(bucket) = self.bucket(place.bucket) else { return false };
        for _ in 0..4 {
            let entry = bucket.entry(place.slot as usize);
            if entry.hash() != hash {
                return false;
            }
            if bucket.replace(place.slot, entry, Entry(0)) {
                self.left(entry);
                return true;
            }
        }
        false
    }

    /// Empties a place if it still holds this very entry, and takes back the mark of a guest.
    fn remove_seen(&self, place: Place, seen: Entry) -> bool {
        let removed = self.swap(place, seen, Entry(0));
        if removed {
            self.left(seen);
        }
        removed
    }

    /// Takes back the mark of an entry that left, if it was the last guest of its class.
    fn left(&self, entry: Entry) {
        if entry.is_guest() {
            self.tidy_mark(self.geometry.home(entry.hash()), mark_class(entry.hash()));
        }
    }

    fn tidy_mark(&self, home: u32, class: u32) {
        let Some(bucket) = self.bucket(home) else { return };
        if self.has_guest(home, class) {
            return;
        }
        bucket.clear_mark(class);
        // A guest written between the look and the clearing would be lost: look again. Its writer
        // sets the mark once more after writing, so this look sees the guest or the mark is back.
        if self.has_guest(home, class) {
            bucket.set_mark(class);
        }
    }

    fn has_guest(&self, home: u32, class: u32) -> bool {
        let Some(second) = self.bucket(self.geometry.neighbour(home, class)) else { return false };
        (0..WAYS).any(|slot| {
            let guest = second.entry(slot);
            guest.is_guest()
                && mark_class(guest.hash()) == class
                && self.geometry.home(guest.hash()) == home
        })
    }

    /// Puts a flow that is not in the table into it; `None` if another writer was in the way.
    #[cold]
    #[inline(never)]
    fn insert(&self, hash: FlowHash, cpu: CpuId, now: Epoch) -> Option<(Place, Recorded)> {
        let new = Entry::new(hash, cpu, now);
        let (home, second) = (self.geometry.home(hash), self.geometry.second(hash));
        let room = self.put(home, new, now, 0).or_else(|| {
            if second == home {
                return None;
            }
            self.put(second, new.as_guest(true), now, 0)
                .or_else(|| self.put(home, new, now, 1))
                .or_else(|| self.put(home, new, now, 2))
        });
        if let Some(place) = room {
            return Some((place, Recorded::Inserted));
        }
        // No room, or another writer was faster: then look again instead of driving a flow out.
        let (slot, victim) = self.oldest(home, hash, now)?;
        if victim.is_empty() || victim.is_stale(now) {
            return None;
        }
        let place = Place { bucket: home, slot };
        if !self.swap(place, victim, new) {
            return None;
        }
        self.left(victim);
        Some((place, Recorded::Evicted(victim.hash())))
    }

    /// Writes an entry into a bucket: into a slot with room or, up to `depth` times in a row, into
    /// one whose resident can go to its own other bucket. Evicts nothing that is fresh.
    fn put(&self, index: u32, entry: Entry, now: Epoch, depth: u32) -> Option<Place> {
        if let Some((slot, old)) = self.room(index, now) {
            return self.write(index, slot, old, entry);
        }
        if depth == 0 {
            return None;
        }
        // The last step tries every resident; the one before it two, for it fans out.
        let tries = if depth == 1 { WAYS } else { 2 };
        let start = entry.hash().mix(3) as usize;
        for slot in (0..tries).map(|n| ((start + n) % WAYS) as u8) {
            let resident = self.bucket(index)?.entry(slot as usize);
            if resident.is_empty() {
                continue;
            }
            let hash = resident.hash();
            let (other, guest) = if resident.is_guest() {
                (self.geometry.home(hash), false)
            } else {
                (self.geometry.second(hash), true)
            };
            let Some(copy) = self.put(other, resident.as_guest(guest), now, depth - 1) else {
                continue;
            };
            if let Some(place) = self.write(index, slot, resident, entry) {
                return Some(place);
            }
            // It changed or went meanwhile: the copy would bring back what is no longer true,
            // unless someone has confirmed it since.
            self.remove_seen(copy, resident.as_guest(guest));
        }
        None
    }

    /// Returns a slot of a bucket that is empty or, failing that, stale, and what was seen in it.
    fn room(&self, index: u32, now: Epoch) -> Option<(u8, Entry)> {
        let bucket = self.bucket(index)?;
        let mut stale = None;
        for slot in 0..WAYS {
            let entry = bucket.entry(slot);
            if entry.is_empty() {
                return Some((slot as u8, entry));
            }
            if entry.is_stale(now) {
                stale = Some((slot as u8, entry));
            }
        }
        stale
    }

    /// Replaces `old` in a slot by `new` and keeps the marks of both true.
    fn write(&self, index: u32, slot: u8, old: Entry, new: Entry) -> Option<Place> {
        let place = Place { bucket: index, slot };
        if !new.is_guest() {
            if !self.swap(place, old, new) {
                return None;
            }
        } else {
            let (home, class) = (self.geometry.home(new.hash()), mark_class(new.hash()));
            let bucket = self.bucket(home)?;
            bucket.set_mark(class);
            if !self.swap(place, old, new) {
                self.tidy_mark(home, class);
                return None;
            }
            // Both this and taking a mark back change the same word: if this comes first, the
            // other sees the guest in its second look; if it comes last, the mark is back.
            bucket.set_mark(class);
        }
        self.left(old);
        Some(place)
    }

    /// Returns the entry of a bucket that was confirmed longest ago; among equals a varying one.
    fn oldest(&self, index: u32, hash: FlowHash, now: Epoch) -> Option<(u8, Entry)> {
        let bucket = self.bucket(index)?;
        let start = hash.mix(3) as usize;
        (0..WAYS)
            .map(|n| (start + n) % WAYS)
            .map(|slot| (slot as u8, bucket.entry(slot)))
            .max_by_key(|(_, entry)| entry.age(now))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
