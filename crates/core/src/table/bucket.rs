//! A bucket of a flow table: eight entries in one 64-byte cache line.
//!
//! A bucket that is full may send an entry to a second bucket. It says so in one of eight marks,
//! chosen by the top three bits of the entry's hash, and all guests of one mark go to the same
//! second bucket: `home ^ offset(class)`. So a probe that finds nothing looks further only if the
//! mark of its own class is set, and a mark can be taken back after a look into one bucket.
//!
//! Always true: a bucket is one cache line; a mark is set before its guest is written and, if the
//! guest stays, after it; an entry is read and written as a whole.
//! Elsewhere: which bucket ([`Geometry`]), insertion and eviction ([`super::FlowTable`]).

use super::entry::{Entry, MARK};
use crate::FlowHash;
use crate::sync::{AtomicU64, Ordering};

/// Entries of a bucket.
pub const WAYS: usize = 8;

/// Stands for a slot that was not noted: who writes there looks for the entry again.
pub(super) const SLOT_SOUGHT: u8 = WAYS as u8;

/// Eight entries of a flow table.
///
/// In eBPF aligned to 8 only, which is all that the kernel grants to a value of a map.
#[derive(Debug)]
#[cfg_attr(target_has_atomic = "64", repr(C, align(64)))]
#[cfg_attr(not(target_has_atomic = "64"), repr(C))]
pub struct Bucket {
    words: [AtomicU64; WAYS],
}

#[cfg(all(not(loom), target_has_atomic = "64"))]
const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);

/// What one bucket says of a hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scan {
    /// The entry and its slot, or a number above all slots if the slot was not noted.
    Found(Entry, u8),
    /// Nothing.
    Missed {
        /// Whether all eight slots are taken by other flows.
        full: bool,
        /// Whether the second bucket may hold the flow.
        further: bool,
    },
}

impl Bucket {
    /// Returns a bucket without entries.
    #[cfg(not(loom))]
    pub const fn empty() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WAYS] }
    }

    /// Returns a bucket without entries.
    #[cfg(loom)]
    pub fn empty() -> Self {
        Self { words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Looks for the entry of `hash`, which is not 0: at most eight comparisons in one cache line,
    /// no write.
    #[inline(always)]
    pub fn scan(&self, hash: FlowHash) -> Scan {
        if cfg!(target_arch = "bpf") { self.scan_in_steps(hash) } else { self.scan_at_once(hash) }
    }

    /// Compares all slots and branches once.
    ///
    /// A flow's slot cannot be foreseen. A branch on each slot is guessed wrong for most hits,
    /// which costs more than eight comparisons and, when the line comes from memory, keeps the
    /// packets behind from being begun.
    #[inline(always)]
    fn scan_at_once(&self, hash: FlowHash) -> Scan {
        // The difference to an own entry is below 2^32 and to any other one above: the least tells.
        let own = u64::from(hash.0) << 32;
        let mut least = u64::MAX;
        for word in &self.words {
            least = least.min(word.load(Ordering::Relaxed) ^ own);
        }
        if least >> 32 == 0 {
            return Scan::Found(Entry(own | least).without_mark(), SLOT_SOUGHT);
        }
        let (mut full, mut marks) = (true, 0);
        for (slot, word) in self.words.iter().enumerate() {
            let word = word.load(Ordering::Relaxed);
            full &= word >> 32 != 0;
            marks |= ((word & MARK) as u32) << slot;
        }
        Scan::Missed { full, further: marks >> mark_class(hash) & 1 != 0 }
    }

    /// Compares slot by slot and notes which it was: for writers, and for the BPF machine, which
    /// has no conditional move, so that the other scan would be a branch a slot all the same, and
    /// more ways for the verifier to walk.
    #[inline(always)]
    pub(super) fn scan_in_steps(&self, hash: FlowHash) -> Scan {
        let (mut full, mut marks) = (true, 0);
        for (slot, word) in self.words.iter().enumerate() {
            let word = word.load(Ordering::Relaxed);
            let tag = (word >> 32) as u32;
            if tag == hash.0 {
                return Scan::Found(Entry(word).without_mark(), slot as u8);
            }
            full &= tag != 0;
            marks |= ((word & MARK) as u32) << slot;
        }
        Scan::Missed { full, further: marks >> mark_class(hash) & 1 != 0 }
    }

    /// Replaces `seen` in a slot by `new` and keeps the mark; `false` if the slot held another.
    ///
    /// For a slot that was not noted ([`SLOT_SOUGHT`]) it looks for `seen` in all. `swap` is a
    /// compare-and-swap, an argument for the sake of the BPF target: it has the instruction, but
    /// Rust does not know it there.
    #[inline(always)]
    pub(super) fn replace_by(
        &self,
        slot: u8,
        seen: Entry,
        new: Entry,
        swap: impl Fn(&AtomicU64, u64, u64) -> bool,
    ) -> bool {
        let word = match self.words.get(slot as usize) {
            Some(word) => word,
            None => {
                let own = |word: &&AtomicU64| {
                    Entry(word.load(Ordering::Relaxed)).without_mark() == seen.without_mark()
                };
                let Some(word) = self.words.iter().find(own) else { return false };
                word
            }
        };
        let mark = word.load(Ordering::Relaxed) & MARK;
        // A mark that changes between the two loads is rare: one more try sees it.
        for mark in [mark, mark ^ MARK] {
            let seen = seen.without_mark().0 | mark;
            let new = new.without_mark().0 | mark;
            if swap(word, seen, new) {
                return true;
            }
        }
        false
    }

    /// Returns the entry in a slot as it is, with the bucket's mark.
    #[inline(always)]
    pub(super) fn word(&self, slot: usize) -> Entry {
        self.slot(slot).map_or(Entry(0), |word| Entry(word.load(Ordering::Relaxed)))
    }

    /// Returns the word of a slot.
    #[inline(always)]
    pub(super) fn slot(&self, slot: usize) -> Option<&AtomicU64> {
        self.words.get(slot)
    }

    /// Returns the eight words as they are in memory, for a copy of the table elsewhere.
    pub fn to_words(&self) -> [u64; WAYS] {
        core::array::from_fn(|slot| {
            self.words.get(slot).map_or(0, |word| word.load(Ordering::Relaxed))
        })
    }
}

/// Swaps `new` in for `old`; `false` if the word holds something else.
#[cfg(target_has_atomic = "64")]
#[inline(always)]
pub(super) fn compare_and_swap(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// What writers need, on targets with compare-and-swap.
#[cfg(target_has_atomic = "64")]
impl Bucket {
    /// Loads one word of the bucket's cache line and does nothing with it.
    #[inline(always)]
    pub(super) fn touch(&self) {
        if let Some(word) = self.words.first() {
            // A relaxed load whose value is dropped might be left out; the black box takes it.
            core::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    /// Returns the entry in a slot, without the bucket's mark.
    #[inline(always)]
    pub(super) fn entry(&self, slot: usize) -> Entry {
        self.words
            .get(slot)
            .map_or(Entry(0), |word| Entry(word.load(Ordering::Acquire)).without_mark())
    }

    /// Replaces `seen` in a slot by `new` and keeps the mark; `false` if the slot held another.
    #[inline(always)]
    pub fn replace(&self, slot: u8, seen: Entry, new: Entry) -> bool {
        self.replace_by(slot, seen, new, compare_and_swap)
    }

    /// Returns whether a class of this bucket's entries may live in their second bucket.
    pub(super) fn is_marked(&self, class: u32) -> bool {
        self.words.get(class as usize).is_some_and(|w| w.load(Ordering::SeqCst) & MARK != 0)
    }

    pub(super) fn set_mark(&self, class: u32) {
        if let Some(word) = self.words.get(class as usize) {
            word.fetch_or(MARK, Ordering::SeqCst);
        }
    }

    pub(super) fn clear_mark(&self, class: u32) {
        if let Some(word) = self.words.get(class as usize) {
            word.fetch_and(!MARK, Ordering::SeqCst);
        }
    }
}

/// Returns which of a bucket's eight marks speaks for a hash: its top three bits.
#[inline(always)]
pub(super) const fn mark_class(hash: FlowHash) -> u32 {
    hash.0 >> 29
}

/// Which bucket of a table belongs to which hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    mask: u32,
}

impl Geometry {
    /// Returns the geometry of a table of `buckets` buckets, a power of two of at most 2^28;
    /// `None` for any other number.
    pub const fn new(buckets: usize) -> Option<Self> {
        if buckets.is_power_of_two() && buckets <= 1 << 28 {
            Some(Self { mask: (buckets - 1) as u32 })
        } else {
            None
        }
    }

    /// Returns the number of buckets.
    pub const fn buckets(self) -> usize {
        self.mask as usize + 1
    }

    /// Returns the index of the bucket that is read first: the low bits of the hash.
    #[inline(always)]
    pub const fn home(self, hash: FlowHash) -> u32 {
        hash.0 & self.mask
    }

    /// Returns the index of the bucket that may hold the flow when its home was full.
    ///
    /// The same as [`home`](Self::home) in a table of one bucket.
    #[inline(always)]
    pub const fn second(self, hash: FlowHash) -> u32 {
        self.neighbour(self.home(hash), mark_class(hash))
    }

    /// Returns the bucket paired with this one by a class; applied twice it gives `bucket` again.
    #[inline(always)]
    pub(super) const fn neighbour(self, bucket: u32, class: u32) -> u32 {
        // Odd, so never 0; spread, so that one bucket's guests go to eight distant buckets.
        let offset = (class + 1).wrapping_mul(0x9e37_79b1) >> 4 | 1;
        bucket ^ offset & self.mask
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::CpuId;
    use crate::table::Epoch;

    #[test]
    fn the_second_bucket_differs_and_pairs_up() {
        for log in 1..20 {
            let geometry = Geometry::new(1 << log).unwrap();
            for n in 0..4096u32 {
                let hash = FlowHash(n.wrapping_mul(0x9e37_79b9) | 1);
                let (home, second) = (geometry.home(hash), geometry.second(hash));
                assert_ne!(home, second);
                assert!((second as usize) < geometry.buckets());
                assert_eq!(geometry.neighbour(second, mark_class(hash)), home);
            }
        }
        assert_eq!(Geometry::new(1).unwrap().second(FlowHash(7)), 0);
        assert_eq!(
            (Geometry::new(0), Geometry::new(3), Geometry::new(1 << 29)),
            (None, None, None)
        );
    }

    #[test]
    fn both_scans_say_the_same() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state >> 33
        };
        for _ in 0..2000 {
            let bucket = Bucket::empty();
            for slot in 0..WAYS as u8 {
                // Few hashes, so that some slots are empty and some hashes are there twice.
                let hash = FlowHash((next() % 5) as u32);
                let entry = Entry::new(hash, CpuId(u16::from(slot)), Epoch(0));
                if !hash.is_none() {
                    assert!(bucket.replace(slot, Entry(0), entry));
                }
                if next() % 3 == 0 {
                    bucket.set_mark(u32::from(slot));
                }
            }
            for hash in 1..7 {
                for class in 0..8 {
                    let hash = FlowHash(class << 29 | hash);
                    match (bucket.scan_at_once(hash), bucket.scan_in_steps(hash)) {
                        (Scan::Found(entry, _), Scan::Found(..)) => {
                            // Of two entries of one hash either may answer.
                            let there = (0..WAYS).any(|slot| bucket.entry(slot) == entry);
                            assert!(there && entry.hash() == hash);
                        }
                        (at_once, in_steps) => assert_eq!(at_once, in_steps),
                    }
                }
            }
        }
    }

    #[test]
    fn a_mark_is_kept_when_its_word_is_replaced_and_is_no_part_of_the_entry() {
        let bucket = Bucket::empty();
        let entry = Entry::new(FlowHash(0x8000_0001), CpuId(3), Epoch(0));
        bucket.set_mark(4);
        assert_eq!(bucket.scan(FlowHash(0x8000_0001)), Scan::Missed { full: false, further: true });
        assert_eq!(
            bucket.scan(FlowHash(0x7fff_ffff)),
            Scan::Missed { full: false, further: false }
        );
        assert!(bucket.replace(4, Entry(0), entry));
        assert!(!bucket.replace(4, Entry(0), entry));
        assert!(bucket.is_marked(4));
        assert_eq!(bucket.scan_in_steps(FlowHash(0x8000_0001)), Scan::Found(entry, 4));
        assert_eq!(bucket.scan(FlowHash(0x8000_0001)), Scan::Found(entry, SLOT_SOUGHT));
        let moved = entry.with_wanted(CpuId(5));
        assert!(!bucket.replace(SLOT_SOUGHT, moved, entry));
        assert!(bucket.replace(SLOT_SOUGHT, entry, moved) && bucket.is_marked(4));
        assert_eq!(bucket.entry(4), moved);
        assert!(bucket.replace(4, moved, entry));
        bucket.clear_mark(4);
        assert_eq!(bucket.entry(4), entry);
    }
}
