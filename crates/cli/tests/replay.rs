//! `rxsteer replay`, from outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::collections::BTreeMap;

use common::{rxsteer, rxsteer_in, rxsteer_with, sample, sample_dir, scratch};
use serde_json::Value;

const SAMPLE: &str = "sample.pcapng.zst";

fn json(line: &str) -> Value {
    let said = rxsteer(line);
    assert_eq!(said.code, 0, "{line}: {}", said.err);
    serde_json::from_str(&said.out).unwrap()
}

fn policy<'a>(report: &'a Value, name: &str) -> &'a Value {
    let policies = report["policies"].as_array().unwrap();
    policies.iter().find(|policy| policy["policy"] == name).unwrap()
}

/// The sum of all numbers in a value.
fn sum(value: &Value) -> u64 {
    match value {
        Value::Object(map) => map.values().map(sum).sum(),
        other => other.as_u64().unwrap(),
    }
}

#[test]
fn without_a_capture_the_sample_is_replayed_under_all_policies() {
    let said = rxsteer("replay");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    for name in
        ["none", "rps", "rfs-2010", "rfs-clear", "rfs", "rfs-split", "rfs-tcp", "flow-aware"]
    {
        assert!(said.out.contains(name), "{name}");
    }
    assert!(said.out.contains("\nAnswer\n"));
    let widest = said.out.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(widest.chars().count() <= 100, "{widest}");
}

#[test]
fn the_same_input_and_seed_give_the_same_bytes_in_every_form() {
    let dir = scratch("replay_same_bytes");
    for form in ["--format text", "--json", "--pretty", "--csv", "--html -"] {
        let line = format!("replay --sweep table-entries=256..1k {form}");
        let words: Vec<_> = line.split(' ').collect();
        let one = rxsteer_in(&dir, &words, &[]);
        assert_eq!(one.code, 0, "{}", one.err);
        assert_eq!(one.out, rxsteer_in(&dir, &words, &[]).out, "{form}");
    }
    assert_ne!(rxsteer("replay -j").out, rxsteer("replay -j --seed 2").out);
}

#[test]
fn decisions_are_a_line_each_and_add_up_to_the_report() {
    let dir = scratch("replay_decisions");
    let said = rxsteer_in(&dir, &["replay", "-j", "--decisions", "all.csv"], &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let text = std::fs::read_to_string(dir.join("all.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("packet,policy,time_ns,arrived_on,cpu,reason"));
    let mut counted = BTreeMap::<(&str, &str), u64>::new();
    for line in lines {
        let words: Vec<_> = line.split(',').collect();
        assert_eq!(words.len(), 6, "{line}");
        assert!(words[0].parse::<u64>().unwrap() > 0 && words[4].parse::<u16>().is_ok(), "{line}");
        *counted.entry((words[1], words[5])).or_default() += 1;
    }
    for name in ["none", "rps", "rfs", "flow-aware"] {
        for (reason, by_class) in policy(&report, name)["reasons"].as_object().unwrap() {
            let key = (name, reason.as_str());
            let lines = counted.get(&key).copied().unwrap_or(0);
            assert_eq!(lines, sum(by_class), "{key:?}");
        }
    }
    let said = rxsteer_in(&dir, &["replay", "--decisions", "no/such/place.csv"], &[]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("no/such/place.csv: cannot write"), "{}", said.err);
}

#[test]
fn every_packet_has_one_reason_and_one_end_under_every_policy() {
    let report = json("replay --json");
    assert_eq!(report["schema_version"], 1);
    let input = &report["input"];
    let received = input["received"].as_u64().unwrap();
    let read = received + input["sent"].as_u64().unwrap() + sum(&input["skipped"]);
    assert_eq!(input["packets_read"], read);
    assert_eq!(sum(&input["classes"]), received);
    for policy in report["policies"].as_array().unwrap() {
        let ring = policy["drops"]["ring"].as_u64().unwrap();
        assert_eq!(sum(&policy["reasons"]) + ring, received, "{}", policy["policy"]);
        let ended = policy["read"].as_u64().unwrap()
            + policy["finished_without_read"].as_u64().unwrap()
            + sum(&policy["drops"]);
        assert_eq!(ended, received, "{}", policy["policy"]);
    }
}

#[test]
fn the_sample_shows_how_the_policies_differ() {
    let report = json("replay -j");
    let number = |name: &str, key: &str| policy(&report, name)[key].as_f64().unwrap();
    // One CPU falls behind at times; eight do not.
    let p99 = |name: &str| policy(&report, name)["latency"]["p99_ns"].as_u64().unwrap();
    assert!(p99("none") > 10 * p99("rps"));
    // Without a check of identity, packets follow the entries of others (B1).
    assert!(number("rfs-2010", "wrong_steers") > 1000.0);
    assert!(number("rfs-clear", "wrong_steers") < number("rfs-2010", "wrong_steers"));
    assert_eq!(number("rfs", "wrong_steers"), 0.0);
    assert_eq!(number("flow-aware", "wrong_steers"), 0.0);
    // Only clearing writes for packets that are no flows (B4).
    let writes = |name: &str| policy(&report, name)["writes"]["by_non_flows"].as_u64().unwrap();
    assert!(writes("rfs-clear") > 100);
    assert_eq!((writes("rfs"), writes("flow-aware")), (0, 0));
    assert!(number("flow-aware", "hit_rate") > number("rfs", "hit_rate"));
    assert!(number("rfs", "hit_rate") > number("rfs-tcp", "hit_rate"));
    for name in ["none", "rfs", "flow-aware"] {
        assert_eq!(number(name, "reordered"), 0.0, "{name}");
    }
}

#[test]
fn csv_has_one_line_a_policy_and_the_numbers_of_the_json() {
    let said = rxsteer("replay --csv -p rps,flow-aware");
    let lines: Vec<Vec<&str>> = said.out.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((lines[0][0], lines[1][0], lines[2][0]), ("policy", "rps", "flow-aware"));
    let row: BTreeMap<_, _> = lines[0].iter().zip(&lines[2]).collect();
    let report = json("replay -j -p rps,flow-aware");
    let hits = &policy(&report, "flow-aware")["reasons"]["hit"]["tcp"];
    assert_eq!(row[&"reasons.hit.tcp"], &hits.to_string());
}

#[test]
fn colours_are_for_terminals_and_only_add_to_the_text() {
    let dir = scratch("replay_colours");
    let coloured = |arguments: &[&str], environment: &[(&str, &str)]| {
        let said =
            rxsteer_with(&dir, &[&["replay", "-p", "rps"], arguments].concat(), &[], environment);
        assert_eq!(said.code, 0, "{}", said.err);
        (said.out.contains('\x1b'), said.out)
    };
    let force = ("CLICOLOR_FORCE", "1");
    let (plain_has, plain) = coloured(&[], &[]);
    let (forced_has, forced) = coloured(&[], &[force]);
    assert!(!plain_has && forced_has);
    assert_eq!(coloured(&["--no-color"], &[force]), (false, plain.clone()));
    assert_eq!(coloured(&[], &[force, ("NO_COLOR", "1")]), (false, plain.clone()));
    assert!(!coloured(&["--json"], &[force]).0);
    // Without its escapes the coloured text is the plain one.
    let mut stripped = String::new();
    for (index, part) in forced.split('\x1b').enumerate() {
        stripped.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_eq!(stripped, plain);
}

#[test]
fn stdin_equals_the_file_and_several_files_are_merged_by_time() {
    let dir = scratch("replay_inputs");
    let plain = sample();
    std::fs::write(dir.join("whole.pcapng"), &plain).unwrap();
    let policies = |arguments: &[&str], input: &[u8]| {
        let said = rxsteer_in(&dir, &[&["replay", "-j"], arguments].concat(), input);
        assert_eq!(said.code, 0, "{}", said.err);
        let mut report: Value = serde_json::from_str(&said.out).unwrap();
        report["policies"].take()
    };
    let file = policies(&["whole.pcapng"], &[]);
    assert_eq!(policies(&["-"], &plain), file);
    // The same packets in two files, in turn.
    let (one, two) = split(&plain);
    std::fs::write(dir.join("one.pcapng"), one).unwrap();
    std::fs::write(dir.join("two.pcapng"), two).unwrap();
    assert_eq!(policies(&["one.pcapng", "two.pcapng"], &[]), file);
    assert_eq!(policies(&["-r", "two.pcapng", "one.pcapng"], &[]), file);
}

/// Puts the packets of a capture, in turn, into two.
fn split(plain: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut parts = [Vec::new(), Vec::new()];
    let mut packets = 0;
    let mut at = 0;
    while at < plain.len() {
        let word = |at: usize| u32::from_le_bytes(plain[at..at + 4].try_into().unwrap());
        let (kind, len) = (word(at), word(at + 4) as usize);
        let block = &plain[at..at + len];
        if kind == 6 {
            parts[packets % 2].extend_from_slice(block);
            packets += 1;
        } else {
            parts.iter_mut().for_each(|part| part.extend_from_slice(block));
        }
        at += len;
    }
    let [one, two] = parts;
    (one, two)
}

#[test]
fn a_capture_that_ends_early_is_replayed_and_said_so() {
    let dir = scratch("replay_truncated");
    let plain = sample();
    std::fs::write(dir.join("cut.pcapng"), &plain[..plain.len() - 10]).unwrap();
    for (arguments, code) in
        [(&["replay", "-j", "cut.pcapng"][..], 0), (&["replay", "-j", "--strict", "cut.pcapng"], 2)]
    {
        let said = rxsteer_in(&dir, arguments, &[]);
        assert_eq!(said.code, code, "{}", said.err);
        let line = said.err.lines().find(|line| line.contains("cut.pcapng")).unwrap();
        assert!(line.contains("truncated at byte "), "{line}");
        let report: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(report["input"]["notes"][0]["code"], "truncated");
        assert!(report["input"]["packets_read"].as_u64().unwrap() > 15_000);
    }
}

#[test]
fn a_capture_with_a_fault_is_replayed_up_to_it_and_is_an_error() {
    let dir = scratch("replay_damaged");
    let mut plain = sample();
    let at = plain.len() - 3;
    plain[at] ^= 0x40; // in the length at the end of the last block
    std::fs::write(dir.join("bad.pcapng"), &plain).unwrap();
    let said = rxsteer_in(&dir, &["replay", "-j", "-q", "bad.pcapng"], &[]);
    assert_eq!(said.code, 1);
    assert!(said.err.starts_with("error: bad.pcapng: at byte "), "{}", said.err);
    assert!(said.err.contains("packets before it were replayed"), "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["input"]["notes"][0]["code"], "damaged");
    assert!(report["input"]["packets_read"].as_u64().unwrap() > 15_000);
    // A fault before the first packet leaves nothing to show.
    plain[5] ^= 0x40;
    std::fs::write(dir.join("bad.pcapng"), &plain).unwrap();
    let said = rxsteer_in(&dir, &["replay", "-j", "bad.pcapng"], &[]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{}", said.err);
}

#[test]
fn an_empty_capture_says_so() {
    let dir = scratch("replay_empty");
    let plain = sample();
    // Section and interface, no packet.
    let at = plain.windows(4).position(|w| w == [6, 0, 0, 0]).unwrap();
    std::fs::write(dir.join("empty.pcapng"), &plain[..at]).unwrap();
    let said = rxsteer_in(&dir, &["replay", "empty.pcapng"], &[]);
    assert_eq!(said.code, 0);
    assert!(said.err.contains("empty.pcapng: a capture without packets"), "{}", said.err);
    assert!(said.out.contains("0 packets"), "{}", said.out);
}

#[test]
fn wrong_flags_are_refused_with_what_is_allowed() {
    for (flags, allowed) in [
        ("-p rps,best", "none rps rfs-2010 rfs-clear rfs rfs-split rfs-tcp flow-aware"),
        ("--mode outer", "kernel, inner"),
        ("--cpus 0-", "0-3,8"),
        ("--queues none", "64k"),
        ("--sweep cpus=1..2", "table-entries=1k..1M"),
        ("--local web", "192.0.2.0/24"),
        ("--kernel x", "6.18"),
        ("--rps-cpus 99", "CPU"),
        ("--no-such-flag", "--no-such-flag"),
        ("--format xml", "text, json, csv"),
        ("--html - --json", "--html FILE"),
        ("--queues -1", "64k"),
        ("--seed -1", "2^64 - 1"),
        ("--kernel 2.6", "`2.6`"),
    ] {
        let said = rxsteer(&format!("replay {flags}"));
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{flags}: {}", said.err);
        assert!(said.err.starts_with("error: ") && said.err.contains(allowed), "{}", said.err);
    }
}

#[test]
fn errors_of_toml_files_name_file_line_and_key() {
    let dir = scratch("replay_toml");
    std::fs::write(dir.join("host.toml"), "cpus = 4\n[tables]\nrps_entries = 1\n").unwrap();
    std::fs::write(dir.join("sockets.toml"), "[[consumer]]\nlocal = \"web\"\n").unwrap();
    std::fs::write(dir.join("rss.txt"), "no table\n").unwrap();
    std::fs::write(dir.join("bytes"), b"cpus = 4 \xff").unwrap();
    for (arguments, start) in [
        (["--host", "host.toml"], "error: host.toml:3:1: tables.rps_entries: "),
        (["--consumers", "sockets.toml"], "error: sockets.toml:2:9: consumer.local: "),
        (["--ethtool", "rss.txt"], "error: rss.txt: line 1: "),
        (["--host", "nosuch.toml"], "error: nosuch.toml: cannot read: "),
        (["--host", "bytes"], "error: bytes: at byte 9: not UTF-8 text"),
    ] {
        let said = rxsteer_in(&dir, &[&["replay"][..], &arguments].concat(), &[]);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{arguments:?}");
        assert!(said.err.starts_with(start), "{}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
}

#[test]
fn the_page_is_whole_has_plots_and_escapes_what_it_is_told() {
    let dir = scratch("replay_page");
    let name = "<b>&\"'.pcapng";
    std::fs::write(dir.join(name), sample()).unwrap();
    let sweep = ["--sweep", "table-entries=128..1k"];
    let arguments = [&["replay", "--html", "page.html", "-q"], &sweep[..], &[name]].concat();
    let said = rxsteer_in(&dir, &arguments, &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("Comparison"));
    let page = std::fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("&lt;b&gt;&amp;&quot;&#39;.pcapng") && !page.contains("<b>"));
    // The only addresses in it are names of XML vocabularies: nothing is loaded.
    for (at, _) in page.match_indices("http") {
        assert!(page[at..].starts_with("http://www.w3.org/"), "{}", &page[at..at + 60]);
    }
    assert!(!page.contains("<script"));
}

#[test]
fn a_page_that_cannot_be_written_is_an_error_after_the_answer() {
    let said = rxsteer("replay --html /nosuch/page.html");
    assert_eq!(said.code, 1);
    assert!(said.out.contains("\nAnswer\n"), "{}", said.out);
    assert!(said.err.starts_with("error: /nosuch/page.html: cannot write: "), "{}", said.err);
}

#[test]
fn help_version_and_completions_go_to_the_standard_output() {
    for line in ["--help", "replay --help", "flows -h", "--version"] {
        let said = rxsteer(line);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{line}");
        assert!(!said.out.is_empty());
    }
    assert!(rxsteer("replay --help").out.contains("Exit codes: 0"));
    for shell in ["bash", "zsh", "fish"] {
        let said = rxsteer(&format!("completions {shell}"));
        assert_eq!(said.code, 0);
        assert!(said.out.contains("--table-entries") || said.out.contains("table-entries"));
    }
    assert_eq!(rxsteer("").code, 2);
    assert_eq!(rxsteer("completions tcsh").code, 2);
    assert_eq!(rxsteer(&format!("flows {SAMPLE} --nonsense")).code, 2);
}

#[cfg(unix)]
#[test]
fn an_interrupt_prints_what_there_is() {
    use std::io::{BufRead as _, Write as _};
    use std::process::{Command, Stdio};
    // A pipe that never ends by itself: the sample again and again, as further sections.
    let mut child = common::command()
        .args(["replay", "-j", "-p", "none", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let plain = sample();
    let pid = child.id().to_string();
    let mut sent = 0;
    // The signal comes when some packets were read for sure; the feeding ends when the command does.
    while stdin.write_all(&plain).is_ok() {
        sent += 1;
        assert!(sent < 10_000, "the command did not end");
        if sent == 3 {
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        }
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["input"]["notes"].as_array().unwrap().last().unwrap()["code"], "stopped");
    assert!(report["input"]["packets_read"].as_u64().unwrap() >= 65_536);
    assert!(output.stderr.lines().any(|line| line.unwrap().contains("as asked")));
}

#[test]
fn the_advice_of_the_sample_can_be_acted_upon() {
    let said = rxsteer("replay");
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    // The mask of the sample's host has the IRQ CPU, which is the hot one: what to try is said.
    assert!(text.contains("rps_cpus fe keeps IRQ CPU 0") && text.contains("--rps-cpus 1-7"));
    assert!(text.contains("flow-aware carries") && text.contains("rxsteer attach DEV"));
    assert!(text.contains("are taken to have 1 reader each"), "{text}");
    let off = rxsteer("replay --rps-cpus 1-7").out;
    assert!(off.contains("echo fe > /sys/class/net/DEV/queues/rx-0/rps_cpus"), "{off}");
}

#[test]
fn the_readers_of_a_port_are_shown_with_their_shares() {
    let said = rxsteer("replay");
    let table = said.out.split("Readers of unconnected UDP ports\n").nth(1).unwrap();
    let packets = |port: &str| -> Vec<u64> {
        let lines = table.lines().take_while(|line| !line.is_empty());
        let rows = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row[0] == port).map(|row| row[3].parse().unwrap()).collect()
    };
    // Two sockets for 1,300 requests; four for 60 clients with 20 requests each.
    assert_eq!((packets("53").len(), packets("53").iter().sum::<u64>()), (2, 1300));
    assert_eq!((packets("443").len(), packets("443").iter().sum::<u64>()), (4, 1200));
}

#[test]
fn the_output_of_ethtool_says_which_queue_a_packet_took() {
    let dir = scratch("replay_ethtool");
    let key = (0..40).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let table = |queues: [u32; 8]| {
        let row = queues.map(|queue| format!("{queue:>6}")).join("");
        format!(
            "RX flow hash indirection table for eth0 with 2 RX ring(s):\n    0: {row}\n\
             RSS hash key:\n{key}\nRSS hash function:\n    toeplitz: on\n    xor: off\n"
        )
    };
    std::fs::write(dir.join("one.txt"), table([1; 8])).unwrap();
    std::fs::write(dir.join("both.txt"), table([0, 1, 0, 1, 0, 1, 0, 1])).unwrap();
    let queues = |file: &str| {
        let arguments = ["replay", "-j", "-p", "none", "--queues", "2", "--ethtool", file];
        let said = rxsteer_in(&dir, &arguments, &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        let report: Value = serde_json::from_str(&said.out).unwrap();
        let received = report["input"]["received"].as_u64().unwrap();
        let packets = |queue: usize| report["host"]["queues"][queue]["packets"].as_u64().unwrap();
        assert_eq!(packets(0) + packets(1), received);
        (packets(0), packets(1))
    };
    assert_eq!(queues("one.txt").0, 0);
    let (zero, one) = queues("both.txt");
    assert!(zero > one / 3 && one > zero / 3, "{zero} {one}");

    // The queues of the table need not be named again, but a smaller number of them is refused.
    let ask = |more: &[&str]| {
        let sample = sample_dir().join("sample.pcapng.zst");
        let ask = ["replay", "-j", "-p", "none", "--ethtool", "both.txt", sample.to_str().unwrap()];
        rxsteer_in(&dir, &[&ask[..], more].concat(), &[])
    };
    for more in [&[][..], &["--cpus", "16"]] {
        let report: Value = serde_json::from_str(&ask(more).out).unwrap();
        assert_eq!(report["host"]["queues"].as_array().unwrap().len(), 2, "{more:?}");
    }
    let said = ask(&["--queues", "1"]);
    assert!(said.code == 1 && said.err.contains("names queue 1"), "{}", said.err);
}
