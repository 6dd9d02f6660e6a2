//! Link types: where the first header that the dissector knows begins.
//!
//! A capture says for each interface what its packets begin with. Ethernet frames go to the
//! dissector as they are; of the other link types the link header is read here, down to an
//! ethertype and the offset of what follows it.
//!
//! Always true: the offset returned is at most the length of the data.
//! Elsewhere: everything behind that offset ([`mod@rxsteer_core::dissect`]).
//! Source: the link-layer header type registry of tcpdump.org (LINKTYPE_ values and their pages).

use std::fmt;

use rxsteer_core::dissect::Start;

use super::Direction;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Bytes of the Linux "cooked" headers, version 1 and 2.
const SLL_BYTES: usize = 16;
const SLL2_BYTES: usize = 20;
/// Bytes of the address family before a packet of a BSD loopback interface.
const FAMILY_BYTES: usize = 4;
/// Smallest number in an ethertype field that is an ethertype (IEEE 802.3, clause 3.2.6).
const ETHERTYPE_MIN: u16 = 0x0600;
/// Linux's own protocol numbers below that: Novell's raw 802.3 and 802.2 frames.
const ETH_P_802_3: u16 = 1;
const ETH_P_802_2: u16 = 4;

/// A LINKTYPE number: what the packets of an interface begin with.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: a 4-byte address family in the byte order of the host that captured.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// Raw IP as some writers number it (the value of DLT_RAW on most systems).
    pub const RAW_DLT: Self = Self(12);
    /// Raw IP as OpenBSD numbers it.
    pub const RAW_OPENBSD: Self = Self(14);
    /// Raw IP, version 4 or 6 by its first nibble.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback: a 4-byte address family in network order.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture, version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// Raw IPv4.
    pub const IPV4: Self = Self(228);
    /// Raw IPv6.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// Returns whether [`start`](Self::start) reads this link type.
    pub const fn is_known(self) -> bool {
        self.name().is_some()
    }

    /// Returns the registry's name of the link type, or `None` if it is not read here.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NULL => "NULL",
            Self::ETHERNET => "ETHERNET",
            Self::RAW | Self::RAW_DLT | Self::RAW_OPENBSD => "RAW",
            Self::LOOP => "LOOP",
            Self::LINUX_SLL => "LINUX_SLL",
            Self::IPV4 => "IPV4",
            Self::IPV6 => "IPV6",
            Self::LINUX_SLL2 => "LINUX_SLL2",
            _ => return None,
        })
    }

    /// Returns where the dissector starts, and the offset of the first byte of that header: 0, or
    /// the length of the link header that was taken off.
    ///
    /// # Errors
    /// [`LinkError`]: a link type that is not read, a link header that is not all there, or one
    /// that says that no header known to the dissector follows.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_core::dissect::Start;
    /// use rxsteer_lab::capture::LinkType;
    /// let packet = [0, 0, 0, 30, 0x60, 0, 0, 0]; // OpenBSD loopback, family 30: IPv6
    /// let (start, offset) = LinkType::LOOP.start(&packet)?;
    /// assert_eq!(start, Start::Network { ethertype: 0x86dd, offset: 4 });
    /// assert_eq!(offset, 4);
    /// # Ok::<(), rxsteer_lab::capture::LinkError>(())
    /// ```
    #[inline]
    pub fn start(self, data: &[u8]) -> Result<(Start, usize), LinkError> {
        match self {
            Self::ETHERNET => Ok((Start::Ethernet, 0)),
            Self::RAW | Self::RAW_DLT | Self::RAW_OPENBSD => raw_ip(data),
            Self::IPV4 => Ok(network(ETHERTYPE_IPV4, 0)),
            Self::IPV6 => Ok(network(ETHERTYPE_IPV6, 0)),
            Self::LINUX_SLL => sll(data),
            Self::LINUX_SLL2 => sll2(data),
            Self::NULL | Self::LOOP => loopback(data),
            _ => Err(LinkError::Unsupported(self.0)),
        }
    }

    /// Returns the direction that the link header itself tells (the Linux cooked headers do).
    #[inline]
    pub(super) fn direction(self, data: &[u8]) -> Direction {
        let packet_type = match self {
            Self::LINUX_SLL => data.first_chunk::<2>().map(|b| u16::from_be_bytes(*b)),
            Self::LINUX_SLL2 => data.get(10).copied().map(u16::from),
            _ => return Direction::Unknown,
        };
        packet_type.map_or(Direction::Unknown, Direction::of_packet_type)
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => self.0.fmt(f),
        }
    }
}

/// Why the bytes of a packet have no header that the dissector could start at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkError {
    /// Packets of this link type are not read.
    Unsupported(u16),
    /// The packet has fewer bytes than its link header, which has this many.
    Truncated(u8),
    /// Raw IP whose version (first nibble) is neither 4 nor 6.
    IpVersion(u8),
    /// An address family (host order) that is neither IPv4 nor one of the numbers for IPv6.
    Family(u32),
    /// A Linux cooked header with an ARPHRD_ hardware type whose packets are not network packets
    /// by ethertype: CAN (280), GRE (778), radiotap (803), netlink (824).
    HardwareType(u16),
    /// A Linux cooked header whose protocol field is no ethertype.
    Protocol(u16),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unsupported(link) => write!(f, "link type {link} is not read"),
            Self::Truncated(bytes) => {
                write!(f, "the packet ends inside its {bytes}-byte link header")
            }
            Self::IpVersion(version) => write!(f, "raw IP of version {version}, neither 4 nor 6"),
            Self::Family(family) => write!(f, "address family {family} is neither IPv4 nor IPv6"),
            Self::HardwareType(kind) => write!(f, "packets of hardware type {kind} are not read"),
            Self::Protocol(protocol) => write!(f, "protocol {protocol:#06x} is no ethertype"),
        }
    }
}

impl std::error::Error for LinkError {}

fn network(ethertype: u16, offset: usize) -> (Start, usize) {
    (Start::Network { ethertype, offset: offset as u16 }, offset)
}

fn raw_ip(data: &[u8]) -> Result<(Start, usize), LinkError> {
    match data.first().ok_or(LinkError::Truncated(1))? >> 4 {
        4 => Ok(network(ETHERTYPE_IPV4, 0)),
        6 => Ok(network(ETHERTYPE_IPV6, 0)),
        version => Err(LinkError::IpVersion(version)),
    }
}

fn sll(data: &[u8]) -> Result<(Start, usize), LinkError> {
    let header = data.first_chunk::<SLL_BYTES>().ok_or(LinkError::Truncated(SLL_BYTES as u8))?;
    let hardware = u16::from_be_bytes([header[2], header[3]]);
    cooked(hardware, u16::from_be_bytes([header[14], header[15]]), SLL_BYTES)
}

fn sll2(data: &[u8]) -> Result<(Start, usize), LinkError> {
    let header = data.first_chunk::<SLL2_BYTES>().ok_or(LinkError::Truncated(SLL2_BYTES as u8))?;
    let hardware = u16::from_be_bytes([header[8], header[9]]);
    cooked(hardware, u16::from_be_bytes([header[0], header[1]]), SLL2_BYTES)
}

fn cooked(hardware: u16, protocol: u16, offset: usize) -> Result<(Start, usize), LinkError> {
    match (hardware, protocol) {
        (280 | 778 | 803 | 824, _) => Err(LinkError::HardwareType(hardware)),
        (_, ETH_P_802_3 | ETH_P_802_2 | ETHERTYPE_MIN..) => Ok(network(protocol, offset)),
        _ => Err(LinkError::Protocol(protocol)),
    }
}

/// The byte order of LINKTYPE_NULL is that of the host that captured, and writers of LINKTYPE_LOOP
/// have kept host order too: take the order in which the family is a small number.
fn loopback(data: &[u8]) -> Result<(Start, usize), LinkError> {
    let header = data.first_chunk().ok_or(LinkError::Truncated(FAMILY_BYTES as u8))?;
    let family = u32::from_be_bytes(*header).min(u32::from_le_bytes(*header));
    match family {
        2 => Ok(network(ETHERTYPE_IPV4, FAMILY_BYTES)),
        // AF_INET6 of Linux, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 24 | 28 | 30 => Ok(network(ETHERTYPE_IPV6, FAMILY_BYTES)),
        _ => Err(LinkError::Family(family)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset_and_type(link: LinkType, data: &[u8]) -> Result<(u16, usize), LinkError> {
        link.start(data).map(|(start, at)| match start {
            Start::Network { ethertype, offset } => {
                assert_eq!(usize::from(offset), at);
                (ethertype, at)
            }
            Start::Ethernet => (0, at),
        })
    }

    #[test]
    fn raw_ip_is_told_by_its_first_nibble() {
        for link in [LinkType::RAW, LinkType::RAW_DLT, LinkType::RAW_OPENBSD] {
            assert_eq!(offset_and_type(link, &[0x45]), Ok((0x0800, 0)));
            assert_eq!(offset_and_type(link, &[0x6f]), Ok((0x86dd, 0)));
            assert_eq!(link.start(&[0x50]), Err(LinkError::IpVersion(5)));
            assert_eq!(link.start(&[]), Err(LinkError::Truncated(1)));
        }
        assert_eq!(offset_and_type(LinkType::IPV4, &[0x60]), Ok((0x0800, 0)));
        assert_eq!(offset_and_type(LinkType::IPV6, &[0x45]), Ok((0x86dd, 0)));
    }

    #[test]
    fn a_loopback_family_is_read_in_both_byte_orders() {
        for link in [LinkType::NULL, LinkType::LOOP] {
            for (family, ethertype) in
                [(2u32, 0x0800), (10, 0x86dd), (24, 0x86dd), (28, 0x86dd), (30, 0x86dd)]
            {
                assert_eq!(offset_and_type(link, &family.to_be_bytes()), Ok((ethertype, 4)));
                assert_eq!(offset_and_type(link, &family.to_le_bytes()), Ok((ethertype, 4)));
            }
            assert_eq!(link.start(&[0, 0, 0, 7]), Err(LinkError::Family(7)));
            assert_eq!(link.start(&[7, 0, 0, 0]), Err(LinkError::Family(7)));
            assert_eq!(link.start(&[2, 0, 0]), Err(LinkError::Truncated(4)));
        }
    }

    #[test]
    fn cooked_headers_give_protocol_and_direction() {
        let mut v1 = [0u8; 16];
        v1[..4].copy_from_slice(&[0, 4, 0, 1]);
        v1[14..].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(offset_and_type(LinkType::LINUX_SLL, &v1), Ok((0x8100, 16)));
        assert_eq!(LinkType::LINUX_SLL.direction(&v1), Direction::Outbound);
        assert_eq!(LinkType::LINUX_SLL.start(&v1[..15]), Err(LinkError::Truncated(16)));
        let mut v2 = [0u8; 20];
        v2[..2].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(offset_and_type(LinkType::LINUX_SLL2, &v2), Ok((0x86dd, 20)));
        assert_eq!(LinkType::LINUX_SLL2.direction(&v2), Direction::Inbound);
        assert_eq!(LinkType::LINUX_SLL2.start(&v2[..19]), Err(LinkError::Truncated(20)));
    }

    #[test]
    fn cooked_headers_of_what_is_no_network_packet_are_refused() {
        for hardware in [280u16, 778, 803, 824] {
            let mut v1 = [0u8; 16];
            v1[2..4].copy_from_slice(&hardware.to_be_bytes());
            v1[14] = 8;
            assert_eq!(LinkType::LINUX_SLL.start(&v1), Err(LinkError::HardwareType(hardware)));
        }
        for (protocol, accepted) in [
            (0u16, false),
            (1, true),
            (3, false),
            (4, true),
            (5, false),
            (0x5ff, false),
            (0x600, true),
        ] {
            let mut v1 = [0u8; 16];
            v1[14..].copy_from_slice(&protocol.to_be_bytes());
            let expected =
                if accepted { Ok((protocol, 16)) } else { Err(LinkError::Protocol(protocol)) };
            assert_eq!(offset_and_type(LinkType::LINUX_SLL, &v1), expected);
        }
    }
}
