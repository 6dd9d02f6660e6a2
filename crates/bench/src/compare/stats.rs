//! Medians and how far values lie apart.

use serde::Serialize;

use super::Load;

/// A figure, with one value for each repeat.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// At which load; `None` where there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// What it is.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Whether a larger value is a better one.
    pub more_is_better: bool,
    /// The values, in the order of the repeats.
    pub values: Vec<f64>,
}

impl Metric {
    /// Returns the median and the ends.
    pub fn spread(&self) -> Spread {
        Spread::of(&self.values)
    }
}

/// Median and ends of values; all 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle, or the mean of the two there.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// Returns the median and the ends of these values.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Self { median, low: *low, high: *high }
    }

    /// Returns the distance of the ends as a share of the median; 0 for a median of 0.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / self.median }
    }
}

/// A figure against that of the first set-up: 2 is twice as much. Each repeat is compared with the same
/// repeat of the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Name of the figure.
    pub name: &'static str,
    /// Median and ends of the ratios; `None` where the first set-up had 0.
    pub ratio: Option<Spread>,
}

impl Ratio {
    pub(super) fn new(one: &Metric, base: &Metric) -> Self {
        let ratios: Vec<f64> = one
            .values
            .iter()
            .zip(&base.values)
            .filter(|(_, base)| **base != 0.0)
            .map(|(one, base)| one / base)
            .collect();
        let is_whole = !ratios.is_empty() && ratios.len() == one.values.len();
        Self { name: one.name, ratio: is_whole.then(|| Spread::of(&ratios)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(values: &[f64]) -> Metric {
        Metric { load: None, name: "x", unit: "", more_is_better: true, values: values.to_vec() }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of(&[7.0]), Spread { median: 7.0, low: 7.0, high: 7.0 });
        let odd = Spread::of(&[9.0, 1.0, 2.0]);
        assert_eq!(odd, Spread { median: 2.0, low: 1.0, high: 9.0 });
        assert_eq!(odd.relative(), 4.0);
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, f64::NAN, 3.0]).median, 2.5);
        assert_eq!(Spread::of(&[0.0, 0.0]).relative(), 0.0);
    }

    /// A host that slows down by half from one repeat to the next does not change a ratio.
    #[test]
    fn ratios_are_taken_within_a_repeat() {
        let base = metric(&[100.0, 50.0, 25.0]);
        let ratio = Ratio::new(&metric(&[200.0, 100.0, 50.0]), &base).ratio.unwrap();
        assert_eq!(ratio, Spread { median: 2.0, low: 2.0, high: 2.0 });
        assert_eq!(Ratio::new(&base, &metric(&[0.0, 1.0, 1.0])).ratio, None);
        assert_eq!(Ratio::new(&metric(&[]), &metric(&[])).ratio, None);
    }
}
