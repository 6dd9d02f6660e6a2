//! The tables of an experiment: one of all measures where it has one case, otherwise one a measure
//! with a row a case.

use std::fmt::Write as _;

use rxsteer_lab::experiment::{ExperimentReport, Measure};

use super::super::numbers::{bytes, count, percent};

/// A table: a heading of policies, rows of a label and cells.
pub(super) struct Table {
    /// What it shows; empty where the rows say it.
    pub(super) title: String,
    pub(super) policies: Vec<String>,
    pub(super) rows: Vec<(String, Vec<String>)>,
}

/// Returns the tables of an experiment.
pub(super) fn tables(report: &ExperimentReport) -> Vec<Table> {
    let mut policies: Vec<String> = Vec::new();
    for policy in report.cases.iter().flat_map(|case| &case.policies) {
        if !policies.contains(&policy.policy) {
            policies.push(policy.policy.clone());
        }
    }
    let cells = |case: &str, measure: &str| -> Vec<String> {
        policies
            .iter()
            .map(|policy| {
                let value = report.value(measure, &format!("{case}/{policy}"));
                value.map_or_else(String::new, |value| shown(measure, value))
            })
            .collect()
    };
    match report.cases.as_slice() {
        [] => Vec::new(),
        [only] => vec![Table {
            title: String::new(),
            rows: report
                .show
                .iter()
                .map(|measure| (measure.clone(), cells(&only.case, measure)))
                .collect(),
            policies,
        }],
        cases => report
            .show
            .iter()
            .map(|measure| Table {
                title: title(measure),
                policies: policies.clone(),
                rows: cases
                    .iter()
                    .map(|case| (case.case.clone(), cells(&case.case, measure)))
                    .collect(),
            })
            .collect(),
    }
}

fn title(measure: &str) -> String {
    let meaning = Measure::named(measure).map_or("", |measure| measure.meaning);
    format!("{measure}: {meaning}")
}

/// Returns a value of a measure as people read it.
pub(super) fn shown(measure: &str, value: f64) -> String {
    let unit = Measure::named(measure).map_or("", |measure| measure.unit);
    match unit {
        "share" => percent(value),
        "us" => format!("{value:.1} us"),
        "ns" => format!("{value:.0} ns"),
        "bytes" => bytes(value as u64),
        "1/s" if value < 1000.0 => format!("{value:.1}"),
        "factor" | "per packet" => format!("{value:.2}"),
        _ if value.fract() == 0.0 || value >= 1000.0 => count(value.round() as u64),
        _ => format!("{value:.2}"),
    }
}

/// Returns a ratio or a value beside the published one, as people read it.
pub fn figure(measure: &str, ratio: bool, value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if ratio => format!("{value:.2} x"),
        Some(value) => shown(measure, value),
    }
}

/// Returns the tables of an experiment as Markdown.
pub fn markdown(report: &ExperimentReport) -> String {
    let mut text = String::new();
    for table in tables(report) {
        if !table.title.is_empty() {
            let (name, meaning) = table.title.split_once(": ").unwrap_or((&table.title, ""));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "`{name}`: {meaning}\n");
        }
        let _ = writeln!(text, "| | {} |", table.policies.join(" | "));
        let _ = writeln!(text, "| --- |{}", " ---: |".repeat(table.policies.len()));
        for (label, cells) in table.rows {
            let label = if table.title.is_empty() { format!("`{label}`") } else { label };
            let _ = writeln!(text, "| {label} | {} |", cells.join(" | "));
        }
        text.push('\n');
    }
    text
}
