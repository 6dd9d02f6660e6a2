//! Which flows make up much of the work, in fixed memory.
//!
//! Space-saving (Metwally, Agrawal and El Abbadi, 2005): sixteen counters; a flow without one takes
//! that of the smallest, with its count as the error of its own. At the end of each window all counts
//! are halved, so a window weighs half of the one after it.
//!
//! Always true, up to the rounding of the halves: what a counter says is at least the flow's weight,
//! and less its error at most that; a flow of more than a sixteenth of all has a counter. So a flow
//! is called an elephant only for weight that it has for certain, and many small flows, whatever
//! their number, never are one.

use rxsteer_core::FlowHash;

/// Counters of a sketch.
pub const COUNTERS: usize = 16;

/// The heaviest flows of late.
#[derive(Clone, Debug)]
pub struct Elephants {
    hashes: [u32; COUNTERS],
    counts: [Count; COUNTERS],
    total: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    weight: u64,
    error: u64,
}

/// A flow with a counter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Heavy {
    /// The flow.
    pub hash: FlowHash,
    /// Weight that it has for certain: of the last window about half of this.
    pub at_least: u64,
    /// Weight that it has at most.
    pub at_most: u64,
}

impl Default for Elephants {
    fn default() -> Self {
        Self { hashes: [0; COUNTERS], counts: [Count::default(); COUNTERS], total: 0 }
    }
}

impl Elephants {
    /// Adds to the weight of a flow; a packet without a hash adds to the total only.
    #[inline]
    pub fn add(&mut self, hash: FlowHash, weight: u32) {
        let weight = u64::from(weight);
        self.total = self.total.saturating_add(weight);
        if hash.is_none() {
            return;
        }
        match self.hashes.iter().position(|known| *known == hash.0) {
            Some(at) => self.counts[at].weight = self.counts[at].weight.saturating_add(weight),
            None => self.replace_smallest(hash, weight),
        }
    }

    /// Returns the weight of all flows.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns what is known of a flow; `None`: at most a sixteenth of the total.
    pub fn of(&self, hash: FlowHash) -> Option<Heavy> {
        self.iter().find(|heavy| heavy.hash == hash)
    }

    /// Returns the flows that have a counter.
    pub fn iter(&self) -> impl Iterator<Item = Heavy> {
        let all = self.hashes.iter().zip(&self.counts);
        all.filter(|(hash, _)| **hash != 0).map(|(hash, count)| Heavy {
            hash: FlowHash(*hash),
            at_least: count.weight - count.error,
            at_most: count.weight,
        })
    }

    /// Ends a window: halves all.
    pub fn halve(&mut self) {
        self.total /= 2;
        for (hash, count) in self.hashes.iter_mut().zip(&mut self.counts) {
            // The error is rounded up: what is certain stays certain.
            *count = Count { weight: count.weight / 2, error: count.error.div_ceil(2) };
            count.error = count.error.min(count.weight);
            if count.weight == 0 {
                *hash = 0;
            }
        }
    }

    fn replace_smallest(&mut self, hash: FlowHash, weight: u64) {
        let smallest = self.counts.iter().enumerate().min_by_key(|(_, count)| count.weight);
        let at = smallest.map_or(0, |(at, _)| at);
        let error = self.counts[at].weight;
        self.hashes[at] = hash.0;
        self.counts[at] = Count { weight: error.saturating_add(weight), error };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_elephant_among_a_thousand_mice_is_found_and_no_mouse_is_one() {
        let mut sketch = Elephants::default();
        for n in 0..100_000u32 {
            sketch.add(FlowHash(if n % 4 == 0 { 7 } else { 100 + n % 1000 }), 1);
        }
        let elephant = sketch.of(FlowHash(7)).unwrap();
        assert!(elephant.at_least >= 25_000 * 9 / 10 && elephant.at_least <= 25_000);
        let heavy = sketch.iter().filter(|h| h.at_least > 10_000);
        assert_eq!(heavy.count(), 1);
    }

    proptest! {
        #[test]
        fn bounds_hold_against_exact_counts(
            packets in prop::collection::vec((1u32..40, 0u32..2000), 0..2000),
        ) {
            let mut sketch = Elephants::default();
            let mut exact: BTreeMap<u32, u64> = BTreeMap::new();
            for (hash, weight) in &packets {
                sketch.add(FlowHash(*hash), *weight);
                *exact.entry(*hash).or_default() += u64::from(*weight);
            }
            prop_assert_eq!(sketch.total(), exact.values().sum::<u64>());
            for heavy in sketch.iter() {
                let truth = exact[&heavy.hash.0];
                prop_assert!(heavy.at_least <= truth && truth <= heavy.at_most);
            }
            for (hash, weight) in &exact {
                if *weight > sketch.total() / COUNTERS as u64 {
                    prop_assert!(sketch.of(FlowHash(*hash)).is_some());
                }
            }
        }

        #[test]
        fn after_a_halving_certain_weight_is_certain(
            packets in prop::collection::vec((1u32..40, 0u32..2000), 0..500),
        ) {
            let mut sketch = Elephants::default();
            let mut exact: BTreeMap<u32, u64> = BTreeMap::new();
            for (hash, weight) in &packets {
                sketch.add(FlowHash(*hash), *weight);
                *exact.entry(*hash).or_default() += u64::from(*weight);
            }
            sketch.halve();
            for heavy in sketch.iter() {
                prop_assert!(heavy.at_least <= exact[&heavy.hash.0].div_ceil(2));
            }
        }
    }
}
