//! Who gets a datagram.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rxsteer_core::{CpuId, FlowHash};

use super::groups::Group;
use super::{Model, wide};
use crate::table::Tuple;
use crate::{Cast, Family, Found, Packet, SocketId, Stage};

impl Model {
    /// Delivers a datagram: calls `each` for every socket that gets it.
    pub fn deliver(&mut self, packet: &Packet<'_>, mut each: impl FnMut(Found)) {
        for (i, stage) in self.receivers(packet) {
            let sock = &mut self.socks[i];
            // As the kernel: a remote address, of the family of the packet, makes it connected.
            let has_remote = match packet.dst {
                IpAddr::V4(_) => !sock.remote4.is_unspecified(),
                IpAddr::V6(_) => !sock.remote6.is_unspecified(),
            };
            if has_remote {
                sock.cpu = Some(packet.cpu);
            }
            each(self.found(i, stage));
        }
    }

    /// Calls `each` as [`deliver`](Self::deliver) does, but nobody takes on the packet's CPU.
    pub fn find(&self, packet: &Packet<'_>, mut each: impl FnMut(Found)) {
        for (i, stage) in self.receivers(packet) {
            each(self.found(i, stage));
        }
    }

    /// Notes that a connected socket received on this CPU.
    pub fn note_cpu(&mut self, id: SocketId, cpu: CpuId) {
        if let Ok(i) = self.index(id) {
            self.socks[i].cpu = Some(cpu);
        }
    }

    fn found(&self, i: usize, stage: Stage) -> Found {
        Found {
            socket: SocketId { index: i as u32, generation: 0 },
            stage,
            connected: self.socks[i].connected,
            encapsulation: self.socks[i].options.encapsulation,
        }
    }

    fn receivers(&self, packet: &Packet<'_>) -> Vec<(usize, Stage)> {
        if packet.cast == Cast::Unicast {
            return self.unicast(packet).into_iter().collect();
        }
        if let Some(found) = self.multicast_demux(packet) {
            return vec![found];
        }
        let on_port = self.by_port.get(&packet.dst_port).into_iter().flatten();
        on_port.filter(|i| self.takes(**i, packet)).map(|i| (*i, Stage::Flood)).collect()
    }

    fn unicast(&self, packet: &Packet<'_>) -> Option<(usize, Stage)> {
        let dst = wide(packet.dst);
        let empty = Vec::new();
        let addressed = self.by_address.get(&(dst, packet.dst_port)).unwrap_or(&empty);
        let wild = self.by_address.get(&(Ipv6Addr::UNSPECIFIED, packet.dst_port)).unwrap_or(&empty);
        let exactly = |i: usize| {
            let sock = &self.socks[i];
            let remote = match (packet.src, sock.family) {
                (IpAddr::V4(src), _) => sock.remote4 == src && sock.is_v4_now(),
                (IpAddr::V6(src), Family::V6) => sock.connected && sock.remote6 == src,
                (IpAddr::V6(_), Family::V4) => false,
            };
            remote && sock.remote_port == packet.src_port && sock.fits_device(packet.device)
        };
        if self.quirks.early_demux
            && !packet.from_this_host
            && let Some(head) = addressed.first()
            && exactly(*head)
        {
            return Some((*head, Stage::EarlyDemux));
        }
        if self.hash4 {
            let tuple = (dst, packet.dst_port, wide(packet.src), packet.src_port);
            let mut filed = self
                .filed
                .iter()
                .filter(|(key, i)| *key == tuple && addressed.contains(i) && exactly(*i));
            if let Some((_, i)) = filed.next() {
                return Some((*i, Stage::FourTuple));
            }
        }
        if let Some(i) = self.best(addressed, packet, packet.dst, true) {
            return Some((i, Stage::Address));
        }
        let any = match packet.dst {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        if let Some(i) = self.best(wild, packet, any, true) {
            return Some((i, Stage::Wildcard));
        }
        if self.quirks.port_stage && packet.dst.is_ipv4() {
            let on_port = self.by_port.get(&packet.dst_port).unwrap_or(&empty);
            return self.best(on_port, packet, packet.dst, false).map(|i| (i, Stage::Port));
        }
        None
    }

    fn best(
        &self,
        list: &[usize],
        packet: &Packet<'_>,
        local: IpAddr,
        with_groups: bool,
    ) -> Option<usize> {
        let mut best = None;
        let mut best_score = if local.is_ipv4() { 0 } else { -1 };
        for &i in list {
            let Some(score) = self.score(i, packet, local) else { continue };
            if score <= best_score {
                continue;
            }
            best_score = score;
            best = Some(i);
            let sock = &self.socks[i];
            let asks = sock.reuseport && (!sock.connected || self.quirks.by_group);
            if !asks || !with_groups {
                continue;
            }
            let Some(group) = sock.group.map(|group| &self.groups[group]) else { continue };
            let Some(picked) = self.pick(group, packet) else { continue };
            best = Some(picked);
            if !group.had_connected || self.quirks.by_group {
                return best;
            }
            best_score = best_score.max(self.score(picked, packet, local).unwrap_or(-1));
        }
        best
    }

    fn score(&self, i: usize, packet: &Packet<'_>, local: IpAddr) -> Option<i32> {
        let sock = &self.socks[i];
        let mut score;
        let weight;
        match (packet.src, local) {
            (IpAddr::V4(src), IpAddr::V4(local)) => {
                weight = 4;
                if sock.options.v6only || sock.local4 != local {
                    return None;
                }
                score = if sock.family == Family::V4 { 2 } else { 1 };
                if !sock.remote4.is_unspecified() {
                    if sock.remote4 != src {
                        return None;
                    }
                    score += weight;
                }
            }
            (IpAddr::V6(src), IpAddr::V6(local)) => {
                weight = 1;
                if sock.family != Family::V6 || sock.local6 != local {
                    return None;
                }
                score = 0;
                if !sock.remote6.is_unspecified() {
                    if sock.remote6 != src {
                        return None;
                    }
                    score += weight;
                }
            }
            _ => return None,
        }
        if sock.remote_port != 0 {
            if sock.remote_port != packet.src_port {
                return None;
            }
            score += weight;
        }
        if let Some(device) = sock.device {
            if device != packet.device {
                return None;
            }
            score += weight;
        }
        if sock.cpu == Some(packet.cpu) {
            score += 1;
        }
        Some(score)
    }

    fn pick(&self, group: &Group, packet: &Packet<'_>) -> Option<usize> {
        let count = group.members.len();
        let start = FlowHash(self.hash.of(&Tuple::of(packet)) as u32).scale(count as u32) as usize;
        let order = (0..count).map(|n| group.members[(start + n) % count]);
        let may = |i: &usize| self.quirks.by_group || !self.socks[*i].connected;
        let free: Vec<usize> = order.filter(may).collect();
        let by_cpu = match self.quirks.left_group {
            true => self.quirks.group_asks_cpu && group.with_cpu != 0,
            false => group.members.iter().any(|i| self.socks[*i].cpu_given),
        };
        let on_cpu = free.iter().find(|i| by_cpu && self.socks[**i].cpu == Some(packet.cpu));
        on_cpu.or(free.first()).copied()
    }

    fn multicast_demux(&self, packet: &Packet<'_>) -> Option<(usize, Stage)> {
        if !self.quirks.early_demux
            || packet.from_this_host
            || packet.cast != Cast::Multicast
            || packet.dst.is_ipv6()
        {
            return None;
        }
        let on_port = self.by_port.get(&packet.dst_port)?;
        let fitting: Vec<usize> =
            on_port.iter().copied().filter(|i| self.takes(*i, packet)).collect();
        let &[only] = fitting.as_slice() else { return None };
        if on_port.len() > 10 {
            return None;
        }
        let sock = &self.socks[only];
        let again = match sock.group {
            Some(group) if !sock.connected && sock.reuseport => {
                self.pick(&self.groups[group], packet)
            }
            _ => None,
        };
        Some((again.unwrap_or(only), Stage::EarlyDemux))
    }

    /// Whether a socket takes a multicast or broadcast datagram.
    fn takes(&self, i: usize, packet: &Packet<'_>) -> bool {
        let sock = &self.socks[i];
        let ends = match (packet.src, packet.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                !sock.options.v6only
                    && (sock.local4.is_unspecified() || sock.local4 == dst)
                    && (sock.remote4.is_unspecified() || sock.remote4 == src)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                sock.family == Family::V6
                    && (sock.local6.is_unspecified() || sock.local6 == dst)
                    && (sock.remote6.is_unspecified() || sock.remote6 == src)
            }
            _ => false,
        };
        let port = sock.remote_port == 0 || sock.remote_port == packet.src_port;
        if !ends || !port || !sock.fits_device(packet.device) {
            return false;
        }
        if packet.cast == Cast::Broadcast {
            return true;
        }
        let membership = sock.options.joined.iter().find(|(group, device, _)| {
            *group == packet.dst && (packet.dst.is_ipv6() || *device == packet.device)
        });
        match membership {
            Some((_, _, filter)) => filter.takes(packet.src),
            None if packet.dst.is_ipv4() => sock.options.mcast_all4,
            None => sock.options.mcast_all6,
        }
    }
}
