//! `cargo xtask oracle udp-lookup FILE`: sockets and packets that the Linux kernel has judged.
//!
//! The file has one scenario a line: sockets, what is done to them, and packets with the sockets
//! that received them. Each scenario is played from its first step, so that a difference shows
//! where it arises. Where the kernel's secret hash chose among a group, any member is right; where
//! packets from many ports had to reach every member, up to 16 keys of our hash are tried,
//! since one may miss a member by chance.
//!
//! Always true: every line counts exactly once, as passed, as a departure or as failed; a line that
//! cannot be read fails with its reason; only the profile `rxsteer` departs.

mod judge;
mod replay;
mod scenario;
mod subject;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use rxsteer_sockets::{HASH4, Profile};

use judge::{How, Judged, judge};
use scenario::Scenario;

/// Most bytes of a line.
const MOST_LINE_BYTES: u64 = 64 << 20;

/// Flags of `cargo xtask oracle udp-lookup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File of scenarios, one a line
    file: PathBuf,
    /// Whose rules to play by; `rxsteer` may depart where Linux has a documented fault
    #[arg(long, value_enum, default_value_t = Rules::Linux)]
    profile: Rules,
    /// Play by linear scan of the rules instead of the tables
    #[arg(long)]
    model: bool,
    /// Refuse to run in a build that has the 4-tuple table, so that the rules of two are judged
    #[arg(long)]
    two_tables: bool,
    /// Do not compare packets whose outcome depends on this trait; may be repeated
    #[arg(long, value_name = "TRAIT")]
    excuse: Vec<String>,
    /// Print each departure from Linux, with the faults that it comes from
    #[arg(long)]
    list_departures: bool,
    /// Print at most this many mismatches
    #[arg(long, value_name = "N", default_value_t = 200)]
    list_mismatches: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Rules {
    /// Linux as it is
    Linux,
    /// Linux without its faults
    Rxsteer,
}

/// What a run found.
#[derive(Debug, Default)]
struct Outcome {
    passed: u64,
    failed: u64,
    /// Scenarios that differ from Linux by documented faults only, by the names of these.
    departed: BTreeMap<String, u64>,
    departures: Vec<String>,
    compared: u64,
    excused: u64,
    lines: Vec<String>,
}

impl Outcome {
    /// Returns the closing line.
    fn summary(&self) -> String {
        let Self { passed, failed, .. } = self;
        if self.departed.is_empty() {
            return format!("{passed} passed, {failed} failed");
        }
        let departed: u64 = self.departed.values().sum();
        let names: Vec<_> =
            self.departed.iter().map(|(names, count)| format!("{names} {count}")).collect();
        format!("{passed} passed, {departed} departures ({}), {failed} failed", names.join(", "))
    }

    fn count(&mut self, seed: u64, judged: Judged) {
        self.compared += judged.compared;
        self.excused += judged.excused;
        let mut names = Vec::new();
        for (faults, text) in &judged.departures {
            let here: Vec<_> = faults.names().collect();
            self.departures.push(format!("seed {seed}, {text} ({})", here.join(" + ")));
            names.extend(here);
        }
        if !judged.failures.is_empty() {
            self.failed += 1;
        } else if names.is_empty() {
            self.passed += 1;
        } else {
            names.sort_unstable();
            names.dedup();
            *self.departed.entry(names.join(" + ")).or_default() += 1;
        }
        self.lines.extend(judged.failures.iter().map(|text| format!("seed {seed}, {text}")));
    }
}

/// Plays all scenarios and prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let outcome = play_file(args)?;
    for line in outcome.lines.iter().take(args.list_mismatches) {
        println!("{line}");
    }
    if outcome.lines.len() > args.list_mismatches {
        println!("... and {} more", outcome.lines.len() - args.list_mismatches);
    }
    if args.list_departures {
        outcome.departures.iter().for_each(|line| println!("{line}"));
    }
    println!("{} outcomes compared, {} excused", outcome.compared, outcome.excused);
    println!("{}", outcome.summary());
    Ok(if outcome.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play_file(args: &Args) -> Result<Outcome> {
    ensure!(
        !(args.two_tables && HASH4),
        "this build has the 4-tuple table: build with --no-default-features"
    );
    let mut excuse = args.excuse.clone();
    if !HASH4 {
        excuse.push("hash4".into());
    }
    let profile = match args.profile {
        Rules::Linux => Profile::Linux,
        Rules::Rxsteer => Profile::Rxsteer,
    };
    let how = How { profile, model: args.model, excuse };
    let file = File::open(&args.file).with_context(|| args.file.display().to_string())?;
    let mut file = BufReader::new(file);
    let mut outcome = Outcome::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = std::io::Read::take(&mut file, MOST_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut line);
        let read = read.with_context(|| format!("{}:{number}", args.file.display()))?;
        if read == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match play_line(&line, &how) {
            Ok((seed, judged)) => outcome.count(seed, judged),
            Err(error) => {
                outcome.failed += 1;
                outcome.lines.push(format!("line {number}: {error:#}"));
            }
        }
    }
    Ok(outcome)
}

fn play_line(line: &[u8], how: &How) -> Result<(u64, Judged)> {
    let scenario: Scenario = serde_json::from_slice(line)?;
    Ok((scenario.seed, judge(&scenario, how)?))
}

#[cfg(test)]
mod tests;
