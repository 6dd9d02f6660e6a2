//! A course over time with a bounded number of points.

use serde::Serialize;

/// Figures in equal spans of time.
///
/// Starts with spans of 1 ms; when [`Series::MAX_POINTS`] are used up, neighbours are merged and
/// the span doubles. Memory is thus independent of the length of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Length of one span in ns.
    pub width_ns: u64,
    /// Points, the first at time 0.
    pub points: Vec<SeriesPoint>,
}

/// Counts within one span.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct SeriesPoint {
    /// Packets that arrived.
    pub packets: u64,
    /// Packets of connected sockets that asked the table.
    pub asked: u64,
    /// Those of them that hit.
    pub hits: u64,
    /// Packets lost.
    pub dropped: u64,
    /// Packets that finished after a later one of their flow.
    pub reordered: u64,
}

impl SeriesPoint {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.asked += other.asked;
        self.hits += other.hits;
        self.dropped += other.dropped;
        self.reordered += other.reordered;
    }
}

impl Default for Series {
    fn default() -> Self {
        Self { width_ns: Self::FIRST_WIDTH_NS, points: Vec::new() }
    }
}

impl Series {
    /// Most points kept.
    pub const MAX_POINTS: usize = 512;
    /// Span at the start, in ns.
    pub const FIRST_WIDTH_NS: u64 = 1_000_000;

    /// Returns the point of a time since the start of the run, making room for it.
    #[inline]
    pub fn at(&mut self, time_ns: u64) -> &mut SeriesPoint {
        let mut index = time_ns / self.width_ns;
        while index >= Self::MAX_POINTS as u64 {
            self.halve();
            index = time_ns / self.width_ns;
        }
        let index = index as usize;
        if index >= self.points.len() {
            self.points.resize(index + 1, SeriesPoint::default());
        }
        &mut self.points[index]
    }

    /// Adds counts to the point of a time.
    pub(crate) fn add(&mut self, time_ns: u64, counts: SeriesPoint) {
        if counts != SeriesPoint::default() {
            self.at(time_ns).add(counts);
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        let merged = self.points.len().div_ceil(2);
        for i in 0..merged {
            let mut sum = self.points[2 * i];
            if let Some(second) = self.points.get(2 * i + 1) {
                sum.add(*second);
            }
            self.points[i] = sum;
        }
        self.points.truncate(merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_every_count_in_few_points() {
        let mut series = Series::default();
        for i in 0..100_000u64 {
            series.at(i * 7_000_000).packets += 1;
        }
        assert!(series.points.len() <= Series::MAX_POINTS);
        assert_eq!(series.points.iter().map(|p| p.packets).sum::<u64>(), 100_000);
    }

    #[test]
    fn the_last_representable_time_has_a_point() {
        let mut series = Series::default();
        series.at(0).hits += 1;
        series.at(u64::MAX).hits += 1;
        assert_eq!(series.points.iter().map(|p| p.hits).sum::<u64>(), 2);
    }
}
