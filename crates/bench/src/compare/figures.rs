//! One run of the traffic, and its figures.

use nix::sys::resource::{UsageWho, getrusage};
use rxsteer_testbed::Pair;

use super::overload::{self, Load};
use super::stats::Metric;
use super::{Setup, Workload, steered};
use crate::compare::steered::Attached;
use crate::{
    BenchError, CpuUse, GenSpec, MixedReport, PairReport, RrPairReport, SinkSpec, Watch, ask_in,
    mix_in, receive_in,
};

/// A figure of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    load: Option<Load>,
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    value: f64,
}

impl Figure {
    const fn more(name: &'static str, unit: &'static str, value: f64) -> Self {
        Self { load: None, name, unit, more_is_better: true, value }
    }

    const fn less(name: &'static str, unit: &'static str, value: f64) -> Self {
        Self { load: None, name, unit, more_is_better: false, value }
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub(super) figures: Vec<Figure>,
    pub(super) attached: Option<Attached>,
}

/// Runs the traffic once under a set-up whose settings are made; at each of `loads` if there are any.
pub(super) fn run(
    pair: &Pair,
    spec: &super::CompareSpec,
    setup: Setup,
    loads: &[Load],
    watch: &Watch<'_>,
) -> Result<Ran, BenchError> {
    let mut ran = Ran::default();
    let mut one = |load: Option<Load>| -> Result<(), BenchError> {
        let work = || of(pair, &spec.workload, load, watch);
        let figures = if setup == Setup::Rxsteer {
            let (figures, attached) = steered::while_attached(pair, &spec.cpus, work)?;
            match &mut ran.attached {
                Some(before) => before.join(attached),
                none => *none = Some(attached),
            }
            figures
        } else {
            work()?
        };
        ran.figures.extend(figures.into_iter().map(|figure| Figure { load, ..figure }));
        Ok(())
    };
    if loads.is_empty() {
        one(None)?;
    }
    for load in loads {
        one(Some(*load))?;
    }
    Ok(ran)
}

fn of(
    pair: &Pair,
    workload: &Workload,
    load: Option<Load>,
    watch: &Watch<'_>,
) -> Result<Vec<Figure>, BenchError> {
    match workload {
        Workload::Sink(sink, source) => datagrams(pair, sink, source, watch),
        Workload::Overload(spec) => {
            let rate = load.map_or(0, |load| load.rate());
            datagrams(pair, &spec.sink, &overload::at_rate(&spec.source, rate), watch)
        }
        Workload::Rr(spec, ipv6) => {
            let before = sleeps();
            let report = ask_in(pair, spec, *ipv6, watch)?;
            let slept = sleeps().wrapping_sub(before);
            let mut figures = requests(&report);
            let each = |count: u64| count as f64 / report.client.transactions.max(1) as f64;
            figures.push(Figure::less(super::SIGNALS, "each", each(signals(&report.cpus))));
            figures.push(Figure::less(super::SLEEPS, "each", each(slept)));
            Ok(figures)
        }
        Workload::Mixed(spec) => Ok(mixed(&mix_in(pair, spec, watch)?)),
    }
}

fn datagrams(
    pair: &Pair,
    sink: &SinkSpec,
    source: &GenSpec,
    watch: &Watch<'_>,
) -> Result<Vec<Figure>, BenchError> {
    let report = receive_in(pair, sink, source, watch)?;
    let PairReport { source, sink, account } = &report;
    let busy: u64 = sink.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let elapsed = sink.elapsed.as_nanos().max(1) as f64;
    // Counted in steps of a clock tick, so it may come to a little more than all.
    let busy_share = |cpu: Option<&CpuUse>| {
        cpu.map_or(0.0, |cpu| (cpu.busy_ns as f64 / elapsed * 100.0).min(100.0))
    };
    let takes = sink.cpus.iter().max_by_key(|cpu| cpu.processed);
    let reader = sink.readers.first().and_then(|reader| reader.cpu);
    let reads = sink.cpus.iter().find(|cpu| Some(cpu.cpu) == reader);
    Ok(vec![
        Figure::more("read", "packets/s", sink.rate()),
        Figure::more(super::SENT, "packets/s", source.rate()),
        Figure::more("read of those sent", "%", share(account.received, account.sent)),
        Figure::less("reader's CPU", "ns/packet", sink.ns_per_packet()),
        Figure::less("all CPUs", "ns/packet", busy as f64 / sink.received.max(1) as f64),
        Figure::less("CPU that processes", "% busy", busy_share(takes)),
        Figure::less("CPU that reads", "% busy", busy_share(reads)),
        Figure::less(
            super::SIGNALS,
            "per packet sent",
            signals(&sink.cpus) as f64 / account.sent.max(1) as f64,
        ),
    ])
}

/// Returns the signals that CPUs took for packets of others, of all namespaces.
fn signals(cpus: &[CpuUse]) -> u64 {
    cpus.iter().map(|cpu| u64::from(cpu.received_rps)).sum()
}

/// Returns how often the threads of this process slept so far.
fn sleeps() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    // It fails for an argument that does not exist.
    usage.map_or(0, |usage| usage.voluntary_context_switches() as u64)
}

fn requests(report: &RrPairReport) -> Vec<Figure> {
    let busy: u64 = report.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let client = &report.client;
    let us = |ns: u64| ns as f64 / 1000.0;
    vec![
        Figure::more("transactions", "1/s", client.rate()),
        Figure::less("median", "µs", us(client.latency.p50_ns)),
        Figure::less("95 %", "µs", us(client.latency.p95_ns)),
        Figure::less("99 %", "µs", us(client.latency.p99_ns)),
        Figure::less("lost", "", client.lost as f64),
        Figure::less("all CPUs", "ns each", busy as f64 / client.transactions.max(1) as f64),
    ]
}

fn mixed(report: &MixedReport) -> Vec<Figure> {
    let mut figures = requests(&report.requests);
    let PairReport { source, sink, .. } = &report.flood;
    figures.extend([
        Figure::less("sent again", "segments", report.sent_again as f64),
        Figure::more("flood sent", "packets/s", source.rate()),
        Figure::more("flood read", "packets/s", sink.rate()),
        Figure::more("flood read of sent", "%", share(sink.received, source.sent)),
    ]);
    figures
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

/// Turns runs with all their figures into figures with all their runs.
pub(super) fn metrics(runs: &[Vec<Figure>]) -> Vec<Metric> {
    let Some(first) = runs.first() else { return Vec::new() };
    let each = |(index, figure): (usize, &Figure)| Metric {
        load: figure.load,
        name: figure.name,
        unit: figure.unit,
        more_is_better: figure.more_is_better,
        values: runs.iter().map(|run| run[index].value).collect(),
    };
    first.iter().enumerate().map(each).collect()
}
