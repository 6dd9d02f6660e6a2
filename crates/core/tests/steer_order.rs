//! Order and counts of every policy under generated packets, moves and CPUs that come and go.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64};

use proptest::prelude::*;
use rxsteer_core::steer::{
    Aware, Class, Decision, Host, KernelVersion, LinuxRules, Packet, PolicyKind, PortRule, Queue,
    SocketFlow, Steering, Tables,
};
use rxsteer_core::table::{Bucket, Epoch, FlowTable, RepeatFilter, SockTable};
use rxsteer_core::{CpuId, FlowHash};

const CPUS: usize = 4;
const FLOWS: usize = 12;
/// So near to the wrap of the counters that most runs pass it.
const START: u32 = u32::MAX - 10;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A packet of a flow arrives.
    Packet(usize),
    /// A CPU takes packets off its backlog.
    Serve(usize, usize),
    /// A flow's consumer runs on a CPU.
    Consume(usize, usize),
    /// A flow's socket is closed, if nothing of it is queued.
    Close(usize),
    Offline(usize),
    Online(usize),
}

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0..FLOWS).prop_map(Op::Packet),
        4 => (0..CPUS, 1..6usize).prop_map(|(cpu, count)| Op::Serve(cpu, count)),
        3 => (0..FLOWS, 0..CPUS).prop_map(|(flow, cpu)| Op::Consume(flow, cpu)),
        1 => (0..FLOWS).prop_map(Op::Close),
        1 => (1..CPUS).prop_map(Op::Offline),
        1 => (1..CPUS).prop_map(Op::Online),
    ];
    prop::collection::vec(op, 1..most)
}

struct Cpus {
    online: [bool; CPUS],
    head: [u32; CPUS],
    tail: [u32; CPUS],
}

impl Host for Cpus {
    fn is_online(&self, cpu: CpuId) -> bool {
        self.online.get(cpu.index()).copied().unwrap_or(false)
    }
    fn head(&self, cpu: CpuId) -> u32 {
        self.head[cpu.index()]
    }
    fn tail(&self, cpu: CpuId) -> u32 {
        self.tail[cpu.index()]
    }
}

struct VirtualHost {
    policy: Steering<Vec<Bucket>, Vec<AtomicU32>>,
    slots: Vec<AtomicU64>,
    cpus: Cpus,
    backlogs: [VecDeque<(usize, u64)>; CPUS],
    sockets: Vec<SocketFlow>,
    sent: [u64; FLOWS],
    served: [u64; FLOWS],
    reordered: u64,
    decisions: Vec<Decision>,
}

fn hash(flow: usize) -> FlowHash {
    // Spread over the whole range: the mask is scaled by high bits, the tables take low ones.
    FlowHash((flow as u32 + 1).wrapping_mul(0x9e37_79b1))
}

fn class(flow: usize) -> Class {
    if flow.is_multiple_of(3) { Class::Udp } else { Class::Tcp }
}

const MAP: [CpuId; CPUS] = [CpuId(0), CpuId(1), CpuId(2), CpuId(3)];

impl VirtualHost {
    fn new(kind: PolicyKind) -> Self {
        let words = |n| (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let rules = match kind {
            PolicyKind::Rfs2010 => LinuxRules::first(false),
            PolicyKind::RfsClear => LinuxRules::first(true),
            _ => LinuxRules::of(KernelVersion::NEWEST),
        };
        let sock = || SockTable::new(words(64), CPUS as u32, rules.identity).unwrap();
        let flows = || {
            let buckets: Vec<_> = (0..4).map(|_| Bucket::empty()).collect();
            FlowTable::new(buckets).unwrap()
        };
        let tables = match kind {
            PolicyKind::None | PolicyKind::Rps => Tables::None,
            PolicyKind::RfsSplit => Tables::Split(sock(), sock()),
            PolicyKind::FlowAware => {
                Tables::Flows(flows(), flows(), RepeatFilter::new(words(64)).unwrap())
            }
            _ => Tables::Shared(sock()),
        };
        // Order is promised to flows that their sockets told of; strangers may be spilled.
        let aware = Aware { spill_above_packets: u32::MAX, ..Aware::default() };
        let policy = Steering::new(kind, rules, aware, tables);
        let slots = (0..16).map(|_| AtomicU64::new(policy.fresh_slot())).collect();
        Self {
            policy,
            slots,
            cpus: Cpus { online: [true; CPUS], head: [START; CPUS], tail: [START; CPUS] },
            backlogs: Default::default(),
            sockets: (0..FLOWS).map(|flow| SocketFlow::new(hash(flow), class(flow))).collect(),
            sent: [0; FLOWS],
            served: [0; FLOWS],
            reordered: 0,
            decisions: Vec::new(),
        }
    }

    fn steer(&mut self, flow: usize, number: u64) {
        // With slots plain RPS would drain, which Linux does not do.
        let slots = if self.policy.kind() == PolicyKind::Rps { &[] } else { &self.slots[..] };
        let queue = Queue { map: &MAP, slots };
        let packet = Packet {
            hash: hash(flow),
            class: class(flow),
            rule: PortRule::Learn,
            arrived_on: CpuId(0),
            refused: false,
        };
        let decision = self.policy.steer(&queue, &packet, &self.cpus, Epoch(0));
        let cpu = decision.cpu.index();
        self.backlogs[cpu].push_back((flow, number));
        self.cpus.tail[cpu] = self.cpus.tail[cpu].wrapping_add(1);
        self.policy.enqueued(&queue, hash(flow), &decision, self.cpus.tail[cpu]);
        self.decisions.push(decision);
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Packet(flow) => {
                self.sent[flow] += 1;
                self.steer(flow, self.sent[flow]);
            }
            Op::Serve(cpu, count) => {
                for _ in 0..count {
                    let Some((flow, number)) = self.backlogs[cpu].pop_front() else { break };
                    self.cpus.head[cpu] = self.cpus.head[cpu].wrapping_add(1);
                    self.reordered += u64::from(number < self.served[flow]);
                    self.served[flow] = self.served[flow].max(number);
                }
            }
            Op::Consume(flow, cpu) if self.cpus.online[cpu] => {
                let socket = &mut self.sockets[flow];
                self.policy.record(socket, hash(flow), CpuId(cpu as u16), Epoch(0));
            }
            Op::Close(flow) if self.waiting_cpus(flow) == 0 => {
                self.policy.close(&mut self.sockets[flow]);
                self.sockets[flow] = SocketFlow::new(hash(flow), class(flow));
            }
            Op::Offline(cpu) => {
                // Linux injects the packets of a dead CPU anew.
                self.cpus.online[cpu] = false;
                for (flow, number) in std::mem::take(&mut self.backlogs[cpu]) {
                    self.cpus.head[cpu] = self.cpus.head[cpu].wrapping_add(1);
                    self.steer(flow, number);
                }
            }
            Op::Online(cpu) => self.cpus.online[cpu] = true,
            Op::Consume(..) | Op::Close(_) => {}
        }
    }

    fn waiting_cpus(&self, flow: usize) -> usize {
        self.backlogs.iter().filter(|queue| queue.iter().any(|(f, _)| *f == flow)).count()
    }

    fn served(&self) -> usize {
        self.cpus.head.iter().map(|head| head.wrapping_sub(START) as usize).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_flow_of_flow_aware_waits_on_one_cpu_and_is_never_reordered(ops in ops(200)) {
        let mut host = VirtualHost::new(PolicyKind::FlowAware);
        // Strangers are reordered by CPUs that go offline, so the flows speak first and stay.
        for flow in 0..FLOWS {
            host.apply(Op::Consume(flow, flow % CPUS));
        }
        for op in ops.into_iter().filter(|op| !matches!(op, Op::Close(_))) {
            host.apply(op);
            for flow in 0..FLOWS {
                prop_assert!(host.waiting_cpus(flow) <= 1, "flow {} after {:?}", flow, op);
            }
        }
        prop_assert_eq!(host.reordered, 0);
    }

    #[test]
    fn a_flow_of_flow_aware_keeps_order_from_its_first_packet_and_through_close(ops in ops(200)) {
        let mut host = VirtualHost::new(PolicyKind::FlowAware);
        for op in ops.into_iter().filter(|op| !matches!(op, Op::Offline(_))) {
            host.apply(op);
            for flow in 0..FLOWS {
                prop_assert!(host.waiting_cpus(flow) <= 1, "flow {} after {:?}", flow, op);
            }
        }
        prop_assert_eq!(host.reordered, 0);
    }

    #[test]
    fn every_packet_is_decided_once_and_goes_to_an_online_cpu_under_every_policy(ops in ops(100)) {
        for kind in PolicyKind::ALL {
            let mut host = VirtualHost::new(kind);
            for op in &ops {
                let before = host.decisions.len();
                host.apply(*op);
                for decision in &host.decisions[before..] {
                    prop_assert!(host.cpus.online[decision.cpu.index()], "{}: {:?}", kind, op);
                }
                let waiting: usize = host.backlogs.iter().map(VecDeque::len).sum();
                prop_assert_eq!(host.served() + waiting, host.decisions.len());
            }
        }
    }
}
