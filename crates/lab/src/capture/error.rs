//! What can be wrong with a capture, and where.
//!
//! Always true: an error about the contents names the file, the byte and the reason; offsets count
//! from 0 in the capture itself, so in a compressed file after decompression.

use std::fmt;
use std::io;

/// Why a capture could not be opened or read on: the file, the place and the reason.
#[derive(Debug)]
pub struct CaptureError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    file: String,
    offset: Option<u64>,
    reason: CaptureFault,
}

impl CaptureError {
    pub(super) fn new(file: &str, offset: Option<u64>, reason: CaptureFault) -> Self {
        Self(Box::new(Inner { file: file.to_owned(), offset, reason }))
    }

    /// Returns the name of the file, `stdin` for the standard input.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// Returns the byte of the capture at which the faulty part starts (after decompression), or
    /// `None` if the fault is not at a place in the contents.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Returns place and reason, without the name of the file.
    pub fn place(&self) -> String {
        match (self.0.offset, &self.0.reason) {
            // A truncation says itself where it is.
            (Some(offset), reason) if !matches!(reason, CaptureFault::Truncated(_)) => {
                format!("at byte {offset}: {reason}")
            }
            (_, reason) => reason.to_string(),
        }
    }

    /// Returns the reason.
    pub fn reason(&self) -> &CaptureFault {
        &self.0.reason
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.file, self.place())
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.reason {
            CaptureFault::Open(error) | CaptureFault::Read(error) => Some(error),
            _ => None,
        }
    }
}

/// A reason for a [`CaptureError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptureFault {
    /// The file cannot be opened.
    Open(io::Error),
    /// Reading fails; a fault in compressed data is one too.
    Read(io::Error),
    /// The path names a directory.
    Directory,
    /// The standard input is named more than once.
    StdinTwice,
    /// There are more files than a packet's source index can count.
    TooManyFiles(usize),
    /// The input has no bytes at all.
    Empty,
    /// The contents begin like no capture; these are the first bytes.
    NotACapture(Vec<u8>),
    /// The capture ends early and [`CaptureOptions::strict`](super::CaptureOptions) is set.
    Truncated(Truncation),
    /// A pcap or pcapng version that is not read.
    Version {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The byte-order magic of a section header is neither order of 0x1a2b3c4d.
    ByteOrder(u32),
    /// The block length is below the least that a block of this type has.
    BlockTooShort {
        /// Block type.
        kind: u32,
        /// Length that the block states, in bytes.
        length: u32,
        /// Least length of such a block, in bytes.
        least: u32,
    },
    /// The block length is not a multiple of 4.
    BlockUnaligned(u32),
    /// The block or record is longer than the block limit.
    BlockOverLimit {
        /// Bytes stated.
        length: u64,
        /// [`CaptureOptions::block_limit`](super::CaptureOptions), in bytes.
        limit: u64,
    },
    /// The length at the end of the block differs from the one at its start.
    TrailerDiffers {
        /// Length at the start of the block.
        length: u32,
        /// Length at its end.
        trailer: u32,
    },
    /// A packet names an interface that its section does not declare.
    UndeclaredInterface {
        /// Number of the interface in its section.
        interface: u32,
        /// Interfaces declared before the packet.
        declared: u32,
    },
    /// A section declares more interfaces than are kept in memory.
    TooManyInterfaces(u32),
    /// The captured length does not fit.
    CapturedLength {
        /// Captured length stated, in bytes.
        cap_len: u32,
        /// The most that it may be, in bytes.
        most: u32,
        /// What bounds it.
        bound: &'static str,
    },
    /// An option is longer than what is left of its block.
    OptionOverrun {
        /// Option code.
        code: u16,
        /// Length stated, in bytes.
        length: u16,
        /// Bytes left in the block.
        left: u32,
    },
    /// An option has another length than its code prescribes.
    OptionLength {
        /// Name of the option.
        name: &'static str,
        /// Length stated, in bytes.
        length: u16,
        /// Length prescribed, in bytes.
        right: u16,
    },
}

impl fmt::Display for CaptureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(f, "cannot open: {error}"),
            Self::Read(error) => write!(f, "cannot read: {error}"),
            Self::Directory => f.write_str("is a directory, not a capture"),
            Self::StdinTwice => f.write_str("the standard input can be read only once"),
            Self::TooManyFiles(count) => write!(f, "{count} files; at most 65535 can be merged"),
            Self::Empty => f.write_str("is empty (0 bytes), not a capture"),
            Self::NotACapture(first) => not_a_capture(f, first),
            Self::Truncated(truncation) => truncation.fmt(f),
            Self::Version { format, major, minor } => {
                write!(f, "{format} version {major}.{minor} is not read")
            }
            Self::ByteOrder(magic) => write!(
                f,
                "byte-order magic {magic:#010x} of the section is neither 0x1a2b3c4d nor 0x4d3c2b1a"
            ),
            Self::BlockTooShort { kind, length, least } => {
                write!(f, "block length {length} is below {least}, the least for type {kind:#x}")
            }
            Self::BlockUnaligned(length) => write!(f, "block length {length} is no multiple of 4"),
            Self::BlockOverLimit { length, limit } => {
                write!(f, "a block of {length} bytes is over the block limit of {limit}")
            }
            Self::TrailerDiffers { length, trailer } => {
                write!(f, "block length {length} at its start, {trailer} at its end")
            }
            Self::UndeclaredInterface { declared: 0, .. } => {
                f.write_str("a packet before any interface is declared")
            }
            Self::UndeclaredInterface { interface, declared } => {
                write!(f, "interface {interface} is not declared ({declared} are, from 0)")
            }
            Self::TooManyInterfaces(limit) => {
                write!(f, "more than {limit} interfaces in one section")
            }
            Self::CapturedLength { cap_len, most, bound } => {
                write!(f, "captured length {cap_len} is over the {most} bytes of the {bound}")
            }
            Self::OptionOverrun { code, length, left } => {
                write!(f, "option {code} of {length} bytes, {left} bytes are left in the block")
            }
            Self::OptionLength { name, length, right } => {
                write!(f, "option {name} has {length} bytes instead of {right}")
            }
        }
    }
}

/// Says how the contents begin, and what that is if another kind of file is known to begin so.
fn not_a_capture(f: &mut fmt::Formatter<'_>, first: &[u8]) -> fmt::Result {
    f.write_str("neither pcap nor pcapng: starts with")?;
    for byte in first {
        write!(f, " {byte:02x}")?;
    }
    const KNOWN: &[(&[u8], &str)] = &[
        (b"\x1f\x8b", "gzip inside the compressed data"),
        (b"\x28\xb5\x2f\xfd", "zstd inside the compressed data"),
        (b"\xfd7zXZ\x00", "xz: decompress it first"),
        (b"BZh", "bzip2: decompress it first"),
        (b"\x04\x22\x4d\x18", "lz4: decompress it first"),
        (b"PK\x03\x04", "zip"),
        (b"snoop\0", "snoop"),
        (b"btsnoop\0", "btsnoop"),
        (b"GMBU", "Microsoft Network Monitor"),
        (b"RTSS", "Microsoft Network Monitor"),
        (b"\x7fELF", "an ELF program"),
    ];
    match KNOWN.iter().find(|(magic, _)| first.starts_with(magic)) {
        Some((_, name)) => write!(f, " ({name})"),
        None => Ok(()),
    }
}

/// Where a capture ends early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Truncation {
    /// Byte at which the incomplete block, record or header starts.
    pub offset: u64,
    /// Bytes it has when complete, as far as can be told from what is there.
    pub wants: u64,
    /// Bytes of it that are there, less than `wants`; or 0 of 0 if only the compression is cut.
    pub left: u64,
    /// Complete packets before it.
    pub packets: u64,
    /// Whether the compressed stream itself ends early.
    pub compressed: bool,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, wants, left, packets, compressed } = self;
        write!(f, "truncated at byte {offset}: ")?;
        if *wants > 0 {
            write!(f, "block wants {wants}, {left} left; ")?;
        }
        write!(f, "{packets} packets read")?;
        if *compressed {
            f.write_str(" (the compressed data ends early; offsets are after decompression)")?;
        }
        Ok(())
    }
}
