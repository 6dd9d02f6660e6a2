//! What a file may say, and what is refused.

use super::*;

const FLOOD: &str = r#"name = "flood"
title = "A flood"
about = "Datagrams from everywhere."
duration = "10ms"
policies = ["rps", "flow-aware"]
show = ["received", "reordered"]

[host]
cpus = 4

[[traffic]]
kind = "udp-flood"
name = "flood"
per_second = 100_000
port = 9
"#;

fn read(text: &str) -> Result<Experiment, String> {
    Experiment::from_toml("f.toml", text, &[]).map_err(|error| error.to_string())
}

fn refused(text: &str) -> String {
    match read(text) {
        Ok(_) => panic!("this was taken:\n{text}"),
        Err(error) => error,
    }
}

#[test]
fn every_refusal_names_file_line_column_key_and_reason() {
    let with = |more: &str| format!("{FLOOD}{more}");
    let without = |key: &str| -> String {
        FLOOD.lines().filter(|line| !line.starts_with(key)).map(|l| format!("{l}\n")).collect()
    };
    let instead = |from: &str, to: &str| {
        assert!(FLOOD.contains(from));
        FLOOD.replace(from, to)
    };
    let cases = [
        // The shape.
        (with("prot = 1\n"), "f.toml:16:1: traffic.prot: unknown field `prot`"),
        (without("title"), "missing field `title`"),
        (without("duration"), "an experiment with traffic has a duration"),
        (
            instead("name = \"flood\"\ntitle", "name = \"a b\"\ntitle"),
            "f.toml:1:8: name: a name has",
        ),
        (instead("\"10ms\"", "\"10\""), "f.toml:4:12: duration: `10`"),
        (instead("\"10ms\"", "\"2000m\""), "f.toml:4:12: duration: allowed are 1ns to 60m"),
        (instead("\"rps\"", "\"rsp\""), "f.toml:5:13: policies: `rsp`: no such policy"),
        (instead("\"rps\", \"flow-aware\"", ""), "f.toml:5:12: policies: one policy"),
        (instead("\"reordered\"", "\"speed\""), "f.toml:6:21: show: `speed`: allowed are received"),
        // Impossible hosts.
        (instead("cpus = 4", "cpus = 0"), "f.toml:9:8: host.cpus: 0 CPUs: allowed are 1 to 4096"),
        (instead("cpus = 4", "cpus = 4\nqueues = 9999"), "f.toml:10:10: host.queues"),
        (instead("cpus = 4", "cpus = 4\nonline = \"9\""), "f.toml:10:10: host.online"),
        (instead("cpus = 4", "cpus = 4\nsockets = 2"), "f.toml:10:1: host.sockets: unknown field"),
        (with("[[consumer]]\ncpus = \"7\"\n"), "the CPUs of the host (0-3)"),
        (with("[[event]]\nat = \"1ms\"\noffline = 9\n"), "CPU 9 does not exist"),
        (
            with("[[event]]\nat = \"10ms\"\noffline = 1\n"),
            "f.toml:17:6: event.at: is not before the end",
        ),
        (
            instead("cpus = 4", "cpus = 1") + "[[event]]\nat = \"1ms\"\noffline = 0\n",
            "17:6: event.at: CPU 0 is the last",
        ),
        (
            instead("cpus = 4", "cpus = 4\n[host.overload]\nfair = true"),
            "f.toml:11:8: host.overload.fair: needs shed = true",
        ),
        (
            instead("cpus = 4", "cpus = 4\noverload = { in_flight = true, spill = true }"),
            "f.toml:10:26: host.overload: needs shed = true",
        ),
        (instead("[host]\ncpus = 4", "[[host]]\ncpus = 4"), "list, expected a table"),
        (
            instead("cpus = 4", "cpus = 4\ntables = [1024, 64]"),
            "f.toml:10:10: host.tables: invalid",
        ),
        // Traffic that cannot be.
        (without("port"), "f.toml:12:8: traffic.kind: traffic of kind `udp-flood` needs `port`"),
        (instead("udp-flood", "upd-flood"), "f.toml:12:8: traffic.kind: `upd-flood`: allowed are"),
        (
            with("flows = 3\n"),
            "f.toml:16:9: traffic.flows: `flows` says nothing of traffic of kind",
        ),
        (with("start = \"20ms\"\n"), "f.toml:16:9: traffic.start: is after the end"),
        (
            with("[[traffic]]\nkind = \"dns\"\nname = \"flood\"\nper_second = 1\nport = 53\n"),
            "f.toml:18:8: traffic.name: is the name of traffic before it",
        ),
        (with("stop = \"0ns\"\n"), "f.toml:16:8: traffic.stop: stops before it starts"),
        (with("bytes = 100_000\n"), "f.toml:16:9: traffic.bytes: 100000: allowed are 0 to 9000"),
        // Absurd sizes.
        (instead("100_000", "999_999_999"), "f.toml:14:14: traffic.per_second: 999999999: allowed"),
        (instead("\"10ms\"", "\"60m\""), "packets in one run: allowed are 50000000"),
        // Cases, sweeps, figures.
        (
            with("[[case]]\nname = \"a\"\nset = { \"host.cpu\" = 1 }\n"),
            "f.toml:17:8: case.name: with",
        ),
        (with("[[case]]\nname = \"\"\n"), "f.toml:17:8: case.name: one line is allowed"),
        (with("[[case]]\nname = \"a\\nb\"\n"), "f.toml:17:8: case.name: one line is allowed"),
        (instead("\"A flood\"", "\"A\\nflood\""), "f.toml:2:9: title: one line is allowed"),
        (
            with("[sweep]\nkey = \"host.cpus\"\nlabel = \"CPUs\"\nvalues = [2, 4, 2]\n"),
            "f.toml:19:17: sweep.values: 2 is swept twice",
        ),
        (
            with("[[claim]]\nwhat = \"w\"\nmeasure = \"read\"\nof = \"all/rps\"\nat_most = nan\n"),
            "f.toml:20:11: claim.at_most: NaN: allowed are numbers",
        ),
        (
            with(
                "[[claim]]\nwhat = \"w\"\nmeasure = \"read\"\nof = \"all/rps\"\nat_least = 2\nat_most = 1\n",
            ),
            "f.toml:21:11: claim.at_most: nothing is at least 2 and at most 1",
        ),
        (with("[[case]]\nname = \"a/b\"\n"), "f.toml:17:8: case.name: the name of a case"),
        (with("[[case]]\nname = \"a\"\n[[case]]\nname = \"a\"\n"), "f.toml:19:8: case.name"),
        (
            with("[sweep]\nkey = \"host.cpus\"\nlabel = \"CPUs\"\nvalues = [2, 0]\n"),
            "f.toml:19:10: sweep.values: with the values of `0`: host.cpus: 0 CPUs",
        ),
        (
            with("[sweep]\nkey = \"traffic.x.port\"\nlabel = \"port\"\nvalues = [2]\n"),
            "f.toml:17:7: sweep.key: `traffic.x.port`: `traffic` has no element x",
        ),
        (
            with("[[claim]]\nwhat = \"w\"\nmeasure = \"read\"\nof = \"all/rfs\"\nat_most = 1\n"),
            "f.toml:19:6: claim.of: case `all` does not run the policy `rfs`",
        ),
        (
            with("[[claim]]\nwhat = \"w\"\nmeasure = \"read\"\nof = \"all/rps\"\n"),
            "a claim has at_least, at_most or both",
        ),
        (
            with("[[plot]]\ntitle = \"p\"\nmeasure = \"read\"\nform = \"lines\"\n"),
            "f.toml:19:8: plot.form: lines need a [sweep]",
        ),
    ];
    for (text, part) in &cases {
        let message = refused(text);
        assert!(message.contains(part), "{message}\nlacks {part}");
        assert!(message.starts_with("f.toml"), "{message}");
    }
    let no_traffic = FLOOD.split("[[traffic]]").next().unwrap();
    assert!(refused(no_traffic).contains("one [[traffic]] table at least"));
}

#[test]
fn memory_and_work_are_bounded_before_anything_runs() {
    let large =
        FLOOD.replace("cpus = 4", "cpus = 4\n[host.tables]\nrps_sock_flow_entries = 400000000");
    let message = refused(&large);
    assert!(message.contains("bytes of memory: allowed are 4294967296"), "{message}");
    let long = FLOOD.replace("\"10ms\"", "\"400s\"")
        + "[sweep]\nkey = \"traffic.flood.port\"\nlabel = \"port\"\nvalues = [";
    let values: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    let message = refused(&format!("{long}{}]\n", values.join(", ")));
    assert!(message.contains("packets in 100 runs"), "{message}");
    let values: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
    let message = refused(&format!("{long}{}]\n", values.join(", ")));
    assert!(message.contains("200 runs: allowed are 128"), "{message}");
}

#[test]
fn a_setting_takes_the_place_of_a_value_and_is_told() {
    let settings: Vec<Setting> =
        ["host.cpus=2", "traffic.flood.per_second=1000"].map(|s| s.parse().unwrap()).into();
    let experiment = Experiment::from_toml("f.toml", FLOOD, &settings).unwrap();
    assert_eq!(experiment.size().packets, 2 * 10);
    let (report, whole) =
        run(&experiment, 0, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(whole);
    assert_eq!(report.settings, ["host.cpus=2", "traffic.flood.per_second=1000"]);
    assert!(report.value("cpus_used", "all/rps").unwrap() <= 2.0);
    let error = Experiment::from_toml("f.toml", FLOOD, &["host.cpu=2".parse().unwrap()]);
    let message = error.unwrap_err().to_string();
    assert!(message.starts_with("f.toml with host.cpu=2:"), "{message}");
    assert!(message.contains("unknown field `cpu`"), "{message}");
}

#[test]
fn what_is_read_after_the_end_is_in_no_rate() {
    // A reader that needs 10 us a packet is through with 1,000 in 10 ms; the rest it reads later.
    let text = FLOOD.replace("100_000", "200_000")
        + "[[consumer]]\ncpus = \"3\"\nwork_ns = 10_000\nconnected = false\n";
    let (report, _) =
        run(&read(&text).unwrap(), 0, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    for policy in ["rps", "flow-aware"] {
        let of = |measure: &str| report.value(measure, &format!("all/{policy}")).unwrap();
        assert!(of("read_per_s") * 0.01 <= 1000.0, "{policy}: {}", of("read_per_s"));
        assert!(of("read_per_s") * 0.01 > 500.0, "{policy}: {}", of("read_per_s"));
        assert!(of("read") > of("read_per_s") * 0.01 + 10.0, "{policy}: {}", of("read"));
    }
}

#[test]
fn a_run_that_is_stopped_keeps_its_whole_cases() {
    let text = format!("{FLOOD}[[case]]\nname = \"a\"\n[[case]]\nname = \"b\"\n");
    let experiment = read(&text).unwrap();
    let mut seen = Vec::new();
    let (report, whole) = run(&experiment, 0, &mut |event| {
        if let Event::Case { number, name } = event {
            seen.push((number, name.to_owned()));
            if number == 1 {
                return std::ops::ControlFlow::Break(());
            }
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!(!whole);
    assert_eq!(seen, [(0, "a".to_owned()), (1, "b".to_owned())]);
    assert_eq!((report.cases.len(), report.planned_runs), (1, 2));
}

#[test]
fn every_shipped_experiment_is_right_and_has_the_name_of_its_file() {
    for shipped in SHIPPED {
        let experiment = Experiment::from_toml(shipped.name, shipped.text, &[])
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(experiment.name, shipped.name);
        assert!(!experiment.claims.is_empty(), "{}", shipped.name);
        let size = experiment.size();
        assert!(size.bytes < 2 << 30, "{}: {size:?}", shipped.name);
    }
}
