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
use rxsteer_bench::{CompareSpec, RrSpec, Setup, SinkSpec, Traffic, Until, Workload, compare};
use rxsteer_testbed::{Offloads, Pair, PairSpec, allowed_cpus};

const HOST: [&str; 2] =
    ["/proc/sys/net/core/rps_sock_flow_entries", "/proc/sys/net/core/flow_limit_cpu_bitmap"];
const DEVICE: [&str; 3] = ["queues/rx-0/rps_cpus", "queues/rx-0/rps_flow_cnt", "threaded"];

fn settings(pair: &Pair) -> Vec<String> {
    let host = HOST.iter().map(|path| fs::read_to_string(path).unwrap());
    let device = DEVICE.iter().map(|file| pair.sink.read_sys(Pair::SINK_DEVICE, file).unwrap());
    host.chain(device).collect()
}

/// One test, since the settings of the host are of all.
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
        let [none, rps, rfs, threaded, limit] = Setup::ALL;
        let first = [none, rps, rfs, threaded, limit].map(|setup| (1, setup));
        let second = [rps, rfs, threaded, limit, none].map(|setup| (2, setup));
        assert_eq!(order, [first, second].concat());
        assert_eq!((report.repeats, report.setups.len()), (2, 5));
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
        assert_eq!(settings(&pair), before);
    }
}
