//! A frame on its way to a socket.

use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rxsteer_core::FlowHash;
use rxsteer_core::hash::Sip13;
use rxsteer_core::steer::Class;
use rxsteer_sockets::IpVersion;
use rxsteer_sockets::datagram::{
    Addresses, CheckedPacket, Checksum, IpFault, PacketFault, Rules, UDP_HEADER_LEN, check_packet,
};
use rxsteer_sockets::queue::Buffer;

use super::message::Piece;
use crate::gro::{self, Segment};
use crate::overload::Ticket;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_CTAG: u16 = 0x8100;
const ETHERTYPE_STAG: u16 = 0x88a8;

/// An Ethernet frame that a device took in, in a buffer lent by a pool.
#[derive(Debug)]
pub struct Frame {
    bytes: Buffer,
    arrived_ns: u64,
    /// The device's, or what steering computed; none if nobody needed it.
    pub(super) hash: FlowHash,
    pub(super) class: Class,
    device_verified: bool,
    /// Of its socket's room, while it is on its way there.
    pub(super) ticket: Ticket,
    /// Its sender is one of those that lose nothing.
    pub(super) protected: bool,
    /// Found when it is first asked for, on the CPU that does the protocol work.
    checked: OnceCell<Result<Checked, PacketFault>>,
}

/// What the protocol work found in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    payload_at: u32,
    payload_len: u16,
    headers_len: u16,
    pub(super) checksum: Checksum,
    plain: bool,
    v6: bool,
}

/// Who sent a datagram, and to whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
}

impl Frame {
    /// Makes a frame that arrived at a time of the device's clock.
    pub const fn new(bytes: Buffer, arrived_ns: u64) -> Self {
        Self {
            bytes,
            arrived_ns,
            hash: FlowHash::NONE,
            class: Class::Other,
            device_verified: false,
            ticket: Ticket::NONE,
            protected: false,
            checked: OnceCell::new(),
        }
    }

    /// Adds the hash that the device computed, which is then used as it is.
    #[must_use]
    pub fn with_hash(self, hash: FlowHash) -> Self {
        Self { hash, ..self }
    }

    /// Says that the device verified the checksum of UDP.
    #[must_use]
    pub fn with_checksum_verified(self) -> Self {
        Self { device_verified: true, ..self }
    }

    /// Returns the bytes, from the Ethernet header on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of memory that it holds.
    pub(super) fn held_len(&self) -> u32 {
        u32::try_from(self.bytes.capacity()).unwrap_or(u32::MAX)
    }

    /// Returns when it arrived.
    pub const fn arrived_ns(&self) -> u64 {
        self.arrived_ns
    }

    /// Checks the headers and the checksum, once.
    pub(super) fn checked(&self) -> Result<&Checked, PacketFault> {
        let checked = self.checked.get_or_init(|| {
            let at = network_offset(&self.bytes).ok_or(IpFault::Version)?;
            let packet = &self.bytes[at..];
            let rules = Rules { device_verified: self.device_verified, ..Rules::default() };
            let seen = check_packet(packet, rules)?;
            Ok(Checked::new(at, packet, &seen))
        });
        checked.as_ref().map_err(|fault| *fault)
    }

    /// Returns the IP version by the first byte behind the Ethernet header; 4 if there is none.
    pub(super) fn version(&self) -> IpVersion {
        let first = network_offset(&self.bytes).and_then(|at| self.bytes.get(at));
        if first.is_some_and(|first| first >> 4 == 6) { IpVersion::V6 } else { IpVersion::V4 }
    }

    /// Reads addresses and ports again, where the check found them.
    pub(super) fn ends(&self, checked: &Checked) -> Ends {
        let (packet, ports) = checked.headers(&self.bytes);
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let (src, dst): (IpAddr, IpAddr) = if checked.v6 {
            let header = packet.first_chunk::<40>().expect("it was checked");
            let address = |at: usize| {
                Ipv6Addr::from(*header[at..].first_chunk::<16>().expect("the header has it"))
            };
            (address(8).into(), address(24).into())
        } else {
            let header = packet.first_chunk::<20>().expect("it was checked");
            let address = |at: usize| {
                Ipv4Addr::from(*header[at..].first_chunk::<4>().expect("the header has it"))
            };
            (address(12).into(), address(16).into())
        };
        Ends { src: SocketAddr::new(src, port(0)), dst: SocketAddr::new(dst, port(2)) }
    }

    pub(super) fn payload(&self, checked: &Checked) -> &[u8] {
        let at = checked.payload_at as usize;
        &self.bytes[at..at + usize::from(checked.payload_len)]
    }

    /// Makes a piece of a message of the frame.
    pub(super) fn into_piece(self, checked: &Checked) -> Piece {
        Piece {
            buffer: self.bytes,
            at: checked.payload_at,
            len: checked.payload_len,
            arrived_ns: self.arrived_ns,
        }
    }

    /// Returns what merging looks at; `None` for what is no sound UDP. `key` is that of the
    /// flows' identities.
    pub(super) fn segment(&self, key: (u64, u64)) -> Option<Segment> {
        let checked = self.checked().ok()?;
        let (ip, ports) = checked.headers(&self.bytes);
        let hash = Sip13::new(key.0, key.1);
        let ports = u64::from(u32::from_le_bytes(*ports));
        let (header_word, flow) = if checked.v6 {
            let header = ip.first_chunk::<40>().expect("it was checked");
            let hash = header[8..].chunks_exact(8).fold(hash, |hash, word| {
                hash.word(u64::from_le_bytes(*word.first_chunk().expect("eight bytes")))
            });
            let [a, b, c, d, _, _, _, hop_limit, ..] = *header;
            // Version, traffic class and flow label; hop limit.
            ([a, b, c, d, hop_limit, 0, 0, 0], hash.finish(ports | 6 << 56))
        } else {
            let header = ip.first_chunk::<20>().expect("it was checked");
            let addresses = header[12..].first_chunk().expect("eight bytes");
            let flow = hash.word(u64::from_le_bytes(*addresses)).finish(ports | 4 << 56);
            // Type of service, DF, time to live.
            ([4, header[1], header[6] & 0x40, header[8], 0, 0, 0, 0], flow)
        };
        Some(Segment {
            hash: if self.hash.is_none() { FlowHash(flow as u32) } else { self.hash },
            flow,
            header_word: u64::from_le_bytes(header_word),
            headers_len: checked.headers_len,
            payload_len: checked.payload_len,
            checksum: match checked.checksum {
                Checksum::Verified => gro::Checksum::Good,
                Checksum::Absent => gro::Checksum::Absent,
                Checksum::Deferred(_) => gro::Checksum::Bad,
            },
            length_fits: checked.plain,
        })
    }
}

impl Checked {
    fn new(network: usize, packet: &[u8], seen: &CheckedPacket<'_>) -> Self {
        let payload_len = seen.udp.payload.len();
        // What is behind it is padding.
        let payload_at = seen.udp.payload.as_ptr() as usize - packet.as_ptr() as usize;
        let ip_len = payload_at - UDP_HEADER_LEN;
        let v6 = matches!(seen.addresses, Addresses::V6 { .. });
        let length = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let (fixed_len, udp_len) = if v6 { (40, length(4)) } else { (20, length(2) - ip_len) };
        Self {
            payload_at: (network + payload_at) as u32,
            payload_len: payload_len as u16,
            // A buffer holds 65,536 bytes, the Ethernet header included.
            headers_len: payload_at as u16,
            checksum: seen.checksum,
            plain: ip_len == fixed_len && udp_len == UDP_HEADER_LEN + payload_len,
            v6,
        }
    }

    /// Returns the IP header and the ports.
    fn headers<'f>(&self, frame: &'f [u8]) -> (&'f [u8], &'f [u8; 4]) {
        let end = self.payload_at as usize;
        let headers = &frame[end - usize::from(self.headers_len)..end];
        let ports = headers[headers.len() - UDP_HEADER_LEN..].first_chunk();
        (headers, ports.expect("the header of UDP has eight bytes"))
    }
}

/// Returns where the IP header of a frame is, behind at most two VLAN tags.
fn network_offset(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    for _ in 0..3 {
        let ethertype = u16::from_be_bytes(*frame.get(at..)?.first_chunk::<2>()?);
        match ethertype {
            ETHERTYPE_CTAG | ETHERTYPE_STAG => at += 4,
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return Some(at + 2),
            _ => return None,
        }
    }
    None
}
