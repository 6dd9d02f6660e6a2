//! How reports are shown: text, JSON, CSV, a page.
//!
//! Always true: the same report gives the same bytes; nothing here looks at a clock.

mod chart;
pub mod csv;
pub mod html;
pub mod lab;
pub mod metrics;
pub mod numbers;
mod plot;
pub mod text;

use std::io::{self, Write};

use rxsteer_lab::report::Report;

/// Writes a report as one line of JSON, or with line breaks.
///
/// # Errors
/// What the writer says.
pub fn json<W: Write>(out: &mut W, report: &Report, pretty: bool) -> io::Result<()> {
    if pretty {
        serde_json::to_writer_pretty(&mut *out, report)?;
    } else {
        serde_json::to_writer(&mut *out, report)?;
    }
    writeln!(out)
}
