//! The software hash: a [`FlowKey`] in as few words as it needs, through a keyed function.
//!
//! The key of 128 bits is drawn at random at each start, so a sender cannot choose packets that
//! share a table bucket or a CPU: that is what Linux uses SipHash for, and a mixing hash or
//! Toeplitz with a known key does not give it. SipHash-1-3 is the choice by measurement (see
//! `docs/benchmarks.md`): a 64-bit machine does it over two words for an IPv4 key, 5 rounds in
//! all. SipHash-2-4 takes 8; HalfSipHash-1-3 takes 7, since its words are half as wide, and its key
//! is only 64 bits. One round per word and three at the end is the variant for hash tables, where
//! only whether values collide can be seen from outside, not the values.
//!
//! The words of a message, each as wide as SipHash's:
//!
//! | word | when | what, from the low bits |
//! | --- | --- | --- |
//! | addresses | IPv4 | source, destination |
//! | | IPv6 | source and destination, two words each |
//! | | TIPC | source |
//! | labels | any field of these three words is not 0 | GRE key, flow label |
//! | tag | with labels | tag control information, tag protocol, ethertype behind it |
//! | residue | it is not 0 | the key's residue |
//! | last | always | source port, destination port, ethertype, protocol, kind of message |
//!
//! Always true: different keys are different messages, since the top byte of the last word tells
//! which words came before it; so they share a hash only as often as random numbers do.

use super::{FlowHash, Sip13};
use crate::FlowKey;
use crate::dissect::AddrKind;

/// A hash function over 64-bit words. [`SipHash`](super::SipHash) is one; a test may bring another.
pub trait WordHash: Copy {
    /// Takes in one word.
    #[must_use]
    fn word(self, word: u64) -> Self;

    /// Takes in the last word and returns the hash.
    fn finish(self, last: u64) -> u64;
}

impl<const C: usize, const D: usize> WordHash for super::SipHash<C, D> {
    #[inline(always)]
    fn word(self, word: u64) -> Self {
        Self::word(self, word)
    }

    #[inline(always)]
    fn finish(self, last: u64) -> u64 {
        Self::finish(self, last)
    }
}

/// The keyed hash of flows: SipHash-1-3 under a key of 128 bits.
///
/// # Examples
/// ```
/// use rxsteer_core::FlowKey;
/// use rxsteer_core::dissect::AddrKind;
/// use rxsteer_core::hash::SoftHasher;
/// let addr_kind = AddrKind::V4;
/// let request = FlowKey { addr_kind, src_port: 40_000, dst_port: 53, ..FlowKey::EMPTY };
/// let answer = request.reversed();
/// let hasher = SoftHasher { k0: 1, k1: 2 }; // live: 16 random bytes
/// assert_eq!(hasher.hash_symmetric(&request), hasher.hash_symmetric(&answer));
/// assert_ne!(hasher.hash_key(&request), hasher.hash_key(&answer));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct SoftHasher {
    /// First half of the key.
    pub k0: u64,
    /// Second half of the key.
    pub k1: u64,
}

impl SoftHasher {
    /// Returns the hash of the key as it stands; the two directions of a flow differ. Never 0.
    #[inline(always)]
    pub fn hash_key(&self, key: &FlowKey) -> FlowHash {
        hash_directional(Sip13::new(self.k0, self.k1), key)
    }

    /// Returns one hash for both directions of a flow, as Linux does. Never 0.
    ///
    /// The two addresses are put in order and, separately, the two ports: so `a:1 > b:2` and
    /// `a:2 > b:1` share a hash although they are different flows. Keys that have one
    /// [`canonical`](FlowKey::canonical) form have one hash; TIPC and keys without addresses stay
    /// as they are.
    #[inline(always)]
    pub fn hash_symmetric(&self, key: &FlowKey) -> FlowHash {
        hash_symmetric(Sip13::new(self.k0, self.k1), key)
    }
}

/// Returns the hash of the key as it stands, by any function. Never 0.
#[inline(always)]
pub fn hash_directional<H: WordHash>(hash: H, key: &FlowKey) -> FlowHash {
    hash_words::<H, false>(hash, key)
}

/// Returns one hash for both directions of a flow, by any function. Never 0.
#[inline(always)]
pub fn hash_symmetric<H: WordHash>(hash: H, key: &FlowKey) -> FlowHash {
    hash_words::<H, true>(hash, key)
}

/// Bit of the last word that says that labels and tag came before it.
const LABELLED: u64 = 1 << 63;

/// Bit of the last word that says that a residue came before it.
const WITH_RESIDUE: u64 = 1 << 62;

#[inline(always)]
fn hash_words<H: WordHash, const SORT: bool>(mut hash: H, key: &FlowKey) -> FlowHash {
    if key.addr_kind == AddrKind::V4 {
        let (mut a, mut b) = (low_u32(&key.src), low_u32(&key.dst));
        if SORT && a > b {
            (a, b) = (b, a);
        }
        hash = hash.word(u64::from(a) | u64::from(b) << 32);
    } else if key.addr_kind == AddrKind::V6 {
        let (mut a, mut b) = (halves(&key.src), halves(&key.dst));
        if SORT && a > b {
            (a, b) = (b, a);
        }
        hash = hash.word(a.0).word(a.1).word(b.0).word(b.1);
    } else if key.addr_kind == AddrKind::Tipc {
        hash = hash.word(u64::from(low_u32(&key.src)));
    }
    let (mut src_port, mut dst_port) = (key.src_port, key.dst_port);
    let sorted = matches!(key.addr_kind, AddrKind::V4 | AddrKind::V6);
    if SORT && sorted && src_port > dst_port {
        (src_port, dst_port) = (dst_port, src_port);
    }
    let mut last = u64::from(src_port)
        | u64::from(dst_port) << 16
        | u64::from(key.ethertype) << 32
        | u64::from(key.protocol) << 48
        | (key.addr_kind as u64) << 56;
    let labels = u64::from(key.key_id) | u64::from(key.flow_label) << 32;
    let tag = u64::from(key.vlan_tci)
        | u64::from(key.vlan_tpid) << 16
        | u64::from(key.vlan_inner_type) << 32;
    let residue = u64::from(key.residue);
    if labels | tag | residue != 0 {
        hash = hash.word(labels).word(tag);
        last |= LABELLED;
        if residue != 0 {
            hash = hash.word(residue);
            last |= WITH_RESIDUE;
        }
    }
    FlowHash::from_software(hash.finish(last))
}

/// Returns the first four bytes as a number, the same on every machine.
#[inline(always)]
fn low_u32(address: &[u8; 16]) -> u32 {
    let [a, b, c, d, ..] = *address;
    u32::from_le_bytes([a, b, c, d])
}

/// Returns the two halves of an address as numbers, the same on every machine.
#[inline(always)]
fn halves(address: &[u8; 16]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *address;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]))
}
