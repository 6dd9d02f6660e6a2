//! Cost of a flow hash: the keyed software hash against its relatives, and Toeplitz.
//!
//! Run with `cargo bench -p rxsteer-core --bench hash`. Every case hashes the same 1,024 keys,
//! which stay in the first-level cache; `floor` sums their ports and hashes nothing.
#![allow(missing_docs, reason = "the groups of criterion are not documented items")]

use std::hash::Hasher;
use std::hint::black_box;
use std::time::Duration;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use rxsteer_core::FlowKey;
use rxsteer_core::dissect::AddrKind;
use rxsteer_core::hash::{
    RssInput, Sip24, SoftHasher, ToeplitzKey, ToeplitzTable, WordHash, hash_directional,
};

const KEYS: usize = 1024;
const K0: u64 = 0x0123_4567_89ab_cdef;
const K1: u64 = 0xfedc_ba98_7654_3210;

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
                ..FlowKey::default()
            };
            for (place, byte) in key.src[..bytes].iter_mut().enumerate() {
                *byte = (n.wrapping_mul(0x9e37_79b1) >> (place % 4 * 8)) as u8;
            }
            key.dst[..bytes].fill(10);
            key
        })
        .collect()
}

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

/// A mixing hash without a key: what a sketch would take, and anyone can foresee.
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

fn each(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    keys: &[FlowKey],
    hash: impl Fn(&FlowKey) -> u32,
) {
    group.bench_function(name, |b| {
        b.iter(|| black_box(keys).iter().fold(0u32, |sum, key| sum.wrapping_add(hash(key))));
    });
}

fn software(c: &mut Criterion) {
    for (name, kind) in [("ipv4_udp", AddrKind::V4), ("ipv6_udp", AddrKind::V6)] {
        let keys = keys(kind);
        let mut group = c.benchmark_group(format!("hash/{name}"));
        group.throughput(Throughput::Elements(KEYS as u64));
        let ours = SoftHasher { k0: K0, k1: K1 };
        each(&mut group, "floor", &keys, |key| u32::from(key.src_port));
        each(&mut group, "mix_without_key", &keys, |key| hash_directional(Mix(K0), key).0);
        each(&mut group, "siphash_1_3", &keys, |key| ours.hash_key(key).0);
        each(&mut group, "siphash_1_3_symmetric", &keys, |key| ours.hash_symmetric(key).0);
        each(&mut group, "siphash_2_4", &keys, |key| hash_directional(Sip24::new(K0, K1), key).0);
        each(&mut group, "halfsiphash_1_3", &keys, |key| {
            hash_directional(HalfSip13::new(K0 as u32, K1 as u32), key).0
        });
        each(&mut group, "siphasher_crate_1_3", &keys, |key| {
            // The same fields, as bytes, through the crate that one would take otherwise.
            let mut sip = siphasher::sip::SipHasher13::new_with_keys(K0, K1);
            match kind {
                AddrKind::V4 => {
                    sip.write(&key.src[..4]);
                    sip.write(&key.dst[..4]);
                }
                _ => {
                    sip.write(&key.src);
                    sip.write(&key.dst);
                }
            }
            sip.write_u32(u32::from(key.src_port) | u32::from(key.dst_port) << 16);
            sip.write_u16(key.ethertype);
            sip.write_u8(key.protocol);
            sip.finish() as u32
        });
        group.finish();
    }
}

fn toeplitz(c: &mut Criterion) {
    let table = ToeplitzTable::new(ToeplitzKey::SYMMETRIC);
    for (name, kind) in [("ipv4_ports", AddrKind::V4), ("ipv6_ports", AddrKind::V6)] {
        let keys = keys(kind);
        let mut group = c.benchmark_group(format!("toeplitz/{name}"));
        group.throughput(Throughput::Elements(KEYS as u64));
        each(&mut group, "bit_by_bit", &keys, |key| {
            RssInput::from_key(key, true).map_or(0, |input| ToeplitzKey::SYMMETRIC.hash(&input))
        });
        each(&mut group, "tables", &keys, |key| {
            RssInput::from_key(key, true).map_or(0, |input| table.hash(&input))
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = software, toeplitz
}
criterion_main!(benches);
