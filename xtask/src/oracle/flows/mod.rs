//! `cargo xtask oracle flows DIR`: every packet of a folder of captures against two truths.
//!
//! The folder has captures and a table `flows.tsv` with one line a packet: which flow the Linux
//! kernel puts the packet in, and what tshark says is in it. The kernel's flows are numbers of a
//! hash whose key nobody knows, so what can be compared is the partition: two packets have the same
//! number if and only if they have the same key here. Addresses, ports, protocols, tags, fragments
//! and tunnels are compared one by one with tshark's columns.
//!
//! Always true: every line of the table is counted exactly once, as passed or failed; a table or a
//! capture that cannot be read is an error with its file and line.
//! Elsewhere: the rules by which tshark's view differs from the packet ([`view`]); the exceptions
//! that no rule covers ([`exceptions`]).

mod exceptions;
mod kernel;
mod rules;
mod table;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use rxsteer_lab::capture::{CaptureOptions, Captures, Packet};

use exceptions::Exceptions;
use kernel::Partition;
use table::{Row, Table};

/// Flags of `cargo xtask oracle flows`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with flows.tsv and the captures that it names
    dir: PathBuf,
    /// Print at most this many mismatches
    #[arg(long, value_name = "N", default_value_t = 200)]
    list_mismatches: usize,
    /// Exceptions, each with its reason
    #[arg(long, value_name = "FILE")]
    exceptions: Option<PathBuf>,
}

/// A difference between an oracle and us.
pub(crate) struct Mismatch {
    /// Column of the table.
    pub(crate) column: &'static str,
    /// What we say.
    pub(crate) ours: String,
    /// What the table says.
    pub(crate) theirs: String,
}

impl Mismatch {
    pub(crate) fn new(column: &'static str, ours: impl Into<String>, theirs: &str) -> Self {
        Self { column, ours: ours.into(), theirs: theirs.into() }
    }
}

/// What a run found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) excepted: u64,
    /// Differences that a rule explains, by the rule's name and reason.
    pub(crate) explained: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) lines: Vec<String>,
}

/// Compares and prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let file = match &args.exceptions {
        Some(file) => file.clone(),
        None => crate::repository().join(exceptions::FILE),
    };
    let exceptions = Exceptions::read(&file)?;
    let outcome = compare(&args.dir, &exceptions)?;
    for line in outcome.lines.iter().take(args.list_mismatches) {
        println!("{line}");
    }
    let hidden = outcome.lines.len().saturating_sub(args.list_mismatches);
    if hidden > 0 {
        println!("... and {hidden} more mismatches (--list-mismatches N)");
    }
    if !outcome.explained.is_empty() {
        println!("differences to tshark that a rule explains (columns of packets):");
    }
    for ((name, reason), count) in &outcome.explained {
        println!("{count:>6} {name}: {reason}");
    }
    if outcome.excepted > 0 {
        println!("{} mismatches excepted, see {}", outcome.excepted, file.display());
    }
    println!("{} passed, {} failed", outcome.passed, outcome.failed);
    Ok(if outcome.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares every packet of the folder.
pub(crate) fn compare(dir: &Path, exceptions: &Exceptions) -> Result<Outcome> {
    let table = Table::read(&dir.join("flows.tsv"))?;
    let mut partition = Partition::default();
    let mut outcome = Outcome::default();
    for rows in table.captures() {
        let before = outcome.passed + outcome.failed;
        let first = rows[0];
        if let Err(error) = capture(dir, &table, &rows, exceptions, &mut partition, &mut outcome) {
            // What is left of this capture fails; the others are still compared.
            outcome.failed += before + rows.len() as u64 - outcome.passed - outcome.failed;
            outcome.lines.push(format!("{}: {}: {error:#}", table.place(&first), first.capture()));
        }
    }
    Ok(outcome)
}

/// Compares the packets of one capture.
fn capture(
    dir: &Path,
    table: &Table,
    rows: &[Row<'_>],
    exceptions: &Exceptions,
    partition: &mut Partition,
    outcome: &mut Outcome,
) -> Result<()> {
    let name = rows[0].capture();
    let mut captures = Captures::open(&[dir.join(name)], &CaptureOptions::default())?;
    for row in rows {
        let mismatches = match captures.next_packet()? {
            Some(packet) => {
                check(row, &packet, partition, outcome).with_context(|| table.place(row))?
            }
            None => vec![Mismatch::new("pkt", "no such packet", row.get("pkt"))],
        };
        count(row, mismatches, exceptions, outcome);
    }
    if captures.next_packet()?.is_some() {
        outcome.failed += 1;
        outcome.lines.push(format!("{name} has more packets than the table"));
    }
    Ok(())
}

fn check(
    row: &Row<'_>,
    packet: &Packet<'_>,
    partition: &mut Partition,
    outcome: &mut Outcome,
) -> Result<Vec<Mismatch>> {
    let mut mismatches = Vec::new();
    for (column, ours) in [
        ("linktype", u64::from(packet.link.0)),
        ("caplen", u64::from(packet.cap_len)),
        ("wirelen", u64::from(packet.orig_len)),
    ] {
        if row.get(column) != ours.to_string() {
            mismatches.push(Mismatch::new(column, ours.to_string(), row.get(column)));
        }
    }
    kernel::check(row, packet.data, partition, &mut mismatches)?;
    let mut explained = Vec::new();
    view::check(row, packet, &mut mismatches, &mut explained);
    for rule in explained {
        *outcome.explained.entry((rule.name, rule.reason)).or_default() += 1;
    }
    Ok(mismatches)
}

fn count(row: &Row<'_>, mismatches: Vec<Mismatch>, exceptions: &Exceptions, outcome: &mut Outcome) {
    let mut failed = false;
    for mismatch in mismatches {
        if exceptions.covers(row, mismatch.column) {
            outcome.excepted += 1;
            continue;
        }
        failed = true;
        let Mismatch { column, ours, theirs } = mismatch;
        outcome.lines.push(format!(
            "{} packet {} {column}: ours {ours}, theirs {theirs}",
            row.capture(),
            row.number()
        ));
    }
    if failed { outcome.failed += 1 } else { outcome.passed += 1 }
}
