//! `bench compare`.

use std::io::{self, Write};

use rxsteer_bench::{CompareReport, SetupReport, Spread, Watch, Workload};
use rxsteer_testbed::Pair;
use serde_json::{Value, json};

use super::args::FormArgs;
use super::checked::compare::Compare;
use super::output::{Form, Output};
use super::testbed;
use crate::render::numbers::{count, plural};
use crate::terminal::Terminal;
use crate::{Exit, interrupt};

/// Compares.
pub(super) fn run(asked: &Compare, form: FormArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let stop = interrupt::watch();
    let watch = Watch { stop: &stop, on_second: &|_| {} };
    let output = Output::new("compare", form);
    let testbed = testbed(terminal)?;
    let pair = Pair::new(&testbed, &asked.link)?;
    let spec = &asked.spec;
    let on_run = |repeat, setup| {
        terminal.line(format_args!("repeat {repeat} of {}: {setup}", spec.repeats));
    };
    let report = rxsteer_bench::compare(&pair, spec, &watch, &on_run)?;
    for warning in &report.warnings {
        terminal.note(warning);
    }
    let settings: Vec<_> = report.setups.iter().flat_map(|s| s.settings.clone()).collect();
    if let Form::Json { .. } = output.form {
        output.json(terminal, &settings, report_json(&report))?;
    } else {
        let mut out = terminal.results();
        output.head(&mut out, &[])?;
        match &spec.workload {
            Workload::Sink(_, source) => writeln!(out, "traffic   {source}")?,
            Workload::Rr(rr, _) => super::rr::traffic(&mut out, rr)?,
        }
        text(&mut out, &report)?;
        out.flush()?;
    }
    // Fewer repeats than asked for are an error, whatever the figures.
    anyhow::ensure!(
        report.repeats == spec.repeats,
        "stopped after {} of {} repeats",
        report.repeats,
        spec.repeats
    );
    Ok(Exit::Fine)
}

fn text(out: &mut dyn Write, report: &CompareReport) -> io::Result<()> {
    writeln!(
        out,
        "runs      {} of each in turn; medians, lowest to highest, and the ratio to the first set-up",
        plural(u64::from(report.repeats), "run")
    )?;
    for setup in &report.setups {
        let changes =
            setup.settings.iter().map(|change| format!("{}={}", name(&change.path), change.new));
        let changes: Vec<String> = changes.collect();
        writeln!(out, "\n{:<12}{}", setup.setup.to_string(), changes.join(" "))?;
        for (metric, ratio) in setup.metrics.iter().zip(&setup.ratios) {
            let Spread { median, low, high } = metric.spread();
            write!(
                out,
                "  {:<20}{:>10}  {:>10} to {:<10} {:<10}",
                metric.name,
                value(median),
                value(low),
                value(high),
                metric.unit
            )?;
            match ratio.ratio {
                Some(r) => writeln!(out, " {:>6.2} x ({:.2} to {:.2})", r.median, r.low, r.high)?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(())
}

/// Returns the last word of a path.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn value(number: f64) -> String {
    if number.abs() < 1000.0 { format!("{number:.1}") } else { count(number as u64) }
}

fn report_json(report: &CompareReport) -> Value {
    let setup = |setup: &SetupReport| {
        let mut value = json!(setup);
        for (index, metric) in setup.metrics.iter().enumerate() {
            let Spread { median, low, high } = metric.spread();
            value["metrics"][index]["median"] = json!(median);
            value["metrics"][index]["low"] = json!(low);
            value["metrics"][index]["high"] = json!(high);
        }
        value
    };
    json!({
        "repeats": report.repeats,
        "busy_before": report.busy_before,
        "warnings": report.warnings,
        "setups": report.setups.iter().map(setup).collect::<Vec<_>>(),
    })
}
