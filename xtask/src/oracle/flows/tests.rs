//! The oracle itself: what it makes of tables and captures that are not as they should be, and the
//! corpus where one is at hand.

use std::fs;
use std::path::PathBuf;

use super::exceptions::Exceptions;
use super::{Outcome, compare};

/// A folder with one capture of UDP datagrams with these source ports, and a table.
fn folder(name: &str, ports: &[u16], table: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("rxsteer-oracle-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let mut capture = Vec::from(0xa1b2_c3d4_u32.to_le_bytes());
    capture.extend([2, 0, 4, 0]);
    capture.extend([0, 0, 65_535, 1].map(u32::to_le_bytes).as_flattened());
    for port in ports {
        capture.extend([0, 0, 42, 42].map(u32::to_le_bytes).as_flattened());
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([192, 0, 2, 1, 198, 51, 100, 1]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 53, 0, 8, 0, 0]);
        capture.extend(frame);
    }
    fs::write(dir.join("a.pcap"), capture).unwrap();
    fs::write(dir.join("flows.tsv"), table).unwrap();
    dir
}

const HEAD: &str = "capture\tpkt\tlinktype\tcaplen\twirelen\thanded\tkflow\tkl4\tkvia\tlayers\tvlan\tvlan_in\ttunnel\to_src\to_dst\to_proto\to_sport\to_dport\to_frag\to_mf\to_label\ti_src\ti_dst\ti_proto\ti_sport\ti_dport\ti_frag\ti_mf\ti_label\ticmp\tt_note";

/// A line of the table for packet `number` from `port` in the kernel's flow `flow`.
fn line(number: u32, port: u16, flow: i32) -> String {
    let ip = format!("192.0.2.1\t198.51.100.1\t17\t{port}\t53\t0\t0\t-");
    format!(
        "a.pcap\t{number}\t1\t42\t42\tasis\t{flow}\t1\trun\teth:ip:udp\t-\t-\t-\t{ip}\t{ip}\t-\t-"
    )
}

fn run(name: &str, ports: &[u16], lines: &[String]) -> anyhow::Result<Outcome> {
    let dir = folder(name, ports, &format!("{HEAD}\n{}\n", lines.join("\n")));
    let outcome = compare(&dir, &Exceptions::default());
    fs::remove_dir_all(&dir).unwrap();
    outcome
}

#[test]
fn two_flows_and_one_flow_twice_pass() {
    let lines = [line(1, 1000, 1), line(2, 2000, 2), line(3, 1000, 1)];
    let outcome = run("pass", &[1000, 2000, 1000], &lines).unwrap();
    assert_eq!((outcome.passed, outcome.failed), (3, 0), "{:?}", outcome.lines);
}

#[test]
fn a_flow_that_the_kernel_splits_fails() {
    let outcome = run("split", &[1000, 1000], &[line(1, 1000, 1), line(2, 1000, 2)]).unwrap();
    assert_eq!((outcome.passed, outcome.failed), (1, 1));
    assert!(outcome.lines[0].contains("packet 2 kflow"), "{:?}", outcome.lines);
}

#[test]
fn flows_that_the_kernel_merges_fail() {
    let outcome = run("merge", &[1000, 2000], &[line(1, 1000, 1), line(2, 2000, 1)]).unwrap();
    assert_eq!((outcome.passed, outcome.failed), (1, 1));
    assert!(outcome.lines[0].contains("packet 2 kflow"), "{:?}", outcome.lines);
}

#[test]
fn no_hash_and_a_random_hash_are_told_from_flows() {
    for flow in [0, -1] {
        let outcome = run("kinds", &[1000], &[line(1, 1000, flow)]).unwrap();
        assert_eq!((outcome.passed, outcome.failed), (0, 1), "{flow}");
    }
}

#[test]
fn another_port_in_the_table_fails_in_its_column() {
    let outcome = run("port", &[1000], &[line(1, 1001, 1)]).unwrap();
    assert_eq!(outcome.failed, 1);
    assert!(outcome.lines[0].contains("o_sport: ours 1000, theirs 1001"), "{:?}", outcome.lines);
}

#[test]
fn packets_that_only_one_side_has_fail() {
    let more = run("fewer", &[1000], &[line(1, 1000, 1), line(2, 1000, 1)]).unwrap();
    assert_eq!((more.passed, more.failed), (1, 1));
    let fewer = run("more", &[1000, 1000], &[line(1, 1000, 1)]).unwrap();
    assert_eq!((fewer.passed, fewer.failed), (1, 1));
}

#[test]
fn a_missing_capture_fails_its_packets_and_no_others() {
    let missing = line(1, 1000, 1).replace("a.pcap", "b.pcap");
    let outcome = run("missing", &[1000], &[missing, line(1, 1000, 1)]).unwrap();
    assert_eq!((outcome.passed, outcome.failed), (1, 1), "{:?}", outcome.lines);
}

#[test]
fn a_table_with_a_fault_is_an_error_that_names_its_line() {
    let cases: [(&str, String, &str); 7] = [
        ("column", HEAD.replace("\tkflow", "\tother"), "column kflow"),
        ("fields", format!("{HEAD}\na.pcap\t1"), "flows.tsv:2: 2 fields"),
        ("number", format!("{HEAD}\n{}", line(0, 1, 1)), "flows.tsv:2: pkt is \"0\""),
        ("order", format!("{HEAD}\n{}\n{}", line(1, 1, 1), line(3, 1, 1)), "flows.tsv:3: pkt is 3"),
        ("twice", format!("{HEAD}\n{}\n{}", line(1, 1, 1), line(1, 1, 1)), "second time"),
        ("empty", HEAD.into(), "no packets"),
        ("outside", format!("{HEAD}\n../{}", line(1, 1, 1)), "leaves the folder"),
    ];
    for (name, table, expected) in cases {
        let dir = folder(name, &[1], &table);
        let error = compare(&dir, &Exceptions::default()).unwrap_err();
        fs::remove_dir_all(&dir).unwrap();
        assert!(format!("{error:#}").contains(expected), "{name}: {error:#}");
    }
}

#[test]
fn a_field_that_is_no_number_fails_with_its_line() {
    let bad = line(1, 1000, 1).replace("asis", "eth:zz");
    let outcome = run("handed", &[1000], &[bad]).unwrap();
    assert_eq!((outcome.passed, outcome.failed), (0, 1));
    assert!(outcome.lines[0].contains("flows.tsv:2"), "{:?}", outcome.lines);
}

#[test]
fn every_packet_of_the_corpus_agrees_with_the_kernel_and_with_tshark() {
    let Some(shared) = std::env::var_os("RXSTEER_SHARED") else {
        eprintln!("skipped: RXSTEER_SHARED does not say where the corpus is");
        return;
    };
    let list = crate::repository().join(super::exceptions::FILE);
    let exceptions = Exceptions::read(&list).unwrap();
    let outcome = compare(&PathBuf::from(shared).join("corpus"), &exceptions).unwrap();
    assert_eq!(outcome.failed, 0, "{:#?}", &outcome.lines[..outcome.lines.len().min(20)]);
    assert!(outcome.passed > 1000, "only {} packets", outcome.passed);
}

#[test]
fn an_exception_covers_its_columns_of_its_packets_and_needs_a_reason() {
    let dir = folder(
        "exception",
        &[1000, 1000],
        &format!("{HEAD}\n{}\n{}\n", line(1, 1001, 1), line(2, 1001, 1)),
    );
    let list = dir.join("list.toml");
    let entry = |columns: &str, reason: &str| {
        let text = format!(
            "[[exception]]\ncapture = \"a.pcap\"\npackets = [1]\ncolumns = {columns}\nreason = \"{reason}\"\n"
        );
        fs::write(&list, text).unwrap();
        Exceptions::read(&list)
    };
    let both = entry("[\"o_sport\", \"i_sport\"]", "a test").unwrap();
    let outcome = compare(&dir, &both).unwrap();
    assert_eq!((outcome.passed, outcome.failed, outcome.excepted), (1, 1, 2));
    let one = entry("[\"o_sport\"]", "a test").unwrap();
    let outcome = compare(&dir, &one).unwrap();
    assert_eq!((outcome.passed, outcome.failed, outcome.excepted), (0, 2, 1));
    assert!(entry("[]", " ").is_err());
    fs::remove_dir_all(&dir).unwrap();
}
