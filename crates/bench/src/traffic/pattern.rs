//! Which flow the next packet is of.

use rxsteer_lab::generate::Rng;

use super::{FIRST_PORT, PORTS, Pattern};

/// A sender, as its packets show it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Flow {
    /// Added to the first source address.
    pub(crate) address: u32,
    /// Source port.
    pub(crate) port: u16,
}

impl Flow {
    /// Returns flow `index` of a set.
    pub(crate) fn of_set(index: u32) -> Self {
        Self { address: index / PORTS, port: FIRST_PORT + (index % PORTS) as u16 }
    }
}

/// Draws flows.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    count: u32,
    next: u32,
    rng: Rng,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    InTurn,
    Uniform,
    /// For each flow the sum of the weights up to it, scaled to 2^32 at the end.
    HeavyTail(Vec<u64>),
    /// Addresses to draw from.
    Random(u32),
}

impl Flows {
    /// Makes the sequence of a pattern over `count` flows; `addresses` are there for random ones.
    pub(crate) fn new(pattern: Pattern, count: u32, addresses: u32, seed: u64) -> Self {
        let count = count.max(1);
        let way = match pattern {
            Pattern::InTurn => Way::InTurn,
            Pattern::Uniform => Way::Uniform,
            Pattern::HeavyTail => Way::HeavyTail(zipf(count)),
            Pattern::Random => Way::Random(addresses.max(1)),
        };
        Self { count, next: 0, rng: Rng::new(seed, 0), way }
    }

    /// Returns the flow of the next packet.
    pub(crate) fn next(&mut self) -> Flow {
        match &self.way {
            Way::Random(addresses) => Flow {
                address: self.rng.below(u64::from(*addresses)) as u32,
                port: 1024 + self.rng.below(u64::from(u16::MAX) - 1023) as u16,
            },
            _ => Flow::of_set(self.next_index()),
        }
    }

    /// Returns the index of the next packet's flow in the set; the first for a random one.
    pub(crate) fn next_index(&mut self) -> u32 {
        match &self.way {
            Way::InTurn => {
                let index = self.next;
                self.next = if index + 1 == self.count { 0 } else { index + 1 };
                index
            }
            Way::Uniform => self.rng.below(u64::from(self.count)) as u32,
            Way::HeavyTail(sums) => {
                let drawn = self.rng.below(sums.last().copied().unwrap_or(1));
                sums.partition_point(|sum| *sum <= drawn) as u32
            }
            Way::Random(_) => 0,
        }
    }
}

/// Returns the running sums of `1 / k`, in units of 2^-32.
fn zipf(count: u32) -> Vec<u64> {
    let mut sum = 0;
    (1..=u64::from(count))
        .map(|k| {
            sum += ((1u64 << 32) / k).max(1);
            sum
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn counts(pattern: Pattern, flows: u32, packets: u32) -> BTreeMap<Flow, u32> {
        let mut flows = Flows::new(pattern, flows, 1 << 16, 7);
        let mut counts = BTreeMap::new();
        for _ in 0..packets {
            *counts.entry(flows.next()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn in_turn_is_exactly_even() {
        let counts = counts(Pattern::InTurn, 1000, 10_000);
        assert_eq!(counts.len(), 1000);
        assert!(counts.values().all(|count| *count == 10));
    }

    #[test]
    fn more_flows_than_ports_take_more_addresses() {
        let counts = counts(Pattern::InTurn, 120_000, 120_000);
        assert_eq!(counts.len(), 120_000);
        let last = counts.keys().next_back().unwrap();
        assert_eq!(*last, Flow { address: 2, port: FIRST_PORT + 19_999 });
    }

    /// The expected counts are those of the distributions; the bounds are six standard deviations.
    #[test]
    fn the_others_are_drawn_as_said() {
        let near =
            |count: u32, expected: f64| (f64::from(count) - expected).abs() < 6.0 * expected.sqrt();
        let uniform = counts(Pattern::Uniform, 100, 100_000);
        assert!(uniform.values().all(|count| near(*count, 1000.0)), "{uniform:?}");
        let harmonic: f64 = (1..=100).map(|k| 1.0 / f64::from(k)).sum();
        let heavy = counts(Pattern::HeavyTail, 100, 100_000);
        for (index, count) in heavy.values().enumerate() {
            let expected = 100_000.0 / harmonic / (index + 1) as f64;
            assert!(near(*count, expected), "{index}: {count} of {expected}");
        }
        assert_eq!(heavy.len(), 100);
        let random = counts(Pattern::Random, 1, 10_000);
        assert!(random.len() > 9_990, "{}", random.len());
        assert!(random.keys().all(|flow| flow.port >= 1024 && flow.address < 1 << 16));
    }
}
