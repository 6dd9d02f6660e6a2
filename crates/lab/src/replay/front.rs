//! The front of a replay: reads each packet once and tells every policy the same items.
//!
//! Always true: every packet read is counted as received, sent or skipped for one reason; items
//! are in order of time.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use rxsteer_core::dissect::{AddrKind, DissectError, Endpoints, Mode, Options};
use rxsteer_core::hash::{IndirectionTable, RssInput, SoftHasher, ToeplitzKey, ToeplitzTable};
use rxsteer_core::steer::{Class, PortRule};
use rxsteer_core::{FlowHash, FlowKey, QueueId};
use rxsteer_engine::overload::{SourcePrefix, Ticket};

use super::flows::Flows;
use super::fragments::Fragments;
use super::frame::{Frame, Reader};
use super::item::{Item, Timed};
use super::job::Job;
use super::local::{FIRST_PACKETS, Local, LocalRule, Way};
use super::options::{ReplayOptions, hasher};
use super::workers::Workers;
use crate::capture::Packet;
use crate::consumer::{Change, Event, Heard, Note, Sockets, Tuple};
use crate::host::Host;
use crate::report::{ByClass, DissectErrors, InputReport, Skipped};
use crate::rss::Spreading;

/// Longest time since the first packet, 146 years: a later packet counts as of then, so that no sum
/// of times overflows.
const MAX_NS: u64 = 1 << 62;

/// Items that are given to the policies at once: enough that a policy finds its tables in the cache
/// for most of them, few enough that they stay in it themselves.
pub(super) const BATCH: usize = 8192;

/// The front of a replay.
#[derive(Debug)]
pub(super) struct Front {
    reader: Reader,
    local_rule: LocalRule,
    local: Option<Local>,
    first: Vec<Frame>,
    pub(super) flows: Flows,
    pub(super) sockets: Sockets,
    pub(super) fragments: Option<Fragments>,
    pub(super) workers: Workers,
    hasher: SoftHasher,
    symmetric: bool,
    spread_esp: bool,
    esp_turn: u32,
    signatures: FixedState,
    toeplitz: ToeplitzTable,
    indirection: IndirectionTable<Vec<QueueId>>,
    udp_ports: bool,
    recorded_queues: bool,
    events: Arc<[Event]>,
    next_event: usize,
    /// Number of events behind the last packet.
    pub(super) late_events: usize,
    notes: Vec<Note>,
    items: Vec<Timed>,
    start_ns: Option<u64>,
    /// When the run is over, in the time of packets.
    pub(super) end_ts_ns: Option<u64>,
    now_ns: u64,
    span_ns: u64,
    pub(super) counts: InputCounts,
}

/// What was counted of the input.
#[derive(Debug, Default)]
pub(super) struct InputCounts {
    pub(super) read: u64,
    pub(super) wire_bytes: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) skipped: Skipped,
    pub(super) classes: ByClass,
    pub(super) unhashable: u64,
    pub(super) errors: [u64; DissectError::COUNT],
    pub(super) fragments: u64,
    pub(super) time_went_back: u64,
    pub(super) queues: Vec<u64>,
    pub(super) to_connected: u64,
    pub(super) to_unconnected: u64,
    pub(super) to_nobody: u64,
    pub(super) label_hides_ports: u64,
    pub(super) opaque: u64,
}

impl Front {
    pub(super) fn new(host: &Host, options: &ReplayOptions, events: Arc<[Event]>) -> Self {
        let dissect = Options {
            ignore_flow_label: options.ignore_flow_label,
            walk_first_fragment: options.track_fragments,
            outer_only: options.outer_only,
            wireguard_index: options.wireguard_index,
            vlan: options.vlan,
            ..Options::new(options.mode)
        };
        let key = ToeplitzKey::new(&host.rss.key).expect("keys are checked when they are read");
        let queues = host.rss.table_for(host.queues.len()).into_iter().map(QueueId);
        let indirection = IndirectionTable::new(queues.collect()).expect("a table has entries");
        Self {
            reader: Reader::new(dissect),
            local_rule: options.local.clone(),
            local: None,
            first: Vec::new(),
            flows: Flows::new(options.flow_limit),
            sockets: Sockets::new(
                host,
                options.scenario.consumers.clone(),
                options.workers,
                options.socket_limit,
                options.seed,
            )
            .with_flow_ports(options.flow_ports),
            fragments: options.track_fragments.then(Fragments::new),
            workers: Workers::new(options.seed),
            hasher: hasher(options.seed),
            symmetric: options.mode == Mode::Kernel,
            spread_esp: options.spread_esp,
            esp_turn: 0,
            signatures: FixedState::with_seed(options.seed),
            toeplitz: ToeplitzTable::new(key),
            indirection,
            udp_ports: host.rss.udp_ports,
            recorded_queues: host.rss.spreading == Spreading::Recorded,
            events,
            next_event: 0,
            late_events: 0,
            notes: Vec::new(),
            items: Vec::with_capacity(BATCH + 16),
            start_ns: None,
            end_ts_ns: None,
            now_ns: 0,
            span_ns: 0,
            counts: InputCounts { queues: vec![0; host.queues.len()], ..Default::default() },
        }
    }

    /// Takes in a packet; returns whether a batch of items is ready.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> bool {
        self.counts.read += 1;
        self.counts.wire_bytes += u64::from(packet.orig_len);
        if packet.data.is_empty() {
            self.counts.skipped.no_bytes += 1;
            return false;
        }
        let frame = match self.reader.read(packet, self.counts.read) {
            Ok(frame) => frame,
            Err(_) => {
                self.counts.skipped.unknown_link += 1;
                return false;
            }
        };
        if self.local.is_some() {
            self.frame(frame);
            return self.items.len() >= BATCH;
        }
        self.first.push(frame);
        if self.first.len() >= FIRST_PACKETS {
            self.decide_local();
        }
        self.items.len() >= BATCH
    }

    /// Decides which side is local, and takes in the packets that waited for it.
    pub(super) fn decide_local(&mut self) {
        if self.local.is_none() {
            self.local = Some(Local::decide(&self.local_rule, &self.first));
            for frame in std::mem::take(&mut self.first) {
                self.frame(frame);
            }
        }
    }

    /// Takes the items that are ready, leaving an empty vector in their place.
    pub(super) fn take_items(&mut self) -> Vec<Timed> {
        std::mem::take(&mut self.items)
    }

    pub(super) fn give_back(&mut self, items: Vec<Timed>) {
        self.items = items;
    }

    /// Lets the events after the last packet happen.
    pub(super) fn last_events(&mut self) {
        self.span_ns = self.now_ns;
        self.late_events = self.events.len() - self.next_event;
        self.events_until(MAX_NS);
    }

    pub(super) fn local(&self) -> Option<&Local> {
        self.local.as_ref()
    }

    /// Returns the time of the last packet, in ns since the first.
    pub(super) fn span_ns(&self) -> u64 {
        self.span_ns
    }

    fn push(&mut self, item: Item) {
        self.items.push(Timed { ns: self.now_ns, item });
    }

    fn push_notes(&mut self) {
        for index in 0..self.notes.len() {
            let item = match self.notes[index] {
                Note::Open(opened) => Item::Open(opened),
                Note::Connect { socket } => Item::Connect { socket },
                Note::Disconnect { socket } => Item::Disconnect { socket },
                Note::Close { socket } => Item::Close { socket },
                Note::Place { socket, cpu } => Item::Place { socket, cpu },
            };
            self.push(item);
        }
        self.notes.clear();
    }

    fn events_until(&mut self, now_ns: u64) {
        while let Some(event) = self.events.get(self.next_event).filter(|e| e.at_ns <= now_ns) {
            let at_ns = event.at_ns;
            let item = Item::Event(self.next_event as u32);
            self.now_ns = self.now_ns.max(at_ns);
            if let Change::Migrate { rule, cpus } = &event.change {
                self.sockets.migrate(*rule, cpus, &mut self.notes);
            }
            self.push_notes();
            self.push(item);
            self.next_event += 1;
        }
    }

    /// Begins the run with the time of its first packet.
    fn start(&mut self, ts_ns: u64) -> u64 {
        self.start_ns = Some(ts_ns);
        if let Some(end) = self.end_ts_ns {
            self.push(Item::End(end.saturating_sub(ts_ns)));
        }
        ts_ns
    }

    fn frame(&mut self, mut frame: Frame) {
        let start = match self.start_ns {
            Some(start) => start,
            None => self.start(frame.ts_ns),
        };
        let now = frame.ts_ns.saturating_sub(start).min(MAX_NS);
        if now < self.now_ns {
            self.counts.time_went_back += 1;
        } else {
            self.events_until(now);
            self.now_ns = now;
        }
        let way = self.local.as_ref().map_or(Way::Received, |local| local.way(&frame));
        match way {
            Way::Received => self.received(&mut frame),
            Way::Sent => self.sent(&frame),
            Way::NotLocal => self.counts.skipped.not_local += 1,
            Way::LocalToLocal => self.counts.skipped.local_to_local += 1,
        }
    }

    fn sent(&mut self, frame: &Frame) {
        self.counts.sent += 1;
        if !frame.has_socket || frame.is_fragment {
            return;
        }
        let ident = &frame.ident;
        let place = self.flows.place(ident);
        let flow = self.flows.at(place);
        let hint = (flow.socket, flow.socket_use);
        let tuple = Tuple {
            local: ident.src,
            remote: ident.dst,
            local_port: ident.src_port,
            remote_port: ident.dst_port,
            kind: ident.addr_kind(),
            tcp: ident.protocol == TCP,
        };
        if is_group_address(tuple.kind, &tuple.remote) {
            return;
        }
        let heard = heard(frame);
        let found = self.sockets.sent(&tuple, heard, hint, &mut self.notes);
        self.push_notes();
        let Some(found) = found else { return };
        let flow = self.flows.at(place);
        (flow.socket, flow.socket_use) = (found.socket, found.socket_use);
        if found.connected {
            self.push(Item::Sent { socket: found.socket, socket_use: found.socket_use });
        }
        if found.closes {
            self.sockets.close(found.socket, &mut self.notes);
            self.push_notes();
        }
    }

    fn received(&mut self, frame: &mut Frame) {
        self.counts.received += 1;
        *self.counts.classes.of(frame.class) += 1;
        if let Some(error) = frame.error {
            self.counts.errors[error.index()] += 1;
        }
        self.counts.label_hides_ports += u64::from(frame.label_hides_ports);
        self.counts.opaque += u64::from(frame.opaque);
        if frame.is_fragment {
            self.counts.fragments += 1;
            if let Some(fragments) = &mut self.fragments {
                fragments.resolve(frame);
            }
        }
        let place = self.flows.place(&frame.ident);
        self.hash(place, frame);
        let flow = self.flows.at(place);
        flow.seq = flow.seq.wrapping_add(1);
        let (mut hash, mut queue) = (flow.hash, flow.queue);
        let hint = (flow.socket, flow.socket_use);
        if frame.is_random || self.spread_esp && is_ipsec(frame) {
            // Low-discrepancy: the golden ratio takes the CPUs nearly in turn.
            self.esp_turn = self.esp_turn.wrapping_add(0x9e37_79b9);
            hash = FlowHash(self.esp_turn.max(1));
        }
        if self.recorded_queues {
            let known = frame.queue.filter(|q| usize::from(*q) < self.counts.queues.len());
            queue = known.unwrap_or(queue);
        }
        self.counts.unhashable += u64::from(hash.is_none());
        self.counts.queues[usize::from(queue)] += 1;

        let found = self.socket(frame, hint, queue);
        self.push_notes();
        let connected = found.is_some_and(|f| f.connected);
        let flow = self.flows.at(place);
        flow.connected = connected;
        if let Some(found) = found {
            (flow.socket, flow.socket_use) = (found.socket, found.socket_use);
        }
        let (flow_use, seq) = (flow.flow_use, flow.seq);
        self.flows.count(place, self.now_ns);
        match found {
            Some(f) if f.connected => self.counts.to_connected += 1,
            Some(_) => self.counts.to_unconnected += 1,
            None => self.counts.to_nobody += 1,
        }
        let tcp = frame.ident.protocol == TCP;
        self.push(Item::Packet(Job {
            arrived_ns: self.now_ns,
            number: frame.number,
            hash,
            flow: place as u32,
            flow_use,
            seq,
            socket: found.map_or(Job::NOBODY, |f| f.socket),
            socket_use: found.map_or(0, |f| f.socket_use),
            len: frame.len,
            merges_len: merges_len(frame),
            queue: QueueId(queue),
            class: frame.class,
            rule: found.map_or(PortRule::Learn, |f| f.port_rule),
            connected,
            wants_reader: found.is_some() && (!tcp || frame.data),
            source: SourcePrefix::of(&frame.key),
            ticket: Ticket::NONE,
            protected: false,
        }));
        if let Some(found) = found.filter(|f| f.closes) {
            self.sockets.close(found.socket, &mut self.notes);
            self.push_notes();
        }
    }

    #[inline]
    fn socket(
        &mut self,
        frame: &Frame,
        hint: (u32, u32),
        queue: u16,
    ) -> Option<crate::consumer::Found> {
        if !frame.has_socket {
            return None;
        }
        let ident = &frame.ident;
        let tuple = Tuple {
            local: ident.dst,
            remote: ident.src,
            local_port: ident.dst_port,
            remote_port: ident.src_port,
            kind: ident.addr_kind(),
            tcp: ident.protocol == TCP,
        };
        let heard = heard(frame);
        let found = self.sockets.received(&tuple, heard, hint, &mut self.notes)?;
        if !tuple.tcp && !found.connected {
            let members = self.sockets.group_size(&tuple);
            if members > 1 {
                let member = self.sockets.member(found.socket);
                self.workers.count(tuple.local_port, members, member, queue);
            }
        }
        Some(found)
    }

    /// Computes hash and queue of a flow if what goes into them has changed.
    #[inline]
    fn hash(&mut self, place: usize, frame: &Frame) {
        let signature = signature(&self.signatures, &frame.key);
        let flow = self.flows.at(place);
        if flow.hashed[0] == signature && flow.hashed[1] == 0 {
            return;
        }
        let first = flow.hashed[1] != 0;
        if !first && flow.label != frame.label && frame.label_hides_ports {
            flow.label_changes += 1;
        }
        flow.hashed = [signature, 0];
        flow.label = frame.label;
        flow.opaque = frame.opaque;
        flow.label_hides_ports = frame.label_hides_ports;
        flow.hash = match (frame.has_key, self.symmetric) {
            (false, _) => FlowHash::NONE,
            (true, true) => self.hasher.hash_symmetric(&frame.key),
            (true, false) => self.hasher.hash_key(&frame.key),
        };
        let rss = rss_input(&frame.outer, self.udp_ports, frame.is_fragment);
        let queue = match rss {
            Some(input) => self.indirection.queue(FlowHash(self.toeplitz.hash(&input))),
            None => QueueId(0),
        };
        flow.queue = queue.0;
    }

    pub(super) fn report(&self) -> InputReport {
        let counts = &self.counts;
        let errors: BTreeMap<String, u64> = DissectError::NAMES
            .iter()
            .zip(counts.errors)
            .map(|(name, n)| ((*name).to_owned(), n))
            .collect();
        InputReport {
            files: Vec::new(),
            packets_read: counts.read,
            wire_bytes: counts.wire_bytes,
            received: counts.received,
            sent: counts.sent,
            skipped: counts.skipped,
            classes: counts.classes,
            unhashable: counts.unhashable,
            dissect_errors: DissectErrors(errors),
            fragments: counts.fragments,
            fragments_without_first: self.fragments.as_ref().map_or(0, |f| f.without_first),
            span_ns: self.span_ns,
            start_ns: self.start_ns,
            time_went_back: counts.time_went_back,
            notes: Vec::new(),
        }
    }
}

const TCP: u8 = 6;

/// Returns the bytes of payload of a packet that GRO may merge, by what it is itself: whole, with
/// payload, and of TCP an ordinary segment.
fn merges_len(frame: &Frame) -> u16 {
    const ACK_PSH: u8 = 0x18;
    let special = frame.ident.protocol == TCP && frame.tcp_flags & !ACK_PSH != 0;
    if !frame.has_socket || frame.is_fragment || special {
        return 0;
    }
    u16::try_from(frame.payload_len).unwrap_or(0)
}

fn heard(frame: &Frame) -> Heard {
    Heard { tcp_flags: frame.tcp_flags, data: frame.data, tunnelled: frame.class == Class::Tunnel }
}

fn signature(state: &FixedState, key: &FlowKey) -> u64 {
    let half = |bytes: &[u8; 16], at: usize| {
        u64::from_ne_bytes(*bytes[at..].first_chunk().expect("16 bytes have two halves"))
    };
    let mut hasher = state.build_hasher();
    hasher.write_u64(half(&key.src, 0));
    hasher.write_u64(half(&key.src, 8));
    hasher.write_u64(half(&key.dst, 0));
    hasher.write_u64(half(&key.dst, 8));
    let ports = u64::from(key.src_port) << 16 | u64::from(key.dst_port);
    hasher.write_u64(ports << 32 | u64::from(key.key_id));
    let vlan = u64::from(key.vlan_tci) << 16 | u64::from(key.vlan_tpid);
    hasher.write_u64(vlan << 32 | u64::from(key.flow_label));
    let types = u64::from(key.vlan_inner_type) << 16 | u64::from(key.ethertype);
    hasher.write_u64(types << 16 | u64::from(key.protocol) << 8 | key.addr_kind as u64);
    hasher.finish()
}

fn rss_input(outer: &Endpoints, udp_ports: bool, fragment: bool) -> Option<RssInput> {
    let with_ports = match outer.protocol {
        6 => !fragment,
        17 => !fragment && udp_ports,
        _ => false,
    };
    let four = |bytes: &[u8; 16]| *bytes.first_chunk().expect("16 bytes begin with four");
    let (src_port, dst_port) = (outer.src_port, outer.dst_port);
    match (outer.addr_kind, with_ports) {
        (AddrKind::V4, true) => {
            Some(RssInput::v4_ports(four(&outer.src), four(&outer.dst), src_port, dst_port))
        }
        (AddrKind::V4, false) => Some(RssInput::v4(four(&outer.src), four(&outer.dst))),
        (AddrKind::V6, true) => Some(RssInput::v6_ports(outer.src, outer.dst, src_port, dst_port)),
        (AddrKind::V6, false) => Some(RssInput::v6(outer.src, outer.dst)),
        (AddrKind::None | AddrKind::Tipc, _) => None,
    }
}

fn is_group_address(kind: AddrKind, address: &[u8; 16]) -> bool {
    match kind {
        AddrKind::V4 => (224..240).contains(&address[0]) || address[..4] == [255; 4],
        AddrKind::V6 => address[0] == 0xff,
        AddrKind::None | AddrKind::Tipc => false,
    }
}

/// Returns whether a packet is IPsec's, bare or in UDP.
fn is_ipsec(frame: &Frame) -> bool {
    matches!(frame.ident.protocol, 50 | 51) || frame.class == Class::Tunnel && frame.opaque
}
