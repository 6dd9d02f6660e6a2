//! What the shipped experiments must show, seen in the JSON of their runs.
//!
//! Sizes are scaled down where that keeps the ratio, so that tests of a debug build stay short;
//! `cargo xtask experiments --check` runs all of them at full size.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::ops::ControlFlow;

use rxsteer_lab::experiment::{Experiment, Setting, run, shipped};
use serde_json::Value;

/// Runs a shipped experiment with values in place of its own and returns its JSON; checks what must
/// hold of every run.
fn ran(name: &str, settings: &[&str]) -> Value {
    let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
    let text = shipped(name).unwrap().text;
    json_of(&Experiment::from_toml(name, text, &settings).unwrap_or_else(|e| panic!("{e}")))
}

fn json_of(experiment: &Experiment) -> Value {
    let (report, whole) = run(experiment, 0, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(whole);
    let json = serde_json::to_value(&report).unwrap();
    for case in json["cases"].as_array().unwrap() {
        for policy in case["policies"].as_array().unwrap() {
            let m = |name: &str| policy["measures"][name].as_f64().unwrap();
            assert_eq!(policy["adds_up"], true, "{case}");
            if policy["measures"]["lookups"].is_number() {
                assert!(m("found") > 0.0 && m("found") <= m("lookups"));
                continue;
            }
            assert_eq!(m("received"), m("read") + m("finished") + m("dropped"), "{case}");
            assert!(m("received") > 0.0);
        }
    }
    json
}

/// Returns a measure of `CASE/POLICY`.
fn value(json: &Value, measure: &str, of: &str) -> f64 {
    let (case, policy) = of.rsplit_once('/').unwrap();
    let find = |list: &Value, key: &str, name: &str| {
        let all = list.as_array().unwrap();
        all.iter().find(|one| one[key] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let policy = find(&find(&json["cases"], "case", case)["policies"], "policy", policy);
    policy["measures"][measure].as_f64().unwrap_or_else(|| panic!("no {measure}"))
}

fn near(value: f64, expected: f64, within: f64) {
    let distance = (value - expected).abs();
    assert!(distance <= within * expected, "{value} is not within {within} of {expected}");
}

#[test]
fn idle_tcp_mis_steers_without_identity_heals_by_clearing_and_never_does_otherwise() {
    // An eighth of everything: the share of taken slots stays 1 - 1/e.
    let run = ran(
        "idle-tcp",
        &[
            "host.tables.rps_sock_flow_entries=4096",
            "traffic.idle.flows=4096",
            "traffic.udp.per_second=125000",
        ],
    );
    let taken = 1.0 - (-1.0f64).exp();
    near(value(&run, "steered_udp", "all/rfs-2010"), taken, 0.05);
    // One wrong packet for each slot that was taken, and then none: of 50,000.
    near(value(&run, "steered_udp", "all/rfs-clear"), taken * 4096.0 / 50_000.0, 0.08);
    near(value(&run, "writes_by_non_flows", "all/rfs-clear"), taken * 4096.0, 0.08);
    assert_eq!(value(&run, "table_used", "all/rfs-clear"), 0.0);
    for policy in ["rfs", "rfs-split", "rfs-tcp", "flow-aware"] {
        assert_eq!(value(&run, "wrong_steers", &format!("all/{policy}")), 0.0, "{policy}");
    }
    assert_eq!(value(&run, "steered_udp", "all/flow-aware"), 0.0);
    assert_eq!(value(&run, "writes_by_non_flows", "all/flow-aware"), 0.0);
}

#[test]
fn udp_flood_table_rewrites_every_slot_and_costs_tcp_its_hits_unless_it_is_flow_aware() {
    // A sixteenth of the packets on a sixteenth of the slots: the rate of a slot stays.
    let run = ran(
        "udp-flood-table",
        &[
            "host.tables.rps_sock_flow_entries=4096",
            "traffic.flood.per_second=62500",
            "traffic.tcp.flows=125",
            "traffic.tcp.per_second=3125",
        ],
    );
    let stores = value(&run, "clears_per_slot_s", "flood/rfs-clear");
    assert!((15.0..=16.0).contains(&stores), "{stores}");
    let hits = |of: &str| value(&run, "hit_rate", of);
    // Requests of a flow are 20 to 60 ms apart, evenly; an entry outlives a gap g with exp(-15.3 g).
    let survives = {
        let rate: f64 = 62_500.0 / 4096.0;
        ((-rate * 0.02).exp() - (-rate * 0.06).exp()) / (rate * 0.04)
    };
    near(hits("flood/rfs-clear") / hits("no flood/rfs-clear"), survives, 0.1);
    assert_eq!(hits("flood/flow-aware"), hits("no flood/flow-aware"));
    for policy in ["rfs", "rfs-split", "rfs-tcp", "flow-aware"] {
        let of = format!("flood/{policy}");
        assert_eq!(value(&run, "writes_by_non_flows", &of), 0.0, "{policy}");
        assert_eq!(value(&run, "clears", &of), 0.0, "{policy}");
    }
    assert!(hits("flood/flow-aware") >= hits("flood/rfs"));
}

#[test]
fn mixed_protocols_shows_both_objections_as_numbers() {
    let run = ran("mixed-protocols", &["duration=100ms", "traffic.idle.stop=30ms"]);
    let of = |measure: &str, policy: &str| value(&run, measure, &format!("all/{policy}"));
    // A shared table is worse for mixed loads than one a protocol.
    assert!(of("evictions", "rfs") > 1.3 * of("evictions", "rfs-split"));
    assert!(of("hit_rate", "rfs-split") > 1.02 * of("hit_rate", "rfs"));
    // TCP only: the UDP flows get nothing.
    assert_eq!(of("steered_udp", "rfs-tcp"), 0.0);
    assert!(of("hit_rate", "rfs-tcp") < of("hit_rate", "rfs-split"));
    // What is no flow takes entries under clearing.
    assert!(of("writes_by_non_flows", "rfs-clear") > 0.0);
    assert!(of("hit_rate", "rfs-clear") < 0.9 * of("hit_rate", "rfs"));
    // Flow against non-flow, not protocol against protocol.
    assert!(of("hit_rate", "flow-aware") > 1.05 * of("hit_rate", "rfs-split"));
    assert!(of("steered_udp", "flow-aware") > of("steered_udp", "rfs-split"));
    assert_eq!(of("wrong_steers", "flow-aware"), 0.0);
    assert_eq!(of("writes_by_non_flows", "flow-aware"), 0.0);
}

#[test]
fn table_size_direct_mapped_follows_balls_in_bins_and_ours_is_above() {
    let run = ran(
        "table-size",
        &[
            "traffic.flows.flows=512",
            "sweep.values=[256,512,1024,4096]",
            "traffic.flows.per_second=200000",
            "figure=[]",
            "claim=[]",
        ],
    );
    // Each flow's first packet misses: 512 of 60,000.
    let first = 1.0 - 512.0 / 60_000.0;
    for entries in [256.0, 512.0, 1024.0, 4096.0] {
        let load: f64 = 512.0 / entries;
        let expected = (1.0 - (-load).exp()) / load * first;
        let linux = value(&run, "hit_rate", &format!("{entries}/rfs"));
        near(linux, expected, 0.06);
        let ours = value(&run, "hit_rate", &format!("{entries}/flow-aware"));
        assert!(ours >= linux, "{entries}: {ours} {linux}");
    }
    let ours = |entries| value(&run, "hit_rate", &format!("{entries}/flow-aware"));
    assert!(ours(1024) > 0.995 * first, "{}", ours(1024));
    assert!(ours(512) > 0.95 * first, "{}", ours(512));
    // Ours has entries of 8 bytes, so at equal memory half as many.
    assert!(ours(512) >= value(&run, "hit_rate", "1024/rfs"));
}

#[test]
fn syn_flood_neither_uses_nor_writes_the_table() {
    let run = ran(
        "syn-flood",
        &["duration=100ms", "traffic.flood.per_second=200000", "traffic.tcp.flows=500"],
    );
    assert_eq!(value(&run, "syn_asked", "flood/flow-aware"), 0.0);
    assert_eq!(value(&run, "syn_asked", "flood/rfs"), 1.0);
    let writes = |of: &str| value(&run, "writes_by_flows", of);
    assert_eq!(writes("flood/flow-aware"), writes("no flood/flow-aware"));
    assert_eq!(value(&run, "writes_by_non_flows", "flood/flow-aware"), 0.0);
    assert_eq!(value(&run, "evictions", "flood/flow-aware"), 0.0);
    let hits = |of: &str| value(&run, "hit_rate", of);
    near(hits("flood/flow-aware"), hits("no flood/flow-aware"), 0.001);
    assert!(value(&run, "wrong_steers", "flood/rfs-2010") > 0.0);
    assert_eq!(value(&run, "wrong_steers", "flood/flow-aware"), 0.0);
}

#[test]
fn tunnels_spread_where_something_tells_the_flows_apart_and_keep_their_order() {
    let run = ran("tunnels", &["duration=20ms"]);
    let cpus = |case: &str| value(&run, "cpus_used", &format!("{case}/rps"));
    for spread in
        ["vxlan", "geneve", "gre", "vxlan, no entropy, inner", "geneve, no entropy, inner"]
    {
        assert_eq!(cpus(spread), 8.0, "{spread}");
    }
    let one = ["vxlan, no entropy", "geneve, no entropy", "esp", "esp, inner", "wireguard"];
    for single in one.into_iter().chain(["wireguard, inner"]) {
        assert_eq!(cpus(single), 1.0, "{single}");
    }
    for case in run["cases"].as_array().unwrap() {
        for policy in ["rps", "flow-aware"] {
            let of = format!("{}/{policy}", case["case"].as_str().unwrap());
            assert_eq!(value(&run, "reordered", &of), 0.0, "{of}");
        }
    }
}

#[test]
fn quic_unconnected_recognises_flows_and_the_connection_id_keeps_their_owner() {
    let run = ran(
        "quic-unconnected",
        &[
            "duration=300ms",
            "traffic.quic.flows=250",
            "traffic.quic.per_second=50000",
            "traffic.dns.per_second=12500",
        ],
    );
    // 60 packets of each client, 40 of one port and 20 of another: all but the first 8 (or 2) of a
    // port go by an entry. One in five UDP packets is DNS.
    let quic = 50_000.0 / 62_500.0;
    let of = |not: f64| quic * (60.0 - 2.0 * not) / 60.0;
    near(value(&run, "steered_udp", "learnt/flow-aware"), of(8.0), 0.06);
    near(value(&run, "steered_udp", "said to be flows/flow-aware"), of(2.0), 0.06);
    for of in ["learnt/rfs", "said to be flows/rfs", "learnt/rfs-clear"] {
        assert_eq!(value(&run, "steered_udp", of), 0.0, "{of}");
    }
    assert!(
        value(&run, "on_consumer_cpu", "learnt/flow-aware")
            > 3.0 * value(&run, "on_consumer_cpu", "learnt/rps")
    );
    assert_eq!(value(&run, "writes_by_non_flows", "learnt/flow-aware"), 0.0);
    assert_eq!(value(&run, "wrong_steers", "learnt/flow-aware"), 0.0);
    assert_eq!(value(&run, "owner_kept", "owner/by-connection-id"), 1.0);
    let by_hash = value(&run, "owner_kept", "owner/by-hash");
    near(by_hash, 1.0 / 8.0, 0.15);
}

#[test]
fn hash4_is_flat_and_unconnected_sockets_do_not_pay() {
    if !rxsteer_sockets::HASH4 {
        println!("skipped: this build has no third table");
        return;
    }
    let run = ran(
        "hash4",
        &["lookups.packets=2000", "sweep.values=[1, 500, 20000]", "figure=[]", "claim=[]"],
    );
    let touches = |of: &str| value(&run, "touches_per_lookup", of);
    // A bucket, a record, and the count of the slot: at any number. Full buckets send some on.
    for of in ["connected, 1/three-tables", "connected, 500/three-tables"] {
        near(touches(of), 3.0, 0.2);
    }
    assert!(touches("connected, 20000/three-tables") <= 1.5 * touches("connected, 1/three-tables"));
    // Without the third table: the list, and everybody on it.
    assert_eq!(touches("connected, 500/two-tables"), 501.0);
    assert_eq!(value(&run, "candidates_per_lookup", "connected, 20000/three-tables"), 0.0);
    let rate = |of: &str| value(&run, "modelled_per_s", of);
    near(rate("unconnected, 20000/three-tables"), rate("unconnected, 1/two-tables"), 0.03);
    near(rate("connected, 500/two-tables") / rate("unconnected, 1/two-tables"), 0.16, 0.1);
    for of in ["connected, 500/two-tables", "connected, 20000/three-tables"] {
        assert_eq!(value(&run, "right_share", of), 1.0, "{of}");
    }
}

#[test]
fn mask_change_reorders_under_rps_and_nothing_with_the_order_rule() {
    let run = ran("mask-change", &[]);
    assert!(value(&run, "reordered", "as Linux/rps") > 0.0);
    for of in ["drain/rps", "as Linux/flow-aware"] {
        assert_eq!(value(&run, "reordered", of), 0.0, "{of}");
        assert_eq!(value(&run, "unsafe_moves", of), 0.0, "{of}");
    }
    // RFS has no position of packets that RPS placed: a flow's first move, when its reader is heard
    // of, is not held back. Each of the 64 flows has one.
    for of in ["as Linux/rfs", "as Linux/rfs-2010"] {
        assert!(value(&run, "unsafe_moves", of) <= 64.0, "{of}");
        assert!(value(&run, "reordered", of) < 64.0, "{of}");
    }
    assert!(value(&run, "moved", "as Linux/flow-aware") > 100.0);
    assert!(value(&run, "held", "as Linux/flow-aware") > 0.0);
}

#[test]
fn rps_scaling_gains_on_one_queue_less_on_four_and_costs_an_idle_host() {
    let run = ran("rps-scaling", &["duration=60ms"]);
    let gain = |case: &str| {
        let rate = |policy: &str| value(&run, "read_per_s", &format!("{case}/{policy}"));
        rate("rps") / rate("none")
    };
    let (eight, sixteen) = (gain("8 cores, 1 queue"), gain("16 cores, 1 queue"));
    assert!((2.4..=3.2).contains(&eight) && (2.4..=3.2).contains(&sixteen), "{eight} {sixteen}");
    let four = gain("16 cores, 4 queues");
    assert!(four > 1.05 && four < eight.min(sixteen), "{four}");
    assert!(gain("16 cores, 8 queues") < four);
    // The cost of it: more CPUs are busy, and with four queues each transaction takes more of them.
    let of = |measure: &str, of: &str| value(&run, measure, of);
    assert!(
        of("cpu_share", "8 cores, 1 queue/rps") > 1.5 * of("cpu_share", "8 cores, 1 queue/none")
    );
    let ns = |name: &str| of("cpu_ns_per_read", name);
    assert!(ns("16 cores, 4 queues/rps") > ns("16 cores, 4 queues/none"));
    // A10: the mask of the cache is cheaper for each transaction. A11: an idle host pays.
    assert!(ns("16 cores, 1 queue, mask of the cache/rps") < ns("16 cores, 1 queue/rps"));
    assert!(ns("idle/rps") > 1.02 * ns("idle/none"));
    assert!(of("p50_us", "idle/rps") > of("p50_us", "idle/none"));
    // Without RPS one CPU does all packet work and is the limit.
    assert_eq!(of("cpus_used", "16 cores, 1 queue/none"), 1.0);
    assert!(of("busiest_cpu_share", "16 cores, 1 queue/none") > 0.98);
}

#[test]
fn udp_rr_gains_without_hardware_spreading_and_nothing_with_it() {
    let run = ran("udp-rr", &["duration=40ms"]);
    let rate = |of: &str| value(&run, "read_per_s", of);
    let without = rate("one queue/rfs") / rate("one queue/none");
    let with = rate("hardware spreading/rfs") / rate("hardware spreading/none");
    assert!((1.25..=1.7).contains(&without), "{without}");
    assert!((0.95..=1.05).contains(&with), "{with}");
    assert_eq!(rate("one queue/rfs-tcp"), rate("one queue/rps"));
    assert!(value(&run, "p95_us", "one queue/rfs") < 0.8 * value(&run, "p95_us", "one queue/none"));
    assert!(value(&run, "on_consumer_cpu", "one queue/flow-aware") > 0.95);
}

/// At most as many packets as wait in the receive buffer are read when the run is over: the buffer
/// of 212,992 bytes holds 252 of 60 bytes and 768 of overhead. They count in short runs.
const LEFT_AT_END: f64 = 260.0;

#[test]
fn livelock_starves_the_reader_inline_and_each_means_brings_it_back() {
    let run = ran("livelock", &["duration=40ms"]);
    let read = |of: &str| value(&run, "read", of) - LEFT_AT_END;
    let received = value(&run, "received", "one CPU/none");
    let starved = read("one CPU/none");
    // About one in a thousand: 1 in 960 was published.
    assert!(received / starved > 500.0 && received / starved < 2000.0, "{starved} of {received}");
    for (of, least) in [
        ("one CPU, ksoftirqd/none", 50.0),
        ("one CPU, threaded/none", 50.0),
        ("one CPU, batches of 64/none", 10.0),
        ("one CPU, shed early/flow-aware", 50.0),
        ("one CPU, governed/flow-aware", 50.0),
        ("one CPU, all of ours/flow-aware", 100.0),
        ("two CPUs/none", 300.0),
    ] {
        assert!(read(of) > least * starved, "{of}: {} against {starved}", read(of));
    }
    near(value(&run, "read_share", "two CPUs/none"), 1_722_307.0 / 2_318_560.0, 0.05);
    assert_eq!(value(&run, "socket_drops", "one CPU, all of ours/flow-aware"), 0.0);
    let lost = |case: &str| value(&run, "dropped_share", &format!("bursts, {case}/none"));
    near(lost("one CPU"), 0.38, 0.2);
    assert!(lost("two CPUs") < 0.1 * lost("one CPU"));
    assert!(value(&run, "busiest_cpu_share", "bursts, one CPU/none") < 0.5, "idle cycles are left");
}

#[test]
fn livelock_load_with_ours_on_delivery_never_falls_as_the_load_grows() {
    let run = ran(
        "livelock-load",
        &[
            "duration=30ms",
            "claim=[]",
            "sweep.values=[500_000, 1_000_000, 1_100_000, 1_400_000, 2_000_000, 2_831_056, 11_324_224]",
        ],
    );
    let read = |load: &str, policy: &str| value(&run, "read_per_s", &format!("{load}/{policy}"));
    let loads = ["500000", "1000000", "1100000", "1400000", "2000000", "2831056", "11324224"];
    let mut best = 0.0f64;
    for load in loads {
        let now = read(load, "flow-aware");
        // The buffer that is read after the end is full from one of these loads on.
        assert!(now >= best * 0.97, "{load}: {now} after {best}");
        best = best.max(now);
    }
    assert!(read("11324224", "none") < 0.05 * read("11324224", "flow-aware"));
}

#[test]
fn attach_overload_ours_delivers_what_the_split_does_where_rfs_starves_its_readers() {
    let run = ran(
        "attach-overload",
        // Not shorter: what the buffers take at first counts as delivered.
        &["claim=[]", "policies=['none', 'rfs', 'flow-aware']"],
    );
    for cpus in ["8 CPUs", "16 CPUs"] {
        let read = |load: &str, policy: &str| {
            value(&run, "read_per_s", &format!("{cpus}, {load}/{policy}"))
        };
        let light = read("0.25 x", "flow-aware") / read("0.25 x", "none");
        assert!(light >= 0.95, "{cpus}: {light}");
        assert!(read("4 x", "flow-aware") >= 2.0 * read("4 x", "rfs"), "{cpus}");
        assert!(read("4 x", "flow-aware") >= 0.8 * read("4 x", "none"), "{cpus}");
    }
}

#[test]
fn elephant_two_cpus_win_for_the_peak_one_for_many_and_beside_finds_it() {
    let run = ran("elephant", &["duration=60ms"]);
    let of = |measure: &str, of: &str| value(&run, measure, of);
    let peak = of("read_per_s", "tcp, two CPUs/none") / of("read_per_s", "tcp, one CPU/none");
    assert!((1.4..=2.0).contains(&peak), "{peak}");
    // Two CPUs fill the link: 2.064 M segments of 1,514 bytes are 25 Gb/s.
    near(of("read_per_s", "tcp, two CPUs/none"), 2_064_000.0, 0.02);
    let small = |cpus: &str| of("cpu_ns_per_read", &format!("small flows, {cpus}/none"));
    assert!(small("one CPU") < 0.97 * small("two CPUs"));
    let steered = |policy: &str| of("read_per_s", &format!("udp, steered/{policy}"));
    assert!(steered("flow-aware") > 1.3 * steered("rfs"));
    assert!(of("on_consumer_cpu", "udp, steered/rfs") > 0.95);
    assert!(of("on_consumer_cpu", "udp, steered/flow-aware") < 0.3);
    assert_eq!(of("reordered", "udp, steered/flow-aware"), 0.0);
}

#[test]
fn one_seed_gives_one_json_and_another_seed_another() {
    let still = ["event=[]", "consumer.0.migrate=[]"];
    let text =
        |seed: &str| ran("mask-change", &["duration=20ms", seed, still[0], still[1]]).to_string();
    assert_eq!(text("seed=1"), text("seed=1"));
    assert_ne!(text("seed=1"), text("seed=2").replace("seed=2", "seed=1"));
}

/// Clients on the host: no cost but those named, which are all different.
const LOCAL_CLIENTS: &str = r#"
name = "local-clients"
title = "Clients on the host"
about = "Each end has a CPU."
duration = "20ms"
policies = ["none"]
show = ["read_per_s"]
[host]
cpus = 2
[[host.queue]]
irq_cpu = 0
cpus = "none"
[[host.queue]]
irq_cpu = 1
cpus = "none"
[host.costs]
interrupt = 100
take = 200
protocol_udp = 400
wake_local = 0
wake_remote = 800
switch = 1_600
read = 3_200
read_near = 0
read_far = 0
copy_per_kib = 0
work = 6_400
[[traffic]]
kind = "round-trips"
name = "rr"
protocol = "udp"
flows = 1
port = 5000
bytes = 1
client_cpu = 0
client_work_ns = 12_800
[[consumer]]
protocol = "udp"
local = ":5000"
connected = true
cpus = "1"
"#;

/// With one flow nothing is done at the same time, so a transaction takes the sum of its steps.
#[test]
fn a_transaction_with_a_client_on_the_host_takes_the_sum_of_its_steps() {
    let json = json_of(&Experiment::from_toml("x.toml", LOCAL_CLIENTS, &[]).unwrap());
    let way = 100 + 200 + 400 + 800 + 1600 + 3200;
    let transaction = (way + 6400) + (way + 12_800);
    // Each is two packets that are read.
    near(value(&json, "read", "all/none") / 2.0, 20e6 / f64::from(transaction), 0.02);
}

/// With many flows both ends always have something to do, and the slower one is the limit: the clients,
/// whose CPU also takes the requests.
#[test]
fn many_clients_on_the_host_keep_their_cpu_busy() {
    let settings = ["traffic.rr.flows=100".parse().unwrap()];
    let text = LOCAL_CLIENTS.replace("20ms", "200ms");
    let json = json_of(&Experiment::from_toml("x.toml", &text, &settings).unwrap());
    let client = 3200 + 12_800 + 100 + 200 + 400;
    let transactions = value(&json, "read", "all/none") / 2.0;
    // What is under way at the end is still answered; now and then the other end must be woken.
    let limit = 200e6 / f64::from(client);
    assert!(
        transactions <= limit * 1.02 && transactions >= limit * 0.9,
        "{transactions} of {limit}"
    );
    assert!(value(&json, "busiest_cpu_share", "all/none") > 0.97);
}

#[test]
fn clients_on_the_host_need_a_cpu_and_have_no_network() {
    let refused = |old: &str, new: &str| {
        let text = LOCAL_CLIENTS.replace(old, new);
        Experiment::from_toml("x.toml", &text, &[]).unwrap_err().to_string()
    };
    assert!(refused("client_cpu = 0", "client_cpu = 7").contains("CPU 7 is not online"));
    assert!(refused("client_cpu = 0", "").contains("needs `client_cpu`"));
    let network = refused("client_cpu = 0", "client_cpu = 0\nround_trip = \"1ms\"");
    assert!(network.contains("no network"), "{network}");
    let link = refused("client_cpu = 0", "client_cpu = 0\nper_second = 5");
    assert!(link.contains("no link"), "{link}");
}
