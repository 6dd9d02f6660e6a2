//! `bench restore`: what killed runs left is put back and removed.

use std::io::Write as _;

use rxsteer_testbed::reap;
use serde_json::json;

use super::args::FormArgs;
use super::output::{Form, Output};
use crate::Exit;
use crate::terminal::Terminal;

/// Puts back and removes, and tells what.
pub(super) fn run(form: FormArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let reaped = reap()?;
    let output = Output::new("restore", form);
    let exit = if reaped.settings.left.is_empty() { Exit::Fine } else { Exit::Error };
    if let Form::Json { .. } = output.form {
        output.json(
            terminal,
            &[],
            json!({
                "namespaces": reaped.namespaces,
                "settings_back": reaped.settings.back,
                "settings_gone": reaped.settings.gone,
                "settings_left": reaped.settings.left,
            }),
        )?;
        return Ok(exit);
    }
    let mut out = terminal.results();
    for change in &reaped.settings.back {
        writeln!(out, "put back  {}: {} (was set to {})", change.path, change.old, change.new)?;
    }
    for change in &reaped.settings.gone {
        writeln!(out, "gone      {}: nothing to put back", change.path)?;
    }
    for left in &reaped.settings.left {
        writeln!(out, "left      {left}")?;
    }
    for name in &reaped.namespaces {
        writeln!(out, "removed   namespace {name}")?;
    }
    if reaped.is_empty() {
        writeln!(out, "nothing was left behind")?;
    }
    out.flush()?;
    Ok(exit)
}
