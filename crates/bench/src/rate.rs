//! A token bucket: how many packets may be sent by now.
//!
//! Always true: the packets let through by time `t` are never more than `rate × t` and the depth;
//! as long as nobody is late by more than the depth, packet `k` is due at exactly `k / rate`, without
//! drift. Who is later than that loses tokens, and they are counted.
//! Time is an argument.

/// Nanoseconds of a second.
const SECOND_NS: u128 = 1_000_000_000;

/// A token bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Packets a second; 0 for no limit.
    rate: u64,
    /// Most packets at once.
    depth: u64,
    /// Tokens handed out or lost since the start.
    used: u64,
    /// Tokens lost for being late.
    lost: u64,
}

impl Bucket {
    /// Makes a bucket that fills with `rate` tokens a second, and holds `depth` of them.
    ///
    /// A rate of 0 is no limit. A depth of 0 counts as 1.
    pub fn new(rate: u64, depth: u64) -> Self {
        Self { rate, depth: depth.max(1), used: 0, lost: 0 }
    }

    /// Takes up to `most` tokens and returns how many there were at `now_ns`, counted from the start.
    pub fn take(&mut self, now_ns: u64, most: u64) -> u64 {
        if self.rate == 0 {
            return most;
        }
        // Packet 0 is due at once.
        let due = u128::from(now_ns) * u128::from(self.rate) / SECOND_NS + 1;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let waiting = due.saturating_sub(self.used);
        let spilled = waiting.saturating_sub(self.depth);
        self.used += spilled;
        self.lost += spilled;
        let taken = (waiting - spilled).min(most);
        self.used += taken;
        taken
    }

    /// Gives tokens back that were not used.
    pub fn give_back(&mut self, count: u64) {
        self.used = self.used.saturating_sub(count);
    }

    /// Returns when the next token is due, in ns from the start.
    pub fn next_ns(&self) -> u64 {
        if self.rate == 0 {
            return 0;
        }
        let ns = (u128::from(self.used) * SECOND_NS).div_ceil(u128::from(self.rate));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Returns the tokens that were lost because nobody came for them in time.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_due_at_its_time_without_drift() {
        for rate in [1, 3, 7, 1000, 999_983] {
            let mut bucket = Bucket::new(rate, 64);
            for packet in 0..10_000u64 {
                let due = bucket.next_ns();
                let exact = u128::from(packet) * SECOND_NS;
                assert_eq!(u128::from(due), exact.div_ceil(u128::from(rate)), "{rate} {packet}");
                if due > 0 {
                    assert_eq!(bucket.take(due - 1, 64), 0, "{rate}: {packet} came early");
                }
                assert_eq!(bucket.take(due, 64), 1, "{rate}: {packet} did not come");
            }
            assert_eq!(bucket.lost(), 0);
        }
    }

    #[test]
    fn who_comes_late_gets_the_depth_and_the_rest_is_counted() {
        let mut bucket = Bucket::new(1000, 10);
        assert_eq!(bucket.take(0, 64), 1);
        // At 99 ms, 99 more are due.
        assert_eq!(bucket.take(99_000_000, 4), 4);
        assert_eq!(bucket.take(99_000_000, 64), 6);
        assert_eq!(bucket.lost(), 89);
        assert_eq!(bucket.take(99_999_999, 64), 0);
        assert_eq!(bucket.take(100_000_000, 64), 1);
    }

    #[test]
    fn tokens_not_used_are_there_again() {
        let mut bucket = Bucket::new(1000, 10);
        assert_eq!(bucket.take(5_000_000, 64), 6);
        bucket.give_back(2);
        assert_eq!(bucket.take(5_000_000, 64), 2);
        assert_eq!(Bucket::new(0, 0).take(0, 64), 64);
    }

    #[test]
    fn a_long_run_does_not_overflow() {
        let mut bucket = Bucket::new(u64::MAX, u64::MAX);
        assert_eq!(bucket.take(u64::MAX, 5), 5);
        assert_eq!(Bucket::new(1, 1).take(u64::MAX, 9), 1);
    }
}
