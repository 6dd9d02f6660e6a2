//! The pcapng format: blocks with their length at both ends, in sections of either byte order.
//!
//! Always true: a block is looked into only when its length is plausible, all of it is there and
//! the length at its end is the same; an interface is known only in its own section; blocks
//! without packets are skipped and counted.
//! Source: draft-ietf-opsawg-pcapng, sections 3 and 4, and its appendix on the Packet Block.

use rxsteer_core::QueueId;

use super::order::Order;
use super::source::{Fault, Head, Step, Tally};
use super::time::Clock;
use super::window::Window;
use super::{CaptureFault, Direction, LinkType};

/// Block types. That of the section header reads the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// Codes of options: of any block, of interfaces (if_), and of packets.
pub(super) const END_OF_OPTIONS: u16 = 0;
pub(super) const IF_NAME: u16 = 2;
pub(super) const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
pub(super) const FLAGS: u16 = 2;
pub(super) const HASH: u16 = 3;
pub(super) const DROPCOUNT: u16 = 4;
pub(super) const QUEUE: u16 = 6;

/// The algorithm of an epb_hash option that is a flow hash.
pub(super) const TOEPLITZ: u8 = 5;

pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Bytes of a block without a body: type and both lengths.
const BARE_BYTES: u32 = 12;
const SECTION_HEADER_BYTES: u32 = BARE_BYTES + 16;
/// Where the data start in an Enhanced Packet Block, and in a Simple one.
const PACKET_DATA: usize = 28;
const SIMPLE_PACKET_DATA: usize = 12;
/// Interfaces that one section may declare, so that memory does not grow with the capture.
const INTERFACES: usize = 65_536;

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    snaplen: u32,
    clock: Clock,
}

/// A reader of blocks.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    block_limit: u32,
    /// Interfaces of this section.
    interfaces: Vec<Interface>,
    /// Interfaces of the sections before.
    interfaces_before: u32,
}

impl Pcapng {
    pub(super) fn new(block_limit: u32) -> Self {
        Self {
            // Until the section header, which is the first block, says so.
            order: Order::Little,
            block_limit,
            interfaces: Vec::new(),
            interfaces_before: 0,
        }
    }

    /// Reads blocks up to the next packet.
    #[inline]
    pub(super) fn next(
        &mut self,
        window: &mut Window,
        tally: &mut Tally,
        head: &mut Head,
    ) -> Result<Step, Fault> {
        loop {
            if !window.ensure(8)? {
                return Ok(Step::end(window, u64::from(BARE_BYTES)));
            }
            let kind = self.order.u32(window.bytes(), 0);
            if kind == SECTION_HEADER {
                if !window.ensure(12)? {
                    return Ok(Step::end(window, u64::from(SECTION_HEADER_BYTES)));
                }
                self.order = section_order(window.bytes())?;
            }
            let length = self.order.u32(window.bytes(), 4);
            self.check_length(kind, length)?;
            if !window.ensure(length as usize)? {
                return Ok(Step::end(window, u64::from(length)));
            }
            let block = &window.bytes()[..length as usize];
            let trailer = self.order.u32(block, block.len() - 4);
            if trailer != length {
                return Err(CaptureFault::TrailerDiffers { length, trailer }.into());
            }
            let data = match kind {
                ENHANCED_PACKET | PACKET => {
                    self.packet(kind, block, tally, head)?;
                    Some(PACKET_DATA)
                }
                SIMPLE_PACKET => {
                    self.simple_packet(block, tally, head)?;
                    Some(SIMPLE_PACKET_DATA)
                }
                INTERFACE_DESCRIPTION => {
                    self.interface(block)?;
                    None
                }
                SECTION_HEADER => {
                    self.section(block)?;
                    None
                }
                _ => {
                    tally.skipped(kind);
                    None
                }
            };
            if let Some(data) = data {
                head.place = window.place(data);
            }
            window.consume(length as usize);
            if data.is_some() {
                return Ok(Step::Packet);
            }
        }
    }

    #[inline]
    fn check_length(&self, kind: u32, length: u32) -> Result<(), Fault> {
        let least = match kind {
            ENHANCED_PACKET | PACKET => BARE_BYTES + 20,
            SIMPLE_PACKET => BARE_BYTES + 4,
            INTERFACE_DESCRIPTION => BARE_BYTES + 8,
            SECTION_HEADER => SECTION_HEADER_BYTES,
            _ => BARE_BYTES,
        };
        if length < least {
            return Err(CaptureFault::BlockTooShort { kind, length, least }.into());
        }
        if !length.is_multiple_of(4) {
            return Err(CaptureFault::BlockUnaligned(length).into());
        }
        if length > self.block_limit {
            let (length, limit) = (u64::from(length), u64::from(self.block_limit));
            return Err(CaptureFault::BlockOverLimit { length, limit }.into());
        }
        Ok(())
    }

    fn section(&mut self, block: &[u8]) -> Result<(), CaptureFault> {
        let (major, minor) = (self.order.u16(block, 12), self.order.u16(block, 14));
        // Version 1.2 was written by some and is the same (section 4.1).
        if (major, minor) != (1, 0) && (major, minor) != (1, 2) {
            return Err(CaptureFault::Version { format: "pcapng", major, minor });
        }
        self.interfaces_before = self.interfaces_before.wrapping_add(self.interfaces.len() as u32);
        self.interfaces.clear();
        Ok(())
    }

    fn interface(&mut self, block: &[u8]) -> Result<(), CaptureFault> {
        if self.interfaces.len() == INTERFACES {
            return Err(CaptureFault::TooManyInterfaces(INTERFACES as u32));
        }
        let order = self.order;
        let link = LinkType(order.u16(block, 8));
        let snaplen = order.u32(block, 12);
        let mut clock = Clock::MICROSECONDS;
        for_options(order, &block[16..block.len() - 4], |code, value| {
            match code {
                IF_TSRESOL => clock.set_resolution(sized::<1>("if_tsresol", value)?[0]),
                IF_TSOFFSET => {
                    let value = sized::<8>("if_tsoffset", value)?;
                    clock.set_offset(order.u64(value, 0) as i64);
                }
                _ => {}
            }
            Ok(())
        })?;
        self.interfaces.push(Interface { link, snaplen, clock });
        Ok(())
    }

    /// Reads an Enhanced Packet Block or the obsolete Packet Block, which differ in the first word.
    #[inline]
    fn packet(
        &self,
        kind: u32,
        block: &[u8],
        tally: &mut Tally,
        head: &mut Head,
    ) -> Result<(), Fault> {
        let order = self.order;
        head.clear_extras();
        let mut id = order.u32(block, 8);
        if kind == PACKET {
            id = u32::from(order.u16(block, 8));
            // All ones: not known.
            let lost = Some(order.u16(block, 10)).filter(|lost| *lost != u16::MAX);
            head.lost = u64::from(lost.unwrap_or(0));
        }
        let Some(interface) = self.interfaces.get(id as usize) else {
            return Err(self.undeclared(id).into());
        };
        let units = u64::from(order.u32(block, 12)) << 32 | u64::from(order.u32(block, 16));
        let cap_len = order.u32(block, 20);
        let space = block.len() - PACKET_DATA - 4;
        if cap_len as usize > space {
            let (most, bound) = (space as u32, "block");
            return Err(CaptureFault::CapturedLength { cap_len, most, bound }.into());
        }
        let (ts_ns, fits) = interface.clock.to_ns(units);
        head.ts_ns = ts_ns;
        head.cap_len = cap_len;
        head.orig_len = order.u32(block, 24);
        head.link = interface.link;
        head.interface = self.interfaces_before.wrapping_add(id);
        // The space is a multiple of 4, so the padded data fit too.
        let options = PACKET_DATA + (cap_len as usize).next_multiple_of(4);
        let options = &block[options..block.len() - 4];
        if !options.is_empty() {
            let queue_fits = self.packet_options(kind, options, head)?;
            tally.queue_out_of_range += u64::from(!queue_fits);
        }
        // Counted last: a packet with a fault is met again, and is none.
        tally.out_of_range += u64::from(!fits);
        Ok(())
    }

    /// Reads the options of a packet; returns whether the number of its queue fits.
    fn packet_options(
        &self,
        kind: u32,
        options: &[u8],
        head: &mut Head,
    ) -> Result<bool, CaptureFault> {
        let order = self.order;
        let mut queue_fits = true;
        for_options(order, options, |code, value| {
            match (code, kind) {
                (FLAGS, _) => {
                    let flags = order.u32(sized::<4>("epb_flags", value)?, 0);
                    head.direction = match flags & 3 {
                        1 => Direction::Inbound,
                        2 => Direction::Outbound,
                        _ => Direction::Unknown,
                    };
                }
                (HASH, _) => head.recorded_hash = toeplitz(value)?.or(head.recorded_hash),
                (DROPCOUNT, ENHANCED_PACKET) => {
                    head.lost = order.u64(sized::<8>("epb_dropcount", value)?, 0);
                }
                (QUEUE, ENHANCED_PACKET) => {
                    let queue = order.u32(sized::<4>("epb_queue", value)?, 0);
                    head.queue = u16::try_from(queue).ok().map(QueueId);
                    queue_fits = head.queue.is_some();
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(queue_fits)
    }

    fn simple_packet(
        &self,
        block: &[u8],
        tally: &mut Tally,
        head: &mut Head,
    ) -> Result<(), CaptureFault> {
        let interface = self.interfaces.first().ok_or_else(|| self.undeclared(0))?;
        let orig_len = self.order.u32(block, 8);
        let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        // The captured length is not stored: it is the original one, cut by the snapshot length.
        let cap_len = orig_len.min(snaplen);
        let space = (block.len() - SIMPLE_PACKET_DATA - 4) as u32;
        if cap_len > space {
            return Err(CaptureFault::CapturedLength { cap_len, most: space, bound: "block" });
        }
        tally.no_time += 1;
        head.clear_extras();
        head.ts_ns = tally.last_ns;
        (head.cap_len, head.orig_len) = (cap_len, orig_len);
        head.link = interface.link;
        head.interface = self.interfaces_before;
        Ok(())
    }

    fn undeclared(&self, interface: u32) -> CaptureFault {
        let declared = self.interfaces.len() as u32;
        CaptureFault::UndeclaredInterface { interface, declared }
    }
}

/// Returns the byte order of a section from the first 12 bytes of its header.
fn section_order(header: &[u8]) -> Result<Order, CaptureFault> {
    match Order::Little.u32(header, 8) {
        BYTE_ORDER_MAGIC => Ok(Order::Little),
        magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => Ok(Order::Big),
        magic => Err(CaptureFault::ByteOrder(magic)),
    }
}

/// Returns the hash of an epb_hash option: one byte that names the algorithm, then the hash. Of
/// the algorithms only Toeplitz (5) is a flow hash.
fn toeplitz(value: &[u8]) -> Result<Option<u32>, CaptureFault> {
    let [TOEPLITZ, hash @ ..] = value else { return Ok(None) };
    let length = value.len() as u16;
    let wrong = CaptureFault::OptionLength { name: "epb_hash (Toeplitz)", length, right: 5 };
    hash.try_into().map(|hash| Some(u32::from_be_bytes(hash))).map_err(|_| wrong)
}

/// Calls `each` with code and value of every option up to the end mark or the end of the block.
fn for_options(
    order: Order,
    mut options: &[u8],
    mut each: impl FnMut(u16, &[u8]) -> Result<(), CaptureFault>,
) -> Result<(), CaptureFault> {
    // Option lists are whole multiples of 4 bytes, as the block and all that is before them are.
    while options.len() >= 4 {
        let (code, length) = (order.u16(options, 0), order.u16(options, 2));
        if code == END_OF_OPTIONS {
            break;
        }
        options = &options[4..];
        let padded = usize::from(length).next_multiple_of(4);
        if padded > options.len() {
            let left = options.len() as u32;
            return Err(CaptureFault::OptionOverrun { code, length, left });
        }
        each(code, &options[..usize::from(length)])?;
        options = &options[padded..];
    }
    Ok(())
}

fn sized<'a, const N: usize>(
    name: &'static str,
    value: &'a [u8],
) -> Result<&'a [u8; N], CaptureFault> {
    let length = value.len() as u16;
    value.try_into().map_err(|_| CaptureFault::OptionLength { name, length, right: N as u16 })
}
