//! The classic pcap format: one header, then records of a fixed header and the packet.
//!
//! Always true: nothing is believed of a length before it is compared with its bound; a record is
//! taken only when all of it is there.
//! Source: draft-ietf-opsawg-pcap, sections 4 and 5; the lengths in files before version 2.4 and
//! the record header of the "modified" format as libpcap's documentation describes them.

use super::order::Order;
use super::source::{Fault, Head, Step};
use super::window::Window;
use super::{CaptureFault, Direction, LinkType};

/// Bytes of the file header.
pub(super) const HEADER_BYTES: usize = 24;
/// Most bytes that libpcap keeps of a packet; a record may have so many whatever the snapshot
/// length says, since writers exist that put a wrong one into the header.
const MAXIMUM_SNAPLEN: u32 = 262_144;

/// The magic numbers, read in the byte order of the file.
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// Returns byte order and format if the four bytes are a pcap magic.
pub(super) fn magic(bytes: [u8; 4]) -> Option<(Order, Kind)> {
    let kind = |value| match value {
        MAGIC_MICROSECONDS => Some(Kind { ns_per_fraction: 1000, record_bytes: 16 }),
        MAGIC_NANOSECONDS => Some(Kind { ns_per_fraction: 1, record_bytes: 16 }),
        MAGIC_MODIFIED => Some(Kind { ns_per_fraction: 1000, record_bytes: 24 }),
        _ => None,
    };
    let little = kind(u32::from_le_bytes(bytes)).map(|kind| (Order::Little, kind));
    little.or_else(|| kind(u32::from_be_bytes(bytes)).map(|kind| (Order::Big, kind)))
}

/// Returns whether a pcap file may begin with these bytes, of which there are fewer than four.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    [MAGIC_MICROSECONDS, MAGIC_NANOSECONDS, MAGIC_MODIFIED].iter().any(|magic| {
        magic.to_le_bytes().starts_with(bytes) || magic.to_be_bytes().starts_with(bytes)
    })
}

/// What the magic says of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Kind {
    /// Nanoseconds of one unit in the fraction of a time.
    ns_per_fraction: u32,
    /// Bytes of a record header.
    record_bytes: usize,
}

/// Which of the two lengths in a record header is the captured one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lengths {
    /// The first: version 2.4.
    CapturedFirst,
    /// The second: before version 2.3.
    CapturedSecond,
    /// The smaller: version 2.3, which exists in both ways.
    Smaller,
}

/// A reader of records.
#[derive(Debug)]
pub(super) struct Pcap {
    order: Order,
    kind: Kind,
    link: LinkType,
    lengths: Lengths,
    most_captured: u32,
    bound: &'static str,
}

impl Pcap {
    /// Reads the file header; its four first bytes were `magic`.
    ///
    /// Returns the bytes that it wants if it is cut.
    pub(super) fn open(
        window: &mut Window,
        (order, kind): (Order, Kind),
        block_limit: u32,
    ) -> Result<Result<Self, u64>, Fault> {
        if !window.ensure(HEADER_BYTES)? {
            return Ok(Err(HEADER_BYTES as u64));
        }
        let header = window.bytes();
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        let lengths = match (major, minor) {
            (2, ..3) => Lengths::CapturedSecond,
            (2, 3) => Lengths::Smaller,
            (2, 4..) => Lengths::CapturedFirst,
            _ => return Err(CaptureFault::Version { format: "pcap", major, minor }.into()),
        };
        let snaplen = match order.u32(header, 16) {
            0 | 0x8000_0000.. => u32::MAX,
            snaplen => snaplen.max(MAXIMUM_SNAPLEN),
        };
        // The upper half of the word has the length of the frame check sequence and flags.
        let link = LinkType(order.u32(header, 20) as u16);
        window.consume(HEADER_BYTES);
        Ok(Ok(Self {
            order,
            kind,
            link,
            lengths,
            most_captured: snaplen.min(block_limit),
            bound: if snaplen <= block_limit { "snapshot length" } else { "block limit" },
        }))
    }

    /// Reads the next record.
    #[inline]
    pub(super) fn next(&mut self, window: &mut Window, head: &mut Head) -> Result<Step, Fault> {
        let header_bytes = self.kind.record_bytes;
        if !window.ensure(header_bytes)? {
            return Ok(Step::end(window, header_bytes as u64));
        }
        let header = &window.bytes()[..header_bytes];
        let seconds = self.order.u32(header, 0);
        let fraction = self.order.u32(header, 4);
        let first = self.order.u32(header, 8);
        let second = self.order.u32(header, 12);
        let (cap_len, orig_len) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::CapturedSecond => (second, first),
            Lengths::Smaller => (first.min(second), first.max(second)),
        };
        if cap_len > self.most_captured {
            let (most, bound) = (self.most_captured, self.bound);
            return Err(CaptureFault::CapturedLength { cap_len, most, bound }.into());
        }
        let modified = (header_bytes == 24).then(|| (self.order.u32(header, 16), header[22]));
        let record_bytes = header_bytes + cap_len as usize;
        if !window.ensure(record_bytes)? {
            return Ok(Step::end(window, record_bytes as u64));
        }
        // Both 32-bit fields at their most stay below 2^63 nanoseconds.
        head.ts_ns = u64::from(seconds) * 1_000_000_000
            + u64::from(fraction) * u64::from(self.kind.ns_per_fraction);
        head.place = window.place(header_bytes);
        (head.cap_len, head.orig_len) = (cap_len, orig_len);
        head.link = self.link;
        if let Some((interface, packet_type)) = modified {
            head.interface = interface;
            head.direction = Direction::of_packet_type(u16::from(packet_type));
        }
        window.consume(record_bytes);
        Ok(Step::Packet)
    }
}
