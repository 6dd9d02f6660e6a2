//! How runs of experiments are shown: text, JSON, CSV, a page, and plots for the documentation.
//!
//! Always true: the same report gives the same bytes.

mod page;
mod plot;
mod table;
mod text;

use std::io::{self, Write};

use rxsteer_lab::experiment::{Experiment, LAB_SCHEMA_VERSION, LabReport, Verdict};
use serde_json::json;

use super::csv::io_error;

pub use page::html;
pub use plot::standing_svg;
pub use table::{figure, markdown};
pub use text::{list, text};

/// Writes a report as one line of JSON, or with line breaks.
///
/// # Errors
/// What the writer says.
pub fn json<W: Write>(out: &mut W, report: &LabReport, pretty: bool) -> io::Result<()> {
    if pretty {
        serde_json::to_writer_pretty(&mut *out, report)?;
    } else {
        serde_json::to_writer(&mut *out, report)?;
    }
    writeln!(out)
}

/// Writes a line for each experiment, case, policy and measure.
///
/// # Errors
/// What the writer says.
pub fn csv<W: Write>(out: &mut W, report: &LabReport) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer
        .write_record(["experiment", "case", "x", "policy", "measure", "value"])
        .map_err(io_error)?;
    for experiment in &report.experiments {
        for case in &experiment.cases {
            let x = case.x.map(|x| x.to_string()).unwrap_or_default();
            for policy in &case.policies {
                for (measure, value) in &policy.measures {
                    let value = value.to_string();
                    let (name, case) = (&experiment.name, &case.case);
                    writer
                        .write_record([name, case, &x, &policy.policy, measure, &value])
                        .map_err(io_error)?;
                }
            }
        }
    }
    writer.flush()
}

/// Writes the experiments of the binary as JSON.
///
/// # Errors
/// What the writer says.
pub fn list_json<W: Write>(out: &mut W, all: &[Experiment], pretty: bool) -> io::Result<()> {
    let experiments: Vec<_> = all
        .iter()
        .map(|experiment| {
            let size = experiment.size();
            json!({
                "name": experiment.name,
                "title": experiment.title,
                "reproduces": experiment.reproduces,
                "runs": size.runs,
                "packets": size.packets,
                "bytes": size.bytes,
            })
        })
        .collect();
    let list = json!({ "schema_version": LAB_SCHEMA_VERSION, "experiments": experiments });
    if pretty {
        serde_json::to_writer_pretty(&mut *out, &list)?;
    } else {
        serde_json::to_writer(&mut *out, &list)?;
    }
    writeln!(out)
}

/// Writes the experiments of the binary, a line each.
///
/// # Errors
/// What the writer says.
pub fn list_csv<W: Write>(out: &mut W, all: &[Experiment]) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["name", "title", "runs", "packets", "bytes"]).map_err(io_error)?;
    for experiment in all {
        let size = experiment.size();
        writer
            .write_record([
                experiment.name.clone(),
                experiment.title.clone(),
                size.runs.to_string(),
                size.packets.to_string(),
                size.bytes.to_string(),
            ])
            .map_err(io_error)?;
    }
    writer.flush()
}

/// Returns the words for a comparison.
pub fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Direction => "direction only",
        Verdict::Differs => "differs",
        Verdict::Missing => "not run",
    }
}
