//! Figures: what was measured, and what was predicted of it.

use rxsteer_bench::{Setup, SetupReport, Spread};
use rxsteer_testbed::Change;
use serde::Serialize;

/// Cases that are measured and predicted together.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    /// Name, also of its experiment.
    pub(super) name: &'static str,
    /// One line.
    pub(super) title: &'static str,
    /// What was run, and how the lab models it.
    pub(super) about: String,
    /// Cases.
    pub(super) rows: Vec<Row>,
    /// The experiment, as a file of the lab.
    #[serde(skip)]
    pub(super) experiment: String,
    /// What makes the figures doubtful.
    pub(super) warnings: Vec<String>,
}

/// One case.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Name, also of the case of the experiment.
    pub(super) case: String,
    /// Policy of the lab that is this set-up.
    pub(super) policy: &'static str,
    /// The figure.
    pub(super) what: &'static str,
    /// Its unit.
    pub(super) unit: &'static str,
    /// What was measured.
    pub(super) measured: Figure,
    /// What the source sent, a second; 0 where it waits for answers.
    pub(super) offered: f64,
    /// Other figures of the same runs.
    pub(super) more: Vec<Named>,
    /// What the lab says.
    pub(super) predicted: Option<f64>,
    /// What the lab says of some of the other figures, by their names.
    pub(super) lab: Vec<Named>,
    /// Settings that were made for it and put back.
    pub(super) settings: Vec<Change>,
}

/// Median and ends of several runs.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) values: Vec<f64>,
}

/// Another figure.
#[derive(Debug, Serialize)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) median: f64,
}

impl Row {
    /// Makes a row of the first figure of a set-up's runs.
    pub(super) fn new(case: String, report: &SetupReport) -> Self {
        let policy = match report.setup {
            Setup::Rps => "rps",
            Setup::Rfs => "rfs",
            _ => "none",
        };
        let (first, more) = report.metrics.split_first().expect("every workload has figures");
        let Spread { median, low, high } = first.spread();
        let named = |metric: &rxsteer_bench::Metric| Named {
            name: metric.name,
            unit: metric.unit,
            median: metric.spread().median,
        };
        let more: Vec<Named> = more.iter().map(named).collect();
        let offered = more.iter().find(|figure| figure.name == "sent");
        Self {
            case,
            policy,
            what: first.name,
            unit: first.unit,
            measured: Figure { median, low, high, values: first.values.clone() },
            offered: offered.map_or(0.0, |sent| sent.median),
            more,
            predicted: None,
            lab: Vec::new(),
            settings: report.settings.clone(),
        }
    }

    /// Returns by how much the prediction is off, as a share of what was measured.
    pub(super) fn error(&self) -> Option<f64> {
        let predicted = self.predicted?;
        (self.measured.median > 0.0).then(|| predicted / self.measured.median - 1.0)
    }

    /// Returns a line for who waits.
    pub(super) fn in_short(&self) -> String {
        let Figure { median, low, high, .. } = self.measured;
        let sent =
            if self.offered > 0.0 { format!(" of {:.0}", self.offered) } else { String::new() };
        let lab = self.predicted.map_or("-".into(), |value| format!("{value:.0}"));
        let off = self.error().map_or("-".into(), |error| format!("{:+.0} %", error * 100.0));
        let Self { case, policy, .. } = self;
        format!("{case} ({policy}): {median:.0}{sent} [{low:.0} to {high:.0}], lab {lab}, {off}")
    }
}
