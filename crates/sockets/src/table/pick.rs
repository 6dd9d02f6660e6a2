//! The hash by which a reuseport group picks a member.

use std::net::IpAddr;

use rxsteer_core::FlowHash;
use rxsteer_core::hash::Sip13;

use crate::Packet;

/// A keyed hash over the 4-tuple of a datagram: a sender cannot choose its socket of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickHash {
    key: (u64, u64),
}

impl PickHash {
    pub(crate) const fn new(key: (u64, u64)) -> Self {
        Self { key }
    }

    /// Returns the hash of a datagram, the same for all of a 4-tuple.
    pub(crate) fn of(self, packet: &Packet<'_>) -> FlowHash {
        let mut hash = Sip13::new(self.key.0, self.key.1);
        let wide = |address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        for address in [wide(packet.src), wide(packet.dst)] {
            hash = hash.word(address as u64).word((address >> 64) as u64);
        }
        let ports = u64::from(packet.src_port) | u64::from(packet.dst_port) << 16;
        FlowHash(hash.finish(ports) as u32)
    }
}
