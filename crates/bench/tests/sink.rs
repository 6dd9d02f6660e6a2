//! Every packet that is sent is found: read, or in a counter of the kernel. Needs root; without it
//! each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use common::{NOBODY, PORT, packets, pair};
use rxsteer_bench::{
    BenchError, Call, GenSpec, Kind, Means, PairReport, Pattern, SinkSpec, Traffic, Until, receive,
    receive_in,
};
use rxsteer_testbed::{Offloads, Pair, PairSpec};

fn v4() -> Traffic {
    Traffic::new(Pair::SINK_V4.into(), PORT)
}

fn sink(to: IpAddr) -> SinkSpec {
    SinkSpec::new(SocketAddr::new(to, PORT))
}

/// The system calls that this kernel lets this process use.
fn calls() -> Vec<Call> {
    let mut calls = vec![Call::Recv, Call::Recvmsg, Call::Recvmmsg];
    let until = Until { count: 1, duration: Duration::from_millis(1) };
    let here = SinkSpec::new("127.0.0.1:0".parse().unwrap());
    let tried = SinkSpec { call: Call::IoUring, until, listens_outside: true, ..here };
    match receive(&tried, &NOBODY) {
        Ok(_) => calls.push(Call::IoUring),
        Err(BenchError::NoIoUring(error)) => eprintln!("skipped io-uring: {error}"),
        Err(error) => panic!("{error}"),
    }
    calls
}

/// Runs, and checks that the sum is right.
fn run(pair: &Pair, spec: &SinkSpec, source: &GenSpec) -> PairReport {
    let report = receive_in(pair, spec, source, &NOBODY).unwrap();
    let account = &report.account;
    assert!(account.is_complete(), "{report:#?}");
    assert_eq!(account.sent, source.until.count);
    let messages: u64 = report.sink.readers.iter().map(|reader| reader.messages).sum();
    assert!(messages <= report.sink.received);
    report
}

#[test]
fn all_are_read_where_there_is_room() {
    let Some(pair) = pair("all_are_read_where_there_is_room", &PairSpec::default()) else { return };
    for call in calls() {
        for to in [IpAddr::V4(Pair::SINK_V4), IpAddr::V6(Pair::SINK_V6)] {
            let spec = SinkSpec { call, receive_buffer: Some(64 << 20), ..sink(to) };
            let source = packets(Traffic { to, ..v4() }, 5000);
            let report = run(&pair, &spec, &source);
            assert_eq!(report.sink.received, 5000, "{call} {report:#?}");
            assert_eq!(report.sink.bytes, 5000 * 20);
            assert_eq!(report.sink.socket_drops, 0);
        }
    }
}

#[test]
fn what_a_full_socket_drops_is_counted() {
    let Some(pair) = pair("what_a_full_socket_drops_is_counted", &PairSpec::default()) else {
        return;
    };
    for call in calls() {
        let spec = SinkSpec { call, receive_buffer: Some(8192), ..sink(Pair::SINK_V4.into()) };
        let report = run(&pair, &spec, &packets(v4(), 30_000));
        assert!(report.account.socket > 0, "{report:#?}");
        let told: u64 = report.sink.readers.iter().map(|reader| reader.told_drops).sum();
        assert!(told <= report.sink.socket_drops);
        assert!(call == Call::Recv || told > 0);
        let kernel = report.sink.protocol["Udp.RcvbufErrors"];
        assert_eq!(kernel, report.account.socket);
    }
}

#[test]
fn several_readers_share_what_comes() {
    let Some(pair) = pair("several_readers_share_what_comes", &PairSpec::default()) else { return };
    for call in calls().into_iter().filter(|call| matches!(call, Call::Recvmmsg | Call::IoUring)) {
        let shared = SinkSpec { threads: 3, call, ..sink(Pair::SINK_V4.into()) };
        run(&pair, &shared, &packets(v4(), 20_000));
        let own = SinkSpec { reuseport: true, ..shared };
        let report = run(&pair, &own, &packets(v4(), 20_000));
        // 64 flows over three sockets by hash: none is left out but with a chance of 1 in 10^11.
        assert!(report.sink.readers.iter().all(|reader| reader.messages > 0), "{report:#?}");
    }
}

#[test]
fn connected_sockets_get_their_flows_and_no_other() {
    let test = "connected_sockets_get_their_flows_and_no_other";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let to = Pair::SINK_V4.into();
    let each = |threads| calls().into_iter().map(move |call| (threads, call));
    for (threads, call) in [1, 2].into_iter().flat_map(each) {
        let peers = SinkSpec::peers_in_pair(to, 48);
        let spec = SinkSpec { peers, threads, call, receive_buffer: Some(4 << 20), ..sink(to) };
        let report = run(&pair, &spec, &packets(v4(), 6400));
        assert_eq!(report.sink.received, 4800, "{report:#?}");
        assert_eq!(report.account.no_port, 1600);
    }
}

#[test]
fn merged_datagrams_are_counted_one_by_one() {
    let test = "merged_datagrams_are_counted_one_by_one";
    let offloads = PairSpec { source: Offloads::ALL, sink: Offloads::ALL, ..PairSpec::default() };
    let Some(pair) = pair(test, &offloads) else { return };
    let sizes = "500".parse().unwrap();
    let source =
        GenSpec { means: Some(Means::Gso), ..packets(Traffic { sizes, flows: 4, ..v4() }, 9600) };
    for call in calls().into_iter().filter(|call| *call != Call::Recv) {
        let spec = SinkSpec {
            gro: true,
            call,
            receive_buffer: Some(64 << 20),
            ..sink(Pair::SINK_V4.into())
        };
        let report = run(&pair, &spec, &source);
        assert_eq!(report.sink.received, 9600, "{report:#?}");
        let messages: u64 = report.sink.readers.iter().map(|reader| reader.messages).sum();
        assert!(messages < 9600 / 4, "nothing was merged: {report:#?}");
        // And where they are dropped.
        let small = SinkSpec { receive_buffer: Some(1 << 16), ..spec };
        let report = run(&pair, &small, &source);
        assert!(report.account.socket >= report.sink.socket_drops, "{report:#?}");
    }
}

#[test]
fn backlogs_that_overflow_are_found() {
    let Some(pair) = pair("backlogs_that_overflow_are_found", &PairSpec::default()) else { return };
    let spec = sink(Pair::SINK_V4.into());
    // RPS to another CPU, whose backlog the sender fills; with one CPU there is nobody to fill it.
    for mask in ["0", "1", "2"] {
        if pair.sink.write_sys(Pair::SINK_DEVICE, "queues/rx-0/rps_cpus", mask).is_ok() {
            run(&pair, &spec, &packets(v4(), 50_000));
        }
    }
    let polling =
        PairSpec { sink: Offloads { gro: true, ..Offloads::NONE }, ..PairSpec::default() };
    let Some(pair) = common::pair("backlogs_that_overflow_are_found", &polling) else { return };
    let by = |means| GenSpec { means: Some(means), ..packets(v4(), 50_000) };
    for means in [Means::Live, Means::Packet, Means::Mmsg] {
        run(&pair, &spec, &by(means));
    }
    pair.sink.write_sys(Pair::SINK_DEVICE, "threaded", "1").unwrap();
    for means in [Means::Live, Means::Packet, Means::Mmsg] {
        run(&pair, &spec, &by(means));
    }
    pair.sink.write_sys(Pair::SINK_DEVICE, "queues/rx-0/rps_cpus", "1").unwrap();
    for means in [Means::Live, Means::Packet, Means::Mmsg] {
        run(&pair, &spec, &by(means));
    }
}

#[test]
fn fragments_and_random_sources_are_found() {
    let test = "fragments_and_random_sources_are_found";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let sizes = "800".parse().unwrap();
    let fragments = Traffic { kind: Kind::Fragments, sizes, ..v4() };
    let spec = SinkSpec { receive_buffer: Some(64 << 20), ..sink(Pair::SINK_V4.into()) };
    let report = run(&pair, &spec, &packets(fragments, 2000));
    assert_eq!(report.sink.received, 1000, "{report:#?}");
    let random = Traffic { pattern: Pattern::Random, ..v4() };
    let report = run(&pair, &spec, &packets(random, 5000));
    assert_eq!(report.sink.received, 5000, "{report:#?}");
}

#[test]
fn what_no_udp_socket_gets_is_refused() {
    let Some(pair) = pair("what_no_udp_socket_gets_is_refused", &PairSpec::default()) else {
        return;
    };
    let spec = sink(Pair::SINK_V4.into());
    let syn = packets(Traffic { kind: Kind::TcpSyn, ..v4() }, 1);
    assert!(receive_in(&pair, &spec, &syn, &NOBODY).is_err());
    let udp = packets(v4(), 1);
    for wrong in [
        SinkSpec { batch: 0, ..spec.clone() },
        SinkSpec { threads: 0, ..spec.clone() },
        SinkSpec { gro: true, call: Call::Recv, ..spec.clone() },
        SinkSpec { busy_poll: Duration::from_micros(50), call: Call::IoUring, ..spec.clone() },
    ] {
        assert!(receive_in(&pair, &wrong, &udp, &NOBODY).is_err(), "{wrong:?}");
    }
}
