//! What was typed, and what comes of it: values, and refusals that name their flag.

use super::*;
use crate::args::Cli;
use crate::args::Verb;
use crate::bench::args::BenchVerb;
use clap::Parser as _;
use rxsteer_bench::{CapturePace, CaptureSpec, Kind, Means, Pattern};
use rxsteer_core::cpu::CpuStates;
use std::path::Path;

fn sink(line: &str) -> Result<Sink, UsageError> {
    let words = format!("rxsteer bench sink {line}");
    match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
        Verb::Bench(BenchVerb::Sink(args)) => Sink::try_from(&*args),
        other => panic!("{other:?}"),
    }
}

fn source(line: &str) -> Result<Gen, UsageError> {
    let words = format!("rxsteer bench gen {line}");
    match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
        Verb::Bench(BenchVerb::Gen(args)) => Gen::try_from(&*args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_typed_is_what_is_sent() {
    let made = source(
        "--kind vxlan --flows 2k --pattern heavy-tail --size 64x3,1400 --rate 150k --means packet \
         --send-batch 8 --source-cpu 1 --seed 9 -c 1M -d 0.25 --queues 2 --mtu 9000 \
         --threaded --rps-cpus 0-1",
    )
    .unwrap();
    let traffic = &made.source.traffic;
    assert_eq!((traffic.kind, traffic.flows, traffic.seed), (Kind::Vxlan, 2000, 9));
    assert_eq!((traffic.pattern, traffic.sizes.cycle().len()), (Pattern::HeavyTail, 4));
    assert_eq!((made.source.rate, made.source.means), (150_000, Some(Means::Packet)));
    assert_eq!((made.source.batch, made.source.cpu), (8, Some(CpuId(1))));
    let until = Until { count: 1_000_000, duration: Duration::from_millis(250) };
    assert_eq!(made.source.until, until);
    let Way::Testbed(link) = made.road else { panic!("{made:?}") };
    assert_eq!((link.spec.queues, link.spec.mtu), (2, 9000));
    assert!(link.threaded && link.spec.sink.gro && !link.spec.source.gro);
    assert_eq!(link.rps_cpus.unwrap().count(), 2);
}

#[test]
fn how_to_read_is_what_was_typed() {
    let made = sink(
        "--call recvmsg --gro --threads 3 --connect 9 --cpus 0,1 --busy-poll 50 \
         --receive-buffer 1M --work 2_500 -6",
    )
    .unwrap();
    assert_eq!(made.sink.work, Duration::from_nanos(2500));
    assert_eq!((made.sink.threads, made.sink.peers.len()), (3, 9));
    assert_eq!(made.sink.cpus, [CpuId(0), CpuId(1)]);
    assert_eq!(made.sink.busy_poll, Duration::from_micros(50));
    assert_eq!(made.sink.receive_buffer, Some(1_000_000));
    assert!(made.sink.listen.is_ipv6() && made.testbed.is_some());
    let open = sink("--listen 127.0.0.1:5000 -d 1").unwrap();
    assert!(open.testbed.is_none() && open.sink.listens_outside);
    assert_eq!(open.sink.until.duration, Duration::from_secs(1));
}

fn rr(line: &str) -> Result<rr::Rr, UsageError> {
    let words = format!("rxsteer bench rr {line}");
    match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
        Verb::Bench(BenchVerb::Rr(args)) => rr::Rr::try_from(&*args),
        other => panic!("{other:?}"),
    }
}

fn compare(line: &str) -> Result<compare::Compare, UsageError> {
    let words = format!("rxsteer bench compare {line}");
    match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
        Verb::Bench(BenchVerb::Compare(verb)) => compare::Compare::try_from(&verb),
        other => panic!("{other:?}"),
    }
}

#[test]
fn comparisons_are_as_they_were_typed() {
    use rxsteer_bench::{Setup, Workload};
    let made = compare("rr --setups rfs,none --repeats 3 --protocol tcp --rps-cpus 0").unwrap();
    assert_eq!(made.spec.setups, [Setup::Rfs, Setup::None]);
    assert_eq!((made.spec.repeats, made.spec.cpus.count()), (3, 1));
    let Workload::Rr(rr, false) = made.spec.workload else { panic!() };
    assert_eq!(rr.until.duration, Duration::from_secs(1));
    let made = compare("sink -d 2 --queues 2").unwrap();
    assert_eq!((made.spec.setups.len(), made.link.queues), (6, 2));
    let Workload::Sink(_, source) = made.spec.workload else { panic!() };
    assert_eq!(source.until.duration, Duration::from_secs(2));
    for (line, flag, allowed) in [
        ("sink --setups xps", "--setups", "flow-limit"),
        ("sink --setups threaded --sink-offloads none", "--setups", "gro"),
        ("sink --repeats 0", "--repeats", "1 to 1000"),
        ("sink --threaded", "--threaded", "--setups"),
        ("sink --listen 127.0.0.1:9", "--listen", "testbed"),
        ("rr --to 127.0.0.1:9", "--to", "testbed"),
    ] {
        let error = compare(line).unwrap_err();
        assert_eq!(error.flag, flag, "{line}");
        assert!(error.message.contains(allowed), "{line}: {error}");
    }
}

#[test]
fn requests_are_as_they_were_typed() {
    use rr::RrWay;
    use rxsteer_bench::{Pace, Protocol};
    let made = rr("--protocol tcp --flows 500 --request 1 --response 100 --client-threads 2 \
         --server-cpus 0,1 --timeout 0.5 -6")
    .unwrap();
    assert_eq!((made.spec.protocol, made.spec.flows), (Protocol::Tcp, 500));
    assert_eq!((made.spec.request_len, made.spec.response_len), (1, 100));
    assert_eq!((made.spec.client_threads, made.spec.server_cpus.len()), (2, 2));
    assert_eq!(made.spec.patience, Duration::from_millis(500));
    assert!(matches!(made.way, RrWay::Testbed { ipv6: true, .. }));
    let open = rr("--open-loop 10k --unconnected").unwrap().spec;
    assert_eq!((open.pace, open.request_len, open.connected), (Pace::Open(10_000), 8, false));
    let serve = rr("--serve 127.0.0.1:9 --i-own-this-network 127.0.0.1").unwrap();
    assert!(matches!(serve.way, RrWay::Serve { .. }));
    for (line, flag, allowed) in [
        ("--protocol sctp", "--protocol", "udp, tcp"),
        ("--flows 50001", "--flows", "1 to 50000"),
        ("--request 0", "--request", "1 to 8192"),
        ("--open-loop 100 --response 7", "--response", "8 to"),
        ("--open-loop 0", "--open-loop", "1 to"),
        ("--to [::1]:0", "--to", "port 0"),
        ("--to 127.0.0.1:9 -6", "--ipv6", "testbed"),
        ("--to 127.0.0.1:9 --mtu 1500", "--mtu", "testbed"),
        ("--i-own-this-network 127.0.0.1", "--i-own-this-network", "--serve"),
    ] {
        let error = rr(line).unwrap_err();
        assert_eq!(error.flag, flag, "{line}");
        assert!(error.message.contains(allowed), "{line}: {error}");
    }
}

#[test]
fn every_refusal_names_its_flag_and_what_is_allowed() {
    for (line, flag, allowed) in [
        ("--kind icmp", "--kind", "tcp-syn"),
        ("--flows 0", "--flows", "1 to 4194304"),
        ("--flows -1", "--flows", "1 to"),
        ("--pattern x", "--pattern", "heavy-tail"),
        ("--size 9001", "--size", "9000"),
        ("--rate 0", "--rate", "1 to"),
        ("--rate 1.5", "--rate", "k is 1,000"),
        ("--means pigeon", "--means", "gso"),
        ("--send-batch 1025", "--send-batch", "1 to 1024"),
        ("--source-cpu x", "--source-cpu", "0 to"),
        ("-c 0", "--count", "numbers from 1"),
        ("-d 0", "--duration", "0.5"),
        ("-d nan", "--duration", "0.5"),
        ("-d 1e9", "--duration", "86400"),
        ("-d 86401", "--duration", "86400"),
        ("--queues 65", "--queues", "1 to 64"),
        ("--mtu 100", "--mtu", "1280 to"),
        ("--sink-offloads lro", "--sink-offloads", "udp-gso"),
        ("--source-offloads tso", "--source-offloads", "tx-checksum"),
        ("--threaded --sink-offloads none", "--threaded", "--sink-offloads gro"),
        ("--rps-cpus 3-1", "--rps-cpus", "0-3,8"),
        ("--to 192.0.2.1", "--to", "192.0.2.1:9999"),
        ("--to 192.0.2.1:0", "--to", "port 0"),
        ("--to 192.0.2.1:9 --mtu 1500", "--mtu", "--to"),
        ("--to 192.0.2.1:9 -6", "--ipv6", "testbed"),
        ("--i-own-this-network 192.0.2.1", "--i-own-this-network", "--to"),
        ("--to 192.0.2.1:9 --i-own-this-network all", "--i-own-this-network", "192.0.2.1"),
    ] {
        let error = source(line).unwrap_err();
        assert_eq!(error.flag, flag, "{line}");
        assert!(error.message.contains(allowed), "{line}: {error}");
    }
    for (line, flag, allowed) in [
        ("--call read", "--call", "recvmmsg"),
        ("--call recv --gro", "--gro", "recvmsg"),
        ("--batch 0", "--batch", "1 to 1024"),
        ("--threads 257", "--threads", "256"),
        ("--connect 5 --reuseport", "--reuseport", "connected"),
        ("--cpus x", "--cpus", "0-3,8"),
        ("--receive-buffer 1", "--receive-buffer", "4096"),
        ("--listen x", "--listen", "[2001:db8::1]:9999"),
        ("--listen 127.0.0.1:9 --flows 3", "--flows", "--listen"),
        ("--listen 127.0.0.1:9 --connect 3", "--connect", "testbed"),
        ("--listen 127.0.0.1:9 --queues 3", "--queues", "--listen"),
    ] {
        let error = sink(line).unwrap_err();
        assert_eq!(error.flag, flag, "{line}");
        assert!(error.message.contains(allowed), "{line}: {error}");
    }
}

#[test]
fn every_flag_of_cpus_is_held_against_the_host() {
    let mut host = CpuStates::all(4);
    host.online.remove(CpuId(2));
    host.isolated.insert(CpuId(3));
    let check = |line: &str| {
        let words = format!("rxsteer bench {line}");
        match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
            Verb::Bench(verb) => cpu_flags::check_cpus(&cpu_flags::cpu_flags(&verb), &host),
            other => panic!("{other:?}"),
        }
    };
    for verb in ["gen", "sink", "compare sink"] {
        assert!(check(&format!("{verb} --source-cpu 3 --rps-cpus 0,3")).is_ok());
    }
    for (line, flag) in [
        ("gen --source-cpu", "--source-cpu"),
        ("gen --rps-cpus", "--rps-cpus"),
        ("sink --cpus", "--cpus"),
        ("sink --source-cpu", "--source-cpu"),
        ("sink --rps-cpus", "--rps-cpus"),
        ("rr --client-cpus", "--client-cpus"),
        ("rr --server-cpus", "--server-cpus"),
        ("rr --rps-cpus", "--rps-cpus"),
        ("compare sink --cpus", "--cpus"),
        ("compare rr --server-cpus", "--server-cpus"),
    ] {
        for (cpu, said) in
            [("99", "99 does not exist (possible 0-3)"), ("2", "2 is offline"), ("0-2", "2 is off")]
        {
            let error = check(&format!("{line} {cpu}")).unwrap_err();
            assert_eq!(error.flag, flag, "{line} {cpu}");
            assert!(error.message.contains(said), "{line} {cpu}: {error}");
        }
    }
    assert!(check("calibrate").is_ok());
}

#[test]
fn io_uring_is_a_call_that_does_not_busy_poll() {
    let made = sink("--call io-uring --gro --batch 100").unwrap().sink;
    assert_eq!((made.call, made.batch, made.gro), (rxsteer_bench::Call::IoUring, 100, true));
    assert_eq!(sink("--call io-uring --busy-poll 50").unwrap_err().flag, "--busy-poll");
}

#[test]
fn work_of_a_reader_has_a_bound_that_the_refusal_names() {
    use rxsteer_bench::Workload;
    assert_eq!(sink("").unwrap().sink.work, Duration::ZERO);
    assert_eq!(sink("--work 10M").unwrap().sink.work, SinkSpec::MOST_WORK);
    for (wrong, said) in [("10000001", "0 to 10000000"), ("-1", "`-1`"), ("1.5", "`1.5`")] {
        let error = sink(&format!("--work {wrong}")).unwrap_err();
        assert_eq!(error.flag, "--work", "{wrong}");
        assert!(error.message.contains(said), "{wrong}: {error}");
    }
    // Every workload that has a reader of the traffic takes it.
    let Workload::Sink(made, _) = compare("sink --work 3k").unwrap().spec.workload else {
        panic!()
    };
    assert_eq!(made.work, Duration::from_micros(3));
    let overload = compare("sink --work 3k --overload 1,2").unwrap();
    let Workload::Overload(made) = overload.spec.workload else { panic!() };
    assert_eq!(made.sink.work, Duration::from_micros(3));
}

fn captured(line: &str) -> Result<capture::Capture, UsageError> {
    let words = format!("rxsteer bench gen --capture a.pcap {line}");
    match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
        Verb::Bench(BenchVerb::Gen(args)) => capture::Capture::try_from(&*args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_capture_is_sent_as_typed() {
    let made = captured("").unwrap().spec;
    assert_eq!(made, CaptureSpec::new("a.pcap"));
    let line =
        "--capture b.pcap --speed 2.5 --loop 0 --pad -c 1k -d 2 --send-batch 8 --source-cpu 1";
    let made = captured(line).unwrap().spec;
    assert_eq!(made.files, [Path::new("a.pcap"), Path::new("b.pcap")]);
    assert_eq!((made.pace, made.rounds, made.pads), (CapturePace::Recorded(2.5), 0, true));
    assert_eq!(made.until, Until { count: 1000, duration: Duration::from_secs(2) });
    assert_eq!((made.batch, made.cpu), (8, Some(CpuId(1))));
    assert_eq!(captured("--speed max").unwrap().spec.pace, CapturePace::Fastest);
    assert_eq!(captured("--rate 5k").unwrap().spec.pace, CapturePace::Rate(5000));
}

#[test]
fn what_does_not_go_with_a_capture_names_its_flag() {
    for (line, flag) in [
        ("--speed 0", "--speed"),
        ("--speed inf", "--speed"),
        ("--speed -1", "--speed"),
        ("--speed 1 --rate 5", "--speed"),
        ("--rate 0", "--rate"),
        ("--loop -1", "--loop"),
        ("--kind udp", "--kind"),
        ("--flows 3", "--flows"),
        ("--means packet", "--means"),
        ("-6", "--ipv6"),
        ("--to 192.0.2.1:9", "--to"),
    ] {
        assert_eq!(captured(line).unwrap_err().flag, flag, "{line}");
    }
}
