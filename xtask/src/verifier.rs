//! `cargo xtask verifier`: the programs against the running kernel.

use std::process::ExitCode;

use anyhow::{Result, bail};
use rxsteer_kernel::{OBJECT, missing_capabilities, verify};

/// Flags of `cargo xtask verifier`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Loads every program and prints what the verifier says.
pub(crate) fn run(_args: &Args) -> Result<ExitCode> {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        bail!("the verifier needs root; missing: {}", names.join(", "));
    }
    let reports = verify(OBJECT)?;
    println!(
        "{:<20} {:>12} {:>9} {:>6} {:>11} {:>8}",
        "program", "instructions", "verified", "stack", "translated", "machine"
    );
    for report in &reports {
        println!(
            "{:<20} {:>12} {:>9} {:>4} B {:>9} B {:>6} B",
            report.name,
            report.instructions,
            report.verified_instructions,
            report.stack_bytes,
            report.translated_bytes,
            report.jited_bytes
        );
    }
    println!("{} passed, 0 failed", reports.len());
    Ok(ExitCode::SUCCESS)
}
