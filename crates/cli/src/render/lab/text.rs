//! Experiments for people: a list, and what came of runs.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use rxsteer_lab::experiment::{Experiment, ExperimentReport, LabReport, Verdict};
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style as Borders};

use super::super::numbers::{bytes, count, plural};
use super::super::text::{WIDTH, wrapped};
use super::table::{Table, figure, tables};
use super::words;

const HEADING: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const FAINT: Style = Style::new().dimmed();

/// Writes the experiments of the binary, a line each.
///
/// # Errors
/// What the writer says.
pub fn list<W: Write>(out: &mut W, all: &[Experiment]) -> io::Result<()> {
    for experiment in all {
        let size = experiment.size();
        let name = &experiment.name;
        writeln!(out, "{HEADING}{name}{HEADING:#}")?;
        wrapped(out, "    ", &experiment.title)?;
        let text = format!(
            "{FAINT}{}, about {} packets, {} of memory{FAINT:#}",
            plural(size.runs as u64, "run"),
            count(size.packets),
            bytes(size.bytes)
        );
        writeln!(out, "    {text}")?;
    }
    writeln!(out, "\nrxsteer lab run NAME runs one, all runs every one, show NAME prints its file.")
}

/// Writes what came of runs.
///
/// # Errors
/// What the writer says.
pub fn text<W: Write>(out: &mut W, report: &LabReport) -> io::Result<()> {
    for (number, experiment) in report.experiments.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        one(out, experiment)?;
    }
    Ok(())
}

fn one<W: Write>(out: &mut W, report: &ExperimentReport) -> io::Result<()> {
    writeln!(out, "{HEADING}{}: {}{HEADING:#}", report.name, report.title)?;
    wrapped(out, "  ", &report.about.replace('\n', " "))?;
    if let Some(what) = &report.reproduces {
        wrapped(out, "  reproduces: ", what)?;
    }
    if !report.settings.is_empty() {
        wrapped(out, "  with: ", &report.settings.join(", "))?;
    }
    if report.cases.len() < report.planned_runs {
        let (done, planned) = (report.cases.len(), report.planned_runs);
        writeln!(out, "  {BAD}stopped after {done} of {planned} runs{BAD:#}")?;
    }
    for table in tables(report) {
        grid(out, &table)?;
    }
    figures(out, report)?;
    claims(out, report)?;
    let lost = report.cases.iter().flat_map(|case| &case.policies).filter(|p| !p.adds_up).count();
    if lost > 0 {
        writeln!(out, "\n  {BAD}{lost} results do not add up: a fault of this program{BAD:#}")?;
    }
    Ok(())
}

fn grid<W: Write>(out: &mut W, table: &Table) -> io::Result<()> {
    writeln!(out)?;
    if !table.title.is_empty() {
        wrapped(out, "  ", &table.title)?;
    }
    let mut builder = Builder::default();
    builder.push_record(std::iter::once(String::new()).chain(table.policies.iter().cloned()));
    for (label, cells) in &table.rows {
        builder.push_record(std::iter::once(format!("    {label}")).chain(cells.iter().cloned()));
    }
    let mut grid = builder.build();
    grid.with(Borders::empty()).with(Padding::new(0, 0, 0, 0));
    grid.modify(Columns::new(1..), Alignment::right());
    grid.modify(Columns::new(1..), Padding::new(2, 0, 0, 0));
    for line in grid.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn figures<W: Write>(out: &mut W, report: &ExperimentReport) -> io::Result<()> {
    if report.figures.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n  {HEADING}Beside what was published{HEADING:#}")?;
    for shown in &report.figures {
        let style = match shown.verdict {
            Verdict::Agrees => GOOD,
            Verdict::Direction => FAINT,
            Verdict::Differs | Verdict::Missing => BAD,
        };
        let ratio = shown.over.is_some();
        let text = format!(
            "{}: {}, published {} ({})",
            shown.what,
            figure(&shown.measure, ratio, shown.measured),
            figure(&shown.measure, ratio, Some(shown.published)),
            shown.source
        );
        lines(out, style, words(shown.verdict), &text)?;
        wrapped(out, "                    ", &shown.why.replace('\n', " "))?;
    }
    Ok(())
}

fn claims<W: Write>(out: &mut W, report: &ExperimentReport) -> io::Result<()> {
    if report.claims.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n  {HEADING}What it must show{HEADING:#}")?;
    for claim in &report.claims {
        let (style, word) = if claim.holds { (GOOD, "holds") } else { (BAD, "does not hold") };
        let value = figure(&claim.measure, claim.over.is_some(), claim.measured);
        lines(out, style, word, &format!("{} ({value})", claim.what))?;
    }
    Ok(())
}

/// Writes a word in colour and a text beside it.
fn lines<W: Write>(out: &mut W, style: Style, word: &str, text: &str) -> io::Result<()> {
    let options = textwrap::Options::new(WIDTH - 20).break_words(false);
    for (index, line) in textwrap::wrap(text, options).into_iter().enumerate() {
        let word = if index == 0 { word } else { "" };
        writeln!(out, "    {style}{word:<14}{style:#}  {line}")?;
    }
    Ok(())
}
