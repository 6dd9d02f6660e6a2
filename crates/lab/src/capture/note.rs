//! What a reader should be told about a capture that could be read.

use std::fmt;

use super::{LinkType, Truncation};

/// Something about one capture file that its packets do not show.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaptureNote {
    /// Name of the file, `stdin` for the standard input.
    pub file: String,
    /// Index of the file among those opened.
    pub source: u16,
    /// What there is to say.
    pub kind: NoteKind,
}

impl CaptureNote {
    /// Returns whether packets may be missing that the capture should have had.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind, NoteKind::Truncated(_))
    }
}

impl fmt::Display for CaptureNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.kind)
    }
}

/// What a [`CaptureNote`] says; all counts are of packets delivered or blocks read so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NoteKind {
    /// The capture ends inside a block; all complete packets were delivered.
    Truncated(Truncation),
    /// The whole capture was read and has no packet.
    NoPackets,
    /// Blocks of this pcapng type were skipped.
    SkippedBlocks {
        /// Block type, or `None` for all types together that came after the first 16.
        block_type: Option<u32>,
        /// How many.
        blocks: u64,
    },
    /// Packets older than the one before them in the same file.
    TimeBackwards {
        /// How many.
        packets: u64,
        /// The largest step back, in nanoseconds.
        most_ns: u64,
    },
    /// Packets whose record has no time; they got that of the packet before.
    NoTime {
        /// How many.
        packets: u64,
    },
    /// Packets whose time is before 1970 or after 2554; they got the nearest that fits.
    TimeOutOfRange {
        /// How many.
        packets: u64,
    },
    /// Packets of a link type that [`LinkType::start`] does not read.
    UnknownLink {
        /// The link type, or `None` for all types together that came after the first 16.
        link: Option<LinkType>,
        /// How many.
        packets: u64,
    },
    /// Packets that, by their record, have more bytes captured than they had on the wire.
    LongerThanWire {
        /// How many.
        packets: u64,
    },
    /// Packets with a queue number over 65535; they have no queue.
    QueueOutOfRange {
        /// How many.
        packets: u64,
    },
    /// Packets that the capturing side lost, as the capture says.
    Lost {
        /// How many.
        packets: u64,
    },
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated(truncation) => truncation.fmt(f),
            Self::NoPackets => f.write_str("a capture without packets (0 packets)"),
            Self::SkippedBlocks { block_type: Some(kind), blocks } => {
                write!(f, "blocks of type {kind:#x} ({}) skipped: {blocks}", block_name(kind))
            }
            Self::SkippedBlocks { block_type: None, blocks } => {
                write!(f, "blocks of other types skipped: {blocks}")
            }
            Self::TimeBackwards { packets, most_ns } => write!(
                f,
                "packets older than the one before: {packets}, by at most {}.{:09} s",
                most_ns / 1_000_000_000,
                most_ns % 1_000_000_000
            ),
            Self::NoTime { packets } => {
                write!(f, "packets without a time, given that of the packet before: {packets}")
            }
            Self::TimeOutOfRange { packets } => {
                write!(f, "packets with a time before 1970 or after 2554: {packets}")
            }
            Self::UnknownLink { link: Some(link), packets } => {
                write!(f, "packets of link type {link}, which is not read: {packets}")
            }
            Self::UnknownLink { link: None, packets } => {
                write!(f, "packets of other link types, which are not read: {packets}")
            }
            Self::LongerThanWire { packets } => {
                write!(f, "packets with more bytes captured than on the wire: {packets}")
            }
            Self::QueueOutOfRange { packets } => {
                write!(f, "packets with a queue number over 65535: {packets}")
            }
            Self::Lost { packets } => write!(f, "packets lost while capturing: {packets}"),
        }
    }
}

/// Names of the registered block types (pcapng draft, section 11.1) that may be skipped.
fn block_name(kind: u32) -> &'static str {
    match kind {
        4 => "name resolution",
        5 => "interface statistics",
        9 => "systemd journal",
        10 => "decryption secrets",
        0x0bad | 0x4000_0bad => "custom",
        0x8000_0000.. => "local use",
        _ => "unknown",
    }
}
