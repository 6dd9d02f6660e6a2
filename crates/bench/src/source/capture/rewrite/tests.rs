//! Packets that the lab's generator makes, rewritten, and read with another crate.

use super::*;
use etherparse::{Icmpv6Slice, NetSlice, SlicedPacket, TransportSlice};
use rxsteer_lab::capture::LinkType;
use rxsteer_lab::generate::{Layer, Rng, Tcp, TcpFlags, V4, V6, packet};

const LINK: Link = Link { source: [2, 0, 0, 0, 0, 1], sink: [2, 0, 0, 0, 0, 2] };
const ETHERNET: Layer = Layer::Ethernet { back: false };

fn v4(src: [u8; 4], dst: [u8; 4]) -> Layer {
    Layer::V4(V4::new(src.into(), dst.into()))
}

fn v6(src: &str, dst: &str) -> Layer {
    Layer::V6(V6::new(src.parse().unwrap(), dst.parse().unwrap()))
}

fn udp(checksum: bool) -> Layer {
    Layer::Udp { src: 4000, dst: 53, checksum }
}

fn tcp() -> Layer {
    let flags = TcpFlags { ack: true, ..TcpFlags::default() };
    Layer::Tcp(Tcp { src: 4000, dst: 443, seq: 7, ack: 9, flags })
}

const V4_FROM: [u8; 4] = [192, 0, 2, 7];
const V4_TO: [u8; 4] = [203, 0, 113, 9];
const V6_FROM: &str = "2001:db8::7";
const V6_TO: &str = "2001:db8:1::9";

/// Rewrites a packet; `None` where it cannot be sent.
fn rewrite(rewriter: &mut Rewriter, link: LinkType, data: &[u8]) -> Option<Vec<u8>> {
    let mut frame = vec![9; 3];
    rewriter.write(&Packet::new(0, link, data), &mut frame).then_some(frame)
}

fn rewriter() -> Rewriter {
    Rewriter::new(LINK, 1500, false)
}

/// Reads addresses of a frame, and whether all its checksums are right.
fn read(frame: &[u8]) -> (IpAddr, IpAddr, bool) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (from, to, v4, v6) = match sliced.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            (IpAddr::from(header.source), IpAddr::from(header.destination), Some(header), None)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            (IpAddr::from(header.source), IpAddr::from(header.destination), None, Some(header))
        }
        other => panic!("{other:?}"),
    };
    let header_is_right =
        v4.as_ref().is_none_or(|ip| ip.header_checksum == ip.calc_header_checksum());
    let is_right = match (sliced.transport.unwrap(), &v4, &v6) {
        (TransportSlice::Udp(udp), Some(ip), _) => {
            udp.to_header().calc_checksum_ipv4(ip, udp.payload()).unwrap() == udp.checksum()
        }
        (TransportSlice::Udp(udp), _, Some(ip)) => {
            udp.to_header().calc_checksum_ipv6(ip, udp.payload()).unwrap() == udp.checksum()
        }
        (TransportSlice::Tcp(tcp), Some(ip), _) => {
            tcp.to_header().calc_checksum_ipv4(ip, tcp.payload()).unwrap() == tcp.checksum()
        }
        (TransportSlice::Tcp(tcp), _, Some(ip)) => {
            tcp.to_header().calc_checksum_ipv6(ip, tcp.payload()).unwrap() == tcp.checksum()
        }
        (TransportSlice::Icmpv6(icmp), _, Some(ip)) => {
            let icmp: Icmpv6Slice<'_> = icmp;
            icmp.is_checksum_valid(ip.source, ip.destination)
        }
        (other, ..) => panic!("{other:?}"),
    };
    (from, to, header_is_right && is_right)
}

#[test]
fn packets_for_one_host_go_to_the_receiver_with_right_checksums() {
    let tagged = Layer::Vlan { tpid: ETHERTYPE_CTAG, vid: 5 };
    let stacks: [&[Layer]; 7] = [
        &[ETHERNET, v4(V4_FROM, V4_TO), udp(true)],
        &[ETHERNET, v4(V4_FROM, V4_TO), tcp()],
        &[ETHERNET, v6(V6_FROM, V6_TO), udp(true)],
        &[ETHERNET, v6(V6_FROM, V6_TO), tcp()],
        &[ETHERNET, v6(V6_FROM, V6_TO), Layer::Echo6 { id: 3, seq: 4 }],
        &[ETHERNET, v6(V6_FROM, V6_TO), Layer::HopByHop, udp(true)],
        &[ETHERNET, tagged, v4(V4_FROM, V4_TO), udp(true)],
    ];
    for layers in stacks {
        // Odd and even, and long enough that sums carry.
        for len in [0, 1, 40, 1333] {
            let data = packet(layers, &vec![0xf3; len]);
            let mut made = rewriter();
            let frame = rewrite(&mut made, LinkType::ETHERNET, &data).unwrap();
            assert_eq!(frame.len(), data.len());
            assert_eq!((&frame[..6], &frame[6..12]), (&LINK.sink[..], &data[6..12]));
            let was = read(&data);
            let sink: IpAddr =
                if was.0.is_ipv4() { Pair::SINK_V4.into() } else { Pair::SINK_V6.into() };
            assert!(was.2, "{layers:?}");
            assert_eq!(read(&frame), (was.0, sink, true), "{layers:?} {len}");
            let once = Rewritten { ethernet: 1, destinations: 1, ..Rewritten::default() };
            assert_eq!((made.rewritten, made.unsent), (once, Unsent::default()));
            // The receiver's own packets need nothing.
            assert_eq!(rewrite(&mut made, LinkType::ETHERNET, &frame).unwrap(), frame);
            assert_eq!(made.rewritten, once);
        }
    }
}

#[test]
fn every_link_type_gets_an_ethernet_header() {
    let mut cooked = [0u8; 16];
    cooked[14..].copy_from_slice(&[0x08, 0x00]);
    let mut cooked2 = [0u8; 20];
    cooked2[..2].copy_from_slice(&[0x08, 0x00]);
    let data = packet(&[v4(V4_FROM, V4_TO), udp(true)], b"hello");
    for (link, header) in [
        (LinkType::RAW, &[][..]),
        (LinkType::IPV4, &[]),
        (LinkType::NULL, &[2, 0, 0, 0]),
        (LinkType::LOOP, &[0, 0, 0, 2]),
        (LinkType::LINUX_SLL, &cooked),
        (LinkType::LINUX_SLL2, &cooked2),
    ] {
        let mut made = rewriter();
        let frame = rewrite(&mut made, link, &[header, &data].concat()).unwrap();
        let ethernet = [&LINK.sink[..], &LINK.source, &[0x08, 0x00]].concat();
        assert_eq!(frame[..14], ethernet, "{link}");
        assert_eq!(read(&frame), (V4_FROM.into(), Pair::SINK_V4.into(), true), "{link}");
        let once = Rewritten { link_headers: 1, destinations: 1, ..Rewritten::default() };
        assert_eq!(made.rewritten, once, "{link}");
    }
}

#[test]
fn a_wrong_checksum_stays_wrong_and_none_stays_none() {
    let mut data = packet(&[ETHERNET, v4(V4_FROM, V4_TO), udp(true)], b"hello");
    data[14 + 20 + 6] ^= 0x55;
    let frame = rewrite(&mut rewriter(), LinkType::ETHERNET, &data).unwrap();
    assert_eq!(read(&frame), (V4_FROM.into(), Pair::SINK_V4.into(), false));
    let data = packet(&[ETHERNET, v4(V4_FROM, V4_TO), udp(false)], b"hello");
    let frame = rewrite(&mut rewriter(), LinkType::ETHERNET, &data).unwrap();
    assert_eq!(frame[14 + 20 + 6..][..2], [0, 0]);
}

/// What was cut off is zeroes then, and the sum over them is right, as another crate finds.
#[test]
fn what_the_capture_does_not_have_can_be_filled_in() {
    for (layers, headers) in [
        (&[ETHERNET, v4(V4_FROM, V4_TO), udp(true)][..], 14 + 20 + 8),
        (&[ETHERNET, v4(V4_FROM, V4_TO), tcp()], 14 + 20 + 20),
        (&[ETHERNET, v6(V6_FROM, V6_TO), Layer::HopByHop, udp(true)], 14 + 40 + 8 + 8),
    ] {
        for (len, captured) in [(33, 0), (33, 7), (1000, 100), (1, 0)] {
            let whole = packet(layers, &vec![0xa7; len]);
            let data = &whole[..headers + captured];
            let cut =
                Packet { orig_len: whole.len() as u32, ..Packet::new(0, LinkType::ETHERNET, data) };
            let mut made = Rewriter { pads: true, ..rewriter() };
            let mut frame = Vec::new();
            assert!(made.write(&cut, &mut frame));
            assert_eq!((made.rewritten.padded, made.unsent.total()), (1, 0));
            let (kept, filled) = (&whole[headers..headers + captured], vec![0; len - captured]);
            assert_eq!(frame[headers..], [kept, &filled].concat());
            assert!(read(&frame).2, "{layers:?} {len} {captured}");
            // A packet for a group is filled in too.
            let mut group = data.to_vec();
            group[..6].copy_from_slice(&[0x01, 0, 0x5e, 0, 0, 0xfb]);
            assert!(made.write(&Packet { data: &group, ..cut }, &mut frame));
            assert!(read(&frame).2, "{layers:?} {len} {captured}");
        }
    }
    // Longer than the link takes is so also where most of it is missing, and none is made of 4 GiB.
    let mut made = Rewriter { pads: true, ..rewriter() };
    let data = packet(&[ETHERNET, v4(V4_FROM, V4_TO), tcp()], b"");
    for orig_len in [1515, u32::MAX] {
        let cut = Packet { orig_len, ..Packet::new(0, LinkType::ETHERNET, &data) };
        assert!(!made.write(&cut, &mut Vec::new()));
    }
    assert_eq!((made.unsent.too_long, made.rewritten), (2, Rewritten::default()));
}

/// RFC 1122, section 3.2.1.3: such a source must not appear outside a host, and none takes it.
#[test]
fn a_source_of_the_loopback_device_becomes_the_sender() {
    for (stack, source) in [
        ([v4([127, 0, 0, 1], [127, 0, 0, 9]), udp(true)], IpAddr::from(Pair::SOURCE_V4)),
        ([v6("::1", "::1"), tcp()], Pair::SOURCE_V6.into()),
    ] {
        let data = packet(&stack, b"hello");
        let mut made = rewriter();
        let frame = rewrite(&mut made, LinkType::RAW, &data).unwrap();
        let (from, _, is_right) = read(&frame);
        assert_eq!((from, is_right, made.rewritten.sources), (source, true, 1));
    }
}

#[test]
fn packets_for_a_group_stay_as_they_are() {
    let mut multicast = packet(&[ETHERNET, v4(V4_FROM, [224, 0, 0, 251]), udp(true)], b"hello");
    multicast[..6].copy_from_slice(&[0x01, 0, 0x5e, 0, 0, 0xfb]);
    let mut broadcast = multicast.clone();
    broadcast[..6].fill(0xff);
    broadcast[30..34].copy_from_slice(&[192, 0, 2, 255]);
    for data in [multicast, broadcast] {
        let mut made = rewriter();
        assert_eq!(rewrite(&mut made, LinkType::ETHERNET, &data).unwrap(), data);
        assert_eq!(made.rewritten, Rewritten::default());
    }
    // Without an Ethernet header there is only the address to tell.
    let data = packet(&[v4(V4_FROM, [224, 0, 0, 251]), udp(true)], b"hello");
    let frame = rewrite(&mut rewriter(), LinkType::RAW, &data).unwrap();
    assert_eq!((&frame[..6], &frame[14..]), (&LINK.sink[..], &data[..]));
}

#[test]
fn what_is_in_a_tunnel_and_what_is_no_ip_is_not_touched() {
    let vxlan = Layer::Udp { src: 50_000, dst: 4789, checksum: true };
    let inner = [ETHERNET, v4(V4_FROM, V4_TO), udp(true)];
    let outer = [ETHERNET, v4([10, 0, 0, 1], [10, 0, 0, 2]), vxlan, Layer::Vxlan { vni: 7 }];
    let data = packet(&[&outer[..], &inner].concat(), b"hello");
    let frame = rewrite(&mut rewriter(), LinkType::ETHERNET, &data).unwrap();
    let outer_len = 14 + 20 + 8 + 8;
    assert_eq!(frame[outer_len..], data[outer_len..]);
    assert_eq!(read(&frame), ([10, 0, 0, 1].into(), Pair::SINK_V4.into(), true));
    // An answer of ARP to one host.
    let mut arp = vec![2; 42];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let frame = rewrite(&mut rewriter(), LinkType::ETHERNET, &arp).unwrap();
    assert_eq!((&frame[..6], &frame[6..]), (&LINK.sink[..], &arp[6..]));
}

/// The second fragment's bytes at the place of a checksum are data.
#[test]
fn fragments_make_the_same_datagram_with_a_right_checksum() {
    let payload: Vec<u8> = (0..200u8).collect();
    let whole = packet(&[ETHERNET, v4(V4_FROM, V4_TO), udp(true)], &payload);
    let datagram = &whole[34..];
    let part = |start: usize, bytes: &[u8], more| {
        let fragment = Some((start as u16, more));
        let header = V4 { fragment, protocol: Some(17), ..V4::new(V4_FROM.into(), V4_TO.into()) };
        packet(&[ETHERNET, Layer::V4(header)], bytes)
    };
    let mut made = rewriter();
    let first = part(0, &datagram[..80], true);
    let first = rewrite(&mut made, LinkType::ETHERNET, &first).unwrap();
    let second = part(80, &datagram[80..], false);
    let second = rewrite(&mut made, LinkType::ETHERNET, &second).unwrap();
    assert_eq!(second[34..], datagram[80..]);
    let (udp, payload) = etherparse::UdpHeader::from_slice(&first[34..]).unwrap();
    let payload = [payload, &second[34..]].concat();
    let (ip, _) = etherparse::Ipv4Header::from_slice(&first[14..]).unwrap();
    assert_eq!(ip.destination, Pair::SINK_V4.octets());
    assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, &payload).unwrap());
}

#[test]
fn each_packet_that_cannot_be_sent_has_one_reason() {
    let data = packet(&[ETHERNET, v4(V4_FROM, V4_TO), udp(true)], &[0; 1472]);
    assert_eq!(data.len(), 1514);
    let long = packet(&[ETHERNET, v4(V4_FROM, V4_TO), udp(true)], &[0; 1473]);
    let tag = Layer::Vlan { tpid: ETHERTYPE_STAG, vid: 5 };
    let tagged = packet(&[ETHERNET, tag, v4(V4_FROM, V4_TO), udp(true)], &[0; 1472]);
    let mut made = rewriter();
    assert!(rewrite(&mut made, LinkType::ETHERNET, &data).is_some());
    assert!(rewrite(&mut made, LinkType::ETHERNET, &tagged).is_some());
    assert!(rewrite(&mut made, LinkType::ETHERNET, &data[..14]).is_some());
    assert_eq!(made.unsent, Unsent::default());
    let mut expected = Unsent::default();
    assert!(rewrite(&mut made, LinkType::ETHERNET, &long).is_none());
    expected.too_long += 1;
    assert_eq!(made.unsent, expected);
    assert!(rewrite(&mut made, LinkType::RAW, &long[14..]).is_none());
    expected.too_long += 1;
    assert_eq!(made.unsent, expected);
    assert!(rewrite(&mut made, LinkType::ETHERNET, &data[..13]).is_none());
    expected.too_short += 1;
    assert_eq!(made.unsent, expected);
    // 802.11; raw IP of version 5; a cooked header with Linux's own number for 802.2.
    for (link, data) in [(105, &[8; 60][..]), (101, &[0x50; 60]), (113, &[0; 60])] {
        assert!(rewrite(&mut made, LinkType(link), data).is_none());
        expected.no_ethertype += 1;
        assert_eq!(made.unsent, expected);
    }
    let mut without_type = [0; 60];
    without_type[15] = 4;
    assert!(rewrite(&mut made, LinkType::LINUX_SLL, &without_type).is_none());
    expected.no_ethertype += 1;
    assert_eq!(made.unsent, expected);
    let cut = Packet { orig_len: 1515, ..Packet::new(0, LinkType::ETHERNET, &data) };
    assert!(!made.write(&cut, &mut Vec::new()));
    expected.truncated += 1;
    assert_eq!((made.unsent, made.unsent.total()), (expected, 8));
}

/// Damaged and random packets: nothing panics, each is written or has one reason, and what is written
/// fits and differs in nothing but addresses and checksums.
#[test]
fn whatever_a_packet_holds_it_is_sent_or_counted() {
    let mut rng = Rng::new(11, 0);
    let vxlan = Layer::Udp { src: 50_000, dst: 4789, checksum: true };
    let stacks: [&[Layer]; 5] = [
        &[ETHERNET, v4(V4_FROM, V4_TO), tcp()],
        &[ETHERNET, v6(V6_FROM, V6_TO), Layer::HopByHop, udp(true)],
        &[ETHERNET, Layer::Mpls { label: 4 }, v4(V4_FROM, V4_TO), udp(true)],
        &[ETHERNET, v4(V4_FROM, V4_TO), vxlan, Layer::Vxlan { vni: 7 }, ETHERNET],
        &[ETHERNET, v4(V4_FROM, V4_TO), v6(V6_FROM, V6_TO), tcp()],
    ];
    let links = [1, 0, 101, 113, 276, 229, 105].map(LinkType);
    let mut made = Rewriter { pads: true, ..rewriter() };
    let mut written = 0;
    for _ in 0..200_000 {
        let mut data = packet(stacks[rng.below(5) as usize], &[7; 30]);
        for _ in 0..rng.below(6) {
            let at = rng.below(data.len() as u64) as usize;
            data[at] = rng.bits() as u8;
        }
        data.truncate(rng.below(data.len() as u64 + 1) as usize);
        let link = links[rng.below(links.len() as u64) as usize];
        let before = made.unsent.total();
        let missing = rng.below(2) as u32 * rng.below(2000) as u32;
        let mut packet = Packet::new(0, link, &data);
        packet.orig_len += missing;
        let mut frame = Vec::new();
        match made.write(&packet, &mut frame) {
            true => {
                written += 1;
                assert_eq!(made.unsent.total(), before);
                assert!((ETHERNET_LEN..=made.longest()).contains(&frame.len()));
                if link == LinkType::ETHERNET {
                    let changed = frame.iter().zip(&data).filter(|(a, b)| a != b).count();
                    // Ethernet, two addresses of IPv6, two checksums.
                    assert!(frame.len() == data.len() + missing as usize && changed <= 6 + 32 + 4);
                }
            }
            false => assert_eq!(made.unsent.total(), before + 1),
        }
    }
    assert_eq!(made.unsent.total() + written, 200_000);
    assert!(written > 50_000, "{written}");
}
