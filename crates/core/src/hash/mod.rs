//! Hashes of flows: Toeplitz as devices compute it, and the keyed software hash.
//!
//! `sip` has the keyed function, `soft` feeds a [`FlowKey`](crate::FlowKey) to it; `toeplitz` has
//! the function of the devices, `rss` its input and `indirection` the map from hash to queue.
//!
//! Always true: a software hash is never 0, since 0 means that a packet has no hash.
//! Elsewhere: which fields a key has ([`mod@crate::dissect`]); what a hash leads to ([`crate::table`]).
//! Source: Linux `reciprocal_scale` and `hash_32`; Microsoft, "RSS hashing types" and "Verifying
//! the RSS hash calculation"; Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.

mod indirection;
mod rss;
mod sip;
mod soft;
mod toeplitz;

pub use indirection::{EmptyTable, IndirectionTable};
pub use rss::RssInput;
pub use sip::{Sip13, Sip24, SipHash};
pub use soft::{SoftHasher, WordHash, hash_directional, hash_symmetric};
pub use toeplitz::{KeyTooShort, ToeplitzKey, ToeplitzTable};

/// A 32-bit flow hash; 0 means that there is none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct FlowHash(pub u32);

impl FlowHash {
    /// The hash of a packet that has none.
    pub const NONE: Self = Self(0);

    /// Returns the hash for the result of a software hash function: its low 32 bits, 1 for 0.
    #[inline(always)]
    pub const fn from_software(raw: u64) -> Self {
        let low = raw as u32;
        Self(if low == 0 { 1 } else { low })
    }

    /// Returns whether there is no hash.
    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Maps the hash onto `0..n` by its high bits: `(hash * n) >> 32`. 0 when `n` is 0.
    ///
    /// How Linux picks from the packed list of the CPUs in a mask (`reciprocal_scale`).
    #[inline(always)]
    pub const fn scale(self, n: u32) -> u32 {
        ((self.0 as u64 * n as u64) >> 32) as u32
    }

    /// Returns the top `bits` bits of the product with 2^32 / φ: the index of Linux's `hash_32`.
    ///
    /// `bits` of 0 gives 0, where a shift by 32 in C is undefined; more than 32 counts as 32.
    #[inline(always)]
    pub const fn mix(self, bits: u32) -> u32 {
        let product = self.0.wrapping_mul(0x61C8_8647);
        match bits {
            0 => 0,
            1..=32 => product >> (32 - bits),
            _ => product,
        }
    }
}

#[cfg(test)]
mod tests;
