use std::net::SocketAddr;

use super::*;
use crate::capture::LinkType;
use crate::generate::{self, Flow, Path, UdpConversation};

fn lines(options: Options, flow: Flow) -> Vec<Line> {
    let mut scenario = generate::Scenario::new(1);
    scenario.add(UdpConversation { requests: 2, ..UdpConversation::new(flow, generate::EPOCH_NS) });
    let mut lister = Lister::new(options, SoftHasher { k0: 1, k1: 2 });
    scenario
        .frames()
        .map(|frame| lister.line(&Packet::new(frame.time_ns, LinkType::ETHERNET, &frame.bytes)))
        .collect()
}

fn ends(client: &str, server: &str) -> Flow {
    Flow::new(client.parse().unwrap(), server.parse::<SocketAddr>().unwrap())
}

#[test]
fn both_directions_are_one_flow_with_one_hash() {
    let lines = lines(Options::KERNEL, ends("198.51.100.7:40000", "192.0.2.10:53"));
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0].number, 1);
    assert_eq!(lines[0].time_ns, 0);
    assert_eq!(lines[0].layers, ["eth", "ipv4", "udp"]);
    let key = |line: &Line| line.key.as_ref().unwrap().to_string();
    assert_eq!(key(&lines[0]), "198.51.100.7:40000 > 192.0.2.10:53");
    assert_eq!(key(&lines[1]), "192.0.2.10:53 > 198.51.100.7:40000");
    assert!(lines.iter().all(|line| line.flow == Some(1) && line.hash == lines[0].hash));
    assert!(lines.iter().all(|line| line.class == "udp" && line.reason.is_none()));
    assert_ne!(lines[0].hash, None);
}

#[test]
fn a_tunnel_is_seen_from_outside_as_linux_does_or_from_inside() {
    let path = Path::vxlan("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap(), 42, 5);
    let flow = ends("198.51.100.7:40000", "203.0.113.9:53").over(path);
    let kernel = &lines(Options::KERNEL, flow.clone())[0];
    assert_eq!(kernel.class, "tunnel");
    assert_eq!(kernel.key.as_ref().unwrap().dst_port, 4789);
    let inner = &lines(Options::INNER, flow)[0];
    assert_eq!(inner.tunnel, Some("vxlan"));
    assert!(inner.layers.contains(&"vxlan(42)".to_owned()), "{:?}", inner.layers);
    let key = inner.key.as_ref().unwrap().to_string();
    assert_eq!(key, "198.51.100.7:40000 > 203.0.113.9:53");
}

#[test]
fn what_cannot_be_read_has_a_line_with_the_reason() {
    let mut lister = Lister::new(Options::KERNEL, SoftHasher { k0: 1, k1: 2 });
    let short = lister.line(&Packet::new(5, LinkType::ETHERNET, &[0; 9]));
    assert_eq!((short.flow, short.hash), (None, None));
    assert_eq!(short.reason.as_deref(), Some("truncated at byte 0"));
    let unknown = lister.line(&Packet::new(4, LinkType(9999), &[0; 60]));
    assert!(unknown.reason.as_ref().unwrap().contains("9999"), "{unknown:?}");
    assert_eq!((unknown.number, unknown.time_ns), (2, -1));
}

#[test]
fn a_line_is_one_json_object_with_the_hash_in_hex() {
    let line = &lines(Options::KERNEL, ends("[2001:db8::7]:40000", "[2001:db8::10]:53"))[0];
    let json = serde_json::to_value(line).unwrap();
    assert_eq!(json["key"]["src"], "2001:db8::7");
    assert_eq!(json["hash"].as_str().unwrap().len(), 8);
    assert_eq!(json["flow"], 1);
    assert_eq!(json["reason"], serde_json::Value::Null);
}

/// The nine frames of NLnetLabs/nsd#465 and what is to be said of each.
#[test]
fn wrong_lengths_and_checksums_are_named_nsd_465() {
    use crate::generate::{Layer, V4, V6, packet};
    let eth = Layer::Ethernet { back: false };
    let v4 = Layer::V4(V4::new([198, 51, 100, 7].into(), [192, 0, 2, 10].into()));
    let v6 = Layer::V6(V6::new("2001:db8::7".parse().unwrap(), "2001:db8::10".parse().unwrap()));
    let udp = |checksum| Layer::Udp { src: 40_000, dst: 53, checksum };
    let good = packet(&[eth, v4, udp(true)], b"even");
    let changed = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    // The length field of UDP, with the checksum that a sender of that length would have set.
    let with_length = |length: u16| {
        let mut frame = packet(&[eth, v4, udp(false)], b"evenmore");
        frame[38..40].copy_from_slice(&length.to_be_bytes());
        frame
    };
    let trailing = [packet(&[eth, v4, udp(true)], b"x"), vec![0; 17]].concat();
    let cases = [
        (good.clone(), "ok"),
        (changed(24, good[24] ^ 1), "bad: wrong IPv4 header checksum"),
        (changed(40, good[40] ^ 1), "bad: wrong UDP checksum"),
        (packet(&[eth, v4, udp(false)], b"even"), "absent"),
        (packet(&[eth, v6, udp(false)], b"even"), "bad: no UDP checksum over IPv6"),
        (packet(&[eth, v4, udp(true)], b"odd"), "ok"),
        (with_length(7), "bad: UDP length field below 8"),
        (with_length(17), "bad: UDP length field beyond the packet"),
        (trailing, "ok"),
    ];
    let hasher = SoftHasher { k0: 1, k1: 2 };
    let mut lister = Lister::new(Options::KERNEL, hasher).verify();
    for (frame, expected) in cases {
        let line = lister.line(&Packet::new(0, LinkType::ETHERNET, &frame));
        assert_eq!(line.checksum.as_deref(), Some(expected), "packet {}", line.number);
    }
    let cut = Packet { orig_len: 60, ..Packet::new(0, LinkType::ETHERNET, &good) };
    assert!(lister.line(&cut).checksum.unwrap().starts_with("not checked"));
}
