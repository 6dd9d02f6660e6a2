//! Public field reports as experiments.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::ops::ControlFlow;

use rxsteer_lab::experiment::{Experiment, ExperimentReport, run};

fn ran(text: &str) -> ExperimentReport {
    let experiment =
        Experiment::from_toml("report.toml", text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let (report, whole) = run(&experiment, 0, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(whole);
    for case in &report.cases {
        assert!(case.policies.iter().all(|policy| policy.adds_up), "{case:?}");
    }
    report
}

fn value(report: &ExperimentReport, measure: &str, of: &str) -> f64 {
    report.value(measure, of).unwrap_or_else(|| panic!("no {measure} of {of}"))
}

/// One flow of 100 datagrams a microsecond apart; the mask changes after number 50, when some 20 of
/// them wait.
const MASK_CHANGE: &str = r#"
name = "mask-change-of-one-flow"
title = "The mask changes under one flow"
about = "Later packets must not overtake those that wait on the old CPU."
duration = "100us"
policies = ["rps"]
show = ["reordered"]
[host]
cpus = 5
[[host.queue]]
irq_cpu = 4
cpu_mask = "3"
[host.costs]
interrupt = 0
take = 10
hash = 0
choose = 0
backlog = 0
signal_send = 0
signal_reach = 0
signal_take = 0
hop_near = 0
protocol_udp = 1600
[[traffic]]
kind = "stream"
flows = 1
per_second = 1_000_000
port = 5000
[[event]]
at = "49500ns"
cpus = "2-3"
[[case]]
name = "at once"
[[case]]
name = "drained"
set = { "options.drain" = true }
"#;

#[test]
fn tempesta_2683_rps_alone_reorders_at_a_mask_change_and_drained_it_does_not() {
    let report = ran(MASK_CHANGE);
    assert_eq!(value(&report, "received", "at once/rps"), 100.0);
    assert!(value(&report, "reordered", "at once/rps") > 0.0);
    assert_eq!(value(&report, "moved", "at once/rps"), 1.0);
    assert_eq!(value(&report, "unsafe_moves", "at once/rps"), 1.0);
    assert_eq!(value(&report, "reordered", "drained/rps"), 0.0);
    assert!(value(&report, "held", "drained/rps") > 0.0);
}

/// Datagrams of 3,000 bytes, three fragments each, of clients that keep their port.
const FRAGMENTS: &str = r#"
name = "fragments"
title = "Datagrams in fragments"
about = "All fragments of a datagram go to one CPU, or nobody can put it together."
duration = "20ms"
policies = ["rps", "flow-aware"]
show = ["moved"]
[host]
cpus = 8
[[traffic]]
kind = "udp"
flows = 32
per_second = 20_000
port = 5000
bytes = 3000
[[case]]
name = "as Linux"
[[case]]
name = "tracked"
set = { "options.track_fragments" = true }
"#;

#[test]
fn f_stack_433_no_fragment_leaves_the_cpu_of_its_datagram() {
    let report = ran(FRAGMENTS);
    for case in ["as Linux", "tracked"] {
        let of = format!("{case}/rps");
        assert_eq!(value(&report, "moved", &of), 0.0, "{of}");
        assert_eq!(value(&report, "reordered", &of), 0.0, "{of}");
        assert!(value(&report, "cpus_used", &of) > 4.0, "{of}");
    }
}

/// 64 UDP flows between two hosts over IPv6, all with one flow label.
const LABEL: &str = r#"
name = "flow-label"
title = "One flow label for all flows"
about = "Linux hashes addresses and label, and leaves out the ports."
duration = "10ms"
policies = ["rps"]
show = ["cpus_used"]
[host]
cpus = 8
[[traffic]]
kind = "stream"
name = "flows"
flows = 64
per_second = 200_000
port = 5000
one_client = true
flow_label = 0x12345
[[case]]
name = "label"
[[case]]
name = "no label"
set = { "traffic.flows.flow_label" = 0 }
[[case]]
name = "label left out"
set = { "options.ignore_flow_label" = true }
"#;

#[test]
fn cilium_21961_one_label_puts_all_flows_on_one_cpu_and_without_it_they_spread() {
    let report = ran(LABEL);
    assert_eq!(value(&report, "cpus_used", "label/rps"), 1.0);
    assert_eq!(value(&report, "cpus_used", "no label/rps"), 8.0);
    assert_eq!(value(&report, "cpus_used", "label left out/rps"), 8.0);
}

/// 90,000 datagrams/s to a reader that takes 60,000, with a buffer of a tenth of a second, and a
/// quiet sender of 97/s to the same socket. A tenth of the report's sizes.
const SLOW_READER: &str = r#"
name = "slow-reader"
title = "90 k datagrams a second into a reader of 60 k"
about = "A larger buffer only delays the loss; a quiet sender must not pay for it."
duration = "1s"
policies = ["none"]
show = ["dropped_share"]
[host]
cpus = 2
[[host.queue]]
irq_cpu = 0
cpus = "none"
[host.limits]
udp_receive_buffer = 5_244_000
[[traffic]]
kind = "stream"
flows = 1
per_second = 90_000
port = 514
bytes = 64
[[traffic]]
kind = "stream"
name = "quiet"
flows = 1
per_second = 97
port = 514
bytes = 64
[[consumer]]
protocol = "udp"
local = ":514"
connected = false
cpus = "1"
work_ns = 16_000
[[case]]
name = "as Linux"
[[case]]
name = "fair"
policies = ["flow-aware"]
set = { "host.overload" = { shed = true, fair = true, in_flight = true, beside = false, spill = false, govern = false } }
"#;

#[test]
fn vector_5017_a_third_is_lost_with_one_reason_each_and_a_quiet_sender_loses_nothing() {
    let report = ran(SLOW_READER);
    for of in ["as Linux/none", "fair/flow-aware"] {
        let m = |measure| value(&report, measure, of);
        assert_eq!(m("read") + m("dropped"), m("received"), "{of}");
        assert_eq!(m("dropped"), m("socket_drops") + m("shed") + m("ring_drops"), "{of}");
        // The reader takes 60,000/s and a buffer besides; the rest of 90,000 is lost. Under
        // flow-aware packet work is on its CPU, and takes a part of it.
        let lost = 90_000.0 - 60_000.0 - 6_000.0;
        assert!((m("dropped") - lost).abs() < 0.3 * lost, "{of}: {}", m("dropped"));
    }
    assert_eq!(value(&report, "lossy_flows", "as Linux/none"), 2.0);
    assert_eq!(value(&report, "lossy_flows", "fair/flow-aware"), 1.0);
    assert!(value(&report, "shed", "fair/flow-aware") > 0.0);
    assert_eq!(value(&report, "socket_drops", "fair/flow-aware"), 0.0);
}
