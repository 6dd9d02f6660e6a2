//! A flow hash alone: the keyed software hash against its relatives, and Toeplitz.
//!
//! Each case hashes the same 256 keys, which stay in the first-level cache.

use std::hash::Hasher;
use std::hint::black_box;

use rxsteer_core::FlowKey;
use rxsteer_core::dissect::AddrKind;
use rxsteer_core::hash::{
    RssInput, Sip24, SoftHasher, ToeplitzKey, ToeplitzTable, WordHash, hash_directional,
};

use super::Case;

const KEYS: usize = 256;
pub(crate) const K0: u64 = 0x0123_4567_89ab_cdef;
pub(crate) const K1: u64 = 0xfedc_ba98_7654_3210;

/// HalfSipHash-1-3 as the paper's authors define it: the candidate with 32-bit words.
#[derive(Clone, Copy)]
struct HalfSip13([u32; 4]);

impl HalfSip13 {
    fn new(k0: u32, k1: u32) -> Self {
        Self([k0, k1, k0 ^ 0x6c79_6765, k1 ^ 0x7465_6462])
    }

    #[inline(always)]
    fn round(self) -> Self {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(5) ^ a;
        d = d.rotate_left(8) ^ c;
        a = a.rotate_left(16).wrapping_add(d);
        c = c.wrapping_add(b);
        b = b.rotate_left(13) ^ c;
        d = d.rotate_left(7) ^ a;
        Self([a, b, c.rotate_left(16), d])
    }

    #[inline(always)]
    fn half(mut self, word: u32) -> Self {
        self.0[3] ^= word;
        self = self.round();
        self.0[0] ^= word;
        self
    }
}

impl WordHash for HalfSip13 {
    #[inline(always)]
    fn word(self, word: u64) -> Self {
        self.half(word as u32).half((word >> 32) as u32)
    }

    #[inline(always)]
    fn finish(self, last: u64) -> u64 {
        let mut state = self.word(last);
        state.0[2] ^= 0xff;
        let state = state.round().round().round();
        u64::from(state.0[1] ^ state.0[3])
    }
}

/// A mixing hash without a key: cheap, and anyone can foresee it.
#[derive(Clone, Copy)]
struct Mix(u64);

impl WordHash for Mix {
    #[inline(always)]
    fn word(self, word: u64) -> Self {
        Self((self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }

    #[inline(always)]
    fn finish(self, last: u64) -> u64 {
        let hash = self.word(last).0;
        hash ^ hash >> 32
    }
}

fn keys(addr_kind: AddrKind) -> Vec<FlowKey> {
    let bytes = if addr_kind == AddrKind::V4 { 4 } else { 16 };
    (0..KEYS as u32)
        .map(|n| {
            let mut key = FlowKey {
                src_port: 1024 + n as u16,
                dst_port: 443,
                ethertype: if addr_kind == AddrKind::V4 { 0x0800 } else { 0x86dd },
                protocol: 17,
                addr_kind,
                ..FlowKey::EMPTY
            };
            for (place, byte) in key.src[..bytes].iter_mut().enumerate() {
                *byte = (n.wrapping_mul(0x9e37_79b1) >> (place % 4 * 8)) as u8;
            }
            key.dst[..bytes].fill(10);
            key
        })
        .collect()
}

fn each(
    group: &str,
    name: &'static str,
    keys: &[FlowKey],
    hash: impl Fn(&FlowKey) -> u32 + 'static,
) -> Case {
    let keys = keys.to_vec();
    Case::new(group, name, KEYS, move || {
        black_box(&keys[..]).iter().fold(0, |sum, key| sum + u64::from(hash(key)))
    })
}

/// The same fields, as bytes, through the crate that one would take otherwise; it is told how long
/// the addresses are and does not look whether there is a VLAN tag, GRE key or flow label.
fn by_siphasher<const N: usize>(key: &FlowKey) -> u32 {
    let mut sip = siphasher::sip::SipHasher13::new_with_keys(K0, K1);
    sip.write(&key.src[..N]);
    sip.write(&key.dst[..N]);
    sip.write_u32(u32::from(key.src_port) | u32::from(key.dst_port) << 16);
    sip.write_u16(key.ethertype);
    sip.write_u8(key.protocol);
    sip.finish() as u32
}

/// What a device would get of the key.
fn rss(key: &FlowKey) -> RssInput {
    RssInput::from_key(key, true).expect("an IP key")
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, kind) in [("ipv4_udp", AddrKind::V4), ("ipv6_udp", AddrKind::V6)] {
        let keys = keys(kind);
        let group = format!("hash/{name}");
        let ours = SoftHasher { k0: K0, k1: K1 };
        cases.push(each(&group, "floor: sum of ports", &keys, |key| u32::from(key.src_port)));
        cases.push(each(&group, "mix without key", &keys, |k| hash_directional(Mix(K0), k).0));
        cases.push(each(&group, "SipHash-1-3", &keys, move |key| ours.hash_key(key).0));
        cases.push(each(&group, "SipHash-1-3 symmetric", &keys, move |k| ours.hash_symmetric(k).0));
        cases.push(each(&group, "SipHash-2-4", &keys, |key| {
            hash_directional(Sip24::new(K0, K1), key).0
        }));
        cases.push(each(&group, "HalfSipHash-1-3", &keys, |key| {
            hash_directional(HalfSip13::new(K0 as u32, K1 as u32), key).0
        }));
        cases.push(match kind {
            AddrKind::V4 => each(&group, "siphasher crate, 1-3", &keys, by_siphasher::<4>),
            _ => each(&group, "siphasher crate, 1-3", &keys, by_siphasher::<16>),
        });
        let table = ToeplitzTable::new(ToeplitzKey::SYMMETRIC);
        cases.push(each(&group, "Toeplitz, tables", &keys, move |key| table.hash(&rss(key))));
        cases.push(each(&group, "Toeplitz, bit by bit", &keys, |key| {
            ToeplitzKey::SYMMETRIC.hash(&rss(key))
        }));
    }
    cases
}
