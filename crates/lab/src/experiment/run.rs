//! Runs an experiment, case by case.

use std::ops::ControlFlow;

use super::measure;
use super::plan::{Experiment, Plot, PlotForm, Run};
use super::report::{CaseReport, CourseReport, ExperimentReport, PlotReport, PolicyResult};
use crate::capture::{Direction, LinkType, Packet};
use crate::generate::Scenario;
use crate::replay::{Replay, ReplayError};
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
/// A host and tables that do not go together.
pub fn run(
    experiment: &Experiment,
    threads: usize,
    progress: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<(ExperimentReport, bool), ReplayError> {
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
        let Some(policies) = frames(run, threads, progress)? else {
            whole = false;
            break;
        };
        report.cases.push(case(run, &policies, &experiment.plots));
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

fn case(run: &Run, policies: &[PolicyReport], plots: &[Plot]) -> CaseReport {
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
    CaseReport {
        case: run.case.clone(),
        x: run.x,
        policies: policies
            .iter()
            .map(|report| PolicyResult {
                policy: report.policy.clone(),
                adds_up: report.adds_up(),
                measures: measure::of_policy(report, run.duration_ns),
                course: courses(report),
            })
            .collect(),
    }
}
