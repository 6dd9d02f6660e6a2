//! The page and its JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rxsteer::render::numbers::count;
use serde_json::{Value, json};

use super::Found;
use super::explain::{BOUND, cause};
use super::figures::{Group, Row};

/// Version of the JSON form.
const SCHEMA_VERSION: u32 = 1;

const HEAD: &str = "\
# Measured: this host, and what the lab says of it

Made by `cargo run --release -p xtask -- measure` as root; do not edit. Real packets through the running
kernel over a veth pair, in the situations that were published ([experiments.md](experiments.md) has the
published figures): the receive set-ups run in turn, again and again, and the median is shown with the lowest
and the highest. Beside it the same case in the lab, with the costs that `rxsteer bench calibrate` measured just
before on this host. A prediction is made of what was sent, of the CPUs and of these costs, and nothing in it
is fitted to a case. The experiments are in [measured/](measured), the figures of each run in
[measured.json](measured.json).

";

pub(super) fn markdown(found: &Found) -> String {
    let mut page = HEAD.to_owned();
    facts(&mut page, found);
    page.push_str(
        "| case | set-up | measured: median [lowest to highest] | sent | lab | error |\n\
         | --- | --- | ---: | ---: | ---: | ---: |\n",
    );
    for group in &found.groups {
        for row in &group.rows {
            line(&mut page, group, row);
        }
    }
    page.push('\n');
    for group in &found.groups {
        section(&mut page, group);
    }
    steps(&mut page, found);
    page.trim_end().to_owned() + "\n"
}

fn facts(page: &mut String, found: &Found) {
    let host = &found.host;
    let virtual_machine = if host.is_virtual { ", a virtual machine" } else { "" };
    let _ = writeln!(
        page,
        "Host: {}, {}, {}{virtual_machine}, CPUs {}; {} of each set-up, in {:.0} s altogether.\n",
        host.kernel,
        host.machine,
        host.cpu_model,
        host.online,
        rxsteer::render::numbers::plural(u64::from(found.repeats), "run"),
        found.took.as_secs_f64(),
    );
    let mut settings = BTreeSet::new();
    for change in found.groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.settings) {
        settings.insert(format!("`{}` = {}", change.path, change.new));
    }
    let settings: Vec<String> = settings.into_iter().collect();
    let _ = writeln!(
        page,
        "Settings made for some of the runs, and put back: {}.\n",
        if settings.is_empty() { "none".into() } else { settings.join(", ") }
    );
    if found.quick {
        page.push_str(
            "**A quick run, to see whether the command works: the figures say little.**\n\n",
        );
    }
    let mut warnings: Vec<&String> = found.groups.iter().flat_map(|g| &g.warnings).collect();
    warnings.sort();
    warnings.dedup();
    for warning in warnings {
        let _ = writeln!(page, "- {warning}");
    }
    page.push('\n');
}

fn line(page: &mut String, group: &Group, row: &Row) {
    let whole = |value: f64| count(value.round() as u64);
    let _ = writeln!(
        page,
        "| {}: {} | {} | {} {} [{} to {}] | {} | {} | {} |",
        group.name,
        row.case,
        row.policy,
        whole(row.measured.median),
        row.unit,
        whole(row.measured.low),
        whole(row.measured.high),
        if row.offered > 0.0 { whole(row.offered) } else { "-".into() },
        row.predicted.map_or("-".into(), whole),
        percent(row),
    );
}

fn percent(row: &Row) -> String {
    row.error().map_or("-".into(), |error| format!("{:+.0} %", error * 100.0))
}

fn section(page: &mut String, group: &Group) {
    let _ = writeln!(page, "## {}\n\n{}\n", group.title, group.about);
    page.push_str("| case | figure | median | lab |\n| --- | --- | ---: | ---: |\n");
    let places = |value: f64| if value < 10.0 { 3 } else { 1 };
    for row in &group.rows {
        for figure in &row.more {
            let lab = row.lab.iter().find(|lab| lab.name == figure.name);
            let lab =
                lab.map_or("-".into(), |lab| format!("{:.*}", places(lab.median), lab.median));
            let _ = writeln!(
                page,
                "| {} | {} | {:.*} {} | {lab} |",
                row.case,
                figure.name,
                places(figure.median),
                figure.median,
                figure.unit
            );
        }
    }
    page.push('\n');
    for row in &group.rows {
        if row.error().is_some_and(|error| error.abs() > BOUND) {
            let _ = writeln!(page, "- {}, {}: {}", row.case, percent(row), cause(row));
        }
    }
    page.push('\n');
}

fn steps(page: &mut String, found: &Found) {
    page.push_str("## The costs\n\n| cost | ns | how |\n| --- | ---: | --- |\n");
    for cost in &found.calibration.costs {
        let _ = writeln!(page, "| `{}` | {} | {} |", cost.name, cost.ns, cost.how);
    }
    for kept in &found.calibration.kept {
        let _ = writeln!(page, "| `{}` | {} | the default: {} |", kept.name, kept.ns, kept.why);
    }
    page.push_str(
        "\nWhat applications spend, which the experiments of requests and responses have as their work:\n\n\
         | step | ns | how |\n| --- | ---: | --- |\n",
    );
    for cost in &found.calibration.application {
        let _ = writeln!(page, "| `{}` | {} | {} |", cost.name, cost.ns, cost.how);
    }
}

pub(super) fn json(found: &Found) -> String {
    let group = |group: &Group| {
        let mut value = json!(group);
        for (index, row) in group.rows.iter().enumerate() {
            value["rows"][index]["error"] = json!(row.error());
        }
        value
    };
    let value = json!({
        "schema_version": SCHEMA_VERSION,
        "generator": concat!("rxsteer ", env!("CARGO_PKG_VERSION")),
        "verb": "measure",
        "quick": found.quick,
        "repeats": found.repeats,
        "host": found.host,
        "calibration": found.calibration,
        "groups": found.groups.iter().map(group).collect::<Vec<Value>>(),
    });
    serde_json::to_string_pretty(&value).expect("plain values can be written") + "\n"
}
