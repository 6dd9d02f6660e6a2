//! What look-ups see, and how a change reaches them.
//!
//! A change is published in three phases: first what is new (list entries, 4-tuples, members),
//! then the version of the port goes up, then what is old is taken away. So a socket that moves is
//! in its old place, its new one, or both. A look-up that read a new place before it was there and
//! an old one after it was empty finds that the version changed meanwhile, and starts again. It
//! never waits: a writer that is stopped between two phases leaves the version alone.
//!
//! Always true: what was published for a socket stands in its [`Footprint`], so that exactly that
//! is taken away.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use foldhash::fast::RandomState;
use rxsteer_core::CpuId;

use crate::group::{CpuOf, GroupView, Member};
use crate::{Config, DeviceId, SocketId, SourceFilter};

use super::entry::Entry;
#[cfg(feature = "hash4")]
use super::four::{FiledSocket, Four};
use super::list::List;
use super::segments::Segments;
use super::tuple::TupleHash;
use super::versions::Versions;
use super::writer::Writer;

type Map<K, V> = papaya::HashMap<K, V, RandomState>;

/// What is published of one socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Footprint {
    /// The list of address and port that it is on for writers, and its rank.
    listed: Option<(u128, u16, i64)>,
    /// Its entry on that list, unless it is found by 4-tuple only.
    entry: Option<Entry>,
    /// The rank of its entry under the stand-in address.
    stand_in: Option<i64>,
    /// Its record in the 4-tuple table.
    #[cfg(feature = "hash4")]
    four: Option<(u32, FiledSocket)>,
    /// What its group says of it.
    member: Option<Member>,
}

/// When the next version of a group is published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum When {
    /// Before the version of the port goes up: something is added.
    Before,
    /// After it: something is taken away.
    After,
}

/// What an operation touched.
#[derive(Debug)]
pub(super) struct Touched<'a> {
    published: &'a Published,
    sockets: Vec<u32>,
    groups: Vec<(u32, When)>,
}

impl<'a> Touched<'a> {
    pub(super) fn new(published: &'a Published) -> Self {
        Self { published, sockets: Vec::new(), groups: Vec::new() }
    }

    pub(super) fn socket(&mut self, i: u32) {
        if !self.sockets.contains(&i) {
            self.sockets.push(i);
        }
    }

    pub(super) fn group(&mut self, group: u32, when: When) {
        if group != 0 {
            self.groups.push((group, when));
        }
    }

    /// Returns whether a socket prefers a CPU at present, given or taken on.
    pub(super) fn has_cpu(&self, i: u32) -> bool {
        self.published.has_cpu(i)
    }

    /// Makes what the operation changed visible.
    pub(super) fn publish(self, writer: &mut Writer) {
        self.published.publish(writer, self.sockets, self.groups);
    }
}

/// What Linux asks of a port beside its lists.
#[derive(Clone, Debug, Default)]
pub(super) struct PortView {
    /// Sockets on the port.
    pub(super) count: usize,
    /// Those under the stand-in address.
    pub(super) stand_ins: List,
}

/// What look-ups see of a namespace.
#[derive(Debug)]
pub(crate) struct Published {
    pub(super) hash: TupleHash,
    pub(super) early_demux: bool,
    pub(super) port_stage: bool,
    pub(super) by_group: bool,
    /// Candidates by local address and port; all wildcards under the address 0.
    pub(super) lists: Map<(u128, u16), List>,
    /// By port; only under Linux's rules.
    pub(super) ports: Map<u16, PortView>,
    pub(super) groups: Map<u32, GroupView>,
    /// Multicast memberships by place of the socket.
    pub(super) joined: Map<u32, Joined>,
    /// Connected sockets by 4-tuple.
    #[cfg(feature = "hash4")]
    pub(super) four: Four,
    /// Incoming CPUs by place of the socket, plus one; 0: none.
    cpus: Segments<AtomicU32>,
    pub(super) versions: Versions,
    /// Packets for which a group's selector could not be applied.
    pub(super) selector_misses: AtomicU64,
}

/// Memberships of a socket.
pub(super) type Joined = Arc<[(IpAddr, DeviceId, SourceFilter)]>;

impl Published {
    pub(crate) fn new(config: &Config) -> Self {
        let quirks = config.profile.quirks();
        Self {
            hash: TupleHash::new(config.key),
            early_demux: quirks.early_demux,
            port_stage: quirks.port_stage,
            by_group: quirks.by_group,
            lists: Map::default(),
            ports: Map::default(),
            groups: Map::default(),
            joined: Map::default(),
            #[cfg(feature = "hash4")]
            four: Four::new(config.connected_capacity),
            cpus: Segments::new(),
            versions: Versions::new(),
            selector_misses: AtomicU64::new(0),
        }
    }

    /// Returns how often a group's selector could not be applied and the hash decided.
    pub(crate) fn selector_misses(&self) -> u64 {
        self.selector_misses.load(Ordering::Relaxed)
    }

    pub(super) fn set_cpu(&self, i: u32, cpu: Option<CpuId>) {
        let value = cpu.map_or(0, |cpu| u32::from(cpu.0) + 1);
        self.cpus.at_or_make(i).store(value, Ordering::Relaxed);
    }

    /// Returns whether a socket prefers a CPU, given or taken on.
    pub(super) fn has_cpu(&self, i: u32) -> bool {
        self.cpus.at(i).is_some_and(|cpu| cpu.load(Ordering::Relaxed) != 0)
    }

    /// Notes that a connected socket received on a CPU; no store if it is the same.
    #[inline]
    pub(crate) fn stick_to_cpu(&self, socket: SocketId, cpu: CpuId) {
        let value = u32::from(cpu.0) + 1;
        if let Some(cell) = self.cpus.at(socket.index)
            && cell.load(Ordering::Relaxed) != value
        {
            cell.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn set_joined(&self, i: u32, joined: &[(IpAddr, DeviceId, SourceFilter)]) {
        let map = self.joined.pin();
        if joined.is_empty() {
            map.remove(&i);
        } else {
            map.insert(i, joined.into());
        }
    }

    fn publish(&self, writer: &mut Writer, sockets: Vec<u32>, mut groups: Vec<(u32, When)>) {
        let changes: Vec<Change> = sockets.into_iter().map(|i| Change::of(writer, i)).collect();
        for change in &changes {
            let group = writer.sock(change.i).group;
            let told = groups.iter().any(|(told, _)| *told == group);
            if group != 0 && !told && change.old.member != change.new.member {
                groups.push((group, When::Before));
            }
        }

        for (group, when) in &groups {
            if *when == When::Before {
                self.publish_group(writer, *group);
            }
        }
        for change in &changes {
            self.add(writer, change);
        }
        for change in &changes {
            for port in [change.old.listed, change.new.listed].into_iter().flatten() {
                self.versions.raise(port.1);
            }
        }
        for change in &changes {
            self.take_away(writer, change);
        }
        for (group, when) in &groups {
            if *when == When::After {
                self.publish_group(writer, *group);
            }
        }
        for change in &changes {
            writer.tell_flow(change.i);
        }
    }

    fn publish_group(&self, writer: &Writer, group: u32) {
        let map = self.groups.pin();
        match writer.group_view(group) {
            Some(view) => {
                map.insert(group, view);
            }
            None => {
                map.remove(&group);
            }
        }
    }

    /// First phase of a socket's change.
    fn add(&self, writer: &mut Writer, change: &Change) {
        let Change { i, old, new } = change;
        // A change in place keeps list and rank; anything else is added here, taken away later.
        if let (Some((address, port, _)), Some(entry)) = (new.listed, new.entry)
            && old.entry != Some(entry)
        {
            self.edit_list((address, port), |list| list.put(entry));
        }
        #[cfg(feature = "hash4")]
        let new = &Footprint { four: self.file(writer, old, new), ..*new };
        if self.port_stage || self.early_demux {
            for (_, port, _) in [old.listed, new.listed].into_iter().flatten() {
                let sock = writer.sock(*i);
                let entry = new.stand_in.map(|_| sock.stand_in_entry(writer.id(*i)));
                self.edit_port(writer, port, |list| {
                    entry.into_iter().for_each(|entry| list.put(entry));
                });
            }
        }
        writer.sock_mut(*i).published = *new;
    }

    #[cfg(feature = "hash4")]
    fn file(
        &self,
        writer: &mut Writer,
        old: &Footprint,
        new: &Footprint,
    ) -> Option<(u32, FiledSocket)> {
        let (_, filed) = new.four?;
        if let Some((record, before)) = old.four
            && before == filed
        {
            return Some((record, filed));
        }
        Some((self.four.insert(&mut writer.records, &filed, self.hash), filed))
    }

    /// Third phase of a socket's change.
    fn take_away(&self, writer: &mut Writer, change: &Change) {
        let Change { i, old, .. } = change;
        let new = writer.sock(*i).published;
        if let (Some((address, port, _)), Some(entry)) = (old.listed, old.entry) {
            let stays = new.entry.is_some_and(|e| e.rank == entry.rank) && new.listed == old.listed;
            if !stays {
                self.edit_list((address, port), |list| list.remove(entry.rank));
            }
        }
        #[cfg(feature = "hash4")]
        if let Some((record, filed)) = old.four
            && new.four.is_none_or(|(now, _)| now != record)
        {
            self.four.remove(&mut writer.records, &filed, record, self.hash);
        }
        if let (Some(rank), Some((_, port, _))) = (old.stand_in, old.listed)
            && new.stand_in != Some(rank)
        {
            self.edit_port(writer, port, |list| list.remove(rank));
        }
        if self.early_demux {
            for (address, port, _) in [old.listed, new.listed].into_iter().flatten() {
                self.publish_head(writer, (address, port));
            }
        }
    }

    fn edit_list(&self, key: (u128, u16), edit: impl FnOnce(&mut List)) {
        let map = self.lists.pin();
        let mut list = map.get(&key).cloned().unwrap_or_default();
        edit(&mut list);
        if list.is_empty() {
            map.remove(&key);
        } else {
            map.insert(key, list);
        }
    }

    /// Publishes the head of all sockets of an address, if it is connected.
    fn publish_head(&self, writer: &Writer, key: (u128, u16)) {
        let chain = writer.addresses.get(&key);
        let first = chain.and_then(|chain| chain.all.values().next().copied());
        let head = first.filter(|i| writer.sock(*i).connected);
        let head = head.map(|i| writer.sock(i).entry(writer.id(i)));
        let map = self.lists.pin();
        if map.get(&key).map_or(head.is_some(), |list| list.head != head) {
            drop(map);
            self.edit_list(key, |list| list.head = head);
        }
    }

    /// Publishes the number of sockets of a port, and a change of those under the stand-in.
    fn edit_port(&self, writer: &Writer, port: u16, edit: impl FnOnce(&mut List)) {
        let map = self.ports.pin();
        let count = writer.ports.get(&port).map_or(0, |chain| chain.all.len());
        let mut view = map.get(&port).cloned().unwrap_or_default();
        view.count = count;
        edit(&mut view.stand_ins);
        if count == 0 {
            map.remove(&port);
        } else {
            map.insert(port, view);
        }
    }
}

impl CpuOf for Published {
    #[inline]
    fn is_on(&self, socket: SocketId, cpu: CpuId) -> bool {
        let cell = self.cpus.at(socket.index);
        cell.is_some_and(|cell| cell.load(Ordering::Relaxed) == u32::from(cpu.0) + 1)
    }
}

/// The old and the new footprint of a socket.
#[derive(Debug)]
struct Change {
    i: u32,
    old: Footprint,
    new: Footprint,
}

impl Change {
    fn of(writer: &Writer, i: u32) -> Self {
        let sock = writer.sock(i);
        let id = writer.id(i);
        let member = (sock.group != 0).then(|| writer.member(i));
        let mut new = Footprint { member, ..Footprint::default() };
        if sock.port != 0 {
            new.listed = Some((sock.list_address(), sock.port, sock.rank));
            new.stand_in = sock.has_stand_in().then_some(sock.port_rank);
            // One that is filed under its 4-tuple of now is found there before any list is walked.
            #[cfg(feature = "hash4")]
            {
                let filed = sock.filed.filter(|f| sock.connected && f.tuple == sock.tuple());
                new.four = filed.map(|filed| (0, FiledSocket::new(&sock.entry(id), &filed)));
            }
            #[cfg(feature = "hash4")]
            let by_tuple_only = new.four.is_some();
            #[cfg(not(feature = "hash4"))]
            let by_tuple_only = false;
            new.entry = (!by_tuple_only).then(|| sock.entry(id));
        }
        Self { i, old: sock.published, new }
    }
}
