//! A 4-tuple, and the hash of one.

use std::net::IpAddr;

use rxsteer_core::hash::Sip13;

use crate::Packet;

/// Local and remote address and port. IPv4 addresses are in their mapped form.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Tuple {
    pub(crate) local: u128,
    pub(crate) remote: u128,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl Tuple {
    /// Returns the 4-tuple of a datagram as its receiver sees it.
    #[inline]
    pub(crate) fn of(packet: &Packet<'_>) -> Self {
        Self {
            local: wide(packet.dst),
            remote: wide(packet.src),
            local_port: packet.dst_port,
            remote_port: packet.src_port,
        }
    }

    /// Returns whether both addresses are IPv4.
    #[inline]
    pub(crate) const fn is_v4(&self) -> bool {
        is_v4(self.local) && is_v4(self.remote)
    }

    /// Returns both ports as one number.
    #[inline]
    pub(crate) const fn ports(&self) -> u32 {
        (self.local_port as u32) << 16 | self.remote_port as u32
    }
}

/// A keyed hash over 4-tuples: a sender cannot choose its bucket, nor its socket of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TupleHash {
    start: Sip13,
}

impl TupleHash {
    pub(crate) const fn new(key: (u64, u64)) -> Self {
        Self { start: Sip13::new(key.0, key.1) }
    }

    /// Returns the hash of a 4-tuple: two words for IPv4, five for IPv6.
    #[inline]
    pub(crate) const fn of(self, tuple: &Tuple) -> u64 {
        // The length in the last word's top byte tells the two layouts apart (SipHash, section 2).
        if tuple.is_v4() {
            let addresses = (tuple.local as u32 as u64) << 32 | tuple.remote as u32 as u64;
            return self.start.word(addresses).finish(tuple.ports() as u64 | 12 << 56);
        }
        self.start
            .word(tuple.local as u64)
            .word((tuple.local >> 64) as u64)
            .word(tuple.remote as u64)
            .word((tuple.remote >> 64) as u64)
            .finish(tuple.ports() as u64 | 36 << 56)
    }
}

/// Writes an address of either family as the bits of an IPv6 one.
#[inline]
pub(crate) fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => MAPPED | address.to_bits() as u128,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// `::ffff:0.0.0.0`, under which IPv4 addresses are mapped.
pub(crate) const MAPPED: u128 = 0xffff << 32;

/// Returns whether the address is a mapped IPv4 one.
#[inline]
pub(crate) const fn is_v4(address: u128) -> bool {
    address >> 32 == 0xffff
}
