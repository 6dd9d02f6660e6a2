#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use rxsteer_bench::Cost;
use rxsteer_lab::experiment::Experiment;
use rxsteer_testbed::TestbedError;

use super::figures::{Figure, Row};
use super::*;

fn calibration(costs: &[(&'static str, u32)]) -> CalibrateReport {
    let costs = costs.iter().map(|&(name, ns)| Cost { name, ns, how: "a test" }).collect();
    // Being told takes long, so that few transactions fill the time of an experiment.
    let application = vec![
        Cost { name: "ready", ns: 50_000, how: "a test" },
        Cost { name: "send_udp", ns: 700, how: "a test" },
    ];
    CalibrateReport { costs, kept: Vec::new(), application, wakes: Vec::new() }
}

fn row(case: &str, policy: &'static str, measured: f64, offered: f64) -> Row {
    Row {
        case: case.into(),
        policy,
        what: "read",
        unit: "packets/s",
        measured: Figure {
            median: measured,
            low: measured,
            high: measured,
            values: vec![measured],
        },
        offered,
        more: Vec::new(),
        predicted: None,
        lab: Vec::new(),
        settings: Vec::new(),
    }
}

fn group(name: &'static str, rows: Vec<Row>) -> Group {
    let (experiment, warnings) = (String::new(), Vec::new());
    Group { name, title: "A title", about: "About \"it\".".into(), rows, experiment, warnings }
}

/// What fits is delivered, and of what does not fit as much as the reader can: 10 µs of work and 1 of
/// reading each.
#[test]
fn the_lab_says_what_a_reader_beside_packet_work_gets() {
    let rows =
        vec![row("1 x beside", "none", 1.0, 40_000.0), row("4 x beside", "none", 1.0, 160_000.0)];
    let mut group = group("reader", rows);
    let costs = [("read", 900), ("read_near", 100), ("take", 100), ("protocol_udp", 200)];
    predict::predict(&mut group, &calibration(&costs)).unwrap();
    let of = |index: usize| group.rows[index].predicted.unwrap();
    assert!((of(0) / 40_000.0 - 1.0).abs() < 0.02, "{}", of(0));
    assert!((of(1) * 11e-6 - 1.0).abs() < 0.03, "{}", of(1));
}

#[test]
fn every_group_has_an_experiment_that_the_lab_takes_and_a_value_for_each_row() {
    for (name, cases) in [
        ("tcp-rr", [("none", "none"), ("rps", "rps"), ("rfs", "rfs")]),
        ("udp-rr", [("none", "none"), ("rps", "rps"), ("rfs", "rfs")]),
        ("reader", [("1 x beside", "none"), ("1 x on it", "rps"), ("2 x on it", "rps")]),
        ("sockets", [("1 connected", "rps"), ("500 connected", "rps"), ("2 connected", "rps")]),
        ("unconnected", [("a", "rps"), ("b", "rps"), ("c", "rps")]),
    ] {
        let rows = cases.map(|(case, policy)| row(case, policy, 1.0, 20_000.0));
        let mut group = group(name, rows.into());
        predict::predict(&mut group, &calibration(&[("take", 100)])).unwrap();
        assert!(group.rows.iter().all(|row| row.predicted.unwrap() > 0.0), "{group:?}");
        let again = Experiment::from_toml(name, &group.experiment, &[]).unwrap();
        assert_eq!(again.name, format!("measured-{name}"));
    }
    assert_eq!(cases::ALL.map(|(name, _)| name).len(), 5);
}

#[test]
fn a_cause_stands_only_where_the_error_is_above_the_bound() {
    let mut near = row("500 connected", "rps", 100.0, 200.0);
    near.predicted = Some(120.0);
    let mut far = row("1 connected", "rps", 100.0, 200.0);
    far.predicted = Some(60.0);
    assert_eq!(near.error().map(|error| (error * 100.0).round()), Some(20.0));
    assert_eq!(far.error().map(|error| (error * 100.0).round()), Some(-40.0));
    let found = Found {
        host: HostFacts::read(),
        calibration: calibration(&[("take", 123)]),
        groups: vec![group("sockets", vec![near, far])],
        quick: false,
        repeats: 3,
        took: Duration::from_secs(1),
    };
    let page = page::markdown(&found);
    assert!(page.contains(
        "| sockets: 500 connected | rps | 100 packets/s [100 to 100] | 200 | 120 | +20 % |"
    ));
    assert!(page.contains("- 1 connected, -40 %: "), "{page}");
    assert!(!page.contains("- 500 connected"), "{page}");
    assert!(page.contains("| `take` | 123 |") && page.contains("3 runs"));
    let json: serde_json::Value = serde_json::from_str(&page::json(&found)).unwrap();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(
        json["groups"][0]["rows"][1]["error"].as_f64().map(|e| (e * 10.0).round()),
        Some(-4.0)
    );
    assert_eq!(json["calibration"]["costs"][0]["ns"], 123);
}

/// What is said of an error is what was counted: never a cause that nobody measured.
#[test]
fn an_error_is_explained_by_the_counts_of_both_sides() {
    let named = |name, median| figures::Named { name, unit: "each", median };
    let of = |live: f64, lab: f64| {
        let row = row("rps", "rps", 1.0, 0.0);
        let (more, lab) = (vec![named("signals", live)], vec![named("signals", lab)]);
        explain::cause(&Row { more, lab, ..row })
    };
    assert!(
        of(0.25, 0.50).contains("0.25 signals each here, 0.50 in the lab"),
        "{}",
        of(0.25, 0.5)
    );
    assert!(of(0.25, 0.50).starts_with("the two CPUs do not meet as often"));
    for (live, lab) in [(0.25, 0.29), (0.001, 0.04)] {
        assert!(of(live, lab).starts_with("the CPUs meet as often"), "{live}, {lab}");
    }
    assert!(explain::cause(&row("a", "none", 1.0, 0.0)).contains("open"));
}

/// Both ends of a transaction send, so the lab's counts of a packet are half of those of a transaction.
#[test]
fn the_lab_counts_signals_and_sleeps_of_a_transaction() {
    let mut group = group("udp-rr", vec![row("rfs", "rfs", 1.0, 0.0)]);
    let costs =
        [("signal_send", 3000), ("signal_reach", 2000), ("signal_take", 3000), ("idle_exit", 5000)];
    predict::predict(&mut group, &calibration(&costs)).unwrap();
    let of = |name| group.rows[0].lab.iter().find(|lab| lab.name == name).unwrap().median;
    // Only requests are sent to the other CPU, so there is no more than a signal for each.
    assert!(of("signals") > 0.0 && of("signals") <= 1.0, "{}", of("signals"));
    assert!(of("sleeps") > 0.0 && of("sleeps") <= 2.0, "{}", of("sleeps"));
}

/// Real packets, needs root: every group is measured and predicted, and all files are written.
#[test]
fn a_quick_run_measures_and_predicts_every_group() {
    match Testbed::new() {
        Ok(_) => {}
        Err(TestbedError::Privilege(missing)) => {
            eprintln!("skipped a_quick_run_measures_and_predicts_every_group: {missing}");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    if allowed_cpus().unwrap().count() < 2 {
        eprintln!("skipped a_quick_run_measures_and_predicts_every_group: it needs two CPUs");
        return;
    }
    let out = std::env::temp_dir().join(format!("rxsteer-measure-{}", std::process::id()));
    let args = Args { quick: true, out: Some(out.clone()), only: None, repeats: 1 };
    run(&args).unwrap();
    let json = std::fs::read_to_string(out.join("measured.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let groups = json["groups"].as_array().unwrap();
    assert_eq!(groups.len(), cases::ALL.len());
    for row in groups.iter().flat_map(|group| group["rows"].as_array().unwrap()) {
        assert!(row["measured"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["predicted"].as_f64().unwrap() > 0.0, "{row}");
    }
    let all = json["calibration"]["costs"].as_array().unwrap().len()
        + json["calibration"]["kept"].as_array().unwrap().len();
    assert_eq!(all, 26, "every cost of the model is measured or kept");
    let host = std::fs::read_to_string(out.join("measured/host.toml")).unwrap();
    rxsteer_lab::host::Host::from_toml("host.toml", &host).unwrap();
    let page = std::fs::read_to_string(out.join("measured.md")).unwrap();
    assert!(page.contains("A quick run"));
    std::fs::remove_dir_all(out).unwrap();
}
