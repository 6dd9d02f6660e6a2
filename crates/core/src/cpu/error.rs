//! Why a text is not a set of CPUs: the place and the reason, small enough to copy.

use core::fmt;

use crate::CpuId;

/// Why a text was refused as a set of CPUs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuSetError {
    /// Byte of the text at which the reason shows, from 0.
    pub at: u32,
    /// What is wrong there.
    pub reason: CpuSetReason,
}

/// What is wrong with the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CpuSetReason {
    /// The list has something else, or nothing, where a CPU number must stand.
    NoNumber,
    /// The mask has something else, or nothing, where a hexadecimal digit must stand.
    NoHexDigit,
    /// This byte cannot follow what stands before it.
    Unexpected(u8),
    /// The range ends below its start.
    Backwards {
        /// First id of the range.
        first: u32,
        /// Last id of the range.
        last: u32,
    },
    /// `:used/group` does not pick 1 to `group` ids out of each group.
    BadStride {
        /// Ids taken of each group.
        used: u32,
        /// Ids in a group.
        group: u32,
    },
    /// A CPU id at or above [`CpuId::LIMIT`]; `u32::MAX` stands for all that is larger still.
    AboveLimit(u32),
    /// A word of the mask with more than 8 digits, so more than 32 bits: Linux answers EOVERFLOW.
    WordTooLong,
    /// The mask has a bit that no CPU of the host can have: Linux answers EOVERFLOW.
    Overflow {
        /// The highest such bit.
        bit: u32,
        /// One more than the highest possible CPU id.
        nr_cpu_ids: u32,
    },
}

impl fmt::Display for CpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.reason, self.at)
    }
}

impl fmt::Display for CpuSetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoNumber => f.write_str("a CPU number must stand here"),
            Self::NoHexDigit => f.write_str("a hexadecimal digit must stand here, without 0x"),
            Self::Unexpected(byte) => write!(f, "'{}' cannot stand here", byte.escape_ascii()),
            Self::Backwards { first, last } => {
                write!(f, "the range {first}-{last} ends below its start")
            }
            Self::BadStride { used, group } => {
                write!(
                    f,
                    ":{used}/{group} must take at least 1 and at most {group} of each {group}"
                )
            }
            Self::AboveLimit(u32::MAX) => {
                write!(f, "a CPU id is above the highest supported, {}", CpuId::LIMIT - 1)
            }
            Self::AboveLimit(id) => {
                write!(f, "CPU {id} is above the highest supported, {}", CpuId::LIMIT - 1)
            }
            Self::WordTooLong => f.write_str(
                "a word of the mask has more than 32 bits (8 digits): put a comma between words",
            ),
            Self::Overflow { bit, nr_cpu_ids } => {
                write!(f, "bit {bit} is set, but CPU ids end at {}", nr_cpu_ids.saturating_sub(1))
            }
        }
    }
}

impl core::error::Error for CpuSetError {}
