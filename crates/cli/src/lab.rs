//! The verb `lab`: list, run and show experiments.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use rxsteer_lab::experiment::{
    Event, Experiment, LabReport, SHIPPED, Setting, SettingError, run as run_experiment, shipped,
};

use crate::args::checked::UsageError;
use crate::args::{Format, LabListArgs, LabRunArgs, LabShowArgs, LabVerb};
use crate::terminal::Terminal;
use crate::{Exit, interrupt, render};

/// Lists, runs or shows experiments.
///
/// # Errors
/// A file that cannot be read or understood, and the output.
pub fn run(verb: &LabVerb, terminal: &Terminal) -> anyhow::Result<Exit> {
    match verb {
        LabVerb::List(args) => list(args, terminal),
        LabVerb::Run(args) => run_all(args, terminal),
        LabVerb::Show(args) => show(args, terminal),
    }
}

fn list(args: &LabListArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let experiments: Vec<Experiment> = SHIPPED
        .iter()
        .map(|shipped| Experiment::from_toml(shipped.name, shipped.text, &[]))
        .collect::<Result<_, _>>()?;
    match args.output.form() {
        Format::Text => {
            let mut out = terminal.results();
            render::lab::list(&mut out, &experiments)?;
            out.flush()?;
        }
        Format::Json => {
            let mut out = terminal.data();
            render::lab::list_json(&mut out, &experiments, args.output.pretty)?;
            out.flush()?;
        }
        Format::Csv => {
            let mut out = terminal.data();
            render::lab::list_csv(&mut out, &experiments)?;
            out.flush()?;
        }
    }
    Ok(Exit::Fine)
}

fn show(args: &LabShowArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let shipped = shipped(&args.name).ok_or_else(|| unknown(&args.name))?;
    let mut out = terminal.data();
    out.write_all(shipped.text.as_bytes())?;
    out.flush()?;
    Ok(Exit::Fine)
}

fn unknown(name: &str) -> UsageError {
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    let message = format!(
        "`{name}`: no such experiment; there are {}; a file ends in .toml",
        names.join(", ")
    );
    UsageError { flag: "NAME", message }
}

fn run_all(args: &LabRunArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let experiments = experiments(args)?;
    if args.html.as_deref().is_some_and(|file| file.as_os_str() == "-")
        && args.output.form() != Format::Text
    {
        let message = "- prints the page in place of the result; for both, --html FILE".into();
        return Err(UsageError { flag: "--html", message }.into());
    }
    let threads = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1);
    let interrupted = interrupt::watch();
    let mut report = LabReport::new();
    for experiment in &experiments {
        let size = experiment.size();
        terminal.note(format_args!(
            "{}: {}, about {} packets, {} of memory",
            experiment.name,
            render::numbers::plural(size.runs as u64, "run"),
            render::numbers::count(size.packets),
            render::numbers::bytes(size.bytes),
        ));
        let mut progress = terminal.progress(Some(size.runs as u64));
        let mut done = 0;
        let (result, whole) = run_experiment(experiment, threads, &mut |event| {
            match event {
                Event::Case { number, .. } => done = number as u64,
                Event::Packets(packets) => progress.update(done, packets),
            }
            if interrupted.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        drop(progress);
        report.experiments.push(result);
        if !whole {
            report.interrupted = true;
            break;
        }
    }
    print(&report, args, terminal)?;
    if report.interrupted {
        let cases: usize = report.experiments.iter().map(|e| e.cases.len()).sum();
        let planned: usize = experiments.iter().map(|e| e.size().runs).sum();
        terminal.error(format_args!("stopped after {cases} of {planned} runs, as asked"));
        return Ok(Exit::Error);
    }
    let held = |e: &rxsteer_lab::experiment::ExperimentReport| e.claims.iter().all(|c| c.holds);
    let sound = report.experiments.iter().all(|e| {
        held(e) && e.cases.iter().all(|case| case.policies.iter().all(|policy| policy.adds_up))
    });
    Ok(if args.check && !sound { Exit::Error } else { Exit::Fine })
}

/// Reads all before any runs.
fn experiments(args: &LabRunArgs) -> anyhow::Result<Vec<Experiment>> {
    let settings: Vec<Setting> = args
        .settings
        .iter()
        .map(|text| {
            text.parse().map_err(|error: SettingError| UsageError {
                flag: "--set",
                message: error.to_string(),
            })
        })
        .collect::<Result<_, _>>()?;
    let mut experiments = Vec::new();
    for name in &args.names {
        if name == "all" {
            for shipped in SHIPPED {
                experiments.push(Experiment::from_toml(shipped.name, shipped.text, &settings)?);
            }
        } else if name.ends_with(".toml") {
            let text = crate::replay::text(Path::new(name))?;
            experiments.push(Experiment::from_toml(name, &text, &settings)?);
        } else {
            let shipped = shipped(name).ok_or_else(|| unknown(name))?;
            experiments.push(Experiment::from_toml(shipped.name, shipped.text, &settings)?);
        }
    }
    Ok(experiments)
}

fn print(report: &LabReport, args: &LabRunArgs, terminal: &Terminal) -> anyhow::Result<()> {
    if args.html.as_ref().is_some_and(|file| file.as_os_str() == "-") {
        let mut out = terminal.data();
        render::lab::html(&mut out, report)?;
        out.flush()?;
        return Ok(());
    }
    match args.output.form() {
        Format::Text => {
            let mut out = terminal.results();
            render::lab::text(&mut out, report)?;
            out.flush()?;
        }
        Format::Json => {
            let mut out = terminal.data();
            render::lab::json(&mut out, report, args.output.pretty)?;
            out.flush()?;
        }
        Format::Csv => {
            let mut out = terminal.data();
            render::lab::csv(&mut out, report)?;
            out.flush()?;
        }
    }
    // Last, so that a page that cannot be written does not take the answer with it.
    if let Some(file) = &args.html {
        let mut page = Vec::new();
        render::lab::html(&mut page, report)?;
        std::fs::write(file, page).with_context(|| format!("{}: cannot write", file.display()))?;
    }
    Ok(())
}
