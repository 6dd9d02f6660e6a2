//! Checksums: what a host does before it believes a datagram.
//!
//! Apart from the dissector, since it reads every byte and since a device has usually done it.
//!
//! Always true: a datagram whose sum cannot be known here (a fragment, a protocol without a reader,
//! a final destination that is in a routing header) is [`Transport::Unchecked`], not refused.
//! Source: RFC 1071 (sum), RFC 768 and RFC 8200, section 8.1 (UDP), RFC 9293 (TCP).

use super::number::{
    PROTO_DEST_OPTIONS, PROTO_FRAGMENT, PROTO_HOP_BY_HOP, PROTO_ROUTING, PROTO_TCP, PROTO_UDP,
};
use super::{AddrKind, Dissected};
use crate::Bytes;
use crate::bytes::View;

/// What was found of the transport's checksum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// It is right.
    Good,
    /// The sender left it out, as UDP over IPv4 may.
    Absent,
    /// It cannot be checked here.
    Unchecked,
}

/// A datagram that a host would take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verified {
    /// What was found of the transport's checksum.
    pub transport: Transport,
    /// Bytes of payload behind a UDP header, by its own length field; for other protocols the
    /// bytes behind the IP header.
    pub payload_len: u16,
}

/// Why a host would drop the packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum VerifyError {
    /// No IP header was read.
    NoIp,
    /// Not all bytes of the datagram were captured.
    Truncated,
    /// The sum of the IPv4 header is wrong.
    BadIpChecksum,
    /// The UDP length is below 8 or above what the IP header leaves.
    BadUdpLength,
    /// The sum of the UDP datagram is wrong.
    BadUdpChecksum,
    /// A UDP checksum of 0 over IPv6.
    NoUdpChecksum,
    /// The sum of the TCP segment is wrong.
    BadTcpChecksum,
}

impl VerifyError {
    /// Number of variants; [`index`](Self::index) is below it.
    pub const COUNT: usize = 7;

    /// Names of the variants, at the place that [`index`](Self::index) returns.
    pub const NAMES: [&'static str; Self::COUNT] = [
        "no-ip",
        "truncated",
        "bad-ip-csum",
        "bad-udp-length",
        "bad-udp-csum",
        "no-udp-csum",
        "bad-tcp-csum",
    ];

    /// Returns the place of the variant in a table of counters.
    pub const fn index(self) -> usize {
        match self {
            Self::NoIp => 0,
            Self::Truncated => 1,
            Self::BadIpChecksum => 2,
            Self::BadUdpLength => 3,
            Self::BadUdpChecksum => 4,
            Self::NoUdpChecksum => 5,
            Self::BadTcpChecksum => 6,
        }
    }

    /// Returns the name of the variant.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

impl core::fmt::Display for VerifyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for VerifyError {}

/// Checks the lengths and sums of the innermost IP header that `found` was read from, and of the
/// UDP datagram or TCP segment behind it.
///
/// # Errors
/// The first thing for which a host would drop the packet.
pub fn verify<B: Bytes + ?Sized>(frame: &B, found: &Dissected) -> Result<Verified, VerifyError> {
    let network = usize::from(found.network_offset);
    let transport = usize::from(found.transport_offset);
    let is_v4 = match found.key.addr_kind {
        AddrKind::V4 => true,
        AddrKind::V6 => false,
        AddrKind::None | AddrKind::Tipc => return Err(VerifyError::NoIp),
    };
    let end = network + if is_v4 { v4_size(frame, network)? } else { v6_size(frame, network)? };
    let size = end.checked_sub(transport).ok_or(VerifyError::Truncated)?;
    let unchecked = Verified { transport: Transport::Unchecked, payload_len: size as u16 };
    if found.is_fragment() || (!is_v4 && is_source_routed(frame, network)) {
        return Ok(unchecked);
    }
    let protocol = found.key.protocol;
    let pseudo = pseudo_header(frame, network, is_v4).ok_or(VerifyError::Truncated)?;
    let sum = |size: usize| {
        let total = pseudo + u64::from(protocol) + size as u64;
        Some(fold(total + words(frame, transport, size)?))
    };
    match protocol {
        PROTO_UDP => udp(frame, transport, size, is_v4, sum),
        PROTO_TCP if size >= 20 => match sum(size) {
            None => Err(VerifyError::Truncated),
            Some(0xffff) => Ok(Verified { transport: Transport::Good, ..unchecked }),
            Some(_) => Err(VerifyError::BadTcpChecksum),
        },
        _ => Ok(unchecked),
    }
}

/// Returns the length of the IPv4 packet at `at`, whose header has a right sum.
fn v4_size<B: Bytes + ?Sized>(frame: &B, at: usize) -> Result<usize, VerifyError> {
    let header = frame.view::<20>(at).ok_or(VerifyError::Truncated)?;
    let size = usize::from(header.u8(0) & 15) * 4;
    match words(frame, at, size).map(fold) {
        None => Err(VerifyError::Truncated),
        Some(0xffff) => Ok(usize::from(header.u16(2))),
        Some(_) => Err(VerifyError::BadIpChecksum),
    }
}

fn v6_size<B: Bytes + ?Sized>(frame: &B, at: usize) -> Result<usize, VerifyError> {
    let payload = frame.u16(at + 4).ok_or(VerifyError::Truncated)?;
    Ok(40 + usize::from(payload))
}

fn udp<B: Bytes + ?Sized>(
    frame: &B,
    at: usize,
    size: usize,
    is_v4: bool,
    sum: impl Fn(usize) -> Option<u16>,
) -> Result<Verified, VerifyError> {
    let length = usize::from(frame.u16(at + 4).ok_or(VerifyError::Truncated)?);
    if length < 8 || length > size {
        return Err(VerifyError::BadUdpLength);
    }
    let payload_len = length as u16 - 8;
    if frame.u16(at + 6) == Some(0) {
        return match is_v4 {
            true => Ok(Verified { transport: Transport::Absent, payload_len }),
            false => Err(VerifyError::NoUdpChecksum),
        };
    }
    match sum(length) {
        None => Err(VerifyError::Truncated),
        Some(0xffff) => Ok(Verified { transport: Transport::Good, payload_len }),
        Some(_) => Err(VerifyError::BadUdpChecksum),
    }
}

/// Returns the sum of the addresses.
fn pseudo_header<B: Bytes + ?Sized>(frame: &B, at: usize, is_v4: bool) -> Option<u64> {
    if is_v4 { words(frame, at + 12, 8) } else { words(frame, at + 8, 32) }
}

/// Returns whether a routing header of the IPv6 packet at `at` has segments left: its last one
/// takes the place of the destination in the sum.
fn is_source_routed<B: Bytes + ?Sized>(frame: &B, at: usize) -> bool {
    let mut offset = at + 40;
    let mut next = frame.u8(at + 6);
    for _ in 0..super::MAX_STEPS {
        let Some(header) = frame.view::<4>(offset) else { return false };
        match next {
            Some(PROTO_ROUTING) if header.u8(3) != 0 => return true,
            Some(PROTO_HOP_BY_HOP | PROTO_ROUTING | PROTO_DEST_OPTIONS) => {
                offset += (usize::from(header.u8(1)) + 1) * 8;
            }
            Some(PROTO_FRAGMENT) => offset += 8,
            _ => return false,
        }
        next = Some(header.u8(0));
    }
    false
}

/// Returns the sum of `size` bytes as big-endian words, an odd one padded with 0, or `None` if they
/// are not all there.
fn words<B: Bytes + ?Sized>(frame: &B, at: usize, size: usize) -> Option<u64> {
    let mut sum = 0;
    let mut offset = at;
    let end = at + size;
    while offset + 16 <= end {
        let view = frame.view::<16>(offset)?;
        for place in [0, 4, 8, 12] {
            sum += u64::from(view.u32(place));
        }
        offset += 16;
    }
    while offset + 2 <= end {
        sum += u64::from(frame.u16(offset)?);
        offset += 2;
    }
    if offset < end {
        sum += u64::from(frame.u8(offset)?) << 8;
    }
    Some(sum)
}

/// Adds the carries back in: 0xffff for data with its own checksum.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
