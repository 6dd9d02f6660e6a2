//! Model of Linux's global socket flow table: one 32-bit word a slot, the last writer has it.
//!
//! Since 2015 a word holds the upper bits of the hash beside the CPU number, so that most entries
//! of other flows are recognised; before, it held the CPU number alone. An empty word is
//! 0x0000ffff, and since there is no separate valid bit, a hash whose upper bits are those of the
//! empty word matches it: the model does as Linux does.
//!
//! Always true: the number of words is a power of two; the low bits of the hash choose the word.
//! Source: spec of the receive path, "Steering data layouts" and "Recording where the reader
//! runs"; include/net/rps.h (rps_record_sock_flow, sock_rps_delete_flow).

use super::{Probe, Recorded, TableSizeError};
use crate::sync::{AtomicU32, Ordering};
use crate::{CpuId, FlowHash};

/// A global socket flow table in borrowed or owned storage `S`.
#[derive(Clone, Debug)]
pub struct SockTable<S> {
    words: S,
    mask: u32,
    /// Low bits of a word that hold the CPU; all of them without identity.
    cpu_mask: u32,
    cpu_ids: u32,
}

impl<S: AsRef<[AtomicU32]>> SockTable<S> {
    /// An empty word: "no CPU" in 16 bits.
    pub const EMPTY: u32 = 0x0000_ffff;

    /// Makes an empty table of the given words, for a host whose CPU ids are below `cpu_ids`.
    ///
    /// With `identity` a word keeps the hash bits above those of the CPU number (since 2015).
    ///
    /// # Errors
    /// If the number of words is not a power of two from 1 to 2^29.
    pub fn new(words: S, cpu_ids: u32, identity: bool) -> Result<Self, TableSizeError> {
        let count = words.as_ref().len();
        if !count.is_power_of_two() || count > 1 << 29 {
            return Err(TableSizeError { count });
        }
        let cpu_mask = if identity { cpu_ids.max(1).next_power_of_two() - 1 } else { u32::MAX };
        let table = Self { words, mask: (count - 1) as u32, cpu_mask, cpu_ids };
        table.reset();
        Ok(table)
    }

    /// Empties every word, as writing the size that a table already has does in Linux.
    pub fn reset(&self) {
        for word in self.words.as_ref() {
            word.store(Self::EMPTY, Ordering::Relaxed);
        }
    }

    /// Returns the number of words.
    pub fn capacity(&self) -> usize {
        self.words.as_ref().len()
    }

    /// Returns the number of words that are not empty.
    pub fn count(&self) -> usize {
        let words = self.words.as_ref().iter();
        words.filter(|word| word.load(Ordering::Relaxed) != Self::EMPTY).count()
    }

    #[inline(always)]
    fn word(&self, hash: FlowHash) -> Option<&AtomicU32> {
        self.words.as_ref().get((hash.0 & self.mask) as usize)
    }

    /// Returns the CPU that the word of this hash names, with [`Probe::Hit`], or why not.
    ///
    /// Without identity any CPU number is a hit, whoever wrote it. The CPU may be offline.
    #[inline(always)]
    pub fn lookup(&self, hash: FlowHash) -> (Probe, CpuId) {
        let Some(word) = self.word(hash) else { return (Probe::Empty, CpuId(0)) };
        let word = word.load(Ordering::Relaxed);
        let same = (word ^ hash.0) & !self.cpu_mask == 0;
        let cpu = word & self.cpu_mask;
        if same && !(self.cpu_mask == u32::MAX && cpu == Self::EMPTY) {
            // Only a false match of an empty word reaches this with an id that cannot exist.
            let probe = if cpu < self.cpu_ids { Probe::Hit } else { Probe::Offline };
            (probe, CpuId(cpu as u16))
        } else if word == Self::EMPTY {
            (Probe::Empty, CpuId(0))
        } else {
            (Probe::OtherFlow, CpuId(0))
        }
    }

    /// Records that the reader of this hash runs on `cpu`; writes only what differs.
    ///
    /// Without identity the table cannot tell whose entry it replaces and says
    /// [`Recorded::Moved`].
    pub fn record(&self, hash: FlowHash, cpu: CpuId) -> Recorded {
        if hash.is_none() {
            return Recorded::NotAFlow;
        }
        let Some(word) = self.word(hash) else { return Recorded::NotAFlow };
        let old = word.load(Ordering::Relaxed);
        let new = hash.0 & !self.cpu_mask | u32::from(cpu.0) & self.cpu_mask;
        if old == new {
            return Recorded::Unchanged;
        }
        word.store(new, Ordering::Relaxed);
        if old == Self::EMPTY {
            Recorded::Inserted
        } else if (old ^ new) & !self.cpu_mask == 0 {
            Recorded::Moved
        } else {
            Recorded::Evicted(FlowHash(old & !self.cpu_mask))
        }
    }

    /// Empties the word of this hash without asking whose it is, as Linux does at close.
    ///
    /// Returns [`Recorded::Cleared`] if the word was not empty.
    pub fn clear(&self, hash: FlowHash) -> Recorded {
        if hash.is_none() {
            return Recorded::NotAFlow;
        }
        let Some(word) = self.word(hash) else { return Recorded::NotAFlow };
        if word.load(Ordering::Relaxed) == Self::EMPTY {
            return Recorded::Unchanged;
        }
        word.store(Self::EMPTY, Ordering::Relaxed);
        Recorded::Cleared
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU32> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }

    fn word_of(cpu_ids: u32, cpu: u16) -> u32 {
        let table = SockTable::new(words(16), cpu_ids, true).unwrap();
        table.record(FlowHash(0x51cc_c178), CpuId(cpu));
        table.words[8].load(Ordering::Relaxed)
    }

    // Source: spec, "Steering data layouts", table of identity bits.
    #[test]
    fn a_word_holds_the_hash_above_the_cpu_bits() {
        assert_eq!(word_of(1, 0), 0x51cc_c178);
        assert_eq!(word_of(8, 5), 0x51cc_c17d);
        assert_eq!(word_of(6, 5), 0x51cc_c17d);
        assert_eq!(word_of(64, 5), 0x51cc_c145);
        assert_eq!(word_of(65, 5), 0x51cc_c105);
        assert_eq!(word_of(256, 5), 0x51cc_c105);
    }

    #[test]
    fn hash_and_cpu_go_through_a_word_and_back() {
        for cpu_ids in [1u32, 2, 3, 63, 64, 65, 256] {
            let table = SockTable::new(words(1024), cpu_ids, true).unwrap();
            for cpu in [0, cpu_ids / 2, cpu_ids - 1] {
                table.record(FlowHash(0xdead_beef), CpuId(cpu as u16));
                assert_eq!(table.lookup(FlowHash(0xdead_beef)), (Probe::Hit, CpuId(cpu as u16)));
            }
        }
    }

    #[test]
    fn the_entry_of_another_flow_is_recognised_with_identity_and_believed_without() {
        let (a, b) = (FlowHash(0x1000_0001), FlowHash(0x2000_0001));
        let table = SockTable::new(words(64), 8, true).unwrap();
        assert_eq!(table.record(a, CpuId(3)), Recorded::Inserted);
        assert_eq!(table.lookup(b).0, Probe::OtherFlow);
        assert_eq!(table.record(b, CpuId(4)), Recorded::Evicted(FlowHash(0x1000_0000)));
        let table = SockTable::new(words(64), 8, false).unwrap();
        table.record(a, CpuId(3));
        assert_eq!(table.lookup(b), (Probe::Hit, CpuId(3)));
        assert_eq!(table.clear(b), Recorded::Cleared);
        assert_eq!(table.lookup(a).0, Probe::Empty);
    }

    // Source: spec, "Steering data layouts", item 8: the false-empty range.
    #[test]
    fn an_empty_word_matches_the_hashes_of_its_own_upper_bits() {
        let table = SockTable::new(words(1 << 16), 64, true).unwrap();
        for hash in [0xffc0, 0xffd3, 0xffff] {
            assert_eq!(table.lookup(FlowHash(hash)), (Probe::Hit, CpuId(63)));
        }
        assert_eq!(table.lookup(FlowHash(0xffbf)).0, Probe::Empty);
        let table = SockTable::new(words(1 << 16), 48, true).unwrap();
        assert_eq!(table.lookup(FlowHash(0xffff)).0, Probe::Offline);
    }

    #[test]
    fn bits_that_neither_place_nor_identity_cover_are_confused() {
        // 4 words, 64 CPUs: bits 2 to 5 of the hash are never compared.
        let table = SockTable::new(words(4), 64, true).unwrap();
        table.record(FlowHash(0x100), CpuId(9));
        assert_eq!(table.lookup(FlowHash(0x13c)), (Probe::Hit, CpuId(9)));
        // With as many words as CPU numbers index and identity cover all bits.
        let table = SockTable::new(words(64), 64, true).unwrap();
        table.record(FlowHash(0x100), CpuId(9));
        for bit in 0..32 {
            assert_ne!(table.lookup(FlowHash(0x100 ^ 1 << bit)).0, Probe::Hit, "bit {bit}");
        }
    }
}
