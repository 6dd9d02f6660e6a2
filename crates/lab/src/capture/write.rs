//! Writers of captures, for what our own generator makes: pcap and pcapng with nanoseconds.
//!
//! Streaming, little-endian, one write to the output per packet part; put a
//! [`BufWriter`](std::io::BufWriter) before a file.
//!
//! Always true: what is written is read back as it was given, by [`Captures`](super::Captures) and
//! by other readers.
//! Source: draft-ietf-opsawg-pcap; draft-ietf-opsawg-pcapng, sections 4.1 to 4.3.

use std::io::{self, ErrorKind, Write};

use super::pcap::{HEADER_BYTES, MAGIC_NANOSECONDS};
use super::pcapng::{
    BYTE_ORDER_MAGIC, DROPCOUNT, END_OF_OPTIONS, ENHANCED_PACKET, FLAGS, HASH, IF_NAME, IF_TSRESOL,
    INTERFACE_DESCRIPTION, QUEUE, SECTION_HEADER, TOEPLITZ,
};
use super::{Direction, LinkType, Packet};

/// Largest snapshot length: what libpcap calls its maximum.
const SNAPLEN: u32 = 262_144;

/// Writes a pcap file with times in nanoseconds.
///
/// # Examples
/// ```
/// use rxsteer_lab::capture::{CaptureOptions, Captures, LinkType, PcapWriter};
/// let mut writer = PcapWriter::new(Vec::new(), LinkType::RAW)?;
/// writer.write(1_000_000_007, 1500, &[0x45; 20])?;
/// let file = std::io::Cursor::new(writer.finish()?);
/// let mut captures = Captures::from_reader("x", Box::new(file), &CaptureOptions::default())?;
/// let packet = captures.next_packet()?.expect("one packet");
/// assert_eq!((packet.ts_ns, packet.orig_len, packet.cap_len), (1_000_000_007, 1500, 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(mut out: W, link: LinkType) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
        header[4..8].copy_from_slice(&[2, 0, 4, 0]);
        header[16..20].copy_from_slice(&SNAPLEN.to_le_bytes());
        header[20..22].copy_from_slice(&link.0.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out })
    }

    /// Writes a packet of `orig_len` bytes on the wire of which `data` are captured.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` for a time that the format cannot hold (2^32 seconds or
    /// more after 1970) and for over 262,144 bytes of data.
    pub fn write(&mut self, ts_ns: u64, orig_len: u32, data: &[u8]) -> io::Result<()> {
        let seconds =
            u32::try_from(ts_ns / 1_000_000_000).map_err(|_| invalid("time over 2106"))?;
        let words = [seconds, (ts_ns % 1_000_000_000) as u32, cap_len(data)?, orig_len];
        self.out.write_all(words.map(u32::to_le_bytes).as_flattened())?;
        self.out.write_all(data)
    }

    /// Flushes the output and returns it.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes a pcapng file of one section with times in nanoseconds.
///
/// # Examples
/// ```
/// use rxsteer_core::QueueId;
/// use rxsteer_lab::capture::{CaptureOptions, Captures, LinkType, Packet, PcapngWriter};
/// let mut writer = PcapngWriter::new(Vec::new())?;
/// let eth0 = writer.add_interface("eth0", LinkType::ETHERNET)?;
/// let frame = [0; 60];
/// let packet = Packet::new(5, LinkType::ETHERNET, &frame);
/// writer.write(&Packet { interface: eth0, queue: Some(QueueId(3)), ..packet })?;
/// let file = std::io::Cursor::new(writer.finish()?);
/// let mut captures = Captures::from_reader("x", Box::new(file), &CaptureOptions::default())?;
/// assert_eq!(captures.next_packet()?.expect("one packet").queue, Some(QueueId(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    /// Link types of the interfaces.
    links: Vec<LinkType>,
    /// Body of the block being written, kept for its memory.
    body: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Writes the section header.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, links: Vec::new(), body: Vec::new() };
        writer.body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        // Version 1.0 and a section length of -1: not known.
        writer.body.extend([1, 0, 0, 0]);
        writer.body.extend([0xff; 8]);
        writer.block(SECTION_HEADER)?;
        Ok(writer)
    }

    /// Declares an interface and returns its number, from 0.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` for a name of over 65,535 bytes and for more than
    /// 65,536 interfaces.
    pub fn add_interface(&mut self, name: &str, link: LinkType) -> io::Result<u32> {
        let number = self.links.len() as u32;
        if number > u32::from(u16::MAX) {
            return Err(invalid("over 65536 interfaces"));
        }
        self.body.extend(link.0.to_le_bytes());
        self.body.extend([0; 2]);
        self.body.extend(SNAPLEN.to_le_bytes());
        self.option(IF_NAME, name.as_bytes())?;
        self.option(IF_TSRESOL, &[9])?;
        self.option(END_OF_OPTIONS, &[])?;
        self.block(INTERFACE_DESCRIPTION)?;
        self.links.push(link);
        Ok(number)
    }

    /// Writes a packet with what it has of queue, direction, hash and losses.
    ///
    /// Its `source` is not written; `cap_len` must be the length of the data.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` for an interface that was not added or has another link
    /// type, and for over 262,144 bytes of data.
    pub fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        if self.links.get(packet.interface as usize) != Some(&packet.link) {
            return Err(invalid("no such interface with this link type"));
        }
        let words = [
            packet.interface,
            (packet.ts_ns >> 32) as u32,
            packet.ts_ns as u32,
            cap_len(packet.data)?,
            packet.orig_len,
        ];
        self.body.extend(words.map(u32::to_le_bytes).as_flattened());
        self.body.extend(packet.data);
        self.pad();
        let before = self.body.len();
        match packet.direction {
            Direction::Unknown => {}
            Direction::Inbound => self.option(FLAGS, &1u32.to_le_bytes())?,
            Direction::Outbound => self.option(FLAGS, &2u32.to_le_bytes())?,
        }
        if let Some(hash) = packet.recorded_hash {
            let [a, b, c, d] = hash.to_be_bytes();
            self.option(HASH, &[TOEPLITZ, a, b, c, d])?;
        }
        if packet.lost_before > 0 {
            self.option(DROPCOUNT, &packet.lost_before.to_le_bytes())?;
        }
        if let Some(queue) = packet.queue {
            self.option(QUEUE, &u32::from(queue.0).to_le_bytes())?;
        }
        if self.body.len() > before {
            self.option(END_OF_OPTIONS, &[])?;
        }
        self.block(ENHANCED_PACKET)
    }

    /// Flushes the output and returns it.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn option(&mut self, code: u16, value: &[u8]) -> io::Result<()> {
        let Ok(length) = u16::try_from(value.len()) else {
            self.body.clear();
            return Err(invalid("an option of over 65535 bytes"));
        };
        self.body.extend(code.to_le_bytes());
        self.body.extend(length.to_le_bytes());
        self.body.extend(value);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    /// Writes a block with the body that was put together.
    fn block(&mut self, kind: u32) -> io::Result<()> {
        let length = (self.body.len() as u32 + 12).to_le_bytes();
        self.body.extend(length);
        let [kind, length] = [kind.to_le_bytes(), length];
        let written = self
            .out
            .write_all([kind, length].as_flattened())
            .and_then(|()| self.out.write_all(&self.body));
        self.body.clear();
        written
    }
}

fn cap_len(data: &[u8]) -> io::Result<u32> {
    u32::try_from(data.len())
        .ok()
        .filter(|length| *length <= SNAPLEN)
        .ok_or_else(|| invalid("over 262144 bytes of data"))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}
