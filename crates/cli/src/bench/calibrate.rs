//! `bench calibrate`.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use rxsteer_bench::HostFacts;
use rxsteer_testbed::{Offloads, Pair, PairSpec};
use serde_json::json;

use super::args::CalibrateArgs;
use super::output::{Form, Output};
use super::testbed;
use crate::render::numbers::time;
use crate::terminal::Terminal;
use crate::{Exit, interrupt};

/// Measures, prints, and writes the host file.
pub(super) fn run(args: &CalibrateArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let stop = interrupt::watch();
    let output = Output::new("calibrate", args.form);
    let file = args.output.as_deref().map(HostFile::open).transpose()?;
    let testbed = testbed(terminal)?;
    // An end that polls, as a network card does.
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let pair = Pair::new(&testbed, &PairSpec { sink, ..PairSpec::default() })?;
    let report = rxsteer_bench::calibrate(&pair, &stop)?;
    if let Some(file) = file {
        file.write(&report.to_toml(&HostFacts::read()))?;
    }
    if let Form::Json { .. } = output.form {
        output.json(terminal, &[], json!(report))?;
        return Ok(Exit::Fine);
    }
    let mut out = terminal.results();
    output.head(&mut out, &[])?;
    writeln!(out, "\nsteps, in ns")?;
    for cost in &report.costs {
        writeln!(out, "  {:<14}{:>7}  {}", cost.name, cost.ns, cost.how)?;
    }
    writeln!(out, "\nsteps that keep their defaults")?;
    for kept in &report.kept {
        writeln!(out, "  {:<14}{:>7}  {}", kept.name, kept.ns, kept.why)?;
    }
    writeln!(out, "\nwhat applications spend, for work_ns of a consumer")?;
    for cost in &report.application {
        writeln!(out, "  {:<14}{:>7}  {}", cost.name, cost.ns, cost.how)?;
    }
    writeln!(out, "\nwaking a thread")?;
    writeln!(out, "  from CPU  to CPU  until it runs  cost to who wakes it")?;
    for wake in &report.wakes {
        writeln!(
            out,
            "  {:>8}  {:>6}  {:>13}  {:>20}",
            wake.from,
            wake.to,
            time(f64::from(wake.latency_ns)),
            wake.waker_ns.map_or("-".into(), |ns| time(f64::from(ns))),
        )?;
    }
    out.flush()?;
    Ok(Exit::Fine)
}

/// Where the costs go: opened before they are measured, so that a place that cannot be written is told
/// at once.
///
/// Always true: what was there stays until there is something to write; a new file without costs is
/// removed.
struct HostFile<'a> {
    path: &'a Path,
    file: File,
    is_empty: bool,
}

impl<'a> HostFile<'a> {
    fn open(path: &'a Path) -> anyhow::Result<Self> {
        let is_empty = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file, is_empty })
    }

    fn write(mut self, text: &str) -> anyhow::Result<()> {
        let mut write = || {
            self.file.write_all(text.as_bytes())?;
            // A pipe has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(text.len() as u64)?;
            }
            Ok::<_, std::io::Error>(())
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))?;
        self.is_empty = false;
        Ok(())
    }
}

impl Drop for HostFile<'_> {
    fn drop(&mut self) {
        if self.is_empty {
            let _ = fs::remove_file(self.path);
        }
    }
}
