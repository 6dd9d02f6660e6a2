//! Identities of CPUs and queues: newtypes, so that they cannot be swapped unseen.

use core::fmt;

/// Number of a CPU as the kernel numbers it; ids may have gaps.
///
/// Valid ids are `0..CpuId::LIMIT`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct CpuId(pub u16);

impl CpuId {
    /// One more than the highest CPU id that any part of this crate accepts.
    pub const LIMIT: u16 = 4096;

    /// Returns the id as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a receive queue of a device, from 0.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct QueueId(pub u16);

impl QueueId {
    /// Returns the id as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
