//! Hashes against published vectors, against a second way to the same answer, and by property.

use core::hash::Hasher;
use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::dissect::AddrKind;
use crate::{FlowKey, QueueId};

/// The key of the Microsoft suite "Verifying the RSS hash calculation".
const SUITE_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Destination and port, source and port, hash of the addresses, hash with ports.
type Row<A> = (A, u16, A, u16, u32, u32);

/// All IPv4 rows of the suite.
const SUITE_V4: [Row<[u8; 4]>; 5] = [
    ([161, 142, 100, 80], 1766, [66, 9, 149, 187], 2794, 0x323e_8fc2, 0x51cc_c178),
    ([65, 69, 140, 83], 4739, [199, 92, 111, 2], 14230, 0xd718_262a, 0xc626_b0ea),
    ([12, 22, 207, 184], 38024, [24, 19, 198, 95], 12898, 0xd2d0_a5de, 0x5c2b_394a),
    ([209, 142, 163, 6], 2217, [38, 27, 205, 30], 48228, 0x8298_9176, 0xafc7_327f),
    ([202, 188, 127, 2], 1303, [153, 39, 163, 191], 44251, 0x5d18_09c5, 0x10e8_28a2),
];

/// All IPv6 rows of the suite.
const SUITE_V6: [Row<&str>; 3] = [
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
    (
        "fe80::200:f8ff:fe21:67cf",
        38024,
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        44251,
        0x4b61_e985,
        0x02d1_feef,
    ),
];

fn v6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

#[test]
fn scale_and_mix_follow_the_table_of_linux() {
    // hash, scale by 3, 4, 6, 64, mix to 8, 12, 15 bits
    let rows: [[u32; 8]; 4] = [
        [0x0000_0001, 0, 0, 0, 0, 97, 1564, 12516],
        [0x51cc_c178, 0, 1, 1, 20, 122, 1964, 15719],
        [0x8000_0000, 1, 2, 3, 32, 128, 2048, 16384],
        [0xffff_ffff, 2, 3, 5, 63, 158, 2531, 20251],
    ];
    for [hash, s3, s4, s6, s64, m8, m12, m15] in rows {
        let hash = FlowHash(hash);
        assert_eq!([3, 4, 6, 64].map(|n| hash.scale(n)), [s3, s4, s6, s64], "{hash:?}");
        assert_eq!([8, 12, 15].map(|bits| hash.mix(bits)), [m8, m12, m15], "{hash:?}");
    }
}

#[test]
fn mix_has_an_answer_for_every_width() {
    assert_eq!(FlowHash(0xffff_ffff).mix(0), 0);
    assert_eq!(FlowHash(1).mix(32), 0x61C8_8647);
    assert_eq!(FlowHash(1).mix(33), 0x61C8_8647);
    assert_eq!(FlowHash(1).mix(u32::MAX), 0x61C8_8647);
}

proptest! {
    #[test]
    fn scale_stays_below_n(hash: u32, n in 1..=u32::MAX) {
        let hash = FlowHash(hash);
        prop_assert!(hash.scale(n) < n);
        prop_assert_eq!(hash.scale(1), 0);
        prop_assert_eq!(hash.scale(0), 0);
        prop_assert_eq!(u128::from(hash.scale(n)), (u128::from(hash.0) * u128::from(n)) >> 32);
    }

    #[test]
    fn mix_stays_below_two_to_the_bits(hash: u32, bits in 0..=31u32) {
        prop_assert!(FlowHash(hash).mix(bits) < 1 << bits);
    }
}

#[test]
fn toeplitz_gives_the_hashes_of_the_rss_verification_suite() {
    let key = ToeplitzKey::new(&SUITE_KEY).unwrap();
    let table = ToeplitzTable::new(key);
    let mut inputs = Vec::new();
    for (dst, dst_port, src, src_port, plain, with_ports) in SUITE_V4 {
        inputs.push((RssInput::v4(src, dst), plain));
        inputs.push((RssInput::v4_ports(src, dst, src_port, dst_port), with_ports));
    }
    for (dst, dst_port, src, src_port, plain, with_ports) in SUITE_V6 {
        inputs.push((RssInput::v6(v6(src), v6(dst)), plain));
        inputs.push((RssInput::v6_ports(v6(src), v6(dst), src_port, dst_port), with_ports));
    }
    assert_eq!(inputs.len(), 16);
    for (input, hash) in inputs {
        assert_eq!(key.hash(&input), hash, "{input:?}");
        assert_eq!(table.hash(&input), hash, "{input:?}");
    }
}

#[test]
fn the_fields_of_a_flow_key_give_the_hashes_of_the_suite() {
    let key = ToeplitzKey::new(&SUITE_KEY).unwrap();
    for (dst, dst_port, src, src_port, plain, with_ports) in SUITE_V4 {
        let mut flow =
            FlowKey { src_port, dst_port, addr_kind: AddrKind::V4, ..FlowKey::default() };
        flow.src[..4].copy_from_slice(&src);
        flow.dst[..4].copy_from_slice(&dst);
        let hash = |ports| key.hash(&RssInput::from_key(&flow, ports).unwrap());
        assert_eq!((hash(false), hash(true)), (plain, with_ports), "{}", Ipv4Addr::from(src));
    }
    for (dst, dst_port, src, src_port, plain, with_ports) in SUITE_V6 {
        let (src, dst) = (v6(src), v6(dst));
        let flow =
            FlowKey { src, dst, src_port, dst_port, addr_kind: AddrKind::V6, ..FlowKey::default() };
        let hash = |ports| key.hash(&RssInput::from_key(&flow, ports).unwrap());
        assert_eq!((hash(false), hash(true)), (plain, with_ports), "{}", Ipv6Addr::from(src));
    }
    for addr_kind in [AddrKind::None, AddrKind::Tipc] {
        let flow = FlowKey { addr_kind, ..FlowKey::default() };
        assert_eq!(RssInput::from_key(&flow, true), None);
    }
}

#[test]
fn a_key_of_less_than_40_bytes_is_refused() {
    assert_eq!(ToeplitzKey::new(&SUITE_KEY[..39]), Err(KeyTooShort(39)));
    assert_eq!(KeyTooShort(39).to_string(), "an RSS key needs at least 40 bytes, this has 39");
    assert!(ToeplitzKey::new(&SUITE_KEY).is_ok());
    assert!(ToeplitzKey::new(&[0; 52]).is_ok());
}

/// Toeplitz as a matrix product over one long number: a third way, by shifting the whole key.
fn toeplitz_by_shifting(key: &[u8], input: &[u8]) -> u32 {
    let mut bits: Vec<bool> =
        key.iter().flat_map(|byte| (0..8).map(move |bit| byte << bit & 0x80 != 0)).collect();
    let mut hash = 0;
    for byte in input {
        for bit in 0..8 {
            if byte << bit & 0x80 != 0 {
                hash ^= bits[..32].iter().fold(0u32, |word, bit| word << 1 | u32::from(*bit));
            }
            bits.remove(0);
        }
    }
    hash
}

fn inputs() -> impl Strategy<Value = RssInput> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(s, d)| RssInput::v4(s, d)),
        any::<([u8; 4], [u8; 4], u16, u16)>()
            .prop_map(|(s, d, p, q)| RssInput::v4_ports(s, d, p, q)),
        any::<([u8; 16], [u8; 16])>().prop_map(|(s, d)| RssInput::v6(s, d)),
        any::<([u8; 16], [u8; 16], u16, u16)>()
            .prop_map(|(s, d, p, q)| RssInput::v6_ports(s, d, p, q)),
    ]
}

proptest! {
    #[test]
    fn tables_and_bits_give_one_hash(key in prop::collection::vec(any::<u8>(), 40..=64), input in inputs()) {
        let bitwise = ToeplitzKey::new(&key).unwrap();
        prop_assert_eq!(ToeplitzTable::new(bitwise).hash(&input), bitwise.hash(&input));
        prop_assert_eq!(bitwise.hash(&input), toeplitz_by_shifting(&key, input.bytes()));
        // Bytes of the key beyond the input's end and four do not matter.
        prop_assert_eq!(ToeplitzKey::new(&key[..40]).unwrap().hash(&input), bitwise.hash(&input));
    }

    #[test]
    fn the_symmetric_key_hashes_both_directions_alike(
        a4: [u8; 4], b4: [u8; 4], a6: [u8; 16], b6: [u8; 16], p: u16, q: u16
    ) {
        let table = ToeplitzTable::new(ToeplitzKey::SYMMETRIC);
        prop_assert_eq!(table.hash(&RssInput::v4(a4, b4)), table.hash(&RssInput::v4(b4, a4)));
        prop_assert_eq!(table.hash(&RssInput::v6(a6, b6)), table.hash(&RssInput::v6(b6, a6)));
        prop_assert_eq!(
            table.hash(&RssInput::v4_ports(a4, b4, p, q)),
            table.hash(&RssInput::v4_ports(b4, a4, q, p))
        );
        prop_assert_eq!(
            table.hash(&RssInput::v6_ports(a6, b6, p, q)),
            table.hash(&RssInput::v6_ports(b6, a6, q, p))
        );
    }

    #[test]
    fn the_entry_at_the_remainder_decides(size in 1..5000usize, queues in 1..300u16, hash: u32) {
        let table = IndirectionTable::equal(vec![QueueId(0); size], queues).unwrap();
        let place = hash as usize % size;
        prop_assert_eq!(table.queue(FlowHash(hash)), QueueId((place % usize::from(queues)) as u16));
    }
}

#[test]
fn the_symmetric_key_is_6d5a_repeated_and_still_spreads() {
    assert!(ToeplitzKey::SYMMETRIC.bytes().chunks(2).all(|pair| pair == [0x6d, 0x5a]));
    let input = |port| RssInput::v4_ports([192, 0, 2, 1], [198, 51, 100, 1], port, 53);
    assert_ne!(ToeplitzKey::SYMMETRIC.hash(&input(1)), ToeplitzKey::SYMMETRIC.hash(&input(2)));
}

#[test]
fn an_imported_table_is_used_entry_by_entry() {
    let entries = [3, 1, 4, 1, 5].map(QueueId);
    let table = IndirectionTable::new(&entries[..]).unwrap();
    let queues: Vec<_> = (0..7).map(|hash| table.queue(FlowHash(hash)).0).collect();
    assert_eq!(queues, [3, 1, 4, 1, 5, 3, 1]);
    assert_eq!(table.entries(), entries);
}

#[test]
fn a_packet_without_a_hash_goes_to_the_queue_of_entry_0() {
    let entries = [7, 1, 2].map(QueueId);
    assert_eq!(IndirectionTable::new(entries).unwrap().queue(FlowHash::NONE), QueueId(7));
    let single = IndirectionTable::new([QueueId(9)]).unwrap();
    assert_eq!(single.queue(FlowHash(u32::MAX)), QueueId(9));
}

#[test]
fn a_table_without_entries_or_queues_is_refused() {
    assert!(IndirectionTable::new([QueueId(0); 0]).is_err());
    assert!(IndirectionTable::equal([QueueId(0); 0], 4).is_err());
    assert!(IndirectionTable::equal([QueueId(0); 4], 0).is_err());
}

/// SipHash-2-4 of the bytes 0, 1, 2, … of each length from 0 to 63 under the key 0, 1, … 15: the
/// vectors of the authors' reference implementation.
const SIP24: [u64; 64] = [
    0x726f_db47_dd0e_0e31,
    0x74f8_39c5_93dc_67fd,
    0x0d6c_8009_d9a9_4f5a,
    0x8567_6696_d7fb_7e2d,
    0xcf27_94e0_2771_87b7,
    0x1876_5564_cd99_a68d,
    0xcbc9_466e_58fe_e3ce,
    0xab02_00f5_8b01_d137,
    0x93f5_f579_9a93_2462,
    0x9e00_82df_0ba9_e4b0,
    0x7a5d_bbc5_94dd_b9f3,
    0xf4b3_2f46_226b_ada7,
    0x751e_8fbc_860e_e5fb,
    0x14ea_5627_c084_3d90,
    0xf723_ca90_8e7a_f2ee,
    0xa129_ca61_49be_45e5,
    0x3f2a_cc7f_57c2_9bdb,
    0x699a_e9f5_2cbe_4794,
    0x4bc1_b3f0_968d_d39c,
    0xbb6d_c91d_a779_61bd,
    0xbed6_5cf2_1aa2_ee98,
    0xd0f2_cbb0_2e3b_67c7,
    0x9353_6795_e3a3_3e88,
    0xa80c_038c_cd5c_cec8,
    0xb8ad_50c6_f649_af94,
    0xbce1_92de_8a85_b8ea,
    0x17d8_35b8_5bbb_15f3,
    0x2f2e_6163_076b_cfad,
    0xde4d_aaac_a71d_c9a5,
    0xa6a2_5066_8795_6571,
    0xad87_a353_5c49_ef28,
    0x32d8_92fa_d841_c342,
    0x7127_512f_72f2_7cce,
    0xa7f3_2346_f959_78e3,
    0x12e0_b01a_bb05_1238,
    0x15e0_34d4_0fa1_97ae,
    0x314d_ffbe_0815_a3b4,
    0x0279_90f0_2962_3981,
    0xcadc_d4e5_9ef4_0c4d,
    0x9abf_d876_6a33_735c,
    0x0e3e_a96b_5304_a7d0,
    0xad0c_42d6_fc58_5992,
    0x1873_06c8_9bc2_15a9,
    0xd4a6_0abc_f379_2b95,
    0xf935_451d_e4f2_1df2,
    0xa953_8f04_1975_5787,
    0xdb9a_cddf_f56c_a510,
    0xd06c_98cd_5c09_75eb,
    0xe612_a3cb_9ecb_a951,
    0xc766_e62c_fcad_af96,
    0xee64_435a_9752_fe72,
    0xa192_d576_b245_165a,
    0x0a87_87bf_8ecb_74b2,
    0x81b3_e73d_20b4_9b6f,
    0x7fa8_220b_a3b2_ecea,
    0x2457_31c1_3ca4_2499,
    0xb78d_bfaf_3a8d_83bd,
    0xea1a_d565_322a_1a0b,
    0x60e6_1c23_a379_5013,
    0x6606_d7e4_4628_2b93,
    0x6ca4_ecb1_5c5f_91e1,
    0x9f62_6da1_5c96_25f3,
    0xe51b_3860_8ef2_5f57,
    0x958a_324c_eb06_4572,
];

const K0: u64 = 0x0706_0504_0302_0100;
const K1: u64 = 0x0f0e_0d0c_0b0a_0908;

#[test]
fn siphash_2_4_gives_the_vectors_of_its_authors() {
    let message: Vec<u8> = (0..64).collect();
    for (len, want) in SIP24.into_iter().enumerate() {
        assert_eq!(Sip24::new(K0, K1).hash_bytes(&message[..len]), want, "{len}");
    }
    // The worked example of the paper's appendix A: 15 bytes.
    assert_eq!(SIP24[15], 0xa129_ca61_49be_45e5);
}

proptest! {
    #[test]
    fn siphash_agrees_with_the_siphasher_crate(k0: u64, k1: u64, message: Vec<u8>) {
        let mut sip13 = siphasher::sip::SipHasher13::new_with_keys(k0, k1);
        sip13.write(&message);
        prop_assert_eq!(Sip13::new(k0, k1).hash_bytes(&message), sip13.finish());
        let mut sip24 = siphasher::sip::SipHasher24::new_with_keys(k0, k1);
        sip24.write(&message);
        prop_assert_eq!(Sip24::new(k0, k1).hash_bytes(&message), sip24.finish());
    }
}

fn keys() -> impl Strategy<Value = FlowKey> {
    let kind =
        prop::sample::select(vec![AddrKind::None, AddrKind::V4, AddrKind::V6, AddrKind::Tipc]);
    let maybe = |on: bool, value: u32| if on { value } else { 0 };
    (
        any::<([u8; 16], [u8; 16], u16, u16)>(),
        any::<(bool, u32, u32, [u16; 3], Option<u32>)>(),
        any::<(u16, u8)>(),
        kind,
    )
        .prop_map(
            move |(
                (src, dst, p, q),
                (labelled, id, label, vlan, residue),
                (ethertype, protocol),
                kind,
            )| {
                let used = match kind {
                    AddrKind::None => 0,
                    AddrKind::V4 | AddrKind::Tipc => 4,
                    AddrKind::V6 => 16,
                };
                let cut = |address: [u8; 16]| {
                    let mut cut = [0; 16];
                    cut[..used].copy_from_slice(&address[..used]);
                    cut
                };
                let [vlan_tci, vlan_tpid, vlan_inner_type] =
                    vlan.map(|v| maybe(labelled, v.into()) as u16);
                FlowKey {
                    src: cut(src),
                    dst: if kind == AddrKind::Tipc { [0; 16] } else { cut(dst) },
                    src_port: p,
                    dst_port: q,
                    key_id: maybe(labelled, id),
                    flow_label: maybe(labelled, label),
                    vlan_tci,
                    vlan_tpid,
                    vlan_inner_type,
                    ethertype,
                    protocol,
                    addr_kind: kind,
                    residue: residue.unwrap_or(0),
                    ..FlowKey::default()
                }
            },
        )
}

/// The words that the table of `soft` promises, put together from bytes one by one.
fn message(key: &FlowKey) -> Vec<u64> {
    let mut bytes = match key.addr_kind {
        AddrKind::None => vec![],
        AddrKind::V4 => [&key.src[..4], &key.dst[..4]].concat(),
        AddrKind::V6 => [key.src, key.dst].concat(),
        AddrKind::Tipc => [&key.src[..4], &[0; 4]].concat(),
    };
    let mut kind = key.addr_kind as u8;
    let tag = [key.vlan_tci, key.vlan_tpid, key.vlan_inner_type, 0];
    if (key.key_id, key.flow_label, tag, key.residue) != (0, 0, [0; 4], 0) {
        bytes.extend([key.key_id, key.flow_label].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(tag.into_iter().flat_map(u16::to_le_bytes));
        kind |= 0x80;
    }
    if key.residue != 0 {
        bytes.extend(u64::from(key.residue).to_le_bytes());
        kind |= 0x40;
    }
    let ports = [key.src_port, key.dst_port, key.ethertype];
    bytes.extend(ports.into_iter().flat_map(u16::to_le_bytes));
    bytes.extend([key.protocol, kind]);
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn one_bit_each(key: FlowKey) -> FlowKey {
    let first = |address: [u8; 16]| [[address[0] & 1; 1].as_slice(), &[0; 15]].concat();
    FlowKey {
        src: first(key.src).try_into().unwrap(),
        dst: first(key.dst).try_into().unwrap(),
        src_port: key.src_port & 1,
        dst_port: key.dst_port & 1,
        key_id: key.key_id & 1,
        flow_label: 0,
        vlan_tci: key.vlan_tci & 1,
        vlan_tpid: 0,
        vlan_inner_type: 0,
        ethertype: 0,
        protocol: 0,
        residue: key.residue & 1,
        ..key
    }
}

proptest! {
    #[test]
    fn a_key_is_hashed_as_the_words_of_its_fields(k0: u64, k1: u64, key in keys()) {
        let mut words = message(&key);
        let last = words.pop().unwrap();
        let sip = words.into_iter().fold(Sip13::new(k0, k1), Sip13::word);
        let hash = SoftHasher { k0, k1 }.hash_key(&key);
        prop_assert_eq!(hash, FlowHash::from_software(sip.finish(last)));
        prop_assert!(!hash.is_none());
    }

    #[test]
    fn different_keys_are_different_messages(a in keys(), b in keys()) {
        // One bit a field, so that equal and almost equal keys are met.
        let (a, b) = (one_bit_each(a), one_bit_each(b));
        prop_assert_eq!(a == b, message(&a) == message(&b));
    }

    #[test]
    fn the_symmetric_hash_is_that_of_the_canonical_key(a in keys(), b in keys()) {
        let hasher = SoftHasher { k0: K0, k1: K1 };
        let (hash, canonical) = (hasher.hash_symmetric(&a), a.canonical());
        prop_assert_eq!(hash, hasher.hash_symmetric(&canonical));
        if a.addr_kind != AddrKind::None && a.addr_kind != AddrKind::Tipc {
            prop_assert_eq!(hash, hasher.hash_symmetric(&a.reversed()));
        }
        let (a, b) = (one_bit_each(a), one_bit_each(b));
        let same = hasher.hash_symmetric(&a) == hasher.hash_symmetric(&b);
        prop_assert_eq!(a.canonical() == b.canonical(), same);
    }
}

#[test]
fn every_field_of_a_key_takes_part_in_the_hash() {
    let base = FlowKey { addr_kind: AddrKind::V6, ..FlowKey::default() };
    let mut changed = Vec::new();
    for byte in 0..16 {
        let (mut src, mut dst) = ([0; 16], [0; 16]);
        (src[byte], dst[byte]) = (1, 1);
        changed.extend([FlowKey { src, ..base }, FlowKey { dst, ..base }]);
    }
    changed.extend([
        base,
        FlowKey { src_port: 1, ..base },
        FlowKey { dst_port: 1, ..base },
        FlowKey { key_id: 1, ..base },
        FlowKey { flow_label: 1, ..base },
        FlowKey { vlan_tci: 1, ..base },
        FlowKey { vlan_tpid: 1, ..base },
        FlowKey { vlan_inner_type: 1, ..base },
        FlowKey { ethertype: 1, ..base },
        FlowKey { protocol: 1, ..base },
        FlowKey { residue: 1, ..base },
        FlowKey { addr_kind: AddrKind::None, ..base },
        FlowKey { addr_kind: AddrKind::V4, ..base },
        FlowKey { addr_kind: AddrKind::Tipc, ..base },
    ]);
    let hashes: std::collections::BTreeSet<_> =
        changed.iter().map(|key| SoftHasher { k0: K0, k1: K1 }.hash_key(key)).collect();
    assert_eq!(hashes.len(), changed.len());
}

#[test]
fn another_key_gives_another_hash() {
    let flow = FlowKey { addr_kind: AddrKind::V4, src_port: 1, ..FlowKey::default() };
    let hash = |k0, k1| SoftHasher { k0, k1 }.hash_key(&flow);
    assert_ne!(hash(0, 0), hash(1, 0));
    assert_ne!(hash(0, 0), hash(0, 1));
    assert_ne!(hash(0, 1), hash(1, 0));
}

/// A function that always gives the same.
#[derive(Clone, Copy)]
struct Always(u64);

impl WordHash for Always {
    fn word(self, _: u64) -> Self {
        self
    }

    fn finish(self, _: u64) -> u64 {
        self.0
    }
}

#[test]
fn a_software_hash_of_0_becomes_1() {
    let key = FlowKey::default();
    for (raw, hash) in [(0, 1), (5 << 32, 1), (1, 1), (2, 2), (u64::MAX, u32::MAX)] {
        assert_eq!(hash_directional(Always(raw), &key), FlowHash(hash));
        assert_eq!(hash_symmetric(Always(raw), &key), FlowHash(hash));
    }
}
