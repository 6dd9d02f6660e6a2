use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU32;

use rxsteer_core::FlowHash;
use rxsteer_core::steer::{
    Aware, Class, Host as _, KernelVersion, LinuxRules, PolicyKind, PortRule, Queue, Steering,
    Tables,
};
use rxsteer_core::table::{Bucket, Epoch};

use super::*;
use crate::stages::{Choice, Cpus, Read, ReaderId, Reading};
use crate::{Limits, Train};

mod load;
mod merging;
mod offline;
mod signals;

/// A packet: its number, its flow, and its number within the flow.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    number: u64,
    flow: u32,
    queue: QueueId,
}

/// Sends packets where it is told and writes down what happens.
struct Script {
    /// CPU of each flow; missing: processed in place.
    to: BTreeMap<u32, u16>,
    /// Reader of each flow, and its CPU; missing: nobody reads.
    readers: BTreeMap<u32, (u32, u16)>,
    /// Messages that a reader's socket holds.
    room: usize,
    work_ns: u64,
    queues: BTreeMap<u32, VecDeque<Parcel>>,
    log: Vec<(&'static str, u64, u16, u64)>,
    ends: BTreeMap<u64, u32>,
    delivered: BTreeMap<u32, Vec<u64>>,
    counts: BTreeMap<&'static str, u64>,
    keep_log: bool,
}

impl Script {
    fn new() -> Self {
        Self {
            to: BTreeMap::new(),
            readers: BTreeMap::new(),
            room: 256,
            work_ns: 0,
            queues: BTreeMap::new(),
            log: Vec::new(),
            ends: BTreeMap::new(),
            delivered: BTreeMap::new(),
            counts: BTreeMap::new(),
            keep_log: true,
        }
    }

    /// Sends all of flow 0 to a CPU.
    fn to(cpu: u16) -> Self {
        let mut script = Self::new();
        script.to.insert(0, cpu);
        script
    }

    /// Lets a reader on a CPU read flow 0.
    fn read_on(mut self, cpu: u16) -> Self {
        self.readers.insert(0, (0, cpu));
        self
    }

    fn note(&mut self, what: &'static str, number: u64, cpu: u16, ns: u64) {
        *self.counts.entry(what).or_default() += 1;
        if self.keep_log {
            self.log.push((what, number, cpu, ns));
        }
    }

    fn end(&mut self, packet: &Parcel) {
        if self.keep_log {
            *self.ends.entry(packet.number).or_default() += 1;
        }
    }

    fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    fn times(&self, what: &str) -> Vec<u64> {
        self.log.iter().filter(|l| l.0 == what).map(|l| l.3).collect()
    }

    fn cpus(&self, what: &str) -> Vec<u16> {
        self.log.iter().filter(|l| l.0 == what).map(|l| l.2).collect()
    }
}

/// Decides as RPS with a mask of one CPU does, or with none.
fn decision<C: Cpus>(to: Option<u16>, on: CpuId, cpus: &C) -> Choice {
    let kind = if to.is_some() { PolicyKind::Rps } else { PolicyKind::None };
    let rules = LinuxRules::of(KernelVersion::NEWEST);
    let none = Tables::<Vec<Bucket>, Vec<AtomicU32>>::None;
    let steering = Steering::new(kind, rules, Aware::default(), none);
    let map: Vec<CpuId> = to.map(CpuId).into_iter().collect();
    let packet = rxsteer_core::steer::Packet {
        hash: FlowHash(7),
        class: Class::Udp,
        rule: PortRule::Learn,
        arrived_on: on,
        refused: false,
    };
    let decision = steering.steer(&Queue { map: &map, slots: &[] }, &packet, cpus, Epoch(0));
    Choice { decision, cost_ns: 0 }
}

impl Stages for Script {
    type Packet = Parcel;
    type Flow = Parcel;

    fn flow(&self, packet: &Parcel) -> Parcel {
        *packet
    }

    fn hash(&self, packet: &Parcel) -> FlowHash {
        FlowHash((packet.flow + 1).wrapping_mul(0x9e37_79b9))
    }

    fn class(&self, _: &Parcel) -> Class {
        Class::Udp
    }

    fn choose<C: Cpus>(&mut self, packet: &mut Parcel, at: At, cpus: &C) -> Choice {
        assert_eq!(packet.queue, at.queue);
        decision(self.to.get(&packet.flow).copied(), at.on, cpus)
    }

    fn queued(&mut self, flow: Parcel, _: At, _: &Choice, tail: u32) {
        self.note("queued", flow.number, tail as u16, 0);
    }

    fn deliver(&mut self, train: Train<Parcel>, on: CpuId, now_ns: u64) -> Option<Reading> {
        let packet = *train.first();
        self.note("processed", packet.number, on.0, now_ns);
        if self.keep_log {
            self.delivered.entry(packet.flow).or_default().push(packet.number);
        }
        let Some((reader, cpu)) = self.readers.get(&packet.flow).copied() else {
            self.note("finished", packet.number, on.0, now_ns);
            self.end(&packet);
            return None;
        };
        let queue = self.queues.entry(reader).or_default();
        if queue.len() >= self.room {
            self.note("no room", packet.number, on.0, now_ns);
            self.end(&packet);
            return None;
        }
        queue.push_back(packet);
        Some(Reading { reader: ReaderId(reader), cpu: CpuId(cpu) })
    }

    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> Read {
        let mut read = Read::default();
        for _ in 0..most {
            let Some(packet) = self.queues.get_mut(&reader.0).and_then(VecDeque::pop_front) else {
                break;
            };
            self.note("read", packet.number, on.0, now_ns);
            self.end(&packet);
            read.messages += 1;
            read.packets += 1;
            read.work_ns += self.work_ns;
        }
        read.more = self.queues.get(&reader.0).is_some_and(|q| !q.is_empty());
        read
    }

    fn dropped(&mut self, packet: Parcel, cause: Drop, now_ns: u64) {
        let name = match cause {
            Drop::Ring => "ring",
            Drop::Backlog(_) => "backlog",
            Drop::FlowLimit(_) => "flow limit",
            Drop::Shed => "shed",
            Drop::Offline => "offline",
        };
        self.note(name, packet.number, 0, now_ns);
        self.end(&packet);
    }
}

fn parcel(number: u64) -> Parcel {
    Parcel { number, flow: 0, queue: QueueId(0) }
}

/// Four CPUs that share a cache, and queues with their interrupts on CPUs 0, 1, …
fn topology(queues: u16) -> Topology {
    Topology {
        cpus: CpuStates::all(4),
        cache_numbers: vec![0; 4],
        irq_cpus: (0..queues).map(|n| CpuId(n % 4)).collect(),
    }
}

/// Round figures: interrupt 100, taking 10, protocol 50, signals 1000 (and as long on their way) and
/// 5; the rest costs nothing.
fn costs() -> Costs {
    Costs {
        interrupt: 100,
        take: 10,
        signal_send: 1000,
        signal_reach: 1000,
        signal_take: 5,
        protocol_udp: 50,
        ..Costs::NONE
    }
}

fn host(settings: &Settings, costs: &Costs) -> VirtualTime<Parcel> {
    VirtualTime::new(&topology(1), settings, costs)
}

fn load(host: &VirtualTime<Parcel>, cpu: usize) -> CpuLoad {
    host.loads().nth(cpu).unwrap().2
}

#[test]
fn a_packet_processed_in_place_takes_interrupt_ring_and_protocol_time() {
    let mut host = host(&Settings::default(), &costs());
    let mut script = Script::new();
    host.arrive(parcel(1), QueueId(0), 1000, &mut script);
    host.arrive(parcel(2), QueueId(0), 1000, &mut script);
    assert_eq!(host.drain(&mut script), 1000 + 100 + 10 + 50 + 10 + 50);
    assert_eq!(script.times("processed"), [1160, 1220]);
    assert_eq!((load(&host, 0).softirq_ns, load(&host, 0).busy_ns()), (220, 220));
    assert!(host.is_idle());
}

#[test]
fn a_reader_is_woken_switched_to_and_paid_for() {
    let costs = Costs { wake_remote: 40, switch: 30, read: 20, copy_per_kib: 0, ..costs() };
    let mut host = host(&Settings::default(), &costs);
    let mut script = Script { work_ns: 7, ..Script::new().read_on(2) };
    host.arrive(parcel(1), QueueId(0), 0, &mut script);
    assert_eq!(host.drain(&mut script), 100 + 10 + 50 + 40 + 30 + 20 + 7);
    assert_eq!(script.times("read"), [100 + 10 + 50 + 40 + 30 + 20], "it has the packet then");
    assert_eq!(load(&host, 0).softirq_ns, 100 + 10 + 50 + 40);
    assert_eq!((load(&host, 2).reader_ns, load(&host, 2).read), (30 + 20 + 7, 1));
    assert_eq!(load(&host, 0).wakeups, 1);
}

/// The way out of the idle loop is nobody's CPU time; taking what ended the idling is a part of it.
#[test]
fn an_idle_cpu_takes_its_time_until_its_first_step() {
    for (idle_exit, waits) in [(0, 5), (4, 5), (300, 300)] {
        let costs = Costs { idle_exit, ..costs() };
        let mut host = host(&Settings::default(), &costs);
        let mut script = Script::to(2);
        host.arrive(parcel(1), QueueId(0), 1000, &mut script);
        host.drain(&mut script);
        let taken = 1000 + u64::from(idle_exit).max(100) + 10;
        assert_eq!(script.times("processed"), [taken + 1000 + waits + 50], "{idle_exit} ns");
        assert_eq!(load(&host, 0).busy_ns(), 100 + 10 + 1000, "{idle_exit} ns");
        assert_eq!(load(&host, 2).busy_ns(), 5 + 50, "{idle_exit} ns");
    }
}

/// A CPU that has something to do is not idle, and neither is one that was busy until this moment.
#[test]
fn a_busy_cpu_has_no_way_out_of_the_idle_loop() {
    let costs = Costs { idle_exit: 300, ..costs() };
    let mut host = host(&Settings::default(), &costs);
    let mut script = Script::new();
    let first = 300 + 10 + 50;
    host.arrive(parcel(1), QueueId(0), 1000, &mut script);
    host.arrive(parcel(2), QueueId(0), 1000 + first, &mut script);
    host.arrive(parcel(3), QueueId(0), 1000 + first + 20, &mut script);
    let second = 1000 + first + 100 + 10 + 50;
    host.drain(&mut script);
    assert_eq!(script.times("processed"), [1000 + first, second, second + 10 + 50]);
}

/// Who is woken from idleness finds together what was sent to it meanwhile: one wake-up for all.
#[test]
fn packets_that_come_while_a_cpu_leaves_idleness_need_no_wake_up_of_their_own() {
    let wakeups = |idle_exit| {
        let costs = Costs { wake_remote: 400, read: 20, idle_exit, ..costs() };
        let mut host = host(&Settings::default(), &costs);
        let mut script = Script::new().read_on(2);
        for n in 0..10 {
            // Each is read before the next one comes, if its reader begins at once.
            host.arrive(parcel(n), QueueId(0), 1000 * (n + 1), &mut script);
        }
        host.drain(&mut script);
        assert_eq!(script.count("read"), 10);
        load(&host, 0).wakeups
    };
    assert_eq!(wakeups(0), 10);
    // The CPU of the queue and that of the reader both take 2,000 ns: three times three packets come
    // together, and the last one alone.
    assert_eq!(wakeups(2000), 4);
}

#[test]
fn a_full_ring_drops_the_newest() {
    let limits = Limits { ring: 3, ..Limits::default() };
    let mut host = host(&Settings { limits, ..Settings::default() }, &costs());
    let mut script = Script::new();
    for n in 1..=6 {
        host.arrive(parcel(n), QueueId(0), 0, &mut script);
    }
    // The first is in the hands of its CPU.
    assert_eq!(script.log, [("ring", 5, 0, 0), ("ring", 6, 0, 0)]);
    host.drain(&mut script);
    assert_eq!(script.ends, (1..=6).map(|n| (n, 1)).collect());
    assert_eq!(load(&host, 0).dropped, 2);
}

#[test]
fn at_once_leaves_no_backlog_and_no_reader_behind() {
    let mut host = AtOnce::new(&topology(1));
    let mut script = Script::to(1).read_on(3);
    for n in 1..=3 {
        host.arrive(parcel(n), QueueId(0), n, &mut script);
        assert_eq!(host.cpus().head(CpuId(1)), n as u32);
        assert_eq!(host.cpus().tail(CpuId(1)), n as u32);
        assert_eq!(script.count("read"), n);
    }
    assert!(host.offline(CpuId(1)));
    host.arrive(parcel(4), QueueId(0), 4, &mut script);
    assert_eq!(script.cpus("processed"), [1, 1, 1, 0], "local, as its CPU is gone");
    let loads: Vec<_> = host.loads().map(|(_, online, load)| (online, load.processed)).collect();
    assert_eq!(loads, [(true, 1), (false, 3), (true, 0), (true, 0)]);
}
