//! Sets of CPUs, in the two notations of Linux.

/// A set of CPU ids below [`CpuId::LIMIT`](crate::CpuId::LIMIT).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuSet {
    words: [u64; 64],
}

impl CpuSet {
    /// The set of no CPU.
    pub const EMPTY: Self = Self { words: [0; 64] };

    /// Returns whether the set holds `cpu`.
    #[inline]
    pub fn contains(&self, cpu: crate::CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|w| w >> (cpu.index() % 64) & 1 == 1)
    }
}
