//! Each CPU does its work in the order in which the work came, whatever its kind.
//!
//! | work | where | what follows |
//! | --- | --- | --- |
//! | take | IRQ CPU of the queue | the decision: process here, or put on a backlog |
//! | process | chosen CPU | the head of its backlog moves; a reader is woken |
//! | read | CPU of the consumer | the flow is recorded |
//!
//! Costs that arise once per batch: an interrupt when the ring was empty, a signal to each CPU
//! whose backlog was empty (sent when the ring is empty or `dev_weight` packets were taken from it,
//! and only then does that CPU begin), a wake-up and a switch when the reader slept.
//!
//! What it leaves out: priorities (in Linux packet work runs before readers, so that a reader on
//! an overloaded CPU starves), budgets, GRO, and the time a signal travels. The head of a backlog
//! moves with each packet, where Linux moves it once per poll.
//!
//! Always true: a CPU has at most one event in the heap; a backlog holds at most `max_backlog + 1`
//! packets, the one in work included.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rxsteer_core::CpuId;
use rxsteer_core::steer::{Class, Host as _, Reason};

use super::{Cpus, Drop, Job, Service, Stages};
use crate::host::{Costs, Host};

/// First-in, first-out service on each CPU.
#[derive(Debug)]
pub struct Fifo {
    cpus: Cpus,
    work: Vec<CpuWork>,
    /// Jobs under way; queues hold their places, so that moving work moves 16 bytes.
    jobs: Vec<Job>,
    free: Vec<u32>,
    /// End of the running work of each busy CPU.
    events: BinaryHeap<Reverse<(u64, u16)>>,
    rings: Vec<Ring>,
    pub(super) costs: Costs,
    max_backlog: u32,
    ring_limit: u32,
    weight: u32,
    reads_waiting: usize,
    last_ns: u64,
}

#[derive(Clone, Debug)]
struct Ring {
    irq_cpu: CpuId,
    waiting: u32,
    /// Packets taken since the last signals.
    taken: u32,
    /// CPUs that are still to be signalled.
    owed: Vec<CpuId>,
}

#[derive(Debug, Default)]
struct CpuWork {
    free_at: u64,
    running: Option<Work>,
    /// Its work has just ended and what follows from it is being found out.
    stepping: bool,
    /// Its backlog has packets of which no signal told it yet.
    unsignalled: bool,
    waiting: VecDeque<Work>,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    /// Place of its job.
    job: u32,
    kind: Kind,
    cost_ns: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Take,
    Process,
    ProcessInline,
    Read,
}

impl Ring {
    fn new(irq_cpu: CpuId) -> Self {
        Self { irq_cpu, waiting: 0, taken: 0, owed: Vec::new() }
    }
}

impl Fifo {
    /// Most packets that wait for readers in the whole model: 2^20.
    pub const MOST_READS: usize = 1 << 20;

    /// Makes the service of a host.
    pub fn new(host: &Host) -> Self {
        let cpus = Cpus::new(&host.cpus, host.cache_numbers());
        Self {
            work: cpus.states.iter().map(|_| CpuWork::default()).collect(),
            cpus,
            jobs: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            rings: host.queues.iter().map(|q| Ring::new(q.irq_cpu)).collect(),
            costs: host.costs,
            max_backlog: host.limits.max_backlog,
            ring_limit: host.limits.ring,
            weight: host.limits.weight,
            reads_waiting: 0,
            last_ns: 0,
        }
    }

    fn keep(&mut self, job: Job) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.jobs[place as usize] = job;
                place
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() as u32 - 1
            }
        }
    }

    /// Ends a job: its place is free.
    fn end(&mut self, job: u32) {
        self.free.push(job);
    }

    fn lose<S: Stages>(&mut self, job: u32, cause: Drop, now: u64, stages: &mut S) {
        stages.dropped(&self.jobs[job as usize], cause, now);
        self.end(job);
    }

    /// Returns whether no job is under way.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.jobs.len()
    }

    /// Puts work at the end of a CPU's queue.
    fn give(&mut self, cpu: CpuId, work: Work, now: u64) {
        let at = &mut self.work[cpu.index()];
        let asleep = work.kind == Kind::Process && at.unsignalled;
        if at.running.is_none() && !at.stepping && !asleep {
            let begin = now.max(at.free_at);
            at.running = Some(work);
            self.events.push(Reverse((begin + work.cost_ns, cpu.0)));
        } else {
            at.waiting.push_back(work);
            self.cpus.states[cpu.index()].depth += 1;
        }
    }

    /// Ends the running work of a CPU and begins the next.
    fn step<S: Stages>(&mut self, now: u64, cpu: CpuId, stages: &mut S) {
        self.last_ns = now;
        let at = &mut self.work[cpu.index()];
        let work = at.running.take().expect("an event is of running work");
        at.stepping = true;
        self.cpus.states[cpu.index()].load.busy_ns += work.cost_ns;
        let extra = match work.kind {
            Kind::Take => self.taken(work.job, cpu, now, stages),
            Kind::Process => {
                let state = &mut self.cpus.states[cpu.index()];
                state.head = state.head.wrapping_add(1);
                self.processed(work.job, cpu, now, stages)
            }
            Kind::ProcessInline => self.processed(work.job, cpu, now, stages),
            Kind::Read => {
                self.reads_waiting -= 1;
                self.cpus.states[cpu.index()].load.read += 1;
                stages.read(&self.jobs[work.job as usize], cpu, now);
                self.end(work.job);
                0
            }
        };
        let at = &mut self.work[cpu.index()];
        at.stepping = false;
        at.free_at = now + extra;
        let state = &mut self.cpus.states[cpu.index()];
        state.load.busy_ns += extra;
        // Work in hand (an inline packet) goes before work that waits.
        let next = match at.running {
            Some(inline) => Some(inline),
            None => at.waiting.pop_front().inspect(|_| state.depth -= 1),
        };
        if let Some(next) = next {
            at.running = Some(next);
            self.events.push(Reverse((at.free_at + next.cost_ns, cpu.0)));
        }
    }

    /// Decides on a packet; returns what it costs the CPU that took it besides the taking.
    fn taken<S: Stages>(&mut self, job: u32, on: CpuId, now: u64, stages: &mut S) -> u64 {
        let queue = self.jobs[job as usize].queue.index();
        let ring = &mut self.rings[queue];
        ring.waiting -= 1;
        ring.taken += 1;
        let over = ring.waiting == 0 || ring.taken >= self.weight;
        self.cpus.states[on.index()].load.taken += 1;
        let cost = self.place(job, on, now, stages, false);
        if over { cost + self.signal(queue, on, now + cost) } else { cost }
    }

    /// Signals the CPUs that a ring's packets went to; returns what it costs CPU `on`.
    fn signal(&mut self, ring: usize, on: CpuId, now: u64) -> u64 {
        let mut owed = std::mem::take(&mut self.rings[ring].owed);
        self.rings[ring].taken = 0;
        let mut cost = 0;
        for to in owed.drain(..) {
            cost += u64::from(self.costs.signal_send);
            self.cpus.states[on.index()].load.signals += 1;
            let at = &mut self.work[to.index()];
            at.unsignalled = false;
            if at.running.is_none()
                && !at.stepping
                && let Some(first) = at.waiting.pop_front()
            {
                self.cpus.states[to.index()].depth -= 1;
                let begin = (now + cost).max(at.free_at);
                at.running = Some(first);
                self.events.push(Reverse((begin + first.cost_ns, to.0)));
            }
        }
        self.rings[ring].owed = owed;
        cost
    }

    fn place<S: Stages>(
        &mut self,
        job: u32,
        on: CpuId,
        now: u64,
        stages: &mut S,
        again: bool,
    ) -> u64 {
        let of = &self.jobs[job as usize];
        let queue = of.queue.index();
        let protocol_ns = self.protocol_ns(of.class);
        let choice = stages.choose(of, on, now, &self.cpus, again);
        if choice.decision.reason == Reason::Shed {
            self.lose(job, Drop::Shed, now, stages);
            return u64::from(choice.cost_ns);
        }
        if choice.is_inline() {
            let cost_ns = protocol_ns;
            let work = Work { job, kind: Kind::ProcessInline, cost_ns };
            if again {
                self.give(on, work, now);
            } else {
                self.work[on.index()].running = Some(work);
            }
            return u64::from(choice.cost_ns);
        }
        let to = choice.decision.cpu;
        let cost_here = u64::from(choice.cost_ns) + u64::from(self.costs.backlog);
        let mut cost_ns = protocol_ns;
        let Some(state) = self.cpus.states.get_mut(to.index()).filter(|s| s.online) else {
            self.lose(job, Drop::Offline, now, stages);
            return cost_here;
        };
        let waiting = state.tail.wrapping_sub(state.head);
        if waiting > self.max_backlog {
            state.load.dropped += 1;
            self.lose(job, Drop::Backlog(to), now, stages);
            return cost_here;
        }
        state.tail = state.tail.wrapping_add(1);
        state.load.max_backlog = state.load.max_backlog.max(waiting + 1);
        if to != on {
            let near = self.cpus.share_cache(on, to);
            cost_ns += u64::from(if near { self.costs.hop_near } else { self.costs.hop_far });
            if waiting == 0 {
                cost_ns += u64::from(self.costs.signal_take);
                self.work[to.index()].unsignalled = true;
                self.rings[queue].owed.push(to);
            }
        }
        stages.queued(&self.jobs[job as usize], &choice, self.cpus.tail(to));
        let begin = now + cost_here;
        self.give(to, Work { job, kind: Kind::Process, cost_ns }, begin);
        cost_here
    }

    fn processed<S: Stages>(&mut self, job: u32, on: CpuId, now: u64, stages: &mut S) -> u64 {
        self.cpus.states[on.index()].load.processed += 1;
        let len = self.jobs[job as usize].len;
        let Some(reading) = stages.processed(&self.jobs[job as usize], on, now) else {
            self.end(job);
            return 0;
        };
        if self.reads_waiting >= Self::MOST_READS {
            self.lose(job, Drop::ModelLimit, now, stages);
            return 0;
        }
        let Some(cpu) = self.cpus.nearest_online(reading.cpu) else {
            self.lose(job, Drop::Offline, now, stages);
            return 0;
        };
        self.reads_waiting += 1;
        let costs = &self.costs;
        let copy = u64::from(len) * u64::from(costs.copy_per_kib) / 1024;
        let mut cost_ns = u64::from(costs.read) + u64::from(reading.work_ns) + copy;
        if cpu != on {
            let near = self.cpus.share_cache(on, cpu);
            cost_ns += u64::from(if near { costs.read_near } else { costs.read_far });
        }
        let mut cost_here = 0;
        if reading.asleep {
            cost_here = u64::from(if cpu == on { costs.wake_local } else { costs.wake_remote });
            cost_ns += u64::from(costs.switch);
        }
        let begin = now + cost_here;
        self.give(cpu, Work { job, kind: Kind::Read, cost_ns }, begin);
        cost_here
    }

    fn protocol_ns(&self, class: Class) -> u64 {
        u64::from(match class {
            Class::Tcp | Class::TcpSyn => self.costs.protocol_tcp,
            Class::Udp | Class::Tunnel => self.costs.protocol_udp,
            Class::Other => self.costs.protocol_other,
        })
    }
}

impl Service for Fifo {
    #[inline]
    fn arrive<S: Stages>(&mut self, job: Job, now_ns: u64, stages: &mut S) {
        self.advance(now_ns, stages);
        let ring = &mut self.rings[job.queue.index()];
        let cpu = ring.irq_cpu;
        if ring.waiting >= self.ring_limit {
            self.cpus.states[cpu.index()].load.dropped += 1;
            stages.dropped(&job, Drop::Ring, now_ns);
            return;
        }
        let interrupt = if ring.waiting == 0 { u64::from(self.costs.interrupt) } else { 0 };
        ring.waiting += 1;
        let cost_ns = u64::from(self.costs.take) + interrupt;
        let job = self.keep(job);
        self.give(cpu, Work { job, kind: Kind::Take, cost_ns }, now_ns);
    }

    #[inline]
    fn advance<S: Stages>(&mut self, until_ns: u64, stages: &mut S) {
        while let Some(&Reverse((time, cpu))) = self.events.peek() {
            if time > until_ns {
                break;
            }
            self.events.pop();
            self.step(time, CpuId(cpu), stages);
        }
    }

    fn drain<S: Stages>(&mut self, stages: &mut S) -> u64 {
        self.advance(u64::MAX, stages);
        self.last_ns
    }

    fn offline<S: Stages>(&mut self, cpu: CpuId, now_ns: u64, stages: &mut S) -> Option<u64> {
        if !self.cpus.set_online(cpu, false) {
            return None;
        }
        let heir = self.cpus.nearest_online(cpu)?;
        for ring in self.rings.iter_mut().filter(|r| r.irq_cpu == cpu) {
            ring.irq_cpu = heir;
        }
        self.work[cpu.index()].unsignalled = false;
        let left = std::mem::take(&mut self.work[cpu.index()].waiting);
        self.cpus.states[cpu.index()].depth = 0;
        let mut taken_over = 0;
        for work in left {
            match work.kind {
                Kind::Process => {
                    let state = &mut self.cpus.states[cpu.index()];
                    state.head = state.head.wrapping_add(1);
                    taken_over += 1;
                    self.place(work.job, heir, now_ns, stages, true);
                }
                Kind::ProcessInline => {
                    taken_over += 1;
                    self.give(heir, work, now_ns);
                }
                Kind::Take | Kind::Read => self.give(heir, work, now_ns),
            }
        }
        for ring in 0..self.rings.len() {
            self.signal(ring, heir, now_ns);
        }
        Some(taken_over)
    }

    fn online(&mut self, cpu: CpuId) {
        self.cpus.set_online(cpu, true);
    }

    fn cpus(&self) -> &Cpus {
        &self.cpus
    }
}
