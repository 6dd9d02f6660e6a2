//! One policy's side of a replay: it decides, remembers its sockets and flows, and counts.
//!
//! Always true: every packet is counted under one reason (or as lost in the ring) and under one
//! end; state is bounded by the limits on flows and sockets of the front.

use hdrhistogram::Histogram;
use rxsteer_core::steer::{Class, KernelVersion, Packet, PolicyKind, Reason, SocketFlow};
use rxsteer_core::table::{Epoch, Probe, Recorded};
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_engine::gro::Checksum;
use rxsteer_engine::overload::{
    BesideSettings, Control, GovernorSettings, Key, Offer, Room, ShedSettings, Verdict,
};
use rxsteer_engine::virtual_time::CpuLoad;
use rxsteer_engine::{At, Choice, Cpus, Drop, Read, ReaderId, Reading, Segment, Stages, Train};

use super::job::{FlowRef, Job};
use super::readers::{Distance, Message, Readers};
use super::tables::PolicyTables;
use crate::consumer::Opened;
use crate::host::{Costs, Host, Limits, Means, Merge};
use crate::report::{
    ByReason, CpuReport, Distances, Drops, Latency, Moves, PolicyReport, Probes, Series,
    SeriesPoint, Writes,
};

/// Memory that the kernel charges to a socket for one packet besides its bytes (the usual
/// `truesize` of a small packet: buffer head and shared info).
const PACKET_OVERHEAD: u32 = 768;

/// One policy's decisions, state and counters.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) kind: PolicyKind,
    pub(super) tables: PolicyTables,
    sockets: Vec<SocketState>,
    flows: Vec<FlowState>,
    readers: Readers,
    /// The means against overload, where they are switched one by one.
    control: Option<Control>,
    /// Flows whose packets ended, and when, where a workload waits for that.
    ends: Option<Vec<Ended>>,
    now_ns: u64,
    costs: Costs,
    limits: Limits,
    merge: Merge,
    epoch: Epoch,
    counts: Counts,
    latency: Histogram<u64>,
    latency_sum: u128,
    series: Series,
    point: SeriesPoint,
    point_span: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SocketState {
    flow: SocketFlow,
    /// Which occupant of the place this is; 0 for none.
    socket_use: u32,
    /// Bytes in the receive buffer.
    queued_bytes: u64,
    /// Bytes of packets that were admitted and are not read yet, wherever they are.
    admitted_bytes: u64,
    /// Packets in the receive buffer.
    waiting: u32,
    work_ns: u32,
    cpu: CpuId,
    tcp: bool,
    tcp_table: bool,
    connected: bool,
    open: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowState {
    flow_use: u32,
    max_seq: u32,
    last_tail: u32,
    last_cpu: u16,
    flags: u16,
}

const FLOW_PLACED: u16 = 1;
const FLOW_QUEUED: u16 = 2;
const FLOW_REORDERED: u16 = 4;
const FLOW_LOST: u16 = 8;

#[derive(Debug, Default)]
struct Counts {
    received: u64,
    reasons: [[u64; Class::COUNT]; Reason::COUNT],
    probes: [u64; Probe::COUNT],
    second_line: u64,
    /// Hits and misses by the CPU that took the packet.
    by_cpu: Vec<[u64; 2]>,
    asked: u64,
    hits: u64,
    wrong_steers: u64,
    writes: Writes,
    moves: Moves,
    reordered: u64,
    reordered_flows: u64,
    lossy_flows: u64,
    reordered_packets: Vec<u64>,
    moved_packets: Vec<u64>,
    unsafe_packets: Vec<u64>,
    distances: Distances,
    handoffs: u64,
    read: u64,
    finished: u64,
    drops: Drops,
    pub(super) rehomed: u64,
}

/// The end of a packet, for a workload that waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) flow: u32,
    /// When: for a packet that was read, when its reader is through with it.
    pub(super) ns: u64,
    pub(super) read: bool,
}

fn control(host: &Host, means: Means) -> Control {
    let cpus = host.cpus.nr_cpu_ids();
    // The key is fixed, so that a run repeats.
    let key = Key { k0: 0x6f76_6572, k1: 0x6c6f_6164 };
    Control::new(means, ShedSettings::default(), BesideSettings::default(), cpus, key)
}

/// Most numbers of packets that are kept of each kind.
const MOST_NAMED: usize = 16;

fn name(packets: &mut Vec<u64>, number: u64) {
    if packets.len() < MOST_NAMED {
        packets.push(number);
    }
}

impl Ledger {
    pub(super) fn new(kind: PolicyKind, host: &Host, kernel: KernelVersion, drain: bool) -> Self {
        let new = || Histogram::new_with_bounds(1, 1 << 40, 2).expect("the bounds are in order");
        Self {
            kind,
            tables: PolicyTables::new(kind, host, kernel, drain),
            sockets: Vec::new(),
            flows: Vec::new(),
            readers: Readers::new(host.cache_numbers()),
            control: (kind == PolicyKind::FlowAware)
                .then(|| host.overload.map(|means| control(host, means)))
                .flatten(),
            ends: None,
            now_ns: 0,
            costs: host.costs,
            limits: host.limits,
            merge: host.merge,
            epoch: Epoch(0),
            counts: Counts {
                by_cpu: vec![[0; 2]; host.cpus.nr_cpu_ids() as usize],
                ..Counts::default()
            },
            latency: new(),
            latency_sum: 0,
            series: Series::default(),
            point: SeriesPoint::default(),
            point_span: 0,
        }
    }

    /// Counts a packet that arrives.
    #[inline]
    pub(super) fn arrived(&mut self, now_ns: u64) {
        self.counts.received += 1;
        self.now_ns = now_ns;
        let epoch = Epoch::from_ns(now_ns);
        if epoch != self.epoch {
            self.epoch = epoch;
            self.tables.sweep(epoch);
        }
    }

    /// Keeps the ends of packets from now on.
    pub(super) fn keep_ends(&mut self) {
        self.ends = Some(Vec::new());
    }

    /// Takes the ends of packets since the last time.
    pub(super) fn take_ends(&mut self, into: &mut Vec<Ended>) {
        if let Some(ends) = &mut self.ends {
            into.append(ends);
        }
    }

    #[inline]
    fn note_end(&mut self, job: &Job, ns: u64, read: bool) {
        if !read
            && let Some(flow) = self.flow_state(job.flow, job.flow_use)
            && flow.flags & FLOW_LOST == 0
        {
            flow.flags |= FLOW_LOST;
            self.counts.lossy_flows += 1;
        }
        if let Some(ends) = &mut self.ends {
            ends.push(Ended { flow: job.flow, ns, read });
        }
    }

    /// Returns the governor that the executor is to have.
    pub(super) fn govern(&self) -> Option<GovernorSettings> {
        self.control.as_ref()?.govern(GovernorSettings::default())
    }

    pub(super) fn rehomed(&mut self, packets: u64) {
        self.counts.rehomed += packets;
    }

    pub(super) fn opened(&mut self, opened: &Opened) {
        let place = opened.socket as usize;
        if place >= self.sockets.len() {
            self.sockets.resize(place + 1, SocketState::default());
        }
        let class = if opened.tcp_table { Class::Tcp } else { Class::Udp };
        self.sockets[place] = SocketState {
            flow: SocketFlow::new(FlowHash::NONE, class),
            socket_use: opened.socket_use,
            work_ns: opened.work_ns,
            cpu: opened.cpu,
            tcp: opened.tcp,
            tcp_table: opened.tcp_table,
            connected: opened.connected,
            open: true,
            ..SocketState::default()
        };
    }

    pub(super) fn connected(&mut self, socket: u32) {
        if let Some(state) = self.sockets.get_mut(socket as usize) {
            state.connected = true;
        }
    }

    /// The thread that reads a socket goes to another CPU, with what waits for it; returns whom to
    /// wake, and for how many messages.
    pub(super) fn placed(&mut self, socket: u32, cpu: CpuId) -> Option<(Reading, u32)> {
        let state = self.sockets.get_mut(socket as usize)?;
        let from = std::mem::replace(&mut state.cpu, cpu);
        if from == cpu {
            return None;
        }
        let messages = self.readers.move_socket(socket, from, cpu);
        (messages > 0).then_some((Reading { reader: ReaderId(cpu.0.into()), cpu }, messages))
    }

    pub(super) fn disconnected(&mut self, socket: u32) {
        let Some(state) = self.sockets.get_mut(socket as usize) else { return };
        state.connected = false;
        let (hash, tcp) = (state.flow.hash(), state.tcp_table);
        let recorded = self.tables.steering.disconnect(&mut state.flow);
        self.withdrawn(hash, tcp, recorded);
    }

    pub(super) fn closed(&mut self, socket: u32) {
        let Some(state) = self.sockets.get_mut(socket as usize) else { return };
        state.open = false;
        if let Some(control) = &mut self.control {
            control.forget(socket, self.now_ns);
        }
        let (hash, tcp) = (state.flow.hash(), state.tcp_table);
        // Linux has nothing to delete for a socket that is not connected: it saved no hash.
        let recorded = self.tables.steering.close(&mut state.flow);
        self.withdrawn(hash, tcp, recorded);
    }

    fn withdrawn(&mut self, hash: FlowHash, tcp: bool, recorded: Recorded) {
        if recorded != Recorded::Cleared {
            return;
        }
        match self.tables.writer(hash, tcp) {
            Some(writer) if writer != hash && !writer.is_none() => {
                self.counts.writes.wiped_others += 1;
            }
            _ => self.counts.writes.withdrawn += 1,
        }
        self.tables.set_writer(hash, tcp, FlowHash::NONE);
    }

    /// The user of a connected socket sends: the flow of its last packet is recorded.
    pub(super) fn sent(&mut self, socket: u32, socket_use: u32) {
        let Some(state) = self.sockets.get(socket as usize) else { return };
        if state.socket_use == socket_use && state.connected && !state.flow.hash().is_none() {
            self.record(socket as usize, state.flow.hash(), state.cpu);
        }
    }

    fn record(&mut self, socket: usize, hash: FlowHash, cpu: CpuId) {
        let state = &mut self.sockets[socket];
        let recorded = self.tables.steering.record(&mut state.flow, hash, cpu, self.epoch);
        let tcp = state.tcp_table;
        self.recorded(hash, tcp, recorded);
    }

    fn recorded(&mut self, hash: FlowHash, tcp: bool, recorded: Recorded) {
        let writes = &mut self.counts.writes;
        let before = self.tables.writer(hash, tcp);
        match recorded {
            Recorded::NotAFlow | Recorded::Contended => return,
            Recorded::Muted => {
                writes.refused += 1;
                return;
            }
            Recorded::Unchanged | Recorded::Refreshed => writes.unchanged += 1,
            Recorded::Moved | Recorded::Inserted | Recorded::Evicted(_) => writes.by_flows += 1,
            Recorded::Cleared => return,
        }
        let took_a_place = match before {
            Some(writer) => recorded.wrote() && writer != hash && !writer.is_none(),
            None => matches!(recorded, Recorded::Evicted(_)),
        };
        writes.evictions += u64::from(took_a_place);
        self.tables.set_writer(hash, tcp, hash);
    }

    fn point(&mut self, now_ns: u64) -> &mut SeriesPoint {
        // Spans of 2^20 ns, so that only one shift is needed for each packet.
        let span = now_ns >> 20;
        if span != self.point_span {
            self.flush_point();
            self.point_span = span;
        }
        &mut self.point
    }

    fn flush_point(&mut self) {
        self.series.add(self.point_span << 20, std::mem::take(&mut self.point));
    }

    fn finished(&mut self, job: &Job, now_ns: u64) {
        let ns = now_ns - job.arrived_ns;
        self.latency.saturating_record(ns.max(1));
        self.latency_sum += u128::from(ns);
    }

    /// Returns the flow's state, begun anew if the place has a new occupant; `None` if the place
    /// has been given to a later flow.
    #[inline]
    fn flow_state(&mut self, place: u32, flow_use: u32) -> Option<&mut FlowState> {
        let place = place as usize;
        if place >= self.flows.len() {
            self.flows.resize(place + 1, FlowState::default());
        }
        let flow = &mut self.flows[place];
        if flow.flow_use != flow_use {
            if flow.flow_use.wrapping_sub(flow_use) as i32 > 0 {
                return None;
            }
            *flow = FlowState { flow_use, ..FlowState::default() };
        }
        Some(flow)
    }

    fn socket(&mut self, job: &Job) -> Option<&mut SocketState> {
        let state = self.sockets.get_mut(job.socket as usize)?;
        (state.socket_use == job.socket_use && state.open).then_some(state)
    }

    /// Follows a flow to its CPU and counts how it got there.
    #[inline]
    fn follow<C: Cpus>(&mut self, job: &Job, choice: &Choice, cpus: &C) {
        let cpu = choice.decision.cpu;
        let inline = choice.is_inline();
        let Some(flow) = self.flow_state(job.flow, job.flow_use) else { return };
        let mut moved = false;
        let mut unsafe_move = false;
        if flow.flags & FLOW_PLACED != 0 && flow.last_cpu != cpu.0 {
            moved = true;
            let old = CpuId(flow.last_cpu);
            unsafe_move = flow.flags & FLOW_QUEUED != 0
                && cpus.is_online(old)
                && (cpus.head(old).wrapping_sub(flow.last_tail) as i32) < 0;
        }
        flow.last_cpu = cpu.0;
        flow.flags |= FLOW_PLACED;
        if inline {
            flow.flags &= !FLOW_QUEUED;
        }
        if moved {
            self.counts.moves.moved += 1;
            name(&mut self.counts.moved_packets, job.number);
        }
        if unsafe_move {
            self.counts.moves.unsafe_moves += 1;
            name(&mut self.counts.unsafe_packets, job.number);
        }
    }

    fn note_reordered(&mut self, job: &Job, now_ns: u64) {
        self.counts.reordered += 1;
        name(&mut self.counts.reordered_packets, job.number);
        self.point(now_ns).reordered += 1;
    }
}

impl Stages for Ledger {
    type Packet = Job;
    type Flow = FlowRef;

    #[inline]
    fn flow(&self, job: &Job) -> FlowRef {
        FlowRef { hash: job.hash, flow: job.flow, flow_use: job.flow_use }
    }

    #[inline]
    fn hash(&self, job: &Job) -> FlowHash {
        job.hash
    }

    #[inline]
    fn class(&self, job: &Job) -> Class {
        job.class
    }

    #[inline]
    fn segment(&self, job: &Job) -> Option<Segment> {
        let tcp = job.class.is_tcp();
        if !(if tcp { self.merge.tcp } else { self.merge.udp }) {
            return None;
        }
        Some(Segment {
            hash: job.hash,
            flow: u64::from(job.flow) << 32 | u64::from(job.flow_use),
            header_word: 0,
            headers_len: if tcp { 52 } else { 28 },
            payload_len: job.merges_len,
            checksum: Checksum::Good,
            length_fits: true,
        })
    }

    #[inline]
    fn choose<C: Cpus>(&mut self, job: &mut Job, at: At, cpus: &C) -> Choice {
        let At { on, now_ns, again, .. } = at;
        let charge = charge_of(job);
        let aware = self.kind == PolicyKind::FlowAware && self.control.is_none();
        let limit = self.limits.udp_receive_buffer;
        let mut refused = false;
        if aware
            && job.wants_reader
            && !again
            && let Some(socket) = self.socket(job).filter(|s| !s.tcp)
        {
            refused = socket.admitted_bytes > 0 && socket.admitted_bytes + charge > limit;
            if !refused {
                socket.admitted_bytes += charge;
            }
        }
        refused |= self.judge(job, charge, at, cpus);
        let queue_index = job.queue.index();
        let queue = self.tables.queue(queue_index);
        let packet =
            Packet { hash: job.hash, class: job.class, rule: job.rule, arrived_on: on, refused };
        let steering = &self.tables.steering;
        let decision = match &self.control {
            Some(control) => {
                steering.steer(&queue, &packet, &control.for_flow(cpus, job.hash), self.epoch)
            }
            None => steering.steer(&queue, &packet, cpus, self.epoch),
        };
        let mut cost_ns = 0;
        if self.tables.needs_hash(queue_index) {
            cost_ns = self.costs.hash.saturating_add(self.costs.choose);
            if decision.probe != Probe::NotAsked {
                let lines = 1 + u32::from(decision.second_line);
                cost_ns = cost_ns.saturating_add(self.costs.probe.saturating_mul(lines));
            }
        }
        let choice = Choice { decision, cost_ns };
        let shed = decision.reason == Reason::Shed;
        if !shed {
            self.follow(job, &choice, cpus);
        }
        if again {
            return choice;
        }

        let hit = decision.probe == Probe::Hit;
        let wrong =
            hit && self.tables.writer(job.hash, job.class.is_tcp()).is_some_and(|w| w != job.hash);
        let has_table = self.kind.follows();
        let counts = &mut self.counts;
        counts.reasons[decision.reason.index()][job.class.index()] += 1;
        counts.probes[decision.probe.index()] += 1;
        counts.second_line += u64::from(decision.second_line);
        if decision.probe != Probe::NotAsked
            && let Some(cpu) = counts.by_cpu.get_mut(on.index())
        {
            cpu[usize::from(!hit)] += 1;
        }
        counts.wrong_steers += u64::from(wrong);
        counts.handoffs += u64::from(!shed && decision.cpu != on);
        counts.moves.held += u64::from(decision.reason == Reason::Held);
        let asked = job.connected && has_table && job.class != Class::TcpSyn;
        let own_hit = asked && hit && !wrong;
        counts.asked += u64::from(asked);
        counts.hits += u64::from(own_hit);
        let point = self.point(now_ns);
        point.packets += 1;
        point.asked += u64::from(asked);
        point.hits += u64::from(own_hit);
        choice
    }

    #[inline]
    fn protects(&self, job: &Job) -> bool {
        job.protected
    }

    #[inline]
    fn queued(&mut self, flow: FlowRef, at: At, choice: &Choice, tail: u32) {
        let queue = self.tables.queue(at.queue.index());
        self.tables.steering.enqueued(&queue, flow.hash, &choice.decision, tail);
        if let Some(state) = self.flow_state(flow.flow, flow.flow_use) {
            state.last_tail = tail;
            state.flags |= FLOW_QUEUED;
        }
    }

    #[inline]
    fn deliver(&mut self, train: Train<Job>, on: CpuId, now_ns: u64) -> Option<Reading> {
        let mut charge = 0;
        for job in train.packets() {
            self.note_order(job, now_ns);
            charge += charge_of(job);
        }
        let packets = train.count() as u64;
        let job = *train.first();
        let limits = self.limits;
        self.reached(&train);
        let Some(socket) = self.socket(&job) else {
            self.counts.distances.no_consumer += packets;
            self.end_unread(&train, now_ns);
            return None;
        };
        let cpu = socket.cpu;
        if !job.wants_reader {
            self.count_distance(on, cpu, packets);
            self.end_unread(&train, now_ns);
            return None;
        }
        let buffer = if socket.tcp { limits.tcp_receive_buffer } else { limits.udp_receive_buffer };
        let full = socket.queued_bytes > 0 && socket.queued_bytes + charge > buffer;
        let model_full = self.readers.is_full();
        let socket = self.socket(&job)?;
        if full || model_full {
            socket.admitted_bytes = socket.admitted_bytes.saturating_sub(charge);
            for job in train.packets() {
                self.note_end(job, now_ns, false);
            }
            if let Some(control) = &mut self.control {
                (0..packets).for_each(|_| control.refused(cpu));
            }
            let drops = &mut self.counts.drops;
            *(if full { &mut drops.receive_buffer } else { &mut drops.model_limit }) += packets;
            self.count_distance(on, cpu, packets);
            self.point(now_ns).dropped += packets;
            return None;
        }
        socket.queued_bytes += charge;
        socket.waiting += packets as u32;
        let work_ns = socket.work_ns;
        self.readers.put(cpu, Message { train, on, work_ns });
        self.count_distance(on, cpu, packets);
        Some(Reading { reader: ReaderId(cpu.0.into()), cpu })
    }

    #[inline]
    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> Read {
        let mut read = Read::default();
        let mut socket = None;
        while read.messages < most
            && let Some(message) = self.readers.take(reader, socket)
        {
            socket = Some(message.train.first().socket);
            let packets = message.train.count() as u32;
            read.messages += 1;
            read.packets += packets;
            read.work_ns += u64::from(message.work_ns) * u64::from(packets);
            match self.readers.distance(message.on, on) {
                Distance::Here => {}
                Distance::Near => read.near += packets,
                Distance::Far => read.far += packets,
            }
            for job in message.train {
                read.bytes += u64::from(job.len);
                self.note_end(&job, now_ns + read.work_ns, true);
                self.read_one(&job, on, now_ns);
            }
        }
        read.more = self.readers.has_more(reader);
        read
    }

    #[inline]
    fn dropped(&mut self, job: Job, cause: Drop, now_ns: u64) {
        self.note_end(&job, now_ns, false);
        if let Some(control) = &mut self.control {
            control.lost(job.ticket);
        }
        let drops = &mut self.counts.drops;
        match cause {
            Drop::Ring => drops.ring += 1,
            Drop::Backlog(_) => drops.backlog += 1,
            Drop::Shed => drops.shed += 1,
            Drop::FlowLimit(_) => drops.flow_limit += 1,
            Drop::Offline => drops.offline += 1,
        }
        self.point(now_ns).dropped += 1;
        if matches!(cause, Drop::Backlog(_) | Drop::FlowLimit(_) | Drop::Offline)
            && let Some(socket) = self.socket(&job)
        {
            socket.admitted_bytes = socket.admitted_bytes.saturating_sub(charge_of(&job));
        }
    }
}

/// Bytes that a packet takes of a receive buffer.
fn charge_of(job: &Job) -> u64 {
    u64::from(job.len) + u64::from(PACKET_OVERHEAD)
}

impl Ledger {
    /// Asks the means against overload; returns whether the packet is to be shed.
    #[inline]
    fn judge<C: Cpus>(&mut self, job: &mut Job, charge: u64, at: At, cpus: &C) -> bool {
        let Some(control) = &mut self.control else { return false };
        control.tick(at.now_ns, cpus);
        let socket = self.sockets.get(job.socket as usize);
        let Some(socket) = socket.filter(|s| s.socket_use == job.socket_use && s.open && !s.tcp)
        else {
            return false;
        };
        if !job.wants_reader || at.again {
            return false;
        }
        let room = Room {
            used_bytes: socket.queued_bytes,
            used_packets: u64::from(socket.waiting),
            limit_bytes: self.limits.udp_receive_buffer,
            limit_packets: u64::MAX,
        };
        let offer = Offer {
            socket: job.socket,
            hash: job.hash,
            source: job.source,
            class: job.class,
            known_flow: job.connected,
            true_size: charge as u32,
        };
        match control.judge(&offer, &room, socket.cpu, at.now_ns) {
            Verdict::Admit { ticket, protected } => {
                (job.ticket, job.protected) = (ticket, protected);
                false
            }
            Verdict::Shed(_) => true,
        }
    }

    /// Tells the means against overload that packets reached their socket.
    #[inline]
    fn reached(&mut self, train: &Train<Job>) {
        let Some(control) = &mut self.control else { return };
        let first = train.first();
        let work_ns = match first.class {
            Class::Tcp | Class::TcpSyn => self.costs.protocol_tcp,
            Class::Udp | Class::Tunnel => self.costs.protocol_udp,
            Class::Other => self.costs.protocol_other,
        };
        for job in train.packets() {
            control.reached(job.ticket);
        }
        if let Some(socket) = self.sockets.get(first.socket as usize) {
            control.worked(socket.cpu, first.hash, work_ns);
        }
    }

    /// Counts a packet that is processed after a later one of its flow.
    #[inline]
    fn note_order(&mut self, job: &Job, now_ns: u64) {
        let Some(flow) = self.flow_state(job.flow, job.flow_use) else { return };
        if job.seq >= flow.max_seq {
            flow.max_seq = job.seq;
            return;
        }
        let first = flow.flags & FLOW_REORDERED == 0;
        flow.flags |= FLOW_REORDERED;
        self.counts.reordered_flows += u64::from(first);
        self.note_reordered(job, now_ns);
    }

    /// Ends packets that the protocol alone took.
    #[inline]
    fn end_unread(&mut self, train: &Train<Job>, now_ns: u64) {
        for job in train.packets() {
            self.counts.finished += 1;
            self.finished(job, now_ns);
        }
    }

    #[inline]
    fn read_one(&mut self, job: &Job, on: CpuId, now_ns: u64) {
        self.counts.read += 1;
        self.finished(job, now_ns);
        let charge = charge_of(job);
        let epoch = self.epoch;
        let Some(socket) = self.socket(job) else { return };
        socket.queued_bytes = socket.queued_bytes.saturating_sub(charge);
        socket.waiting = socket.waiting.saturating_sub(1);
        socket.admitted_bytes = socket.admitted_bytes.saturating_sub(charge);
        let tcp = socket.tcp_table;
        if socket.connected {
            self.record(job.socket as usize, job.hash, on);
        } else {
            let recorded =
                self.tables.steering.received_unconnected(job.hash, job.class, job.rule, on, epoch);
            if self.kind == PolicyKind::RfsClear {
                let stores = matches!(recorded, Recorded::Cleared | Recorded::Unchanged);
                self.counts.writes.clears += u64::from(stores);
            }
            if recorded == Recorded::Cleared {
                self.counts.writes.by_non_flows += 1;
                self.tables.set_writer(job.hash, tcp, FlowHash::NONE);
            } else if recorded.wrote() {
                self.recorded(job.hash, tcp, recorded);
            }
        }
    }

    #[inline]
    fn count_distance(&mut self, on: CpuId, consumer: CpuId, packets: u64) {
        let distances = &mut self.counts.distances;
        match self.readers.distance(on, consumer) {
            Distance::Here => distances.same_cpu += packets,
            Distance::Near => distances.same_cache += packets,
            Distance::Far => distances.elsewhere += packets,
        }
    }

    /// Closes the books at `end_ns`.
    pub(super) fn report(mut self, loads: &[(CpuId, bool, CpuLoad)], end_ns: u64) -> PolicyReport {
        self.flush_point();
        let counts = self.counts;
        let (cpus, busy) = cpu_reports(loads, end_ns, &counts.by_cpu);
        let processed: Vec<u64> = cpus.iter().filter(|c| c.online).map(|c| c.processed).collect();
        let mean = processed.iter().sum::<u64>() as f64 / processed.len().max(1) as f64;
        let max = processed.iter().max().copied().unwrap_or(0) as f64;
        let per_packet = |n: u64| n as f64 / counts.received.max(1) as f64;
        let follows = self.kind.follows();
        PolicyReport {
            policy: self.kind.name().into(),
            received: counts.received,
            reasons: reasons(&counts.reasons),
            probes: probes(&counts.probes, counts.second_line),
            hit_rate: (follows && counts.asked > 0)
                .then(|| counts.hits as f64 / counts.asked as f64),
            wrong_steers: counts.wrong_steers,
            writes: counts.writes,
            table: self.tables.report(),
            moves: counts.moves,
            reordered: counts.reordered,
            reordered_flows: counts.reordered_flows,
            lossy_flows: counts.lossy_flows,
            reordered_packets: counts.reordered_packets,
            moved_packets: counts.moved_packets,
            unsafe_packets: counts.unsafe_packets,
            distances: counts.distances,
            handoffs: counts.handoffs,
            handoffs_per_packet: per_packet(counts.handoffs),
            signals: loads.iter().map(|(.., load)| load.signals).sum(),
            wakeups: loads.iter().map(|(.., load)| load.wakeups).sum(),
            read: counts.read,
            finished_without_read: counts.finished,
            drops: counts.drops,
            rehomed: counts.rehomed,
            max_over_mean: if mean > 0.0 { max / mean } else { 0.0 },
            mean_busy: busy.0,
            max_busy: busy.1,
            cpu_ns_per_packet: per_packet(cpus.iter().map(|c| c.busy_ns).sum()),
            cpus,
            latency: latency(&self.latency, self.latency_sum),
            series: self.series,
        }
    }
}

fn cpu_reports(
    loads: &[(CpuId, bool, CpuLoad)],
    end_ns: u64,
    probes: &[[u64; 2]],
) -> (Vec<CpuReport>, (f64, f64)) {
    let total: u64 = loads.iter().map(|(.., load)| load.processed).sum();
    let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    let reports: Vec<CpuReport> = loads
        .iter()
        .map(|&(cpu, online, load)| CpuReport {
            cpu: cpu.0,
            online,
            taken: load.taken,
            hits: probes[cpu.index()][0],
            misses: probes[cpu.index()][1],
            processed: load.processed,
            share: share(load.processed, total),
            read: load.read,
            dropped: load.dropped,
            max_backlog: load.max_backlog,
            squeezed: load.squeezed,
            softirq_ns: load.softirq_ns,
            thread_ns: load.thread_ns,
            reader_ns: load.reader_ns,
            busy_ns: load.busy_ns(),
            busy: share(load.busy_ns(), end_ns),
        })
        .collect();
    let online: Vec<f64> = reports.iter().filter(|c| c.online).map(|c| c.busy).collect();
    let mean = online.iter().sum::<f64>() / online.len().max(1) as f64;
    let max = online.iter().copied().fold(0.0, f64::max);
    (reports, (mean, max))
}

fn reasons(counts: &[[u64; Class::COUNT]; Reason::COUNT]) -> ByReason {
    let mut by = ByReason::default();
    for reason in Reason::ALL {
        for class in Class::ALL {
            *by.of(reason).of(class) = counts[reason.index()][class.index()];
        }
    }
    by
}

fn probes(counts: &[u64; Probe::COUNT], second_line: u64) -> Probes {
    let of = |probe: Probe| counts[probe.index()];
    Probes {
        not_asked: of(Probe::NotAsked),
        hit: of(Probe::Hit),
        empty: of(Probe::Empty),
        other_flow: of(Probe::OtherFlow),
        stale: of(Probe::Stale),
        offline: of(Probe::Offline),
        second_line,
    }
}

fn latency(histogram: &Histogram<u64>, sum: u128) -> Latency {
    let count = histogram.len();
    if count == 0 {
        return Latency::default();
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile);
    Latency {
        count,
        mean_ns: sum as f64 / count as f64,
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p95_ns: at(0.95),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: histogram.max(),
    }
}
