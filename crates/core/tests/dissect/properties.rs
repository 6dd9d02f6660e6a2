//! Properties over arbitrary bytes and header chains.

use proptest::prelude::*;
use rxsteer_core::Bytes;
use rxsteer_core::dissect::{
    DissectError, Dissected, LayerList, Mode, Options, Start, VlanHash, dissect, dissect_observed,
};

use crate::frames::*;
use crate::{good, ports, read};

/// A reader that knows where it was asked to read, and cuts the frame.
struct Cut<'a> {
    bytes: &'a [u8],
    end: usize,
}

impl Bytes for Cut<'_> {
    type View<'b, const N: usize>
        = &'b [u8; N]
    where
        Self: 'b;

    fn byte_len(&self) -> usize {
        self.end
    }

    fn view<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.bytes[..self.end].get(offset..)?.first_chunk()
    }
}

fn all_options() -> Vec<Options> {
    let mut all = Vec::new();
    for mode in [Mode::Kernel, Mode::Inner] {
        for bits in 0..16 {
            let mut options = Options::new(mode);
            options.ignore_flow_label = bits & 1 != 0;
            options.outer_only = bits & 2 != 0;
            options.walk_first_fragment = bits & 4 != 0;
            options.wireguard_index = bits & 8 != 0;
            options.vlan = if bits & 1 != 0 { VlanHash::Ignore } else { VlanHash::Tag };
            all.push(options);
        }
    }
    all
}

/// Frames of most shapes that the dissector reads.
fn vectors() -> Vec<Vec<u8>> {
    let datagram = udp(4000, 5000, b"payload");
    let inner = v4(A, B, 17, &datagram);
    let inner6 = v6(A6, B6, 17, 0, &datagram);
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &eth(0x0800, &inner)].concat();
    let ppp = [&[0, 0x21][..], &inner].concat();
    let chain = extension(
        43,
        1,
        &extension(51, 0, &ah(44, 4, 9, &v6_fragment(17, 0, false, 1, &datagram))),
    );
    vec![
        eth(0x0800, &inner),
        eth(0x86dd, &inner6),
        eth(0x0800, &v4(A, B, 6, &tcp(1, 2, 2, b"x"))),
        eth(0x88a8, &vlan(1, 0x8100, &vlan(2, 0x86dd, &inner6))),
        eth(0x8864, &pppoe(1, ppp.len() as u16, &ppp)),
        eth(0x8847, &[&[0, 1, 1, 64][..], &inner].concat()),
        eth(0x0800, &v4(B, A, 47, &gre(0xb000, 0x6558, &[1, 2, 3], &eth(0x0800, &inner)))),
        eth(
            0x0800,
            &v4(B, A, 47, &gre(0x3081, 0x880b, &[7, 1, 2], &[&[0xff, 3][..], &ppp].concat())),
        ),
        eth(0x0800, &v4(B, A, 17, &udp(9, 4789, &vxlan))),
        eth(
            0x0800,
            &v4(
                B,
                A,
                17,
                &udp(
                    9,
                    2152,
                    &[&[0x34, 255, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1, 1, 0, 0, 0][..], &inner].concat(),
                ),
            ),
        ),
        eth(0x86dd, &v6(B6, A6, 60, 0, &chain)),
        eth(0x86dd, &v6(B6, A6, 4, 0, &inner)),
        eth(0x88ca, &[0; 24]),
        eth(0x4305, &[&[0x40, 15, 0, 0, 0, 0, 0, 0, 0, 0][..], &eth(0x0800, &inner)].concat()),
        eth(100, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &inner].concat()),
    ]
}

#[test]
fn every_cut_of_every_vector_gives_the_key_of_its_readable_part() {
    for frame in vectors() {
        for options in all_options() {
            for end in 0..=frame.len() {
                let (short, short_result) = read(&frame[..end], &options);
                // What does not lie in the frame is not read: other bytes behind change nothing.
                let mut junk = frame.clone();
                junk[end..].fill(0xa5);
                let mut out = Dissected::EMPTY;
                let reader = Cut { bytes: &junk, end };
                let result = dissect(&reader, Start::Ethernet, &options, &mut out);
                assert_eq!((short, short_result), (out, result));
                if end == frame.len() {
                    continue;
                }
                // The key grows with the frame and never forgets: either it stays as it is, or one
                // more header was read.
                let (longer, _) = read(&frame[..end + 1], &options);
                if matches!(short_result, Ok(())) && options.mode == Mode::Kernel {
                    assert_eq!(short.key, longer.key, "{end} {options:?}");
                }
                if short.key != longer.key {
                    assert!(
                        matches!(short_result, Err(DissectError::Truncated(_))),
                        "{end} {short_result:?} {options:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_observer_changes_nothing() {
    for frame in vectors() {
        for options in all_options() {
            let mut out = Dissected::EMPTY;
            let mut list = LayerList::new();
            let result =
                dissect_observed(&frame[..], Start::Ethernet, &options, &mut out, &mut list);
            assert_eq!((out, result), read(&frame, &options));
            assert!(!list.as_slice().is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_get_an_answer(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        ethertype in prop::sample::select(vec![
            0x0800_u16, 0x86dd, 0x8100, 0x8864, 0x8847, 0x88ca, 0x4305, 0x892f, 0x894f, 0x88e5,
            0x88e7, 0x22f3, 0x8903, 0, 4, 100,
        ]),
        offset in 0_u16..400,
    ) {
        for options in all_options() {
            for start in [Start::Ethernet, Start::Network { ethertype, offset }] {
                let mut out = Dissected::EMPTY;
                let result = dissect(&bytes[..], start, &options, &mut out);
                let again = dissect(&bytes[..], start, &options, &mut out.clone());
                prop_assert_eq!(result, again);
                if let Err(error) = result {
                    prop_assert!(error.index() < DissectError::COUNT);
                }
                let canonical = out.key.canonical();
                prop_assert_eq!(canonical.canonical(), canonical);
                prop_assert_eq!(out.key.reversed().canonical() == canonical,
                    out.key.addr_kind as u8 >= 4 || out.key.reversed() == out.key);
            }
        }
    }

    #[test]
    fn flipped_bytes_of_real_headers_get_an_answer(
        which in 0_usize..15,
        flips in prop::collection::vec((0_usize..160, any::<u8>()), 0..6),
    ) {
        let mut frame = vectors()[which].clone();
        for (at, value) in flips {
            let at = at % frame.len();
            frame[at] = value;
        }
        for options in all_options() {
            let (out, _) = read(&frame, &options);
            prop_assert!(out.has_key());
            prop_assert_eq!(out.key.zero, [0; 2]);
            prop_assert_eq!(out.key.zero_end, 0);
        }
    }

    /// cilium/cilium#24309: chains of up to eight headers, each with its own length formula.
    #[test]
    fn ports_are_found_behind_any_chain_of_extension_headers(
        chain in prop::collection::vec((prop::sample::select(vec![0_u8, 43, 51, 60, 140]), 0_u8..4), 0..9),
    ) {
        let mut next = 17;
        let mut packet = udp(40_000, 443, b"");
        for (header, units) in chain.iter().rev() {
            packet = match header {
                51 => ah(next, units * 2, 9, &packet),
                _ => extension(next, *units, &packet),
            };
            next = *header;
        }
        let found = good(&eth(0x86dd, &v6(A6, B6, next, 0, &packet)), &Options::INNER);
        prop_assert_eq!(ports(&found), (40_000, 443));
        prop_assert_eq!(found.key.protocol, 17);
        prop_assert_eq!(found.key.key_id, 0);
    }
}
