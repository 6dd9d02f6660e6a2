//! What `lab` is told.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::OutputArgs;

/// The verbs of `lab`.
#[derive(Clone, Debug, Subcommand)]
pub enum LabVerb {
    /// List the experiments in the binary: name, size, what they show
    List(LabListArgs),
    /// Run experiments and compare: all of them, some by name, or files of your own
    Run(LabRunArgs),
    /// Print the file of an experiment: to read it, or to change it and run the copy
    Show(LabShowArgs),
}

/// What `lab list` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct LabListArgs {
    /// How to print the list
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What `lab run` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct LabRunArgs {
    /// Names of experiments, paths of files (ending in .toml), or all
    #[arg(value_name = "NAME", required = true, value_hint = ValueHint::FilePath)]
    pub names: Vec<String>,
    /// Put a value in place of one of the file: host.cpus=16, duration=50ms,
    /// traffic.flood.per_second=1000; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Exit with 1 if a claim of an experiment does not hold
    #[arg(long)]
    pub check: bool,
    /// How to print the result
    #[command(flatten)]
    pub output: OutputArgs,
    /// Write a page with plots to this file; - prints it instead of the text
    #[arg(long, value_name = "FILE", help_heading = "Output", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// What `lab show` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct LabShowArgs {
    /// Name of the experiment
    pub name: String,
}
