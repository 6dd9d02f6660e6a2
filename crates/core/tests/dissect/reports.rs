//! What people reported of other dissectors, each under the public thread's name.

use rxsteer_core::FlowHash;
use rxsteer_core::dissect::{
    Control, DissectError, FlowKey, Fragment, MAX_TAGS, Options, Tunnel, VlanHash,
};
use rxsteer_core::hash::SoftHasher;

use crate::frames::*;
use crate::{good, kernel_flow, ports, read};

const K: Options = Options::KERNEL;
const I: Options = Options::INNER;

/// Returns max/mean of the packets per CPU, of four, with a fixed key.
fn imbalance(keys: &[FlowKey]) -> f64 {
    let mut load = [0_u32; 4];
    for key in keys {
        let FlowHash(hash) = SoftHasher { k0: 1, k1: 2 }.hash_symmetric(key);
        load[FlowHash(hash).scale(4) as usize] += 1;
    }
    f64::from(*load.iter().max().unwrap()) * 4.0 / keys.len() as f64
}

/// The three fragments of a datagram of 3000 bytes.
fn three_fragments(src: [u8; 4], id: u16) -> [Vec<u8>; 3] {
    let datagram = udp(4000, 5000, &[7; 2992]);
    let (first, rest) = datagram.split_at(1480);
    let (middle, last) = rest.split_at(1480);
    [
        v4_frag(src, B, 17, id, 0x2000, first),
        v4_frag(src, B, 17, id, 0x2000 | 185, middle),
        v4_frag(src, B, 17, id, 370, last),
    ]
}

#[test]
fn f_stack_433_every_fragment_of_a_datagram_has_one_key() {
    for options in [K, I] {
        let [first, middle, last] =
            three_fragments(A, 0x1234).map(|packet| good(&eth(0x0800, &packet), &options));
        let states = [first.fragment, middle.fragment, last.fragment];
        assert_eq!(states, [Fragment::First, Fragment::Middle, Fragment::Last]);
        assert_eq!(first.key, middle.key);
        assert_eq!(middle.key, last.key);
        assert_eq!((ports(&first), first.fragment_id), ((0, 0), 0x1234));
        let whole = good(&eth(0x0800, &v4(A, B, 17, &udp(4000, 5000, b""))), &options);
        assert_ne!(whole.key, first.key);
        assert_eq!(whole.fragment, Fragment::None);
        // Under a tag, and from another source with the same identification.
        let tagged = three_fragments(A, 0x1234)
            .map(|packet| good(&eth(0x8100, &vlan(5, 0x0800, &packet)), &options).key);
        assert_eq!(tagged[0], tagged[2]);
        let other = good(&eth(0x0800, &three_fragments([192, 0, 2, 9], 0x1234)[0]), &options);
        assert_ne!(other.key, first.key);
    }
}

#[test]
fn f_stack_433_the_ports_of_a_first_fragment_can_be_learnt() {
    let options = Options { walk_first_fragment: true, ..I };
    let [first, middle, _] =
        three_fragments(A, 1).map(|packet| good(&eth(0x0800, &packet), &options));
    assert_eq!((ports(&first), first.fragment), ((4000, 5000), Fragment::First));
    assert_eq!(ports(&middle), (0, 0));
}

#[test]
fn yanet2_2777_payload_of_a_later_fragment_is_never_ports() {
    // Four bytes of payload, padded to 60: the padding looks like ports as well.
    let mut short = eth(0x0800, &v4_frag(A, B, 17, 1, 0x0172, &[0, 53, 0, 53]));
    short.resize(60, 0x35);
    let looks_like_dns = eth(0x0800, &v4_frag(A, B, 17, 1, 0x2010, &udp(53, 53, &[0; 16])));
    let first = eth(0x0800, &v4_frag(A, B, 17, 1, 0x2000, &udp(4000, 5000, &[0; 16])));
    for options in [K, I] {
        let keys = [&short, &looks_like_dns, &first].map(|frame| good(frame, &options).key);
        assert_eq!(keys[0], keys[1]);
        assert_eq!(keys[1], keys[2]);
        assert_eq!(keys[0].ports(), 0);
    }
}

#[test]
fn yanet2_2777_bytes_behind_the_total_length_are_not_read() {
    let mut frame = eth(0x0800, &v4(A, B, 17, &[]));
    frame.extend(udp(53, 53, b"padding"));
    let (found, result) = read(&frame, &I);
    assert_eq!((ports(&found), result), ((0, 0), Err(DissectError::Truncated(34))));
    // Linux reads them.
    assert_eq!(ports(&good(&frame, &K)), (53, 53));
}

#[test]
fn yanet2_2777_a_walk_of_ipv6_ends_at_a_later_fragment() {
    let looks_like_extension = extension(17, 0, &udp(53, 53, b""));
    let frame =
        eth(0x86dd, &v6(A6, B6, 44, 0, &v6_fragment(60, 1, true, 9, &looks_like_extension)));
    for options in [K, I] {
        let found = good(&frame, &options);
        assert_eq!((found.key.protocol, ports(&found)), (60, (0, 0)));
        assert_eq!((found.fragment, found.fragment_id), (Fragment::Middle, 9));
    }
}

#[test]
fn cilium_24309_each_extension_header_has_its_own_length_formula() {
    let datagram = udp(40_000, 443, b"");
    let chains = [
        (51, ah(0, 4, 9, &extension(17, 1, &datagram))),
        (60, extension(51, 2, &ah(17, 4, 9, &datagram))),
        (51, ah(17, 4, 9, &datagram)),
        (51, ah(17, 5, 9, &datagram)),
    ];
    for (next, chain) in chains {
        let found = good(&eth(0x86dd, &v6(A6, B6, next, 0, &chain)), &I);
        assert_eq!((ports(&found), found.key.protocol), ((40_000, 443), 17));
    }
}

#[test]
fn xdp_cpumap_tc_15_any_number_of_tags_up_to_the_bound() {
    let datagram = v4(A, B, 17, &udp(4000, 5000, b""));
    let tagged = |tpids: &[u16]| {
        let (mut inner, mut ethertype) = (datagram.clone(), 0x0800);
        for (index, tpid) in tpids.iter().rev().enumerate() {
            inner = vlan(index as u16 + 1, ethertype, &inner);
            ethertype = *tpid;
        }
        eth(ethertype, &inner)
    };
    let ctag = 0x8100;
    for tpids in [
        &[][..],
        &[ctag],
        &[0x88a8, ctag],
        &[ctag, ctag],
        &[0x88a8, ctag, ctag],
        &[ctag; 4],
        &[0x9100, ctag],
        &[ctag; MAX_TAGS as usize],
    ] {
        let found = good(&tagged(tpids), &I);
        assert_eq!((ports(&found), usize::from(found.vlan_tags)), ((4000, 5000), tpids.len()));
    }
    let (found, result) = read(&tagged(&[ctag; 9]), &I);
    assert_eq!(result, Err(DissectError::TooManyTags(14 + 4 * 8)));
    assert_eq!(ports(&found), (0, 0));
    // Linux goes on.
    assert_eq!(ports(&good(&tagged(&[ctag; 9]), &K)), (4000, 5000));
    let cut = tagged(&[ctag]);
    assert_eq!(read(&cut[..18], &I).1, Err(DissectError::Truncated(18)));
}

#[test]
fn xdp_cpumap_tc_15_the_tag_in_the_key_is_a_setting() {
    let datagram = v4(A, B, 17, &udp(4000, 5000, b""));
    let tagged = |id| eth(0x8100, &vlan(id, 0x0800, &datagram));
    let key = |frame: &[u8], vlan| good(frame, &Options { vlan, ..K }).key;
    let plain = eth(0x0800, &datagram);
    assert_ne!(key(&tagged(5), VlanHash::Tag), key(&tagged(6), VlanHash::Tag));
    assert_eq!(key(&tagged(5), VlanHash::Ignore), key(&tagged(6), VlanHash::Ignore));
    assert_eq!(key(&tagged(5), VlanHash::Ignore), key(&plain, VlanHash::Ignore));
    assert_ne!(key(&tagged(0), VlanHash::Tag), key(&plain, VlanHash::Tag));
    let by_id = VlanHash::TagUnlessPriority;
    assert_eq!(key(&tagged(0), by_id), key(&plain, by_id));
    assert_ne!(key(&tagged(5), by_id), key(&plain, by_id));
}

#[test]
fn libreqos_790_pppoe_is_looked_into_under_any_tags() {
    let under = |tags: usize, ethertype: u16, payload: &[u8]| match tags {
        0 => eth(ethertype, payload),
        1 => eth(0x8100, &vlan(1, ethertype, payload)),
        _ => eth(0x88a8, &vlan(1, 0x8100, &vlan(2, ethertype, payload))),
    };
    let datagram = v4(A, B, 17, &udp(4000, 5000, b""));
    let datagram6 = v6(A6, B6, 17, 0, &udp(4000, 5000, b""));
    for tags in 0..3 {
        let session = |ppp: &[u8]| under(tags, 0x8864, &pppoe(7, ppp.len() as u16, ppp));
        for ppp in [
            [&[0, 0x21][..], &datagram].concat(),
            [&[0, 0x57][..], &datagram6].concat(),
            [&[0x21][..], &datagram].concat(), // compressed protocol field
        ] {
            assert_eq!(ports(&good(&session(&ppp), &I)), (4000, 5000));
        }
        let lcp = good(&session(&[0xc0, 0x21, 9, 1, 0, 4]), &I);
        assert_eq!((lcp.control, lcp.key.key_id, lcp.ip_headers), (Control::Ppp, 7, 0));
        let padi = good(&under(tags, 0x8863, &[0x11, 9, 0, 0, 0, 0]), &I);
        assert_eq!((padi.control, padi.ip_headers), (Control::PppoeDiscovery, 0));
        // A length below the frame's bounds the packet; one above it is no harm by itself.
        let ppp = [&[0, 0x21][..], &datagram].concat();
        let short = under(tags, 0x8864, &pppoe(7, 2 + 20 + 2, &ppp));
        assert!(matches!(read(&short, &I).1, Err(DissectError::Truncated(_))));
        let long = under(tags, 0x8864, &pppoe(7, 9000, &ppp));
        assert_eq!(ports(&good(&long, &I)), (4000, 5000));
    }
}

#[test]
fn libreqos_790_64_inner_flows_use_all_cpus() {
    for options in [K, I] {
        let keys: Vec<_> = (0..64)
            .map(|flow| {
                let ppp = [&[0, 0x21][..], &v4(A, B, 17, &udp(4000 + flow, 5000, b""))].concat();
                good(&eth(0x8864, &pppoe(1, ppp.len() as u16, &ppp)), &options).key
            })
            .collect();
        assert!(imbalance(&keys) < 1.6, "{}", imbalance(&keys));
    }
}

/// Encapsulations of report 27 in one outer pair of addresses.
fn encapsulated(kind: usize, inner4: &[u8], inner6: &[u8]) -> Vec<u8> {
    let outer = |protocol, payload: &[u8]| {
        eth(0x0800, &v4([203, 0, 113, 1], [203, 0, 113, 2], protocol, payload))
    };
    let ppp = [&[0xff, 3, 0, 0x21][..], inner4].concat();
    match kind {
        0 => outer(47, &gre(0, 0x0800, &[], inner4)),
        1 => outer(47, &gre(0x2000, 0x0800, &[9], inner4)),
        2 => outer(47, &gre(0xb000, 0x0800, &[0, 9, 1], inner4)),
        3 => outer(47, &gre(0x3001, 0x880b, &[9, 1], &ppp)),
        4 => outer(47, &gre(0, 0x6558, &[], &eth(0x0800, inner4))),
        5 => outer(4, inner4),
        6 => outer(41, inner6),
        _ => {
            let nested = (0..4).fold(gre(0, 0x0800, &[], inner4), |inner, _| {
                gre(0, 0x0800, &[], &v4([203, 0, 113, 3], [203, 0, 113, 4], 47, &inner))
            });
            outer(47, &nested)
        }
    }
}

#[test]
fn contrail_vrouter_100_the_inner_flow_decides_unless_asked_otherwise() {
    for kind in 0..8 {
        for options in [K, I] {
            let keys = |options: &Options| -> Vec<_> {
                (0..64)
                    .map(|flow| {
                        let datagram = udp(4000 + flow, 5000, b"");
                        let inner4 = v4(A, B, 17, &datagram);
                        let inner6 = v6(A6, B6, 17, 0, &datagram);
                        let found = good(&encapsulated(kind, &inner4, &inner6), options);
                        assert_eq!(found.outer().src[..4], [203, 0, 113, 1]);
                        found.key
                    })
                    .collect()
            };
            let inner = keys(&options);
            assert!(imbalance(&inner) < 1.6, "{kind}: {}", imbalance(&inner));
            let outer = keys(&Options { outer_only: true, ..options });
            assert!(outer.iter().all(|key| *key == outer[0]), "{kind}");
            assert_eq!(outer[0].src[..4], [203, 0, 113, 1]);
        }
    }
}

#[test]
fn contrail_vrouter_100_an_inner_fragment_has_no_ports() {
    for options in [K, I] {
        let keys = [0x2000, 0x2010, 0x0020].map(|field| {
            let inner = v4_frag(A, B, 17, 1, field, &udp(4000, 5000, b""));
            let found = good(&encapsulated(0, &inner, &[]), &options);
            assert!(found.is_fragment());
            found.key
        });
        assert_eq!((keys[0], keys[0].ports()), (keys[1], 0));
        assert_eq!(keys[1], keys[2]);
    }
}

#[test]
fn contrail_vrouter_100_gre_that_cannot_be_read_keeps_the_outer_key() {
    for (flags, error) in
        [(0x4000, DissectError::GreRouting(34)), (3, DissectError::BadGreVersion(34))]
    {
        let inner = v4(A, B, 17, &udp(1, 2, b""));
        let frame = eth(0x0800, &v4(B, A, 47, &gre(flags, 0x0800, &[], &inner)));
        for options in [K, I] {
            let (found, result) = read(&frame, &options);
            assert_eq!((result, found.key.protocol), (Err(error), 47));
            assert_eq!(found.key.src[..4], B);
        }
    }
}

#[test]
fn cilium_35661_the_spi_is_in_the_key() {
    let esp = |spi: u32| eth(0x0800, &v4(A, B, 50, &[spi, 1, 2, 3].map(u32::to_be_bytes).concat()));
    for options in [K, I] {
        let keys = [1, 2, 3, 4].map(|spi| good(&esp(spi), &options).key);
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(key.ports(), index as u32 + 1);
        }
        assert_eq!(good(&esp(1), &options).key, keys[0]);
        assert!(good(&esp(1), &options).tunnel.is_opaque());
    }
    let ah = eth(0x0800, &v4(A, B, 51, &ah(6, 4, 7, &tcp(1, 2, 0, b""))));
    assert_eq!(good(&ah, &K).key.ports(), 7);
    assert_eq!(ports(&good(&ah, &I)), (1, 2));
}

#[test]
fn cilium_35661_port_4500_has_esp_ike_and_keepalives() {
    let natt = |payload: &[u8]| good(&eth(0x0800, &v4(A, B, 17, &udp(4500, 4500, payload))), &I);
    let esp = natt(&[0, 1, 0, 2, 0, 0, 0, 1, 9, 9]);
    assert_eq!((esp.key.ports(), esp.key.protocol), (0x0001_0002, 50));
    assert_eq!((esp.tunnel, esp.control), (Tunnel::EspInUdp, Control::None));
    assert_eq!((esp.outer().src_port, esp.outer().protocol), (4500, 17));
    assert_ne!(natt(&[0, 1, 0, 3, 0, 0, 0, 1]).key, esp.key);
    let ike = natt(&[0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!((ike.control, ports(&ike)), (Control::Ike, (4500, 4500)));
    let keepalive = natt(&[0xff]);
    assert_eq!((keepalive.control, ports(&keepalive)), (Control::NatKeepalive, (4500, 4500)));
    // Linux looks at the ports only.
    let frame = |spi| eth(0x0800, &v4(A, B, 17, &udp(4500, 4500, &[0, 0, 0, spi])));
    assert_eq!(kernel_flow(&frame(1)), kernel_flow(&frame(2)));
}

#[test]
fn calico_9223_wireguard_has_a_message_type_and_a_receiver_index() {
    let message = |kind: u8, words: &[u32]| {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let payload = [&[kind, 0, 0, 0][..], &body, &[0; 32]].concat();
        eth(0x0800, &v4(A, B, 17, &udp(51_820, 51_820, &payload)))
    };
    for (kind, words, index) in
        [(1, &[77][..], 77), (2, &[1, 77], 77), (3, &[77], 77), (4, &[77, 0, 0], 77)]
    {
        let found = good(&message(kind, words), &I);
        assert_eq!((found.wireguard_type, found.wireguard_index), (kind, index));
        assert_eq!(found.tunnel, Tunnel::WireGuard);
        assert_eq!(found.control == Control::WireGuard, kind != 4);
    }
    let data = |index| message(4, &[index, 0, 0]);
    assert_eq!(good(&data(1), &I).key, good(&data(2), &I).key, "information only");
    let by_index = Options { wireguard_index: true, ..I };
    assert_ne!(good(&data(1), &by_index).key, good(&data(2), &by_index).key);
    assert_eq!(good(&data(1), &by_index).key, good(&data(1), &by_index).key);
    let other = eth(0x0800, &v4(A, B, 17, &udp(51_820, 51_820, b"something else")));
    assert_eq!(good(&other, &I).tunnel, Tunnel::None);
}

#[test]
fn cilium_21961_a_label_hides_ports_unless_it_is_ignored() {
    let frame = |label, port| eth(0x86dd, &v6(A6, B6, 17, label, &udp(port, 5000, b"")));
    let ignore = Options { ignore_flow_label: true, ..K };
    // 64 flows with one label between two hosts.
    let keys = |options: &Options| -> Vec<_> {
        (0..64).map(|flow| good(&frame(9, 4000 + flow), options).key).collect()
    };
    assert!(keys(&K).iter().all(|key| *key == keys(&K)[0]));
    assert!(imbalance(&keys(&ignore)) < 1.6);
    assert!(imbalance(&keys(&I)) < 1.6);
    // One flow whose label changes.
    assert_ne!(good(&frame(9, 4000), &K).key, good(&frame(10, 4000), &K).key);
    for options in [ignore, I] {
        let [before, after] = [9, 10].map(|label| good(&frame(label, 4000), &options));
        assert_eq!(before.key, after.key);
        assert_eq!((before.label, after.label), (9, 10), "still reported");
    }
    // A segment routing header is one of the extension headers.
    let routed = eth(0x86dd, &v6(A6, B6, 43, 0, &extension(17, 2, &udp(4000, 5000, b""))));
    assert_eq!(ports(&good(&routed, &K)), (4000, 5000));
}
