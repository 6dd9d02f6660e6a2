//! Repeat filter: tells hashes that come back from hashes that were seen once.
//!
//! Packets that reach an *unconnected* UDP socket may belong to flows (QUIC, media) or may be
//! requests of strangers (DNS). What tells them apart is that a flow's hash comes back. The filter
//! keeps, per slot, one hash and a count of its sightings up to 15. Another hash that meets the
//! slot takes one from the count and gets the slot only at 0, so a stream of hashes that never
//! come back does not displace those that do.
//!
//! Always true: one word is written per sighting, in this filter and not in a flow table; memory
//! is fixed.

use super::TableSizeError;
use super::sighting::{COUNT_MASK, sight_in_word};
use crate::FlowHash;
use crate::sync::{AtomicU32, Ordering};

/// A repeat filter in borrowed or owned storage `S` of words that start as 0.
#[derive(Clone, Debug)]
pub struct RepeatFilter<S> {
    words: S,
    log: u32,
}

impl<S: AsRef<[AtomicU32]>> RepeatFilter<S> {
    /// Most sightings that are told apart.
    pub const MOST: u32 = COUNT_MASK;

    /// Makes a filter of the given words.
    ///
    /// # Errors
    /// If their number is not a power of two.
    pub fn new(words: S) -> Result<Self, TableSizeError> {
        let count = words.as_ref().len();
        if !count.is_power_of_two() {
            return Err(TableSizeError { count });
        }
        Ok(Self { words, log: count.ilog2() })
    }

    /// Notes a sighting of `hash` and returns how many there were, this one included, as far as
    /// the filter remembers: 1 to [`MOST`](Self::MOST).
    pub fn sight(&self, hash: FlowHash) -> u32 {
        let Some(word) = self.words.as_ref().get(hash.mix(self.log) as usize) else { return 1 };
        let (new, count) = sight_in_word(word.load(Ordering::Relaxed), hash);
        word.store(new, Ordering::Relaxed);
        count
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_comes_back_is_counted_and_strangers_are_not() {
        let filter = RepeatFilter::new([const { AtomicU32::new(0) }; 64]).unwrap();
        for n in 1..=20 {
            assert_eq!(filter.sight(FlowHash(0x1234_5678)), n.min(15));
        }
        let mut state = 1u32;
        let repeated = (0..10_000).filter(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            filter.sight(FlowHash(state)) > 1
        });
        assert_eq!(repeated.count(), 0);
    }

    #[test]
    fn a_flow_among_strangers_keeps_its_slot() {
        let filter = RepeatFilter::new([const { AtomicU32::new(0) }; 1]).unwrap();
        let mut most = 0;
        for n in 0..64u32 {
            most = most.max(filter.sight(FlowHash(0xaaaa_0000)));
            most = most.max(filter.sight(FlowHash(0xaaaa_0000)));
            filter.sight(FlowHash(0x1000 + n * 16));
        }
        assert_eq!(most, 15);
    }
}
