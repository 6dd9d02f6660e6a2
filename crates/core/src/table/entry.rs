//! One entry of a flow table: a 64-bit word that is read and written as a whole.
//!
//! | bits | what |
//! | --- | --- |
//! | 32..64 | the whole 32-bit flow hash; 0 for an empty entry (no flow has hash 0) |
//! | 20..32 | wanted CPU: where the consumer last ran |
//! | 7..20 | current CPU: where the flow's packets go; all ones for "not placed yet" |
//! | 3..7 | epoch in which the entry was last confirmed, modulo 16 |
//! | 2 | the flow is between two CPUs and its last position is in the order table |
//! | 1 | guest: the entry lives in the second bucket of its hash |
//! | 0 | mark: belongs to the bucket and not to the entry, see [`super::bucket`] |
//!
//! Always true: whoever replaces a word keeps its mark bit.

use crate::{CpuId, FlowHash};

/// Bit of a word that belongs to its bucket.
pub(super) const MARK: u64 = 1;
const GUEST: u64 = 1 << 1;
const MOVING: u64 = 1 << 2;
const EPOCH_SHIFT: u32 = 3;
const EPOCH_MASK: u64 = 0xf;
const CURRENT_SHIFT: u32 = 7;
const CURRENT_MASK: u64 = 0x1fff;
const NOT_PLACED: u64 = 0x1fff;
const WANTED_SHIFT: u32 = 20;
const WANTED_MASK: u64 = 0xfff;
const HASH_SHIFT: u32 = 32;

/// Coarse time of a flow table: a count of equal spans, of which only differences matter.
///
/// An entry that was not confirmed for more than [`Epoch::FRESH`] epochs is stale: it is not
/// believed and is the first to be replaced. Since four bits are kept, [`FlowTable::sweep`] must
/// pass over each bucket at least once in eight epochs, or an entry idle for 16 looks young again.
///
/// [`FlowTable::sweep`]: super::FlowTable::sweep
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Most epochs without confirmation after which an entry is still believed.
    pub const FRESH: u32 = 7;

    /// Binary logarithm of the usual length of an epoch in ns: 2^35 ns are 34 s, so an entry
    /// lives for four minutes without a word from its consumer.
    pub const NS_SHIFT: u32 = 35;

    /// Returns the epoch of a time in ns, with epochs of 2^[`Self::NS_SHIFT`] ns.
    #[inline(always)]
    pub const fn from_ns(ns: u64) -> Self {
        Self((ns >> Self::NS_SHIFT) as u32)
    }
}

/// What a flow table knows of one flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(transparent)]
pub struct Entry(pub(super) u64);

impl Entry {
    #[inline(always)]
    pub(super) const fn new(hash: FlowHash, wanted: CpuId, now: Epoch) -> Self {
        Self(
            (hash.0 as u64) << HASH_SHIFT
                | (wanted.0 as u64 & WANTED_MASK) << WANTED_SHIFT
                | NOT_PLACED << CURRENT_SHIFT
                | (now.0 as u64 & EPOCH_MASK) << EPOCH_SHIFT,
        )
    }

    /// Returns the flow's hash.
    #[inline(always)]
    pub const fn hash(self) -> FlowHash {
        FlowHash((self.0 >> HASH_SHIFT) as u32)
    }

    /// Returns the CPU on which the flow's consumer last ran.
    #[inline(always)]
    pub const fn wanted_cpu(self) -> CpuId {
        CpuId((self.0 >> WANTED_SHIFT & WANTED_MASK) as u16)
    }

    /// Returns the CPU to which the flow's packets go, or `None` before the first was steered.
    #[inline(always)]
    pub const fn current_cpu(self) -> Option<CpuId> {
        let cpu = self.0 >> CURRENT_SHIFT & CURRENT_MASK;
        if cpu == NOT_PLACED { None } else { Some(CpuId(cpu as u16)) }
    }

    /// Returns whether the flow's last position is in the order table of its queue.
    #[inline(always)]
    pub const fn is_moving(self) -> bool {
        self.0 & MOVING != 0
    }

    /// Returns the number of epochs since the last confirmation, modulo 16.
    #[inline(always)]
    pub const fn age(self, now: Epoch) -> u32 {
        now.0.wrapping_sub((self.0 >> EPOCH_SHIFT) as u32) & EPOCH_MASK as u32
    }

    /// Returns whether the entry is too old to be believed.
    #[inline(always)]
    pub const fn is_stale(self, now: Epoch) -> bool {
        self.age(now) > Epoch::FRESH
    }

    #[inline(always)]
    pub(super) const fn is_empty(self) -> bool {
        self.0 >> HASH_SHIFT == 0
    }

    #[inline(always)]
    pub(super) const fn is_guest(self) -> bool {
        self.0 & GUEST != 0
    }

    #[inline(always)]
    pub(super) const fn as_guest(self, guest: bool) -> Self {
        Self(if guest { self.0 | GUEST } else { self.0 & !GUEST })
    }

    #[inline(always)]
    pub(super) const fn with_wanted(self, cpu: CpuId) -> Self {
        Self(self.0 & !(WANTED_MASK << WANTED_SHIFT) | (cpu.0 as u64 & WANTED_MASK) << WANTED_SHIFT)
    }

    #[inline(always)]
    pub(super) const fn with_epoch(self, now: Epoch) -> Self {
        Self(self.0 & !(EPOCH_MASK << EPOCH_SHIFT) | (now.0 as u64 & EPOCH_MASK) << EPOCH_SHIFT)
    }

    /// Returns the entry with its packets on `cpu`, and whether its position is being kept.
    #[inline(always)]
    pub(super) const fn placed(self, cpu: CpuId, moving: bool) -> Self {
        let word = self.0 & !(CURRENT_MASK << CURRENT_SHIFT | MOVING)
            | (cpu.0 as u64 & WANTED_MASK) << CURRENT_SHIFT;
        Self(if moving { word | MOVING } else { word })
    }

    /// Returns the word without the bit that belongs to its bucket.
    #[inline(always)]
    pub(super) const fn without_mark(self) -> Self {
        Self(self.0 & !MARK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_a_change_of_every_other() {
        let entry = Entry::new(FlowHash(0xffff_ffff), CpuId(4095), Epoch(21));
        assert_eq!(entry.hash(), FlowHash(0xffff_ffff));
        assert_eq!(entry.wanted_cpu(), CpuId(4095));
        assert_eq!(entry.current_cpu(), None);
        assert_eq!(entry.age(Epoch(24)), 3);
        let entry = entry.placed(CpuId(4095), true).as_guest(true).with_wanted(CpuId(1));
        assert_eq!(entry.current_cpu(), Some(CpuId(4095)));
        assert!(entry.is_moving() && entry.is_guest());
        assert_eq!((entry.hash(), entry.wanted_cpu()), (FlowHash(0xffff_ffff), CpuId(1)));
        let entry = entry.placed(CpuId(0), false).as_guest(false).with_epoch(Epoch(31));
        assert_eq!(entry.current_cpu(), Some(CpuId(0)));
        assert!(!entry.is_moving() && !entry.is_guest());
        assert_eq!((entry.age(Epoch(32)), entry.wanted_cpu()), (1, CpuId(1)));
    }

    #[test]
    fn an_entry_is_believed_for_seven_epochs_and_not_for_eight() {
        let entry = Entry::new(FlowHash(1), CpuId(0), Epoch(u32::MAX));
        assert!(!entry.is_stale(Epoch(u32::MAX.wrapping_add(7))));
        assert!(entry.is_stale(Epoch(u32::MAX.wrapping_add(8))));
        assert!(entry.is_stale(Epoch(u32::MAX.wrapping_add(15))));
    }
}
