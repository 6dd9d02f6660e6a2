//! A host under load: real steering, sockets with a limit, readers, and the means against overload.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rxsteer_core::cpu::CpuStates;
use rxsteer_core::steer::{
    Aware, Class, KernelVersion, LinuxRules, PolicyKind, PortRule, Queue, SocketFlow, Steering,
    Tables,
};
use rxsteer_core::table::{Bucket, Epoch, FlowTable, OrderTable, RepeatFilter};
use rxsteer_core::{CpuId, FlowHash, QueueId};
use rxsteer_engine::overload::shed::refusal;
use rxsteer_engine::overload::{
    BesideSettings, Control, GovernorSettings, Key, Means, Offer, Room, ShedSettings, SourcePrefix,
    Ticket, Verdict,
};
use rxsteer_engine::virtual_time::{Topology, VirtualTime};
use rxsteer_engine::{
    At, Choice, Costs, Cpus, Drop, Mode, Read, ReaderId, Reading, Settings, Stages, Train,
};

/// Packets that a socket holds.
pub(crate) const ROOM: u64 = 256;

/// Traffic: one flow, or another flow for each packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) packets_per_s: f64,
    pub(crate) socket: u32,
    /// Its /24; `None`: another one for each packet.
    pub(crate) prefix: Option<u8>,
    /// Its flow hash; `None`: another one for each packet.
    pub(crate) hash: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) policy: PolicyKind,
    pub(crate) means: Means,
    pub(crate) mode: Mode,
    /// `None`: the defaults.
    pub(crate) costs: Option<Costs>,
    pub(crate) read_batch: u32,
    /// CPU of each socket's reader.
    pub(crate) readers: &'static [u16],
    /// Mask of the queue, whose interrupts are on CPU 0.
    pub(crate) mask: &'static [u16],
    pub(crate) connected: bool,
}

/// What became of the packets of a sender, in the part of the run that was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) offered: u64,
    pub(crate) read: u64,
    pub(crate) shed: u64,
    pub(crate) no_room: u64,
    pub(crate) other: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    sender: usize,
    number: u64,
    hash: FlowHash,
    source: SourcePrefix,
    socket: u32,
    ticket: Ticket,
    protected: bool,
}

struct World {
    case: Case,
    costs: Costs,
    control: Control,
    steering: Steering<Vec<Bucket>, Vec<AtomicU32>>,
    map: Vec<CpuId>,
    slots: Vec<AtomicU64>,
    sockets: Vec<VecDeque<(Packet, CpuId)>>,
    flows: Vec<SocketFlow>,
    ends: Vec<Ends>,
    last: BTreeMap<usize, u64>,
    reordered: u64,
}

pub(crate) struct Report {
    pub(crate) senders: Vec<Ends>,
    pub(crate) seconds: f64,
    pub(crate) control: Control,
    pub(crate) reordered: u64,
}

impl Report {
    pub(crate) fn read_per_s(&self) -> f64 {
        self.senders.iter().map(|ends| ends.read).sum::<u64>() as f64 / self.seconds
    }
}

/// Runs for some milliseconds that do not count, then for some that do.
pub(crate) fn run(case: &Case, senders: &[Sender], warm_ms: u64, ms: u64) -> Report {
    let cpus = 4;
    let key = Key { k0: 1, k1: 2 };
    let control =
        Control::new(case.means, ShedSettings::default(), BesideSettings::default(), cpus, key);
    let flows = || FlowTable::new((0..64).map(|_| Bucket::empty()).collect()).unwrap();
    let words = (0..64).map(|_| AtomicU32::new(0)).collect();
    let tables = match case.policy {
        PolicyKind::FlowAware => Tables::Flows(flows(), flows(), RepeatFilter::new(words).unwrap()),
        _ => Tables::None,
    };
    let rules = LinuxRules::of(KernelVersion::NEWEST);
    let aware = control.aware(Aware::default());
    let settings = Settings {
        mode: case.mode,
        read_batch: case.read_batch,
        govern: control.govern(GovernorSettings::default()),
        ..Settings::default()
    };
    let topology = Topology {
        cpus: CpuStates::all(cpus),
        cache_numbers: vec![0; cpus as usize],
        irq_cpus: vec![CpuId(0)],
    };
    let mut host = VirtualTime::new(&topology, &settings, &case.costs.unwrap_or_default());
    let mut world = World {
        case: *case,
        costs: case.costs.unwrap_or_default(),
        control,
        steering: Steering::new(case.policy, rules, aware, tables),
        map: case.mask.iter().copied().map(CpuId).collect(),
        slots: (0..64).map(|_| AtomicU64::new(OrderTable::FREE)).collect(),
        sockets: vec![VecDeque::new(); case.readers.len()],
        flows: vec![SocketFlow::default(); case.readers.len()],
        ends: vec![Ends::default(); senders.len()],
        last: BTreeMap::new(),
        reordered: 0,
    };
    let mut due: Vec<f64> = (0..senders.len()).map(|n| n as f64 * 7.0).collect();
    let (mut number, mut state, mut total) = (0u64, 1u64, 0u64);
    let mut at_start = world.ends.clone();
    let until = ((warm_ms + ms) * 1_000_000) as f64;
    let mut warm = false;
    loop {
        let sender = (0..due.len()).min_by(|a, b| due[*a].total_cmp(&due[*b])).unwrap();
        let now = due[sender];
        if !warm && now >= (warm_ms * 1_000_000) as f64 {
            warm = true;
            host.advance(now as u64, &mut world);
            at_start = world.ends.clone();
        }
        if now >= until {
            break;
        }
        let s = &senders[sender];
        due[sender] += 1e9 / s.packets_per_s;
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let any = (state >> 32) as u32;
        number += 1;
        total += 1;
        let prefix = s.prefix.map_or(any >> 8 | 0x0100_0000, |n| 0x0a00 << 8 | u32::from(n));
        let packet = Packet {
            sender,
            number,
            hash: FlowHash(s.hash.unwrap_or(any | 1)),
            source: SourcePrefix::v4((prefix << 8).to_be_bytes()),
            socket: s.socket,
            ticket: Ticket::NONE,
            protected: false,
        };
        world.ends[sender].offered += 1;
        host.arrive(packet, QueueId(0), now as u64, &mut world);
    }
    host.advance(until as u64, &mut world);
    let at_end = world.ends.clone();
    host.drain(&mut world);
    let ends = |e: &Ends| e.read + e.shed + e.no_room + e.other;
    assert_eq!(world.ends.iter().map(ends).sum::<u64>(), total, "every packet ends once");
    let senders = at_end.iter().zip(&at_start).map(|(end, start)| Ends {
        offered: end.offered - start.offered,
        read: end.read - start.read,
        shed: end.shed - start.shed,
        no_room: end.no_room - start.no_room,
        other: end.other - start.other,
    });
    Report {
        senders: senders.collect(),
        seconds: ms as f64 / 1000.0,
        control: world.control,
        reordered: world.reordered,
    }
}

impl World {
    fn reader_cpu(&self, socket: u32) -> CpuId {
        CpuId(self.case.readers[socket as usize])
    }
}

impl Stages for World {
    type Packet = Packet;
    type Flow = FlowHash;

    fn flow(&self, packet: &Packet) -> FlowHash {
        packet.hash
    }

    fn hash(&self, packet: &Packet) -> FlowHash {
        packet.hash
    }

    fn class(&self, _: &Packet) -> Class {
        Class::Udp
    }

    fn choose<C: Cpus>(&mut self, packet: &mut Packet, at: At, cpus: &C) -> Choice {
        self.control.tick(at.now_ns, cpus);
        let home = self.reader_cpu(packet.socket);
        let room = Room::packets(self.sockets[packet.socket as usize].len() as u64, ROOM);
        let offer = Offer {
            socket: packet.socket,
            hash: packet.hash,
            source: packet.source,
            class: Class::Udp,
            known_flow: self.case.connected,
            true_size: 1,
        };
        let mut refused = false;
        match self.control.judge(&offer, &room, home, at.now_ns) {
            Verdict::Admit { ticket, protected } => {
                (packet.ticket, packet.protected) = (ticket, protected);
            }
            Verdict::Shed(_) => refused = true,
        }
        let asked = rxsteer_core::steer::Packet {
            hash: packet.hash,
            class: Class::Udp,
            rule: PortRule::Learn,
            arrived_on: at.on,
            refused,
        };
        let queue = Queue { map: &self.map, slots: &self.slots };
        let host = self.control.for_flow(cpus, packet.hash);
        let decision = if refused {
            refusal(at.on)
        } else {
            self.steering.steer(&queue, &asked, &host, Epoch(0))
        };
        let costs = &self.costs;
        Choice { decision, cost_ns: costs.hash + costs.choose + costs.probe }
    }

    fn protects(&self, packet: &Packet) -> bool {
        packet.protected
    }

    fn queued(&mut self, hash: FlowHash, _: At, choice: &Choice, tail: u32) {
        let queue = Queue { map: &self.map, slots: &self.slots };
        self.steering.enqueued(&queue, hash, &choice.decision, tail);
    }

    fn deliver(&mut self, train: Train<Packet>, on: CpuId, _: u64) -> Option<Reading> {
        let packet = *train.first();
        let home = self.reader_cpu(packet.socket);
        self.control.reached(packet.ticket);
        self.control.worked(home, packet.hash, self.costs.protocol_udp);
        // Packets of a sender with one flow are in order.
        if self.last.insert(packet.sender, packet.number).is_some_and(|n| n > packet.number) {
            self.reordered += 1;
        }
        let socket = &mut self.sockets[packet.socket as usize];
        if socket.len() as u64 >= ROOM {
            self.control.refused(home);
            self.ends[packet.sender].no_room += 1;
            return None;
        }
        socket.push_back((packet, on));
        Some(Reading { reader: ReaderId(packet.socket), cpu: home })
    }

    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> Read {
        let _ = now_ns;
        let mut read = Read::default();
        while read.messages < most {
            let Some((packet, from)) = self.sockets[reader.0 as usize].pop_front() else { break };
            self.ends[packet.sender].read += 1;
            read.messages += 1;
            read.packets += 1;
            read.near += u32::from(from != on);
            read.work_ns += u64::from(self.costs.work);
            if self.case.connected {
                let flow = &mut self.flows[reader.0 as usize];
                if flow.hash().is_none() {
                    *flow = SocketFlow::new(packet.hash, Class::Udp);
                }
                self.steering.record(flow, packet.hash, on, Epoch(0));
            }
        }
        read.more = !self.sockets[reader.0 as usize].is_empty();
        read
    }

    fn dropped(&mut self, packet: Packet, cause: Drop, _: u64) {
        self.control.lost(packet.ticket);
        let ends = &mut self.ends[packet.sender];
        match cause {
            Drop::Shed => ends.shed += 1,
            Drop::Ring | Drop::Backlog(_) | Drop::FlowLimit(_) | Drop::Offline => ends.other += 1,
        }
    }
}
