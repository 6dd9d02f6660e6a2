//! Checks of a UDP datagram before it reaches a socket: lengths, checksum, and the IP header above.
//!
//! [`check`] takes what follows the IP header and gives the datagram trimmed to its own length, or
//! the reason why not. A caller that must know the ports first (the socket may allow IPv6 without a
//! checksum) takes the two steps apart: [`Udp::parse`], then [`Udp::verify`]. [`check_packet`]
//! starts at the IP header.
//!
//! Always true: no input panics; every refusal is one [`Malformed`] or [`IpFault`], which is one
//! [`Event`](crate::Event) to count; the payload lies inside the bytes that were given.
//! Elsewhere: which socket ([`crate`]); checksums verified only when read ([`crate::queue`]).
//! Source: RFC 768; RFC 1071 (the sum); RFC 8200, sections 4 and 8.1; spec of the receive path, "UDP
//! header checks and per-socket receive".

mod checksum;
mod packet;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

pub use packet::{CheckedPacket, IpFault, PacketFault, check_packet};

use crate::counters::IpVersion;
pub(crate) use checksum::completes;
use checksum::{fold, sum};

/// Bytes of a UDP header.
pub const UDP_HEADER_LEN: usize = 8;

/// Bytes of a datagram, header included, up to which its checksum is verified at arrival in any case:
/// no reader's copy to join the sum with would save anything. The value is Linux's.
pub const VERIFIED_AT_ARRIVAL_LEN: usize = 76;

const PROTO_UDP: u8 = 17;

/// Why a datagram is dropped before it reaches a socket. All are part of `InErrors`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Malformed {
    /// Fewer bytes than a UDP header has.
    ShortHeader,
    /// The length field is below 8.
    LengthBelowHeader,
    /// The length field is above what the packet holds.
    LengthBeyondPacket,
    /// The checksum is wrong. Part of `InCsumErrors`.
    BadChecksum,
    /// No checksum (0) over IPv6, and the socket does not allow this. Part of `InCsumErrors`.
    NoChecksum,
}

impl Malformed {
    /// Number of variants.
    pub const COUNT: usize = 5;

    /// All variants, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [
        Self::ShortHeader,
        Self::LengthBelowHeader,
        Self::LengthBeyondPacket,
        Self::BadChecksum,
        Self::NoChecksum,
    ];

    /// Returns the place of the variant's counter.
    pub const fn index(self) -> usize {
        match self {
            Self::ShortHeader => 0,
            Self::LengthBelowHeader => 1,
            Self::LengthBeyondPacket => 2,
            Self::BadChecksum => 3,
            Self::NoChecksum => 4,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShortHeader => "shorter than a UDP header",
            Self::LengthBelowHeader => "UDP length field below 8",
            Self::LengthBeyondPacket => "UDP length field beyond the packet",
            Self::BadChecksum => "wrong UDP checksum",
            Self::NoChecksum => "no UDP checksum over IPv6",
        })
    }
}

impl std::error::Error for Malformed {}

/// The addresses of the pseudo header, as they are in the IP header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Addresses {
    /// RFC 768.
    V4 {
        /// Sender.
        src: Ipv4Addr,
        /// Receiver.
        dst: Ipv4Addr,
    },
    /// RFC 8200, section 8.1.
    V6 {
        /// Sender.
        src: Ipv6Addr,
        /// Receiver: the final destination.
        dst: Ipv6Addr,
    },
}

impl Addresses {
    /// Returns the IP version.
    pub const fn version(&self) -> IpVersion {
        match self {
            Self::V4 { .. } => IpVersion::V4,
            Self::V6 { .. } => IpVersion::V6,
        }
    }

    /// Returns the unfolded sum of the pseudo header of a datagram of `len` bytes, header included.
    fn sum(&self, len: usize) -> u64 {
        let addresses = match self {
            Self::V4 { src, dst } => sum(&src.octets()) + sum(&dst.octets()),
            Self::V6 { src, dst } => sum(&src.octets()) + sum(&dst.octets()),
        };
        addresses + u64::from(PROTO_UDP) + len as u64
    }
}

/// What the receiver demands of a checksum.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Rules {
    /// The device has verified the checksum of this packet: take its word. A checksum that is absent
    /// is still refused over IPv6.
    pub device_verified: bool,
    /// The socket allows IPv6 datagrams without a checksum (RFC 6935; `UDP_NO_CHECK6_RX`).
    pub ipv6_zero_allowed: bool,
}

/// What is known about a datagram's checksum.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Checksum {
    /// Right, or vouched for by the device.
    #[default]
    Verified,
    /// The sender sent none, and that is allowed.
    Absent,
    /// To be verified when the payload is read: the folded sum (RFC 1071, not complemented) of all
    /// but the payload. Right if it and the payload add up to 0xffff.
    Deferred(u16),
}

/// A datagram whose lengths are right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Udp<'a> {
    /// Source port, host order; 0 means none.
    pub src_port: u16,
    /// Destination port, host order.
    pub dst_port: u16,
    /// The checksum field as it was sent; 0 means none.
    pub checksum: u16,
    /// What follows the header, up to the length field: bytes beyond are trimmed.
    pub payload: &'a [u8],
    header: &'a [u8; UDP_HEADER_LEN],
}

impl<'a> Udp<'a> {
    /// Reads the header of a datagram and checks its lengths.
    ///
    /// `bytes` is what follows the IP header and its options; bytes beyond the length field are
    /// padding. A length field of 0 over IPv6 is a jumbogram (RFC 2675): it means all the bytes.
    ///
    /// # Errors
    /// [`Malformed::ShortHeader`], [`LengthBelowHeader`](Malformed::LengthBelowHeader) and
    /// [`LengthBeyondPacket`](Malformed::LengthBeyondPacket), as their names say.
    pub fn parse(bytes: &'a [u8], version: IpVersion) -> Result<Self, Malformed> {
        let Some((header, rest)) = bytes.split_first_chunk::<UDP_HEADER_LEN>() else {
            return Err(Malformed::ShortHeader);
        };
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let payload_len = match (usize::from(field(4)), version) {
            (0, IpVersion::V6) => rest.len(),
            (length, _) => {
                length.checked_sub(UDP_HEADER_LEN).ok_or(Malformed::LengthBelowHeader)?
            }
        };
        let payload = rest.get(..payload_len).ok_or(Malformed::LengthBeyondPacket)?;
        Ok(Self { src_port: field(0), dst_port: field(2), checksum: field(6), payload, header })
    }

    /// Checks the checksum.
    ///
    /// Never returns [`Checksum::Deferred`]. Reads the whole payload, unless the device has verified
    /// it or there is no checksum.
    ///
    /// # Errors
    /// [`Malformed::BadChecksum`]; [`Malformed::NoChecksum`] if there is none over IPv6 and the rules
    /// do not allow that.
    pub fn verify(&self, addresses: &Addresses, rules: Rules) -> Result<Checksum, Malformed> {
        match self.partial(addresses, rules)? {
            Checksum::Deferred(partial) => self.complete(partial),
            known @ (Checksum::Verified | Checksum::Absent) => Ok(known),
        }
    }

    /// Checks what is cheap to check now and leaves the payload to the reader, as Linux does.
    ///
    /// Sums up all but the payload; the payload too if the datagram has at most
    /// [`VERIFIED_AT_ARRIVAL_LEN`] bytes. A socket filter, an encapsulation handler and the case "no
    /// socket" need [`verify`](Self::verify) at arrival.
    ///
    /// # Errors
    /// As [`verify`](Self::verify); a wrong checksum only of a short datagram.
    pub fn defer(&self, addresses: &Addresses, rules: Rules) -> Result<Checksum, Malformed> {
        match self.partial(addresses, rules)? {
            Checksum::Deferred(partial) if self.len() <= VERIFIED_AT_ARRIVAL_LEN => {
                self.complete(partial)
            }
            known => Ok(known),
        }
    }

    /// Bytes of header and payload.
    const fn len(&self) -> usize {
        UDP_HEADER_LEN + self.payload.len()
    }

    fn complete(&self, partial: u16) -> Result<Checksum, Malformed> {
        if completes(partial, self.payload) {
            Ok(Checksum::Verified)
        } else {
            Err(Malformed::BadChecksum)
        }
    }

    /// Returns the verdict if it needs no look at the payload, or the sum of all else.
    fn partial(&self, addresses: &Addresses, rules: Rules) -> Result<Checksum, Malformed> {
        if self.checksum == 0 {
            return match addresses.version() {
                IpVersion::V6 if !rules.ipv6_zero_allowed => Err(Malformed::NoChecksum),
                IpVersion::V4 | IpVersion::V6 => Ok(Checksum::Absent),
            };
        }
        if rules.device_verified {
            return Ok(Checksum::Verified);
        }
        Ok(Checksum::Deferred(fold(addresses.sum(self.len()) + sum(self.header))))
    }
}

/// Checks a datagram: lengths, then checksum.
///
/// # Errors
/// The first fault found, in the order of [`Malformed`].
///
/// # Examples
/// ```
/// use rxsteer_sockets::datagram::{Addresses, Malformed, Rules, check};
/// let addresses = Addresses::V4 { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into() };
/// // Ports 1 and 2, length 9, no checksum, payload "x", one byte of padding.
/// let (udp, _) = check(&[0, 1, 0, 2, 0, 9, 0, 0, b'x', 0], &addresses, Rules::default())?;
/// assert_eq!((udp.dst_port, udp.payload), (2, &b"x"[..]));
/// let wrong = check(&[0, 1, 0, 2, 0, 9, 1, 1, b'x'], &addresses, Rules::default());
/// assert_eq!(wrong, Err(Malformed::BadChecksum));
/// # Ok::<(), Malformed>(())
/// ```
pub fn check<'a>(
    bytes: &'a [u8],
    addresses: &Addresses,
    rules: Rules,
) -> Result<(Udp<'a>, Checksum), Malformed> {
    let udp = Udp::parse(bytes, addresses.version())?;
    let checksum = udp.verify(addresses, rules)?;
    Ok((udp, checksum))
}
