use super::*;
use crate::overload::{Beside, BesideSettings, Sample};
use proptest::prelude::*;
use rxsteer_core::steer::{
    Class, Host, Packet, PolicyKind, PortRule, Queue, Reason, SocketFlow, Steering, Tables,
};
use rxsteer_core::steer::{KernelVersion, LinuxRules};
use rxsteer_core::table::{Bucket, Epoch, FlowTable, OrderTable, RepeatFilter};
use rxsteer_core::{CpuId, FlowHash};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64};

const CPUS: usize = 8;

/// CPUs that are queues, first in, first out.
#[derive(Default)]
struct Queues {
    waiting: [VecDeque<(FlowHash, u32)>; CPUS],
    head: [u32; CPUS],
    tail: [u32; CPUS],
}

impl Host for Queues {
    fn is_online(&self, cpu: CpuId) -> bool {
        cpu.index() < CPUS
    }
    fn head(&self, cpu: CpuId) -> u32 {
        self.head.get(cpu.index()).copied().unwrap_or(0)
    }
    fn tail(&self, cpu: CpuId) -> u32 {
        self.tail.get(cpu.index()).copied().unwrap_or(0)
    }
}

impl crate::Cpus for Queues {
    fn busy_ns(&self, _: CpuId) -> u64 {
        0
    }
    fn share_cache(&self, _: CpuId, _: CpuId) -> bool {
        true
    }
}

impl Queues {
    fn put(&mut self, cpu: CpuId, hash: FlowHash, seq: u32) -> u32 {
        self.waiting[cpu.index()].push_back((hash, seq));
        self.tail[cpu.index()] = self.tail[cpu.index()].wrapping_add(1);
        self.tail[cpu.index()]
    }

    fn take(&mut self, cpu: usize) -> Option<(FlowHash, u32)> {
        let taken = self.waiting[cpu].pop_front()?;
        self.head[cpu] = self.head[cpu].wrapping_add(1);
        Some(taken)
    }
}

fn policy(aware: Aware) -> Steering<Vec<Bucket>, Vec<AtomicU32>> {
    let flows = || FlowTable::new((0..64).map(|_| Bucket::empty()).collect()).unwrap();
    let words = (0..64).map(|_| AtomicU32::new(0)).collect();
    let tables = Tables::Flows(flows(), flows(), RepeatFilter::new(words).unwrap());
    Steering::new(PolicyKind::FlowAware, LinuxRules::of(KernelVersion::NEWEST), aware, tables)
}

fn packet(hash: FlowHash, rule: PortRule) -> Packet {
    Packet { hash, class: Class::Udp, rule, arrived_on: CpuId(0), refused: false }
}

fn next(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) as u32
}

/// Requests at 95 % of what eight CPUs carry; returns the deepest backlog and the spilled part.
fn deepest(on: bool) -> (u32, f64) {
    let policy = policy(switched(on, Aware { spill_above_packets: 8, ..Aware::default() }));
    let map: Vec<CpuId> = (0..CPUS as u16).map(CpuId).collect();
    let queue = Queue { map: &map, slots: &[] };
    let mut queues = Queues::default();
    let (mut deepest, mut spilled, mut state) = (0, 0, 5);
    for _ in 0..20_000 {
        for _ in 0..CPUS {
            if next(&mut state) % 100 >= 95 {
                continue;
            }
            let hash = FlowHash(next(&mut state) << 1 | 1);
            let decision =
                policy.steer(&queue, &packet(hash, PortRule::Requests), &queues, Epoch(0));
            spilled += u32::from(decision.reason == Reason::Spilled);
            queues.put(decision.cpu, hash, 0);
        }
        for cpu in 0..CPUS {
            deepest = deepest.max(queues.waiting[cpu].len() as u32);
            queues.take(cpu);
        }
    }
    (deepest, f64::from(spilled) / 20_000.0 / CPUS as f64)
}

#[test]
fn two_choices_keep_the_deepest_backlog_short_and_the_switch_turns_them_off() {
    let (without, none) = deepest(false);
    let (with, some) = deepest(true);
    assert_eq!(none, 0.0);
    assert!(some > 0.01 && some < 0.5, "{some}");
    assert!(with * 2 < without, "{with} with, {without} without");
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A packet of one of a few flows.
    Flow(u8),
    /// A request.
    Request(u32),
    Take(u8),
    /// The flow's consumer reads on this CPU.
    Read(u8, u8),
    /// A window ends in which this CPU was overloaded, mostly by this flow.
    Overload(u8, u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..6u8).prop_map(Op::Flow),
        4 => any::<u32>().prop_map(Op::Request),
        8 => (0..CPUS as u8).prop_map(Op::Take),
        1 => (0..6u8, 0..CPUS as u8).prop_map(|(flow, cpu)| Op::Read(flow, cpu)),
        1 => (0..6u8, 0..CPUS as u8).prop_map(|(flow, cpu)| Op::Overload(flow, cpu)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Consumers move, elephants are placed beside, backlogs overflow into second choices: no
    /// packet of a flow overtakes one before it.
    #[test]
    fn spilling_and_placing_beside_never_reorder_a_flow(ops in prop::collection::vec(op(), 0..1000)) {
        let policy = policy(Aware { spill_above_packets: 1, ..Aware::default() });
        let map: Vec<CpuId> = (0..CPUS as u16).map(CpuId).collect();
        let slots: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(OrderTable::FREE)).collect();
        let queue = Queue { map: &map, slots: &slots };
        let settings = BesideSettings { settle: 0, ..BesideSettings::default() };
        let mut beside = Beside::new(settings, CPUS as u32);
        let mut queues = Queues::default();
        let hash_of = |flow: u8| FlowHash(0x2000_0001 * (u32::from(flow) + 1));
        let mut sockets: Vec<SocketFlow> =
            (0..6).map(|flow| SocketFlow::new(hash_of(flow), Class::Tcp)).collect();
        let mut sent = [0u32; 6];
        let mut seen: BTreeMap<FlowHash, u32> = BTreeMap::new();
        let mut samples = [Sample::default(); CPUS];
        for op in ops {
            match op {
                Op::Flow(flow) => {
                    let hash = hash_of(flow);
                    let packet = Packet { class: Class::Tcp, ..packet(hash, PortRule::Learn) };
                    let host = beside.for_flow(&queues, hash);
                    let decision = policy.steer(&queue, &packet, &host, Epoch(0));
                    prop_assert_ne!(decision.reason, Reason::Spilled);
                    sent[usize::from(flow)] += 1;
                    let tail = queues.put(decision.cpu, hash, sent[usize::from(flow)]);
                    policy.enqueued(&queue, hash, &decision, tail);
                }
                Op::Request(hash) => {
                    let hash = FlowHash(hash | 1);
                    let packet = packet(hash, PortRule::Requests);
                    let decision = policy.steer(&queue, &packet, &queues, Epoch(0));
                    queues.put(decision.cpu, hash, u32::MAX);
                }
                Op::Take(cpu) => {
                    if let Some((hash, seq)) = queues.take(usize::from(cpu))
                        && seq != u32::MAX
                    {
                        let last = seen.insert(hash, seq).unwrap_or(0);
                        prop_assert!(last < seq, "{hash:?}: {seq} after {last}");
                    }
                }
                Op::Read(flow, cpu) => {
                    let cpu = CpuId(u16::from(cpu));
                    policy.record(&mut sockets[usize::from(flow)], hash_of(flow), cpu, Epoch(0));
                }
                Op::Overload(flow, cpu) => for _ in 0..3 {
                    let home = CpuId(u16::from(cpu));
                    beside.worked(home, hash_of(flow), 1_000_000);
                    samples[usize::from(cpu)].packets_ns += 2_000_000;
                    samples[usize::from(cpu)].refused += 1;
                    beside.window(beside.due_ns(), &queues, |cpu| samples[cpu.index()]);
                },
            }
        }
        // Not for nothing: what is left is in order too.
        for cpu in 0..CPUS {
            while let Some((hash, seq)) = queues.take(cpu) {
                if seq != u32::MAX {
                    let last = seen.insert(hash, seq).unwrap_or(0);
                    prop_assert!(last < seq, "{hash:?}: {seq} after {last}");
                }
            }
        }
    }
}
