//! The cases of the benches, once: `criterion` tracks them, `table` prints them for the docs.
//!
//! A case runs a fixed number of operations and returns a sum of what they said, so that none can
//! be left out by the compiler.
#![allow(dead_code, reason = "each bench uses a part of this")]

pub(crate) mod hashes;
pub(crate) mod packets;
pub(crate) mod probes;

/// One thing to measure.
pub(crate) struct Case {
    /// Group and what varies: `packet/ipv4_udp/64B`.
    pub(crate) group: String,
    /// What is run.
    pub(crate) name: &'static str,
    /// Operations of one run.
    pub(crate) ops: u64,
    /// The run.
    pub(crate) run: Box<dyn FnMut() -> u64>,
}

impl Case {
    pub(crate) fn new(
        group: impl Into<String>,
        name: &'static str,
        ops: usize,
        run: impl FnMut() -> u64 + 'static,
    ) -> Self {
        Self { group: group.into(), name, ops: ops as u64, run: Box::new(run) }
    }
}

/// A stream of well-mixed numbers (splitmix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}
