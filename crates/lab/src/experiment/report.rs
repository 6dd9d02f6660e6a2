//! What a run of experiments says: plain data, in an order that never changes.
//!
//! The names of the fields are the stable keys of `--json`. A field is added without notice; one
//! that is renamed, removed or given another meaning raises [`LAB_SCHEMA_VERSION`].

use std::collections::BTreeMap;

use serde::Serialize;

/// Version of the JSON form of a [`LabReport`].
pub const LAB_SCHEMA_VERSION: u32 = 1;

/// What was run, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabReport {
    /// [`LAB_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name and version of the program that wrote it.
    pub generator: String,
    /// Whether it was stopped before its end; then the last experiment may lack cases.
    pub interrupted: bool,
    /// The experiments in the order in which they were run.
    pub experiments: Vec<ExperimentReport>,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExperimentReport {
    /// Its name.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is about.
    pub about: String,
    /// What it reproduces, if that was published.
    pub reproduces: Option<String>,
    /// Seed of all that was drawn.
    pub seed: u64,
    /// Settings that took the place of values of its file, as `key=value`.
    pub settings: Vec<String>,
    /// Most memory of a run in bytes, as said beforehand.
    pub planned_bytes: u64,
    /// Runs that were planned; fewer cases follow if it was stopped.
    pub planned_runs: usize,
    /// Name of the swept quantity.
    pub sweep: Option<String>,
    /// Measures that a table shows, in order.
    pub show: Vec<String>,
    /// Every run.
    pub cases: Vec<CaseReport>,
    /// Figures beside the published ones.
    pub figures: Vec<FigureReport>,
    /// Statements that hold or do not.
    pub claims: Vec<ClaimReport>,
    /// What its plots show.
    pub plots: Vec<PlotReport>,
}

/// One host with one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// Its name; with a sweep, its value is a part of it.
    pub case: String,
    /// Value of the swept quantity.
    pub x: Option<f64>,
    /// Its policies.
    pub policies: Vec<PolicyResult>,
}

/// What one policy did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyResult {
    /// Its name.
    pub policy: String,
    /// Whether every packet is counted once as a decision and once as an end.
    pub adds_up: bool,
    /// All measures by name.
    pub measures: BTreeMap<String, f64>,
    /// Measures over time, where a plot asks for them.
    pub course: Vec<CourseReport>,
}

/// A measure over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CourseReport {
    /// Its name.
    pub measure: String,
    /// Seconds since the start, and values.
    pub points: Vec<(f64, f64)>,
}

/// How a figure compares with the published one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// In direction and within the stated distance.
    Agrees,
    /// In direction only.
    Direction,
    /// Not in direction, or too far where there is no direction.
    Differs,
    /// A run that it needs is missing.
    Missing,
}

/// A figure beside the published one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureReport {
    /// What it says.
    pub what: String,
    /// Where the published one is from.
    pub source: String,
    /// The measure.
    pub measure: String,
    /// Case and policy, `CASE/POLICY`.
    pub of: String,
    /// Case and policy by whose value it is divided.
    pub over: Option<String>,
    /// The published value or ratio.
    pub published: f64,
    /// Ours.
    pub measured: Option<f64>,
    /// Largest distance that still agrees: a share of the published value; absolute where that is 0.
    pub within: f64,
    /// How they compare.
    pub verdict: Verdict,
    /// Why, and what was set for it.
    pub why: String,
}

/// A statement about a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimReport {
    /// What it says.
    pub what: String,
    /// The measure.
    pub measure: String,
    /// Case and policy, `CASE/POLICY`.
    pub of: String,
    /// Case and policy by whose value it is divided.
    pub over: Option<String>,
    /// Smallest value with which it holds.
    pub at_least: Option<f64>,
    /// Largest value with which it holds.
    pub at_most: Option<f64>,
    /// The value.
    pub measured: Option<f64>,
    /// Whether it holds; not if a run that it needs is missing.
    pub holds: bool,
}

/// What a plot shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlotReport {
    /// Its title.
    pub title: String,
    /// The measure.
    pub measure: String,
    /// `bars`, `lines` (against the swept quantity) or `time`.
    pub form: String,
    /// The case, where it is of one.
    pub case: Option<String>,
}

impl LabReport {
    /// An empty report.
    pub fn new() -> Self {
        Self {
            schema_version: LAB_SCHEMA_VERSION,
            generator: concat!("rxsteer ", env!("CARGO_PKG_VERSION")).into(),
            interrupted: false,
            experiments: Vec::new(),
        }
    }
}

impl Default for LabReport {
    fn default() -> Self {
        Self::new()
    }
}

impl ExperimentReport {
    /// Returns a measure of a case and policy, named `CASE/POLICY`.
    pub fn value(&self, measure: &str, of: &str) -> Option<f64> {
        let (case, policy) = of.rsplit_once('/')?;
        let case = self.cases.iter().find(|c| c.case == case)?;
        let policy = case.policies.iter().find(|p| p.policy == policy)?;
        policy.measures.get(measure).copied()
    }
}
