//! `bench restore`: what killed runs left is put back and removed.

use std::io::Write as _;

use rxsteer_testbed::{Reaped, reap};
use serde_json::{Value, json};

use super::args::FormArgs;
use super::output::{Form, Output};
use crate::Exit;
use crate::terminal::Terminal;

/// Puts back and removes, and tells what.
pub(super) fn run(form: FormArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let reaped = reap()?;
    let output = Output::new("restore", form);
    let is_done = reaped.settings.left.is_empty() && reaped.namespaces_left.is_empty();
    let exit = if is_done { Exit::Fine } else { Exit::Error };
    if let Form::Json { .. } = output.form {
        output.json(
            terminal,
            &[],
            json!({
                "namespaces": reaped.namespaces,
                "namespaces_left": namespaces_left(&reaped),
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
    for (name, why) in &reaped.namespaces_left {
        writeln!(out, "left      namespace {name}: {why}")?;
    }
    if reaped.is_empty() {
        writeln!(out, "nothing was left behind")?;
    }
    out.flush()?;
    Ok(exit)
}

fn namespaces_left(reaped: &Reaped) -> Vec<Value> {
    let each = |(name, why): &(String, String)| json!({ "name": name, "error": why });
    reaped.namespaces_left.iter().map(each).collect()
}
