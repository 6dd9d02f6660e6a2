//! The verb `lab`, as a user meets it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{rxsteer, rxsteer_in, scratch};
use serde_json::Value;

const SMALL: &str =
    "lab run mask-change --set duration=20ms --set event=[] --set consumer.0.migrate=[]";

#[test]
fn the_list_names_every_experiment_and_show_prints_a_file_that_runs() {
    let list = rxsteer("lab list --json");
    assert_eq!((list.code, list.err.as_str()), (0, ""));
    let list: Value = serde_json::from_str(&list.out).unwrap();
    assert_eq!(list["schema_version"], 1);
    let text = rxsteer("lab list").out;
    for experiment in list["experiments"].as_array().unwrap() {
        let name = experiment["name"].as_str().unwrap();
        assert!(text.contains(name), "{name}");
        assert!(experiment["runs"].as_u64().unwrap() > 0);
        assert!(rxsteer(&format!("lab show {name}")).out.contains(&format!("name = \"{name}\"")));
    }
    let dir = scratch("lab-show");
    std::fs::write(dir.join("mine.toml"), rxsteer("lab show mask-change").out).unwrap();
    let words = [
        "lab",
        "run",
        "mine.toml",
        "-q",
        "--json",
        "--set",
        "duration=5ms",
        "--set",
        "event=[]",
        "--set",
        "consumer=[]",
    ];
    let said = rxsteer_in(&dir, &words, &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["experiments"][0]["name"], "mask-change");
}

#[test]
fn a_run_is_shown_as_text_json_csv_and_a_page_and_says_its_memory_first() {
    let text = rxsteer(SMALL);
    assert_eq!(text.code, 0, "{}", text.err);
    assert!(text.err.contains("of memory"), "{}", text.err);
    assert!(text.out.contains("What it must show"), "{}", text.out);
    assert!(text.out.lines().all(|line| line.chars().count() <= 100));
    assert_eq!(rxsteer(&format!("{SMALL} -q")).err, "");
    let json = rxsteer(&format!("{SMALL} --json")).out;
    assert_eq!(json, rxsteer(&format!("{SMALL} --json")).out);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["schema_version"], 1);
    let csv = rxsteer(&format!("{SMALL} --csv")).out;
    assert_eq!(csv.lines().next(), Some("experiment,case,x,policy,measure,value"));
    let page = rxsteer(&format!("{SMALL} --html -")).out;
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.contains("<svg") && page.ends_with("</html>\n")
    );
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_runs() {
    let unknown = rxsteer("lab run mask-change livelok");
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
    assert!(unknown.err.contains("`livelok`: no such experiment; there are"), "{}", unknown.err);
    let key = rxsteer("lab run mask-change --set host.cpu=3");
    assert_eq!((key.code, key.out.as_str()), (1, ""));
    assert!(key.err.contains("unknown field `cpu`"), "{}", key.err);
    assert_eq!(rxsteer("lab run mask-change --set cpus").code, 2);
    assert_eq!(rxsteer("lab run").code, 2);
    assert_eq!(rxsteer("lab run missing.toml").code, 1);
    let dir = scratch("lab-refused");
    std::fs::write(dir.join("bad.toml"), "name = \"x\"\ntitel = 1\n").unwrap();
    let bad = rxsteer_in(&dir, &["lab", "run", "mask-change", "bad.toml"], &[]);
    assert_eq!((bad.code, bad.out.as_str()), (1, ""));
    assert!(bad.err.contains("bad.toml:2:1: titel: unknown field `titel`"), "{}", bad.err);
}

#[test]
fn check_fails_where_a_claim_does_not_hold() {
    // Without events nothing moves, so RPS reorders nothing, though the file says that it does.
    assert_eq!(rxsteer(&format!("{SMALL} --check -q")).code, 1);
    assert!(rxsteer(&format!("{SMALL} -q")).out.contains("does not hold"));
}
