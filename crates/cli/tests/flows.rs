//! `rxsteer flows`, from outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::collections::BTreeSet;

use common::{rxsteer, rxsteer_in, sample, scratch};
use serde_json::Value;

const SAMPLE: &str = "sample.pcapng.zst";

#[test]
fn every_packet_has_one_line_of_text_json_and_csv() {
    let text = rxsteer(&format!("flows {SAMPLE}"));
    assert_eq!((text.code, text.err.as_str()), (0, ""));
    let packets = text.out.lines().count() - 1;
    assert!(packets > 15_000);
    let json = rxsteer(&format!("flows --json {SAMPLE}"));
    assert_eq!(json.out.lines().count(), packets);
    let csv = rxsteer(&format!("flows --csv {SAMPLE}"));
    assert_eq!(csv.out.lines().count(), packets + 1);
    let columns = csv.out.lines().next().unwrap().split(',').count();
    assert!(csv.out.lines().all(|line| line.split(',').count() == columns));
}

#[test]
fn json_lines_have_a_schema_version_and_flows_are_numbered_without_gaps() {
    let said = rxsteer(&format!("flows -j {SAMPLE}"));
    let mut flows = BTreeSet::new();
    for (index, line) in said.out.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["schema_version"], 1);
        assert_eq!(line["number"], index as u64 + 1);
        let flow = line["flow"].as_u64().unwrap();
        if flows.insert(flow) {
            assert_eq!(flow, flows.len() as u64);
        }
    }
    assert!(flows.len() > 1000, "{}", flows.len());
}

#[test]
fn the_seed_changes_the_hashes_and_nothing_else() {
    let without_hash = |out: &str| -> Vec<Value> {
        out.lines()
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                line.as_object_mut().unwrap().remove("hash").unwrap();
                line
            })
            .collect()
    };
    let one = rxsteer(&format!("flows -j --seed 1 {SAMPLE}")).out;
    let two = rxsteer(&format!("flows -j --seed 2 {SAMPLE}")).out;
    assert_ne!(one, two);
    assert_eq!(without_hash(&one), without_hash(&two));
    assert_eq!(one, rxsteer(&format!("flows -j {SAMPLE}")).out);
}

#[test]
fn inner_mode_opens_the_tunnels_that_linux_leaves_closed() {
    let kernel = rxsteer(&format!("flows -j {SAMPLE}")).out;
    let inner = rxsteer(&format!("flows -j --mode inner {SAMPLE}")).out;
    let opened = |out: &str| out.lines().filter(|line| line.contains("vxlan")).count();
    assert_eq!(opened(&kernel), 0);
    assert!(opened(&inner) > 500, "{}", opened(&inner));
    assert_eq!(kernel.lines().count(), inner.lines().count());
}

#[test]
fn tags_labels_and_inner_headers_leave_the_key_where_asked() {
    let count = |flags: &str, what: &str| {
        let out = rxsteer(&format!("flows -j {flags} {SAMPLE}")).out;
        out.lines().filter(|line| line.contains(what)).count()
    };
    assert!(count("", "\"vlan\":5,") > 200 && count("", "\"vlan\":100,") > 200);
    assert_eq!(count("--vlan ignore", "\"vlan\":null"), count("", "schema_version"));
    let labelled = count("", "\"flow_label\":0,");
    assert!(labelled < count("--flow-label ignore", "\"flow_label\":0,"));
    assert_eq!(count("--mode inner --outer", "\"dst_port\":8080"), 0);
    assert!(count("--mode inner", "\"dst_port\":8080") > 100);
}

#[test]
fn stdin_plain_or_packed_equals_the_file() {
    let dir = scratch("flows_stdin");
    let plain = sample();
    let file = rxsteer(&format!("flows {SAMPLE}")).out;
    assert_eq!(rxsteer_in(&dir, &["flows", "-"], &plain).out, file);
    let packed = std::fs::read(common::sample_dir().join(SAMPLE)).unwrap();
    assert_eq!(rxsteer_in(&dir, &["flows", "-r", "-"], &packed).out, file);
}

#[test]
fn a_capture_that_ends_early_gives_all_complete_packets_and_one_line() {
    let dir = scratch("flows_truncated");
    let plain = sample();
    std::fs::write(dir.join("cut.pcapng"), &plain[..plain.len() - 10]).unwrap();
    let whole = rxsteer(&format!("flows {SAMPLE}")).out.lines().count();
    for (arguments, code) in
        [(&["flows", "cut.pcapng"][..], 0), (&["flows", "--strict", "cut.pcapng"], 2)]
    {
        let said = rxsteer_in(&dir, arguments, &[]);
        assert_eq!(said.code, code, "{}", said.err);
        assert_eq!(said.out.lines().count(), whole - 1);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.err.contains("cut.pcapng: truncated at byte "), "{}", said.err);
    }
}

#[test]
fn a_broken_capture_is_an_error_with_file_byte_and_reason() {
    let dir = scratch("flows_broken");
    let mut plain = sample();
    // The length of the third block, an enhanced packet block after section and interface.
    let at = plain.windows(4).position(|w| w == [6, 0, 0, 0]).unwrap();
    plain[at + 4] = 7;
    std::fs::write(dir.join("bad.pcapng"), &plain).unwrap();
    let said = rxsteer_in(&dir, &["flows", "bad.pcapng"], &[]);
    assert_eq!(said.code, 1);
    let start = format!("error: bad.pcapng: at byte {at}: ");
    assert!(said.err.starts_with(&start), "{} / {start}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
}

#[test]
fn files_that_are_no_captures_are_named_with_the_reason() {
    let dir = scratch("flows_no_capture");
    std::fs::write(dir.join("empty"), b"").unwrap();
    std::fs::write(dir.join("text"), b"hello, world").unwrap();
    for (file, reason) in
        [("empty", "empty"), ("text", "neither pcap nor pcapng"), ("nosuch", "cannot open")]
    {
        let said = rxsteer_in(&dir, &["flows", file], &[]);
        assert_eq!((said.code, said.out.lines().count()), (1, 0), "{said:?}");
        let start = format!("error: {file}: ");
        assert!(said.err.starts_with(&start) && said.err.contains(reason), "{}", said.err);
    }
    let said = rxsteer("flows");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("name a capture"), "{}", said.err);
}

#[test]
fn a_reader_that_goes_away_is_nobodys_error() {
    use std::io::Read as _;
    use std::process::{Command, Stdio};
    for form in ["text", "json", "csv"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
            .args(["flows", "--format", form, SAMPLE])
            .current_dir(common::sample_dir())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 64]).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{form}");
        assert_eq!(output.status.code(), Some(0), "{form}");
    }
}
