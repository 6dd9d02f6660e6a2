//! Generated frames as a capture file.

use std::io::{self, Write};

use super::Frames;
use crate::capture::{Direction, LinkType, Packet, PcapWriter, PcapngWriter};

/// Writes the frames, at most `limit`, as pcapng of one interface with the direction of each.
/// Returns how many there were.
///
/// # Errors
/// What the writer says.
pub fn write_pcapng<W: Write>(out: W, frames: &mut Frames, limit: u64) -> io::Result<u64> {
    let mut writer = PcapngWriter::new(out)?;
    let interface = writer.add_interface("eth0", LinkType::ETHERNET)?;
    let mut count = 0;
    while count < limit {
        let Some(frame) = frames.next_frame() else { break };
        let direction = if frame.inbound { Direction::Inbound } else { Direction::Outbound };
        let packet = Packet::new(frame.time_ns, LinkType::ETHERNET, &frame.bytes);
        let orig_len = frame.orig_len;
        writer.write(&Packet { interface, direction, orig_len, ..packet })?;
        count += 1;
    }
    writer.finish()?;
    Ok(count)
}

/// Writes the frames, at most `limit`, as pcap with nanoseconds; the directions are lost. Returns
/// how many there were.
///
/// # Errors
/// What the writer says.
pub fn write_pcap<W: Write>(out: W, frames: &mut Frames, limit: u64) -> io::Result<u64> {
    let mut writer = PcapWriter::new(out, LinkType::ETHERNET)?;
    let mut count = 0;
    while count < limit {
        let Some(frame) = frames.next_frame() else { break };
        writer.write(frame.time_ns, frame.orig_len, &frame.bytes)?;
        count += 1;
    }
    writer.finish()?;
    Ok(count)
}
