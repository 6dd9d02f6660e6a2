//! What operations do to sockets: lists, groups and 4-tuples follow.
//!
//! Every operation first changes the state here, noting the sockets and groups that it touched,
//! and then publishes these in one go ([`Published::publish`]).
//!
//! Always true: an operation that returns an error has changed nothing, but that a refused connect
//! may have bound the socket to a port; a bound socket is on the list of its port and on that of
//! its address.
//! Source: spec of the receive path, "UDP tables and bind", "UDP connect, disconnect, rehash",
//! "Reuseport groups".

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::events::flow_key;
use crate::group::{GroupView, HAS_REMOTE4, HAS_REMOTE6, MOST_MEMBERS, Member, Selector};
use crate::profile::Quirks;
use crate::{Config, Family, FlowEvents, Owner, SocketError, SocketId, SocketOption};

use super::bind::{Chain, FreePorts};
#[cfg(feature = "hash4")]
use super::four::Records;
use super::publish::{Published, Touched, When};
use super::sock::{Filed, GroupKey, STAND_IN, Sock, listed};
use super::tuple::{is_v4, wide};

/// Room for a socket.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    sock: Option<Box<Sock>>,
}

/// A reuseport group; ids start at 1.
#[derive(Debug, Default)]
struct Group {
    members: Vec<u32>,
    /// Sockets that belong to it, but are connected at present.
    away: usize,
    had_connected: bool,
    /// Linux's count of members with a CPU. It goes up when one joins with a CPU or is given its
    /// first by its user, and down when one leaves with a CPU or is relieved of it by its user: so
    /// it misses CPUs that members took on, and falls below 0 when these leave.
    with_cpu: u16,
    selector: Selector,
}

impl Group {
    fn count_cpu(&mut self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => self.with_cpu = self.with_cpu.wrapping_add(1),
            (true, false) => self.with_cpu = self.with_cpu.wrapping_sub(1),
            (false, false) | (true, true) => {}
        }
    }
}

/// All sockets of a namespace.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) quirks: Quirks,
    pub(super) port_range: (u16, u16),
    most_sockets: usize,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    open: usize,
    pub(super) ports: BTreeMap<u16, Chain>,
    pub(super) addresses: HashMap<(u128, u16), Chain, RandomState>,
    pub(super) free_ports: FreePorts,
    /// Sockets with `SO_REUSEPORT` on by what groups have in common, in the order of their port.
    by_key: HashMap<GroupKey, BTreeMap<i64, u32>, RandomState>,
    groups: HashMap<u32, Group, RandomState>,
    last_group: u32,
    /// Ranks given at the head and at the tail of lists.
    lowest: i64,
    highest: i64,
    filings: u64,
    random: u64,
    events: Option<Arc<dyn FlowEvents>>,
    #[cfg(feature = "hash4")]
    pub(super) records: Records,
}

impl Writer {
    pub(crate) fn new(config: &Config) -> Self {
        let mut free_ports = FreePorts::new();
        free_ports.set(0, false);
        Self {
            quirks: config.profile.quirks(),
            port_range: config.port_range,
            most_sockets: config.most_sockets,
            slots: Vec::new(),
            vacant: Vec::new(),
            open: 0,
            ports: BTreeMap::new(),
            addresses: HashMap::default(),
            free_ports,
            by_key: HashMap::default(),
            groups: HashMap::default(),
            last_group: 0,
            lowest: 0,
            highest: 0,
            filings: 0,
            random: config.key.0 ^ config.key.1.rotate_left(32),
            events: config.events.clone(),
            #[cfg(feature = "hash4")]
            records: Records::default(),
        }
    }

    /// Returns the number of open sockets.
    pub(crate) fn open_sockets(&self) -> usize {
        self.open
    }

    pub(crate) fn open(
        &mut self,
        published: &Published,
        family: Family,
        owner: Owner,
    ) -> Result<SocketId, SocketError> {
        if self.open >= self.most_sockets || self.slots.len() >= u32::MAX as usize >> 1 {
            return Err(SocketError::NoBuffers);
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.open += 1;
        let slot = &mut self.slots[index as usize];
        slot.sock = Some(Box::new(Sock::new(family, owner)));
        published.set_cpu(index, None);
        Ok(SocketId { index, generation: slot.generation })
    }

    pub(crate) fn set(
        &mut self,
        published: &Published,
        id: SocketId,
        option: SocketOption,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let mut touched = Touched::new(published);
        let sock = self.sock_mut(i);
        match option {
            SocketOption::Device(device) => {
                let device = match device {
                    Some(device) if device.0 == 0 => return Err(SocketError::NoDevice),
                    Some(device) => device.0,
                    None => 0,
                };
                let old = sock.device;
                self.rekey(i, |sock| sock.device = device);
                self.rehash(i, &mut touched);
                self.regroup(i, old, &mut touched)?;
            }
            SocketOption::ReuseAddr(on) => {
                sock.reuseaddr = on;
                let (rank, port_rank) = (sock.rank, sock.port_rank);
                let (port, address) = (sock.port, sock.listed_at);
                if port != 0 {
                    let chain = self.ports.entry(port).or_default();
                    chain.set_reuseaddr(port_rank, i, on);
                    let chain = self.addresses.entry((address, port)).or_default();
                    chain.set_reuseaddr(rank, i, on);
                }
            }
            SocketOption::ReusePort(on) => self.rekey(i, |sock| sock.reuseport = on),
            SocketOption::IncomingCpu(cpu) => {
                sock.cpu_given = cpu.is_some();
                let group = sock.group;
                if let Some(group) = self.groups.get_mut(&group) {
                    group.count_cpu(touched.has_cpu(i), cpu.is_some());
                }
                published.set_cpu(i, cpu);
                touched.group(group, When::Before);
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
                published.set_joined(i, &sock.joined);
            }
            SocketOption::Leave(group, device) => {
                let before = sock.joined.len();
                sock.joined.retain(|(g, d, _)| (*g, *d) != (group, device));
                if sock.joined.len() == before {
                    return Err(SocketError::AddressNotAvailable);
                }
                published.set_joined(i, &sock.joined);
            }
            SocketOption::PortRange(low, high) => {
                if low == 0 || low > high {
                    return Err(SocketError::Invalid);
                }
                sock.ports = Some((low, high));
            }
            SocketOption::Encapsulation(on) => sock.encapsulation = on,
        }
        touched.socket(i);
        touched.publish(self);
        Ok(())
    }

    pub(crate) fn select_by(
        &mut self,
        published: &Published,
        id: SocketId,
        selector: Selector,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let group = self.sock(i).home;
        self.groups.get_mut(&group).ok_or(SocketError::Invalid)?.selector = selector;
        let mut touched = Touched::new(published);
        touched.group(group, When::Before);
        touched.publish(self);
        Ok(())
    }

    pub(crate) fn bind(
        &mut self,
        published: &Published,
        id: SocketId,
        address: IpAddr,
        port: u16,
    ) -> Result<u16, SocketError> {
        let i = self.index(id)?;
        let sock = self.sock_mut(i);
        if sock.port != 0 {
            return Err(SocketError::Invalid);
        }
        let address = match (sock.family, address) {
            (Family::V4, IpAddr::V4(address)) => u128::from(address.to_bits()),
            (Family::V6, IpAddr::V6(address)) => address.to_bits(),
            (Family::V4, IpAddr::V6(_)) => return Err(SocketError::FamilyNotSupported),
            (Family::V6, IpAddr::V4(_)) => return Err(SocketError::Invalid),
        };
        let mapped = sock.family == Family::V6 && is_v4(address);
        if mapped && sock.v6only {
            return Err(SocketError::Invalid);
        }
        let before = (sock.v6only, sock.address_named, sock.port_named, sock.bound);
        match sock.family {
            Family::V4 => sock.local4 = address as u32,
            Family::V6 => {
                sock.local6 = address;
                sock.local4 = if mapped { address as u32 } else { 0 };
                // An address of its own leaves no room for IPv4.
                sock.v6only |= address != 0 && !mapped;
            }
        }
        sock.address_named = address != 0;
        sock.port_named = port != 0;
        sock.bound = address;
        let mut touched = Touched::new(published);
        match self.take_port(i, port, &mut touched) {
            Ok(port) => {
                touched.publish(self);
                Ok(port)
            }
            Err(error) => {
                let sock = self.sock_mut(i);
                (sock.v6only, sock.address_named, sock.port_named, sock.bound) = before;
                (sock.local4, sock.local6) = (0, 0);
                Err(error)
            }
        }
    }

    fn take_port(
        &mut self,
        i: u32,
        port: u16,
        touched: &mut Touched<'_>,
    ) -> Result<u16, SocketError> {
        // Out of its slot for a moment, so that it can be compared with the others.
        let sock = self.slots[i as usize].sock.take().expect("the caller looked it up");
        let port = match port {
            0 => self.automatic_port(&sock),
            _ if self.conflicts(&sock, port) => Err(SocketError::AddressInUse),
            _ => Ok(port),
        };
        self.slots[i as usize].sock = Some(sock);
        let port = port?;
        self.sock_mut(i).port = port;
        if self.sock(i).reuseport
            && let Err(error) = self.join_at_bind(i, touched)
        {
            self.sock_mut(i).port = 0;
            return Err(error);
        }
        let sock = self.sock(i);
        let to_tail = sock.reuseport && sock.family == Family::V6;
        let rank = if to_tail { self.tail_rank() } else { self.head_rank() };
        let sock = self.sock_mut(i);
        (sock.port_rank, sock.rank) = (rank, rank);
        let (address, reuseaddr) = (sock.list_address(), sock.reuseaddr);
        sock.listed_at = address;
        self.ports.entry(port).or_default().insert(rank, i, reuseaddr);
        self.addresses.entry((address, port)).or_default().insert(rank, i, reuseaddr);
        self.free_ports.set(port, false);
        self.link_key(i);
        touched.socket(i);
        Ok(port)
    }

    pub(crate) fn connect(
        &mut self,
        published: &Published,
        id: SocketId,
        to: IpAddr,
        to_port: u16,
        source: IpAddr,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let sock = self.sock(i);
        if sock.family == Family::V4 && to.is_ipv6() {
            return Err(SocketError::FamilyNotSupported);
        }
        if to_port == 0 || to.is_unspecified() {
            return Err(SocketError::Invalid);
        }
        let (to, source) = (wide(to), wide(source));
        let v4 = is_v4(to);
        let wildcard = match sock.family {
            Family::V4 => sock.local4 == 0,
            Family::V6 if v4 => listed(sock.local6) == 0,
            Family::V6 => sock.local6 == 0,
        };
        let reachable = match sock.family {
            Family::V4 => true,
            // Linux lets a socket that a connect gave an IPv6 address go on to an IPv4 remote.
            Family::V6 if v4 => {
                !sock.v6only && (wildcard || sock.is_mapped() || self.quirks.placeholder4)
            }
            Family::V6 => wildcard || !sock.is_mapped(),
        };
        if !reachable {
            return Err(match v4 {
                true => SocketError::NetworkUnreachable,
                false => SocketError::FamilyNotSupported,
            });
        }
        // The local address becomes the one that routing selects, which must be of the family.
        if wildcard && (is_v4(source) != v4 || listed(source) == 0) {
            return Err(SocketError::AddressNotAvailable);
        }
        let mut touched = Touched::new(published);
        if sock.port == 0 {
            self.take_port(i, 0, &mut touched)?;
        }
        self.rekey(i, |sock| {
            sock.remote_port = to_port;
            if sock.family == Family::V6 {
                sock.remote6 = to;
            }
            if v4 {
                sock.remote4 = to as u32;
            }
            if wildcard {
                sock.local4 = if v4 { source as u32 } else { STAND_IN };
                if sock.family == Family::V6 {
                    sock.local6 = source;
                }
            }
        });
        let home = self.sock(i).home;
        if wildcard {
            self.rehash(i, &mut touched);
        } else if let Some(group) = self.groups.get_mut(&home) {
            group.had_connected = !self.quirks.by_group;
            touched.group(home, When::Before);
        }
        self.sock_mut(i).connected = true;
        if self.quirks.three_tables {
            self.file(i, &mut touched);
        }
        if !self.quirks.left_group {
            self.go_away(i, &mut touched);
        }
        touched.socket(i);
        touched.publish(self);
        Ok(())
    }

    pub(crate) fn disconnect(
        &mut self,
        published: &Published,
        id: SocketId,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let quirks = self.quirks;
        let mut touched = Touched::new(published);
        let old_device = self.sock(i).device;
        self.rekey(i, |sock| {
            sock.connected = false;
            sock.remote4 = 0;
            sock.remote_port = 0;
            sock.device = 0;
            if !quirks.stale_remote6 {
                sock.remote6 = 0;
            }
            if !quirks.stale_hash4 {
                sock.filed = None;
            }
            if !sock.address_named {
                (sock.local4, sock.local6) = (0, 0);
            }
        });
        let sock = self.sock(i);
        if !sock.port_named {
            self.unhash(i, &mut touched);
        } else if !sock.address_named {
            self.rehash(i, &mut touched);
        }
        let sock = self.sock(i);
        let (home, away) = (sock.home, sock.home != sock.group);
        if sock.device != old_device {
            self.regroup(i, old_device, &mut touched)?;
        } else if away {
            self.come_back(i, home, &mut touched)?;
        }
        touched.socket(i);
        touched.publish(self);
        Ok(())
    }

    pub(crate) fn close(&mut self, published: &Published, id: SocketId) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let mut touched = Touched::new(published);
        self.unhash(i, &mut touched);
        let sock = self.sock_mut(i);
        sock.joined.clear();
        sock.connected = false;
        touched.socket(i);
        touched.publish(self);
        published.set_joined(i, &[]);
        let slot = &mut self.slots[i as usize];
        slot.sock = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.open -= 1;
        self.vacant.push(i);
        Ok(())
    }

    /// Returns the socket of an id.
    pub(crate) fn get(&self, id: SocketId) -> Result<&Sock, SocketError> {
        Ok(self.sock(self.index(id)?))
    }

    /// A change of local address or device: the list of the address and the 4-tuple follow.
    fn rehash(&mut self, i: u32, touched: &mut Touched<'_>) {
        if self.sock(i).port == 0 {
            return;
        }
        if self.quirks.left_group {
            self.leave_group(i, touched);
        }
        self.move_to_address(i);
        self.refile(i);
    }

    /// Puts a socket at the head of the list of its local address unless it is on it.
    fn move_to_address(&mut self, i: u32) {
        let sock = self.sock(i);
        let (port, rank, reuseaddr) = (sock.port, sock.rank, sock.reuseaddr);
        let address = sock.list_address();
        if sock.listed_at == address {
            return;
        }
        let old = (sock.listed_at, port);
        if let Some(chain) = self.addresses.get_mut(&old) {
            chain.remove(rank);
            if chain.all.is_empty() {
                self.addresses.remove(&old);
            }
        }
        let rank = self.head_rank();
        let sock = self.sock_mut(i);
        (sock.rank, sock.listed_at) = (rank, address);
        self.addresses.entry((address, port)).or_default().insert(rank, i, reuseaddr);
    }

    /// Files a connected socket, which keeps its place if it is filed already and either Linux is
    /// followed or the 4-tuple is the same.
    fn file(&mut self, i: u32, touched: &mut Touched<'_>) {
        if self.sock(i).filed.is_none() {
            // One that is filed stays in a group that a later bind put it into.
            if self.quirks.left_group {
                self.leave_group(i, touched);
            }
            self.filings += 1;
            let order = self.filings;
            let sock = self.sock_mut(i);
            sock.filed = Some(Filed { tuple: sock.tuple(), order });
        } else if !self.quirks.stale_hash4 {
            self.refile(i);
        }
    }

    /// Files a filed socket anew if its 4-tuple is another by now.
    fn refile(&mut self, i: u32) {
        let tuple = self.sock(i).tuple();
        if self.sock(i).filed.is_some_and(|filed| filed.tuple != tuple) {
            self.filings += 1;
            self.sock_mut(i).filed = Some(Filed { tuple, order: self.filings });
        }
    }

    /// Takes a socket off all lists; it has no port any more.
    fn unhash(&mut self, i: u32, touched: &mut Touched<'_>) {
        self.leave_group(i, touched);
        self.unlink_key(i);
        let sock = self.sock_mut(i);
        let (port, rank, port_rank) = (sock.port, sock.rank, sock.port_rank);
        let address = sock.listed_at;
        sock.port = 0;
        sock.filed = None;
        if port == 0 {
            return;
        }
        if let Some(chain) = self.ports.get_mut(&port) {
            chain.remove(port_rank);
            if chain.all.is_empty() {
                self.ports.remove(&port);
                self.free_ports.set(port, true);
            }
        }
        if let Some(chain) = self.addresses.get_mut(&(address, port)) {
            chain.remove(rank);
            if chain.all.is_empty() {
                self.addresses.remove(&(address, port));
            }
        }
    }

    /// Joins the group of the first socket of the port with the same key, which founds one if it
    /// is in none.
    fn join_at_bind(&mut self, i: u32, touched: &mut Touched<'_>) -> Result<(), SocketError> {
        let key = self.sock(i).group_key(!self.quirks.left_group);
        let first = self.by_key.get(&key).and_then(|map| map.values().next().copied());
        let group = match first.map(|first| (first, self.sock(first).home)) {
            Some((first, 0)) => {
                let group = self.found_group();
                self.add_to_group(first, group, touched)?;
                group
            }
            Some((_, group)) => group,
            None => self.found_group(),
        };
        self.add_to_group(i, group, touched)
    }

    /// Without `left_group` a socket whose device changes goes to the group of its new key.
    fn regroup(
        &mut self,
        i: u32,
        old_device: u32,
        touched: &mut Touched<'_>,
    ) -> Result<(), SocketError> {
        let sock = self.sock(i);
        if self.quirks.left_group || sock.home == 0 || sock.device == old_device {
            return Ok(());
        }
        let key = sock.group_key(true);
        self.leave_group(i, touched);
        let others = self.by_key.get(&key).into_iter().flat_map(BTreeMap::values);
        let homes = others.filter(|other| **other != i).map(|other| self.sock(*other).home);
        let group = homes.into_iter().find(|group| *group != 0);
        let group = group.unwrap_or_else(|| self.found_group());
        self.come_back(i, group, touched)?;
        if self.sock(i).connected {
            self.go_away(i, touched);
        }
        Ok(())
    }

    /// Takes a socket that connects out of its group, to which it still belongs.
    fn go_away(&mut self, i: u32, touched: &mut Touched<'_>) {
        let home = self.sock(i).group;
        if home != 0 {
            self.groups.entry(home).or_default().away += 1;
            self.leave_group(i, touched);
            self.sock_mut(i).home = home;
        }
    }

    /// Makes a socket a member of a group to which it may belong already.
    fn come_back(
        &mut self,
        i: u32,
        group: u32,
        touched: &mut Touched<'_>,
    ) -> Result<(), SocketError> {
        if self.add_to_group(i, group, touched).is_ok() {
            return Ok(());
        }
        // The group is full by now: it stands alone.
        self.leave_group(i, touched);
        let group = self.found_group();
        self.add_to_group(i, group, touched)
    }

    fn found_group(&mut self) -> u32 {
        loop {
            self.last_group = self.last_group.wrapping_add(1);
            if self.last_group != 0 && !self.groups.contains_key(&self.last_group) {
                self.groups.insert(self.last_group, Group::default());
                return self.last_group;
            }
        }
    }

    fn add_to_group(
        &mut self,
        i: u32,
        group: u32,
        touched: &mut Touched<'_>,
    ) -> Result<(), SocketError> {
        let was_away = self.sock(i).home == group;
        let own = self.groups.entry(group).or_default();
        if own.members.len() >= MOST_MEMBERS {
            return Err(SocketError::NoBuffers);
        }
        own.members.push(i);
        own.away -= usize::from(was_away);
        own.count_cpu(false, touched.has_cpu(i));
        let sock = self.sock_mut(i);
        (sock.home, sock.group) = (group, group);
        touched.group(group, When::Before);
        touched.socket(i);
        Ok(())
    }

    /// Takes a socket out of its group for good.
    fn leave_group(&mut self, i: u32, touched: &mut Touched<'_>) {
        let sock = self.sock_mut(i);
        let (home, member) = (std::mem::take(&mut sock.home), std::mem::take(&mut sock.group));
        let Some(group) = self.groups.get_mut(&home) else { return };
        if member == 0 {
            group.away -= 1;
        } else if let Some(place) = group.members.iter().position(|member| *member == i) {
            group.members.swap_remove(place);
            group.count_cpu(touched.has_cpu(i), false);
        }
        if group.members.is_empty() && group.away == 0 {
            self.groups.remove(&home);
        }
        touched.group(home, When::After);
    }

    /// Returns a group as look-ups see it; `None` if it is no more.
    pub(super) fn group_view(&self, group: u32) -> Option<GroupView> {
        let group = self.groups.get(&group)?;
        let members = group.members.iter().map(|i| self.member(*i)).collect();
        let by_cpu = match self.quirks.left_group {
            true => self.quirks.group_asks_cpu && group.with_cpu != 0,
            false => group.members.iter().any(|i| self.sock(*i).cpu_given),
        };
        Some(GroupView {
            members,
            had_connected: group.had_connected,
            by_cpu,
            selector: group.selector.clone(),
        })
    }

    /// Returns what a group says of its member.
    pub(super) fn member(&self, i: u32) -> Member {
        let sock = self.sock(i);
        let remotes = if sock.remote4 != 0 { HAS_REMOTE4 } else { 0 }
            | if sock.remote6 != 0 { HAS_REMOTE6 } else { 0 };
        let connected = sock.connected && !self.quirks.by_group;
        Member { socket: self.id(i), connected, flags: sock.flags() | remotes }
    }

    /// Tells of the flow that a socket has or no longer has.
    pub(super) fn tell_flow(&mut self, i: u32) {
        let id = self.id(i);
        let sock = self.sock_mut(i);
        let flow = sock.connected.then(|| sock.tuple());
        let old = std::mem::replace(&mut sock.flow, flow);
        let Some(events) = self.events.as_ref().filter(|_| old != flow) else { return };
        if let Some(old) = old {
            events.withdrawn(id, &flow_key(&old));
        }
        if let Some(flow) = flow {
            events.connected(id, &flow_key(&flow));
        }
    }

    /// Changes what a group key consists of.
    fn rekey(&mut self, i: u32, change: impl FnOnce(&mut Sock)) {
        self.unlink_key(i);
        change(self.sock_mut(i));
        self.link_key(i);
    }

    fn link_key(&mut self, i: u32) {
        let sock = self.sock(i);
        if sock.port != 0 && sock.reuseport {
            let key = sock.group_key(!self.quirks.left_group);
            let rank = sock.port_rank;
            self.by_key.entry(key).or_default().insert(rank, i);
        }
    }

    fn unlink_key(&mut self, i: u32) {
        let sock = self.sock(i);
        if sock.port != 0 && sock.reuseport {
            let key = sock.group_key(!self.quirks.left_group);
            let rank = sock.port_rank;
            if let Some(map) = self.by_key.get_mut(&key) {
                map.remove(&rank);
                if map.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    fn head_rank(&mut self) -> i64 {
        self.lowest -= 1;
        self.lowest
    }

    fn tail_rank(&mut self) -> i64 {
        self.highest += 1;
        self.highest
    }

    /// Returns the next of a series of numbers that look random (SplitMix64).
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn id(&self, i: u32) -> SocketId {
        SocketId { index: i, generation: self.slots[i as usize].generation }
    }

    pub(super) fn sock(&self, i: u32) -> &Sock {
        self.slots[i as usize].sock.as_deref().expect("lists hold open sockets only")
    }

    pub(super) fn sock_mut(&mut self, i: u32) -> &mut Sock {
        self.slots[i as usize].sock.as_deref_mut().expect("lists hold open sockets only")
    }

    fn index(&self, id: SocketId) -> Result<u32, SocketError> {
        let slot = self.slots.get(id.index as usize).ok_or(SocketError::Closed)?;
        let open = slot.sock.is_some() && slot.generation == id.generation;
        if open { Ok(id.index) } else { Err(SocketError::Closed) }
    }
}
