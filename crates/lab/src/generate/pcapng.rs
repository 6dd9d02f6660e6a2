//! Writes generated frames as pcapng: one Ethernet interface, nanoseconds, the direction of each.

use std::io::{self, Write};

use super::Frames;

/// Writes the frames, at most `limit`, and returns how many there were.
///
/// # Errors
/// What the writer says.
pub fn write_pcapng<W: Write>(
    mut out: W,
    frames: &mut Frames,
    snap_len: u32,
    limit: u64,
) -> io::Result<u64> {
    // Section header, version 1.0, length unknown (pcapng draft, section 4.1).
    out.write_all(&block(
        0x0a0d_0d0a,
        &[&0x1a2b_3c4d_u32.to_le_bytes(), &[1, 0, 0, 0], &[0xff; 8]],
    ))?;
    // Interface: Ethernet, snap length, if_tsresol (9) = 10^-9 s, end of options.
    out.write_all(&block(
        1,
        &[&[1, 0, 0, 0], &snap_len.to_le_bytes(), &[9, 0, 1, 0, 9, 0, 0, 0], &[0, 0, 0, 0]],
    ))?;
    let mut count = 0;
    while count < limit {
        let Some(frame) = frames.next_frame() else { break };
        count += 1;
        let padding = [0; 3];
        let padding = &padding[..(4 - frame.bytes.len() % 4) % 4];
        // epb_flags (2): 1 is inbound, 2 is outbound.
        let direction: u32 = if frame.inbound { 1 } else { 2 };
        out.write_all(&block(
            6,
            &[
                &0u32.to_le_bytes(),
                &((frame.time_ns >> 32) as u32).to_le_bytes(),
                &(frame.time_ns as u32).to_le_bytes(),
                &(frame.bytes.len() as u32).to_le_bytes(),
                &frame.orig_len.to_le_bytes(),
                &frame.bytes,
                padding,
                &[2, 0, 4, 0],
                &direction.to_le_bytes(),
                &[0; 4],
            ],
        ))?;
    }
    out.flush()?;
    Ok(count)
}

fn block(kind: u32, parts: &[&[u8]]) -> Vec<u8> {
    let len = 12 + parts.iter().map(|part| part.len()).sum::<usize>() as u32;
    let mut block = Vec::with_capacity(len as usize);
    block.extend_from_slice(&kind.to_le_bytes());
    block.extend_from_slice(&len.to_le_bytes());
    for part in parts {
        block.extend_from_slice(part);
    }
    block.extend_from_slice(&len.to_le_bytes());
    block
}
