//! Chores of this repository, run as `cargo xtask CHORE`.
#![expect(clippy::print_stdout, reason = "a chore talks to the person who runs it")]

mod ebpf;
mod experiments;
mod generate;
mod man;
mod measure;
mod measure_attach;
mod oracle;
mod verifier;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Builds the eBPF object and writes it beside the crate that loads it
    Ebpf(ebpf::Args),
    /// Loads the eBPF programs through the running kernel's verifier, runs them over frames and
    /// compares their answers with the native ones (root)
    Verifier(verifier::Args),
    /// Compares the project's answers with what others recorded
    Oracle(oracle::Args),
    /// Makes the sample capture that is built into the command
    Sample(generate::SampleArgs),
    /// Makes a large capture for benches
    Generate(generate::GenerateArgs),
    /// Runs every experiment of the lab and makes its page in the documentation, or checks them
    Experiments(experiments::Args),
    /// Measures the published cases on this machine and predicts them in the lab (root); makes their
    /// page in the documentation
    Measure(measure::Args),
    /// Measures rxsteer attached beside the kernel's own set-ups, and writes the page (root)
    MeasureAttach(measure_attach::Args),
    /// Makes the man pages
    Man(man::Args),
}

fn main() -> ExitCode {
    let result = ebpf::run_if_called().unwrap_or_else(|| match Args::parse().chore {
        Chore::Ebpf(args) => ebpf::run(&args),
        Chore::Verifier(args) => verifier::run(&args),
        Chore::Oracle(args) => oracle::run(&args),
        Chore::Sample(args) => generate::sample(&args),
        Chore::Generate(args) => generate::generate(&args),
        Chore::Experiments(args) => experiments::run(&args),
        Chore::Measure(args) => measure::run(&args),
        Chore::MeasureAttach(args) => measure_attach::run(&args),
        Chore::Man(args) => man::run(&args),
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the repository.
fn repository() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the directory of this very crate has a parent")
}
