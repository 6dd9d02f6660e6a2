//! `cargo xtask ebpf --stats`: how large the programs are, in a file, so that a change shows in review.
//!
//! Recorded is what belongs to the object: instructions and stack. What the verifier walks is printed
//! beside it and depends on the kernel; its ceilings are elsewhere ([`crate::verifier`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rxsteer_kernel::{ProgramReport, verify};
use serde::{Deserialize, Serialize};

/// Where the sizes are recorded, from the root of the repository.
const PATH: &str = "crates/kernel/object/stats.toml";

/// Sizes of one program.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Size {
    /// Instructions in the object.
    instructions: u32,
    /// Deepest stack, in bytes of 512.
    stack_bytes: u32,
}

type Sizes = BTreeMap<String, Size>;

/// Prints the sizes; writes the file, or compares with it.
pub(super) fn run(root: &Path, object: &[u8], check: bool) -> Result<ExitCode> {
    crate::verifier::require_rights()?;
    let reports = verify(object)?;
    print(&reports);
    let sizes = sizes(&reports);
    let path = root.join(PATH);
    if !check {
        let body = toml::to_string(&sizes).context("writing the sizes as TOML")?;
        let text =
            format!("# Written by `cargo xtask ebpf --stats`: size of each program.\n\n{body}");
        fs::write(&path, text).with_context(|| format!("writing {PATH}"))?;
        println!("wrote {PATH}");
        return Ok(ExitCode::SUCCESS);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("reading {PATH}"))?;
    let recorded: Sizes = toml::from_str(&text).with_context(|| format!("in {PATH}"))?;
    let differences = differences(&recorded, &sizes);
    for difference in &differences {
        println!("{difference}");
    }
    if differences.is_empty() {
        println!("as {PATH} records it");
        return Ok(ExitCode::SUCCESS);
    }
    println!("to bring it up to date: cargo xtask ebpf --stats, then commit {PATH}");
    Ok(ExitCode::FAILURE)
}

fn print(reports: &[ProgramReport]) {
    println!("{:<22} {:>12} {:>7} {:>9}", "program", "instructions", "stack", "verified");
    for report in reports {
        println!(
            "{:<22} {:>12} {:>5} B {:>9}",
            report.name, report.instructions, report.stack_bytes, report.verified_instructions
        );
    }
}

fn sizes(reports: &[ProgramReport]) -> Sizes {
    let size = |report: &ProgramReport| Size {
        instructions: report.instructions,
        stack_bytes: report.stack_bytes,
    };
    reports.iter().map(|report| (report.name.clone(), size(report))).collect()
}

/// Returns one line for each program that is new, gone or of another size.
fn differences(recorded: &Sizes, found: &Sizes) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, size) in found {
        match recorded.get(name) {
            None => lines.push(format!("{name} is not recorded")),
            Some(old) if old != size => lines.push(format!(
                "{name}: {} instructions and {} B of stack, recorded are {} and {}",
                size.instructions, size.stack_bytes, old.instructions, old.stack_bytes
            )),
            Some(_) => {}
        }
    }
    let gone = recorded.keys().filter(|name| !found.contains_key(*name));
    lines.extend(gone.map(|name| format!("{name} is recorded and not there")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_program_is_told() {
        let sizes = |programs: &[(&str, u32)]| -> Sizes {
            let size = |instructions| Size { instructions, stack_bytes: 8 };
            programs.iter().map(|(name, count)| ((*name).to_owned(), size(*count))).collect()
        };
        let recorded = sizes(&[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(differences(&recorded, &recorded), Vec::<String>::new());
        assert_eq!(
            differences(&recorded, &sizes(&[("a", 1), ("b", 5), ("d", 4)])),
            [
                "b: 5 instructions and 8 B of stack, recorded are 2 and 8",
                "d is not recorded",
                "c is recorded and not there"
            ]
        );
    }
}
