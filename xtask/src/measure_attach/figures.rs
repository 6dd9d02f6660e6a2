//! What a comparison says, asked by set-up, figure and load.

use rxsteer_bench::{CompareReport, Metric, Setup, SetupReport, Spread};

use super::cases::{Case, SETUPS};

/// A case and what came of it.
pub(super) struct Measured {
    pub(super) case: Case,
    pub(super) report: CompareReport,
}

impl Measured {
    pub(super) fn setup(&self, setup: Setup) -> Option<&SetupReport> {
        self.report.setups.iter().find(|report| report.setup == setup)
    }

    pub(super) fn metric(&self, setup: Setup, name: &str, load: Option<f64>) -> Option<&Metric> {
        let metrics = &self.setup(setup)?.metrics;
        metrics
            .iter()
            .find(|metric| metric.name == name && metric.load.map(|load| load.multiple) == load)
    }

    /// Returns the set-up of the kernel with the best median of a figure.
    pub(super) fn best(&self, name: &str, load: Option<f64>) -> Option<Setup> {
        let of = |setup: &Setup| {
            let metric = self.metric(*setup, name, load)?;
            let median = metric.spread().median;
            Some((*setup, if metric.more_is_better { median } else { -median }))
        };
        let kernel = SETUPS.iter().filter(|setup| **setup != Setup::Rxsteer);
        kernel.filter_map(of).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(setup, _)| setup)
    }

    /// Returns a figure of ours over that of another set-up, each within its repeat.
    pub(super) fn ours_over(&self, other: Setup, name: &str, load: Option<f64>) -> Option<Spread> {
        let ours = self.metric(Setup::Rxsteer, name, load)?;
        let other = self.metric(other, name, load)?;
        let ratios: Vec<f64> =
            ours.values.iter().zip(&other.values).map(|(ours, other)| ours / other).collect();
        Some(Spread::of(&ratios))
    }

    /// Returns the loads, or one without a name.
    pub(super) fn loads(&self) -> Vec<Option<f64>> {
        let metrics = self.report.setups.first().map_or(&[][..], |setup| &setup.metrics);
        let mut loads: Vec<Option<f64>> =
            metrics.iter().map(|metric| metric.load.map(|load| load.multiple)).collect();
        loads.dedup();
        loads
    }

    /// Returns a line for each set-up, for who waits.
    pub(super) fn in_short(&self) -> Vec<String> {
        let name = if self.case.shown.contains(&"read") { "read" } else { "transactions" };
        let mut lines = Vec::new();
        for setup in SETUPS {
            let medians = self.loads().into_iter().map(|load| {
                let metric = self.metric(setup, name, load);
                format!("{:.0}", metric.map_or(0.0, |metric| metric.spread().median))
            });
            let medians: Vec<String> = medians.collect();
            lines.push(format!("{:<9} {name} {}", setup.to_string(), medians.join(", ")));
        }
        lines.extend(self.report.warnings.iter().cloned());
        lines
    }
}
