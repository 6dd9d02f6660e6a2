//! What the policies must do, seen through whole replays.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod replay_common;

use std::net::{Ipv4Addr, Ipv6Addr};

use replay_common::*;
use rxsteer_core::steer::PolicyKind::{
    self, FlowAware, None as Off, Rfs, Rfs2010, RfsClear, RfsSplit, RfsTcp, Rps,
};
use rxsteer_lab::consumer::Scenario as Consumers;
use rxsteer_lab::generate::{
    Crowd, CrowdKind, EPOCH_NS, Layer, Scenario, Turns, Uniform, V6, packet,
};
use rxsteer_lab::host::{Host, TableSizes};
use rxsteer_lab::replay::{LocalRule, Replay, ReplayError, ReplayOptions, ServiceKind};
use rxsteer_lab::report::{FindingCode, VerdictCode};

/// Each flow to port 7000 has a connected socket of its own.
const CONNECTED: &str = "[[consumer]]\nprotocol = \"udp\"\nlocal = \":7000\"\nconnected = true\n";

fn with_rules(policies: &[PolicyKind], toml: &str, host: &Host) -> ReplayOptions {
    let scenario = Consumers::from_toml("rules.toml", toml, host).unwrap();
    ReplayOptions { scenario, ..options(policies) }
}

fn table_of(entries: u64) -> Host {
    let mut host = Host::simple(8, 1).unwrap();
    host.set_tables(TableSizes::for_entries(entries).unwrap());
    host
}

fn flows(flows: u64, packets_per_flow: u64) -> Uniform {
    Uniform { flows, packets_per_flow, turns: Turns::Random, ..Uniform::default() }
}

fn strangers(requests: u64) -> Crowd {
    let server = address(SERVER, 53);
    Crowd { requests, gap_ns: 1000, ..Crowd::new(server, CrowdKind::Dns, EPOCH_NS) }
}

#[test]
fn a_rule_that_meets_no_packet_and_an_event_behind_the_last_are_told() {
    let toml = format!(
        "{CONNECTED}\n[[consumer]]\nprotocol = \"tcp\"\nlocal = \":9\"\n\n\
         [[event]]\nat = \"60m\"\noffline = 1\n"
    );
    let host = Host::simple(4, 1).unwrap();
    let options = with_rules(&[Rps], &toml, &host);
    let mut scenario = Scenario::new(5);
    scenario.add(flows(8, 20));
    let report = run_scenario(scenario, host, options);
    let told: Vec<&str> = report
        .findings
        .iter()
        .filter(|finding| finding.code == FindingCode::WithoutEffect)
        .map(|finding| finding.text.as_str())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("rule 2 "), "{told:?}");
    assert!(told[1].contains("change nothing: 1."), "{told:?}");
}

#[test]
fn a_hash_key_that_nobody_gave_is_told_where_it_matters() {
    let told = |queues: u32, key: Option<Vec<u8>>| {
        let mut host = Host::simple(4, queues).unwrap();
        if let Some(key) = key {
            host.rss.key = key;
        }
        let mut scenario = Scenario::new(5);
        scenario.add(flows(8, 20));
        let report = run_scenario(scenario, host, options(&[Rps]));
        report.findings.iter().any(|finding| finding.code == FindingCode::AssumedRssKey)
    };
    assert!(told(2, None));
    assert!(!told(1, None));
    assert!(!told(2, Some(vec![7; 40])));
}

/// Of n flows drawn at random over m places of one flow each, the last to write a place is the
/// one asked for with probability (1 - e^(-n/m)) / (n/m).
#[test]
fn the_hit_rate_of_a_table_of_linux_is_that_of_balls_in_bins() {
    for (flows_at_once, entries) in [(512u64, 1024u64), (1024, 1024), (512, 8192)] {
        let host = table_of(entries);
        let mut options = with_rules(&[Rfs, FlowAware], CONNECTED, &host);
        options.service = ServiceKind::Instant;
        let mut scenario = Scenario::new(5);
        scenario.add(flows(flows_at_once, 40));
        let report = run_scenario(scenario, host, options);
        let load = flows_at_once as f64 / entries as f64;
        // The first packet of each flow finds nothing.
        let expected = (1.0 - (-load).exp()) / load * (1.0 - 1.0 / 40.0);
        let linux = policy(&report, "rfs").hit_rate.unwrap();
        assert!((linux - expected).abs() < 0.03, "{flows_at_once}/{entries}: {linux} {expected}");
        let ours = policy(&report, "flow-aware").hit_rate.unwrap();
        assert!(ours >= linux - 0.001, "{flows_at_once}/{entries}: {ours} {linux}");
        assert_eq!(policy(&report, "flow-aware").wrong_steers, 0);
    }
}

#[test]
fn strangers_do_not_change_the_hit_rate_of_flows_and_never_write() {
    let run_with = |noise: u64| {
        let host = table_of(4096);
        let policies = [Rfs, RfsClear, RfsSplit, RfsTcp, FlowAware];
        let mut options = with_rules(&policies, CONNECTED, &host);
        options.service = ServiceKind::Instant;
        let mut scenario = Scenario::new(5);
        scenario.add(flows(1024, 20)).add(strangers(noise));
        run_scenario(scenario, host, options)
    };
    let (quiet, loud) = (run_with(1), run_with(40_000));
    let rate = |report, name| policy(report, name).hit_rate.unwrap();
    let (before, after) = (rate(&quiet, "flow-aware"), rate(&loud, "flow-aware"));
    assert!((before - after).abs() < 0.001, "{before} {after}");
    assert_eq!(policy(&loud, "flow-aware").writes.by_non_flows, 0);
    assert_eq!(policy(&loud, "rfs").writes.by_non_flows, 0);
    let cleared = policy(&loud, "rfs-clear");
    assert!(cleared.writes.by_non_flows > 500, "{:?}", cleared.writes);
    assert!(rate(&loud, "rfs-clear") < rate(&quiet, "rfs-clear") - 0.05);
    assert_eq!(rate(&loud, "rfs-tcp"), 0.0, "UDP is not asked");
}

#[test]
fn without_identity_strangers_are_steered_by_the_entries_of_others() {
    let host = table_of(1024);
    let mut scenario = Scenario::new(5);
    scenario.add(flows(2048, 10)).add(strangers(10_000));
    let options = with_rules(&[Rfs2010, Rfs, FlowAware], CONNECTED, &host);
    let report = run_scenario(scenario, host, options);
    assert!(policy(&report, "rfs-2010").wrong_steers > 5_000);
    assert_eq!(policy(&report, "rfs").wrong_steers, 0);
    assert_eq!(policy(&report, "flow-aware").wrong_steers, 0);
    assert!(finding(&report, FindingCode::WrongSteers).unwrap().text.starts_with("rfs-2010"));
}

#[test]
fn a_flood_of_syns_neither_asks_nor_writes_the_flow_aware_table() {
    let mut scenario = Scenario::new(5);
    let flood = Crowd::new(address(SERVER, 80), CrowdKind::SynFlood, EPOCH_NS);
    scenario.add(Crowd { requests: 20_000, gap_ns: 1000, ..flood });
    let local = LocalRule::Prefixes(vec!["192.0.2.10".parse().unwrap()]);
    let options = ReplayOptions { local, ..options(&[Rfs, FlowAware]) };
    let report = run_scenario(scenario, table_of(1024), options);
    let aware = policy(&report, "flow-aware");
    assert_eq!(report.input.classes.tcp_syn, 20_000);
    assert_eq!(report.consumers.tcp_connections, 0);
    assert_eq!((aware.reasons.no_flow.tcp_syn, aware.probes.not_asked), (20_000, 20_000));
    assert_eq!((aware.writes.by_flows, aware.table.used), (0, 0));
}

#[test]
fn a_resize_under_way_empties_linux_and_keeps_ours() {
    let host = table_of(8192);
    let rules = format!("{CONNECTED}[[event]]\nat = \"10ms\"\ntable_entries = 16384\n");
    let mut options = with_rules(&[Rfs, FlowAware], &rules, &host);
    options.service = ServiceKind::Instant;
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { turns: Turns::RoundRobin, ..flows(1000, 20) });
    let report = run_scenario(scenario, host, options);
    let empty = |name| policy(&report, name).probes.empty;
    assert_eq!(empty("flow-aware"), 1000, "each flow's first packet only");
    assert!(empty("rfs") >= 1900, "{}: every flow begins anew", empty("rfs"));
    assert_eq!(policy(&report, "flow-aware").table.entries, 2 * 16_384);
}

/// One connected socket whose packets come with a new IPv6 flow label each.
#[test]
fn a_socket_that_is_fed_many_hashes_cannot_fill_the_table() {
    let (a, b) = ("2001:db8::1".parse::<Ipv6Addr>().unwrap(), "2001:db8::2".parse().unwrap());
    let mut frames: Frames = (0..2000u32)
        .map(|n| {
            let v6 = V6 { flow_label: n + 1, ..V6::new(a, b) };
            let layers = [Layer::Ethernet { back: false }, Layer::V6(v6), udp(40_000, 7000)];
            (u64::from(n) * 20_000, packet(&layers, b"x"))
        })
        .collect();
    let host = table_of(8192);
    let report = run(&frames, host.clone(), with_rules(&[Rfs, FlowAware], CONNECTED, &host));
    let aware = policy(&report, "flow-aware");
    assert!(aware.table.used <= 1, "{:?}", aware.table);
    assert!(aware.writes.refused > 1900, "{:?}", aware.writes);
    assert!(policy(&report, "rfs").table.used > 1500, "Linux has no such guard");
    // A socket with one hash is heard.
    frames.truncate(1);
    let more = (1..50u64).map(|n| (n * 20_000, frames[0].1.clone()));
    let frames: Frames = more.collect();
    let report = run(&frames, host.clone(), with_rules(&[FlowAware], CONNECTED, &host));
    assert_eq!(policy(&report, "flow-aware").writes.refused, 0);
    assert_eq!(policy(&report, "flow-aware").table.used, 1);
}

#[test]
fn a_disconnect_withdraws_the_flow_and_a_close_wipes_only_under_linux() {
    // The local side asks one server, then another peer answers to the same port.
    let other = Ipv4Addr::new(203, 0, 113, 9);
    let ask = udp_frame((SERVER, 50_000), (CLIENT, 53), b"?");
    let answer = udp_frame((CLIENT, 53), (SERVER, 50_000), b"!");
    let intruder = udp_frame((other, 53), (SERVER, 50_000), b"!");
    let mut frames = Frames::new();
    for n in 0..10u64 {
        frames.push((n * 100_000, ask.clone()));
        frames.push((n * 100_000 + 50_000, answer.clone()));
    }
    frames.push((2_000_000, intruder));
    let local = LocalRule::Prefixes(vec!["192.0.2.10".parse().unwrap()]);
    let options = ReplayOptions { local, ..options(&[Rfs, FlowAware]) };
    let report = run(&frames, Host::simple(4, 1).unwrap(), options);
    assert_eq!(report.consumers.udp_connected, 1);
    assert_eq!(report.consumers.closed, 1);
    let aware = policy(&report, "flow-aware");
    assert_eq!((aware.writes.withdrawn, aware.table.used), (1, 0));
    let linux = policy(&report, "rfs");
    assert_eq!((linux.writes.withdrawn, linux.table.used), (0, 1), "Linux forgets to");
}

#[test]
fn under_load_one_signal_serves_many_packets() {
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { gap_ns: 200, ..flows(1000, 30) });
    let report = run_scenario(scenario, Host::simple(4, 1).unwrap(), options(&[Off, Rps]));
    let rps = policy(&report, "rps");
    assert!(rps.signals > 0 && rps.signals * 10 < rps.handoffs, "{} {}", rps.signals, rps.handoffs);
    assert_eq!(policy(&report, "none").signals, 0);
}

#[test]
fn a_reader_that_is_too_slow_loses_packets_and_each_is_counted_once() {
    let rules =
        "[[consumer]]\nlocal = \":7000\"\nconnected = false\ncpus = \"3\"\nwork_ns = 20000\n";
    let host = Host::simple(4, 1).unwrap();
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { gap_ns: 5_000, ..flows(50, 100) });
    let report = run_scenario(scenario, host.clone(), with_rules(&[Rps, FlowAware], rules, &host));
    let rps = policy(&report, "rps");
    assert!(rps.drops.receive_buffer > 1000, "{:?}", rps.drops);
    let aware = policy(&report, "flow-aware");
    assert!(aware.drops.shed > 1000 && aware.drops.receive_buffer == 0, "{:?}", aware.drops);
    assert_eq!(aware.reasons.shed.total(), aware.drops.shed);
    assert!(finding(&report, FindingCode::ReaderTooSlow).unwrap().text.contains("only delays"));
    // What was shed never found a buffer full.
    let told = |name: &str, drops: &str| {
        let of = report.findings.iter().find(|f| f.text.starts_with(&format!("{name}: ")));
        let text = &of.unwrap_or_else(|| panic!("nothing of {name}")).text;
        assert!(text.starts_with(&format!("{name}: {drops}")), "{text}");
    };
    told("rps", &format!("{} packets found the receive buffer", rps.drops.receive_buffer));
    told("flow-aware", &format!("{} packets had to be shed early", aware.drops.shed));
}

#[test]
fn limits_of_state_change_no_sum_and_are_told() {
    let mut scenario = Scenario::new(5);
    scenario.add(flows(5000, 4)).add(strangers(20_000));
    let small = ReplayOptions { flow_limit: 64, socket_limit: 16, ..ReplayOptions::default() };
    let report = run_scenario(scenario, Host::simple(4, 2).unwrap(), small);
    assert!(finding(&report, FindingCode::LimitReached).is_some());
    assert!(report.consumers.most_at_once <= 16);
    assert!(!report.flows.one_second.exact);
}

#[test]
fn what_a_full_ring_loses_is_in_the_course_too() {
    let host = host("cpus = 2\nqueues = 1\n[limits]\nring = 64\n");
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { gap_ns: 20, ..flows(50, 100) });
    let report = run_scenario(scenario, host, options(&[Off, Rps]));
    // The sums over the course are checked of every report.
    for policy in &report.policies {
        assert!(policy.drops.ring > 100, "{}: {:?}", policy.policy, policy.drops);
    }
}

#[test]
fn where_all_lose_the_simplest_that_carries_nearly_the_most_is_named() {
    let mut scenario = Scenario::new(5);
    scenario.add(Crowd { gap_ns: 100, ..strangers(60_000) });
    let host = Host::simple(8, 1).unwrap();
    let options = ReplayOptions { workers: 8, ..options(&[Off, Rps, FlowAware]) };
    let report = run_scenario(scenario, host, options);
    let carried = |name: &str| {
        let p = policy(&report, name);
        1.0 - p.drops.total() as f64 / p.received as f64
    };
    // All lose most of it; with strangers alone flow-aware carries about as much, within the 15 %.
    let ratio = carried("flow-aware") / carried("rps");
    assert!((0.95..1.15).contains(&ratio) && carried("flow-aware") < 0.5, "{ratio}");
    assert_eq!(report.verdict.policy, "rps");
    let none = report.verdict.others.iter().find(|other| other.policy == "none").unwrap();
    let expected = format!("carries {:.2} times", carried("none") / carried("rps"));
    assert!(none.text.starts_with(&expected), "{expected}: {}", none.text);
}

#[test]
fn at_a_light_load_the_answer_is_to_leave_it_off() {
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { gap_ns: 12_000, ..flows(100, 40) });
    let host = Host::simple(8, 1).unwrap();
    let options = with_rules(&PolicyKind::ALL, CONNECTED, &host);
    let report = run_scenario(scenario, host, options);
    let verdict = &report.verdict;
    assert_eq!(verdict.code, VerdictCode::LeaveItOff, "{verdict:#?}");
    assert!(verdict.unless.iter().any(|text| text.contains("Under more load use")), "{verdict:#?}");
    assert!(verdict.unless.iter().any(|text| text.contains("would be full")), "{verdict:#?}");
    assert_eq!(verdict.others.len(), 7);
}

#[test]
fn one_busy_queue_on_many_cpus_is_steered_with_exact_settings() {
    let host = Host::from_toml("h", "cpus = 8\nqueues = 1\n[costs]\nhop_near = 10\n").unwrap();
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { gap_ns: 700, ..flows(2000, 20) });
    let options = with_rules(&[Off, Rfs], CONNECTED, &host);
    let report = run_scenario(scenario, host, options);
    assert_eq!(report.verdict.code, VerdictCode::UseRfs, "{:#?}", report.verdict);
    // 2,000 flows need ten times the entries for 95 % hits, rounded up to a power of two.
    assert_eq!(setting(&report, "rps_sock_flow_entries"), ["32768"]);
    assert_eq!(setting(&report, "rps_flow_cnt"), ["32768"]);
    assert!(["fe", "ff"].contains(&setting(&report, "rps_cpus")[0]));
}

#[test]
fn a_full_reader_is_named_as_what_no_policy_moves() {
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { gap_ns: 1_000, ..flows(2000, 20) });
    let rules = "[[consumer]]\nconnected = false\nsockets = 1\ncpus = \"0\"\nwork_ns = 3000\n";
    let host = Host::simple(8, 1).unwrap();
    let options = with_rules(&[Off, Rps], rules, &host);
    let report = run_scenario(scenario, host, options);
    let verdict = &report.verdict;
    assert_eq!(
        policy(&report, &verdict.policy).cpus[0].read,
        policy(&report, &verdict.policy).read
    );
    let told = verdict.unless.iter().find(|text| text.contains("no policy moves the work"));
    assert!(told.is_some_and(|text| text.starts_with("CPU 0 reads 100 %")), "{verdict:#?}");
    // Equal figures are no gain.
    assert!(!verdict.summary.contains("100 % busy instead of 100 %"), "{}", verdict.summary);
    assert!(verdict.buys.iter().all(|text| !text.contains("1.0 times")), "{:?}", verdict.buys);
}

#[test]
fn where_a_reader_starves_the_table_that_switches_the_means_on_is_named() {
    let rules = "[[consumer]]\nconnected = false\nsockets = 1\ncpus = \"0\"\n";
    let told = |more: &str, gap_ns: u64| {
        let host = host(&format!("cpus = 2\nqueues = 1\n[[queue]]\nirq_cpu = 0\n{more}"));
        let mut scenario = Scenario::new(5);
        scenario.add(Uniform { gap_ns, ..flows(200, 200) });
        let report =
            run_scenario(scenario, host.clone(), with_rules(&[Off, FlowAware], rules, &host));
        let starved = finding(&report, FindingCode::ReaderStarved).is_some();
        let unless = &report.verdict.unless;
        (starved, unless.iter().any(|text| text.contains("a table [overload] in the host file")))
    };
    assert_eq!(told("", 300), (true, true));
    assert_eq!(told("", 50_000), (false, false), "nobody starves");
    assert_eq!(told("[overload]\nshed = true\n", 300), (true, false), "it is there already");
}

#[test]
fn without_rfs_the_settings_turn_its_table_off() {
    let host = Host::simple(4, 4).unwrap();
    let mut scenario = Scenario::new(5);
    scenario.add(Uniform { gap_ns: 12_000, ..flows(100, 40) });
    let report = run_scenario(scenario, host, options(&[Off, Rps]));
    assert_eq!(report.verdict.code, VerdictCode::LeaveItOff, "{:#?}", report.verdict);
    assert_eq!(setting(&report, "rps_cpus"), ["0"; 4]);
    assert_eq!(setting(&report, "rps_sock_flow_entries"), ["0"]);
}

#[test]
fn a_capture_without_packets_or_without_received_ones_says_so() {
    let report = run(&Frames::new(), Host::simple(2, 1).unwrap(), ReplayOptions::default());
    assert_eq!(report.verdict.code, VerdictCode::NoData);
    assert!(finding(&report, FindingCode::Empty).unwrap().text.contains("no packets"));

    let local = LocalRule::Prefixes(vec!["203.0.113.1".parse().unwrap()]);
    let frames: Frames = vec![(0, udp_frame((CLIENT, 1), (SERVER, 2), b"x"))];
    let options = ReplayOptions { local, ..ReplayOptions::default() };
    let report = run(&frames, Host::simple(2, 1).unwrap(), options);
    assert_eq!(report.input.skipped.not_local, 1);
    assert!(finding(&report, FindingCode::Empty).unwrap().text.contains("not_local 1"));
}

#[test]
fn packets_that_are_too_few_or_have_no_times_are_no_reason_to_steer() {
    let nearby: Vec<u64> = (0..40).map(|n| n * 100).collect();
    for (times, told) in [
        (vec![7_000], "Too few packets to judge by: 1 received"),
        (nearby, "Too few packets to judge by: 40 received"),
        (vec![7_000; 200], "200 packets received have no times that differ"),
    ] {
        let frames: Frames = (1..)
            .zip(times)
            .map(|(port, at)| (at, udp_frame((CLIENT, port), (SERVER, 53), b"x")))
            .collect();
        let report = run(&frames, Host::simple(4, 1).unwrap(), options(&[Off, Rps]));
        let verdict = &report.verdict;
        assert_eq!(verdict.code, VerdictCode::NoData, "{verdict:#?}");
        assert!(verdict.summary.contains(told), "{verdict:#?}");
        assert!(verdict.settings.is_empty());
    }
}

#[test]
fn tables_that_need_more_memory_than_the_limit_are_refused_before_they_are_made() {
    let refused = |host: Host, options: ReplayOptions| match Replay::new(host, options) {
        Err(error @ ReplayError::TablesTooLarge { .. }) => error.to_string(),
        other => panic!("{:?}", other.map(|_| "was accepted")),
    };
    // 2^29 words and as many of the shadow, 4 bytes each: 4 GiB; and 2^27 slots of 8 bytes, the
    // most that a queue has: 1 GiB.
    let message = refused(table_of(1 << 29), options(&[Rfs]));
    assert!(message.contains("5120 MiB") && message.contains("allowed are 4096 MiB"), "{message}");
    let sweep = ReplayOptions { sweep_table_entries: vec![1 << 29], ..options(&[Rfs]) };
    refused(table_of(4096), sweep);
    let resized =
        with_rules(&[Rfs], "[[event]]\nat = \"1s\"\ntable_entries = 536870912\n", &table_of(8));
    refused(table_of(8), resized);
    // Policies without tables need none.
    assert!(Replay::new(table_of(1 << 29), options(&[Off, Rps])).is_ok());
}

#[test]
fn times_that_go_backwards_count_as_of_the_later_time() {
    let frame = udp_frame((CLIENT, 1), (SERVER, 2), b"x");
    let frames: Frames = [5_000, 9_000, 1_000, 7_000].map(|at| (at, frame.clone())).to_vec();
    let report = run(&frames, Host::simple(2, 1).unwrap(), options(&[Rps]));
    assert_eq!((report.input.time_went_back, report.input.span_ns), (2, 4_000));
    assert_eq!(policy(&report, "rps").read, 4);
}

#[test]
fn a_sweep_has_a_point_for_each_size_and_policy_that_has_tables() {
    let host = table_of(1024);
    let mut options = with_rules(&[Rps, Rfs, FlowAware], CONNECTED, &host);
    options.sweep_table_entries = vec![64, 1024, 16_384];
    let mut scenario = Scenario::new(5);
    scenario.add(flows(1000, 20));
    let report = run_scenario(scenario, host, options);
    let names: Vec<&str> = report.sweeps.iter().map(|s| s.policy.as_str()).collect();
    assert_eq!(names, ["rfs", "flow-aware"]);
    for curve in &report.sweeps {
        let rates: Vec<f64> = curve.points.iter().map(|p| p.hit_rate.unwrap()).collect();
        assert!(rates.windows(2).all(|w| w[0] < w[1]), "{}: {rates:?}", curve.policy);
        assert_eq!(curve.points.iter().map(|p| p.value).collect::<Vec<_>>(), [64, 1024, 16_384]);
    }
    assert_eq!(report.policies.len(), 3);
}

#[test]
fn times_at_both_ends_of_what_fits_are_replayed() {
    let frame = udp_frame((CLIENT, 1), (SERVER, 2), b"x");
    let frames: Frames = [0, 5, u64::MAX, u64::MAX].map(|at| (at, frame.clone())).to_vec();
    let report = run(&frames, Host::simple(2, 1).unwrap(), ReplayOptions::default());
    assert_eq!(report.input.span_ns, 1 << 62);
    assert!(report.policies.iter().all(|p| p.read == 4));
}

#[test]
fn a_device_that_does_not_fit_the_host_is_refused() {
    let mut host = Host::simple(2, 2).unwrap();
    host.rss.table = vec![0, 1, 2];
    let refused = |host: &Host| {
        let error = Replay::new(host.clone(), ReplayOptions::default()).err().unwrap();
        error.to_string()
    };
    assert!(refused(&host).contains("names queue 2, but the host has 2 (0 to 1)"));
    host.rss.table = vec![0, 1];
    host.rss.key.truncate(39);
    assert!(refused(&host).contains("39 bytes"));
}

/// Frames of the sample with bytes overwritten and ends cut off, at times in any order.
#[test]
fn damaged_frames_are_counted_like_all_others() {
    let mut rng = rxsteer_lab::generate::Rng::new(77, 0);
    let mut sample = rxsteer_lab::generate::sample().frames();
    let mut frames = Frames::new();
    while let Some(frame) = sample.next_frame() {
        let mut bytes = frame.bytes.clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.bits() as u8;
        }
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize + 1);
        frames.push((frame.time_ns ^ rng.below(1 << 20), bytes));
        if frames.len() == 4000 {
            break;
        }
    }
    for mode in [rxsteer_core::dissect::Mode::Kernel, rxsteer_core::dissect::Mode::Inner] {
        let options = ReplayOptions {
            mode,
            track_fragments: true,
            local: LocalRule::All,
            workers: 3,
            ..ReplayOptions::default()
        };
        let report = run(&frames, Host::simple(3, 2).unwrap(), options);
        assert_eq!(report.input.received, 4000);
        assert!(report.input.dissect_errors.total() > 1000, "{:?}", report.input.dissect_errors);
    }
}

/// One flow in bursts: merged, its protocol work is done once a train.
#[test]
fn merging_saves_protocol_work_and_loses_or_reorders_nothing() {
    let run_with = |engine: &str| {
        let host = host(&format!("cpus = 2\n[engine]\nrx_usecs = 150\n{engine}\n"));
        let mut scenario = Scenario::new(5);
        scenario.add(Uniform { gap_ns: 4000, ..flows(4, 500) });
        run_scenario(scenario, host, options(&[Off, Rps]))
    };
    let (single, merged) = (run_with(""), run_with("udp_gro = true"));
    for name in ["none", "rps"] {
        let (single, merged) = (policy(&single, name), policy(&merged, name));
        for policy in [single, merged] {
            let ends = (policy.read, policy.drops.total(), policy.reordered);
            assert_eq!(ends, (2000, 0, 0), "{name}");
        }
        let saved = single.cpu_ns_per_packet - merged.cpu_ns_per_packet;
        // Of 500 ns of protocol work and 500 of reading most is saved, and merging costs 40.
        assert!((500.0..1000.0).contains(&saved), "{name}: {saved}");
    }
}
