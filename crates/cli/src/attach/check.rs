//! `attach --check`: what an attachment would meet.

use std::io::Write as _;

use rxsteer_kernel::{Finding, Settings, Weight, check_attachment};
use serde_json::{Value, json};

use super::keys_of;
use crate::Exit;
use crate::terminal::Terminal;

/// Version of the JSON form.
const SCHEMA_VERSION: u32 = 1;

/// Says what an attachment would meet.
pub(super) fn run(settings: &Settings, json: bool, terminal: &Terminal) -> anyhow::Result<Exit> {
    let findings = check_attachment(settings);
    let worst = findings.iter().map(|finding| finding.weight).max().unwrap_or(Weight::Fine);
    if json {
        let mut out = terminal.data();
        let settings: serde_json::Map<String, Value> =
            keys_of(settings).into_iter().map(|(key, value)| (key, value.into())).collect();
        let report = json!({
            "schema_version": SCHEMA_VERSION,
            "would_attach": worst < Weight::Blocks,
            "settings": settings,
            "findings": to_json(&findings),
        });
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
        out.flush()?;
    } else {
        let mut out = terminal.results();
        for finding in &findings {
            writeln!(out, "{:<5} {:<15} {}", word(finding.weight), finding.about, finding.text)?;
        }
        out.flush()?;
    }
    Ok(if worst == Weight::Blocks { Exit::Error } else { Exit::Fine })
}

/// Returns findings as a list of objects.
pub(super) fn to_json(findings: &[Finding]) -> Vec<Value> {
    let one = |finding: &Finding| json!({ "weight": finding.weight.name(), "about": finding.about, "text": finding.text });
    findings.iter().map(one).collect()
}

/// Returns a weight as people shall see it.
pub(super) fn word(weight: Weight) -> &'static str {
    match weight {
        Weight::Fine => "fine",
        Weight::Note => "note",
        Weight::Warns => "WARN",
        Weight::Blocks => "NO",
    }
}
