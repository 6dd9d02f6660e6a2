//! Checks against frames written out by hand, a second way to sum, and every length.

use proptest::prelude::*;

use super::*;
use crate::Event;
use crate::counters::{UdpCounters, UdpSnapshot};

const V4: Addresses =
    Addresses::V4 { src: Ipv4Addr::new(192, 0, 2, 1), dst: Ipv4Addr::new(198, 51, 100, 7) };
const V6: Addresses = Addresses::V6 {
    src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
};
const LAX: Rules = Rules { device_verified: false, ipv6_zero_allowed: true };

/// The checksum, word by word as RFC 1071 section 4.1 describes it: the second way.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    let mut at = 0;
    while at + 1 < bytes.len() {
        sum += u32::from(bytes[at]) << 8 | u32::from(bytes[at + 1]);
        at += 2;
    }
    if at < bytes.len() {
        sum += u32::from(bytes[at]) << 8;
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn pseudo(addresses: &Addresses, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    match addresses {
        Addresses::V4 { src, dst } => {
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            bytes.extend([0, 17]);
            bytes.extend((length as u16).to_be_bytes());
        }
        Addresses::V6 { src, dst } => {
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            bytes.extend((length as u32).to_be_bytes());
            bytes.extend([0, 0, 0, 17]);
        }
    }
    bytes
}

/// A datagram with a right checksum.
fn datagram(addresses: &Addresses, payload: &[u8]) -> Vec<u8> {
    let length = UDP_HEADER_LEN + payload.len();
    let mut bytes = vec![0x12, 0x34, 0x00, 0x35];
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    let mut summed = pseudo(addresses, length);
    summed.extend(&bytes);
    let checksum = match internet_checksum(&summed) {
        0 => 0xffff, // RFC 768: a computed zero is sent as all ones
        checksum => checksum,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn ipv4_packet(segment: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + segment.len() as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
    let checksum = internet_checksum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(segment);
    packet
}

fn ipv6_packet(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((rest.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    let Addresses::V6 { src, dst } = V6 else { unreachable!() };
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(rest);
    packet
}

/// A payload that makes the checksum of a datagram from [`V4`] compute to zero.
fn payload_that_sums_to_zero() -> [u8; 2] {
    let zeroed = [0x12, 0x34, 0, 0x35, 0, 10, 0, 0, 0, 0];
    let mut summed = pseudo(&V4, zeroed.len());
    summed.extend(zeroed);
    internet_checksum(&summed).to_be_bytes()
}

#[test]
fn field_report_nsd_465_each_frame_has_its_verdict_and_its_own_counter() {
    let good = datagram(&V4, b"payload!");
    let with_length = |length: u16| {
        let mut bytes = good.clone();
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        bytes
    };
    let with_checksum = |mut bytes: Vec<u8>, checksum: u16| {
        bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
        bytes
    };
    let mut bad_ip = ipv4_packet(&good);
    bad_ip[10] ^= 0x55;
    let wrong = u16::from_be_bytes([good[6], good[7]]) ^ 0x0101;
    let trailing = [&good[..], &[0xee; 6]].concat();
    let zero = datagram(&V4, &payload_that_sums_to_zero());
    assert_eq!(zero[6..8], [0xff, 0xff]);

    let udp = |why| Err(PacketFault::Udp(why));
    let frames: [(&str, Vec<u8>, Result<usize, PacketFault>); 10] = [
        ("good", ipv4_packet(&good), Ok(8)),
        ("bad IP checksum", bad_ip, Err(PacketFault::Ip(IpFault::HeaderChecksum))),
        (
            "bad UDP checksum",
            ipv4_packet(&with_checksum(good.clone(), wrong)),
            udp(Malformed::BadChecksum),
        ),
        ("checksum 0 on IPv4", ipv4_packet(&with_checksum(good.clone(), 0)), Ok(8)),
        (
            "checksum 0 on IPv6",
            ipv6_packet(17, &with_checksum(datagram(&V6, b"payload!"), 0)),
            udp(Malformed::NoChecksum),
        ),
        ("odd length", ipv4_packet(&datagram(&V4, b"payload")), Ok(7)),
        ("UDP length below 8", ipv4_packet(&with_length(7)), udp(Malformed::LengthBelowHeader)),
        (
            "UDP length beyond the IP payload",
            ipv4_packet(&with_length(17)),
            udp(Malformed::LengthBeyondPacket),
        ),
        ("UDP length below the IP payload", ipv4_packet(&trailing), Ok(8)),
        ("computed sum 0 sent as ffff", ipv4_packet(&zero), Ok(2)),
    ];

    let counters = UdpCounters::new();
    for (name, frame, expected) in frames {
        let verdict = check_packet(&frame, Rules::default());
        assert_eq!(verdict.map(|packet| packet.udp.payload.len()), expected, "{name}");
        let version = if frame[0] >> 4 == 6 { IpVersion::V6 } else { IpVersion::V4 };
        counters.count(version, verdict.map_or_else(Event::from, |_| Event::Delivered), 1);
    }
    let v4 = counters.snapshot(IpVersion::V4);
    let expected =
        UdpSnapshot { in_datagrams: 5, in_errors: 3, in_csum_errors: 1, ..UdpSnapshot::default() };
    assert_eq!(v4, expected);
    let v6 = counters.snapshot(IpVersion::V6);
    assert_eq!(v6, UdpSnapshot { in_errors: 1, in_csum_errors: 1, ..UdpSnapshot::default() });
    for event in [
        Event::Ip(IpFault::HeaderChecksum),
        Event::Malformed(Malformed::BadChecksum),
        Event::Malformed(Malformed::LengthBelowHeader),
        Event::Malformed(Malformed::LengthBeyondPacket),
    ] {
        assert_eq!(counters.event(IpVersion::V4, event), 1, "{event:?}");
    }
}

#[test]
fn a_datagram_summed_up_by_hand_is_right() {
    // From 192.0.2.1:12345 to 198.51.100.53:53, "abcd". RFC 768, word after word:
    // c000 + 0201 + c633 + 6435 + 0011 + 000c (pseudo header) + 3039 + 0035 + 000c (header)
    // + 6162 + 6364 (payload) = 2e1c6; e1c6 + 2 = e1c8; its complement is 1e37.
    let addresses = Addresses::V4 { src: [192, 0, 2, 1].into(), dst: [198, 51, 100, 53].into() };
    let bytes = [0x30, 0x39, 0, 0x35, 0, 12, 0x1e, 0x37, b'a', b'b', b'c', b'd'];
    let (udp, known) = check(&bytes, &addresses, Rules::default()).unwrap();
    assert_eq!((udp.src_port, udp.dst_port, known), (12345, 53, Checksum::Verified));
}

#[test]
fn every_length_field_from_0_to_one_beyond_the_packet() {
    let packet = datagram(&V4, b"0123456789");
    for length in 0..=packet.len() + 1 {
        let mut bytes = packet.clone();
        bytes[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        for version in IpVersion::ALL {
            let found = Udp::parse(&bytes, version).map(|udp| udp.payload);
            let expected = match (length, version) {
                (0, IpVersion::V6) => Ok(&bytes[8..]), // a jumbogram: all there is
                (0..8, _) => Err(Malformed::LengthBelowHeader),
                (8..=18, _) => Ok(&bytes[8..length]),
                _ => Err(Malformed::LengthBeyondPacket),
            };
            assert_eq!(found, expected, "length {length}, {version:?}");
        }
    }
    for len in 0..8 {
        assert_eq!(Udp::parse(&packet[..len], IpVersion::V4), Err(Malformed::ShortHeader));
    }
}

#[test]
fn checksum_zero_valid_and_invalid_over_both_versions() {
    for (addresses, zero) in [(V4, Ok(Checksum::Absent)), (V6, Err(Malformed::NoChecksum))] {
        let right = datagram(&addresses, b"abc");
        let mut none = right.clone();
        none[6..8].fill(0);
        let mut wrong = right.clone();
        wrong[10] ^= 1;
        let verdict = |bytes: &[u8], rules| check(bytes, &addresses, rules).map(|(_, sum)| sum);
        assert_eq!(verdict(&right, Rules::default()), Ok(Checksum::Verified));
        assert_eq!(verdict(&wrong, Rules::default()), Err(Malformed::BadChecksum));
        assert_eq!(verdict(&none, Rules::default()), zero);
        assert_eq!(verdict(&none, LAX), Ok(Checksum::Absent));
        // The device vouches for a checksum, not for its absence.
        let trust = Rules { device_verified: true, ..Rules::default() };
        assert_eq!(verdict(&wrong, trust), Ok(Checksum::Verified));
        assert_eq!(verdict(&none, trust), zero);
    }
}

#[test]
fn a_checksum_is_deferred_above_76_bytes_and_completed_by_the_payload() {
    for payload_len in [0, 1, 67, 68, 69, 70, 1400] {
        let payload = vec![7; payload_len];
        let right = datagram(&V6, &payload);
        let mut wrong = right.clone();
        wrong[6] ^= 1;
        let defer = |bytes| Udp::parse(bytes, IpVersion::V6).unwrap().defer(&V6, Rules::default());
        match (defer(&right), defer(&wrong)) {
            (Ok(Checksum::Verified), Err(Malformed::BadChecksum)) => assert!(payload_len <= 68),
            (Ok(Checksum::Deferred(right)), Ok(Checksum::Deferred(wrong))) => {
                assert!(payload_len > 68);
                assert!(completes(right, &payload) && !completes(wrong, &payload));
                assert!(!completes(right, &payload[1..]));
            }
            other => panic!("{payload_len}: {other:?}"),
        }
    }
}

#[test]
fn ip_faults_are_told_apart() {
    let segment = datagram(&V4, b"x");
    let good = ipv4_packet(&segment);
    let with = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        packet[10..12].fill(0);
        let header_len = usize::from(packet[0] & 15) * 4;
        let checksum = internet_checksum(&packet[..header_len.clamp(20, packet.len())]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        check_packet(&packet, Rules::default()).map(|_| ())
    };
    let ip = |fault| Err(PacketFault::Ip(fault));
    assert_eq!(with(8, 1), Ok(()));
    assert_eq!(with(0, 0x44), ip(IpFault::HeaderLength));
    assert_eq!(with(0, 0x4f), ip(IpFault::Truncated));
    assert_eq!(with(0, 0x55), ip(IpFault::Version));
    assert_eq!(with(3, 19), ip(IpFault::Length));
    assert_eq!(with(3, 255), ip(IpFault::Length));
    assert_eq!(with(6, 0x20), ip(IpFault::Fragment));
    assert_eq!(with(7, 1), ip(IpFault::Fragment));
    assert_eq!(with(9, 6), ip(IpFault::NotUdp));
    assert_eq!(check_packet(&[], Rules::default()), ip(IpFault::Version).map(|()| unreachable!()));
}

#[test]
fn ipv6_options_are_passed_over_and_fragments_are_not() {
    let segment = datagram(&V6, b"behind options");
    let behind = |next: u8, header: &[u8]| {
        let packet = ipv6_packet(next, &[header, &segment].concat());
        check_packet(&packet, Rules::default()).map(|packet| packet.udp.payload.len())
    };
    let ip = |fault| Err(PacketFault::Ip(fault));
    assert_eq!(behind(17, &[]), Ok(14));
    assert_eq!(behind(0, &[17, 0, 1, 4, 0, 0, 0, 0]), Ok(14));
    assert_eq!(behind(60, &[[17, 1, 1, 12].as_slice(), &[0; 12]].concat()), Ok(14));
    assert_eq!(behind(43, &[17, 0, 4, 0, 0, 0, 0, 0]), Ok(14));
    assert_eq!(behind(43, &[17, 2, 4, 1, 0, 0, 0, 0]), ip(IpFault::Routed));
    assert_eq!(behind(44, &[17, 0, 0, 0, 0, 0, 0, 9]), Ok(14));
    assert_eq!(behind(44, &[17, 0, 0, 1, 0, 0, 0, 9]), ip(IpFault::Fragment));
    assert_eq!(behind(44, &[17, 0, 0, 8, 0, 0, 0, 9]), ip(IpFault::Fragment));
    assert_eq!(behind(0, &[17, 255, 1, 4, 0, 0, 0, 0]), ip(IpFault::Truncated));
    assert_eq!(behind(59, &[]), ip(IpFault::NotUdp));
    let lone = ipv6_packet(60, &[17, 0]);
    let lone = check_packet(&lone, Rules::default());
    assert_eq!(lone.map(|packet| packet.udp.payload.len()), ip(IpFault::Truncated));
}

proptest! {
    #[test]
    fn the_sum_is_that_of_rfc_1071(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(!fold(sum(&bytes)), internet_checksum(&bytes));
    }

    #[test]
    fn any_one_changed_bit_is_noticed(
        payload in prop::collection::vec(any::<u8>(), 0..64), bit: prop::sample::Index, v6: bool,
    ) {
        let addresses = if v6 { V6 } else { V4 };
        let mut bytes = datagram(&addresses, &payload);
        prop_assert!(check(&bytes, &addresses, Rules::default()).is_ok());
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let checksum = u16::from_be_bytes([bytes[6], bytes[7]]);
        // A checksum turned to 0 means none, which IPv4 allows; 0xffff and 0 are one value.
        if checksum != 0 {
            prop_assert!(check(&bytes, &addresses, Rules::default()).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_get_an_answer(
        bytes in prop::collection::vec(any::<u8>(), 0..120), first in prop::sample::select(vec![0x45, 0x46, 0x60]),
        next in prop::sample::select(vec![0u8, 17, 43, 44, 60]),
    ) {
        let mut bytes = bytes;
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        if let Some(byte) = bytes.get_mut(6) {
            *byte = next;
        }
        if let Some(byte) = bytes.get_mut(4) {
            *byte = 0; // an IPv6 length that can fit
        }
        if let Ok(packet) = check_packet(&bytes, LAX) {
            prop_assert!(packet.udp.payload.len() + UDP_HEADER_LEN <= bytes.len());
        }
    }
}
