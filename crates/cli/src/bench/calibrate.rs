//! `bench calibrate`.

use std::io::Write as _;

use anyhow::Context as _;
use rxsteer_bench::HostFacts;
use rxsteer_testbed::{Offloads, Pair, PairSpec};
use serde_json::json;

use super::args::CalibrateArgs;
use super::output::{Form, Output};
use super::testbed;
use crate::Exit;
use crate::render::numbers::time;
use crate::terminal::Terminal;

/// Measures, prints, and writes the host file.
pub(super) fn run(args: &CalibrateArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let output = Output::new("calibrate", args.form);
    let testbed = testbed(terminal)?;
    // An end that polls, as a network card does.
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let pair = Pair::new(&testbed, &PairSpec { sink, ..PairSpec::default() })?;
    let report = rxsteer_bench::calibrate(&pair)?;
    if let Some(file) = &args.output {
        std::fs::write(file, report.to_toml(&HostFacts::read()))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Form::Json { .. } = output.form {
        output.json(terminal, &[], json!(report))?;
        return Ok(Exit::Fine);
    }
    let mut out = terminal.results();
    output.head(&mut out, &[])?;
    writeln!(
        out,
        "\nsteps, in ns; those that are not here cannot be told apart and keep their defaults"
    )?;
    for cost in &report.costs {
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
