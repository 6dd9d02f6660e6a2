//! Why a replay cannot begin.

use std::fmt;

use crate::host::SizeError;

/// Why a replay cannot begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReplayError {
    /// A table size of the sweep that the kernel would refuse.
    Size(SizeError),
    /// More table sizes in the sweep than [`MAX_SWEEP`](super::ReplayOptions::MAX_SWEEP).
    SweepTooLong(usize),
    /// The indirection table names a queue that the host does not have.
    NoSuchQueue {
        /// The queue.
        queue: u16,
        /// Queues of the host.
        queues: usize,
    },
    /// The hash key has fewer than 40 bytes.
    ShortKey(usize),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(error) => error.fmt(f),
            Self::SweepTooLong(count) => {
                write!(f, "{count} table sizes: at most {}", super::ReplayOptions::MAX_SWEEP)
            }
            Self::NoSuchQueue { queue, queues } => write!(
                f,
                "the RSS indirection table names queue {queue}, but the host has {queues} (0 to {})",
                queues.saturating_sub(1)
            ),
            Self::ShortKey(len) => {
                write!(f, "the RSS hash key has {len} bytes; at least 40 are needed")
            }
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<SizeError> for ReplayError {
    fn from(error: SizeError) -> Self {
        Self::Size(error)
    }
}
