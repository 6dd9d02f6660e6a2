//! `bench compare`.

use std::io::{self, Write};

use rxsteer_bench::{Attached, AttachedRun, CompareReport, SetupReport, Spread, Watch, Workload};
use rxsteer_testbed::Pair;
use serde_json::{Value, json};

use super::args::FormArgs;
use super::checked::compare::Compare;
use super::gen_sink::work;
use super::output::{Form, Output};
use super::testbed;
use crate::render::numbers::{count, grouped, percent, plural};
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
            Workload::Sink(sink, source) => writeln!(out, "traffic   {source}{}", work(sink))?,
            Workload::Overload(spec) => {
                let base = grouped(report.base.unwrap_or_default());
                let work = work(&spec.sink);
                writeln!(out, "traffic   {}{work}; 1 x is {base} packets/s", spec.source)?;
            }
            Workload::Rr(rr, _) => super::rr::traffic(&mut out, rr)?,
            Workload::Mixed(spec) => {
                super::rr::traffic(&mut out, &spec.requests)?;
                let rate = match spec.flood.rate {
                    0 => "as fast as possible".to_owned(),
                    rate => format!("{} packets/s", grouped(rate)),
                };
                writeln!(out, "beside    {}, {rate}", spec.flood)?;
            }
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
        let mut load = None;
        for (metric, ratio) in setup.metrics.iter().zip(&setup.ratios) {
            if metric.load != load
                && let Some(now) = metric.load
            {
                load = metric.load;
                writeln!(out, "  at {now}, {} packets/s", grouped(now.rate()))?;
            }
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
        if let Some(attached) = &setup.attached {
            self::attached(out, attached)?;
        }
    }
    Ok(())
}

/// Writes how `rxsteer` was attached, and what it counted in all runs together.
fn attached(out: &mut dyn Write, attached: &Attached) -> io::Result<()> {
    let Attached { mode, policy, cpus, table_entries, runs, .. } = attached;
    writeln!(out, "  attached: {mode} mode, {policy}, CPUs {cpus}, {table_entries} flows a table")?;
    let sum = |of: fn(&AttachedRun) -> u64| grouped(runs.iter().map(of).sum());
    write!(out, "  packets {}", sum(|run| run.seen))?;
    let names = runs.iter().flat_map(|run| run.reasons.keys());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        let packets = runs.iter().filter_map(|run| run.reasons.get(name)).sum();
        write!(out, ", {name} {}", grouped(packets))?;
    }
    writeln!(
        out,
        "; lost: queue full {}, otherwise {}",
        sum(|run| run.lost_full),
        sum(|run| run.lost_otherwise)
    )?;
    type Rate = fn(&AttachedRun) -> Option<f64>;
    let rates: [(&str, Rate); 2] =
        [("TCP", |run| run.tcp_hit_rate), ("UDP", |run| run.udp_hit_rate)];
    for (name, of) in rates {
        let values: Vec<f64> = runs.iter().filter_map(of).collect();
        if !values.is_empty() {
            let Spread { median, low, high } = Spread::of(&values);
            let [median, low, high] = [median, low, high].map(percent);
            writeln!(out, "  hit rate of {name} {median}, {low} to {high}")?;
        }
    }
    for text in &attached.unequal {
        writeln!(out, "  unequal: {text}")?;
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
        "base_packets_per_second": report.base,
        "busy_before": report.busy_before,
        "warnings": report.warnings,
        "setups": report.setups.iter().map(setup).collect::<Vec<_>>(),
    })
}
