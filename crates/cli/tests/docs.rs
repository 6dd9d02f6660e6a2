//! The examples of the documentation are read, and what it lists is there.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::path::{Path, PathBuf};

use rxsteer_core::steer::{Class, Reason};
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

#[test]
fn reasons_and_classes_are_listed_as_they_are_spelt_in_every_output() {
    let text = document("docs/json-schema.md");
    let row =
        text.lines().find(|line| line.starts_with("| `reasons` | packets by reason")).unwrap();
    let lists: Vec<&str> = row.split('(').skip(1).map(|s| s.split(')').next().unwrap()).collect();
    let listed = |list: &str| -> Vec<String> {
        list.split(", ").map(|word| word.trim_matches('`').to_owned()).collect()
    };
    assert_eq!(listed(lists[0]), Reason::ALL.map(Reason::name));
    assert_eq!(listed(lists[1]), Class::ALL.map(Class::name));
    let words = Reason::ALL.map(Reason::name).into_iter().chain(Class::ALL.map(Class::name));
    for word in words {
        assert!(word.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{word}");
    }
}

/// clap breaks lines for the width of the terminal: a text that is broken already is broken twice.
#[test]
fn paragraphs_of_help_texts_are_not_broken() {
    fn look(command: &clap::Command, seen: &mut usize) {
        for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten()
        {
            let text = text.to_string();
            for paragraph in text.split("\n\n").filter(|text| !text.starts_with("Examples:")) {
                assert!(!paragraph.contains('\n'), "{}: {paragraph}", command.get_name());
                *seen += 1;
            }
        }
        command.get_subcommands().for_each(|verb| look(verb, seen));
    }
    let mut seen = 0;
    look(&<rxsteer::args::Cli as clap::CommandFactory>::command(), &mut seen);
    assert!(seen > 20, "{seen}");
}

/// A link to another file, or to a heading of it, leads there.
#[test]
fn every_relative_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    files.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|f| root.join(f)),
    );
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") || link.contains('\n') {
                continue;
            }
            seen += 1;
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.clone() } else { file.with_file_name(path) };
            let leads = target.exists()
                && (heading.is_empty() || headings(&target).iter().any(|this| this == heading));
            if !leads {
                wrong.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(seen > 40, "{seen}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the names that GitHub gives to the headings of a file.
fn headings(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept =
                title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
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
