//! Packets that the virtual executor takes through the whole path per second of wall time.
#![allow(missing_docs, reason = "a benchmark")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rxsteer_core::cpu::CpuStates;
use rxsteer_core::steer::{
    Aware, Class, KernelVersion, LinuxRules, Packet, PolicyKind, PortRule, Queue, Steering, Tables,
};
use rxsteer_core::table::{Bucket, Epoch, FlowTable, OrderTable, RepeatFilter};
use rxsteer_core::{CpuId, FlowHash, QueueId};
use rxsteer_engine::virtual_time::{Topology, VirtualTime};
use rxsteer_engine::{
    At, Choice, Costs, Cpus, Drop, Mode, Read, ReaderId, Reading, Settings, Stages, Train,
};

const PACKETS: u64 = 100_000;

/// A packet is its flow hash; a reader on each CPU takes whole receive queues in turn.
struct World {
    steering: Steering<Vec<Bucket>, Vec<AtomicU32>>,
    map: Vec<CpuId>,
    slots: Vec<AtomicU64>,
    queues: Vec<VecDeque<FlowHash>>,
    ends: u64,
}

impl World {
    fn new(policy: PolicyKind) -> Self {
        let flows = || {
            FlowTable::new((0..4096).map(|_| Bucket::empty()).collect()).expect("a power of two")
        };
        let words = (0..4096).map(|_| AtomicU32::new(0)).collect();
        let tables = match policy {
            PolicyKind::FlowAware => {
                Tables::Flows(flows(), flows(), RepeatFilter::new(words).expect("a power of two"))
            }
            _ => Tables::None,
        };
        let rules = LinuxRules::of(KernelVersion::NEWEST);
        Self {
            steering: Steering::new(policy, rules, Aware::default(), tables),
            map: (0..8).map(CpuId).collect(),
            slots: (0..1024).map(|_| AtomicU64::new(OrderTable::FREE)).collect(),
            queues: vec![VecDeque::new(); 8],
            ends: 0,
        }
    }
}

impl Stages for World {
    type Packet = FlowHash;
    type Flow = FlowHash;

    fn flow(&self, packet: &FlowHash) -> FlowHash {
        *packet
    }

    fn hash(&self, packet: &FlowHash) -> FlowHash {
        *packet
    }

    fn class(&self, _: &FlowHash) -> Class {
        Class::Udp
    }

    fn choose<C: Cpus>(&mut self, packet: &mut FlowHash, at: At, cpus: &C) -> Choice {
        let queue = Queue { map: &self.map, slots: &self.slots };
        let packet = Packet {
            hash: *packet,
            class: Class::Udp,
            rule: PortRule::Learn,
            arrived_on: at.on,
            refused: false,
        };
        let decision = self.steering.steer(&queue, &packet, cpus, Epoch::from_ns(at.now_ns));
        Choice { decision, cost_ns: 50 }
    }

    fn queued(&mut self, flow: FlowHash, _: At, choice: &Choice, tail: u32) {
        let queue = Queue { map: &self.map, slots: &self.slots };
        self.steering.enqueued(&queue, flow, &choice.decision, tail);
    }

    fn deliver(&mut self, train: Train<FlowHash>, _: CpuId, _: u64) -> Option<Reading> {
        let packet = *train.first();
        let cpu = (packet.0 % 8) as u16;
        let queue = &mut self.queues[usize::from(cpu)];
        if queue.len() >= 256 {
            self.ends += 1;
            return None;
        }
        queue.push_back(packet);
        Some(Reading { reader: ReaderId(cpu.into()), cpu: CpuId(cpu) })
    }

    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> Read {
        let queue = &mut self.queues[reader.0 as usize];
        let mut read = Read::default();
        while read.messages < most
            && let Some(hash) = queue.pop_front()
        {
            read.messages += 1;
            read.packets += 1;
            read.work_ns += 500;
            let epoch = Epoch::from_ns(now_ns);
            let _ =
                self.steering.received_unconnected(hash, Class::Udp, PortRule::Flows, on, epoch);
        }
        self.ends += u64::from(read.packets);
        read.more = !queue.is_empty();
        read
    }

    fn dropped(&mut self, _: FlowHash, _: Drop, _: u64) {
        self.ends += 1;
    }
}

/// All packets of 1,024 flows through 8 CPUs and 2 queues, one each `gap_ns`.
fn run(policy: PolicyKind, settings: &Settings, gap_ns: u64) -> u64 {
    let topology = Topology {
        cpus: CpuStates::all(8),
        cache_numbers: vec![0; 8],
        irq_cpus: vec![CpuId(0), CpuId(4)],
    };
    let mut host = VirtualTime::new(&topology, settings, &Costs::default());
    let mut world = World::new(policy);
    for n in 0..PACKETS {
        let flow = (n % 1024) as u32 + 1;
        let hash = FlowHash(flow.wrapping_mul(0x9e37_79b9));
        host.arrive(hash, QueueId((flow % 2) as u16), n * gap_ns, &mut world);
    }
    host.drain(&mut world);
    world.ends
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("virtual_time");
    group.throughput(Throughput::Elements(PACKETS)).sample_size(10);
    for policy in [PolicyKind::None, PolicyKind::Rps, PolicyKind::FlowAware] {
        for (load, gap_ns) in [("light", 4000), ("busy", 800), ("overload", 200)] {
            let settings = Settings::default();
            let name = format!("{}/{load}", policy.name());
            group.bench_function(name, |b| {
                b.iter(|| assert_eq!(run(policy, &settings, gap_ns), PACKETS));
            });
        }
    }
    for mode in [Mode::Ksoftirqd, Mode::Threaded] {
        let settings = Settings { mode, ..Settings::default() };
        group.bench_function(format!("rps/overload/{}", mode.name()), |b| {
            b.iter(|| assert_eq!(run(PolicyKind::Rps, &settings, 200), PACKETS));
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
