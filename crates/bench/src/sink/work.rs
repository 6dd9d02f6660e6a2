//! Work of an application on each datagram: a loop of so many turns.
//!
//! Turns are counted, not time: what interrupts a reader then makes its work last longer, as it does
//! that of an application.
//!
//! Elsewhere: the loop of a reader ([`reader`](super::reader)).

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Turns that are timed to know what one takes.
const SAMPLE: u64 = 20_000;

/// Samples, of which the least counts: what interrupts only adds.
const TRIES: u32 = 100;

/// The least time of a sample so far, in ns.
static LEAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Work that takes some time, where nothing interrupts it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    turns: u64,
}

impl Work {
    /// Measures what a turn takes, if there is any work; to be made before anything is sent.
    ///
    /// The least that was ever seen counts, so that work is the same from one run to the next.
    pub(super) fn new(time: Duration) -> Self {
        if time.is_zero() {
            return Self::default();
        }
        let sample = |_| {
            let start = Instant::now();
            turn(SAMPLE);
            start.elapsed().as_nanos().max(1) as u64
        };
        let least = (0..TRIES).map(sample).min().unwrap_or(u64::MAX);
        let least = LEAST.fetch_min(least, Ordering::Relaxed).min(least);
        let turns = time.as_nanos() * u128::from(SAMPLE) / u128::from(least);
        Self { turns: u64::try_from(turns).unwrap_or(u64::MAX).max(1) }
    }

    /// Works on so many datagrams.
    pub(super) fn on(self, datagrams: u64) {
        if self.turns > 0 {
            turn(self.turns.saturating_mul(datagrams));
        }
    }
}

/// Each turn waits for the one before it, so that no compiler and no CPU does several at once. It stays in
/// a register: through memory, some CPUs do it now in four cycles, now in eight.
fn turn(turns: u64) {
    black_box(chain(black_box(1), turns));
}

/// Returns what so many turns make of a number.
pub(crate) fn chain(from: u64, turns: u64) -> u64 {
    (0..turns).fold(from, |x, _| (x ^ (x >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_time_is_twice_the_turns() {
        let turns = |us| Work::new(Duration::from_micros(us)).turns as f64;
        // Both are measured anew, on a machine that others use.
        let ratio = turns(200) / turns(100);
        assert!((1.0..4.0).contains(&ratio), "{ratio}");
        assert_eq!(Work::new(Duration::ZERO).turns, 0);
    }
}
