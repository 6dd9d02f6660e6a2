//! More datagrams than a reader can take: multiples of what the plain host still delivers.
//!
//! The highest rate that is still delivered is searched for: doubled from a low one until packets are
//! missing, then narrowed down. Runs are short, so it is within a tenth or so of what a long run would
//! find; it is the same for all set-ups of a comparison, and in the report.

use std::fmt;
use std::time::Duration;

use rxsteer_testbed::Pair;
use serde::Serialize;

use crate::{BenchError, GenSpec, SinkSpec, Until, Watch, receive_in};

/// Datagrams to a reader, at multiples of a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct OverloadSpec {
    /// How to read.
    pub sink: SinkSpec,
    /// What is sent; a rate here is the one that is multiplied, 0 is the highest that the host delivers
    /// when nothing is set up.
    pub source: GenSpec,
    /// The multiples, each more than 0.
    pub multiples: Vec<f64>,
}

/// A multiple of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// How many times.
    pub multiple: f64,
    /// The rate that is multiplied, in packets a second.
    pub base: u64,
}

impl Load {
    /// Returns the rate in packets a second, at least 1.
    pub fn rate(&self) -> u64 {
        ((self.base as f64 * self.multiple) as u64).max(1)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x", self.multiple)
    }
}

impl OverloadSpec {
    /// Largest multiple.
    pub const MOST: f64 = 1000.0;

    pub(super) fn check(&self) -> Result<(), BenchError> {
        let fine = |multiple: &f64| *multiple > 0.0 && *multiple <= Self::MOST;
        if self.multiples.is_empty() || !self.multiples.iter().all(fine) {
            let message = format!("overload: allowed are multiples above 0, up to {}", Self::MOST);
            return Err(BenchError::Options(message));
        }
        Ok(())
    }

    /// Returns the loads; searches for the rate that is multiplied, if none is given.
    pub(super) fn loads(&self, pair: &Pair, watch: &Watch<'_>) -> Result<Vec<Load>, BenchError> {
        self.check()?;
        let base = match self.source.rate {
            0 => highest_delivered(pair, &self.sink, &self.source, watch)?,
            rate => rate,
        };
        let mut multiples = self.multiples.clone();
        multiples.sort_by(f64::total_cmp);
        multiples.dedup();
        Ok(multiples.into_iter().map(|multiple| Load { multiple, base }).collect())
    }
}

/// Returns the same packets at a rate, in bursts of a quarter of a millisecond, as a poll finds them on a
/// busy link; of at least [`LEAST_BURST`] packets, since a sender that is late by more than a burst does
/// not catch up.
pub(super) fn at_rate(source: &GenSpec, rate: u64) -> GenSpec {
    let batch = usize::try_from(rate / 4000).unwrap_or(usize::MAX).clamp(LEAST_BURST, 256);
    GenSpec { rate, batch, ..source.clone() }
}

/// Least packets of a burst.
const LEAST_BURST: usize = 16;

/// Rate with which the search begins.
const FIRST: u64 = 10_000;

/// Times that a rate is doubled, to 2.5 billion at most.
const DOUBLINGS: u32 = 18;

/// Halvings of the range that is left: a sixteenth of it remains.
const NARROWINGS: u32 = 4;

/// Share that must be delivered for a rate to count as delivered, and be sent to count as tried.
const DELIVERED: f64 = 0.98;

/// How long each rate is tried.
const TRY: Duration = Duration::from_millis(250);

fn highest_delivered(
    pair: &Pair,
    sink: &SinkSpec,
    source: &GenSpec,
    watch: &Watch<'_>,
) -> Result<u64, BenchError> {
    let is_delivered = |rate: u64| -> Result<bool, BenchError> {
        let until = Until { duration: TRY, ..source.until };
        let source = GenSpec { until, ..at_rate(source, rate) };
        let report = receive_in(pair, sink, &source, watch)?;
        let sent = report.account.sent as f64;
        let tried = sent >= rate as f64 * TRY.as_secs_f64() * DELIVERED;
        Ok(tried && report.account.received as f64 >= sent * DELIVERED)
    };
    search(is_delivered, || watch.is_stopped())
}

/// Searches for the highest rate for which `is_delivered`, until `is_stopped`.
fn search(
    mut is_delivered: impl FnMut(u64) -> Result<bool, BenchError>,
    is_stopped: impl Fn() -> bool,
) -> Result<u64, BenchError> {
    let (mut low, mut high) = (FIRST, FIRST);
    for _ in 0..DOUBLINGS {
        // A hiccup of a shared machine is no limit: a rate is given up when it fails twice.
        if is_stopped() || !(is_delivered(high)? || is_delivered(high)?) {
            break;
        }
        low = high;
        high = high.saturating_mul(2);
    }
    if low == high {
        // Not even the first: then that is what is multiplied.
        return Ok(FIRST);
    }
    for _ in 0..NARROWINGS {
        if is_stopped() {
            break;
        }
        let middle = low.midpoint(high);
        if is_delivered(middle)? || is_delivered(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_just_below_the_limit() {
        for limit in [10_001_u64, 12_345, 99_999, 400_000, 3_333_333] {
            let found = search(|rate| Ok(rate <= limit), || false).unwrap();
            assert!(found <= limit, "{found} of {limit}");
            // The last range was one doubling wide, and was halved four times.
            assert!(found as f64 >= limit as f64 * (1.0 - 1.0 / 16.0), "{found} of {limit}");
        }
    }

    #[test]
    fn one_hiccup_is_no_limit_and_no_rate_at_all_is_the_first() {
        let mut calls = 0;
        let hiccup = |rate| {
            calls += 1;
            Ok(calls != 2 && rate <= 100_000)
        };
        assert!(search(hiccup, || false).unwrap() > 90_000);
        assert_eq!(search(|_| Ok(false), || false).unwrap(), FIRST);
        assert_eq!(search(|_| Ok(true), || true).unwrap(), FIRST);
    }

    #[test]
    fn a_load_is_a_multiple_and_more_than_nothing() {
        assert_eq!(Load { multiple: 2.5, base: 1000 }.rate(), 2500);
        assert_eq!(Load { multiple: 0.0001, base: 100 }.rate(), 1);
        assert_eq!(Load { multiple: 4.0, base: 1 }.to_string(), "4 x");
    }
}
