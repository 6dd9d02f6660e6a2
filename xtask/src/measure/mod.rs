//! What this machine does in the published situations, beside what the lab predicts of it.
//!
//! The costs of the host are calibrated, each case is run with real packets through the running kernel
//! (set-ups in turn, several times), and the same case is run in the lab with these costs: the rates,
//! sizes and CPUs are those that were measured, nothing else is. Writes `docs/measured.md`,
//! `docs/measured.json` and the experiments, `docs/measured/*.toml`.
//!
//! Elsewhere: the cases ([`cases`]), their experiments ([`predict`]), the page ([`page`]).

mod cases;
mod explain;
mod figures;
mod page;
mod predict;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rxsteer_bench::{CalibrateReport, HostFacts, Watch};
use rxsteer_core::CpuId;
use rxsteer_testbed::{Offloads, Pair, PairSpec, Testbed, allowed_cpus};

use figures::Group;

/// What `measure` is told.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs each set-up once and briefly; for a test of this very command
    #[arg(long)]
    quick: bool,
    /// Writes measured.md, measured.json and measured/ into this directory
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Measures only the groups whose names contain this: tcp-rr, udp-rr, reader, sockets, unconnected
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Runs of each set-up
    #[arg(long, value_name = "COUNT", default_value_t = 7)]
    repeats: u32,
}

/// Ends all, whatever happens.
const LONGEST: Duration = Duration::from_secs(12 * 60);

/// Who measures, where, and how thoroughly.
struct Bench<'a> {
    pair: &'a Pair,
    /// CPU of the source, or of the clients.
    first: CpuId,
    /// CPU of the reader, or of the servers.
    second: CpuId,
    repeats: u32,
    /// Time of one run.
    time: Duration,
    quick: bool,
    watch: Watch<'a>,
}

/// All that was found.
struct Found {
    host: HostFacts,
    calibration: CalibrateReport,
    groups: Vec<Group>,
    quick: bool,
    repeats: u32,
    took: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if cfg!(debug_assertions) && !args.quick {
        bail!("the figures of a debug build say nothing: cargo run --release -p xtask -- measure");
    }
    let start = Instant::now();
    let testbed = Testbed::new()?;
    let cpus: Vec<CpuId> = allowed_cpus().context("ask for the CPUs")?.iter().collect();
    let &[first, second, ..] = cpus.as_slice() else {
        bail!("two CPUs are needed: one for the source, one for the reader");
    };
    // An end that polls, as a network card does.
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let pair = Pair::new(&testbed, &PairSpec { sink, ..PairSpec::default() })?;
    let stop = Arc::new(AtomicBool::new(false));
    end_after(LONGEST, &stop);
    eprintln!("calibrating");
    let calibration = rxsteer_bench::calibrate(&pair, &stop)?;
    let bench = Bench {
        pair: &pair,
        first,
        second,
        repeats: if args.quick { 1 } else { args.repeats },
        time: Duration::from_millis(if args.quick { 150 } else { 1000 }),
        quick: args.quick,
        watch: Watch { stop: &stop, on_second: &|_| {} },
    };
    let mut groups = Vec::new();
    for (name, measure) in cases::ALL {
        if args.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        eprintln!("{name} ({:.0} s so far)", start.elapsed().as_secs_f64());
        let mut group = measure(&bench).with_context(|| format!("measure {name}"))?;
        predict::predict(&mut group, &calibration).with_context(|| format!("predict {name}"))?;
        for row in &group.rows {
            eprintln!("  {}", row.in_short());
        }
        groups.push(group);
    }
    let (host, took) = (HostFacts::read(), start.elapsed());
    let Bench { quick, repeats, .. } = bench;
    let found = Found { host, calibration, groups, quick, repeats, took };
    let docs = crate::repository().join("docs");
    let out = match &args.out {
        Some(out) => out.as_path(),
        // A part of it, or a hasty one, does not take the place of the page.
        None if args.quick || args.only.is_some() => return Ok(ExitCode::SUCCESS),
        None => docs.as_path(),
    };
    write(out, &found)?;
    eprintln!("{} in {:.0} s", out.join("measured.md").display(), took.as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// Ends what is under way after some time.
pub(crate) fn end_after(time: Duration, stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    // Ends with the process.
    std::thread::spawn(move || {
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
}

fn write(out: &Path, found: &Found) -> anyhow::Result<()> {
    let files = out.join("measured");
    std::fs::create_dir_all(&files).with_context(|| files.display().to_string())?;
    let mut all = vec![
        (out.join("measured.md"), page::markdown(found)),
        (out.join("measured.json"), page::json(found)),
        (files.join("host.toml"), found.calibration.to_toml(&found.host)),
    ];
    for group in &found.groups {
        all.push((files.join(format!("{}.toml", group.name)), group.experiment.clone()));
    }
    for (path, text) in all {
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
