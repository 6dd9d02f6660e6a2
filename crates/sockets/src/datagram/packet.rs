//! The way from an IP header to the datagram below it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::checksum::{fold, sum};
use super::{Addresses, Checksum, Malformed, PROTO_UDP, Rules, Udp};

/// Why a packet is dropped in the IP layer: no part of the UDP counters.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum IpFault {
    /// Neither version 4 nor 6, or no byte at all.
    Version,
    /// The packet ends inside a header.
    Truncated,
    /// IPv4 header length, in 32-bit words, is below 5 (RFC 791, section 3.1).
    HeaderLength,
    /// The length field is above the bytes at hand, or an IPv4 one is below its header.
    Length,
    /// The checksum of the IPv4 header is wrong.
    HeaderChecksum,
    /// A fragment: to be put together first.
    Fragment,
    /// Source routed and not at its destination yet, so its checksum is not ours to judge.
    Routed,
    /// Something else than UDP.
    NotUdp,
}

impl IpFault {
    /// Number of variants.
    pub const COUNT: usize = 8;

    /// All variants, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [
        Self::Version,
        Self::Truncated,
        Self::HeaderLength,
        Self::Length,
        Self::HeaderChecksum,
        Self::Fragment,
        Self::Routed,
        Self::NotUdp,
    ];

    /// Returns the place of the variant's counter.
    pub const fn index(self) -> usize {
        match self {
            Self::Version => 0,
            Self::Truncated => 1,
            Self::HeaderLength => 2,
            Self::Length => 3,
            Self::HeaderChecksum => 4,
            Self::Fragment => 5,
            Self::Routed => 6,
            Self::NotUdp => 7,
        }
    }
}

impl fmt::Display for IpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "neither IPv4 nor IPv6",
            Self::Truncated => "ends inside a header",
            Self::HeaderLength => "IPv4 header length below 5 words",
            Self::Length => "IP length field does not fit the packet",
            Self::HeaderChecksum => "wrong IPv4 header checksum",
            Self::Fragment => "a fragment",
            Self::Routed => "source routed, not at its destination",
            Self::NotUdp => "not UDP",
        })
    }
}

impl std::error::Error for IpFault {}

/// Why [`check_packet`] refuses a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PacketFault {
    /// Dropped in the IP layer.
    Ip(IpFault),
    /// Dropped by UDP.
    Udp(Malformed),
}

impl fmt::Display for PacketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(fault) => fault.fmt(f),
            Self::Udp(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for PacketFault {}

impl From<IpFault> for PacketFault {
    fn from(fault: IpFault) -> Self {
        Self::Ip(fault)
    }
}

impl From<Malformed> for PacketFault {
    fn from(fault: Malformed) -> Self {
        Self::Udp(fault)
    }
}

impl From<PacketFault> for crate::Event {
    fn from(fault: PacketFault) -> Self {
        match fault {
            PacketFault::Ip(fault) => Self::Ip(fault),
            PacketFault::Udp(fault) => Self::Malformed(fault),
        }
    }
}

/// A UDP packet whose headers are right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CheckedPacket<'a> {
    /// Addresses of the IP header.
    pub addresses: Addresses,
    /// The datagram.
    pub udp: Udp<'a>,
    /// What is known about its checksum.
    pub checksum: Checksum,
}

/// Checks a packet from its IP header on: header, header checksum, lengths, UDP.
///
/// Bytes beyond the IP length (padding of short Ethernet frames) are trimmed, then those beyond the
/// UDP length. IPv6 hop-by-hop, routing and destination options are passed over. `device_verified`
/// in the rules concerns the UDP checksum only.
///
/// # Errors
/// [`PacketFault::Ip`] for what the IP layer drops, fragments too; [`PacketFault::Udp`] for what UDP
/// drops.
pub fn check_packet(packet: &[u8], rules: Rules) -> Result<CheckedPacket<'_>, PacketFault> {
    let (addresses, segment) = match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4(packet)?,
        Some(6) => ipv6(packet)?,
        Some(_) | None => return Err(IpFault::Version.into()),
    };
    let (udp, checksum) = super::check(segment, &addresses, rules)?;
    Ok(CheckedPacket { addresses, udp, checksum })
}

fn ipv4(packet: &[u8]) -> Result<(Addresses, &[u8]), IpFault> {
    let fixed = packet.first_chunk::<20>().ok_or(IpFault::Truncated)?;
    let header_len = usize::from(fixed[0] & 0x0f) * 4;
    if header_len < 20 {
        return Err(IpFault::HeaderLength);
    }
    let header = packet.get(..header_len).ok_or(IpFault::Truncated)?;
    if fold(sum(header)) != 0xffff {
        return Err(IpFault::HeaderChecksum);
    }
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let segment = packet.get(header_len..total).ok_or(IpFault::Length)?;
    let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
    if fragment & 0x3fff != 0 {
        return Err(IpFault::Fragment); // an offset, or more to come
    }
    if fixed[9] != PROTO_UDP {
        return Err(IpFault::NotUdp);
    }
    let address = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
    Ok((Addresses::V4 { src: address(12), dst: address(16) }, segment))
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

fn ipv6(packet: &[u8]) -> Result<(Addresses, &[u8]), IpFault> {
    let (fixed, rest) = packet.split_first_chunk::<40>().ok_or(IpFault::Truncated)?;
    let length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let mut rest = rest.get(..length).ok_or(IpFault::Length)?;
    let mut next = fixed[6];
    while next != PROTO_UDP {
        let [following, len, third, fourth, ..] = *rest.first_chunk::<8>().ok_or(
            // What is not a header that we know need not have eight bytes.
            if matches!(next, HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT) {
                IpFault::Truncated
            } else {
                IpFault::NotUdp
            },
        )?;
        let header_len = match next {
            HOP_BY_HOP | DESTINATION => 8 + usize::from(len) * 8,
            ROUTING if fourth != 0 => return Err(IpFault::Routed), // segments left
            ROUTING => 8 + usize::from(len) * 8,
            // Offset 0 and no more to come: a whole datagram behind a fragment header (RFC 6946).
            FRAGMENT if u16::from_be_bytes([third, fourth]) & 0xfff9 == 0 => 8,
            FRAGMENT => return Err(IpFault::Fragment),
            _ => return Err(IpFault::NotUdp),
        };
        // Each turn takes at least eight bytes off, so the walk ends.
        rest = rest.get(header_len..).ok_or(IpFault::Truncated)?;
        next = following;
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&fixed[at..at + 16]);
        Ipv6Addr::from(octets)
    };
    Ok((Addresses::V6 { src: address(8), dst: address(24) }, rest))
}
