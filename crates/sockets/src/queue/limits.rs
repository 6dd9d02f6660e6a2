//! How much a queue may hold, and when what was read counts as gone.

use crate::Profile;

/// Limits of one queue. An empty queue always takes one datagram, however large.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Limits {
    /// Most bytes of true size (`sk_rcvbuf`: what `SO_RCVBUF` shows). A datagram is refused if it
    /// would make the sum *greater*.
    pub bytes: u32,
    /// Most datagrams; Linux has no such limit.
    pub packets: u32,
}

impl Limits {
    /// Creates a limit of so many bytes and no limit of datagrams.
    pub const fn bytes(bytes: u32) -> Self {
        Self { bytes, packets: u32::MAX }
    }
}

impl Default for Limits {
    /// Linux's default receive buffer, 212,992 bytes, and no limit of datagrams.
    fn default() -> Self {
        Self::bytes(212_992)
    }
}

/// When what was read counts as gone.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Release {
    /// At once, or for a batch when the batch is taken: the queue is never thought fuller than it
    /// is. Costs a write to the credit line for each read.
    #[default]
    Exact,
    /// As Linux does: when a quarter of the buffer was read, or the reader's own queue has run
    /// empty. Until then the socket looks fuller than it is, and may drop what would fit. With each
    /// release the reader's queue takes over what has arrived since, so it runs empty later.
    Quarter,
}

impl From<Profile> for Release {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Linux | Profile::LinuxOf(_) => Self::Quarter,
            Profile::Rxsteer | Profile::Keeping(_) => Self::Exact,
        }
    }
}

/// An empty queue takes anything, but from this limit on Linux refuses that too: a sum could pass
/// what its signed counter holds.
pub(super) const HUGE_LIMIT: u64 = (i32::MAX / 2) as u64;
