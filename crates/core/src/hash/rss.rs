//! What a device hashes: addresses and, for some protocols, ports, in network order.
//!
//! Source: Microsoft, "RSS hashing types": source address, destination address, source port,
//! destination port. Without ports for fragments and for protocols that a device is set to spread
//! by addresses only (`ethtool -n DEVICE rx-flow-hash udp4`).

use crate::FlowKey;
use crate::dissect::AddrKind;

/// The bytes that a device hashes of one packet: 8 or 12 for IPv4, 32 or 36 for IPv6.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RssInput {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl RssInput {
    /// Bytes of the longest input: two IPv6 addresses and two ports.
    pub const MAX_LEN: usize = 36;

    /// Takes IPv4 addresses only.
    #[inline]
    pub fn v4(src: [u8; 4], dst: [u8; 4]) -> Self {
        Self { len: 8, ..Self::v4_ports(src, dst, 0, 0) }
    }

    /// Takes IPv4 addresses and ports.
    #[inline]
    pub fn v4_ports(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16) -> Self {
        Self::join([src, dst], src_port, dst_port)
    }

    /// Takes IPv6 addresses only.
    #[inline]
    pub fn v6(src: [u8; 16], dst: [u8; 16]) -> Self {
        Self { len: 32, ..Self::v6_ports(src, dst, 0, 0) }
    }

    /// Takes IPv6 addresses and ports.
    #[inline]
    pub fn v6_ports(src: [u8; 16], dst: [u8; 16], src_port: u16, dst_port: u16) -> Self {
        Self::join([src, dst], src_port, dst_port)
    }

    /// Takes the addresses and, if asked, the ports of a key; `None` for a key that is not IP.
    ///
    /// Whether ports belong in is the device's setting for the packet's protocol. A device hashes
    /// the outer header of a tunnel, so the key must come from there.
    #[inline]
    pub fn from_key(key: &FlowKey, with_ports: bool) -> Option<Self> {
        let v4 = |address: &[u8; 16]| {
            let [a, b, c, d, ..] = *address;
            [a, b, c, d]
        };
        Some(match (key.addr_kind, with_ports) {
            (AddrKind::V4, true) => {
                Self::v4_ports(v4(&key.src), v4(&key.dst), key.src_port, key.dst_port)
            }
            (AddrKind::V4, false) => Self::v4(v4(&key.src), v4(&key.dst)),
            (AddrKind::V6, true) => Self::v6_ports(key.src, key.dst, key.src_port, key.dst_port),
            (AddrKind::V6, false) => Self::v6(key.src, key.dst),
            (AddrKind::None | AddrKind::Tipc, _) => return None,
        })
    }

    /// Returns the bytes in the order in which they are hashed.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// Puts two addresses and two ports in a row.
    #[inline]
    fn join<const N: usize>(addresses: [[u8; N]; 2], src_port: u16, dst_port: u16) -> Self {
        let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()];
        let parts = addresses.as_flattened().iter().chain(ports.as_flattened());
        let mut bytes = [0; Self::MAX_LEN];
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = *from;
        }
        Self { bytes, len: (2 * N + 4) as u8 }
    }
}
