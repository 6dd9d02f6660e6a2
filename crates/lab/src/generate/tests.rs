//! Frames are checked here by a reader of their own: plain offsets and the sum of RFC 1071.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::*;

fn v4(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Ones'-complement sum of 16-bit words (RFC 1071), not inverted; 0xffff over correct data.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            total += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// What the reader found at the end of a frame.
#[derive(Debug, PartialEq)]
enum Inside {
    Tcp { seq: u32, ack: u32, flags: u8, data_len: usize },
    Udp { data_len: usize },
    Fragment,
    Other,
}

struct Read {
    src: SocketAddr,
    dst: SocketAddr,
    inside: Inside,
    /// Addresses of every IP header on the way.
    addresses: Vec<IpAddr>,
}

/// Walks Ethernet, tags, PPPoE, IP and tunnels and checks lengths and checksums on the way.
fn read(frame: &[u8]) -> Read {
    let mut addresses = Vec::new();
    let mut at = 12;
    let mut ethertype = be16(frame, at);
    at += 2;
    loop {
        match ethertype {
            0x8100 | 0x88a8 => {
                ethertype = be16(frame, at + 2);
                at += 4;
            }
            0x8864 => {
                assert_eq!(usize::from(be16(frame, at + 4)), frame.len() - at - 6);
                ethertype = match be16(frame, at + 6) {
                    0x21 => 0x0800,
                    0x57 => 0x86dd,
                    other => panic!("PPP protocol {other:#x}"),
                };
                at += 8;
            }
            0x0800 | 0x86dd => {
                let (protocol, src, dst, pseudo, start) = read_ip(frame, at, ethertype);
                addresses.extend([src, dst]);
                let Some(protocol) = protocol else {
                    let (src, dst) = (SocketAddr::new(src, 0), SocketAddr::new(dst, 0));
                    return Read { src, dst, inside: Inside::Fragment, addresses };
                };
                let l4 = &frame[start..];
                let ports = |l4: &[u8]| {
                    (SocketAddr::new(src, be16(l4, 0)), SocketAddr::new(dst, be16(l4, 2)))
                };
                let len = (l4.len() as u32).to_be_bytes();
                let pseudo = [pseudo.as_slice(), &len, &[0, 0, 0, protocol]].concat();
                match protocol {
                    6 => {
                        assert_eq!(sum(&[&pseudo, l4]), 0xffff, "TCP checksum");
                        let (src, dst) = ports(l4);
                        let inside = Inside::Tcp {
                            seq: be32(l4, 4),
                            ack: be32(l4, 8),
                            flags: l4[13],
                            data_len: l4.len() - 20,
                        };
                        return Read { src, dst, inside, addresses };
                    }
                    17 => {
                        assert_eq!(usize::from(be16(l4, 4)), l4.len(), "UDP length");
                        if be16(l4, 6) != 0 {
                            assert_eq!(sum(&[&pseudo, l4]), 0xffff, "UDP checksum");
                        }
                        let (src, dst) = ports(l4);
                        // A random client may have the port of a tunnel, a server has not.
                        let tunnel = src.port() >= 49_152;
                        match dst.port() {
                            4789 if tunnel => {
                                assert_eq!(l4[8], 8);
                                at = start + 8 + 8 + 12;
                                ethertype = be16(frame, at);
                                at += 2;
                            }
                            6081 if tunnel => {
                                assert_eq!(be16(l4, 10), 0x6558);
                                at = start + 8 + 8 + 12;
                                ethertype = be16(frame, at);
                                at += 2;
                            }
                            _ => {
                                let inside = Inside::Udp { data_len: l4.len() - 8 };
                                return Read { src, dst, inside, addresses };
                            }
                        }
                    }
                    47 => {
                        let key = be16(l4, 0) & 0x2000 != 0;
                        ethertype = be16(l4, 2);
                        at = start + if key { 8 } else { 4 };
                    }
                    _ => {
                        let (src, dst) = (SocketAddr::new(src, 0), SocketAddr::new(dst, 0));
                        return Read { src, dst, inside: Inside::Other, addresses };
                    }
                }
            }
            other => panic!("ethertype {other:#x} at {at}"),
        }
    }
}

/// Protocol (`None` for a fragment), addresses, their bytes, start of the payload.
fn read_ip(
    frame: &[u8],
    at: usize,
    ethertype: u16,
) -> (Option<u8>, IpAddr, IpAddr, Vec<u8>, usize) {
    let ip = &frame[at..];
    if ethertype == 0x0800 {
        assert_eq!(ip[0], 0x45);
        assert_eq!(usize::from(be16(ip, 2)), ip.len(), "IPv4 total length");
        assert_eq!(sum(&[&ip[..20]]), 0xffff, "IPv4 header checksum");
        let fragment = be16(ip, 6) & 0x3fff != 0;
        let four = |at: usize| -> [u8; 4] { ip[at..at + 4].try_into().unwrap() };
        let (src, dst) = (IpAddr::from(four(12)), IpAddr::from(four(16)));
        ((!fragment).then_some(ip[9]), src, dst, ip[12..20].to_vec(), at + 20)
    } else {
        assert_eq!(ip[0] >> 4, 6);
        assert_eq!(usize::from(be16(ip, 4)), ip.len() - 40, "IPv6 payload length");
        let six = |at: usize| -> [u8; 16] { ip[at..at + 16].try_into().unwrap() };
        let (src, dst) = (IpAddr::from(six(8)), IpAddr::from(six(24)));
        let fragment = ip[6] == 44;
        ((!fragment).then_some(ip[6]), src, dst, ip[8..40].to_vec(), at + 40)
    }
}

fn documentation(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            matches!(a.octets(), [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _])
        }
        IpAddr::V6(a) => a.segments()[..2] == [0x2001, 0x0db8],
    }
}

/// One of each kind of sender, over each kind of path.
fn mixed(seed: u64) -> Scenario {
    let mut scenario = Scenario::new(seed);
    let server = v4("192.0.2.10:443");
    let six = v4("[2001:db8::10]:443");
    let (a, b) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let paths = [
        Path::ethernet(),
        Path::vlan(&[5]),
        Path::vlan(&[100, 5]),
        Path::pppoe(9),
        Path::gre(a, b, None),
        Path::gre(a, b, Some(77)),
        Path::vxlan(a, b, 42, 17),
        Path::geneve(a, b, 42, 17),
    ];
    for (index, path) in paths.into_iter().enumerate() {
        let port = 40_000 + index as u16;
        for (client, server) in [
            (SocketAddr::new([198, 51, 100, 7].into(), port), server),
            (SocketAddr::new("2001:db8::7".parse().unwrap(), port), six),
        ] {
            let flow = Flow::new(client, server).over(path.clone());
            scenario.add(TcpConversation {
                response_bytes: 4001,
                ..TcpConversation::new(flow.clone(), EPOCH_NS)
            });
            scenario.add(UdpConversation {
                request_bytes: 4001,
                ..UdpConversation::new(flow.clone(), EPOCH_NS)
            });
            for payload in [Payload::Quic, Payload::WireGuard] {
                let udp = UdpConversation::new(flow.clone(), EPOCH_NS);
                scenario.add(UdpConversation { payload, request_bytes: 1201, ..udp });
            }
        }
    }
    for server in [server, six] {
        for kind in [CrowdKind::Dns, CrowdKind::SynFlood, CrowdKind::UdpFlood { bytes: 33 }] {
            scenario.add(Crowd { requests: 200, ..Crowd::new(server, kind, EPOCH_NS) });
        }
    }
    scenario.add(Uniform { flows: 50, packets_per_flow: 3, ..Uniform::default() });
    scenario.add(Uniform { flows: 50, packets_per_flow: 3, tcp: true, ..Uniform::default() });
    scenario
}

#[test]
fn every_length_and_checksum_is_right_and_every_address_is_a_documentation_address() {
    let mut kinds = BTreeMap::new();
    for frame in mixed(1).frames() {
        let read = read(&frame.bytes);
        assert!(read.addresses.iter().all(|a| documentation(*a)), "{:?}", read.addresses);
        let kind = match read.inside {
            Inside::Tcp { .. } => "tcp",
            Inside::Udp { .. } => "udp",
            Inside::Fragment => "fragment",
            Inside::Other => "other",
        };
        *kinds.entry(kind).or_insert(0) += 1;
    }
    assert!(kinds["tcp"] > 1000 && kinds["udp"] > 1000 && kinds["fragment"] > 100, "{kinds:?}");
    assert!(!kinds.contains_key("other"), "{kinds:?}");
}

#[test]
fn the_same_seed_gives_the_same_frames_and_another_seed_others() {
    let first: Vec<_> = mixed(1).frames().collect();
    assert!(first == mixed(1).frames().collect::<Vec<_>>());
    assert!(first != mixed(2).frames().collect::<Vec<_>>());
}

#[test]
fn times_never_go_back_and_start_at_the_epoch() {
    let times: Vec<_> = mixed(3).frames().map(|f| f.time_ns).collect();
    assert_eq!(times[0], EPOCH_NS);
    assert!(times.is_sorted());
}

#[test]
fn a_snap_length_cuts_the_bytes_and_keeps_the_length_on_the_wire() {
    let whole: Vec<_> = mixed(1).frames().collect();
    let cut: Vec<_> = mixed(1).snap_len(64).frames().collect();
    assert_eq!(whole.len(), cut.len());
    for (whole, cut) in whole.iter().zip(&cut) {
        assert_eq!(cut.orig_len as usize, whole.bytes.len());
        assert_eq!(cut.bytes, whole.bytes[..whole.bytes.len().min(64)]);
    }
}

#[test]
fn both_ends_of_a_tcp_conversation_agree_on_every_byte() {
    let flow = Flow::new(v4("198.51.100.7:40000"), v4("192.0.2.10:80"));
    let mut scenario = Scenario::new(5);
    scenario.add(TcpConversation {
        requests: 7,
        request_bytes: 1500,
        response_bytes: 10_000,
        ..TcpConversation::new(flow, EPOCH_NS)
    });
    // By direction: next sequence number (once known) and bytes of data.
    let mut next = [None::<u32>; 2];
    let mut data = [0; 2];
    for frame in scenario.frames() {
        let read = read(&frame.bytes);
        let way = usize::from(!frame.inbound);
        assert_eq!(read.dst.port() == 80, frame.inbound);
        let Inside::Tcp { seq, ack, flags, data_len } = read.inside else { panic!("not TCP") };
        assert_eq!(next[way].unwrap_or(seq), seq);
        if flags & 0x10 != 0 {
            assert_eq!(Some(ack), next[1 - way]);
        }
        let syn_fin = u32::from(flags & 1 != 0) + u32::from(flags & 2 != 0);
        next[way] = Some(seq.wrapping_add(data_len as u32 + syn_fin));
        data[way] += data_len;
    }
    assert_eq!(data, [7 * 1500, 7 * 10_000]);
}

#[test]
fn fragments_carry_the_datagram_without_gap_or_overlap() {
    for (client, server, header) in [
        ("198.51.100.7:40000", "192.0.2.10:2049", 20),
        ("[2001:db8::7]:40000", "[2001:db8::10]:2049", 48),
    ] {
        let mut scenario = Scenario::new(5);
        scenario.add(UdpConversation {
            requests: 1,
            request_bytes: 9000,
            responses: 0,
            ..UdpConversation::new(Flow::new(v4(client), v4(server)), EPOCH_NS)
        });
        let mut datagram = Vec::new();
        let frames: Vec<_> = scenario.frames().collect();
        for (index, frame) in frames.iter().enumerate() {
            let ip = &frame.bytes[14..];
            assert!(ip.len() <= 1500);
            let (field, offset) = if header == 20 {
                (be16(ip, 6), usize::from(be16(ip, 6) & 0x1fff) * 8)
            } else {
                (be16(ip, 42), usize::from(be16(ip, 42) & 0xfff8))
            };
            let more = if header == 20 { field & 0x2000 != 0 } else { field & 1 != 0 };
            assert_eq!(more, index + 1 < frames.len());
            assert_eq!(offset, datagram.len());
            datagram.extend_from_slice(&ip[header..]);
        }
        assert_eq!(frames.len(), 7);
        assert_eq!(datagram.len(), 9008);
        assert_eq!(be16(&datagram, 4), 9008);
        let ip = &frames[0].bytes[14..];
        let addresses = if header == 20 { &ip[12..20] } else { &ip[8..40] };
        let tail = [&9008u32.to_be_bytes()[..], &[0, 0, 0, 17]].concat();
        assert_eq!(sum(&[addresses, &tail, &datagram]), 0xffff);
    }
}

#[test]
fn nearly_every_request_of_a_crowd_comes_from_a_new_tuple_and_has_one_answer() {
    let mut scenario = Scenario::new(9);
    let crowd = Crowd::new(v4("192.0.2.10:53"), CrowdKind::Dns, EPOCH_NS);
    scenario.add(Crowd { requests: 10_000, ..crowd });
    let mut clients = BTreeSet::new();
    let mut asked = None;
    let mut answers = 0;
    for frame in scenario.frames() {
        let read = read(&frame.bytes);
        if frame.inbound {
            assert_eq!(asked.replace(read.src), None);
            clients.insert(read.src);
        } else {
            assert_eq!(asked.take(), Some(read.dst));
            answers += 1;
        }
    }
    assert_eq!(answers, 10_000);
    // 10,000 draws of 33 million tuples: about 1.5 repeats are to be expected.
    assert!(clients.len() >= 9_990, "{}", clients.len());
}

#[test]
fn uniform_flows_have_exactly_their_packets() {
    let mut scenario = Scenario::new(0);
    scenario.add(Uniform { flows: 700, packets_per_flow: 4, ..Uniform::default() });
    let mut counts = BTreeMap::new();
    for frame in scenario.frames() {
        *counts.entry(read(&frame.bytes).src).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 700);
    assert!(counts.values().all(|n| *n == 4));
    assert_eq!(counts.keys().max(), Some(&uniform_client(255 + 256)));
}

#[test]
fn the_headers_are_those_of_the_rfcs_byte_by_byte() {
    let outer = V4::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let eth = Layer::Ethernet { back: false };
    let frame = packet(
        &[eth, Layer::V4(outer), Layer::Ah { spi: 0x01020304, seq: 5 }, Layer::V4(outer)],
        &[],
    );
    assert_eq!(frame[23], 51);
    assert_eq!(frame[34..46], [4, 4, 0, 0, 1, 2, 3, 4, 0, 0, 0, 5]);
    assert_eq!(frame[58], 0x45);
    let frame = packet(&[eth, Layer::V4(outer), Layer::Esp { spi: 0x0a0b0c0d, seq: 1 }], &[9; 4]);
    assert_eq!(frame[23], 50);
    assert_eq!(frame[34..], [10, 11, 12, 13, 0, 0, 0, 1, 9, 9, 9, 9]);
    let frame =
        packet(&[eth, Layer::Mpls { label: 3 }, Layer::Mpls { label: 4 }, Layer::V4(outer)], &[]);
    assert_eq!(frame[12..22], [0x88, 0x47, 0, 0, 0x30, 64, 0, 0, 0x41, 64]);
    let gtp = Layer::Udp { src: 2152, dst: 2152, checksum: false };
    let frame =
        packet(&[eth, Layer::V4(outer), gtp, Layer::Gtp { teid: 6 }, Layer::V4(outer)], &[]);
    assert_eq!(frame[42..50], [0x30, 0xff, 0, 20, 0, 0, 0, 6]);
    let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let six = Layer::V6(V6 { flow_label: 0xabcde, ..V6::new(src, dst) });
    let frame = packet(
        &[eth, six, Layer::HopByHop, Layer::DestinationOptions, Layer::Echo6 { id: 1, seq: 2 }],
        &[],
    );
    assert_eq!(frame[14..18], [0x60, 0x0a, 0xbc, 0xde]);
    assert_eq!(frame[20], 0);
    assert_eq!(frame[54..70], [60, 0, 1, 4, 0, 0, 0, 0, 58, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(frame[70], 128);
}

#[test]
fn more_headers_than_the_headroom_and_more_payload_than_fits_are_answered() {
    let tags = vec![Layer::Vlan { tpid: 0x8100, vid: 1 }; 200];
    let layers = [&[Layer::Ethernet { back: false }], tags.as_slice()].concat();
    assert_eq!(packet(&layers, &[7; 3]).len(), 14 + 800 + 3);
    let v4 = Layer::V4(V4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST));
    let udp = Layer::Udp { src: 1, dst: 2, checksum: true };
    assert_eq!(packet(&[v4, udp], &vec![0; 100_000]).len(), 28 + MAX_PAYLOAD);
}
