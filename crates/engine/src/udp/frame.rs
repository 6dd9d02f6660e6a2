//! A frame on its way to a socket.

use std::cell::OnceCell;
use std::net::IpAddr;

use rxsteer_core::FlowHash;
use rxsteer_core::hash::Sip13;
use rxsteer_core::steer::Class;
use rxsteer_sockets::IpVersion;
use rxsteer_sockets::datagram::{
    Addresses, CheckedPacket, Checksum, IpFault, PacketFault, Rules, UDP_HEADER_LEN, check_packet,
};
use rxsteer_sockets::queue::Buffer;

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
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) checksum: Checksum,
    payload_at: u32,
    payload_len: u16,
    headers_len: u16,
    header_word: u64,
    flow: u64,
    plain: bool,
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

    /// Checks the headers and the checksum, once; `key` is that of the flows' identities.
    pub(super) fn checked(&self, key: (u64, u64)) -> Result<&Checked, PacketFault> {
        let checked = self.checked.get_or_init(|| {
            let at = network_offset(&self.bytes).ok_or(IpFault::Version)?;
            let packet = &self.bytes[at..];
            let rules = Rules { device_verified: self.device_verified, ..Rules::default() };
            let seen = check_packet(packet, rules)?;
            Ok(Checked::new(at, packet, &seen, key))
        });
        checked.as_ref().map_err(|fault| *fault)
    }

    /// Returns the IP version by the first byte behind the Ethernet header; 4 if there is none.
    pub(super) fn version(&self) -> IpVersion {
        let first = network_offset(&self.bytes).and_then(|at| self.bytes.get(at));
        if first.is_some_and(|first| first >> 4 == 6) { IpVersion::V6 } else { IpVersion::V4 }
    }

    pub(super) fn payload(&self, checked: &Checked) -> &[u8] {
        let at = checked.payload_at as usize;
        &self.bytes[at..at + usize::from(checked.payload_len)]
    }

    /// Takes the frame apart: buffer, place of the payload, its bytes.
    pub(super) fn into_payload(self, checked: &Checked) -> (Buffer, u32, u16) {
        (self.bytes, checked.payload_at, checked.payload_len)
    }

    /// Returns what merging looks at; `None` for what is no sound UDP.
    pub(super) fn segment(&self, key: (u64, u64)) -> Option<Segment> {
        let checked = self.checked(key).ok()?;
        let hash = if self.hash.is_none() { FlowHash(checked.flow as u32) } else { self.hash };
        Some(Segment {
            hash,
            flow: checked.flow,
            header_word: checked.header_word,
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
    fn new(network: usize, packet: &[u8], seen: &CheckedPacket<'_>, key: (u64, u64)) -> Self {
        let udp = &seen.udp;
        let payload_len = udp.payload.len();
        // What is behind it is padding.
        let payload_at = udp.payload.as_ptr() as usize - packet.as_ptr() as usize;
        let ip_len = payload_at - UDP_HEADER_LEN;
        let ports = u64::from(udp.src_port) | u64::from(udp.dst_port) << 16;
        let hash = Sip13::new(key.0, key.1);
        let word = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        // Lengths and versions were checked, so the fixed headers are there.
        let (src, dst, header_word, plain_len, flow) = match seen.addresses {
            Addresses::V4 { src, dst } => {
                let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
                // Type of service, DF, time to live.
                let fields = [4, packet[1], packet[6] & 0x40, packet[8], 0, 0, 0, 0];
                let addresses = u64::from(u32::from(src)) | u64::from(u32::from(dst)) << 32;
                let flow = hash.word(addresses).finish(ports | 4 << 56);
                (src.into(), dst.into(), word(fields), (20, total - ip_len), flow)
            }
            Addresses::V6 { src, dst } => {
                let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
                // Version, traffic class and flow label; hop limit.
                let fields = [packet[0], packet[1], packet[2], packet[3], packet[7], 0, 0, 0];
                let halves = |address: u128| (address as u64, (address >> 64) as u64);
                let (a, b) = (halves(src.into()), halves(dst.into()));
                let flow = hash.word(a.0).word(a.1).word(b.0).word(b.1).finish(ports | 6 << 56);
                (src.into(), dst.into(), word(fields), (40, length), flow)
            }
        };
        let (fixed_len, udp_len) = plain_len;
        Self {
            src,
            dst,
            src_port: udp.src_port,
            dst_port: udp.dst_port,
            checksum: seen.checksum,
            payload_at: (network + payload_at) as u32,
            payload_len: payload_len as u16,
            headers_len: (ip_len + UDP_HEADER_LEN) as u16,
            header_word,
            flow,
            plain: ip_len == fixed_len && udp_len == UDP_HEADER_LEN + payload_len,
        }
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
