//! Captures: packets from pcap and pcapng files, pipes and the standard input, in order of time.
//!
//! [`Captures`] opens one or several sources, plain or compressed with gzip or zstd, and gives their
//! packets one by one, merged by time; a packet's bytes lie in the source's buffer, so nothing is
//! copied or allocated per packet. What a capture holds besides packets, and what is odd about it,
//! is in its [notes](Captures::notes).
//!
//! Always true: the same bytes give the same packets, notes and errors, from a file or a pipe and
//! whatever a read gives at a time; memory is bounded by [`CaptureOptions::block_limit`] for each
//! source (and the window of the compression), whatever the length of the capture; a capture that
//! ends early gives all of its complete packets and a note; every other fault is an error with
//! file, byte and reason, and never a panic.
//! Why no crate for the formats: `pcap-parser` 0.17 and `pcap-file` 3.0.0-rc.3 were tried. Of a cut
//! capture neither tells the place or the lengths; `pcap-parser` also reports a captured length
//! beyond its block as a cut; neither names place and reason of a malformed block, nor bounds the
//! memory by a limit; both allocate for the options of a packet and take two to three times as
//! long. docs/adr/0002-capture-reader.md has the table.
//! Elsewhere: what is in a packet ([`mod@rxsteer_core::dissect`]).
//! Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

mod error;
mod input;
mod link;
mod note;
mod order;
mod pcap;
mod pcapng;
mod source;
mod time;
mod window;
mod write;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use rxsteer_core::QueueId;

pub use error::{CaptureError, CaptureFault, Truncation};
pub use link::{LinkError, LinkType};
pub use note::{CaptureNote, NoteKind};
pub use write::{PcapWriter, PcapngWriter};

use source::Source;

/// How captures are read.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Most bytes of one block (pcapng) or of the data of one record (pcap); a longer one is an
    /// error. Bounds the memory of a source. Default: 16 MiB.
    pub block_limit: u32,
    /// A capture that ends early is an error after its last complete packet, not a note.
    pub strict: bool,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self { block_limit: 16 << 20, strict: false }
    }
}

/// Which way a packet went, as far as the capture says.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Direction {
    /// The capture does not say.
    #[default]
    Unknown,
    /// Received by the host that captured.
    Inbound,
    /// Sent by the host that captured.
    Outbound,
}

impl Direction {
    /// Returns the direction of a Linux packet type: 0 to us, 1 broadcast, 2 multicast, 3 to
    /// another host, 4 sent by us (packet(7), sll_pkttype).
    fn of_packet_type(packet_type: u16) -> Self {
        match packet_type {
            0..=3 => Self::Inbound,
            4 => Self::Outbound,
            _ => Self::Unknown,
        }
    }
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packet<'a> {
    /// Time in nanoseconds since 1970-01-01 UTC.
    pub ts_ns: u64,
    /// Bytes captured: the length of [`data`](Self::data).
    pub cap_len: u32,
    /// Bytes on the wire.
    pub orig_len: u32,
    /// What the data begin with.
    pub link: LinkType,
    /// The captured bytes.
    pub data: &'a [u8],
    /// pcapng: number of the interface in its source, counted on over the sections. Modified pcap:
    /// the kernel's interface index. pcap: 0.
    pub interface: u32,
    /// Index among the sources opened.
    pub source: u16,
    /// Receive queue of the interface (pcapng option epb_queue).
    pub queue: Option<QueueId>,
    /// From pcapng's epb_flags, the modified pcap's record or the Linux cooked header.
    pub direction: Direction,
    /// Hash computed by the device, if Toeplitz (pcapng option epb_hash, algorithm 5); its bytes
    /// are taken as most significant first.
    pub recorded_hash: Option<u32>,
    /// Packets that the capturing side lost since the one before on this interface (pcapng option
    /// epb_dropcount), 0 if it does not say.
    pub lost_before: u64,
}

impl<'a> Packet<'a> {
    /// Returns a packet of which all bytes are captured, on interface 0, with nothing else known.
    pub fn new(ts_ns: u64, link: LinkType, data: &'a [u8]) -> Self {
        let length = data.len() as u32;
        Self {
            ts_ns,
            cap_len: length,
            orig_len: length,
            link,
            data,
            interface: 0,
            source: 0,
            queue: None,
            direction: Direction::Unknown,
            recorded_hash: None,
            lost_before: 0,
        }
    }
}

/// One or several captures, read as one in order of time.
///
/// Packets of different sources come in order of (time, index of the source); those of one source
/// keep their order even where its time goes backwards, which is counted in a note.
///
/// # Examples
/// ```
/// use rxsteer_lab::capture::{CaptureOptions, Captures};
/// // A pcap file of one raw IP packet of 20 bytes, of which one is captured.
/// let mut file = Vec::from(0xa1b2_3c4du32.to_le_bytes()); // nanoseconds
/// file.extend([2, 0, 4, 0]);
/// file.extend([0, 0, 65_535, 101].map(u32::to_le_bytes).as_flattened());
/// file.extend([7, 5, 1, 20].map(u32::to_le_bytes).as_flattened());
/// file.push(0x45);
/// let bytes = Box::new(std::io::Cursor::new(file));
/// let mut captures = Captures::from_reader("example", bytes, &CaptureOptions::default())?;
/// let packet = captures.next_packet()?.expect("one packet");
/// assert_eq!((packet.ts_ns, packet.orig_len, packet.data), (7_000_000_005, 20, &[0x45][..]));
/// assert_eq!(captures.next_packet()?, None);
/// # Ok::<(), rxsteer_lab::capture::CaptureError>(())
/// ```
pub struct Captures {
    sources: Vec<Source>,
    /// The next packet of each source, by time and index; unused with one source.
    queue: BinaryHeap<Reverse<(u64, u16)>>,
    /// Sources that are to be read on before the next packet can be chosen.
    pending: Vec<u16>,
}

impl Captures {
    /// Opens files, `-` being the standard input, and reads their headers.
    ///
    /// # Errors
    /// A file that is missing, not readable, a directory, empty or no capture, or whose header is
    /// faulty; the standard input named twice.
    pub fn open<P: AsRef<Path>>(
        paths: &[P],
        options: &CaptureOptions,
    ) -> Result<Self, CaptureError> {
        check_count(paths.len())?;
        let mut stdin = false;
        let mut sources = Vec::with_capacity(paths.len());
        for (index, path) in paths.iter().enumerate() {
            let path = path.as_ref();
            let is_stdin = path.as_os_str() == "-";
            let name = if is_stdin { "stdin".into() } else { path.display().to_string() };
            if is_stdin && stdin {
                return Err(CaptureError::new(&name, None, CaptureFault::StdinTwice));
            }
            stdin |= is_stdin;
            let input = input::open(path).map_err(|fault| CaptureError::new(&name, None, fault))?;
            sources.push(Source::open(name, index as u16, input, options)?);
        }
        Ok(Self::new(sources))
    }

    /// Reads one capture from a reader; `name` is what errors and notes call it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_reader(
        name: impl Into<String>,
        reader: Box<dyn Read + Send>,
        options: &CaptureOptions,
    ) -> Result<Self, CaptureError> {
        Self::from_readers(vec![(name.into(), reader)], options)
    }

    /// Reads several captures from readers, each with the name that errors and notes call it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_readers(
        readers: Vec<(String, Box<dyn Read + Send>)>,
        options: &CaptureOptions,
    ) -> Result<Self, CaptureError> {
        check_count(readers.len())?;
        let mut sources = Vec::with_capacity(readers.len());
        for (index, (name, reader)) in readers.into_iter().enumerate() {
            let input = input::from_reader(reader)
                .map_err(|fault| CaptureError::new(&name, None, fault))?;
            sources.push(Source::open(name, index as u16, input, options)?);
        }
        Ok(Self::new(sources))
    }

    fn new(sources: Vec<Source>) -> Self {
        let pending = (0..sources.len() as u16).collect();
        Self { sources, queue: BinaryHeap::new(), pending }
    }

    /// Returns the next packet, or `None` after the last.
    ///
    /// # Errors
    /// A fault in a capture, or a failed read. The packets before it were all returned. A fault
    /// stays: the next call returns it again. After a failed read the next call goes on.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        if self.sources.len() == 1 {
            let source = &mut self.sources[0];
            return Ok(if source.advance()? { Some(source.packet()) } else { None });
        }
        self.next_merged()
    }

    fn next_merged(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        while let Some(&index) = self.pending.last() {
            let source = &mut self.sources[usize::from(index)];
            let has_packet = source.advance()?;
            self.pending.pop();
            if has_packet {
                self.queue.push(Reverse((source.time_ns(), index)));
            }
        }
        let Some(Reverse((_, index))) = self.queue.pop() else { return Ok(None) };
        self.pending.push(index);
        Ok(Some(self.sources[usize::from(index)].packet()))
    }

    /// Returns what there is to say of the captures as far as they were read, file by file.
    pub fn notes(&self) -> Vec<CaptureNote> {
        self.sources.iter().flat_map(Source::notes).collect()
    }

    /// Returns the bytes read of all sources, before decompression: for a progress bar.
    pub fn bytes_read(&self) -> u64 {
        self.sources.iter().map(Source::bytes_read).sum()
    }

    /// Returns the bytes of all sources, or `None` if one is not a regular file.
    pub fn total_bytes(&self) -> Option<u64> {
        self.sources.iter().map(Source::total_bytes).sum()
    }
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(Source::name)).finish()
    }
}

fn check_count(count: usize) -> Result<(), CaptureError> {
    if count > usize::from(u16::MAX) {
        return Err(CaptureError::new("captures", None, CaptureFault::TooManyFiles(count)));
    }
    Ok(())
}
