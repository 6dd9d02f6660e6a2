use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;

use rxsteer_core::steer::{
    Aware, Class, Host as _, KernelVersion, LinuxRules, Packet, PolicyKind, PortRule, Queue,
    Steering, Tables,
};
use rxsteer_core::table::{Bucket, Epoch};
use rxsteer_core::{CpuId, FlowHash, QueueId};

use super::*;
use crate::host::Host;

/// Sends every packet to one CPU (or processes it in place) and writes down what happens.
#[derive(Default)]
struct Script {
    to: Option<u16>,
    reader: Option<u16>,
    log: Vec<(&'static str, u64, u16, u64)>,
    ends: BTreeMap<u64, u32>,
}

impl Script {
    fn count(&self, what: &str) -> usize {
        self.log.iter().filter(|l| l.0 == what).count()
    }

    fn end(&mut self, job: &Job) {
        *self.ends.entry(job.number).or_default() += 1;
    }
}

impl Stages for Script {
    fn choose(&mut self, job: &Job, on: CpuId, _: u64, cpus: &Cpus, _: bool) -> Choice {
        let kind = if self.to.is_some() { PolicyKind::Rps } else { PolicyKind::None };
        let aware = Aware::default();
        let rules = LinuxRules::of(KernelVersion::NEWEST);
        let none = Tables::<Vec<Bucket>, Vec<AtomicU32>>::None;
        let steering = Steering::new(kind, rules, aware, none);
        let map: Vec<CpuId> = self.to.map(CpuId).into_iter().collect();
        let queue = Queue { map: &map, slots: &[] };
        let packet = Packet {
            hash: job.hash,
            class: job.class,
            rule: job.rule,
            arrived_on: on,
            refused: false,
        };
        let decision = steering.steer(&queue, &packet, cpus, Epoch(0));
        Choice { decision, cost_ns: 0 }
    }

    fn queued(&mut self, job: &Job, _: &Choice, tail: u32) {
        self.log.push(("queued", job.number, tail as u16, 0));
    }

    fn processed(&mut self, job: &Job, on: CpuId, now_ns: u64) -> Option<Reading> {
        self.log.push(("processed", job.number, on.0, now_ns));
        if self.reader.is_none() {
            self.end(job);
        }
        self.reader.map(|cpu| Reading { cpu: CpuId(cpu), asleep: false, work_ns: 0 })
    }

    fn read(&mut self, job: &Job, on: CpuId, now_ns: u64) {
        self.log.push(("read", job.number, on.0, now_ns));
        self.end(job);
    }

    fn dropped(&mut self, job: &Job, cause: Drop, now_ns: u64) {
        let name = match cause {
            Drop::Ring => "ring",
            Drop::Backlog(_) => "backlog",
            _ => "other",
        };
        self.log.push((name, job.number, 0, now_ns));
        self.end(job);
    }
}

fn job(number: u64) -> Job {
    Job {
        arrived_ns: 0,
        number,
        hash: FlowHash(number as u32),
        flow: 0,
        flow_use: 0,
        seq: number as u32,
        socket: 0,
        socket_use: 0,
        len: 64,
        queue: QueueId(0),
        class: Class::Udp,
        rule: PortRule::Learn,
        connected: false,
        wants_reader: true,
    }
}

fn host(limits: &str) -> Host {
    let costs = "[costs]\ninterrupt = 100\ntake = 10\nbacklog = 0\nsignal_send = 1000\n\
                 signal_take = 5\nhop_near = 0\nhop_far = 0\nprotocol_udp = 50\n";
    Host::from_toml("test", &format!("cpus = 4\nqueues = 1\n[limits]\n{limits}\n{costs}")).unwrap()
}

#[test]
fn a_packet_processed_in_place_takes_interrupt_ring_and_protocol_time() {
    let mut fifo = Fifo::new(&host(""));
    let mut script = Script::default();
    fifo.arrive(job(1), 1000, &mut script);
    fifo.arrive(job(2), 1000, &mut script);
    assert_eq!(fifo.drain(&mut script), 1000 + 100 + 10 + 50 + 10 + 50);
    let done: Vec<u64> = script.log.iter().map(|l| l.3).collect();
    assert_eq!(done, [1160, 1220]);
    assert_eq!(fifo.cpus().loads().next().unwrap().2.busy_ns, 220);
}

/// The default limit of 1000 takes packets 1 to 1001 and drops 1002, with the CPU stopped.
#[test]
fn a_backlog_holds_one_packet_more_than_its_limit() {
    for (limit, fits) in [(1000, 1001), (0, 1)] {
        let limits = format!("netdev_max_backlog = {limit}\nring = 4096");
        let mut fifo = Fifo::new(&host(&limits));
        let mut script = Script { to: Some(1), ..Script::default() };
        // CPU 1 is busy with one endless piece of work, so nothing is taken off.
        fifo.costs.protocol_udp = 4_000_000_000;
        for n in 1..=fits + 1 {
            fifo.arrive(job(n), 0, &mut script);
        }
        fifo.advance(3_000_000_000, &mut script);
        assert_eq!(script.count("queued") as u64, fits, "limit {limit}");
        assert_eq!(script.log.last().map(|l| (l.0, l.1)), Some(("backlog", fits + 1)));
        let dropped: Vec<u64> = fifo.cpus().loads().map(|l| l.2.dropped).collect();
        assert_eq!(dropped, [0, 1, 0, 0]);
    }
}

#[test]
fn one_signal_serves_a_burst_and_one_more_the_next() {
    let mut fifo = Fifo::new(&host(""));
    let mut script = Script { to: Some(1), ..Script::default() };
    for n in 1..=10 {
        fifo.arrive(job(n), 0, &mut script);
    }
    fifo.advance(1_000_000, &mut script);
    let load = |fifo: &Fifo, cpu: usize| fifo.cpus().loads().nth(cpu).unwrap().2;
    assert_eq!(load(&fifo, 0).signals, 1);
    assert_eq!(load(&fifo, 0).busy_ns, 100 + 10 * 10 + 1000);
    assert_eq!(load(&fifo, 1).busy_ns, 5 + 10 * 50);
    let first = script.log.iter().find(|l| l.0 == "processed").unwrap();
    assert_eq!(first.3, 100 + 10 * 10 + 1000 + 5 + 50, "it begins with the signal");
    for n in 11..=20 {
        fifo.arrive(job(n), 1_000_000, &mut script);
    }
    fifo.drain(&mut script);
    assert_eq!(load(&fifo, 0).signals, 2);
}

#[test]
fn a_long_burst_is_signalled_once_in_dev_weight_packets_at_most() {
    let mut fifo = Fifo::new(&host("dev_weight = 4"));
    fifo.costs.take = 1000;
    let mut script = Script { to: Some(1), ..Script::default() };
    for n in 1..=10 {
        fifo.arrive(job(n), 0, &mut script);
    }
    fifo.drain(&mut script);
    // After 4, 8 and 10 packets: CPU 1 is through (205 ns) before the next is taken.
    assert_eq!(fifo.cpus().loads().next().unwrap().2.signals, 3);
    assert_eq!(script.count("processed"), 10);
}

#[test]
fn a_full_ring_drops_the_newest() {
    let mut fifo = Fifo::new(&host("ring = 3"));
    let mut script = Script::default();
    for n in 1..=5 {
        fifo.arrive(job(n), 0, &mut script);
    }
    assert_eq!(script.log, [("ring", 4, 0, 0), ("ring", 5, 0, 0)]);
    fifo.drain(&mut script);
    assert!(script.ends.values().all(|n| *n == 1) && script.ends.len() == 5);
}

/// openshift/cluster-node-tuning-operator#518: a CPU goes offline with packets queued.
#[test]
fn packets_of_a_cpu_that_goes_offline_are_taken_over_and_none_is_lost() {
    let mut fifo = Fifo::new(&host(""));
    fifo.costs.protocol_udp = 1_000_000;
    let mut script = Script { to: Some(2), reader: Some(2), ..Script::default() };
    for n in 1..=20 {
        fifo.arrive(job(n), 0, &mut script);
    }
    fifo.advance(500_000, &mut script);
    script.to = Some(3);
    let (head, tail) = (fifo.cpus().head(CpuId(2)), fifo.cpus().tail(CpuId(2)));
    let taken_over = fifo.offline(CpuId(2), 500_000, &mut script).unwrap();
    assert_eq!(taken_over, u64::from(tail - head) - 1, "all but the one in work");
    assert_eq!(fifo.cpus().head(CpuId(2)), tail - 1, "the head moved by each of them");
    fifo.drain(&mut script);
    assert!(fifo.is_idle());
    assert_eq!(script.count("read"), 20);
    let order: Vec<u64> = script.log.iter().filter(|l| l.0 == "processed").map(|l| l.1).collect();
    assert!(order.windows(2).all(|w| w[0] < w[1]), "{order:?}");
    assert!(!fifo.cpus().is_online(CpuId(2)));
    fifo.online(CpuId(2));
    assert!(fifo.cpus().is_online(CpuId(2)));
}

#[test]
fn the_last_online_cpu_stays_and_a_cpu_that_does_not_exist_is_refused() {
    let mut fifo = Fifo::new(&Host::simple(2, 1).unwrap());
    let mut script = Script::default();
    assert_eq!(fifo.offline(CpuId(7), 0, &mut script), None);
    assert_eq!(fifo.offline(CpuId(0), 0, &mut script), Some(0));
    assert_eq!(fifo.offline(CpuId(0), 0, &mut script), None);
    assert_eq!(fifo.offline(CpuId(1), 0, &mut script), None);
    assert_eq!(fifo.cpus().online().list().to_string(), "1");
    fifo.arrive(job(1), 0, &mut script);
    fifo.drain(&mut script);
    assert_eq!(script.log[0].2, 1, "its queue's interrupts moved");
}

#[test]
fn each_packet_ends_once_whatever_the_load() {
    for (to, reader) in [(None, None), (Some(1), None), (Some(1), Some(1)), (Some(3), Some(2))] {
        let mut fifo = Fifo::new(&host("ring = 8\nnetdev_max_backlog = 4"));
        let mut script = Script { to, reader, ..Script::default() };
        for n in 1..=2000 {
            fifo.arrive(job(n), n * 37 % 50 + n * 20, &mut script);
        }
        fifo.drain(&mut script);
        assert!(fifo.is_idle());
        assert_eq!(script.ends.len(), 2000);
        assert!(script.ends.values().all(|n| *n == 1), "to {to:?}, reader {reader:?}");
    }
}

#[test]
fn the_instant_service_leaves_no_backlog() {
    let mut instant = Instant::new(&host(""));
    let mut script = Script { to: Some(1), reader: Some(3), ..Script::default() };
    for n in 1..=3 {
        instant.arrive(job(n), n, &mut script);
        assert_eq!(instant.cpus().head(CpuId(1)), n as u32);
        assert_eq!(instant.cpus().tail(CpuId(1)), n as u32);
    }
    assert_eq!(script.count("read"), 3);
}
