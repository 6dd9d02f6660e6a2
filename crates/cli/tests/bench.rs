//! The verb `bench`: real packets. Needs root; without it each test says so and ends.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use common::live::{bench_json, is_skipped};
use common::rxsteer;
use serde_json::Value;

#[test]
fn gen_sends_and_the_other_end_counts() {
    if is_skipped("gen_sends_and_the_other_end_counts") {
        return;
    }
    let value = bench_json(&rxsteer("bench gen -c 5k --size 100 --flows 7 --json"));
    assert_eq!(value["result"]["source"]["sent"], 5000);
    assert_eq!(value["result"]["source"]["bytes"], 5000 * 142);
    let arrived = value["result"]["arrived"].as_u64().unwrap();
    let dropped = value["result"]["dropped"].as_u64().unwrap();
    assert_eq!(arrived + dropped, 5000);
    let text = rxsteer("bench gen -c 500");
    assert!(text.out.contains("sent      500 packets in "), "{text:?}");
}

/// The capture that comes with the program, whose packets are counted by the program that lists them.
#[test]
fn gen_sends_a_capture_and_the_other_end_counts() {
    if is_skipped("gen_sends_a_capture_and_the_other_end_counts") {
        return;
    }
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/sample.pcapng.zst");
    let listed = rxsteer(&format!("flows {sample} --json -q"));
    let all = listed.out.lines().count() as u64;
    assert!(all > 1000, "{listed:?}");
    // Some of its packets are merged ones, longer than a usual link takes.
    let line = format!("bench gen --capture {sample} --speed max -d 60 --mtu 65535 -q");
    let padded = bench_json(&rxsteer(&format!("{line} --pad --json")));
    let result = &padded["result"];
    assert_eq!(result["capture"]["ended"], "complete");
    assert_eq!(result["source"]["sent"], all, "{padded}");
    assert_eq!((&result["arrived"], &result["dropped"]), (&all.into(), &0.into()), "{padded}");
    let cut = result["capture"]["rewritten"]["padded"].as_u64().unwrap();
    assert!(0 < cut && cut < all, "{padded}");
    let whole = bench_json(&rxsteer(&format!("{line} --json")));
    assert_eq!(whole["result"]["capture"]["unsent"]["truncated"], cut, "{whole}");
    assert_eq!(whole["result"]["source"]["sent"], all - cut, "{whole}");
    let text = rxsteer(&line);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains(" not all in the capture (--pad)\n"), "{text:?}");
    assert!(text.out.contains(" IP destination: the receiver's\n"), "{text:?}");
    // Nothing that can be sent is an error.
    let file = common::scratch("capture-nothing").join("wireless.pcap");
    let mut bytes = Vec::from(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0]);
    bytes.extend([0, 0, 65_535, 105].map(u32::to_le_bytes).as_flattened());
    bytes.extend([7, 0, 4, 4, 8].map(u32::to_le_bytes).as_flattened());
    std::fs::write(&file, bytes).unwrap();
    let said = rxsteer(&format!("bench gen --capture {}", file.display()));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("nothing was sent of 1 packet"), "{said:?}");
}

#[test]
fn sink_accounts_for_every_packet() {
    if is_skipped("sink_accounts_for_every_packet") {
        return;
    }
    let line = "bench sink -c 20k --rps-cpus 0 --threads 2 --reuseport --json";
    let value = bench_json(&rxsteer(line));
    let account = &value["result"]["account"];
    let places = ["received", "backlog", "ip", "reassembly", "no_port", "checksum", "socket"];
    let sum: u64 = places.iter().map(|place| account[place].as_u64().unwrap()).sum();
    assert_eq!(sum, 20_000, "{account}");
    assert_eq!(account["unexplained"], 0);
    let touched = &value["settings"][0];
    assert!(touched["path"].as_str().unwrap().ends_with("/rx0/queues/rx-0/rps_cpus"), "{touched}");
    let text = rxsteer("bench sink -c 2k -d 1.5 --rate 1k");
    assert_eq!(text.code, 0, "{text:?}");
    // One line a second, of which there was one.
    assert!(text.err.lines().any(|line| line.contains(" packets/s, ")), "{text:?}");
    assert!(text.out.contains(" read\n"), "{text:?}");
}

/// Turns are counted by the least time that they ever took, so that work takes at least that: a half is
/// far from what reading alone takes, a hundredth of it.
#[test]
fn a_reader_that_works_takes_cpu_time_for_it() {
    if is_skipped("a_reader_that_works_takes_cpu_time_for_it") {
        return;
    }
    for call in ["recv", "recvmsg", "recvmmsg --batch 8"] {
        let line = format!("bench sink -c 200 --rate 1k --receive-buffer 1M --call {call}");
        let value = bench_json(&rxsteer(&format!("{line} --work 500k --json")));
        assert_eq!(value["result"]["reading"]["work_ns"], 500_000, "{value}");
        let reader = &value["result"]["sink"]["readers"][0];
        assert_eq!(reader["received"], 200, "{value}");
        assert!(reader["cpu_ns"].as_u64().unwrap() > 200 * 250_000, "{value}");
        let idle = bench_json(&rxsteer(&format!("{line} --json")));
        assert_eq!(idle["result"]["reading"]["work_ns"], 0, "{idle}");
    }
    let said = rxsteer("bench sink -c 9 --work 2_500");
    assert!(said.out.contains("1 socket, 2.50 µs of work on each datagram\n"), "{said:?}");
    let said = rxsteer("bench sink -c 9");
    assert!(said.out.contains("1 socket\n"), "{said:?}");
    let line = "bench compare sink --setups none --repeats 1 -d 0.1 --rate 1k --work 1k";
    for line in [line.to_owned(), format!("{line} --overload 1")] {
        let said = rxsteer(&line);
        assert!(said.out.contains(", 1.00 µs of work on each datagram"), "{said:?}");
    }
}

#[test]
fn rr_prints_quantiles() {
    if is_skipped("rr_prints_quantiles") {
        return;
    }
    let line = "bench rr --protocol tcp --flows 10 -c 1k --json";
    let value = bench_json(&rxsteer(line));
    let client = &value["result"]["client"];
    assert!(client["transactions"].as_u64().unwrap() >= 1000, "{client}");
    assert!(client["latency"]["p99_ns"].as_u64() >= client["latency"]["p50_ns"].as_u64());
    assert!(client["since_asked"].is_null());
    let text = rxsteer("bench rr --open-loop 2k -d 0.3");
    assert!(text.out.contains("since it was due"), "{text:?}");
}

#[test]
fn compare_measures_against_the_first_setup() {
    if is_skipped("compare_measures_against_the_first_setup") {
        return;
    }
    let line = "bench compare rr --setups none,rps --repeats 2 -c 100 --json -q";
    let value = bench_json(&rxsteer(line));
    let setups = value["result"]["setups"].as_array().unwrap();
    assert_eq!(setups.len(), 2);
    let (first, second) = (&setups[0], &setups[1]);
    assert_eq!((&first["setup"], &second["setup"]), (&Value::from("none"), &Value::from("rps")));
    assert_eq!(first["ratios"][0]["ratio"]["median"], 1.0);
    // By hand: the mean of the two ratios, each within its repeat.
    let of = |setup: &Value, repeat: usize| setup["metrics"][0]["values"][repeat].as_f64().unwrap();
    let ratio = |repeat| of(second, repeat) / of(first, repeat);
    let mean = (ratio(0) + ratio(1)) / 2.0;
    let said = second["ratios"][0]["ratio"]["median"].as_f64().unwrap();
    assert!((said - mean).abs() < 1e-9, "{said} {mean}");
    let text = rxsteer("bench compare sink --setups none,threaded --repeats 1 -c 2k");
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains("\nthreaded    threaded=1\n"), "{text:?}");
}

#[test]
fn compare_attaches_rxsteer_for_its_runs_and_tells_what_it_counted() {
    if is_skipped("compare_attaches_rxsteer_for_its_runs_and_tells_what_it_counted") {
        return;
    }
    let line = "bench compare rr --setups none,rxsteer --repeats 2 -c 200 -d 60 --json -q";
    let value = bench_json(&rxsteer(line));
    let setup = &value["result"]["setups"][1];
    assert_eq!(setup["setup"], "rxsteer");
    let runs = setup["attached"]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let reasons = run["reasons"].as_object().unwrap().values();
        let sum: u64 = reasons.map(|count| count.as_u64().unwrap()).sum();
        // One request each, and one that was asked when the run ended.
        assert!(sum >= 200 && run["seen"] == sum, "{run}");
    }
    let line =
        "bench compare sink --setups none,rxsteer --repeats 1 -d 0.2 --rate 5k --overload 1,2";
    let text = rxsteer(line);
    assert_eq!(text.code, 0, "{text:?}");
    for words in ["1 x is 5,000 packets/s", "at 2 x, 10,000 packets/s", "  attached: ", "unequal: "]
    {
        assert!(text.out.contains(words), "{words}: {text:?}");
    }
    let line = "bench compare mixed --protocol tcp --flows 4 --setups rxsteer --repeats 1 -d 0.2 \
                --flood 10k";
    let text = rxsteer(line);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains("flood read") && text.out.contains("hit rate of TCP"), "{text:?}");
}

#[test]
fn calibrate_writes_a_host_file_that_the_lab_takes() {
    if is_skipped("calibrate_writes_a_host_file_that_the_lab_takes") {
        return;
    }
    let file = common::scratch("calibrate").join("host.toml");
    let value =
        bench_json(&rxsteer(&format!("bench calibrate --json --output {}", file.display())));
    let text = std::fs::read_to_string(&file).unwrap();
    let host = rxsteer_lab::host::Host::from_toml("host.toml", &text).unwrap();
    let costs = value["result"]["costs"].as_array().unwrap();
    let cost = |name: &str| costs.iter().find(|cost| cost["name"] == name).map(|cost| &cost["ns"]);
    // What no noise hides, since it is no difference.
    for name in ["read", "switch", "wake_local"] {
        assert!(cost(name).is_some(), "{name}: {value}");
    }
    let default = rxsteer_lab::host::Host::simple(1, 1).unwrap().costs;
    let or_default = |name, default: u32| cost(name).map_or(Value::from(default), Clone::clone);
    assert_eq!(or_default("read", 0), host.costs.read);
    assert_eq!(or_default("take", default.take), host.costs.take);
    assert_eq!(or_default("protocol_udp", default.protocol_udp), host.costs.protocol_udp);
    assert_eq!(or_default("protocol_tcp", default.protocol_tcp), host.costs.protocol_tcp);
    let replayed = rxsteer(&format!("replay -p none --host {} --json", file.display()));
    assert_eq!(replayed.code, 0, "{replayed:?}");
}

#[test]
fn restore_finds_nothing_or_says_what() {
    if is_skipped("restore_finds_nothing_or_says_what") {
        return;
    }
    let said = rxsteer("bench restore");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.out.is_empty());
}

#[test]
fn a_port_where_nobody_answers_has_no_latency_and_is_an_error() {
    // A port that was ours a moment ago, and is nobody's now.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!("bench rr --to {free} --i-own-this-network 127.0.0.1 -d 0.3 --timeout 0.1");
    let said = rxsteer(&line);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("nobody answered: connection refused"), "{said:?}");
    assert!(said.out.contains(" times connection refused"), "{said:?}");
    let latency = said.out.lines().skip_while(|line| !line.starts_with("latency ")).nth(1).unwrap();
    assert_eq!(latency.split_whitespace().collect::<Vec<_>>(), ["-"; 7]);
}

/// Before anything is made or sent, so without rights.
#[test]
fn cpus_that_are_not_there_are_wrong_usage() {
    for flag in ["sink --cpus", "sink --rps-cpus", "gen --source-cpu", "compare rr --client-cpus"] {
        let said = rxsteer(&format!("bench {flag} 4095"));
        assert_eq!(said.code, 2, "{flag}: {said:?}");
        assert!(said.err.contains("4095 does not exist (possible "), "{flag}: {said:?}");
    }
}

#[test]
fn no_load_goes_where_nobody_said_it_may() {
    for line in ["bench gen --to 192.0.2.1:9 -c 1", "bench rr --to 192.0.2.1:9 -c 1"] {
        let said = rxsteer(line);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("--i-own-this-network 192.0.2.1"), "{said:?}");
    }
    let said =
        rxsteer("bench gen --to 127.0.0.1:9 --i-own-this-network 127.0.0.1 -c 1 --kind tcp-syn");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("cannot send tcp-syn"), "{said:?}");
}

/// Runs as nobody, which takes root to try.
#[test]
fn without_privileges_it_says_which_are_missing() {
    if is_skipped("without_privileges_it_says_which_are_missing") {
        return;
    }
    // The target directory need not be open to all.
    let copy = std::env::temp_dir().join(format!("rxs-nobody-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_rxsteer"), &copy).unwrap();
    for (verb, code) in [("gen", 1), ("sink", 1), ("rr", 1)] {
        let output =
            Command::new(&copy).args(["bench", verb, "-c", "1"]).uid(65_534).gid(65_534).output();
        let output = output.unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{err}");
        for capability in ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "run it as root"] {
            assert!(err.contains(capability), "{verb}: {err}");
        }
    }
    // Reading what others send needs none.
    let sink = ["bench", "sink", "--listen", "127.0.0.1:0", "-d", "0.2"];
    let output = Command::new(&copy).args(sink).uid(65_534).gid(65_534).output().unwrap();
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn wrong_usage_is_2() {
    for line in [
        "bench gen --rate -5",
        "bench sink --call read",
        "bench rr --flows 0",
        "bench x",
        "bench compare sink --overload 0",
        "bench compare mixed --flood 1x",
        "bench compare rr --setups rxsteer --source-offloads tx-checksum",
    ] {
        let said = rxsteer(line);
        assert_eq!(said.code, 2, "{line}: {said:?}");
    }
}

/// The packets of a capture, cut in three ways.
#[test]
fn a_capture_that_is_cut_short_is_told_of_and_without_a_packet_an_error() {
    if is_skipped("a_capture_that_is_cut_short_is_told_of_and_without_a_packet_an_error") {
        return;
    }
    let file = common::scratch("capture-cut").join("cut.pcap");
    // An Ethernet frame of 60 bytes of a local experimental ethertype (IEEE 802: 0x88b5).
    let frame = [&[2; 12][..], &[0x88, 0xb5], &[0; 46]].concat();
    let mut bytes = Vec::from(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0]);
    bytes.extend([0, 0, 65_535, 1].map(u32::to_le_bytes).as_flattened());
    for _ in 0..2 {
        bytes.extend([7, 0, 60, 60].map(u32::to_le_bytes).as_flattened());
        bytes.extend(&frame);
    }
    let line = format!("bench gen --capture {}", file.display());
    for (len, ended, sent, code) in [
        (24 + 2 * 76, "complete", 2, 0),
        (24 + 76 + 20, "truncated", 1, 0),
        (24 + 20, "truncated", 0, 1),
        (24 + 7, "truncated", 0, 1),
    ] {
        std::fs::write(&file, &bytes[..len]).unwrap();
        let said = rxsteer(&format!("{line} --json"));
        assert_eq!(said.code, code, "{len}: {said:?}");
        let result = &serde_json::from_str::<Value>(&said.out).unwrap()["result"];
        assert_eq!(result["capture"]["ended"], ended, "{len}: {said:?}");
        assert_eq!(result["source"]["sent"], sent, "{len}: {said:?}");
        let text = rxsteer(&line);
        assert_eq!(text.out.contains("; cut short\n"), ended == "truncated", "{len}: {text:?}");
        assert_eq!(text.code, code, "{len}: {text:?}");
        assert_eq!(text.err.contains("cut short before its first packet"), code == 1, "{text:?}");
    }
    // Not even a file header.
    for len in [0, 3, 12, 23] {
        std::fs::write(&file, &bytes[..len]).unwrap();
        assert_eq!(rxsteer(&line).code, 1, "{len}");
    }
}
