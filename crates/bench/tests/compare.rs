//! Set-ups side by side: what each sets is set while it runs, and is back afterwards. Needs root;
//! without it each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use common::{NOBODY, PORT, packets, pair};
use rxsteer_bench::{
    Attached, CompareSpec, MixedSpec, OverloadSpec, Pattern, Protocol, RrSpec, Setup, SinkSpec,
    Traffic, Until, Workload, compare,
};
use rxsteer_kernel::programs_on_interfaces;
use rxsteer_testbed::{Offloads, Pair, PairSpec, allowed_cpus};

const HOST: [&str; 2] =
    ["/proc/sys/net/core/rps_sock_flow_entries", "/proc/sys/net/core/flow_limit_cpu_bitmap"];
const DEVICE: [&str; 3] = ["queues/rx-0/rps_cpus", "queues/rx-0/rps_flow_cnt", "threaded"];

fn settings(pair: &Pair) -> Vec<String> {
    let host = HOST.iter().map(|path| fs::read_to_string(path).unwrap());
    let device = DEVICE.iter().map(|file| pair.sink.read_sys(Pair::SINK_DEVICE, file).unwrap());
    host.chain(device).collect()
}

/// One test for all set-ups, since the settings of the host are of all.
#[test]
fn every_setup_runs_in_turn_and_leaves_nothing() {
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let spec = PairSpec { sink, ..PairSpec::default() };
    let Some(pair) = pair("every_setup_runs_in_turn_and_leaves_nothing", &spec) else { return };
    let to = Pair::SINK_V4.into();
    let datagrams = Workload::Sink(
        SinkSpec::new(SocketAddr::new(to, PORT)),
        packets(Traffic::new(to, PORT), 5000),
    );
    let until = Until { count: 300, duration: Duration::from_secs(5) };
    let requests = Workload::Rr(RrSpec { flows: 5, until, ..RrSpec::default() }, false);
    let before = settings(&pair);
    for workload in [datagrams, requests] {
        let spec = CompareSpec {
            setups: Setup::ALL.to_vec(),
            repeats: 2,
            cpus: allowed_cpus().unwrap(),
            workload,
        };
        let order = Mutex::new(Vec::new());
        let told = |repeat, setup| order.lock().unwrap().push((repeat, setup));
        let report = compare(&pair, &spec, &NOBODY, &told).unwrap();
        // The second repeat begins with the second set-up.
        let order: Vec<_> = order.into_inner().unwrap();
        let [none, rps, rfs, threaded, limit, rxsteer] = Setup::ALL;
        let first = [none, rps, rfs, threaded, limit, rxsteer].map(|setup| (1, setup));
        let second = [rps, rfs, threaded, limit, rxsteer, none].map(|setup| (2, setup));
        assert_eq!(order, [first, second].concat());
        assert_eq!((report.repeats, report.setups.len()), (2, 6));
        for setup in &report.setups {
            assert!(!setup.metrics.is_empty());
            assert!(setup.metrics.iter().all(|metric| metric.values.len() == 2), "{setup:?}");
        }
        let ratio = report.setups[0].ratios[0].ratio.unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (1.0, 1.0, 1.0));
        let set = |index: usize| -> Vec<&str> {
            let changes = &report.setups[index].settings;
            changes.iter().map(|change| change.path.rsplit('/').next().unwrap()).collect()
        };
        assert_eq!(set(0), Vec::<&str>::new());
        assert_eq!(set(1), ["rps_cpus"]);
        assert_eq!(set(2), ["rps_cpus", "rps_sock_flow_entries", "rps_flow_cnt"]);
        assert_eq!(set(3), ["threaded"]);
        assert_eq!(set(4), ["rps_cpus", "flow_limit_cpu_bitmap"]);
        assert_eq!(set(5), Vec::<&str>::new());
        assert_eq!(settings(&pair), before);
        assert!(report.setups[..5].iter().all(|setup| setup.attached.is_none()));
        assert_counted(report.setups[5].attached.as_ref().unwrap(), 2, 300);
        assert_nothing_attached(&pair);
    }
}

/// Each run saw its own packets and no others, each under one reason, and all the packets that were
/// steered were taken or are lost by name.
fn assert_counted(attached: &Attached, runs: usize, least: u64) {
    assert_eq!(attached.runs.len(), runs, "{attached:?}");
    assert!(!attached.unequal.is_empty());
    for run in &attached.runs {
        assert!(run.seen >= least, "{run:?}");
        assert_eq!(run.reasons.values().sum::<u64>(), run.seen, "{run:?}");
        let in_place = ["local", "shed"].map(|name| run.reasons.get(name).copied().unwrap_or(0));
        let steered = run.seen - in_place.iter().sum::<u64>();
        let taken: u64 = run.taken.values().sum();
        // What is lost for want of memory was taken.
        assert!(taken + run.lost_full <= steered, "{run:?}");
        assert!(taken + run.lost_full + run.lost_otherwise >= steered, "{run:?}");
    }
}

fn assert_nothing_attached(pair: &Pair) {
    let there = pair.sink.run(|| programs_on_interfaces().unwrap()).unwrap();
    assert!(there.is_empty(), "{there:?}");
}

#[test]
fn requests_beside_a_flood_are_answered_and_known_flows_are_found() {
    let test = "requests_beside_a_flood_are_answered_and_known_flows_are_found";
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let Some(pair) = pair(test, &PairSpec { sink, ..PairSpec::default() }) else { return };
    let to = Pair::SINK_V4.into();
    let until = Until { count: 500, duration: Duration::from_secs(10) };
    let requests = RrSpec { protocol: Protocol::Tcp, flows: 8, until, ..RrSpec::default() };
    let flood = Traffic { pattern: Pattern::Random, ..Traffic::new(to, PORT) };
    let mixed = MixedSpec {
        requests,
        ipv6: false,
        flood: rxsteer_bench::GenSpec { rate: 20_000, ..rxsteer_bench::GenSpec::new(flood) },
        readers: SinkSpec::new(SocketAddr::new(to, PORT)),
    };
    let spec = CompareSpec {
        setups: vec![Setup::None, Setup::Rxsteer],
        repeats: 1,
        cpus: allowed_cpus().unwrap(),
        workload: Workload::Mixed(mixed),
    };
    let report = compare(&pair, &spec, &NOBODY, &|_, _| {}).unwrap();
    for setup in &report.setups {
        let value = |name: &str| {
            let metric = setup.metrics.iter().find(|metric| metric.name == name);
            metric.unwrap_or_else(|| panic!("{name}: {setup:?}")).values[0]
        };
        assert!(value("transactions") > 0.0 && value("99 %") >= value("median"), "{setup:?}");
        assert!(value("flood sent") > 0.0 && value("flood read") > 0.0, "{setup:?}");
    }
    let attached = report.setups[1].attached.as_ref().unwrap();
    assert_counted(attached, 1, 1000);
    // Random sources ask for nothing that the table knows; the requests do, and are found.
    let run = &attached.runs[0];
    assert!(run.tcp_hit_rate.unwrap() > 0.9, "{run:?}");
    assert_eq!(run.flows[1], 0, "{run:?}");
    assert_nothing_attached(&pair);
}

#[test]
fn each_load_is_a_multiple_of_what_the_host_delivers() {
    let test = "each_load_is_a_multiple_of_what_the_host_delivers";
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let Some(pair) = pair(test, &PairSpec { sink, ..PairSpec::default() }) else { return };
    let to = Pair::SINK_V4.into();
    let mut source = packets(Traffic::new(to, PORT), u64::MAX);
    source.until.duration = Duration::from_millis(200);
    let overload = |rate, multiples: &[f64]| {
        Workload::Overload(OverloadSpec {
            sink: SinkSpec::new(SocketAddr::new(to, PORT)),
            source: rxsteer_bench::GenSpec { rate, ..source.clone() },
            multiples: multiples.to_vec(),
        })
    };
    let spec = |workload| CompareSpec {
        setups: vec![Setup::None, Setup::Rxsteer],
        repeats: 1,
        cpus: allowed_cpus().unwrap(),
        workload,
    };
    let told = compare(&pair, &spec(overload(5000, &[2.0, 1.0])), &NOBODY, &|_, _| {}).unwrap();
    assert_eq!(told.base, Some(5000));
    for setup in &told.setups {
        let loads: Vec<f64> = setup.metrics.iter().map(|m| m.load.unwrap().multiple).collect();
        let half = loads.len() / 2;
        assert!(loads[..half].iter().all(|times| *times == 1.0), "{loads:?}");
        assert!(loads[half..].iter().all(|times| *times == 2.0), "{loads:?}");
    }
    assert_counted(told.setups[1].attached.as_ref().unwrap(), 2, 1);

    let found = compare(&pair, &spec(overload(0, &[1.0])), &NOBODY, &|_, _| {}).unwrap();
    // A host that delivers fewer than 10,000 packets a second is not worth a bench.
    assert!(found.base >= Some(10_000), "{found:?}");
    for wrong in [&[][..], &[0.0], &[-1.0], &[f64::NAN]] {
        let said = compare(&pair, &spec(overload(5000, wrong)), &NOBODY, &|_, _| {}).unwrap_err();
        assert!(said.to_string().starts_with("overload: allowed are"), "{said}");
    }
    assert_nothing_attached(&pair);
}
