//! Kernel mode: what Linux hashes, row by row of its behaviour.

use rxsteer_core::dissect::{
    AddrKind, Control, DissectError, Fragment, KERNEL_BYTES, Options, Tunnel,
};

use crate::frames::*;
use crate::{good, kernel_flow, ports, read};

const K: Options = Options::KERNEL;

fn udp_in_v4() -> Vec<u8> {
    v4(A, B, 17, &udp(4000, 5000, b""))
}

#[test]
fn ports_of_five_protocols_and_spis_of_two_are_in_the_key() {
    for protocol in [6, 17, 33, 50, 132, 136] {
        let found = good(&eth(0x0800, &v4(A, B, protocol, &tcp(7, 9, 0, b""))), &K);
        assert_eq!((ports(&found), found.key.protocol), ((7, 9), protocol));
        assert!(found.key.is_l4());
    }
    let found = good(&eth(0x0800, &v4(A, B, 51, &ah(6, 4, 0x0007_0009, b""))), &K);
    assert_eq!((ports(&found), found.key.protocol), ((7, 9), 51));
}

#[test]
fn icmp_has_addresses_and_protocol_only() {
    let echo = |id: u8| eth(0x0800, &v4(A, B, 1, &[8, 0, 0, 0, 0, id, 0, 1]));
    assert_eq!(kernel_flow(&echo(1)), kernel_flow(&echo(2)));
    assert!(!kernel_flow(&echo(1)).is_l4());
}

#[test]
fn both_directions_are_one_flow_and_so_are_crossed_ports() {
    let frame = |src, dst, sport, dport| eth(0x0800, &v4(src, dst, 17, &udp(sport, dport, b"")));
    let there = kernel_flow(&frame(A, B, 1, 2));
    assert_eq!(there, kernel_flow(&frame(B, A, 2, 1)));
    // Linux sorts addresses and ports apart from each other.
    assert_eq!(there, kernel_flow(&frame(A, B, 2, 1)));
    assert_ne!(there, kernel_flow(&frame(A, B, 1, 3)));
    let directional = |frame: &[u8]| good(frame, &K).key;
    assert_ne!(directional(&frame(A, B, 1, 2)), directional(&frame(A, B, 2, 1)));
    assert_eq!(directional(&frame(A, B, 1, 2)).reversed(), directional(&frame(B, A, 2, 1)));
}

#[test]
fn every_fragment_has_the_key_without_ports() {
    let whole = kernel_flow(&eth(0x0800, &udp_in_v4()));
    let keys: Vec<_> = [0x2000, 0x2010, 0x0020]
        .map(|field| kernel_flow(&eth(0x0800, &v4_frag(A, B, 17, 1, field, &udp(1, 2, b"")))))
        .into();
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[1], keys[2]);
    assert_ne!(keys[0], whole);
    assert!(!keys[0].is_l4());
}

#[test]
fn an_atomic_ipv6_fragment_stops_linux_all_the_same() {
    let atomic = v6_fragment(17, 0, false, 9, &udp(1, 2, b""));
    let found = good(&eth(0x86dd, &v6(A6, B6, 44, 0, &atomic)), &K);
    assert_eq!((ports(&found), found.key.protocol), ((0, 0), 17));
    assert!(found.is_fragment());
    assert_eq!(found.fragment, Fragment::First);
}

#[test]
fn a_flow_label_hides_what_is_behind_it() {
    let frame = |label, port| eth(0x86dd, &v6(A6, B6, 17, label, &udp(port, 53, b"")));
    assert_eq!(kernel_flow(&frame(16, 1)), kernel_flow(&frame(16, 2)));
    assert_ne!(kernel_flow(&frame(16, 1)), kernel_flow(&frame(17, 1)));
    assert_ne!(kernel_flow(&frame(0, 1)), kernel_flow(&frame(0, 2)));
    let found = good(&frame(16, 1), &K);
    assert_eq!(found.key.flow_label, 16);
    assert!(found.key.is_l4());
    // A device hashes the ports.
    assert_eq!((found.outer().src_port, found.outer().dst_port), (1, 53));
}

#[test]
fn the_outermost_tag_is_in_the_key_and_the_inner_one_is_not() {
    let tagged = |tpid, tci, inner: &[u8], ethertype| eth(tpid, &vlan(tci, ethertype, inner));
    let one = |tci| kernel_flow(&tagged(0x8100, tci, &udp_in_v4(), 0x0800));
    assert_ne!(one(5), one(6));
    assert_ne!(one(5), one(0x6005), "priority");
    assert_eq!(one(5), one(0x1005), "drop-eligible bit");
    assert_ne!(one(5), kernel_flow(&tagged(0x88a8, 5, &udp_in_v4(), 0x0800)));
    assert_ne!(one(0), kernel_flow(&eth(0x0800, &udp_in_v4())), "a priority tag is a tag");
    let two = |inner| kernel_flow(&tagged(0x88a8, 5, &vlan(inner, 0x0800, &udp_in_v4()), 0x8100));
    assert_eq!(two(6), two(7));
}

#[test]
fn tag_protocol_9100_is_unknown_to_linux() {
    let (found, result) = read(&eth(0x9100, &vlan(5, 0x0800, &udp_in_v4())), &K);
    assert_eq!(result, Err(DissectError::UnknownEthertype(14)));
    assert_eq!((found.key.ethertype, found.key.addr_kind), (0x9100, AddrKind::None));
}

#[test]
fn pppoe_and_pptp_read_uncompressed_ip_only() {
    let ppp = [&[0, 0x21][..], &udp_in_v4()].concat();
    let plain = kernel_flow(&eth(0x0800, &udp_in_v4()));
    assert_eq!(kernel_flow(&eth(0x8864, &pppoe(1, ppp.len() as u16, &ppp))), plain);
    let compressed = [&[0x21][..], &udp_in_v4()].concat();
    let found = read(&eth(0x8864, &pppoe(1, 0, &compressed)), &K).0;
    assert_eq!((found.key.ethertype, found.key.addr_kind), (0x8864, AddrKind::None));
    let pptp = |call: u32, ppp: &[u8]| {
        eth(0x0800, &v4(A, B, 47, &gre(0x2001, 0x880b, &[30 << 16 | call], ppp)))
    };
    let with_field = [&[0xff, 3, 0, 0x21][..], &udp_in_v4()].concat();
    let found = good(&pptp(7, &with_field), &K);
    assert_eq!((found.key.key_id, ports(&found)), (7, (4000, 5000)));
    assert_ne!(kernel_flow(&pptp(7, &with_field)), kernel_flow(&pptp(8, &with_field)));
}

#[test]
fn mpls_is_not_looked_into() {
    let frame = |label: u32| {
        eth(0x8847, &[&(label << 12 | 0x100).to_be_bytes()[..], &udp_in_v4()].concat())
    };
    assert_eq!(kernel_flow(&frame(16)), kernel_flow(&frame(17)));
    assert_eq!(good(&frame(16), &K).key.addr_kind, AddrKind::None);
}

#[test]
fn udp_tunnels_are_not_opened() {
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &eth(0x0800, &udp_in_v4())].concat();
    let found = good(&eth(0x0800, &v4(B, A, 17, &udp(40_000, 4789, &vxlan))), &K);
    assert_eq!((ports(&found), found.tunnel), ((40_000, 4789), Tunnel::None));
}

#[test]
fn gre_with_routing_or_of_version_2_stops_at_the_outer_key() {
    for (flags, error) in
        [(0x4000, DissectError::GreRouting(34)), (2, DissectError::BadGreVersion(34))]
    {
        let frame = eth(0x0800, &v4(B, A, 47, &gre(flags, 0x0800, &[], &udp_in_v4())));
        let (found, result) = read(&frame, &K);
        assert_eq!(result, Err(error));
        assert_eq!((found.key.protocol, found.key.ethertype), (47, 0x0800));
        assert_eq!(found.key.src[..4], B);
    }
}

#[test]
fn a_v4_header_in_a_v6_header_leaves_four_bytes_of_the_outer_source_in_the_hash() {
    let inner = udp_in_v4();
    let frame = |src: [u8; 16], dst| eth(0x86dd, &v6(src, dst, 4, 0, &inner));
    let base = kernel_flow(&frame(A6, B6));
    let changed = |at: usize| {
        let mut other = A6;
        other[at] ^= 1;
        kernel_flow(&frame(other, B6))
    };
    for at in 0..16 {
        assert_eq!(changed(at) != base, (8..12).contains(&at), "byte {at}");
    }
    assert_eq!(kernel_flow(&frame(A6, A6)), base, "the outer destination is overwritten");
    assert_ne!(kernel_flow(&eth(0x0800, &inner)), base);
}

#[test]
fn the_hashed_bytes_are_equal_if_and_only_if_the_keys_are() {
    let frames = [
        eth(0x0800, &udp_in_v4()),
        eth(0x0800, &v4(B, A, 17, &udp(5000, 4000, b""))),
        eth(0x0800, &v4(A, B, 6, &tcp(4000, 5000, 2, b""))),
        eth(0x86dd, &v6(A6, B6, 17, 0, &udp(4000, 5000, b""))),
        eth(0x86dd, &v6(A6, B6, 17, 3, &udp(4000, 5000, b""))),
        eth(0x86dd, &v6(A6, B6, 4, 0, &udp_in_v4())),
        eth(0x8100, &vlan(5, 0x0800, &udp_in_v4())),
        eth(0x8100, &vlan(6, 0x0800, &udp_in_v4())),
        eth(0x0806, &[0; 28]),
    ];
    let bytes = |frame: &[u8]| {
        let mut bytes = [0; KERNEL_BYTES];
        let count = kernel_flow(frame).kernel_bytes(&mut bytes);
        bytes[..count].to_vec()
    };
    for one in &frames {
        for other in &frames {
            let same = kernel_flow(one) == kernel_flow(other);
            assert_eq!(bytes(one) == bytes(other), same, "{one:?} {other:?}");
        }
    }
    assert_eq!(bytes(&frames[0]).len(), 48);
    assert_eq!(bytes(&frames[3]).len(), 72);
    assert_eq!(bytes(&frames[8]).len(), 40);
}

#[test]
fn an_802_3_frame_has_one_of_two_ethertypes_of_linux() {
    assert_eq!(kernel_flow(&eth(40, &[0xaa, 0xaa, 3])).ethertype, 4);
    assert_eq!(kernel_flow(&eth(40, &[0xff, 0xff, 0])).ethertype, 1);
}

#[test]
fn a_frame_shorter_than_ethernet_has_no_key() {
    let (found, result) = read(&eth(0x0800, b"")[..13], &K);
    assert_eq!(result, Err(DissectError::Truncated(0)));
    assert!(!found.has_key());
    assert!(read(&eth(0x0800, b""), &K).0.has_key());
}

#[test]
fn a_tipc_keepalive_has_a_random_hash() {
    let tipc =
        |word: u32| eth(0x88ca, [word, 0, 0, 0x0100_1001].map(u32::to_be_bytes).as_flattened());
    assert!(good(&tipc(0x4e08_0000), &K).is_random());
    let data = good(&tipc(0x4000_0000), &K);
    assert!(!data.is_random());
    assert_eq!((data.key.addr_kind, &data.key.src[..4]), (AddrKind::Tipc, &[1, 0, 0x10, 1][..]));
}

#[test]
fn the_sixteenth_header_in_another_one_ends_the_walk() {
    let nested = |count: usize| {
        let inner = (0..count).fold(udp(4000, 5000, b""), |inner, index| {
            v4(A, B, if index == 0 { 17 } else { 4 }, &inner)
        });
        read(&eth(0x0800, &inner), &K)
    };
    let (found, result) = nested(16);
    assert_eq!((result, ports(&found)), (Ok(()), (4000, 5000)));
    let (found, result) = nested(17);
    assert!(matches!(result, Err(DissectError::TooDeep(_))), "{result:?}");
    assert_eq!((ports(&found), found.key.protocol), ((0, 0), 4));
}

#[test]
fn sixteen_extension_headers_are_read_and_seventeen_are_not() {
    let chain = |count: usize| {
        let inner = (0..count).fold(udp(4000, 5000, b""), |inner, index| {
            extension(if index == 0 { 17 } else { 60 }, 0, &inner)
        });
        read(&eth(0x86dd, &v6(A6, B6, 60, 0, &inner)), &K)
    };
    assert_eq!(ports(&chain(16).0), (4000, 5000));
    let (found, result) = chain(17);
    assert!(matches!(result, Err(DissectError::TooDeep(_))), "{result:?}");
    assert_eq!(ports(&found), (0, 0));
}

#[test]
fn length_fields_and_versions_are_not_looked_at() {
    let mut frame = eth(0x0800, &udp_in_v4());
    frame[16..18].fill(0);
    assert_eq!(ports(&good(&frame, &K)), (4000, 5000));
    frame[14] = 0x65;
    assert_eq!(ports(&good(&frame, &K)), (4000, 5000));
}

#[test]
fn arp_is_control_traffic() {
    assert_eq!(good(&eth(0x0806, &[0; 28]), &K).control, Control::Arp);
}
