//! Runs an experiment, case by case.

use std::ops::ControlFlow;

use rxsteer_sockets::SocketError;

use super::lookups::Outcome;
use super::measure;
use super::plan::{Experiment, Plot, PlotForm, Run};
use super::report::{CaseReport, CourseReport, ExperimentReport, PlotReport, PolicyResult};
use crate::capture::{Direction, LinkType, Packet};
use crate::generate::Scenario;
use crate::replay::{Replay, ReplayError, round_trips};
use crate::report::PolicyReport;

/// What happens while an experiment runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A case begins.
    Case {
        /// Its number, from 0.
        number: usize,
        /// Its name.
        name: &'a str,
    },
    /// So many packets of the case were sent.
    Packets(u64),
}

/// Why an experiment that was planned cannot be run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RunError {
    /// A host and tables that do not go together.
    Replay(ReplayError),
    /// A socket could not be opened, bound or connected.
    Socket(SocketError),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Replay(error) => error.fmt(f),
            Self::Socket(error) => write!(f, "a socket of the experiment: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<ReplayError> for RunError {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}

impl From<SocketError> for RunError {
    fn from(error: SocketError) -> Self {
        Self::Socket(error)
    }
}

/// Packets between two reports of progress, and two looks at whether to stop.
const PROGRESS_PACKETS: u64 = 1 << 14;

/// Bytes of each frame that are looked at: the headers of any tunnel that is sent fit.
const SNAP_LEN: usize = 160;

/// Runs an experiment; calls `progress` now and then, and if that breaks, stops after the packets
/// so far: the case under way is left out, those before it stay.
///
/// Returns the report and whether it is whole.
///
/// # Errors
/// A host and tables that do not go together, or sockets that cannot be opened.
pub fn run(
    experiment: &Experiment,
    threads: usize,
    progress: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<(ExperimentReport, bool), RunError> {
    let size = experiment.size();
    let mut report = ExperimentReport {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        reproduces: experiment.reproduces.clone(),
        seed: experiment.seed,
        settings: experiment.settings.iter().map(ToString::to_string).collect(),
        planned_bytes: size.bytes,
        planned_runs: size.runs,
        sweep: experiment.sweep.clone(),
        show: experiment.show.clone(),
        cases: Vec::new(),
        figures: Vec::new(),
        claims: Vec::new(),
        plots: experiment.plots.iter().map(plot).collect(),
    };
    let mut whole = true;
    for (number, run) in experiment.runs.iter().enumerate() {
        let name = run.case.as_str();
        if progress(Event::Case { number, name }).is_break() {
            whole = false;
            break;
        }
        let done = match &run.lookups {
            Some(lookups) => {
                let mut packets = |n| progress(Event::Packets(n));
                lookups.run(experiment.seed, &mut packets)?.map(of_lookups)
            }
            None => sent(run, threads, progress)?
                .map(|policies| results(run, &policies, &experiment.plots)),
        };
        let Some(policies) = done else {
            whole = false;
            break;
        };
        report.cases.push(CaseReport { case: run.case.clone(), x: run.x, policies });
    }
    report.figures = experiment.figures.iter().map(|f| f.compare(&report)).collect();
    report.claims = experiment.claims.iter().map(|c| c.check(&report)).collect();
    Ok((report, whole))
}

fn plot(plot: &Plot) -> PlotReport {
    PlotReport {
        title: plot.title.clone(),
        measure: plot.measure.clone(),
        form: match plot.form {
            PlotForm::Bars => "bars".into(),
            PlotForm::Lines => "lines".into(),
            PlotForm::Time => "time".into(),
        },
        case: plot.case.clone(),
    }
}

/// Runs the traffic of a run: round trips if there are any, frames otherwise.
fn sent(
    run: &Run,
    threads: usize,
    progress: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Option<Vec<PolicyReport>>, ReplayError> {
    let sets: Vec<_> = run
        .traffic
        .iter()
        .enumerate()
        .filter_map(|(number, traffic)| traffic.round_trips(number as u64))
        .collect();
    if sets.is_empty() {
        return frames(run, threads, progress);
    }
    let mut packets = |n| progress(Event::Packets(n));
    round_trips(&run.host, &run.options, &sets, run.duration_ns, &mut packets)
}

/// Sends the frames of a run through a replay; `None` if it was stopped.
fn frames(
    run: &Run,
    threads: usize,
    progress: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Option<Vec<PolicyReport>>, ReplayError> {
    let mut options = run.options.clone();
    options.threads = threads.min(options.policies.len());
    let mut replay = Replay::new(run.host.clone(), options)?;
    let mut scenario = Scenario::new(run.options.seed).snap_len(SNAP_LEN);
    for (number, traffic) in run.traffic.iter().enumerate() {
        traffic.add_to(&mut scenario, number as u64, run.options.seed);
    }
    let mut frames = scenario.frames();
    let end_ns = crate::generate::EPOCH_NS + run.duration_ns;
    replay.ends_at(end_ns);
    let mut packets = 0u64;
    while let Some(frame) = frames.next_frame() {
        if frame.time_ns >= end_ns {
            break;
        }
        let direction = if frame.inbound { Direction::Inbound } else { Direction::Outbound };
        replay.packet(&Packet {
            orig_len: frame.orig_len,
            direction,
            ..Packet::new(frame.time_ns, LinkType::ETHERNET, &frame.bytes)
        });
        packets += 1;
        if packets.is_multiple_of(PROGRESS_PACKETS) && progress(Event::Packets(packets)).is_break()
        {
            return Ok(None);
        }
    }
    Ok(Some(replay.finish(&[], Vec::new()).policies))
}

fn of_lookups(outcomes: Vec<Outcome>) -> Vec<PolicyResult> {
    let result = |outcome: Outcome| PolicyResult {
        policy: outcome.variant.name().into(),
        adds_up: outcome.adds_up,
        measures: outcome.measures,
        course: Vec::new(),
    };
    outcomes.into_iter().map(result).collect()
}

fn results(run: &Run, policies: &[PolicyReport], plots: &[Plot]) -> Vec<PolicyResult> {
    let courses = |report: &PolicyReport| {
        plots
            .iter()
            .filter(|plot| plot.form == PlotForm::Time)
            .filter(|plot| plot.case.as_ref().is_none_or(|case| *case == run.case))
            .map(|plot| CourseReport {
                measure: plot.measure.clone(),
                points: measure::over_time(&plot.measure, report),
            })
            .collect()
    };
    policies
        .iter()
        .map(|report| PolicyResult {
            policy: report.policy.clone(),
            adds_up: report.adds_up(),
            measures: measure::of_policy(report, run.duration_ns),
            course: courses(report),
        })
        .collect()
}
