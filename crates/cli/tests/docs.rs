//! The examples of the documentation are read, and what it lists is there.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::path::Path;

use rxsteer_lab::consumer::Scenario;
use rxsteer_lab::experiment::{Experiment, MEASURES, SHIPPED};
use rxsteer_lab::host::Host;
use serde_json::Value;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Returns the fenced blocks with this heading.
fn blocks(text: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_toml_of_the_reference_is_read() {
    let text = document("docs/replay.md");
    let hosts = blocks(&text, "toml host");
    assert_eq!(hosts.len(), 1);
    let host = Host::from_toml("docs/replay.md", &hosts[0]).unwrap();
    assert_eq!((host.queues.len(), host.cpus.possible.count()), (2, 16));
    let consumers = blocks(&text, "toml consumers");
    assert_eq!(consumers.len(), 1);
    let scenario = Scenario::from_toml("docs/replay.md", &consumers[0], &host).unwrap();
    assert_eq!((scenario.consumers.len(), scenario.events.len()), (3, 5));
}

#[test]
fn the_experiment_of_the_reference_is_read_and_its_measures_are_listed() {
    let text = document("docs/lab.md");
    let files = blocks(&text, "toml experiment");
    assert_eq!(files.len(), 1);
    let experiment = Experiment::from_toml("docs/lab.md", &files[0], &[]).unwrap();
    assert_eq!(experiment.size().runs, 2);
    for measure in MEASURES {
        let row = format!("| `{}` | {} | {} |", measure.name, measure.unit, measure.meaning);
        assert!(text.contains(&row), "{row}");
    }
}

#[test]
fn every_part_and_row_that_an_experiment_names_is_in_the_list() {
    let text = document("docs/lab.md");
    let (_, list) = text.split_once("## Where the published figures are from").unwrap();
    let list = list.split("\n## ").next().unwrap();
    let mut named = 0;
    for shipped in SHIPPED {
        let sources = shipped.text.lines().filter(|line| {
            line.starts_with("reproduces = \"part") || line.starts_with("source = \"part")
        });
        for line in sources {
            let words: Vec<&str> = line.split(|c: char| !c.is_ascii_alphanumeric()).collect();
            let part = words[words.iter().position(|word| *word == "part").unwrap() + 1];
            assert!(list.contains(&format!("| {part} |")), "{}: {line}", shipped.name);
            for row in words.iter().filter(|word| {
                word.starts_with(part) && word.len() > 1 && word[1..].parse::<u8>().is_ok()
            }) {
                assert!(list.contains(&format!("{row}: ")), "{}: {line}", shipped.name);
                named += 1;
            }
        }
    }
    assert!(named >= 15, "{named}");
}

#[test]
fn every_key_of_the_json_of_experiments_is_documented() {
    let text = document("docs/lab.md");
    let said = common::rxsteer("lab run -q --json idle-tcp --set duration=210ms");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let one = &report["experiments"][0];
    let mut missing = Vec::new();
    let case = &one["cases"][0];
    let parts = [&report, one, case, &case["policies"][0], &one["figures"][0], &one["claims"][0]];
    for object in parts {
        for key in object.as_object().unwrap().keys() {
            if !text.contains(&format!("`{key}`")) && !text.contains(&format!("].{key}`")) {
                missing.push(key.clone());
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_costs_of_the_reference_are_the_defaults() {
    let text = document("docs/replay.md");
    let host = Host::from_toml("docs/replay.md", &blocks(&text, "toml host")[0]).unwrap();
    assert_eq!(host.costs, Host::simple(1, 1).unwrap().costs);
    assert_eq!(host.limits, Host::simple(1, 1).unwrap().limits);
}

#[test]
fn every_row_of_the_comparison_is_explained() {
    let text = document("docs/replay.md");
    let said = common::rxsteer("replay -v -p none");
    let table = said.out.split("\nComparison\n").nth(1).unwrap();
    let table = table.split("\nPackets processed").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("  "));
    let rows: Vec<&str> = rows.filter(|r| !r.starts_with(' ')).collect();
    assert!(rows.len() > 30, "{rows:?}");
    for row in rows {
        let label = row.split("  ").next().unwrap();
        assert!(text.contains(&format!("`{label}`")), "{label}");
    }
}

#[test]
fn every_key_of_the_json_is_documented() {
    let text = document("docs/json-schema.md");
    let report = common::rxsteer("replay --json --sweep table-entries=256");
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let line = common::rxsteer("flows --json sample.pcapng.zst");
    let line: Value = serde_json::from_str(line.out.lines().next().unwrap()).unwrap();
    let mut missing = Vec::new();
    for object in [&report, &report["policies"][0], &report["input"], &report["settings"], &line] {
        for key in object.as_object().unwrap().keys() {
            let quantile = key.starts_with('p') && key.ends_with("_ns");
            if !quantile && !text.contains(&format!("`{key}`")) {
                missing.push(key.clone());
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// Run with `RXSTEER_UPDATE=1` to write the lines of today into the README.
#[test]
fn the_excerpt_of_the_readme_is_what_the_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let excerpt = blocks(&readme, "text").remove(0);
    let printed = common::rxsteer("replay").out;
    let label = |line: &str| line.chars().take(22).collect::<String>();
    let today: String = excerpt
        .lines()
        .map(|line| {
            let same = |printed: &&str| label(printed) == label(line);
            printed.lines().find(same).unwrap_or("(gone)").to_owned() + "\n"
        })
        .collect();
    if std::env::var_os("RXSTEER_UPDATE").is_some() {
        std::fs::write(&path, readme.replace(&excerpt, &today)).unwrap();
    } else {
        assert_eq!(excerpt, today, "run RXSTEER_UPDATE=1 cargo test -p rxsteer --test docs");
    }
}
