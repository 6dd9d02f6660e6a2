//! The generator's random numbers: one small stream an actor, the same on every machine.
//!
//! Always true: the values depend on the seed and the stream number alone; no floating point and no
//! range sampling of another crate takes part, so that a newer crate cannot change a capture.
//! Source: PCG XSL RR 128/64 (MCG), M. O'Neill, 2014, from the `rand_pcg` crate.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

/// A seeded stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64Mcg);

impl Rng {
    /// Starts stream number `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        // The state of an MCG is odd; the constructor sets the low bit. Two odd constants keep
        // neighbouring seeds and streams apart.
        let high = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream.rotate_left(32);
        let low = stream.wrapping_mul(0xD134_2543_DE82_EF95) ^ seed.rotate_left(17);
        let mut rng = Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low << 1 | 1));
        // The first outputs of close states resemble each other.
        for _ in 0..4 {
            rng.next_u64();
        }
        Self(rng)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number in `0..n`, or 0 if `n` is 0.
    ///
    /// Scales by the high half of a product: the bias is below `n` / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number in `mean / 2 .. mean * 3 / 2`: a gap that varies about its mean.
    pub fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + self.below(mean)
    }
}
