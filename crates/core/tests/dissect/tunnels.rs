//! Inner mode: the innermost flow that can be read, tunnel by tunnel.

use rxsteer_core::dissect::{
    Control, Dissected, Layer, LayerList, Options, PortRule, Start, Tunnel, UdpTunnel,
    dissect_observed,
};

use crate::frames::*;
use crate::{good, ports, read};

const I: Options = Options::INNER;
const OUTER: [[u8; 4]; 2] = [[203, 0, 113, 1], [203, 0, 113, 2]];

fn inner() -> Vec<u8> {
    v4(A, B, 17, &udp(4000, 5000, b"payload"))
}

fn in_udp(port: u16, payload: &[u8]) -> Vec<u8> {
    eth(0x0800, &v4(OUTER[0], OUTER[1], 17, &udp(33_333, port, payload)))
}

/// The inner flow is in the key, the outer one beside it.
fn opened(frame: &[u8], tunnel: Tunnel) -> Dissected {
    let found = good(frame, &I);
    assert_eq!((found.tunnel, ports(&found)), (tunnel, (4000, 5000)));
    assert_eq!((&found.key.src[..4], &found.key.dst[..4]), (&A[..], &B[..]));
    assert_eq!(found.outer().src[..4], OUTER[0]);
    let transport = usize::from(found.transport_offset);
    assert_eq!(frame[transport..transport + 2], 4000_u16.to_be_bytes());
    assert_eq!(&frame[usize::from(found.payload_offset)..][..7], b"payload");
    found
}

#[test]
fn udp_tunnels_are_opened_by_their_ports() {
    let ethernet = eth(0x0800, &inner());
    let with = |header: &[u8], payload: &[u8]| [header, payload].concat();
    let cases: [(u16, Vec<u8>, Tunnel); 14] = [
        (4789, with(&[8, 0, 0, 0, 0, 0, 1, 0], &ethernet), Tunnel::Vxlan),
        (8472, with(&[8, 0, 0, 0, 0, 0, 1, 0], &ethernet), Tunnel::Vxlan),
        (4790, with(&[12, 0, 0, 1, 0, 0, 1, 0], &inner()), Tunnel::Vxlan),
        (6081, with(&[0, 0, 0x65, 0x58, 0, 0, 1, 0], &ethernet), Tunnel::Geneve),
        (6081, with(&[1, 0, 8, 0, 0, 0, 1, 0, 1, 2, 3, 4], &inner()), Tunnel::Geneve),
        (2152, with(&[0x30, 255, 0, 35, 0, 0, 0, 9], &inner()), Tunnel::GtpU),
        (
            2152,
            // Sequence number and one extension header of four bytes.
            with(&[0x36, 255, 0, 43, 0, 0, 0, 9, 0, 1, 0, 0x85, 1, 0, 0, 0], &inner()),
            Tunnel::GtpU,
        ),
        (1701, with(&[0, 2, 0, 5, 0, 6, 0xff, 3, 0, 0x21], &inner()), Tunnel::L2tp),
        (1701, with(&[0x48, 2, 0, 0, 0, 5, 0, 6, 0, 1, 0, 1, 0, 0x21], &inner()), Tunnel::L2tp),
        (4754, gre(0, 0x0800, &[], &inner()), Tunnel::Gre),
        (6635, with(&[0, 1, 1, 64], &inner()), Tunnel::Mpls),
        (4341, with(&[0; 8], &inner()), Tunnel::Lisp),
        (5247, with(&[0, 0x10, 0, 0, 0, 0, 0, 0], &ethernet), Tunnel::Capwap),
        (
            5072,
            with(&[&[0x40, 0x50, 1, 4][..], &[0; 4 + 16 + 20]].concat(), &inner()),
            Tunnel::Ayiya,
        ),
    ];
    for (port, payload, tunnel) in cases {
        let found = opened(&in_udp(port, &payload), tunnel);
        assert_eq!((found.outer().src_port, found.outer().dst_port), (33_333, port));
    }
}

#[test]
fn teredo_is_opened_behind_its_indications() {
    let inner = v6(A6, B6, 17, 0, &udp(4000, 5000, b""));
    for indication in [
        vec![],
        vec![0, 0, 1, 2, 3, 4, 5, 6],
        [&[0, 1, 2, 1][..], &[9; 3 + 9], &[0, 0, 1, 2, 3, 4, 5, 6]].concat(),
    ] {
        let found = good(&in_udp(3544, &[indication, inner.clone()].concat()), &I);
        assert_eq!((found.tunnel, ports(&found)), (Tunnel::Teredo, (4000, 5000)));
    }
}

#[test]
fn link_and_ip_tunnels_are_opened() {
    let outer = |protocol, payload: &[u8]| eth(0x0800, &v4(OUTER[0], OUTER[1], protocol, payload));
    let ethernet = eth(0x0800, &inner());
    opened(&outer(4, &inner()), Tunnel::IpInIp);
    opened(&outer(47, &gre(0, 0x6558, &[], &ethernet)), Tunnel::Gre);
    opened(
        &outer(47, &gre(0x1000, 0x88be, &[1], &[&[0; 8][..], &ethernet].concat())),
        Tunnel::Erspan,
    );
    opened(&outer(47, &gre(0, 0x88be, &[], &ethernet)), Tunnel::Erspan);
    opened(&outer(97, &[&[0x30, 0][..], &ethernet].concat()), Tunnel::EtherIp);
    opened(&outer(143, &ethernet), Tunnel::EtherIp);
    opened(&outer(51, &ah(4, 4, 9, &inner())), Tunnel::IpInIp);
    opened(&outer(137, &[&[0, 1, 1, 64][..], &inner()].concat()), Tunnel::Mpls);
}

#[test]
fn mpls_is_opened_below_its_last_label() {
    let labels = [&[0, 1, 0, 64][..], &[0, 2, 1, 64]].concat();
    let found = good(&eth(0x8847, &[&labels[..], &inner()].concat()), &I);
    assert_eq!((found.tunnel, ports(&found)), (Tunnel::Mpls, (4000, 5000)));
    let pseudowire = [&labels[..], &[0; 4], &eth(0x0800, &inner())].concat();
    assert_eq!(ports(&good(&eth(0x8847, &pseudowire), &I)), (4000, 5000));
}

#[test]
fn a_port_of_the_operators_choice_goes_before_the_known_ones() {
    let mut options = I;
    options.ports[1] = PortRule { port: 7777, tunnel: UdpTunnel::Fou };
    options.ports[2] = PortRule { port: 4789, tunnel: UdpTunnel::None };
    options.ports[3] = PortRule { port: 7778, tunnel: UdpTunnel::Gue };
    let found = good(&in_udp(7777, &inner()), &options);
    assert_eq!((found.tunnel, ports(&found)), (Tunnel::Fou, (4000, 5000)));
    let gue = [&[0, 4, 0, 0][..], &inner()].concat();
    assert_eq!(ports(&good(&in_udp(7778, &gue), &options)), (4000, 5000));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &eth(0x0800, &inner())].concat();
    assert_eq!(ports(&good(&in_udp(4789, &vxlan), &options)), (33_333, 4789));
    assert_eq!(ports(&good(&in_udp(7777, &inner()), &I)), (33_333, 7777));
}

#[test]
fn what_is_not_the_tunnel_of_its_port_is_an_ordinary_datagram() {
    for port in [1701, 2152, 3544, 5247, 51_820] {
        let found = good(&in_udp(port, b"\xee\xee not the header of this tunnel"), &I);
        assert_eq!((ports(&found), found.control), ((33_333, port), Control::None), "{port}");
    }
}

#[test]
fn control_messages_of_tunnels_are_told_from_their_data() {
    let l2tp = good(&in_udp(1701, &[0xc8, 2, 0, 12, 0, 5, 0, 0, 0, 0, 0, 0]), &I);
    assert_eq!((l2tp.control, l2tp.tunnel), (Control::L2tp, Tunnel::L2tp));
    let echo = good(&in_udp(2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]), &I);
    assert_eq!((echo.control, echo.tunnel), (Control::GtpU, Tunnel::GtpU));
}

#[test]
fn a_cut_tunnel_keeps_the_outer_key_and_says_so() {
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &eth(0x0800, &inner())].concat();
    let frame = in_udp(4789, &vxlan);
    // In the inner IP header.
    let (found, result) = read(&frame[..42 + 8 + 14 + 19], &I);
    assert!(result.is_err());
    assert_eq!(ports(&found), (33_333, 4789));
    assert_eq!(found.key.src[..4], OUTER[0]);
    // In the inner UDP header: the inner addresses without ports.
    let (found, result) = read(&frame[..42 + 8 + 14 + 20 + 3], &I);
    assert!(result.is_err());
    assert_eq!((ports(&found), &found.key.src[..4]), ((0, 0), &A[..]));
}

#[test]
fn fragments_of_the_outer_datagram_are_kept_together() {
    let keys = [0x2000, 0x2010, 0x0020].map(|field| {
        let packet = v4_frag(OUTER[0], OUTER[1], 17, 1, field, &udp(33_333, 4789, &inner()));
        good(&eth(0x0800, &packet), &I).key
    });
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[1], keys[2]);
}

#[test]
fn an_atomic_fragment_is_a_whole_datagram() {
    let atomic = v6_fragment(17, 0, false, 9, &udp(4000, 5000, b""));
    let found = good(&eth(0x86dd, &v6(A6, B6, 44, 0, &atomic)), &I);
    assert_eq!(ports(&found), (4000, 5000));
    assert!(!found.is_fragment());
}

#[test]
fn tcp_flags_and_payload_are_found() {
    let syn = good(&eth(0x0800, &v4(A, B, 6, &tcp(1, 2, 0x02, b""))), &I);
    assert!(syn.is_tcp_syn());
    assert_eq!(syn.payload_offset, 14 + 20 + 20);
    let answer = good(&eth(0x0800, &v4(A, B, 6, &tcp(2, 1, 0x12, b""))), &I);
    assert!(!answer.is_tcp_syn());
    assert_eq!(answer.tcp_flags, 0x12);
}

#[test]
fn an_observer_is_told_of_each_header_in_order() {
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &eth(0x0800, &inner())].concat();
    let datagram = v4(OUTER[0], OUTER[1], 17, &udp(33_333, 4789, &vxlan));
    let frame = eth(0x8100, &vlan(5, 0x0800, &datagram));
    let mut layers = LayerList::new();
    let mut out = Dissected::EMPTY;
    dissect_observed(&frame[..], Start::Ethernet, &I, &mut out, &mut layers).unwrap();
    let names: Vec<_> = layers.as_slice().iter().map(|layer| layer.name()).collect();
    assert_eq!(names, ["eth", "vlan", "ipv4", "udp", "vxlan", "eth", "ipv4", "udp"]);
    assert_eq!(layers.as_slice()[1], Layer::Vlan);
    // Watching changes nothing.
    assert_eq!(good(&frame, &I), out);
}
