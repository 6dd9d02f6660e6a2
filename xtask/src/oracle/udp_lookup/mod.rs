//! `cargo xtask oracle udp-lookup FILE`: sockets and packets that the Linux kernel has judged.
//!
//! The file has one scenario a line: sockets, what is done to them, and packets with the sockets
//! that received them. Each scenario is played from its first step, so that a difference shows
//! where it arises. Where the kernel's secret hash chose among a group, any member is right; where
//! packets from many ports had to reach every member, up to [`KEYS`] keys of our hash are tried,
//! since one may miss a member by chance.
//!
//! Always true: every line counts exactly once, as passed or failed; a line that cannot be read
//! fails with its reason.

mod replay;
mod scenario;
mod subject;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use rxsteer_sockets::{Config, HASH4, Namespace, Profile, model::Model};

use replay::Played;
use scenario::Scenario;

/// Keys of the group hash that a spread may need until all members were reached.
const KEYS: u64 = 16;

/// Most bytes of a line.
const MOST_LINE_BYTES: u64 = 64 << 20;

/// Faults of Linux from which the profile `rxsteer` departs.
const DEPARTURES: [&str; 5] =
    ["stale_hash4", "stale_remote6", "placeholder4", "left_group", "early_demux"];

/// Flags of `cargo xtask oracle udp-lookup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File of scenarios, one a line
    file: PathBuf,
    /// Whose rules to play by; `rxsteer` excuses the packets that depend on a fault of Linux
    #[arg(long, value_enum, default_value_t = Rules::Linux)]
    profile: Rules,
    /// Play by linear scan of the rules instead of the tables
    #[arg(long)]
    model: bool,
    /// Do not compare packets whose outcome depends on this trait; may be repeated
    #[arg(long, value_name = "TRAIT")]
    excuse: Vec<String>,
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
    compared: u64,
    excused: u64,
    lines: Vec<String>,
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
    println!("{} outcomes compared, {} excused", outcome.compared, outcome.excused);
    println!("{} passed, {} failed", outcome.passed, outcome.failed);
    Ok(if outcome.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play_file(args: &Args) -> Result<Outcome> {
    let mut excuse = args.excuse.clone();
    if matches!(args.profile, Rules::Rxsteer) {
        excuse.extend(DEPARTURES.map(String::from));
    }
    if !HASH4 {
        excuse.push("hash4".into());
    }
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
        match play_line(&line, args, &excuse) {
            Ok((seed, played)) => {
                outcome.compared += played.compared;
                outcome.excused += played.excused;
                if played.mismatches.is_empty() {
                    outcome.passed += 1;
                    continue;
                }
                outcome.failed += 1;
                for (step, text) in played.mismatches {
                    let place = step.map_or("setup".into(), |step| format!("step {step}"));
                    outcome.lines.push(format!("seed {seed}, {place}: {text}"));
                }
            }
            Err(error) => {
                outcome.failed += 1;
                outcome.lines.push(format!("line {number}: {error:#}"));
            }
        }
    }
    Ok(outcome)
}

fn play_line(line: &[u8], args: &Args, excuse: &[String]) -> Result<(u64, Played)> {
    let scenario: Scenario = serde_json::from_slice(line)?;
    let mut played = play_once(&scenario, args, excuse, 0)?;
    let mut unreached = std::mem::take(&mut played.unreached);
    for key in 1..KEYS {
        if unreached.is_empty() || !played.mismatches.is_empty() {
            break;
        }
        let again = play_once(&scenario, args, excuse, key)?;
        played.mismatches.extend(again.mismatches);
        unreached.retain(|step, missing| {
            let still = again.unreached.get(step).cloned().unwrap_or_else(BTreeSet::new);
            *missing = &*missing & &still;
            !missing.is_empty()
        });
    }
    for (step, missing) in unreached {
        let text = format!("never received by {missing:?}, kernel also by these");
        played.mismatches.push((Some(step), text));
    }
    Ok((scenario.seed, played))
}

fn play_once(scenario: &Scenario, args: &Args, excuse: &[String], key: u64) -> Result<Played> {
    let profile = match args.profile {
        Rules::Linux => Profile::Linux,
        Rules::Rxsteer => Profile::Rxsteer,
    };
    let config = Config { profile, key: (scenario.seed, key), ..Config::default() };
    let mut scan = Model::new(&config, HASH4);
    if args.model {
        return replay::play(scenario, &mut scan, excuse);
    }
    let mut played = replay::play(scenario, &mut Namespace::new(&config), excuse)?;
    if !HASH4 {
        // What depends on the missing table must follow the rules of the other two.
        let rules = replay::play(scenario, &mut scan, excuse)?;
        for (step, got) in &played.received {
            if rules.received.get(step) != Some(got) {
                let text =
                    format!("received by {got:?}, two tables {:?}", rules.received.get(step));
                played.mismatches.push((Some(*step), text));
            }
        }
    }
    Ok(played)
}

#[cfg(test)]
mod tests;
