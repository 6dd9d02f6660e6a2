//! When each packet of a capture is due.
//!
//! Always true: a packet is never due before the one in front of it, also where the capture's time goes
//! backwards. Time is an argument.

use super::CapturePace;

/// When packets are due, in ns from the start.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pace: CapturePace,
    /// Time of the first packet of this round, in the capture.
    first_ns: Option<u64>,
    /// When the first packet of this round was due.
    base_ns: u64,
    /// When the last packet was due.
    due_ns: u64,
    /// Packets of this round.
    of_round: u64,
    /// Packets.
    count: u64,
}

impl Timeline {
    pub(super) fn new(pace: CapturePace) -> Self {
        Self { pace, first_ns: None, base_ns: 0, due_ns: 0, of_round: 0, count: 0 }
    }

    /// Returns when the next packet is due, which was captured at this time.
    pub(super) fn due(&mut self, captured_ns: u64) -> u64 {
        let due = match self.pace {
            CapturePace::Recorded(speed) => {
                let first = *self.first_ns.get_or_insert(captured_ns);
                let gap = captured_ns.saturating_sub(first);
                // A cast of what is too large gives the largest.
                let gap = if speed == 1.0 { gap } else { (gap as f64 / speed) as u64 };
                self.base_ns.saturating_add(gap)
            }
            CapturePace::Rate(rate) => {
                let due = u128::from(self.count) * 1_000_000_000;
                u64::try_from(due.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX)
            }
            CapturePace::Fastest => 0,
        };
        self.count += 1;
        self.of_round += 1;
        self.due_ns = self.due_ns.max(due);
        self.due_ns
    }

    /// Begins the capture again: its first packet follows the last after the mean gap of the round.
    pub(super) fn next_round(&mut self) {
        let gaps = self.of_round.saturating_sub(1).max(1);
        let gap = (self.due_ns - self.base_ns) / gaps;
        self.base_ns = self.due_ns.saturating_add(gap);
        self.first_ns = None;
        self.of_round = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(pace: CapturePace, times: &[u64]) -> Vec<u64> {
        let mut timeline = Timeline::new(pace);
        times.iter().map(|time| timeline.due(*time)).collect()
    }

    #[test]
    fn gaps_are_those_of_the_capture_over_the_speed() {
        let times =
            [1_700_000_000_000_000_000, 1_700_000_000_000_000_500, 1_700_000_003_000_000_001];
        assert_eq!(dues(CapturePace::Recorded(1.0), &times), [0, 500, 3_000_000_001]);
        assert_eq!(dues(CapturePace::Recorded(2.0), &times), [0, 250, 1_500_000_000]);
        assert_eq!(dues(CapturePace::Recorded(0.5), &times), [0, 1000, 6_000_000_002]);
        assert_eq!(dues(CapturePace::Fastest, &times), [0; 3]);
    }

    #[test]
    fn a_rate_has_no_drift_whatever_the_capture_says() {
        let due = dues(CapturePace::Rate(3), &[9, 9, 9, 5]);
        assert_eq!(due, [0, 333_333_334, 666_666_667, 1_000_000_000]);
    }

    #[test]
    fn time_that_goes_backwards_stands_still() {
        let pace = CapturePace::Recorded(1.0);
        assert_eq!(dues(pace, &[100, 150, 90, 149, 170]), [0, 50, 50, 50, 70]);
        // Both ends of what a capture can say.
        assert_eq!(dues(pace, &[u64::MAX, 0, u64::MAX]), [0, 0, 0]);
        assert_eq!(dues(CapturePace::Recorded(0.001), &[0, u64::MAX]), [0, u64::MAX]);
    }

    #[test]
    fn a_round_follows_after_the_mean_gap() {
        let mut timeline = Timeline::new(CapturePace::Recorded(1.0));
        let mut round = |times: [u64; 3]| {
            let due = times.map(|time| timeline.due(time));
            timeline.next_round();
            due
        };
        // Two gaps of 45 on average.
        assert_eq!(round([1000, 1030, 1090]), [0, 30, 90]);
        assert_eq!(round([1000, 1030, 1090]), [135, 165, 225]);
        let mut one = Timeline::new(CapturePace::Recorded(1.0));
        assert_eq!(one.due(7), 0);
        one.next_round();
        assert_eq!(one.due(7), 0);
        // A rate goes on over the rounds.
        let mut steady = Timeline::new(CapturePace::Rate(1000));
        assert_eq!([steady.due(1), steady.due(2)], [0, 1_000_000]);
        steady.next_round();
        assert_eq!(steady.due(1), 2_000_000);
    }
}
