//! The page of all experiments: `docs/experiments.md` and its plots.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use rxsteer::render::lab::{figure, markdown, standing_svg, words};
use rxsteer_lab::experiment::{Experiment, ExperimentReport, SHIPPED, run as run_experiment};

/// What `experiments` is told.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these; the page is written only if all are run
    names: Vec<String>,
    /// Write nothing; fail if a claim does not hold, counters do not add up, or the page is not what
    /// this run would write
    #[arg(long)]
    check: bool,
}

const HEAD: &str = "\
# Experiments

What the receive path does in the situations of five public discussions, run by the lab and put beside
the published figures. Made by `cargo xtask experiments`; do not edit. `rxsteer lab run NAME` runs one,
`rxsteer lab show NAME` prints its file with every setting and the reason for it, and
[lab.md](lab.md) is the reference of the format; parts and rows are those of
[its list](lab.md#where-the-published-figures-are-from).

Virtual results reproduce the shape: who wins, by what ratio, where the cliff is. They claim no absolute
speed. Where a figure agrees in direction only, or differs, the reason stands beside it.

";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut page = HEAD.to_owned();
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    let mut sections = String::new();
    let mut faults = 0;
    page.push_str(
        "| experiment | what | published figures | claims |\n| --- | --- | --- | --- |\n",
    );
    for shipped in SHIPPED {
        if !args.names.is_empty() && !args.names.iter().any(|name| name == shipped.name) {
            continue;
        }
        let experiment = Experiment::from_toml(shipped.name, shipped.text, &[])?;
        let began = std::time::Instant::now();
        let (report, _) = run_experiment(&experiment, 1, &mut |_| ControlFlow::Continue(()))?;
        println!("{}: {:.1} s", report.name, began.elapsed().as_secs_f64());
        faults += tell_faults(&report);
        summary(&mut page, &report);
        section(&mut sections, &mut files, &report);
    }
    page.push('\n');
    page.push_str(&sections);
    let docs = crate::repository().join("docs");
    files.push((docs.join("experiments.md"), page.trim_end().to_owned() + "\n"));
    if args.names.is_empty() {
        faults += if args.check { compare(&files) } else { write(&docs, &files)? };
    }
    Ok(if args.check && faults > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell_faults(report: &ExperimentReport) -> usize {
    let mut faults = 0;
    for case in &report.cases {
        for policy in case.policies.iter().filter(|policy| !policy.adds_up) {
            println!("  {}/{}: the counters do not add up", case.case, policy.policy);
            faults += 1;
        }
    }
    for claim in report.claims.iter().filter(|claim| !claim.holds) {
        println!("  does not hold: {} ({:?})", claim.what, claim.measured);
        faults += 1;
    }
    faults
}

fn summary(page: &mut String, report: &ExperimentReport) {
    let agree = report.figures.iter().filter(|f| words(f.verdict) == "agrees").count();
    let figures = match report.figures.len() {
        0 => "-".to_owned(),
        all => format!("{agree} of {all} agree"),
    };
    let hold = report.claims.iter().filter(|claim| claim.holds).count();
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "| [{0}](#{0}) | {1} | {figures} | {hold} of {2} hold |",
        report.name,
        report.title,
        report.claims.len()
    );
}

fn section(page: &mut String, files: &mut Vec<(PathBuf, String)>, report: &ExperimentReport) {
    let _ = writeln!(page, "## {}\n\n{}.\n\n{}\n", report.name, report.title, report.about);
    if let Some(what) = &report.reproduces {
        let _ = writeln!(page, "Reproduces: {what}.\n");
    }
    if !report.figures.is_empty() {
        page.push_str("| figure | ours | published | | why |\n| --- | ---: | ---: | --- | --- |\n");
    }
    for shown in &report.figures {
        let ratio = shown.over.is_some();
        let _ = writeln!(
            page,
            "| {} ({}) | {} | {} | {} | {} |",
            shown.what,
            shown.source,
            figure(&shown.measure, ratio, shown.measured),
            figure(&shown.measure, ratio, Some(shown.published)),
            words(shown.verdict),
            shown.why.replace('\n', " ")
        );
    }
    if !report.figures.is_empty() {
        page.push('\n');
    }
    for claim in &report.claims {
        let word = if claim.holds { "Holds" } else { "**Does not hold**" };
        let value = figure(&claim.measure, claim.over.is_some(), claim.measured);
        let _ = writeln!(page, "- {word}: {} ({value}).", claim.what);
    }
    page.push('\n');
    for (number, plot) in report.plots.iter().enumerate() {
        let Some(svg) = standing_svg(report, plot) else { continue };
        let name = format!("{}-{}.svg", report.name, number + 1);
        let _ = writeln!(page, "{}:\n\n![{}](experiments/{name})\n", plot.title, plot.title);
        files.push((crate::repository().join("docs/experiments").join(name), svg));
    }
    page.push_str(&markdown(report));
}

fn write(docs: &Path, files: &[(PathBuf, String)]) -> anyhow::Result<usize> {
    let plots = docs.join("experiments");
    if plots.exists() {
        std::fs::remove_dir_all(&plots).with_context(|| plots.display().to_string())?;
    }
    std::fs::create_dir_all(&plots).with_context(|| plots.display().to_string())?;
    for (path, text) in files {
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(0)
}

/// Returns the number of files that are not what they would be.
fn compare(files: &[(PathBuf, String)]) -> usize {
    let stale = |(path, text): &&(PathBuf, String)| {
        std::fs::read_to_string(path).map_or(true, |there| there != *text)
    };
    let stale: Vec<_> = files.iter().filter(stale).collect();
    for (path, _) in &stale {
        println!("  {} is not what `cargo xtask experiments` makes", path.display());
    }
    stale.len()
}
