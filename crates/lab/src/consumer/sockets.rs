//! The sockets of the local side: found, opened, connected, closed, as the packets tell.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::{FixedState, RandomState};
use hashbrown::HashTable;
use rxsteer_core::dissect::AddrKind;
use rxsteer_core::steer::PortRule;
use rxsteer_core::{CpuId, FlowHash, PortSet};

use super::half_open::{DATA_IN, HalfOpen, IN, OUT, SYN_IN};
use super::scenario::{ConsumerRule, Protocol};
use crate::host::Host;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Both ends of a packet, seen from the local side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tuple {
    pub(crate) local: [u8; 16],
    pub(crate) remote: [u8; 16],
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) kind: AddrKind,
    pub(crate) tcp: bool,
}

impl Tuple {
    fn hash(&self, state: &impl BuildHasher) -> u64 {
        let mut hasher = state.build_hasher();
        for bytes in [&self.local, &self.remote] {
            for half in bytes.as_chunks::<8>().0 {
                hasher.write_u64(u64::from_le_bytes(*half));
            }
        }
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        hasher.write_u64(ports << 16 | u64::from(self.tcp) << 8 | self.kind as u64);
        hasher.finish()
    }

    /// The local end alone; `remote_port` tells the members of a reuseport group apart.
    fn endpoint(&self, member: u16) -> Self {
        Self { remote: [0; 16], remote_port: member, ..*self }
    }
}

/// What the headers of a packet say to its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// Flags of the TCP header.
    pub(crate) tcp_flags: u8,
    /// Whether bytes of data follow.
    pub(crate) data: bool,
    /// Whether the packet came in a tunnel over UDP, with the hash of its outer header.
    pub(crate) tunnelled: bool,
}

/// The socket of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    pub(crate) socket: u32,
    pub(crate) socket_use: u32,
    pub(crate) connected: bool,
    pub(crate) port_rule: PortRule,
    /// The packet closes the socket.
    pub(crate) closes: bool,
}

/// A socket that comes to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Opened {
    /// Its place.
    pub(crate) socket: u32,
    /// Which occupant of that place it is.
    pub(crate) socket_use: u32,
    /// CPU of its reader.
    pub(crate) cpu: CpuId,
    /// Work of its reader on one packet, in ns.
    pub(crate) work_ns: u32,
    /// Whether it is of TCP.
    pub(crate) tcp: bool,
    /// Whether its flow belongs in the table of TCP: not if its packets come in a tunnel.
    pub(crate) tcp_table: bool,
    /// Whether it is connected.
    pub(crate) connected: bool,
}

/// A change that the policies must hear of before the packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Note {
    Open(Opened),
    Connect { socket: u32 },
    Disconnect { socket: u32 },
    Close { socket: u32 },
    Place { socket: u32, cpu: CpuId },
}

/// Counts for the report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) tcp: u64,
    pub(crate) udp_connected: u64,
    pub(crate) udp_unconnected: u64,
    pub(crate) by_rule: u64,
    pub(crate) syns: u64,
    pub(crate) syns_followed: u64,
    pub(crate) closed: u64,
    pub(crate) evicted: u64,
    pub(crate) open: u64,
    pub(crate) most: u64,
}

const TCP: u16 = 1;
const CONNECTED: u16 = 2;
const MULTI: u16 = 4;
const SPOKE_FIRST: u16 = 8;
const HEARD: u16 = 16;
const SPOKE: u16 = 32;
const FIN_IN: u16 = 64;
const FIN_OUT: u16 = 128;
const REFERENCED: u16 = 256;
const OPEN: u16 = 512;
const TUNNELLED: u16 = 1024;

fn tunnelled(heard: Heard) -> u16 {
    if heard.tunnelled { TUNNELLED } else { 0 }
}

const NO_RULE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Socket {
    key: Tuple,
    peer: [u8; 16],
    peer_port: u16,
    flags: u16,
    socket_use: u32,
    rule: u32,
    /// Its number among the sockets of its rule (or of none), or its place in its group.
    ordinal: u32,
    cpu: CpuId,
    packets: u64,
}

/// All sockets of the local side.
#[derive(Debug)]
pub(crate) struct Sockets {
    rules: Vec<ConsumerRule>,
    opened_by_rule: Vec<u32>,
    opened_by_none: u32,
    serving: Vec<CpuId>,
    default_work_ns: u32,
    workers: u32,
    /// Ports of unconnected sockets that carry flows, where no rule says more.
    flow_ports: PortSet,
    limit: usize,
    slab: Vec<Socket>,
    free: Vec<u32>,
    hand: usize,
    index: HashTable<u32>,
    /// Decides only where the index keeps a place, so it may differ from run to run.
    state: RandomState,
    /// Decides what shows (groups, half-open connections), so it depends on the seed alone.
    seeded: FixedState,
    half_open: HalfOpen,
    sent_seen: bool,
    pub(crate) counts: Counts,
}

/// Returns the CPUs that readers run on if nothing is said, those that take no interrupts first: no
/// scheduler leaves a busy thread on a CPU that packet work fills when others are free.
fn readers(host: &Host) -> Vec<CpuId> {
    let interrupted = |cpu: &CpuId| host.queues.iter().any(|queue| queue.irq_cpu == *cpu);
    let mut cpus: Vec<CpuId> = host.cpus.serving().iter().collect();
    cpus.sort_by_key(interrupted);
    cpus
}

impl Sockets {
    pub(crate) fn new(
        host: &Host,
        rules: Vec<ConsumerRule>,
        workers: u32,
        limit: usize,
        seed: u64,
    ) -> Self {
        Self {
            opened_by_rule: vec![0; rules.len()],
            rules,
            opened_by_none: 0,
            serving: readers(host),
            default_work_ns: host.costs.work,
            workers: workers.max(1),
            flow_ports: PortSet::EMPTY,
            limit: limit.max(1),
            slab: Vec::new(),
            free: Vec::new(),
            hand: 0,
            index: HashTable::new(),
            state: RandomState::default(),
            seeded: FixedState::with_seed(seed ^ 0x7265_7573_6570_6f72),
            half_open: HalfOpen::new(),
            sent_seen: false,
            counts: Counts::default(),
        }
    }

    /// Takes these ports of unconnected sockets for such that carry flows, unless a rule says flows or
    /// requests.
    pub(crate) fn with_flow_ports(self, flow_ports: PortSet) -> Self {
        Self { flow_ports, ..self }
    }

    /// Hears a packet to the local side and returns the socket that gets it.
    ///
    /// `hint` is the socket that an earlier packet of the same flow was for.
    #[inline]
    pub(crate) fn received(
        &mut self,
        tuple: &Tuple,
        heard: Heard,
        hint: (u32, u32),
        notes: &mut Vec<Note>,
    ) -> Option<Found> {
        let place = self.hinted(hint);
        let place = if tuple.tcp {
            self.tcp_received(tuple, heard, place, notes)?
        } else {
            let place = self.udp(tuple, heard, place, false, notes)?;
            self.try_connect(place, notes);
            place
        };
        let closes = tuple.tcp && self.tcp_closes(place, heard, FIN_IN);
        let socket = &mut self.slab[place as usize];
        socket.packets += 1;
        Some(self.found(place, closes))
    }

    /// Hears a packet from the local side and returns the socket that sent it.
    #[inline]
    pub(crate) fn sent(
        &mut self,
        tuple: &Tuple,
        heard: Heard,
        hint: (u32, u32),
        notes: &mut Vec<Note>,
    ) -> Option<Found> {
        self.sent_seen = true;
        let place = self.hinted(hint);
        let place = if tuple.tcp {
            self.tcp_sent(tuple, heard, place, notes)?
        } else {
            let place = self.udp(tuple, heard, place, true, notes)?;
            self.try_connect(place, notes);
            place
        };
        let closes = tuple.tcp && self.tcp_closes(place, heard, FIN_OUT);
        Some(self.found(place, closes))
    }

    /// Closes a socket whose last packet was told.
    pub(crate) fn close(&mut self, socket: u32, notes: &mut Vec<Note>) {
        let closed = &mut self.slab[socket as usize];
        if closed.flags & OPEN == 0 {
            return;
        }
        closed.flags = 0;
        let hash = closed.key.hash(&self.state);
        if let Ok(entry) = self.index.find_entry(hash, |place| *place == socket) {
            entry.remove();
        }
        self.free.push(socket);
        self.counts.closed += 1;
        self.counts.open -= 1;
        notes.push(Note::Close { socket });
    }

    /// Moves the threads of a rule to other CPUs.
    pub(crate) fn migrate(&mut self, rule: usize, cpus: &[CpuId], notes: &mut Vec<Note>) {
        let Some(known) = self.rules.get_mut(rule) else { return };
        known.cpus = cpus.to_vec();
        for (place, socket) in self.slab.iter_mut().enumerate() {
            if socket.flags & OPEN != 0 && socket.rule as usize == rule {
                socket.cpu = cpus[socket.ordinal as usize % cpus.len()];
                notes.push(Note::Place { socket: place as u32, cpu: socket.cpu });
            }
        }
    }

    /// Returns the numbers, from 1, of the rules that no socket was opened by.
    pub(crate) fn unused_rules(&self) -> impl Iterator<Item = usize> {
        let opened = self.opened_by_rule.iter().enumerate();
        opened.filter(|(_, opened)| **opened == 0).map(|(rule, _)| rule + 1)
    }

    /// Returns the unconnected UDP sockets that are open: place, local port, member of the group,
    /// CPU, packets.
    pub(crate) fn unconnected(&self) -> impl Iterator<Item = (u32, u16, u32, CpuId, u64)> {
        let open = |s: &&Socket| s.flags & (OPEN | TCP | CONNECTED) == OPEN;
        let all = self.slab.iter().enumerate();
        all.filter(move |(_, s)| open(s)).map(|(place, s)| {
            (place as u32, s.key.local_port, u32::from(s.key.remote_port), s.cpu, s.packets)
        })
    }

    /// Returns how many unconnected sockets share a local port, by the rules.
    pub(crate) fn group_size(&self, tuple: &Tuple) -> u32 {
        self.rule_of(tuple).and_then(|rule| self.rules[rule].sockets).unwrap_or(self.workers)
    }

    /// Returns the place of an unconnected socket in its group.
    pub(crate) fn member(&self, socket: u32) -> u32 {
        u32::from(self.slab[socket as usize].key.remote_port)
    }

    fn found(&self, place: u32, closes: bool) -> Found {
        let socket = &self.slab[place as usize];
        let connected = socket.flags & CONNECTED != 0;
        let rule = self.rules.get(socket.rule as usize).map_or(PortRule::Learn, |r| r.port_rule);
        let is_declared = !connected && self.flow_ports.contains(socket.key.local_port);
        Found {
            socket: place,
            socket_use: socket.socket_use,
            connected,
            port_rule: if rule == PortRule::Learn && is_declared { PortRule::Flows } else { rule },
            closes,
        }
    }

    #[inline]
    fn hinted(&mut self, (place, socket_use): (u32, u32)) -> Option<u32> {
        let socket = self.slab.get_mut(place as usize)?;
        if socket.socket_use != socket_use || socket.flags & OPEN == 0 {
            return None;
        }
        socket.flags |= REFERENCED;
        Some(place)
    }

    fn find(&mut self, key: &Tuple) -> Option<u32> {
        let hash = key.hash(&self.state);
        let slab = &self.slab;
        let place = *self.index.find(hash, |place| slab[*place as usize].key == *key)?;
        self.slab[place as usize].flags |= REFERENCED;
        Some(place)
    }

    fn tcp_received(
        &mut self,
        tuple: &Tuple,
        heard: Heard,
        place: Option<u32>,
        notes: &mut Vec<Note>,
    ) -> Option<u32> {
        let place = place.or_else(|| self.find(tuple));
        if heard.tcp_flags & (SYN | ACK) == SYN {
            if let Some(old) = place {
                self.close(old, notes);
            }
            self.counts.syns += 1;
            let hash = tuple.hash(&self.seeded);
            self.half_open.forget(hash);
            self.half_open.add(hash, IN | SYN_IN);
            return None;
        }
        if place.is_some() {
            return place;
        }
        let hash = tuple.hash(&self.seeded);
        if heard.tcp_flags & (RST | FIN) != 0 {
            self.half_open.forget(hash);
            return None;
        }
        let before = self.half_open.flags(hash);
        let one_way = !self.sent_seen && before & DATA_IN != 0 && heard.data;
        if before & (SYN_IN | OUT) == 0 && !one_way {
            self.half_open.add(hash, if heard.data { IN | DATA_IN } else { IN });
            return None;
        }
        self.counts.syns_followed += u64::from(before & SYN_IN != 0);
        self.half_open.forget(hash);
        Some(self.open(*tuple, tuple, TCP | CONNECTED | tunnelled(heard), notes))
    }

    fn tcp_sent(
        &mut self,
        tuple: &Tuple,
        heard: Heard,
        place: Option<u32>,
        notes: &mut Vec<Note>,
    ) -> Option<u32> {
        let place = place.or_else(|| self.find(tuple));
        if place.is_some() {
            return place;
        }
        let hash = tuple.hash(&self.seeded);
        if heard.tcp_flags & (RST | FIN) != 0 {
            self.half_open.forget(hash);
            return None;
        }
        let before = self.half_open.flags(hash);
        if heard.tcp_flags & SYN != 0 || before & IN == 0 {
            self.half_open.add(hash, OUT);
            return None;
        }
        self.counts.syns_followed += u64::from(before & SYN_IN != 0);
        self.half_open.forget(hash);
        Some(self.open(*tuple, tuple, TCP | CONNECTED | tunnelled(heard), notes))
    }

    fn tcp_closes(&mut self, place: u32, heard: Heard, side: u16) -> bool {
        let socket = &mut self.slab[place as usize];
        if heard.tcp_flags & FIN != 0 {
            socket.flags |= side;
            if !self.sent_seen {
                socket.flags |= FIN_OUT;
            }
        }
        heard.tcp_flags & RST != 0 || socket.flags & (FIN_IN | FIN_OUT) == FIN_IN | FIN_OUT
    }

    fn udp(
        &mut self,
        tuple: &Tuple,
        heard: Heard,
        place: Option<u32>,
        sends: bool,
        notes: &mut Vec<Note>,
    ) -> Option<u32> {
        let way = if sends { SPOKE } else { HEARD };
        if let Some(place) = place {
            self.slab[place as usize].flags |= way;
            return Some(place);
        }
        let rule = self.rule_of(tuple);
        let connected = rule.and_then(|rule| self.rules[rule].connected);
        if connected == Some(true) {
            return Some(match self.find(tuple) {
                Some(place) => place,
                None => self.open(*tuple, tuple, CONNECTED | tunnelled(heard), notes),
            });
        }
        let members = self.group_size(tuple);
        let member = if members > 1 {
            let hash = tuple.hash(&self.seeded) >> 32;
            FlowHash(hash as u32).scale(members) as u16
        } else {
            0
        };
        let key = tuple.endpoint(member);
        let Some(place) = self.find(&key) else {
            let first = if sends { SPOKE_FIRST } else { 0 };
            return Some(self.open(key, tuple, way | first | tunnelled(heard), notes));
        };
        let socket = &mut self.slab[place as usize];
        socket.flags |= way;
        if socket.peer != tuple.remote || socket.peer_port != tuple.remote_port {
            socket.flags |= MULTI;
            if socket.flags & CONNECTED != 0 {
                socket.flags &= !CONNECTED;
                self.counts.closed += 1;
                self.counts.udp_unconnected += 1;
                notes.push(Note::Disconnect { socket: place });
            }
        }
        Some(place)
    }

    /// Takes an unconnected UDP socket for connected once one peer and it have spoken.
    #[inline]
    fn try_connect(&mut self, place: u32, notes: &mut Vec<Note>) {
        let socket = &mut self.slab[place as usize];
        let both = socket.flags & (HEARD | SPOKE | MULTI | CONNECTED) == HEARD | SPOKE;
        if !both {
            return;
        }
        let is_client = socket.flags & SPOKE_FIRST != 0 || socket.key.local_port > socket.peer_port;
        let known = self.rules.get(socket.rule as usize).and_then(|rule| rule.connected);
        if is_client && known.is_none() {
            socket.flags |= CONNECTED;
            self.counts.udp_connected += 1;
            self.counts.udp_unconnected -= 1;
            notes.push(Note::Connect { socket: place });
        }
    }

    fn rule_of(&self, tuple: &Tuple) -> Option<usize> {
        let protocol = if tuple.tcp { Protocol::Tcp } else { Protocol::Udp };
        let (local, remote) =
            ((&tuple.local, tuple.local_port), (&tuple.remote, tuple.remote_port));
        self.rules.iter().position(|rule| rule.matches(protocol, tuple.kind, local, remote))
    }

    fn open(&mut self, key: Tuple, tuple: &Tuple, flags: u16, notes: &mut Vec<Note>) -> u32 {
        let rule = self.rule_of(tuple);
        let connected = flags & CONNECTED != 0;
        let opened = match rule {
            Some(rule) => &mut self.opened_by_rule[rule],
            None => &mut self.opened_by_none,
        };
        // Members of a group have their places in it; all others come in turn.
        let grouped =
            !connected && rule.and_then(|r| self.rules[r].sockets).unwrap_or(self.workers) > 1;
        let ordinal = if grouped { u32::from(key.remote_port) } else { *opened };
        *opened = opened.wrapping_add(1);
        let cpus = match rule {
            Some(rule) if !self.rules[rule].cpus.is_empty() => &self.rules[rule].cpus,
            _ => &self.serving,
        };
        let cpu = cpus[ordinal as usize % cpus.len()];
        let work = rule.and_then(|r| self.rules[r].work_ns);
        let work_ns = work.unwrap_or(self.default_work_ns);

        let place = self.free_place(notes);
        let socket_use = self.slab.get(place as usize).map_or(1, |s| s.socket_use.wrapping_add(1));
        let socket = Socket {
            key,
            peer: tuple.remote,
            peer_port: tuple.remote_port,
            flags: flags | OPEN,
            socket_use,
            rule: rule.map_or(NO_RULE, |rule| rule as u32),
            ordinal,
            cpu,
            packets: 0,
        };
        match self.slab.get_mut(place as usize) {
            Some(slot) => *slot = socket,
            None => self.slab.push(socket),
        }
        let (slab, state) = (&self.slab, &self.state);
        let hash = key.hash(state);
        self.index.insert_unique(hash, place, |place| slab[*place as usize].key.hash(state));

        let tcp = flags & TCP != 0;
        let counts = &mut self.counts;
        match (tcp, connected) {
            (true, _) => counts.tcp += 1,
            (false, true) => counts.udp_connected += 1,
            (false, false) => counts.udp_unconnected += 1,
        }
        counts.by_rule += u64::from(rule.is_some());
        counts.open += 1;
        counts.most = counts.most.max(counts.open);
        let tcp_table = tcp && flags & TUNNELLED == 0;
        let socket = place;
        notes.push(Note::Open(Opened {
            socket,
            socket_use,
            cpu,
            work_ns,
            tcp,
            tcp_table,
            connected,
        }));
        place
    }

    /// Returns a place for a new socket; at the limit the one idle longest makes room.
    fn free_place(&mut self, notes: &mut Vec<Note>) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        if self.slab.len() < self.limit {
            return self.slab.len() as u32;
        }
        loop {
            let place = self.hand % self.slab.len();
            self.hand = (place + 1) % self.slab.len();
            let socket = &mut self.slab[place];
            if socket.flags & REFERENCED != 0 {
                socket.flags &= !REFERENCED;
                continue;
            }
            self.close(place as u32, notes);
            self.counts.closed -= 1;
            self.counts.evicted += 1;
            return self.free.pop().expect("a place was just freed");
        }
    }
}

#[cfg(test)]
mod tests;
