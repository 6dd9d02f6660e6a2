//! Hashes of flows: Toeplitz as devices compute it, and the keyed software hash.

/// A 32-bit flow hash; 0 means that there is none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct FlowHash(pub u32);

impl FlowHash {
    /// The hash of a packet that has none.
    pub const NONE: Self = Self(0);

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
    /// `bits` of 0 gives 0, where a shift by 32 in C is undefined.
    #[inline(always)]
    pub const fn mix(self, bits: u32) -> u32 {
        if bits == 0 { 0 } else { self.0.wrapping_mul(0x61C8_8647) >> (32 - bits) }
    }
}
