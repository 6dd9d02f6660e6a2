//! The page of what was measured.

use std::fmt::Write as _;

use rxsteer::render::numbers::{count, grouped, percent};
use rxsteer_bench::{Setup, Spread};

use super::Found;
use super::cases::SETUPS;
use super::figures::Measured;

const HEAD: &str = "\
# Measured: `rxsteer attach` beside the kernel's own set-ups

Made by `cargo run --release -p xtask -- measure-attach`; do not edit. Real packets over a veth pair between
two network namespaces, each case a comparison as [`rxsteer bench compare`](bench.md) makes it: the set-ups
in turn, several times, ratios taken within a repeat. Sources and clients run on one CPU, readers and servers
on another. A veth device takes packets on the CPU that sends them, so with `none` the packets of a case are
processed beside its source, and the reader has a CPU to itself: that is the split on two CPUs. `rfs` and
`rxsteer` bring packets of known flows to the reader's CPU.

";

const TAIL: &str = "\
## What two CPUs cannot show

With two CPUs, of which one sends, packets beside a reader are packets beside the source, in a thread that
takes its time; there is no third CPU. The experiment
[attach-overload](experiments.md#attach-overload) has the same situation on 8 and 16 CPUs in the lab.

## What the program itself costs

`cargo xtask verifier` runs the programs over the same frames by BPF test run, beside one that spreads by a
plain hash into the CPUMAP and one that passes, and prints the ratios.
";

pub(super) fn markdown(found: &Found) -> String {
    let mut page = HEAD.to_owned();
    // Writing to a string cannot fail.
    let host = &found.host;
    let _ = writeln!(
        page,
        "Host: {}, {}, CPUs {}{}; {} runs of each set-up, {:.0} s in all.\n",
        host.kernel,
        host.cpu_model,
        host.online,
        if host.is_virtual { ", virtual" } else { "" },
        found.repeats,
        found.took.as_secs_f64()
    );
    let warnings = found.cases.iter().flat_map(|case| {
        case.report.warnings.iter().map(|warning| (case.case.name, warning.as_str()))
    });
    for (name, warning) in warnings {
        let _ = writeln!(page, "- {name}: {warning}.");
    }
    page.push_str("\n## What was to be reached\n\n| what | to reach | measured | |\n");
    page.push_str("| --- | --- | --- | --- |\n");
    for goal in goals(found) {
        let Goal { what, to_reach, measured, is_reached } = goal;
        let word = if is_reached { "reached" } else { "**not reached**" };
        let _ = writeln!(page, "| {what} | {to_reach} | {measured} | {word} |");
    }
    page.push('\n');
    for case in &found.cases {
        section(&mut page, case);
    }
    page.push_str(TAIL);
    page
}

/// Something that was to be reached.
struct Goal {
    what: String,
    to_reach: String,
    measured: String,
    is_reached: bool,
}

impl Goal {
    fn at_least(what: String, least: f64, ratio: Spread) -> Self {
        let measured = format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high);
        let to_reach = format!("at least {least} x");
        Self { what, to_reach, measured, is_reached: ratio.median >= least }
    }
}

fn goals(found: &Found) -> Vec<Goal> {
    let case = |name: &str| found.cases.iter().find(|case| case.case.name == name);
    let mut goals = Vec::new();
    // Lightly loaded, in what a second brings and in how long one takes.
    if let Some(one) = case("udp-rr-1") {
        goals.extend(against_best(one, "transactions", None, 0.95, "one UDP flow: transactions"));
    }
    if let Some(light) = case("udp-rr-light")
        && let Some(best) = light.best("median", None)
        && let Some(ratio) = light.ours_over(best, "median", None)
    {
        goals.push(Goal {
            what: format!("idle host, 200 UDP flows: median time, over `{best}`"),
            to_reach: "at most 1.05 x".into(),
            measured: format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high),
            is_reached: ratio.median <= 1.05,
        });
    }
    for (name, what) in [("udp-rr-200", "200 UDP flows"), ("tcp-rr-500", "500 TCP flows")] {
        if let Some(busy) = case(name) {
            let what = format!("{what}, both CPUs busy: transactions");
            goals.extend(against_best(busy, "transactions", None, 0.95, &what));
        }
    }
    for name in ["overload", "overload-unconnected"] {
        let Some(overload) = case(name) else { continue };
        let load = Some(4.0);
        if let Some(ratio) = overload.ours_over(Setup::Rfs, "read", load) {
            goals.push(Goal::at_least(format!("{name}, 4 x: read, over `rfs`"), 2.0, ratio));
        }
        let what = format!("{name}, 4 x: read");
        goals.extend(against_best(overload, "read", load, 0.8, &what));
    }
    if let (Some(alone), Some(beside)) = (case("tcp-rr-500"), case("mixed")) {
        goals.extend(hit_rate(alone, beside));
        goals.extend(against_best(
            beside,
            "transactions",
            None,
            0.95,
            "500 TCP flows beside the flood: transactions",
        ));
    }
    goals
}

fn against_best(
    measured: &Measured,
    name: &str,
    load: Option<f64>,
    least: f64,
    what: &str,
) -> Option<Goal> {
    let best = measured.best(name, load)?;
    let ratio = measured.ours_over(best, name, load)?;
    let what = format!("{what}, over the kernel's best, `{best}`");
    Some(Goal::at_least(what, least, ratio))
}

/// The share of TCP packets that the table knows, beside a flood and without one.
fn hit_rate(alone: &Measured, beside: &Measured) -> Option<Goal> {
    let of = |measured: &Measured| {
        let runs = &measured.setup(Setup::Rxsteer)?.attached.as_ref()?.runs;
        let rates: Vec<f64> = runs.iter().filter_map(|run| run.tcp_hit_rate).collect();
        Some(Spread::of(&rates).median)
    };
    let (alone, beside) = (of(alone)?, of(beside)?);
    Some(Goal {
        what: "hit rate of TCP beside the flood, against without".into(),
        to_reach: "0.1 points less at most".into(),
        measured: format!("{:.2} %, {:.2} %", beside * 100.0, alone * 100.0),
        is_reached: beside >= alone - 0.001,
    })
}

fn section(page: &mut String, measured: &Measured) {
    let _ = writeln!(page, "## {}\n\n{}.\n", measured.case.name, measured.case.title);
    if let Some(base) = measured.report.base {
        let _ = writeln!(
            page,
            "1 x is {} packets/s, the most of which 98 % are read with nothing set up.\n",
            grouped(base)
        );
    }
    for load in measured.loads() {
        table(page, measured, load);
    }
    let Some(attached) = measured.setup(Setup::Rxsteer).and_then(|ours| ours.attached.as_ref())
    else {
        return;
    };
    let runs = attached.runs.len().max(1) as f64;
    let mut reasons = std::collections::BTreeMap::<&str, u64>::new();
    for (name, packets) in attached.runs.iter().flat_map(|run| &run.reasons) {
        *reasons.entry(name).or_default() += packets;
    }
    let seen: u64 = reasons.values().sum();
    let parts = reasons
        .iter()
        .map(|(name, packets)| format!("{name} {}", percent(*packets as f64 / seen.max(1) as f64)));
    let lost: u64 = attached.runs.iter().map(|run| run.lost_full + run.lost_otherwise).sum();
    let _ = writeln!(
        page,
        "rxsteer: {} mode, CPUs {}; of {} packets a run: {}; lost on the way to a CPU {}.\n",
        attached.mode,
        attached.cpus,
        grouped((seen as f64 / runs) as u64),
        parts.collect::<Vec<_>>().join(", "),
        grouped(lost)
    );
}

fn table(page: &mut String, measured: &Measured, load: Option<f64>) {
    let shown = measured.case.shown;
    match load {
        Some(load) => _ = write!(page, "| at {load} x |"),
        None => page.push_str("| |"),
    }
    for name in shown {
        let unit = measured.metric(Setup::Rxsteer, name, load).map_or("", |metric| metric.unit);
        let _ = write!(page, " {name}, {unit} |");
    }
    page.push_str("\n| --- |");
    page.push_str(&" ---: |".repeat(shown.len()));
    page.push('\n');
    for setup in SETUPS {
        let _ = write!(page, "| {setup} |");
        for name in shown {
            let spread = measured.metric(setup, name, load).map(rxsteer_bench::Metric::spread);
            match spread {
                Some(Spread { median, low, high }) => {
                    let _ =
                        write!(page, " {} ({} to {}) |", value(median), value(low), value(high));
                }
                None => page.push_str(" |"),
            }
        }
        page.push('\n');
    }
    page.push('\n');
}

fn value(number: f64) -> String {
    if number.abs() < 1000.0 { format!("{number:.1}") } else { count(number as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_reached_from_its_bound_on() {
        let at = |median| Spread { median, low: 0.0, high: 9.0 };
        let goal = |median| Goal::at_least("x".into(), 0.8, at(median));
        assert!(goal(0.8).is_reached && !goal(0.799).is_reached);
        assert_eq!(goal(0.8).measured, "0.80 (0.00 to 9.00)");
        assert_eq!(goal(0.8).to_reach, "at least 0.8 x");
    }
}
