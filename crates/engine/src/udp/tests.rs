//! Frames and stages, one behaviour each; the executors have tests of their own.

use std::net::SocketAddr;
use std::sync::Arc;

use etherparse::{IpFragOffset, PacketBuilder};
use rxsteer_core::steer::{Host, PolicyKind, PortRule, Reason};
use rxsteer_core::{CpuId, FlowHash, QueueId};
use rxsteer_sockets::datagram::{IpFault, Malformed, PacketFault};
use rxsteer_sockets::queue::{Datagram, Limits, Payload};
use rxsteer_sockets::{DeviceId, Event, IpVersion, SocketOption, SourceFilter};

use super::testing::*;
use super::*;
use crate::gro::{Checksum, Gro, Segment};
use crate::virtual_time::VirtualTime;
use crate::{At, Costs, Cpus, Mode, ReaderId, Settings, Stages, Train};

const KEY: (u64, u64) = (3, 4);

fn frame(bytes: &[u8]) -> Frame {
    Frame::new(pool().copy(bytes).unwrap(), 0)
}

fn segment(bytes: &[u8]) -> Segment {
    frame(bytes).segment(KEY).expect("sound UDP")
}

/// Writes another value into a frame and corrects the checksums that etherparse wrote.
fn with_ipv4(change: impl FnOnce(&mut etherparse::Ipv4Header)) -> Vec<u8> {
    let mut ip =
        etherparse::Ipv4Header::new(0, 64, etherparse::IpNumber::UDP, [198, 51, 100, 1], HERE)
            .unwrap();
    change(&mut ip);
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()))
        .udp(peer(1).port(), 53);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, b"payload").unwrap();
    bytes
}

#[test]
fn flows_differ_by_each_part_of_the_four_tuple_and_by_nothing_else() {
    let base = segment(&bytes(peer(1), here(53), b"one"));
    assert_eq!(segment(&bytes(peer(1), here(53), b"other payload")).flow, base.flow);
    let other_port = SocketAddr::new(peer(1).ip(), peer(1).port() + 1);
    let other_host = SocketAddr::new(peer(2).ip(), peer(1).port());
    let v6 = |from: &str, to: &str| {
        segment(&bytes(from.parse().unwrap(), to.parse().unwrap(), b"payload")).flow
    };
    let flows = [
        base.flow,
        segment(&bytes(other_port, here(53), b"")).flow,
        segment(&bytes(other_host, here(53), b"")).flow,
        segment(&bytes(peer(1), here(54), b"")).flow,
        segment(&bytes(peer(1), SocketAddr::from(([192, 0, 2, 2], 53)), b"")).flow,
        segment(&bytes(here(53), peer(1), b"")).flow,
        v6("[2001:db8::1]:10001", "[2001:db8::2]:53"),
        v6("[2001:db8::2]:10001", "[2001:db8::1]:53"),
        v6("[2001:db8::1]:53", "[2001:db8::2]:10001"),
        v6("[2001:db8:1::1]:10001", "[2001:db8::2]:53"),
    ];
    for (n, flow) in flows.iter().enumerate() {
        assert!(!flows[..n].contains(flow), "flow {n}");
    }
}

#[test]
fn merging_sees_ttl_tos_and_df_and_no_other_field() {
    let base = segment(&with_ipv4(|_| ()));
    assert_eq!((base.headers_len, base.payload_len), (28, 7));
    assert_eq!((base.checksum, base.length_fits), (Checksum::Good, true));
    let word = |change: fn(&mut etherparse::Ipv4Header)| segment(&with_ipv4(change)).header_word;
    assert_ne!(word(|ip| ip.time_to_live = 63), base.header_word);
    assert_ne!(word(|ip| ip.dscp = 1.try_into().unwrap()), base.header_word);
    assert_ne!(word(|ip| ip.dont_fragment = !ip.dont_fragment), base.header_word);
    assert_eq!(word(|ip| ip.identification = 77), base.header_word);
    // Options do not merge.
    let options = segment(&with_ipv4(|ip| ip.options = [1, 1, 1, 1][..].try_into().unwrap()));
    assert_eq!((options.headers_len, options.length_fits), (32, false));
}

#[test]
fn merging_sees_hop_limit_traffic_class_and_label_of_ipv6() {
    let made = bytes("[2001:db8::1]:7".parse().unwrap(), "[2001:db8::2]:53".parse().unwrap(), b"x");
    let base = segment(&made);
    assert_eq!((base.headers_len, base.payload_len, base.length_fits), (48, 1, true));
    // Version, class, label; hop limit. No checksum covers them.
    for at in [14, 15, 16, 17, 21] {
        let mut other = made.clone();
        other[at] ^= 1;
        match frame(&other).segment(KEY) {
            Some(other) => assert_ne!(other.header_word, base.header_word, "byte {at}"),
            None => assert_eq!(at, 14, "only the version makes it unreadable"),
        }
    }
}

#[test]
fn a_frame_that_is_no_sound_udp_has_a_fault_and_is_not_merged() {
    let fault = |bytes: &[u8]| {
        let frame = frame(bytes);
        assert!(frame.segment(KEY).is_none());
        frame.checked().unwrap_err()
    };
    let good = bytes(peer(1), here(53), b"payload");
    let mut wrong = good.clone();
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(fault(&wrong), PacketFault::Udp(Malformed::BadChecksum));
    assert_eq!(fault(&good[..13]), PacketFault::Ip(IpFault::Version));
    assert_eq!(fault(&good[..20]), PacketFault::Ip(IpFault::Truncated));
    assert_eq!(fault(&good[..45]), PacketFault::Ip(IpFault::Length));
    let fragment = with_ipv4(|ip| ip.fragment_offset = IpFragOffset::try_new(8).unwrap());
    assert_eq!(fault(&fragment), PacketFault::Ip(IpFault::Fragment));
    let arp = [vec![0xff; 12], vec![8, 6], vec![0; 28]].concat();
    assert_eq!(fault(&arp), PacketFault::Ip(IpFault::Version));
    // Unless the device vouches for the checksum.
    let vouched = frame(&wrong).with_checksum_verified();
    assert_eq!(vouched.segment(KEY).unwrap().checksum, Checksum::Good);
}

#[test]
fn a_datagram_without_checksum_or_with_padding_behind_its_length_is_not_merged() {
    let mut bare = bytes(peer(1), here(53), b"payload");
    bare[40..42].fill(0);
    assert_eq!(segment(&bare).checksum, Checksum::Absent);
    // The UDP length says less than the IP length: allowed, and trimmed.
    let mut short = bare.clone();
    short[38..40].copy_from_slice(&13u16.to_be_bytes());
    let short = segment(&short);
    assert_eq!((short.payload_len, short.length_fits), (5, false));
    // Padding of the Ethernet frame is none of it.
    let mut padded = bytes(peer(1), here(53), b"payload");
    padded.resize(60, 0);
    let padded = segment(&padded);
    assert_eq!((padded.payload_len, padded.length_fits), (7, true));
}

#[test]
fn vlan_tags_are_passed_over() {
    let plain = bytes(peer(1), here(53), b"payload");
    let tags = [&plain[..12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], &plain[12..]].concat();
    assert_eq!(segment(&tags), segment(&plain));
    let frame = frame(&tags);
    assert_eq!(frame.payload(frame.checked().unwrap()), b"payload");
    let three = [&plain[..12], &[0x81, 0, 0, 5].repeat(3)[..], &plain[12..]].concat();
    assert!(Frame::new(pool().copy(&three).unwrap(), 0).checked().is_err());
}

/// CPUs of which all are online and none has anything to do.
struct Idle;

impl Host for Idle {
    fn is_online(&self, cpu: CpuId) -> bool {
        cpu.0 < 4
    }

    fn head(&self, _: CpuId) -> u32 {
        0
    }

    fn tail(&self, _: CpuId) -> u32 {
        0
    }
}

impl Cpus for Idle {
    fn busy_ns(&self, _: CpuId) -> u64 {
        0
    }

    fn share_cache(&self, _: CpuId, _: CpuId) -> bool {
        true
    }
}

type Read = Vec<(u16, Vec<Vec<u8>>)>;

/// One thread's stages, which keep what is read: by port, the datagrams of each message.
struct Bench {
    sockets: Arc<Sockets>,
    stages: UdpStages<Keep>,
}

#[derive(Debug, Default)]
struct Keep(Read);

impl Consume for Keep {
    fn consume(&mut self, _: Turn, socket: &Socket, message: Datagram<Message>) -> u64 {
        let datagrams: Vec<Vec<u8>> = message.payload.datagrams().map(<[u8]>::to_vec).collect();
        // Two ways to the same bytes, and the segment length cuts them.
        let mut whole = vec![0; message.payload.len() + 1];
        assert_eq!(message.payload.copy_to(&mut whole), datagrams.concat().len());
        if datagrams.len() > 1 {
            let cut = whole[..whole.len() - 1].chunks(message.segment_len.into());
            assert!(cut.eq(datagrams.iter().map(Vec::as_slice)));
        } else {
            assert_eq!(message.segment_len, 0);
        }
        self.0.push((socket.local().port(), datagrams));
        7
    }
}

impl Bench {
    fn new(settings: PlaneSettings) -> Self {
        let sockets = sockets(&plane(settings), &[0]);
        let stages = UdpStages::new(&sockets, Keep::default());
        Self { sockets, stages }
    }

    fn choose(&mut self, frame: &mut Frame, on: u16) -> (Reason, CpuId) {
        let at = At { on: CpuId(on), queue: QueueId(0), now_ns: 0, again: false };
        let decision = self.stages.choose(frame, at, &Idle).decision;
        (decision.reason, decision.cpu)
    }

    /// Delivers the frames of one poll; returns how many had a reader.
    fn deliver(&mut self, frames: impl IntoIterator<Item = Frame>) -> usize {
        let (mut gro, mut trains) = (Gro::new(), Vec::new());
        for frame in frames {
            let segment = self.stages.segment(&frame);
            gro.push(frame, segment, 0, |train| trains.push(train));
        }
        gro.flush(|train| trains.push(train));
        let deliver = |train| self.stages.deliver(train, CpuId(0), 0);
        trains.into_iter().filter_map(deliver).count()
    }

    fn read(&mut self, most: u32) -> crate::Read {
        self.stages.read(ReaderId(0), CpuId(0), 0, most)
    }

    fn read_all(&mut self) -> Read {
        while self.read(64).more {}
        std::mem::take(&mut self.stages.consumer_mut().0)
    }
}

#[test]
fn a_train_is_one_message_for_a_socket_that_merges_and_cut_up_for_another() {
    let mut bench = Bench::new(PlaneSettings::default());
    bench.sockets.open(&SocketSettings { gro: true, ..roomy(1000, 0) }).unwrap();
    bench.sockets.open(&roomy(2000, 0)).unwrap();
    let pool = pool();
    let frames = |port: u16| {
        (0..5)
            .map(|n| numbered(&pool, 1, port, n, if n == 4 { 20 } else { 100 }))
            .collect::<Vec<_>>()
    };
    let payloads = |port: u16| -> Vec<Vec<u8>> {
        frames(port).iter().map(|f| f.payload(f.checked().unwrap()).to_vec()).collect()
    };
    assert_eq!(bench.deliver(frames(1000).into_iter().chain(frames(2000))), 2);
    let counts = bench.read(64);
    assert_eq!((counts.messages, counts.packets, counts.bytes), (6, 10, 2 * 420));
    assert_eq!((counts.work_ns, counts.more), (6 * 7, false));
    let mut read = bench.read_all();
    assert_eq!(read.remove(0), (1000, payloads(1000)));
    let cut: Vec<_> = payloads(2000).into_iter().map(|payload| (2000, vec![payload])).collect();
    assert_eq!(read, cut);
    let tally = bench.stages.tally();
    assert_eq!((tally.trains, tally.queued, tally.read, tally.messages), (2, 10, 10, 6));
    // The kernel counts what was read, message by message.
    assert_eq!(bench.sockets.counters().snapshot(IpVersion::V4).in_datagrams, 6);
}

#[test]
fn a_reader_takes_at_most_its_batch_and_its_sockets_in_turn() {
    let mut bench = Bench::new(PlaneSettings::default());
    for port in [1, 2] {
        bench.sockets.open(&roomy(port, 0)).unwrap();
    }
    let pool = pool();
    // Different lengths, so that none merge.
    bench.deliver((0..3).map(|n| numbered(&pool, 1, 1, n, 10 + n as usize)));
    bench.deliver((0..3).map(|n| numbered(&pool, 2, 2, n, 10 + n as usize)));
    for left in (0..6).rev() {
        let read = bench.read(1);
        assert_eq!((read.messages, read.more), (1, left > 0));
    }
    assert_eq!(bench.read(1), crate::Read::default());
    let ports: Vec<u16> = bench.read_all().into_iter().map(|(port, _)| port).collect();
    assert_eq!(ports, [1, 2, 1, 2, 1, 2]);
    // And again after it ran empty.
    bench.deliver([numbered(&pool, 1, 1, 3, 10)]);
    assert_eq!(bench.read_all().len(), 1);
}

#[test]
fn every_packet_ends_once_and_for_one_reason() {
    let mut bench = Bench::new(PlaneSettings::default());
    // Room for two datagrams; the buffers hold 256 bytes each.
    let two = 2 * (256 + Datagram::<Message>::OVERHEAD);
    bench.sockets.open(&SocketSettings { limits: Limits::bytes(two), ..roomy(1, 0) }).unwrap();
    let pool = pool();
    let mut frames: Vec<_> = (0..5).map(|n| numbered(&pool, 1, 1, n, 100)).collect();
    frames.extend((0..3).map(|n| numbered(&pool, 1, 9, n, 100)));
    let mut wrong = bytes(peer(1), here(1), b"payload");
    wrong[41] ^= 1;
    frames.push(frame(&wrong));
    frames.push(frame(&with_ipv4(|ip| ip.more_fragments = true)));
    frames.push(frame(&bytes(
        "[2001:db8::1]:7".parse().unwrap(),
        "[2001:db8::2]:53".parse().unwrap(),
        b"x",
    )));
    for frame in &mut frames {
        bench.choose(frame, 0);
    }
    bench.deliver(frames);
    let tally = bench.stages.tally().clone();
    assert_eq!((tally.decisions(), tally.queued), (11, 2));
    for (event, count) in [
        (Event::BufferFull, 3),
        (Event::NoPort, 4),
        (Event::Malformed(Malformed::BadChecksum), 1),
        (Event::Ip(IpFault::Fragment), 1),
    ] {
        assert_eq!(tally.ended(event), count, "{event:?}");
    }
    assert_eq!(
        tally.decisions() + tally.copies,
        tally.dropped() + tally.all_ended() + tally.queued
    );
    let kernel = bench.sockets.counters().snapshot(IpVersion::V4);
    assert_eq!((kernel.no_ports, kernel.rcvbuf_errors, kernel.in_csum_errors), (3, 3, 1));
    assert_eq!(bench.sockets.counters().snapshot(IpVersion::V6).no_ports, 1);
    assert_eq!(bench.read_all().len(), 2);
    assert_eq!(bench.stages.tally().read, 2);
}

#[test]
fn a_multicast_packet_reaches_each_member_and_is_counted_once_and_its_copies() {
    let mut bench = Bench::new(PlaneSettings::default());
    let group: SocketAddr = "239.1.2.3:5000".parse().unwrap();
    for _ in 0..3 {
        let settings = SocketSettings {
            reuse_port: true,
            ..SocketSettings::bound("0.0.0.0:5000".parse().unwrap())
        };
        let socket = bench.sockets.open(&settings).unwrap();
        let join = SocketOption::Join(group.ip(), DeviceId(1), SourceFilter::ANY);
        bench.sockets.namespace().set(socket.id(), join).unwrap();
    }
    let mut frames = vec![
        frame(&bytes(peer(1), group, b"hello")),
        frame(&bytes(peer(1), group, b"hello")),
        frame(&bytes(peer(1), "239.9.9.9:5001".parse().unwrap(), b"")),
    ];
    for frame in &mut frames {
        bench.choose(frame, 0);
    }
    bench.deliver(frames);
    let tally = bench.stages.tally();
    assert_eq!((tally.queued, tally.copies, tally.ended(Event::MulticastIgnored)), (6, 4, 1));
    assert_eq!(
        tally.decisions() + tally.copies,
        tally.dropped() + tally.all_ended() + tally.queued
    );
    let read = bench.read_all();
    assert_eq!(read, vec![(5000, vec![b"hello".to_vec()]); 6]);
}

#[test]
fn without_mask_and_tables_nothing_is_hashed() {
    let mut bench = Bench::new(PlaneSettings { policy: PolicyKind::None, ..Default::default() });
    let mut frame = numbered(&pool(), 1, 1, 0, 10);
    assert_eq!(bench.choose(&mut frame, 3), (Reason::Local, CpuId(3)));
    assert!(frame.hash.is_none());
    // It merges all the same.
    assert!(!frame.segment(KEY).unwrap().hash.is_none());
}

#[test]
fn a_device_hash_is_used_as_it_is() {
    let masks = vec![(0..4).map(CpuId).collect()];
    let mut bench =
        Bench::new(PlaneSettings { policy: PolicyKind::Rps, masks, ..Default::default() });
    for cpu in 0..4 {
        let mut frame =
            numbered(&pool(), 1, 1, 0, 10).with_hash(FlowHash(u32::from(cpu) << 30 | 5));
        assert_eq!(bench.choose(&mut frame, 0).1, CpuId(cpu));
    }
}

#[test]
fn a_flow_follows_the_reader_of_its_connected_socket_and_is_forgotten_with_it() {
    let masks = vec![vec![CpuId(1)]];
    let mut bench = Bench::new(PlaneSettings { masks, ..Default::default() });
    let connected = SocketSettings { remote: Some(peer(1)), ..roomy(1, 0) };
    let socket = bench.sockets.open(&connected).unwrap();
    let pool = pool();
    let mut first = numbered(&pool, 1, 1, 0, 10);
    assert_eq!(bench.choose(&mut first, 0), (Reason::Miss, CpuId(1)));
    bench.deliver([first]);
    bench.stages.read(ReaderId(0), CpuId(3), 0, 1);
    assert_eq!(bench.choose(&mut numbered(&pool, 1, 1, 1, 10), 0), (Reason::Hit, CpuId(3)));
    // A stranger to the port is no flow.
    assert_eq!(bench.choose(&mut numbered(&pool, 2, 1, 1, 10), 0), (Reason::Miss, CpuId(1)));
    bench.sockets.namespace().disconnect(socket.id()).unwrap();
    assert_eq!(bench.choose(&mut numbered(&pool, 1, 1, 2, 10), 0), (Reason::Miss, CpuId(1)));
}

#[test]
fn the_rule_of_a_port_says_when_an_unconnected_sockets_senders_are_flows() {
    let masks = vec![vec![CpuId(1)]];
    let rules = vec![(1, PortRule::Flows), (2, PortRule::Requests)];
    let mut bench = Bench::new(PlaneSettings { masks, rules, ..Default::default() });
    for port in [1, 2] {
        bench.sockets.open(&roomy(port, 0)).unwrap();
    }
    let pool = pool();
    for n in 0..8 {
        for port in [1, 2] {
            let mut frame = numbered(&pool, u32::from(port), port, n, 10);
            bench.choose(&mut frame, 0);
            bench.deliver([frame]);
        }
        bench.stages.read(ReaderId(0), CpuId(3), 0, 64);
    }
    assert_eq!(bench.choose(&mut numbered(&pool, 1, 1, 9, 10), 0), (Reason::Hit, CpuId(3)));
    assert_eq!(bench.choose(&mut numbered(&pool, 2, 2, 9, 10), 0), (Reason::NoFlow, CpuId(1)));
}

#[test]
fn a_new_mask_holds_from_the_next_packet_on() {
    let masks = vec![vec![CpuId(1)]];
    let mut bench =
        Bench::new(PlaneSettings { policy: PolicyKind::Rps, masks, ..Default::default() });
    assert_eq!(bench.choose(&mut numbered(&pool(), 1, 1, 0, 10), 0).1, CpuId(1));
    bench.sockets.plane().set_mask(QueueId(0), &[CpuId(2)]);
    assert_eq!(bench.choose(&mut numbered(&pool(), 1, 1, 0, 10), 0).1, CpuId(2));
}

#[test]
fn reading_out_of_order_is_seen() {
    let bench = Bench::new(PlaneSettings::default());
    let sockets = bench.sockets;
    sockets.open(&roomy(1, 0)).unwrap();
    let mut stages = UdpStages::new(&sockets, Keep::default()).watching_order();
    let pool = pool();
    // Of flow 1 two are late; flow 2 is in order.
    for (flow, number) in [(1, 1), (2, 1), (1, 4), (1, 2), (2, 2), (1, 3), (1, 5)] {
        stages.deliver(Train::one(numbered(&pool, flow, 1, number, 10)), CpuId(0), 0);
    }
    while stages.read(ReaderId(0), CpuId(0), 0, 2).more {}
    assert_eq!((stages.tally().read, stages.tally().reordered), (7, 2));
}

#[test]
fn a_socket_that_cannot_be_opened_leaves_nothing_behind() {
    let bench = Bench::new(PlaneSettings::default());
    let socket = bench.sockets.open(&roomy(1, 0)).unwrap();
    let error = bench.sockets.open(&roomy(1, 0)).unwrap_err();
    assert_eq!(error, OpenError::Socket(rxsteer_sockets::SocketError::AddressInUse));
    assert_eq!(bench.sockets.open(&roomy(2, 1)).unwrap_err(), OpenError::NoReader(ReaderId(1)));
    assert_eq!(bench.sockets.namespace().open_sockets(), 1);
    bench.sockets.close(&socket).unwrap();
    assert!(bench.sockets.close(&socket).is_err());
    assert_eq!(bench.sockets.namespace().open_sockets(), 0);
}

#[test]
fn what_waits_in_a_closed_socket_can_be_read_and_nothing_comes_after() {
    let mut bench = Bench::new(PlaneSettings::default());
    let socket = bench.sockets.open(&roomy(1, 0)).unwrap();
    bench.deliver([numbered(&pool(), 1, 1, 0, 10)]);
    bench.sockets.close(&socket).unwrap();
    assert_eq!(bench.deliver([numbered(&pool(), 1, 1, 1, 10)]), 0);
    assert_eq!(bench.stages.tally().ended(Event::NoPort), 1);
    assert_eq!(bench.read_all().len(), 1);
}

/// The stages of a queue that gets a mask when ten packets were chosen for.
struct MaskedLate(UdpStages<Keep>, Arc<Sockets>);

impl Stages for MaskedLate {
    type Packet = Frame;
    type Flow = FlowHash;

    fn flow(&self, packet: &Frame) -> FlowHash {
        self.0.flow(packet)
    }

    fn hash(&self, packet: &Frame) -> FlowHash {
        self.0.hash(packet)
    }

    fn class(&self, packet: &Frame) -> rxsteer_core::steer::Class {
        self.0.class(packet)
    }

    fn segment(&self, packet: &Frame) -> Option<Segment> {
        self.0.segment(packet)
    }

    fn choose<C: Cpus>(&mut self, packet: &mut Frame, at: At, cpus: &C) -> crate::Choice {
        if self.0.tally().decisions() == 10 {
            self.1.plane().set_mask(QueueId(0), &[CpuId(1)]);
        }
        self.0.choose(packet, at, cpus)
    }

    fn queued(&mut self, flow: FlowHash, at: At, choice: &crate::Choice, tail: u32) {
        self.0.queued(flow, at, choice, tail);
    }

    fn deliver(&mut self, train: Train<Frame>, on: CpuId, now_ns: u64) -> Option<crate::Reading> {
        self.0.deliver(train, on, now_ns)
    }

    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> crate::Read {
        self.0.read(reader, on, now_ns, most)
    }

    fn dropped(&mut self, packet: Frame, cause: crate::Drop, now_ns: u64) {
        self.0.dropped(packet, cause, now_ns);
    }
}

/// A flow that was processed where its packets are taken goes to another CPU in the middle of a
/// poll: what that poll holds of it for merging must not be overtaken.
#[test]
fn what_is_held_of_a_flow_goes_before_its_next_packet_goes_to_another_cpu() {
    let settings = PlaneSettings { policy: PolicyKind::FlowAware, ..Default::default() };
    let sockets = sockets(&plane(settings), &[1]);
    sockets.open(&roomy(1, 0)).unwrap();
    let stages = UdpStages::new(&sockets, Keep::default()).watching_order();
    let mut stages = MaskedLate(stages, Arc::clone(&sockets));
    let settings = Settings { mode: Mode::Threaded, ..Default::default() };
    let mut host = VirtualTime::new(&topology(2, &[0]), &settings, &Costs::default());
    let pool = pool();
    for number in 0..64 {
        host.arrive(numbered(&pool, 1, 1, number, 100), QueueId(0), 0, &mut stages);
    }
    host.drain(&mut stages);
    let tally = stages.0.tally();
    assert_eq!((tally.reason(Reason::Local), tally.decisions()), (10, 64));
    assert_eq!((tally.read, tally.reordered), (64, 0), "{tally:?}");
}
