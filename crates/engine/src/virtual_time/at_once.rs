//! All work of a packet at once, in no time: what the tables alone would do.
//!
//! Always true: backlogs are empty and readers have read when the next packet comes, so nothing is
//! held, merged, reordered, or lost for lack of room.

use rxsteer_core::steer::Reason;
use rxsteer_core::{CpuId, QueueId};

use super::{CpuLoad, Topology, View};
use crate::gro::Train;
use crate::stages::{At, Drop, Stages};

/// Many CPUs that need no time.
#[derive(Debug)]
pub struct AtOnce {
    view: View,
    irq_cpus: Vec<CpuId>,
    last_ns: u64,
}

impl AtOnce {
    /// Makes a host at time 0.
    pub fn new(topology: &Topology) -> Self {
        Self {
            view: View::new(&topology.cpus, topology.cache_numbers.clone()),
            irq_cpus: topology.irq_cpus.clone(),
            last_ns: 0,
        }
    }

    /// Takes a packet that arrives at a queue and does all its work.
    ///
    /// # Panics
    /// If there is no such queue.
    #[inline]
    pub fn arrive<S: Stages>(
        &mut self,
        mut packet: S::Packet,
        queue: QueueId,
        now_ns: u64,
        stages: &mut S,
    ) {
        self.last_ns = self.last_ns.max(now_ns);
        let on = self.irq_cpus[queue.index()];
        self.view.states[on.index()].load.taken += 1;
        let at = At { on, queue, now_ns, again: false };
        let choice = stages.choose(&mut packet, at, &self.view);
        if choice.decision.reason == Reason::Shed {
            return stages.dropped(packet, Drop::Shed, now_ns);
        }
        let to = choice.decision.cpu;
        if !choice.is_inline() {
            let Some(state) = self.view.states.get_mut(to.index()).filter(|s| s.online) else {
                return stages.dropped(packet, Drop::Offline, now_ns);
            };
            state.tail = state.tail.wrapping_add(1);
            state.load.max_backlog = 1;
            let tail = state.tail;
            stages.queued(stages.flow(&packet), at, &choice, tail);
            self.view.states[to.index()].head = tail;
        }
        self.view.states[to.index()].load.processed += 1;
        if let Some(reading) = stages.deliver(Train::one(packet), to, now_ns) {
            let cpu = self.view.nearest_online(reading.cpu);
            let read = stages.read(reading.reader, cpu, now_ns, u32::MAX);
            self.view.states[cpu.index()].load.read += u64::from(read.packets);
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, until_ns: u64) {
        self.last_ns = self.last_ns.max(until_ns);
    }

    /// Returns the time of the last packet.
    pub const fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Takes a CPU offline; the last one stays. Returns whether it went.
    pub fn offline(&mut self, cpu: CpuId) -> bool {
        if !self.view.set_online(cpu, false) {
            return false;
        }
        let heir = self.view.nearest_online(cpu);
        self.irq_cpus.iter_mut().filter(|c| **c == cpu).for_each(|c| *c = heir);
        true
    }

    /// Brings a CPU back.
    pub fn online(&mut self, cpu: CpuId) {
        self.view.set_online(cpu, true);
    }

    /// Returns the state of the CPUs.
    pub const fn cpus(&self) -> &View {
        &self.view
    }

    /// Returns what each CPU that exists did, with whether it is online.
    pub fn loads(&self) -> impl Iterator<Item = (CpuId, bool, CpuLoad)> {
        let states = self.view.states.iter().enumerate().filter(|(_, state)| state.exists);
        states.map(|(id, state)| (CpuId(id as u16), state.online, state.load))
    }
}
