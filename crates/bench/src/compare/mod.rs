//! The same traffic under several receive set-ups of the host, side by side.
//!
//! The runs are interleaved: each repeat runs every set-up once, and begins with another one, so that
//! what changes on the host meanwhile meets all of them. A set-up is compared with the first one of the
//! same repeat, and the median of these ratios is what it is worth.
//!
//! Always true: every setting is put back after each run, and is in a journal before it is made.
//! Elsewhere: medians and spreads ([`stats`]); what a set-up sets ([`setup`]) or attaches
//! ([`steered`]); one run ([`figures`]).

mod figures;
mod overload;
mod setup;
mod stats;
mod steered;

use std::time::Duration;

use rxsteer_core::CpuSet;
use rxsteer_testbed::{Change, CpuTimes, Pair, Settings, softirq_now};
use serde::Serialize;

pub use overload::{Load, OverloadSpec};
pub use setup::Setup;
pub use stats::{Metric, Ratio, Spread};
pub use steered::{Attached, AttachedRun};

use crate::error::During as _;
use crate::{BenchError, GenSpec, MixedSpec, RrSpec, SinkSpec, Watch};
use figures::{Figure, Ran, metrics, run};

/// The traffic of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Datagrams to a reader.
    Sink(SinkSpec, GenSpec),
    /// The same at multiples of the rate that the host delivers.
    Overload(OverloadSpec),
    /// Requests and responses, by IPv6 or not.
    Rr(RrSpec, bool),
    /// Requests and responses beside a flood.
    Mixed(MixedSpec),
}

/// What is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareSpec {
    /// Set-ups; the first is what the others are measured against.
    pub setups: Vec<Setup>,
    /// How often each is run.
    pub repeats: u32,
    /// CPUs to which RPS, RFS and `rxsteer` may send packets.
    pub cpus: CpuSet,
    /// The traffic.
    pub workload: Workload,
}

impl CompareSpec {
    /// Most repeats.
    pub const MOST_REPEATS: u32 = 1000;
}

/// A set-up and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetupReport {
    /// The set-up.
    pub setup: Setup,
    /// What it set, each time.
    pub settings: Vec<Change>,
    /// Figures, one value a repeat.
    pub metrics: Vec<Metric>,
    /// The same against the first set-up, repeat by repeat.
    pub ratios: Vec<Ratio>,
    /// How `rxsteer` was attached and what it counted; `None` for the other set-ups.
    pub attached: Option<Attached>,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompareReport {
    /// One for each set-up, in order.
    pub setups: Vec<SetupReport>,
    /// Repeats that were completed.
    pub repeats: u32,
    /// Rate that the loads are multiples of, in packets a second, if there are loads.
    pub base: Option<u64>,
    /// Share of CPU time that was used by others just before the first run.
    pub busy_before: f64,
    /// What makes the figures doubtful.
    pub warnings: Vec<String>,
}

/// Busy share of the CPUs before the first run from which the machine counts as noisy.
const NOISY: f64 = 0.15;

/// Spread of the first set-up's first figure, from the lowest to the highest over the median, from which
/// it does.
const SPREAD: f64 = 0.25;

/// Name of the figure of what a set-up was sent.
const SENT: &str = "sent";

/// Name of the figure of signals to other CPUs.
pub const SIGNALS: &str = "signals";

/// Name of the figure of how often a thread of either end went to sleep.
pub const SLEEPS: &str = "sleeps";

/// Difference of what the set-ups were sent, over the least, from which their figures are of different
/// loads.
const SAME_LOAD: f64 = 0.1;

/// Runs the set-ups in turn over a pair.
///
/// `on_run` is told which repeat, from 1, of which set-up comes next.
///
/// # Errors
/// [`BenchError::Options`]; those of [`crate::receive_in`] and [`crate::ask_in`];
/// [`BenchError::Testbed`] if a setting cannot be made or put back; [`BenchError::Attach`];
/// [`BenchError::Stopped`] if not even one repeat was completed.
pub fn compare(
    pair: &Pair,
    spec: &CompareSpec,
    watch: &Watch<'_>,
    on_run: &dyn Fn(u32, Setup),
) -> Result<CompareReport, BenchError> {
    if spec.setups.is_empty() || !(1..=CompareSpec::MOST_REPEATS).contains(&spec.repeats) {
        let most = CompareSpec::MOST_REPEATS;
        return Err(BenchError::Options(format!(
            "allowed are 1 to {most} repeats of 1 set-up or more"
        )));
    }
    let busy_before = busy_share(Duration::from_millis(300))?;
    let loads = match &spec.workload {
        Workload::Overload(overload) => overload.loads(pair, watch)?,
        _ => Vec::new(),
    };
    let mut runs: Vec<Runs> = spec.setups.iter().map(|_| Runs::default()).collect();
    let mut repeats = 0;
    'all: for repeat in 0..spec.repeats {
        let mut of_this: Vec<Option<Ran>> = spec.setups.iter().map(|_| None).collect();
        for step in 0..spec.setups.len() {
            let index = (step + repeat as usize) % spec.setups.len();
            let setup = spec.setups[index];
            on_run(repeat + 1, setup);
            let mut settings = Settings::new()?;
            setup.apply(pair, &spec.cpus, &mut settings)?;
            let ran = run(pair, spec, setup, &loads, watch);
            runs[index].settings = settings.changes().to_vec();
            settings.put_back()?;
            of_this[index] = Some(ran?);
            if watch.is_stopped() {
                // A repeat that not all took part in would favour some.
                break 'all;
            }
        }
        for (all, ran) in runs.iter_mut().zip(of_this) {
            if let Some(ran) = ran {
                all.add(ran);
            }
        }
        repeats += 1;
    }
    if repeats == 0 {
        return Err(BenchError::Stopped("every set-up had run once: there is nothing to compare"));
    }
    let warnings = Vec::new();
    let base = loads.first().map(|load| load.base);
    let mut report = CompareReport { setups: Vec::new(), repeats, base, busy_before, warnings };
    let first: Vec<Metric> = metrics(&runs[0].figures);
    for (setup, Runs { settings, figures, attached }) in spec.setups.iter().zip(runs) {
        let metrics = metrics(&figures);
        let ratios = metrics.iter().zip(&first).map(|(one, base)| Ratio::new(one, base)).collect();
        report.setups.push(SetupReport { setup: *setup, settings, metrics, ratios, attached });
    }
    report.warnings = warnings_of(&report);
    Ok(report)
}

/// All runs of a set-up.
#[derive(Debug, Default)]
struct Runs {
    settings: Vec<Change>,
    figures: Vec<Vec<Figure>>,
    attached: Option<Attached>,
}

impl Runs {
    fn add(&mut self, ran: Ran) {
        self.figures.push(ran.figures);
        match (&mut self.attached, ran.attached) {
            (Some(all), Some(one)) => all.join(one),
            (none, one) => *none = one,
        }
    }
}

fn warnings_of(report: &CompareReport) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.busy_before > NOISY {
        warnings.push(format!(
            "the machine was noisy: others used {:.0} % of its CPU time before the first run",
            report.busy_before * 100.0
        ));
    }
    let first = report.setups.first().and_then(|setup| setup.metrics.first());
    if let Some(spread) = first.map(|metric| metric.spread())
        && spread.relative() > SPREAD
    {
        warnings.push(format!(
            "the machine was noisy: {} varied by {:.0} % between repeats of the same set-up",
            first.map_or("", |metric| metric.name),
            spread.relative() * 100.0
        ));
    }
    let sent = report.setups.iter().filter_map(|setup| {
        setup.metrics.iter().find(|metric| metric.name == SENT).map(|sent| sent.spread().median)
    });
    let (low, high) =
        sent.fold((f64::INFINITY, 0.0), |(low, high), sent| (sent.min(low), sent.max(high)));
    if high > low * (1.0 + SAME_LOAD) {
        warnings.push(format!(
            "the set-ups were not sent the same: from {low:.0} to {high:.0} packets/s, as much as the \
             source could beside each; --rate gives all the same"
        ));
    }
    warnings.extend(report.setups.iter().flat_map(not_sent));
    warnings
}

/// Says at which loads the source could not send what was due.
fn not_sent(setup: &SetupReport) -> impl Iterator<Item = String> {
    let sent = setup.metrics.iter().filter(|metric| metric.name == SENT);
    sent.filter_map(|metric| {
        let (load, sent) = (metric.load?, metric.spread().median);
        (sent < 0.9 * load.rate() as f64).then(|| {
            let times = sent / load.base.max(1) as f64;
            format!("{} at {load}: the source could send no more than {times:.1} x", setup.setup)
        })
    })
}

/// Returns how busy the CPUs are with the work of others, while this process sleeps.
fn busy_share(time: Duration) -> Result<f64, BenchError> {
    let now = || softirq_now().during(|| "read /proc/stat".into());
    let before = now()?;
    std::thread::sleep(time);
    let (mut busy, mut all) = (Duration::ZERO, Duration::ZERO);
    for now in now()? {
        let was = before.iter().find(|was| was.cpu == now.cpu).copied();
        let spent = now.since(&was.unwrap_or(CpuTimes { cpu: now.cpu, ..now }));
        busy += spent.busy();
        all += spent.busy() + spent.idle;
    }
    Ok(if all.is_zero() { 0.0 } else { busy.as_secs_f64() / all.as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(sent: &[[f64; 3]]) -> CompareReport {
        let setup = |values: &[f64; 3]| SetupReport {
            setup: Setup::None,
            settings: Vec::new(),
            metrics: vec![Metric {
                load: None,
                name: SENT,
                unit: "packets/s",
                more_is_better: true,
                values: values.to_vec(),
            }],
            ratios: Vec::new(),
            attached: None,
        };
        let setups = sent.iter().map(setup).collect();
        CompareReport { setups, repeats: 3, base: None, busy_before: 0.0, warnings: Vec::new() }
    }

    #[test]
    fn setups_that_were_sent_different_loads_are_told() {
        let said = warnings_of(&report(&[[100.0, 101.0, 99.0], [80.0, 80.0, 81.0]]));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("from 80 to 100 packets/s") && said[0].contains("--rate"));
        let same = report(&[[100.0, 101.0, 99.0], [95.0, 95.0, 95.0], [104.0, 104.0, 104.0]]);
        assert_eq!(warnings_of(&same), Vec::<String>::new());
        // Requests and responses have no such figure.
        assert_eq!(warnings_of(&report(&[])), Vec::<String>::new());
    }
}
