//! What look-ups see, and how a change reaches them.
//!
//! A change is published in three phases: first what is new (list entries, 4-tuples, members),
//! then the version of the port goes up, then what is old is taken away. So a socket that moves is
//! in its old place, its new one, or both. A look-up that read a new place before it was there and
//! an old one after it was empty finds that the version changed meanwhile, and starts again. It
//! waits for nobody: a writer that is stopped between two phases leaves the version alone.
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

/// What is published of one socket. Its entry and its record are where they were published.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Footprint {
    /// The list of address and port that it is on for writers, and its rank; port 0: on none.
    address: u128,
    rank: i64,
    port: u16,
    /// Whether look-ups find an entry of it there, or by 4-tuple only.
    listed: bool,
    /// Whether they find one under the stand-in address.
    stands_in: bool,
    /// Its record in the 4-tuple table, plus one; 0: none.
    #[cfg(feature = "hash4")]
    record: u32,
    /// What its group says of it.
    member: Option<Member>,
}

impl Footprint {
    /// Returns the list that it is on for writers.
    fn list(&self) -> Option<(u128, u16)> {
        (self.port != 0).then_some((self.address, self.port))
    }
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
            for (_, port) in change.lists() {
                self.versions.raise(port);
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
        let Change { i, new, entry, .. } = change;
        // A change in place keeps list and rank; anything else is added here, taken away later.
        if let (Some(list), Some(entry)) = (new.list(), entry)
            && !self.lists.pin().get(&list).is_some_and(|list| list.has(entry))
        {
            self.edit_list(list, |list| list.put(*entry));
        }
        #[cfg(feature = "hash4")]
        let new = &Footprint { record: self.file(writer, change), ..*new };
        if self.port_stage || self.early_demux {
            for (_, port) in change.lists() {
                let sock = writer.sock(*i);
                let entry = new.stands_in.then(|| sock.stand_in_entry(writer.id(*i)));
                self.edit_port(writer, port, |list| {
                    entry.into_iter().for_each(|entry| list.put(entry));
                });
            }
        }
        writer.sock_mut(*i).published = *new;
    }

    /// Returns the record of a socket, plus one; the one that it has if that says the same.
    #[cfg(feature = "hash4")]
    fn file(&self, writer: &mut Writer, change: &Change) -> u32 {
        let Some(filed) = &change.filed else { return 0 };
        if let Some(record) = change.old.record.checked_sub(1)
            && self.four.holds(&writer.records, record, filed)
        {
            return record + 1;
        }
        self.four.insert(&mut writer.records, filed, self.hash) + 1
    }

    /// Third phase of a socket's change.
    fn take_away(&self, writer: &mut Writer, change: &Change) {
        let Change { i, old, .. } = change;
        let new = writer.sock(*i).published;
        if let Some(list) = old.list().filter(|_| old.listed) {
            let stays = new.listed && new.list() == Some(list) && new.rank == old.rank;
            if !stays {
                self.edit_list(list, |list| list.remove(old.rank));
            }
        }
        #[cfg(feature = "hash4")]
        if let Some(record) = old.record.checked_sub(1)
            && old.record != new.record
        {
            self.four.remove(&mut writer.records, record, self.hash);
        }
        if old.stands_in && !new.stands_in {
            // It keeps its rank on the port, also when it has just left that.
            let rank = writer.sock(*i).port_rank;
            self.edit_port(writer, old.port, |list| list.remove(rank));
        }
        if self.early_demux {
            for list in change.lists() {
                self.publish_head(writer, list);
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
        let first = chain.and_then(|chain| chain.all.iter().next());
        let head = first.filter(|i| writer.sock(*i).connected);
        let head = head.map(|i| Box::new(writer.sock(i).entry(writer.id(i))));
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

/// The old and the new footprint of a socket, and what is to be seen of it.
#[derive(Debug)]
struct Change {
    i: u32,
    old: Footprint,
    new: Footprint,
    /// On its list, unless it is found by 4-tuple only.
    entry: Option<Entry>,
    #[cfg(feature = "hash4")]
    filed: Option<FiledSocket>,
}

impl Change {
    fn of(writer: &Writer, i: u32) -> Self {
        let sock = writer.sock(i);
        let id = writer.id(i);
        let member = (sock.group != 0).then(|| writer.member(i));
        let mut new = Footprint { member, ..Footprint::default() };
        // One that is filed under its 4-tuple of now is found there before any list is walked.
        #[cfg(feature = "hash4")]
        let filed =
            sock.filed.filter(|f| sock.port != 0 && sock.connected && f.tuple == sock.tuple());
        #[cfg(feature = "hash4")]
        let by_tuple_only = filed.is_some();
        #[cfg(not(feature = "hash4"))]
        let by_tuple_only = false;
        if sock.port != 0 {
            (new.address, new.port, new.rank) = (sock.list_address(), sock.port, sock.rank);
            new.listed = !by_tuple_only;
            new.stands_in = sock.has_stand_in();
        }
        Self {
            i,
            old: sock.published,
            entry: new.listed.then(|| sock.entry(id)),
            #[cfg(feature = "hash4")]
            filed: filed.map(|filed| FiledSocket::new(&sock.entry(id), &filed)),
            new,
        }
    }

    /// Returns the lists that it was and is on for writers.
    fn lists(&self) -> impl Iterator<Item = (u128, u16)> + use<> {
        [self.old.list(), self.new.list()].into_iter().flatten()
    }
}
