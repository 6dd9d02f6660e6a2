//! What is sent, counted at the other end by a packet socket of the test. Needs root; without it each
//! test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::observer::Observer;
use common::{GO_ON, LONG, NOBODY, PORT, packets, pair};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use rxsteer_bench::{
    BenchError, GenReport, GenSpec, Kind, Means, Pattern, Permit, Road, Traffic, Until, Watch,
    generate,
};
use rxsteer_testbed::{Offloads, Pair, PairSpec};

/// Sends and returns the report and what arrived.
fn send(pair: &Pair, spec: &GenSpec) -> (GenReport, Vec<Vec<u8>>) {
    let observer = Observer::new(pair);
    let before = pair.sink.device(Pair::SINK_DEVICE).unwrap().counters.rx_packets;
    let report = generate(spec, Road::Pair(pair), &NOBODY).unwrap();
    let frames: Vec<_> = observer.frames().into_iter().map(|(_, frame)| frame).collect();
    let arrived = pair.sink.device(Pair::SINK_DEVICE).unwrap().counters.rx_packets - before;
    assert_eq!(arrived, report.sent, "the receiver's device counted otherwise: {report:?}");
    assert_eq!(frames.len() as u64, report.sent, "{report:?}");
    (report, frames)
}

/// Returns source and port of a frame, and the bytes behind UDP or TCP.
fn read(frame: &[u8]) -> (IpAddr, u16, usize) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let source = match sliced.net.unwrap() {
        NetSlice::Ipv4(ip) => IpAddr::from(ip.header().source_addr()),
        NetSlice::Ipv6(ip) => IpAddr::from(ip.header().source_addr()),
        other => panic!("{other:?}"),
    };
    match sliced.transport.unwrap() {
        TransportSlice::Udp(udp) => {
            assert_eq!(udp.destination_port(), PORT);
            (source, udp.source_port(), udp.payload().len())
        }
        TransportSlice::Tcp(tcp) => {
            assert!(tcp.syn() && tcp.destination_port() == PORT);
            (source, tcp.source_port(), tcp.payload().len())
        }
        other => panic!("{other:?}"),
    }
}

fn flows(frames: &[Vec<u8>]) -> BTreeMap<(IpAddr, u16), usize> {
    let mut flows = BTreeMap::new();
    for frame in frames {
        let (source, port, _) = read(frame);
        *flows.entry((source, port)).or_default() += 1;
    }
    flows
}

fn v4() -> Traffic {
    Traffic { flows: 50, ..Traffic::new(Pair::SINK_V4.into(), PORT) }
}

#[test]
fn every_means_sends_what_it_says() {
    let Some(pair) = pair("every_means_sends_what_it_says", &PairSpec::default()) else { return };
    for means in [Means::Packet, Means::Mmsg, Means::Gso, Means::Send] {
        for to in [IpAddr::V4(Pair::SINK_V4), IpAddr::V6(Pair::SINK_V6)] {
            let traffic = Traffic { to, sizes: "33".parse().unwrap(), ..v4() };
            // 32 divides 6,400 / 50, so a batch of a flow is never cut.
            let spec = GenSpec { means: Some(means), batch: 32, ..packets(traffic, 6400) };
            let (report, frames) = send(&pair, &spec);
            assert_eq!(report.sent, 6400, "{means}");
            assert!(frames.iter().all(|frame| read(frame).2 == 33), "{means}");
            let flows = flows(&frames);
            assert_eq!(flows.len(), 50, "{means}");
            assert!(flows.values().all(|count| *count == 128), "{means}: {flows:?}");
            let headers = if to.is_ipv4() { 42 } else { 62 };
            let bytes = if means == Means::Packet { 33 + headers } else { 33 };
            assert_eq!(report.bytes, 6400 * bytes);
        }
    }
}

/// Live frames arrive by polling, so the other end has GRO on. Each flow gets its share, and the
/// checksums that the program writes are right, as another crate reads them.
#[test]
fn live_frames_are_what_was_asked_and_all_arrive() {
    let sink = Offloads { gro: true, ..Offloads::NONE };
    let test = "live_frames_are_what_was_asked_and_all_arrive";
    let Some(pair) = pair(test, &PairSpec { sink, ..PairSpec::default() }) else { return };
    for to in [IpAddr::V4(Pair::SINK_V4), IpAddr::V6(Pair::SINK_V6)] {
        for kind in [Kind::Udp, Kind::TcpSyn] {
            for pattern in [Pattern::InTurn, Pattern::Uniform, Pattern::Random] {
                let traffic = Traffic { to, kind, pattern, sizes: "40".parse().unwrap(), ..v4() };
                let spec = GenSpec { means: Some(Means::Live), ..packets(traffic, 20_000) };
                let (report, frames) = send(&pair, &spec);
                assert_eq!(report.sent, 20_000, "{report:?}");
                assert!(frames.iter().all(|frame| read(frame).2 == 40 && checksum_is_right(frame)));
                let flows = flows(&frames);
                match pattern {
                    Pattern::InTurn => {
                        assert_eq!(flows.len(), 50);
                        assert!(flows.values().all(|count| *count == 400), "{flows:?}");
                    }
                    // Mean 400, standard deviation 20.
                    Pattern::Uniform => {
                        assert_eq!(flows.len(), 50);
                        assert!(flows.values().all(|n| (250..550).contains(n)), "{flows:?}");
                    }
                    _ => assert!(flows.len() > 19_950, "{}", flows.len()),
                }
            }
        }
    }
    // Without being asked for, it is the fastest that can.
    let (report, _) = send(&pair, &packets(v4(), 1000));
    assert!(report.means.starts_with("live XDP frames"), "{report:?}");
    let (report, _) = send(&pair, &packets(Traffic { kind: Kind::Vxlan, ..v4() }, 1000));
    assert!(report.means.contains("AF_PACKET"), "{report:?}");
}

fn checksum_is_right(frame: &[u8]) -> bool {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (v4, v6) = match sliced.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            (Some(header), None)
        }
        NetSlice::Ipv6(ip) => (None, Some(ip.header().to_header())),
        other => panic!("{other:?}"),
    };
    match sliced.transport.unwrap() {
        TransportSlice::Udp(udp) => {
            let (header, payload) = (udp.to_header(), udp.payload());
            let sum = match (&v4, &v6) {
                (Some(ip), _) => header.calc_checksum_ipv4(ip, payload),
                (_, ip) => header.calc_checksum_ipv6(ip.as_ref().unwrap(), payload),
            };
            header.checksum == sum.unwrap()
        }
        TransportSlice::Tcp(tcp) => {
            let (header, payload) = (tcp.to_header(), tcp.payload());
            let sum = match (&v4, &v6) {
                (Some(ip), _) => header.calc_checksum_ipv4(ip, payload),
                (_, ip) => header.calc_checksum_ipv6(ip.as_ref().unwrap(), payload),
            };
            header.checksum == sum.unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// xdp-project/xdp-tutorial#167: a redirect into a veth device is lost without a word unless its peer
/// polls or has a program. Here it is an error with the remedy.
#[test]
fn live_frames_to_a_peer_that_does_not_poll_are_refused_and_explained() {
    let test = "live_frames_to_a_peer_that_does_not_poll_are_refused_and_explained";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let spec = GenSpec { means: Some(Means::Live), ..packets(v4(), 100) };
    let refused = generate(&spec, Road::Pair(&pair), &NOBODY).unwrap_err();
    assert!(matches!(refused, BenchError::PeerDoesNotPoll { .. }), "{refused}");
    assert!(refused.to_string().contains("ethtool -K rx0 gro on"), "{refused}");
    pair.sink.set_offloads("rx0", Offloads { gro: true, ..Offloads::NONE }).unwrap();
    assert_eq!(send(&pair, &spec).1.len(), 100);
}

#[test]
fn sizes_and_kinds_arrive_as_asked() {
    let Some(pair) = pair("sizes_and_kinds_arrive_as_asked", &PairSpec::default()) else { return };
    let sizes = "20x2,1400".parse().unwrap();
    let traffic = Traffic { sizes, pattern: Pattern::Random, ..v4() };
    let (_, frames) = send(&pair, &packets(traffic.clone(), 3000));
    let lens: BTreeMap<usize, usize> = frames.iter().fold(BTreeMap::new(), |mut all, frame| {
        *all.entry(read(frame).2).or_default() += 1;
        all
    });
    assert_eq!(lens, BTreeMap::from([(20, 2000), (1400, 1000)]));
    assert!(flows(&frames).len() > 2990);

    let syn = Traffic { kind: Kind::TcpSyn, sizes: "0".parse().unwrap(), ..v4() };
    let (_, frames) = send(&pair, &packets(syn, 500));
    assert!(frames.iter().all(|frame| read(frame).2 == 0));

    let vxlan = Traffic { kind: Kind::Vxlan, ..v4() };
    let (_, frames) = send(&pair, &packets(vxlan, 500));
    let inner: Vec<Vec<u8>> =
        frames.iter().map(|frame| frame[14 + 20 + 8 + 8..].to_vec()).collect();
    assert_eq!(flows(&inner).len(), 50);

    let fragments = Traffic { kind: Kind::Fragments, sizes: "800".parse().unwrap(), ..v4() };
    let (report, _) = send(&pair, &packets(fragments, 500));
    assert_eq!(report.sent, 500);
}

#[test]
fn a_rate_is_kept() {
    let Some(pair) = pair("a_rate_is_kept", &PairSpec::default()) else { return };
    // The bucket's own test proves the times; here only that the run goes by it.
    let until = Until { count: u64::MAX, duration: Duration::from_millis(500) };
    let spec = GenSpec { rate: 1000, until, ..GenSpec::new(v4()) };
    let (report, frames) = send(&pair, &spec);
    // Packet k is due at k ms; what came too late to be sent is counted.
    assert!(report.sent + report.behind <= 501, "{report:?}");
    assert!(report.elapsed >= Duration::from_millis(500));
    assert!(!frames.is_empty());
}

#[test]
fn a_run_can_be_stopped() {
    let Some(pair) = pair("a_run_can_be_stopped", &PairSpec::default()) else { return };
    let stop = AtomicBool::new(false);
    let seconds = std::sync::Mutex::new(Vec::new());
    let on_second = |second: &rxsteer_bench::Second| {
        seconds.lock().unwrap().push(*second);
        // A sender that had no CPU in the first second has sent nothing yet.
        stop.fetch_or(second.total > 0, Ordering::Relaxed);
    };
    let spec = GenSpec { rate: 10, ..packets(v4(), u64::MAX) };
    let watch = Watch { stop: &stop, on_second: &on_second };
    let report = generate(&spec, Road::Pair(&pair), &watch).unwrap();
    assert!(report.elapsed < LONG);
    let seconds = seconds.into_inner().unwrap();
    let mut total = 0;
    for second in &seconds {
        total += second.count;
        assert_eq!(second.total, total, "{seconds:?}");
    }
    assert!(0 < total && total <= report.sent, "{seconds:?} {report:?}");
}

#[test]
fn nothing_goes_to_an_address_that_is_not_ours() {
    let to: IpAddr = "192.0.2.1".parse().unwrap();
    let spec = packets(Traffic::new(to, PORT), 1);
    let refused = generate(&spec, Road::Open(&Permit::default()), &NOBODY).unwrap_err();
    assert!(matches!(refused, BenchError::NotOurs(address) if address == to));
    let test = "nothing_goes_to_an_address_that_is_not_ours";
    let Some(pair) = pair(test, &PairSpec::default()) else { return };
    let refused = generate(&spec, Road::Pair(&pair), &NOBODY).unwrap_err();
    assert!(matches!(refused, BenchError::NotOurs(_)));
}

/// Over loopback, which any process may.
#[test]
fn a_named_address_is_sent_to_by_sockets_only() {
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = receiver.local_addr().unwrap().port();
    let to = IpAddr::from([127, 0, 0, 1]);
    let permit = Permit::new(vec![to]);
    let traffic = Traffic { flows: 3, ..Traffic::new(to, port) };
    let spec = GenSpec { batch: 4, ..packets(traffic.clone(), 40) };
    let report = generate(&spec, Road::Open(&permit), &NOBODY).unwrap();
    assert_eq!(report.sent, 40);
    assert!(report.means.contains("GSO"), "{report:?}");
    let mut sources = std::collections::BTreeSet::new();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for _ in 0..40 {
        sources.insert(receiver.recv_from(&mut [0; 64]).unwrap().1);
    }
    assert_eq!(sources.len(), 3);
    for (traffic, means) in [
        (Traffic { pattern: Pattern::Random, ..traffic.clone() }, None),
        (Traffic { kind: Kind::TcpSyn, ..traffic.clone() }, None),
        (Traffic { flows: 100_000, ..traffic.clone() }, None),
        (traffic, Some(Means::Packet)),
    ] {
        let spec = GenSpec { means, ..packets(traffic, 1) };
        let refused = generate(&spec, Road::Open(&permit), &NOBODY).unwrap_err();
        assert!(matches!(refused, BenchError::CannotSend { .. }), "{refused}");
    }
    assert!(!GO_ON.load(Ordering::Relaxed));
}
