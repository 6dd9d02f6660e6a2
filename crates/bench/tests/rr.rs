//! Requests and responses, with delays that are known. Needs root but where it says otherwise; without
//! it each test says so and ends.
//!
//! The delays are far longer than any noise, and are bounds from below, or counts.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{LONG, NOBODY, pair};
use rxsteer_bench::{
    BenchError, Delay, Pace, Permit, Protocol, RrPairReport, RrSpec, Until, Watch, ask, ask_in,
    serve,
};
use rxsteer_testbed::{Pair, PairSpec};

const MS: u64 = 1_000_000;

fn times(count: u64) -> Until {
    Until { count, duration: LONG }
}

fn run(pair: &Pair, spec: &RrSpec, ipv6: bool) -> RrPairReport {
    let report = ask_in(pair, spec, ipv6, &NOBODY).unwrap();
    let client = &report.client;
    assert_eq!(client.latency.count, client.transactions, "{spec:?} {report:#?}");
    assert_eq!(report.server.refused, 0);
    assert!(report.server.answered >= client.transactions, "{spec:?} {report:#?}");
    report
}

#[test]
fn every_way_to_ask_is_answered() {
    let Some(pair) = pair("every_way_to_ask_is_answered", &PairSpec::default()) else { return };
    for (protocol, connected) in
        [(Protocol::Udp, true), (Protocol::Udp, false), (Protocol::Tcp, true)]
    {
        for (ipv6, threads) in [(false, 1), (true, 2)] {
            let spec = RrSpec {
                protocol,
                connected,
                flows: 20,
                until: times(2000),
                client_threads: threads,
                server_threads: threads,
                request_len: 100,
                response_len: 300,
                ..RrSpec::default()
            };
            let report = run(&pair, &spec, ipv6);
            // Each flow may have one more on its way when the count is reached.
            assert!((2000..2020 + 20).contains(&report.client.transactions), "{report:#?}");
            assert_eq!((report.client.lost, report.client.late), (0, 0), "{report:#?}");
            assert_eq!(report.server.answered, report.client.transactions);
        }
    }
}

/// One answer in ten is held back for 60 ms: the quantiles below nine tenths know nothing of it, those
/// above show at least that.
#[test]
fn quantiles_show_a_delay_where_it_is() {
    let Some(pair) = pair("quantiles_show_a_delay_where_it_is", &PairSpec::default()) else {
        return;
    };
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        let spec = RrSpec {
            protocol,
            until: times(200),
            delay: Some(Delay { every: 10, time: Duration::from_millis(60) }),
            ..RrSpec::default()
        };
        let latency = run(&pair, &spec, false).client.latency;
        // One more may be on its way when the count is reached.
        assert!((200..=201).contains(&latency.count), "{latency:?}");
        assert!(latency.p50_ns < 60 * MS, "{latency:?}");
        assert!(latency.p95_ns >= 60 * MS && latency.p99_ns >= 60 * MS, "{latency:?}");
        assert!(latency.mean_ns >= 5 * MS, "{latency:?}");
    }
}

/// The server stands still for 400 ms once, while 1,000 requests a second fall due: a closed loop sees
/// one slow answer, an open one all that fell due meanwhile.
#[test]
fn an_open_loop_does_not_forget_who_would_have_asked() {
    let test = "an_open_loop_does_not_forget_who_would_have_asked";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let delay = Some(Delay { every: 500, time: Duration::from_millis(400) });
    let duration = Duration::from_millis(900);
    let until = Until { count: u64::MAX, duration };
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        let open = RrSpec {
            protocol,
            request_len: 8,
            response_len: 8,
            flows: 4,
            pace: Pace::Open(1000),
            until,
            delay,
            patience: Duration::from_secs(5),
            ..RrSpec::default()
        };
        let report = run(&pair, &open, false);
        let client = &report.client;
        assert_eq!((client.lost, client.skipped), (0, 0), "{report:#?}");
        // Request k falls due at k ms; all that did before the end were asked.
        assert_eq!(client.transactions, 900, "{report:#?}");
        // 400 of 900 waited, evenly from 400 ms down to nothing; 150 of them at least 250 ms.
        assert!(client.latency.p90_ns >= 250 * MS, "{report:#?}");
        let since_asked = client.since_asked.unwrap();
        assert!(since_asked.max_ns <= client.latency.max_ns, "{report:#?}");
    }
    let closed = RrSpec { until: times(900), delay, ..RrSpec::default() };
    let latency = run(&pair, &closed, false).client.latency;
    assert!(latency.max_ns >= 400 * MS && latency.p99_ns < 400 * MS, "{latency:?}");
}

#[test]
fn what_gets_no_answer_is_lost_and_the_run_goes_on() {
    // Over loopback, to a socket that reads nothing; needs no rights.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let spec = RrSpec {
        flows: 3,
        patience: Duration::from_millis(100),
        until: Until { count: 10, duration: Duration::from_millis(500) },
        ..RrSpec::default()
    };
    let report = ask(&spec, to, &Permit::new(vec![to.ip()]), &NOBODY).unwrap();
    assert_eq!(report.transactions, 0);
    assert!(report.lost >= 6, "{report:?}");
    assert_eq!(report.latency.p50_ns, 0);
}

/// Over loopback; needs no rights.
#[test]
fn only_named_addresses_are_asked_and_answered() {
    let spec = RrSpec { until: times(100), ..RrSpec::default() };
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at: SocketAddr = free.local_addr().unwrap();
    let refused = ask(&spec, at, &Permit::default(), &NOBODY).unwrap_err();
    assert!(matches!(refused, BenchError::NotOurs(_)));
    drop(free);
    for named in [true, false] {
        let permit = Permit::new(if named { vec![at.ip()] } else { Vec::new() });
        let over = AtomicBool::new(false);
        let until = Until { count: u64::MAX, duration: LONG };
        let serving = RrSpec { until, connected: false, ..RrSpec::default() };
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let watch = Watch { stop: &over, on_second: &|_| {} };
                serve(&serving, at, &permit, &watch).unwrap()
            });
            // A refusal while the server is not yet there is a lost request.
            let patience = Duration::from_millis(100);
            let duration = if named { LONG } else { Duration::from_millis(400) };
            let until = Until { count: 100, duration };
            let asking = RrSpec { until, patience, ..RrSpec::default() };
            let report = ask(&asking, at, &Permit::new(vec![at.ip()]), &NOBODY).unwrap();
            over.store(true, Ordering::Relaxed);
            let server = server.join().unwrap();
            if named {
                assert!(report.transactions >= 100 && server.refused == 0, "{report:?} {server:?}");
            } else {
                assert!(report.transactions == 0 && server.answered == 0, "{report:?} {server:?}");
                assert!(server.refused > 0, "{server:?}");
            }
        });
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let at: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let permit = Permit::new(vec![at.ip()]);
    let fine = RrSpec::default();
    for wrong in [
        RrSpec { flows: 0, ..fine.clone() },
        RrSpec { request_len: 0, ..fine.clone() },
        RrSpec { response_len: 9000, ..fine.clone() },
        RrSpec { client_threads: 0, ..fine.clone() },
        RrSpec { pace: Pace::Open(1000), ..fine.clone() },
        RrSpec { pace: Pace::Open(0), request_len: 8, response_len: 8, ..fine },
    ] {
        let refused = ask(&wrong, at, &permit, &NOBODY).unwrap_err();
        assert!(matches!(refused, BenchError::Options(_)), "{wrong:?}: {refused}");
    }
}
