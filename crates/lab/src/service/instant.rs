//! All work of a packet at once, in no time: what the tables alone would do.
//!
//! Always true: a backlog is empty when the next packet comes, so nothing is held, dropped or
//! reordered.

use rxsteer_core::CpuId;
use rxsteer_core::steer::{Host as _, Reason};

use super::{Cpus, Drop, Job, Service, Stages};
use crate::host::Host;

/// Service in no time.
#[derive(Debug)]
pub struct Instant {
    cpus: Cpus,
    irq: Vec<CpuId>,
    last_ns: u64,
}

impl Instant {
    /// Makes the service of a host.
    pub fn new(host: &Host) -> Self {
        Self {
            cpus: Cpus::new(&host.cpus, host.cache_numbers()),
            irq: host.queues.iter().map(|q| q.irq_cpu).collect(),
            last_ns: 0,
        }
    }
}

impl Service for Instant {
    #[inline]
    fn arrive<S: Stages>(&mut self, job: Job, now_ns: u64, stages: &mut S) {
        self.last_ns = now_ns;
        let on = self.irq[job.queue.index()];
        self.cpus.states[on.index()].load.taken += 1;
        let choice = stages.choose(&job, on, now_ns, &self.cpus, false);
        if choice.decision.reason == Reason::Shed {
            return stages.dropped(&job, Drop::Shed, now_ns);
        }
        let to = choice.decision.cpu;
        if !choice.is_inline() {
            let Some(state) = self.cpus.states.get_mut(to.index()).filter(|s| s.online) else {
                return stages.dropped(&job, Drop::Offline, now_ns);
            };
            state.tail = state.tail.wrapping_add(1);
            state.load.max_backlog = 1;
            stages.queued(&job, &choice, self.cpus.tail(to));
            let state = &mut self.cpus.states[to.index()];
            state.head = state.tail;
        }
        self.cpus.states[to.index()].load.processed += 1;
        if let Some(reading) = stages.processed(&job, to, now_ns) {
            let cpu = self.cpus.nearest_online(reading.cpu).unwrap_or(reading.cpu);
            self.cpus.states[cpu.index()].load.read += 1;
            stages.read(&job, cpu, now_ns);
        }
    }

    fn advance<S: Stages>(&mut self, until_ns: u64, _stages: &mut S) {
        self.last_ns = self.last_ns.max(until_ns);
    }

    fn drain<S: Stages>(&mut self, _stages: &mut S) -> u64 {
        self.last_ns
    }

    fn offline<S: Stages>(&mut self, cpu: CpuId, _now_ns: u64, _stages: &mut S) -> Option<u64> {
        if !self.cpus.set_online(cpu, false) {
            return None;
        }
        let heir = self.cpus.nearest_online(cpu)?;
        for irq in self.irq.iter_mut().filter(|c| **c == cpu) {
            *irq = heir;
        }
        Some(0)
    }

    fn online(&mut self, cpu: CpuId) {
        self.cpus.set_online(cpu, true);
    }

    fn cpus(&self) -> &Cpus {
        &self.cpus
    }
}
