//! Delivery: one receiver of a unicast packet, all takers of a multicast or broadcast.
//!
//! A multicast or broadcast packet goes to every socket of its port whose local address is the
//! wildcard or the destination, whose remote end and device fit, and which takes the group. Groups
//! of reuseport play no part, but for one case of Linux: an IPv4 multicast that just one socket of
//! at most ten takes is treated as unicast to it.
//!
//! Always true: a packet is delivered to a socket at most once.
//! Source: spec of the receive path, "Early demux and multicast".

use std::net::IpAddr;

use crate::group::{HAS_REMOTE4, Picked};
use crate::{Cast, Found, Packet, SocketId, Stage};

use super::entry::{CONNECTED, Entry, JOINED, MCAST_ALL4, MCAST_ALL6, REUSEPORT};
use super::lookup::Receiver;
use super::publish::Published;
use super::tuple::Tuple;

/// Most sockets of a port for which Linux looks for the only taker of a multicast early.
const MOST_FOR_DEMUX: usize = 10;

impl Published {
    /// Calls `each` for every socket that gets the packet; returns how many these were. `note`:
    /// connected ones take on its CPU.
    #[inline]
    pub(crate) fn deliver(
        &self,
        packet: &Packet<'_>,
        note: bool,
        mut each: impl FnMut(Found),
    ) -> usize {
        let tuple = Tuple::of(packet);
        let mut hand_over = |receiver: &Receiver| {
            // What a connected socket received last tells where its next packets are processed.
            if note && receiver.has_remote {
                self.stick_to_cpu(receiver.socket, packet.cpu);
            }
            each(receiver.found());
        };
        if packet.cast == Cast::Unicast {
            let receiver = self.receiver(packet, 0);
            receiver.iter().for_each(hand_over);
            return usize::from(receiver.is_some());
        }
        let receivers = self.takers(packet, &tuple);
        receivers.iter().for_each(&mut hand_over);
        receivers.len()
    }

    fn takers(&self, packet: &Packet<'_>, tuple: &Tuple) -> Vec<Receiver> {
        let mut takers = self.versions.read(packet.dst_port, || self.takers_once(packet, tuple));
        // A socket that is just being moved was met in both places.
        takers.sort_by_key(|receiver| receiver.socket);
        takers.dedup_by_key(|receiver| receiver.socket);
        takers
    }

    fn takers_once(&self, packet: &Packet<'_>, tuple: &Tuple) -> Vec<Receiver> {
        let v4 = packet.dst.is_ipv4();
        let mut takers = Vec::new();
        let mut only = None;
        let lists = self.lists.pin();
        for address in [tuple.local, 0] {
            let Some(list) = lists.get(&(address, tuple.local_port)) else { continue };
            for entry in list.iter() {
                if entry.fits(packet) && self.takes(entry.socket, entry.flags, packet) {
                    takers.push(Receiver::new(entry, Stage::Flood, v4));
                    only = Some(*entry);
                }
            }
        }
        #[cfg(feature = "hash4")]
        if self.four.may_hold(tuple.local, tuple.local_port) {
            self.four.each(self.hash.of(tuple), tuple, packet.device, |hit| {
                if self.takes(hit.socket, hit.flags, packet) {
                    let (socket, flags) = (hit.socket, hit.flags);
                    takers.push(Receiver { socket, stage: Stage::Flood, flags, has_remote: true });
                }
                true
            });
        }
        if let [taker] = takers.as_mut_slice() {
            self.demux_only(packet, tuple, taker, only);
        }
        takers
    }

    /// The only taker of an IPv4 multicast under Linux's rules: if it is of a group, the group
    /// picks again.
    fn demux_only(
        &self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        taker: &mut Receiver,
        entry: Option<Entry>,
    ) {
        let early = self.early_demux
            && !packet.from_this_host
            && packet.cast == Cast::Multicast
            && packet.dst.is_ipv4();
        if !early {
            return;
        }
        let ports = self.ports.pin();
        if ports.get(&tuple.local_port).is_none_or(|port| port.count > MOST_FOR_DEMUX) {
            return;
        }
        taker.stage = Stage::EarlyDemux;
        let Some(entry) = entry.filter(|entry| entry.has(REUSEPORT) && !entry.has(CONNECTED))
        else {
            return;
        };
        let groups = self.groups.pin();
        let Some(group) = groups.get(&entry.group) else { return };
        if let (Picked::Member(member), _) = group.pick(packet, self.pick_hash(packet), self) {
            taker.socket = member.socket;
            taker.flags = member.flags;
            taker.has_remote = member.flags & HAS_REMOTE4 != 0;
        }
    }

    /// Returns whether a socket takes the multicast group of a packet; broadcast is not asked for.
    pub(super) fn takes(&self, socket: SocketId, flags: u16, packet: &Packet<'_>) -> bool {
        if packet.cast == Cast::Broadcast {
            return true;
        }
        if flags & JOINED != 0 {
            let joined = self.joined.pin();
            // Linux asks for the device of an IPv4 membership only.
            let membership = joined.get(&socket.index).and_then(|joined| {
                let mut own = joined.iter();
                own.find(|(group, device, _)| {
                    *group == packet.dst && (packet.dst.is_ipv6() || *device == packet.device)
                })
            });
            if let Some((_, _, filter)) = membership {
                return filter.takes(packet.src);
            }
        }
        match packet.dst {
            IpAddr::V4(_) => flags & MCAST_ALL4 != 0,
            IpAddr::V6(_) => flags & MCAST_ALL6 != 0,
        }
    }
}
