//! A candidate: what a look-up knows of a socket that it meets on a list, and its score.

use std::net::IpAddr;

use crate::packet::Packet;
use crate::{DeviceId, SocketId};

use super::tuple::wide;

/// Takes IPv4 packets that are for the address of its list.
pub(super) const TAKES_V4: u16 = 1;
/// Takes IPv6 packets that are for the address of its list.
pub(super) const TAKES_V6: u16 = 1 << 1;
/// Is an IPv4 socket.
pub(super) const IS_V4: u16 = 1 << 2;
/// Is connected.
pub(super) const CONNECTED: u16 = 1 << 3;
/// Has `SO_REUSEPORT` on at present.
pub(super) const REUSEPORT: u16 = 1 << 4;
/// The payload is another protocol's.
pub(super) const ENCAPSULATION: u16 = 1 << 5;
/// Takes IPv4 multicast groups that it did not join.
pub(super) const MCAST_ALL4: u16 = 1 << 6;
/// Takes IPv6 multicast groups that it did not join.
pub(super) const MCAST_ALL6: u16 = 1 << 7;
/// Has joined a multicast group.
pub(super) const JOINED: u16 = 1 << 8;

/// A socket as look-ups see it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// Place on its list: lower is nearer to the head.
    pub(super) rank: i64,
    pub(super) socket: SocketId,
    /// Remote IPv6 address, also a mapped one; 0: none.
    pub(super) remote6: u128,
    /// Remote IPv4 address; 0: none.
    pub(super) remote4: u32,
    /// Device it is bound to; 0: none.
    pub(super) device: u32,
    /// Its reuseport group; 0: none.
    pub(super) group: u32,
    /// Remote port; 0: none.
    pub(super) remote_port: u16,
    pub(super) flags: u16,
}

impl Entry {
    #[inline]
    pub(super) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) const fn fits_device(&self, device: DeviceId) -> bool {
        self.device == 0 || self.device == device.0
    }

    /// Returns whether the packet is of this connection: both ends and the device.
    #[inline]
    pub(super) fn is_exactly(&self, packet: &Packet<'_>) -> bool {
        let remote = match packet.src {
            IpAddr::V4(src) => self.has(TAKES_V4) && self.remote4 == src.to_bits(),
            IpAddr::V6(src) => {
                self.has(TAKES_V6) && self.has(CONNECTED) && self.remote6 == src.to_bits()
            }
        };
        remote && self.remote_port == packet.src_port && self.fits_device(packet.device)
    }

    /// Returns whether the remote end that a packet of this family is compared with is set.
    #[inline]
    pub(super) const fn has_remote(&self, v4: bool) -> bool {
        if v4 { self.remote4 != 0 } else { self.remote6 != 0 }
    }

    /// Returns whether the packet comes from the remote end, as far as one is set, and on the
    /// device.
    #[inline]
    pub(super) fn fits(&self, packet: &Packet<'_>) -> bool {
        self.score(packet, || false).is_some()
    }

    /// Returns how well the socket fits, or `None` if not at all: the remote end and the device
    /// count 4 each for IPv4, 1 each for IPv6, the CPU 1, and an IPv4 socket wins over an IPv6 one.
    #[inline]
    pub(super) fn score(&self, packet: &Packet<'_>, on_cpu: impl FnOnce() -> bool) -> Option<i32> {
        let (mut score, weight);
        match packet.src {
            IpAddr::V4(src) => {
                if !self.has(TAKES_V4) {
                    return None;
                }
                (score, weight) = (if self.has(IS_V4) { 2 } else { 1 }, 4);
                if self.remote4 != 0 {
                    if self.remote4 != src.to_bits() {
                        return None;
                    }
                    score += weight;
                }
            }
            IpAddr::V6(_) => {
                if !self.has(TAKES_V6) {
                    return None;
                }
                (score, weight) = (0, 1);
                if self.remote6 != 0 {
                    if self.remote6 != wide(packet.src) {
                        return None;
                    }
                    score += weight;
                }
            }
        }
        if self.remote_port != 0 {
            if self.remote_port != packet.src_port {
                return None;
            }
            score += weight;
        }
        if self.device != 0 {
            if self.device != packet.device.0 {
                return None;
            }
            score += weight;
        }
        Some(score + i32::from(on_cpu()))
    }
}
