//! Experiments: a workload, a host, policies and a sweep in one file, run and compared with what
//! was published.
//!
//! | part | what it does |
//! | --- | --- |
//! | `file`, `patch` | the TOML form, and values put in place of others (cases, sweeps, `--set`) |
//! | `plan` | the checked form: what will be run, how much of it, in how much memory |
//! | `traffic` | who sends what, made of the senders of [`crate::generate`] |
//! | `lookups` | what finding a socket costs, and who gets a packet |
//! | `run` | runs the plan, case by case, and can be stopped |
//! | `measure` | the figures of a run, by name |
//! | `compare` | figures beside the published ones; claims that hold or do not |
//! | `shipped` | the experiments in the binary |
//!
//! Always true: a file is refused, with line, column and reason, before anything runs; the same
//! file and seed give the same [`LabReport`], byte for byte; every packet of a run is counted once
//! as a decision and once as an end.
//! Elsewhere: policies, tables and counts ([`crate::replay`]); how a report is shown (the command
//! line); the reference of the format (docs/lab.md).

mod compare;
mod file;
mod lookups;
mod measure;
mod patch;
mod plan;
mod report;
mod run;
mod shipped;
mod traffic;

#[cfg(test)]
mod tests;

pub use measure::{MEASURES, Measure};
pub use patch::{Setting, SettingError};
pub use plan::{Experiment, Size};
pub use report::{
    CaseReport, ClaimReport, CourseReport, ExperimentReport, FigureReport, LAB_SCHEMA_VERSION,
    LabReport, PlotReport, PolicyResult, Verdict,
};
pub use run::{Event, RunError, run};
pub use shipped::{SHIPPED, Shipped, shipped};
