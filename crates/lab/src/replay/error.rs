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
    /// The flow tables would need more memory than
    /// [`MAX_TABLE_BYTES`](super::ReplayOptions::MAX_TABLE_BYTES).
    TablesTooLarge {
        /// Bytes of the tables of all policies and sizes.
        bytes: u64,
    },
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
            Self::TablesTooLarge { bytes } => {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                let (bytes, most) = (mib(*bytes), mib(super::ReplayOptions::MAX_TABLE_BYTES));
                write!(
                    f,
                    "the flow tables of all policies and table sizes would take {bytes} MiB; \
                     allowed are {most} MiB: ask for fewer entries, policies or sizes"
                )
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
