//! One policy's side of a replay: it decides, remembers its sockets and flows, and counts.
//!
//! | part | what it does |
//! | --- | --- |
//! | `sockets` | what waits in each socket, and what its flow writes into the tables |
//! | `flows` | where each flow went last, and its order |
//! | `overload` | the means against overload that a host switches one by one |
//! | `books` | the counts, and the report that they become |
//!
//! Always true: every packet is counted under one reason (or as lost in the ring) and under one
//! end; state is bounded by the limits on flows and sockets of the front.

mod books;
mod flows;
mod overload;
mod sockets;

use hdrhistogram::Histogram;
use rxsteer_core::steer::{Class, KernelVersion, Packet, PolicyKind, Reason};
use rxsteer_core::table::{Epoch, Probe};
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_engine::gro::Checksum;
use rxsteer_engine::overload::Control;
use rxsteer_engine::{At, Choice, Cpus, Drop, Read, ReaderId, Reading, Segment, Stages, Train};

use super::decisions::Chosen;
use super::job::{FlowRef, Job};
use super::readers::{Distance, Message, Readers};
use super::tables::PolicyTables;
use crate::host::{Costs, Host, Limits, Merge};
use crate::report::{Series, SeriesPoint};
use books::Counts;
pub(super) use flows::Ended;
use flows::{FLOW_QUEUED, FlowState};
use overload::control;
use sockets::{SocketState, charge_of};

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
    /// Decisions, where somebody wants each.
    decisions: Option<Vec<Chosen>>,
    now_ns: u64,
    /// When the run is over, where that is known beforehand: what is read later is late.
    end_ns: u64,
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
            decisions: None,
            now_ns: 0,
            end_ns: u64::MAX,
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

    /// Says when the run is over.
    pub(super) fn ends_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
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

    /// Keeps decisions from now on.
    pub(super) fn keep_decisions(&mut self) {
        self.decisions = Some(Vec::new());
    }

    /// Hands out the decisions since the last time.
    pub(super) fn drain_decisions(&mut self, take: impl FnOnce(&[Chosen])) {
        if let Some(decisions) = &mut self.decisions {
            take(decisions);
            decisions.clear();
        }
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
        if let Some(decisions) = &mut self.decisions {
            decisions.push(Chosen {
                number: job.number,
                arrived_ns: job.arrived_ns,
                arrived_on: on,
                cpu: decision.cpu,
                reason: decision.reason,
                again,
            });
        }
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
                let through_ns = now_ns + read.work_ns;
                self.counts.read_in_time += u64::from(through_ns <= self.end_ns);
                self.note_end(&job, through_ns, true);
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
        let point = self.point(now_ns);
        point.dropped += 1;
        // No decision counted it.
        point.packets += u64::from(cause == Drop::Ring);
        if matches!(cause, Drop::Backlog(_) | Drop::FlowLimit(_) | Drop::Offline)
            && let Some(socket) = self.socket(&job)
        {
            socket.admitted_bytes = socket.admitted_bytes.saturating_sub(charge_of(&job));
        }
    }
}
