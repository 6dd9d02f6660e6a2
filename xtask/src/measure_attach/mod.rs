//! What `rxsteer attach` does to the traffic of a busy host, beside what the kernel itself can be set
//! to: writes `docs/measured-attach.md`.
//!
//! Every case is a comparison as `rxsteer bench compare` makes it: set-ups in turn, ratios within a
//! repeat. What was to be reached stands first on the page, with what was.
//!
//! Elsewhere: the cases ([`cases`]), the page ([`page`]).

mod cases;
mod figures;
mod page;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rxsteer_bench::{HostFacts, Watch, compare};
use rxsteer_core::CpuId;
use rxsteer_testbed::{Offloads, Pair, PairSpec, Testbed, allowed_cpus};

use figures::Measured;

/// What `measure-attach` is told.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs each set-up once and briefly, and writes no page unless told where; for a test of this very
    /// command
    #[arg(long)]
    quick: bool,
    /// Writes the page to this file [default: docs/measured-attach.md]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measures only the cases whose names contain this, and writes no page unless told where
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Runs of each set-up
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    repeats: u32,
}

/// Ends all, whatever happens.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// All that was found.
struct Found {
    host: HostFacts,
    cases: Vec<Measured>,
    repeats: u32,
    took: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if cfg!(debug_assertions) && !args.quick {
        bail!(
            "the figures of a debug build say nothing: cargo run --release -p xtask -- measure-attach"
        );
    }
    let start = Instant::now();
    let testbed = Testbed::new()?;
    let all = allowed_cpus().context("ask for the CPUs")?;
    let cpus: Vec<CpuId> = all.iter().collect();
    let &[first, second, ..] = cpus.as_slice() else {
        bail!("two CPUs are needed: one for the source, one for the reader");
    };
    // An end that polls, as a network card does.
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let pair = Pair::new(&testbed, &PairSpec { sink, ..PairSpec::default() })?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::measure::end_after(LONGEST, &stop);
    let watch = Watch { stop: &stop, on_second: &|_| {} };
    let repeats = if args.quick { 1 } else { args.repeats };
    let time = Duration::from_millis(if args.quick { 150 } else { 1000 });
    let mut found = Vec::new();
    for case in cases::all(&all, first, second, time) {
        if args.only.as_ref().is_some_and(|only| !case.name.contains(only.as_str())) {
            continue;
        }
        eprintln!("{} ({:.0} s so far)", case.name, start.elapsed().as_secs_f64());
        let spec = case.spec(repeats);
        let report = compare(&pair, &spec, &watch, &|_, _| {})
            .with_context(|| format!("measure {}", case.name))?;
        let measured = Measured { case, report };
        for line in measured.in_short() {
            eprintln!("  {line}");
        }
        found.push(measured);
    }
    let host = HostFacts::read();
    let found = Found { host, cases: found, repeats, took: start.elapsed() };
    let text = page::markdown(&found);
    let out = match &args.out {
        Some(out) => out.clone(),
        // A part of it, or a hasty one, does not take the place of the page.
        None if args.quick || args.only.is_some() => {
            println!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        None => crate::repository().join("docs/measured-attach.md"),
    };
    std::fs::write(&out, text).with_context(|| out.display().to_string())?;
    eprintln!("{} in {:.0} s", out.display(), found.took.as_secs_f64());
    Ok(ExitCode::SUCCESS)
}
