//! How long things took: quantiles of a High Dynamic Range histogram.
//!
//! Always true: a quantile is within 0.1 % of the value that sorting would give.
//! Source: hdrhistogram.org; nearest-rank quantiles.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time that is told apart, in ns; what is longer counts as this.
const LONGEST_NS: u64 = 60_000_000_000;

/// Times, as they are recorded.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let made = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self(made.expect("the bounds and three digits are allowed"))
    }
}

impl Latency {
    /// Adds a time.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Adds the times of another.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// Returns the usual quantiles.
    pub fn quantiles(&self) -> Quantiles {
        let at = |quantile| if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile) };
        Quantiles {
            count: self.0.len(),
            mean_ns: if self.0.is_empty() { 0 } else { self.0.mean() as u64 },
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.0.max(),
        }
    }
}

/// Quantiles of times, in ns; all 0 where there is none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Quantiles {
    /// Times recorded.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// Half took at most this.
    pub p50_ns: u64,
    /// 90 % took at most this.
    pub p90_ns: u64,
    /// 95 % took at most this.
    pub p95_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_lab::generate::Rng;

    /// The second way: sort, and take the nearest rank.
    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let mut rng = Rng::new(5, 0);
        // From 1 ns to 1 s, spread over the powers of two.
        let mut times: Vec<u64> =
            (0..100_000).map(|_| 1 + (rng.bits() >> (34 + rng.below(30)))).collect();
        let (mut one, mut other) = (Latency::default(), Latency::default());
        for (index, time) in times.iter().enumerate() {
            if index % 3 == 0 { one.record(*time) } else { other.record(*time) }
        }
        one.add(&other);
        times.sort_unstable();
        let rank = |quantile: f64| times[(quantile * times.len() as f64).ceil() as usize - 1];
        let is = one.quantiles();
        assert_eq!(is.count, 100_000);
        for (quantile, value) in [
            (0.5, is.p50_ns),
            (0.9, is.p90_ns),
            (0.95, is.p95_ns),
            (0.99, is.p99_ns),
            (0.999, is.p999_ns),
            (1.0, is.max_ns),
        ] {
            let exact = rank(quantile) as f64;
            assert!((value as f64 - exact).abs() <= exact / 1000.0 + 1.0, "{quantile}: {value}");
        }
    }

    #[test]
    fn nothing_and_everything_can_be_recorded() {
        assert_eq!(Latency::default().quantiles(), Quantiles::default());
        let mut latency = Latency::default();
        latency.record(0);
        latency.record(u64::MAX);
        assert_eq!(latency.quantiles().count, 2);
        assert!(latency.quantiles().max_ns >= LONGEST_NS);
    }
}
