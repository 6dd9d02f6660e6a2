//! One capture: from its bytes to packets, with the counts that its notes are made of.
//!
//! Always true: a fault takes nothing from the input, so the next call meets it again; after the
//! end there is only the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rxsteer_core::QueueId;

use super::input::Input;
use super::pcap::{self, Pcap};
use super::pcapng::{self, Pcapng};
use super::window::{FIRST_BYTES, Window};
use super::{CaptureError, CaptureFault, CaptureNote, CaptureOptions, Direction, LinkType};
use super::{NoteKind, Packet, Truncation};

/// Distinct block types and link types that are counted apart.
const KINDS: usize = 16;

/// A fault of the block or record at the first unparsed byte.
///
/// Boxed, since nothing of it should be moved around with each packet.
#[derive(Debug)]
pub(super) struct Fault(Box<CaptureFault>);

impl From<CaptureFault> for Fault {
    #[cold]
    fn from(reason: CaptureFault) -> Self {
        Self(Box::new(reason))
    }
}

impl From<io::Error> for Fault {
    #[cold]
    fn from(error: io::Error) -> Self {
        CaptureFault::Read(error).into()
    }
}

/// What a parser found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A packet, whose head was filled in.
    Packet,
    /// The end, after the last complete block.
    End,
    /// The end, inside a block that has so many bytes when complete.
    Cut(u64),
}

impl Step {
    /// Returns the end that a window is at which has less than a block of `wants` bytes left.
    #[cold]
    pub(super) fn end(window: &Window, wants: u64) -> Self {
        if window.left() == 0 { Self::End } else { Self::Cut(wants) }
    }
}

/// A packet whose bytes are still in the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) ts_ns: u64,
    pub(super) place: usize,
    pub(super) cap_len: u32,
    pub(super) orig_len: u32,
    pub(super) link: LinkType,
    pub(super) interface: u32,
    pub(super) queue: Option<QueueId>,
    pub(super) direction: Direction,
    pub(super) recorded_hash: Option<u32>,
    pub(super) lost: u64,
}

impl Head {
    const NONE: Self = Self {
        ts_ns: 0,
        place: 0,
        cap_len: 0,
        orig_len: 0,
        link: LinkType::NULL,
        interface: 0,
        queue: None,
        direction: Direction::Unknown,
        recorded_hash: None,
        lost: 0,
    };

    /// Forgets what only some packets have.
    #[inline(always)]
    pub(super) fn clear_extras(&mut self) {
        self.queue = None;
        self.direction = Direction::Unknown;
        self.recorded_hash = None;
        self.lost = 0;
    }
}

/// What is counted of a capture while it is read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    packets: u64,
    pub(super) last_ns: u64,
    backwards: u64,
    most_back_ns: u64,
    pub(super) no_time: u64,
    pub(super) out_of_range: u64,
    pub(super) queue_out_of_range: u64,
    longer_than_wire: u64,
    lost: u64,
    /// The link type of the packet before, if it is a known one.
    known_link: Option<LinkType>,
    unknown_links: Kinds<LinkType>,
    skipped: Kinds<u32>,
}

/// Counts of the first distinct values, and of all others together.
#[derive(Debug)]
struct Kinds<T> {
    counts: Vec<(T, u64)>,
    others: u64,
}

impl<T> Default for Kinds<T> {
    fn default() -> Self {
        Self { counts: Vec::new(), others: 0 }
    }
}

impl<T: Copy + PartialEq> Kinds<T> {
    fn add(&mut self, value: T) {
        if let Some((_, count)) = self.counts.iter_mut().find(|(known, _)| *known == value) {
            *count += 1;
        } else if self.counts.len() < KINDS {
            self.counts.push((value, 1));
        } else {
            self.others += 1;
        }
    }

    fn each(&self) -> impl Iterator<Item = (Option<T>, u64)> {
        let others = (self.others > 0).then_some((None, self.others));
        self.counts.iter().map(|(value, count)| (Some(*value), *count)).chain(others)
    }
}

impl Tally {
    /// Counts a packet, in the order of the file.
    #[inline(always)]
    pub(super) fn packet(&mut self, head: &Head) {
        if head.ts_ns < self.last_ns {
            self.backwards += 1;
            self.most_back_ns = self.most_back_ns.max(self.last_ns - head.ts_ns);
        }
        self.last_ns = head.ts_ns;
        self.packets += 1;
        self.longer_than_wire += u64::from(head.cap_len > head.orig_len);
        self.lost = self.lost.saturating_add(head.lost);
        if self.known_link != Some(head.link) {
            self.link(head.link);
        }
    }

    #[cold]
    fn link(&mut self, link: LinkType) {
        if link.is_known() {
            self.known_link = Some(link);
        } else {
            self.unknown_links.add(link);
        }
    }

    /// Counts a block that is not looked into.
    #[cold]
    pub(super) fn skipped(&mut self, kind: u32) {
        self.skipped.add(kind);
    }

    fn notes(&self) -> Vec<NoteKind> {
        let counted = |packets: u64, kind: NoteKind| (packets > 0).then_some(kind);
        let skipped = self.skipped.each();
        let links = self.unknown_links.each();
        [
            counted(
                self.backwards,
                NoteKind::TimeBackwards { packets: self.backwards, most_ns: self.most_back_ns },
            ),
            counted(self.no_time, NoteKind::NoTime { packets: self.no_time }),
            counted(self.out_of_range, NoteKind::TimeOutOfRange { packets: self.out_of_range }),
            counted(
                self.longer_than_wire,
                NoteKind::LongerThanWire { packets: self.longer_than_wire },
            ),
            counted(
                self.queue_out_of_range,
                NoteKind::QueueOutOfRange { packets: self.queue_out_of_range },
            ),
            counted(self.lost, NoteKind::Lost { packets: self.lost }),
        ]
        .into_iter()
        .flatten()
        .chain(links.map(|(link, packets)| NoteKind::UnknownLink { link, packets }))
        .chain(skipped.map(|(block_type, blocks)| NoteKind::SkippedBlocks { block_type, blocks }))
        .collect()
    }
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// One capture that is being read.
pub(super) struct Source {
    name: String,
    index: u16,
    strict: bool,
    window: Window,
    progress: Arc<AtomicU64>,
    total: Option<u64>,
    /// `None` once the capture has ended.
    format: Option<Format>,
    truncation: Option<Truncation>,
    tally: Tally,
    /// The packet that was read last.
    head: Head,
}

impl Source {
    /// Finds out the format and reads the file header.
    pub(super) fn open(
        name: String,
        index: u16,
        input: Input,
        options: &CaptureOptions,
    ) -> Result<Self, CaptureError> {
        let mut source = Self {
            name,
            index,
            strict: options.strict,
            window: Window::new(input.bytes, FIRST_BYTES),
            progress: input.progress,
            total: input.total,
            format: None,
            truncation: None,
            tally: Tally::default(),
            head: Head::NONE,
        };
        match source.read_header(options.block_limit) {
            Ok(Ok(format)) => source.format = Some(format),
            Ok(Err(wants)) => {
                source.cut(wants)?;
            }
            Err(fault) => return Err(source.error(fault)),
        }
        Ok(source)
    }

    /// Returns the format, or the bytes that a header wants that is cut.
    fn read_header(&mut self, block_limit: u32) -> Result<Result<Format, u64>, Fault> {
        let window = &mut self.window;
        if !window.ensure(4)? {
            let bytes = window.bytes();
            let section = pcapng::SECTION_HEADER.to_le_bytes();
            return match bytes {
                [] if !window.is_cut() => Err(CaptureFault::Empty.into()),
                _ if pcap::may_begin(bytes) || section.starts_with(bytes) => Ok(Err(4)),
                _ => Err(CaptureFault::NotACapture(bytes.to_vec()).into()),
            };
        }
        let first = *window.bytes().first_chunk().expect("four bytes were ensured");
        if let Some(magic) = pcap::magic(first) {
            let opened = Pcap::open(window, magic, block_limit)?;
            return Ok(opened.map(Format::Pcap));
        }
        if u32::from_le_bytes(first) == pcapng::SECTION_HEADER {
            return Ok(Ok(Format::Pcapng(Pcapng::new(block_limit))));
        }
        window.ensure(8)?;
        let first = window.bytes().iter().take(8).copied().collect();
        Err(CaptureFault::NotACapture(first).into())
    }

    /// Reads the next packet, or returns `false` after the last.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool, CaptureError> {
        let Self { window, tally, head, .. } = self;
        let step = match &mut self.format {
            Some(Format::Pcap(format)) => format.next(window, head),
            Some(Format::Pcapng(format)) => format.next(window, tally, head),
            None => return self.ended(),
        };
        match step {
            Ok(Step::Packet) => {
                self.tally.packet(&self.head);
                Ok(true)
            }
            Ok(Step::Cut(wants)) => self.cut(wants),
            Ok(Step::End) if self.window.is_cut() => self.cut(0),
            Ok(Step::End) => {
                self.format = None;
                Ok(false)
            }
            Err(fault) => Err(self.error(fault)),
        }
    }

    /// Ends the capture inside a block of so many bytes.
    #[cold]
    fn cut(&mut self, wants: u64) -> Result<bool, CaptureError> {
        self.format = None;
        self.truncation = Some(Truncation {
            offset: self.window.offset(),
            wants,
            left: self.window.left() as u64,
            packets: self.tally.packets,
            compressed: self.window.is_cut(),
        });
        self.ended()
    }

    #[cold]
    fn ended(&self) -> Result<bool, CaptureError> {
        match self.truncation {
            Some(truncation) if self.strict => {
                let reason = CaptureFault::Truncated(truncation);
                Err(CaptureError::new(&self.name, Some(truncation.offset), reason))
            }
            _ => Ok(false),
        }
    }

    #[cold]
    fn error(&self, fault: Fault) -> CaptureError {
        let Fault(reason) = fault;
        let offset = match &*reason {
            CaptureFault::Empty | CaptureFault::NotACapture(_) => None,
            // Where reading stopped.
            CaptureFault::Read(_) => Some(self.window.offset() + self.window.left() as u64),
            _ => Some(self.window.offset()),
        };
        CaptureError::new(&self.name, offset, *reason)
    }

    /// Returns the time of the packet that was read last.
    #[inline]
    pub(super) fn time_ns(&self) -> u64 {
        self.head.ts_ns
    }

    /// Returns the packet that was read last.
    #[inline(always)]
    pub(super) fn packet(&self) -> Packet<'_> {
        let head = &self.head;
        let data = self.window.at(head.place, head.cap_len as usize);
        let direction = match head.direction {
            Direction::Unknown => head.link.direction(data),
            known => known,
        };
        Packet {
            ts_ns: head.ts_ns,
            cap_len: head.cap_len,
            orig_len: head.orig_len,
            link: head.link,
            data,
            interface: head.interface,
            source: self.index,
            queue: head.queue,
            direction,
            recorded_hash: head.recorded_hash,
            lost_before: head.lost,
        }
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = CaptureNote> {
        let truncated = self.truncation.map(NoteKind::Truncated);
        let is_empty = self.format.is_none() && self.tally.packets == 0 && truncated.is_none();
        let empty = is_empty.then_some(NoteKind::NoPackets);
        let kinds = truncated.into_iter().chain(empty).chain(self.tally.notes());
        kinds.map(|kind| CaptureNote { file: self.name.clone(), source: self.index, kind })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.total
    }
}
