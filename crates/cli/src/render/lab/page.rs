//! One self-contained page of all runs, with plots; no script, nothing loaded from elsewhere.
//!
//! Always true: every string of the report is escaped.

use std::fmt::Write as _;
use std::io::{self, Write};

use rxsteer_lab::experiment::{ExperimentReport, LabReport, Verdict};

use super::super::html::{STYLE, escape};
use super::plot;
use super::table::{figure, tables};
use super::words;

/// Writes the page.
///
/// # Errors
/// What the writer says.
pub fn html<W: Write>(out: &mut W, report: &LabReport) -> io::Result<()> {
    let mut page = String::new();
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    // Writing to a string cannot fail.
    let _ = writeln!(page, "<title>rxsteer lab</title>\n<style>{STYLE}</style></head><body>");
    page.push_str("<h1>rxsteer lab</h1>\n");
    if report.interrupted {
        page.push_str("<p class=\"bad\">Stopped before its end.</p>\n");
    }
    for experiment in &report.experiments {
        one(&mut page, experiment);
    }
    let _ = writeln!(
        page,
        "<p class=\"soft\">{}. The same files and seeds give the same page.</p></body></html>",
        escape(&report.generator)
    );
    out.write_all(page.as_bytes())
}

fn one(page: &mut String, report: &ExperimentReport) {
    let name = escape(&report.name);
    let _ = writeln!(page, "<h1 id=\"{name}\">{name}: {}</h1>", escape(&report.title));
    let _ = writeln!(page, "<p>{}</p>", escape(&report.about));
    if let Some(what) = &report.reproduces {
        let _ = writeln!(page, "<p class=\"soft\">Reproduces: {}.</p>", escape(what));
    }
    if !report.settings.is_empty() {
        let settings = escape(&report.settings.join(", "));
        let _ = writeln!(page, "<p class=\"soft\">With {settings}.</p>");
    }
    figures(page, report);
    claims(page, report);
    for shown in &report.plots {
        if let Some(svg) = plot::svg_of(report, shown) {
            let _ = writeln!(page, "<h2>{}</h2>\n<figure>{svg}</figure>", escape(&shown.title));
        }
    }
    for table in tables(report) {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&table.title));
        page.push_str("<div class=\"scroll\"><table><tr><th></th>");
        for policy in &table.policies {
            let _ = write!(page, "<th>{}</th>", escape(policy));
        }
        page.push_str("</tr>\n");
        for (label, cells) in &table.rows {
            let _ = write!(page, "<tr><td>{}</td>", escape(label));
            for cell in cells {
                let _ = write!(page, "<td>{}</td>", escape(cell));
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n");
    }
}

fn figures(page: &mut String, report: &ExperimentReport) {
    if report.figures.is_empty() {
        return;
    }
    page.push_str("<h2>Beside what was published</h2>\n<dl>\n");
    for shown in &report.figures {
        let class = if shown.verdict == Verdict::Differs { " class=\"bad\"" } else { "" };
        let ratio = shown.over.is_some();
        let _ = writeln!(
            page,
            "<dt>{} ({})</dt><dd{class}><strong>{}</strong>: {}, published {}. {}</dd>",
            escape(&shown.what),
            escape(&shown.source),
            words(shown.verdict),
            figure(&shown.measure, ratio, shown.measured),
            figure(&shown.measure, ratio, Some(shown.published)),
            escape(&shown.why)
        );
    }
    page.push_str("</dl>\n");
}

fn claims(page: &mut String, report: &ExperimentReport) {
    if report.claims.is_empty() {
        return;
    }
    page.push_str("<h2>What it must show</h2>\n<ul>\n");
    for claim in &report.claims {
        let (class, word) =
            if claim.holds { ("", "holds") } else { (" class=\"bad\"", "does not hold") };
        let value = figure(&claim.measure, claim.over.is_some(), claim.measured);
        let what = escape(&claim.what);
        let _ = writeln!(page, "<li{class}>{word}: {what} ({value})</li>");
    }
    page.push_str("</ul>\n");
}
