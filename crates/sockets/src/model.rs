//! The rules by linear scan: what the tables are checked against, for tests and oracles.
//!
//! Written straight from the rules as the recorded data show them, with lists in vectors and every
//! question answered by walking them. Shares with the tables the types of their border, the hash
//! by which groups pick and nothing else. Slow on purpose, and of one thread.
//!
//! Source: spec of the receive path, "UDP tables and bind" to "Early demux and multicast".

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rxsteer_core::{CpuId, FlowHash};

use crate::profile::Quirks;
use crate::table::{Tuple as Key, TupleHash};
use crate::{
    Cast, Config, DeviceId, Family, Found, Owner, Packet, SocketError, SocketId, SocketOption,
    SourceFilter, Stage,
};

/// The address a connected IPv6 socket has as its IPv4 address under Linux.
const STAND_IN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);

/// A 4-tuple: local address and port, remote address and port.
type Tuple = (Ipv6Addr, u16, Ipv6Addr, u16);

#[derive(Clone, Debug)]
struct Sock {
    family: Family,
    owner: Owner,
    open: bool,
    v6only: bool,
    reuseaddr: bool,
    reuseport: bool,
    /// The address given to bind.
    bound: Option<IpAddr>,
    device: Option<DeviceId>,
    cpu: Option<CpuId>,
    /// The user set it.
    cpu_given: bool,
    mcast_all4: bool,
    mcast_all6: bool,
    joined: Vec<(IpAddr, DeviceId, SourceFilter)>,
    ports: Option<(u16, u16)>,
    encapsulation: bool,
    port: u16,
    port_named: bool,
    address_named: bool,
    local4: Ipv4Addr,
    local6: Ipv6Addr,
    remote4: Ipv4Addr,
    remote6: Ipv6Addr,
    remote_port: u16,
    connected: bool,
    /// The group of which it is a member.
    group: Option<usize>,
    /// The group to which it belongs, also while it is connected and no member.
    home: Option<usize>,
}

impl Sock {
    fn list_address(&self) -> Ipv6Addr {
        match self.family {
            Family::V4 if self.local4.is_unspecified() => Ipv6Addr::UNSPECIFIED,
            Family::V4 => self.local4.to_ipv6_mapped(),
            Family::V6 if self.local6 == Ipv4Addr::UNSPECIFIED.to_ipv6_mapped() => {
                Ipv6Addr::UNSPECIFIED
            }
            Family::V6 => self.local6,
        }
    }

    fn is_mapped(&self) -> bool {
        self.family == Family::V6 && self.local6.to_ipv4_mapped().is_some()
    }

    fn tuple(&self) -> Tuple {
        let remote = match self.family {
            Family::V4 => self.remote4.to_ipv6_mapped(),
            Family::V6 => self.remote6,
        };
        (self.list_address(), self.port, remote, self.remote_port)
    }

    fn fits_device(&self, device: DeviceId) -> bool {
        self.device.is_none_or(|own| own == device)
    }

    /// What members of a group have in common: the address counts as bind gave it.
    fn group_key(&self) -> (Family, bool, u16, Option<DeviceId>, Owner, Option<IpAddr>) {
        let bound = self.bound.filter(|bound| !bound.is_unspecified());
        (self.family, self.v6only, self.port, self.device, self.owner, bound)
    }

    fn address(&self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(self.local4),
            Family::V6 => IpAddr::V6(self.local6),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Group {
    members: Vec<usize>,
    had_connected: bool,
    /// Linux's count of members with a CPU. It goes up when one joins with a CPU or is given its
    /// first by its user, and down when one leaves with a CPU or is relieved of it by its user: so
    /// it misses CPUs that members took on, and falls below 0 when these leave.
    with_cpu: u16,
}

impl Group {
    fn count_cpu(&mut self, before: Option<CpuId>, after: Option<CpuId>) {
        match (before, after) {
            (None, Some(_)) => self.with_cpu = self.with_cpu.wrapping_add(1),
            (Some(_), None) => self.with_cpu = self.with_cpu.wrapping_sub(1),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}

/// All sockets of a namespace, found by looking at each.
#[derive(Clone, Debug)]
pub struct Model {
    quirks: Quirks,
    hash4: bool,
    hash: TupleHash,
    range: (u16, u16),
    socks: Vec<Sock>,
    groups: Vec<Group>,
    /// Sockets of a port, head first.
    by_port: BTreeMap<u16, Vec<usize>>,
    /// Sockets of an address and port, head first; all wildcards under `::`.
    by_address: BTreeMap<(Ipv6Addr, u16), Vec<usize>>,
    /// Connected sockets and the 4-tuple they are filed under, last filed first.
    filed: Vec<(Tuple, usize)>,
}

impl Model {
    /// Makes an empty namespace; `hash4`: whether connected sockets are filed by 4-tuple.
    pub fn new(config: &Config, hash4: bool) -> Self {
        Self {
            quirks: config.profile.quirks(),
            hash4: hash4 && config.profile.quirks().three_tables,
            hash: TupleHash::new(config.key),
            range: config.port_range,
            socks: Vec::new(),
            groups: Vec::new(),
            by_port: BTreeMap::new(),
            by_address: BTreeMap::new(),
            filed: Vec::new(),
        }
    }

    /// Opens a socket.
    ///
    /// # Errors
    /// None: there is no limit here.
    pub fn open(&mut self, family: Family, owner: Owner) -> Result<SocketId, SocketError> {
        self.socks.push(Sock {
            family,
            owner,
            open: true,
            v6only: false,
            reuseaddr: false,
            reuseport: false,
            bound: None,
            device: None,
            cpu: None,
            cpu_given: false,
            mcast_all4: family == Family::V4,
            mcast_all6: true,
            joined: Vec::new(),
            ports: None,
            encapsulation: false,
            port: 0,
            port_named: false,
            address_named: false,
            local4: Ipv4Addr::UNSPECIFIED,
            local6: Ipv6Addr::UNSPECIFIED,
            remote4: Ipv4Addr::UNSPECIFIED,
            remote6: Ipv6Addr::UNSPECIFIED,
            remote_port: 0,
            connected: false,
            group: None,
            home: None,
        });
        // A model never uses a place twice.
        Ok(SocketId { index: self.socks.len() as u32 - 1, generation: 0 })
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`SocketError::Closed`]; [`SocketError::Invalid`] for v6-only after bind or on IPv4;
    /// [`SocketError::AddressNotAvailable`] for leaving a group that was not joined.
    pub fn set(&mut self, id: SocketId, option: SocketOption) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let sock = &mut self.socks[i];
        match option {
            SocketOption::Device(device) => {
                let old = std::mem::replace(&mut sock.device, device);
                self.rehash(i);
                self.regroup(i, old);
            }
            SocketOption::ReuseAddr(on) => sock.reuseaddr = on,
            SocketOption::ReusePort(on) => sock.reuseport = on,
            SocketOption::IncomingCpu(cpu) => {
                let before = std::mem::replace(&mut sock.cpu, cpu);
                sock.cpu_given = cpu.is_some();
                if let Some(group) = sock.group {
                    self.groups[group].count_cpu(before, cpu);
                }
            }
            SocketOption::V6Only(on) => {
                if sock.family == Family::V4 || sock.port != 0 {
                    return Err(SocketError::Invalid);
                }
                sock.v6only = on;
            }
            SocketOption::MulticastAll(on) => (sock.mcast_all4, sock.mcast_all6) = (on, on),
            SocketOption::Join(group, device, filter) => {
                if !group.is_multicast() {
                    return Err(SocketError::Invalid);
                }
                sock.joined.retain(|(g, d, _)| (*g, *d) != (group, device));
                sock.joined.push((group, device, filter));
            }
            SocketOption::Leave(group, device) => {
                let before = sock.joined.len();
                sock.joined.retain(|(g, d, _)| (*g, *d) != (group, device));
                if sock.joined.len() == before {
                    return Err(SocketError::AddressNotAvailable);
                }
            }
            SocketOption::PortRange(low, high) => {
                if low > high || low == 0 {
                    return Err(SocketError::Invalid);
                }
                sock.ports = Some((low, high));
            }
            SocketOption::Encapsulation(on) => sock.encapsulation = on,
        }
        Ok(())
    }

    /// Binds a socket; returns its port.
    ///
    /// # Errors
    /// As the kernel: in use, invalid, family not supported, closed.
    pub fn bind(&mut self, id: SocketId, address: IpAddr, port: u16) -> Result<u16, SocketError> {
        let i = self.index(id)?;
        if self.socks[i].port != 0 {
            return Err(SocketError::Invalid);
        }
        let mut sock = self.socks[i].clone();
        match (sock.family, address) {
            (Family::V4, IpAddr::V4(address)) => {
                sock.local4 = address;
                sock.address_named = !address.is_unspecified();
            }
            (Family::V6, IpAddr::V6(address)) => {
                if let Some(mapped) = address.to_ipv4_mapped() {
                    if sock.v6only {
                        return Err(SocketError::Invalid);
                    }
                    sock.local4 = mapped;
                }
                sock.local6 = address;
                sock.address_named = !address.is_unspecified();
            }
            (Family::V4, IpAddr::V6(_)) => return Err(SocketError::FamilyNotSupported),
            (Family::V6, IpAddr::V4(_)) => return Err(SocketError::Invalid),
        }
        if sock.address_named && sock.family == Family::V6 && !sock.is_mapped() {
            sock.v6only = true;
        }
        sock.bound = Some(address);
        sock.port_named = port != 0;
        let before = std::mem::replace(&mut self.socks[i], sock);
        match self.take_port(i, port) {
            Ok(port) => Ok(port),
            Err(error) => {
                self.socks[i] = before;
                Err(error)
            }
        }
    }

    fn take_port(&mut self, i: usize, port: u16) -> Result<u16, SocketError> {
        let port = if port == 0 {
            let (low, high) = self.socks[i].ports.unwrap_or(self.range);
            (low..=high)
                .find(|port| self.automatic_port_is_free(i, *port))
                .ok_or(SocketError::AddressInUse)?
        } else {
            if self.conflicts(i, port) {
                return Err(SocketError::AddressInUse);
            }
            port
        };
        self.socks[i].port = port;
        if self.socks[i].reuseport {
            self.join_group_at_bind(i);
        }
        let to_tail = self.socks[i].reuseport && self.socks[i].family == Family::V6;
        let address = self.socks[i].list_address();
        for list in [
            self.by_port.entry(port).or_default(),
            self.by_address.entry((address, port)).or_default(),
        ] {
            if to_tail { list.push(i) } else { list.insert(0, i) }
        }
        Ok(port)
    }

    /// Connects a socket; `source` is the local address that routing selects for `to`.
    ///
    /// # Errors
    /// As the kernel.
    pub fn connect(
        &mut self,
        id: SocketId,
        to: IpAddr,
        to_port: u16,
        source: IpAddr,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let to = match (self.socks[i].family, to) {
            (Family::V4, IpAddr::V6(_)) => return Err(SocketError::FamilyNotSupported),
            (Family::V6, IpAddr::V4(to)) => IpAddr::V6(to.to_ipv6_mapped()),
            (_, to) => to,
        };
        if let IpAddr::V6(to) = to {
            // A socket whose local address is of one family reaches no other.
            let sock = &self.socks[i];
            let fixed = !sock.local6.is_unspecified();
            let to_v4 = to.to_ipv4_mapped().is_some();
            let goes_on = to_v4 && self.quirks.placeholder4;
            if to_v4 && sock.v6only || fixed && to_v4 != sock.is_mapped() && !goes_on {
                return Err(match to_v4 {
                    true => SocketError::NetworkUnreachable,
                    false => SocketError::FamilyNotSupported,
                });
            }
        }
        if self.socks[i].port == 0 {
            self.take_port(i, 0)?;
        }
        let sock = &mut self.socks[i];
        let mut moved = false;
        sock.remote_port = to_port;
        match to {
            IpAddr::V4(to) => {
                sock.remote4 = to;
                if let (IpAddr::V4(source), true) = (source, sock.local4.is_unspecified()) {
                    sock.local4 = source;
                    moved = true;
                }
            }
            IpAddr::V6(to) => {
                sock.remote6 = to;
                let wildcard = sock.local6.is_unspecified()
                    || sock.local6 == Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
                if let Some(to) = to.to_ipv4_mapped() {
                    sock.remote4 = to;
                    let source = match source {
                        IpAddr::V4(source) => Some(source),
                        IpAddr::V6(source) => source.to_ipv4_mapped(),
                    };
                    if let (Some(source), true) = (source, wildcard) {
                        sock.local4 = source;
                        sock.local6 = source.to_ipv6_mapped();
                        moved = true;
                    }
                } else if let (IpAddr::V6(source), true) = (source, sock.local6.is_unspecified()) {
                    sock.local6 = source;
                    sock.local4 = STAND_IN;
                    moved = true;
                }
            }
        }
        if moved {
            self.rehash(i);
        }
        if let (Some(group), false) = (self.socks[i].home, moved) {
            self.groups[group].had_connected = true;
        }
        self.socks[i].connected = true;
        if self.quirks.three_tables {
            self.file(i);
        }
        self.go_away(i);
        Ok(())
    }

    /// Dissolves the association with the remote end.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn disconnect(&mut self, id: SocketId) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let stale = self.quirks.stale_remote6;
        let sock = &mut self.socks[i];
        sock.connected = false;
        sock.remote4 = Ipv4Addr::UNSPECIFIED;
        sock.remote_port = 0;
        let old_device = sock.device.take();
        if !stale {
            sock.remote6 = Ipv6Addr::UNSPECIFIED;
        }
        if !self.quirks.stale_hash4 {
            self.filed.retain(|(_, s)| *s != i);
        }
        if !self.socks[i].address_named {
            let sock = &mut self.socks[i];
            sock.local4 = Ipv4Addr::UNSPECIFIED;
            sock.local6 = Ipv6Addr::UNSPECIFIED;
            if sock.port_named {
                self.rehash(i);
            }
        }
        if !self.socks[i].port_named {
            self.unhash(i);
        }
        self.regroup(i, old_device);
        self.come_back(i);
        Ok(())
    }

    /// Closes a socket.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn close(&mut self, id: SocketId) -> Result<(), SocketError> {
        let i = self.index(id)?;
        self.unhash(i);
        self.socks[i].open = false;
        Ok(())
    }

    /// Returns the local address and port; port 0: not bound.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn local(&self, id: SocketId) -> Result<(IpAddr, u16), SocketError> {
        let sock = &self.socks[self.index(id)?];
        Ok((sock.address(), sock.port))
    }

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
            encapsulation: self.socks[i].encapsulation,
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
                if sock.v6only || sock.local4 != local {
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
        let start = FlowHash(self.hash.of(&Key::of(packet)) as u32).scale(count as u32) as usize;
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
                !sock.v6only
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
        let membership = sock.joined.iter().find(|(group, device, _)| {
            *group == packet.dst && (packet.dst.is_ipv6() || *device == packet.device)
        });
        match membership {
            Some((_, _, filter)) => filter.takes(packet.src),
            None if packet.dst.is_ipv4() => sock.mcast_all4,
            None => sock.mcast_all6,
        }
    }

    /// Whether two sockets on one port exclude each other, and if they meet at all.
    fn meet(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.socks[a], &self.socks[b]);
        let devices_differ = a.device.is_some() && b.device.is_some() && a.device != b.device;
        let both_share = a.reuseaddr && b.reuseaddr;
        !both_share && !devices_differ && overlap(a, b)
    }

    fn may_share(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.socks[a], &self.socks[b]);
        a.reuseport && b.reuseport && a.owner == b.owner
    }

    /// Whether the first socket met on a list refuses `i`.
    fn first_met_refuses(&self, i: usize, list: &[usize]) -> bool {
        list.iter().find(|other| self.meet(i, **other)).is_some_and(|met| !self.may_share(i, *met))
    }

    fn conflicts(&self, i: usize, port: u16) -> bool {
        let empty = Vec::new();
        let on_port = self.by_port.get(&port).unwrap_or(&empty);
        let address = self.socks[i].list_address();
        if on_port.len() > 10 && !address.is_unspecified() {
            let list = |address| self.by_address.get(&(address, port)).unwrap_or(&empty);
            return self.first_met_refuses(i, list(address))
                || self.first_met_refuses(i, list(Ipv6Addr::UNSPECIFIED));
        }
        self.first_met_refuses(i, on_port)
    }

    fn automatic_port_is_free(&self, i: usize, port: u16) -> bool {
        let empty = Vec::new();
        let on_port = self.by_port.get(&port).unwrap_or(&empty);
        on_port.iter().all(|other| !self.meet(i, *other) || self.may_share(i, *other))
    }

    fn same_group_key(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.socks[a], &self.socks[b]);
        if !self.quirks.left_group {
            return a.group_key() == b.group_key();
        }
        a.family == b.family
            && a.v6only == b.v6only
            && a.port == b.port
            && a.device == b.device
            && a.owner == b.owner
            && a.address() == b.address()
    }

    fn join_group_at_bind(&mut self, i: usize) {
        let port = self.socks[i].port;
        let on_port = self.by_port.get(&port).cloned().unwrap_or_default();
        let mut same = on_port.into_iter().filter(|other| {
            *other != i && self.socks[*other].reuseport && self.same_group_key(i, *other)
        });
        let first = same.next();
        let group = match first.map(|other| (other, self.socks[other].home)) {
            Some((_, Some(group))) => group,
            Some((other, None)) => {
                let group = self.found_group();
                self.add_to_group(other, group);
                group
            }
            None => self.found_group(),
        };
        self.add_to_group(i, group);
    }

    fn found_group(&mut self) -> usize {
        self.groups.push(Group::default());
        self.groups.len() - 1
    }

    fn add_to_group(&mut self, i: usize, group: usize) {
        self.groups[group].members.push(i);
        self.groups[group].count_cpu(None, self.socks[i].cpu);
        self.socks[i].group = Some(group);
        self.socks[i].home = Some(group);
    }

    fn leave_group(&mut self, i: usize) {
        self.socks[i].home = None;
        if let Some(group) = self.socks[i].group.take() {
            let members = &mut self.groups[group].members;
            if let Some(place) = members.iter().position(|member| *member == i) {
                members.swap_remove(place);
                self.groups[group].count_cpu(self.socks[i].cpu, None);
            }
        }
    }

    /// Without `left_group` a connected socket is no member, but belongs to its group.
    fn go_away(&mut self, i: usize) {
        if !self.quirks.left_group && self.socks[i].connected {
            let home = self.socks[i].home;
            self.leave_group(i);
            self.socks[i].home = home;
        }
    }

    fn come_back(&mut self, i: usize) {
        if let (None, Some(home)) = (self.socks[i].group, self.socks[i].home) {
            self.add_to_group(i, home);
        }
    }

    /// Without `left_group` a member whose device changes goes to the group of its new key.
    fn regroup(&mut self, i: usize, old_device: Option<DeviceId>) {
        let sock = &self.socks[i];
        if self.quirks.left_group || sock.home.is_none() || sock.device == old_device {
            return;
        }
        self.leave_group(i);
        let on_port = self.by_port.get(&self.socks[i].port).into_iter().flatten();
        let group = on_port
            .filter(|other| **other != i && self.socks[**other].reuseport)
            .filter(|other| self.same_group_key(i, **other))
            .find_map(|other| self.socks[*other].home);
        let group = group.unwrap_or_else(|| self.found_group());
        self.add_to_group(i, group);
        self.go_away(i);
    }

    /// A change of local address or device: list, group and 4-tuple follow.
    fn rehash(&mut self, i: usize) {
        let port = self.socks[i].port;
        if port == 0 {
            return;
        }
        let address = self.socks[i].list_address();
        if self.quirks.left_group {
            self.leave_group(i);
        }
        let here = self.by_address.entry((address, port)).or_default();
        if !here.contains(&i) {
            for list in self.by_address.values_mut() {
                list.retain(|other| *other != i);
            }
            self.by_address.entry((address, port)).or_default().insert(0, i);
        }
        self.refile(i);
    }

    /// A filed socket whose 4-tuple is another by now is filed anew; else it keeps its place.
    fn refile(&mut self, i: usize) {
        let tuple = self.socks[i].tuple();
        if let Some(place) = self.filed.iter().position(|(key, s)| *s == i && *key != tuple) {
            self.filed.remove(place);
            self.filed.insert(0, (tuple, i));
        }
    }

    fn file(&mut self, i: usize) {
        if !self.filed.iter().any(|(_, s)| *s == i) {
            // One that is filed stays in a group that a later bind put it into.
            if self.quirks.left_group {
                self.leave_group(i);
            }
            self.filed.insert(0, (self.socks[i].tuple(), i));
        } else if !self.quirks.stale_hash4 {
            self.refile(i);
        }
    }

    fn unhash(&mut self, i: usize) {
        self.leave_group(i);
        for list in self.by_port.values_mut().chain(self.by_address.values_mut()) {
            list.retain(|other| *other != i);
        }
        self.filed.retain(|(_, s)| *s != i);
        self.socks[i].port = 0;
    }

    fn index(&self, id: SocketId) -> Result<usize, SocketError> {
        let sock = self.socks.get(id.index as usize).filter(|s| s.open && id.generation == 0);
        sock.map(|_| id.index as usize).ok_or(SocketError::Closed)
    }
}

impl Sock {
    fn is_v4_now(&self) -> bool {
        self.family == Family::V4 || self.is_mapped()
    }
}

/// Whether two local addresses overlap: equal, or one a wildcard that covers the other.
fn overlap(a: &Sock, b: &Sock) -> bool {
    let covers = |wild: &Sock, other: &Sock| match wild.family {
        Family::V4 => wild.local4.is_unspecified() && !other.v6only,
        Family::V6 if wild.is_mapped() => {
            wild.local4.is_unspecified()
                && !other.v6only
                && (other.family == Family::V4 || other.is_mapped())
        }
        Family::V6 => {
            wild.local6.is_unspecified()
                && !(wild.v6only && (other.family == Family::V4 || other.is_mapped()))
        }
    };
    let equal = match (a.family, b.family) {
        (Family::V6, Family::V6) => a.local6 == b.local6,
        _ => !a.v6only && !b.v6only && a.local4 == b.local4,
    };
    equal || covers(a, b) || covers(b, a)
}

/// Writes an address of either family as an IPv6 one.
fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
