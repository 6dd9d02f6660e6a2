//! SipHash over 64-bit words: a hash that nobody without the key can foresee or steer.
//!
//! Written from the paper (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012,
//! section 2). Our own and not a crate, because it must compile into an eBPF program: words in,
//! no byte buffer on a stack of 512 bytes, no `u128`, no panic. On a host the `siphasher` crate
//! takes as long or twice as long, by how its buffer of bytes is filled (`docs/benchmarks.md`).

/// SipHash with `C` rounds for each word and `D` rounds at the end.
///
/// A message is whole words and then one last word, whose top byte is the length of the message in
/// bytes modulo 256 and whose other bytes are the 0 to 7 bytes that are left, little-endian.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SipHash<const C: usize, const D: usize> {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

/// The faster member of the family, as used by the hash tables of Rust and, for flows, by us.
pub type Sip13 = SipHash<1, 3>;

/// The member that the paper proposes and has vectors for; Linux hashes flows with it.
pub type Sip24 = SipHash<2, 4>;

impl<const C: usize, const D: usize> SipHash<C, D> {
    /// Starts with a key of 128 bits, `k0` its first 8 bytes, little-endian.
    #[inline(always)]
    pub const fn new(k0: u64, k1: u64) -> Self {
        // The initial state is the ASCII text "somepseudorandomlygeneratedbytes" under the key.
        Self {
            v0: k0 ^ u64::from_be_bytes(*b"somepseu"),
            v1: k1 ^ u64::from_be_bytes(*b"dorandom"),
            v2: k0 ^ u64::from_be_bytes(*b"lygenera"),
            v3: k1 ^ u64::from_be_bytes(*b"tedbytes"),
        }
    }

    /// Takes in one word.
    #[inline(always)]
    #[must_use]
    pub const fn word(mut self, word: u64) -> Self {
        self.v3 ^= word;
        let mut round = 0;
        while round < C {
            self = self.round();
            round += 1;
        }
        self.v0 ^= word;
        self
    }

    /// Takes in the last word, with the length in its top byte, and returns the hash.
    #[inline(always)]
    pub const fn finish(self, last: u64) -> u64 {
        let mut s = self.word(last);
        s.v2 ^= 0xff;
        let mut round = 0;
        while round < D {
            s = s.round();
            round += 1;
        }
        s.v0 ^ s.v1 ^ s.v2 ^ s.v3
    }

    /// Returns the hash of a message of bytes.
    pub fn hash_bytes(self, message: &[u8]) -> u64 {
        let (words, rest) = message.as_chunks::<8>();
        let state = words.iter().fold(self, |state, word| state.word(u64::from_le_bytes(*word)));
        let rest = rest.iter().rev().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
        state.finish((message.len() as u64) << 56 | rest)
    }

    #[inline(always)]
    const fn round(mut self) -> Self {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
        self
    }
}
