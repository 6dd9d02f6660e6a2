//! What all CPUs of the virtual executor share: rings, backlogs, readers, and what is to be told
//! to other CPUs when a step is over.

use std::collections::VecDeque;

use rxsteer_core::steer::Host as _;
use rxsteer_core::{CpuId, QueueId};

use super::Event;
use super::view::View;
use crate::backlog::{CpuQueue as _, Enqueued, LocalBacklog, Refused};
use crate::costs::Costs;
use crate::machine::Machine;
use crate::overload::governor::{Gate, Governor};
use crate::softirq::Napi;
use crate::stages::{At, Cpus as _, Drop, ReaderId, Reading};

#[derive(Debug)]
pub(super) struct World<P> {
    pub(super) view: View,
    pub(super) rings: Vec<Ring<P>>,
    pub(super) backlogs: Vec<LocalBacklog<Queued<P>>>,
    pub(super) readers: Vec<Reader>,
    pub(super) costs: Costs,
    /// The governor of each CPU; none: rings are never held back.
    pub(super) governors: Vec<Governor>,
    /// Time, and whether a reader of the CPU could run or its backlog has packets, at the packet
    /// boundary that CPU is at.
    pub(super) boundary: (u64, bool),
    /// What the step under way took besides its price.
    pub(super) extra_ns: u64,
    /// Readers that the step woke, and when.
    pub(super) woken: Vec<(ReaderId, u64)>,
    /// Timers that the step set.
    pub(super) timers: Vec<(u64, Event)>,
    /// CPUs that the step signalled, by whom, and after how much of its extra time.
    pub(super) signals: Vec<(CpuId, CpuId, u64)>,
}

/// A packet on its way, who put it on the backlog, and the queue it came in by.
#[derive(Debug)]
pub(super) struct Queued<P> {
    pub(super) packet: P,
    pub(super) from: CpuId,
    pub(super) queue: QueueId,
}

#[derive(Debug)]
pub(super) struct Ring<P> {
    pub(super) cpu: CpuId,
    pub(super) napi: Napi,
    pub(super) packets: VecDeque<P>,
    /// The next packet interrupts, or asks for an interrupt.
    pub(super) armed: bool,
    /// When a packet's interrupt was put off until; 0 if none was.
    pub(super) interrupt_ns: u64,
    /// It is held back until then; 0 if it is not.
    pub(super) held_until_ns: u64,
}

impl<P> Ring<P> {
    pub(super) const fn new(cpu: CpuId, napi: Napi) -> Self {
        Self { cpu, napi, packets: VecDeque::new(), armed: true, interrupt_ns: 0, held_until_ns: 0 }
    }
}

/// A reader, as the scheduler and the deliveries see it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reader {
    pub(super) cpu: CpuId,
    pub(super) vruntime: u64,
    pub(super) runnable: bool,
    /// Something was delivered since it looked last.
    pub(super) news: bool,
    /// Messages delivered and not read, as far as the engine knows.
    pub(super) waiting: u32,
}

impl<P> World<P> {
    /// Moves a reader, with what waits for it.
    pub(super) fn move_reader(&mut self, id: ReaderId, to: CpuId) {
        let reader = &mut self.readers[id.0 as usize];
        let from = std::mem::replace(&mut reader.cpu, to);
        // Virtual runtimes of two CPUs have nothing to do with each other.
        reader.vruntime = 0;
        self.view.states[from.index()].waiting -= reader.waiting;
        self.view.states[to.index()].waiting += reader.waiting;
    }
}

impl<P> Machine<P> for World<P> {
    type Cpus = View;

    #[inline]
    fn cpus(&self) -> &View {
        &self.view
    }

    #[inline]
    fn take(&mut self, queue: QueueId) -> Option<P> {
        let ring = &mut self.rings[queue.index()];
        if let Some(governor) = self.governors.get_mut(ring.cpu.index())
            && !ring.packets.is_empty()
        {
            let (now_ns, readers) = self.boundary;
            if let Gate::NoRing { until_ns } | Gate::Closed { until_ns } =
                governor.ask(now_ns, readers)
            {
                ring.held_until_ns = until_ns;
                return None;
            }
        }
        let packet = ring.packets.pop_front()?;
        self.view.states[ring.cpu.index()].waiting -= 1;
        Some(packet)
    }

    #[inline]
    fn rearm(&mut self, queue: QueueId) -> bool {
        let ring = &mut self.rings[queue.index()];
        if ring.held_until_ns > 0 {
            self.timers.push((ring.held_until_ns, Event::Release(queue)));
            return true;
        }
        ring.armed = ring.packets.is_empty();
        ring.armed
    }

    #[inline]
    fn enqueue(&mut self, at: At, to: CpuId, packet: P) -> Result<Enqueued, (P, Drop)> {
        self.extra_ns += u64::from(self.costs.backlog);
        let Some(state) = self.view.states.get_mut(to.index()).filter(|s| s.online) else {
            return Err((packet, Drop::Offline));
        };
        let queued = Queued { packet, from: at.on, queue: at.queue };
        let backlog = &mut self.backlogs[to.index()];
        let enqueued = match backlog.enqueue(queued) {
            Ok(enqueued) => enqueued,
            Err(Refused::Full(queued)) => {
                state.load.dropped += 1;
                return Err((queued.packet, Drop::Backlog(to)));
            }
            Err(Refused::Closed(queued)) => return Err((queued.packet, Drop::Offline)),
        };
        state.tail = enqueued.tail;
        state.waiting += 1;
        state.load.max_backlog = state.load.max_backlog.max(backlog.waiting());
        Ok(enqueued)
    }

    #[inline]
    fn take_backlog(&mut self, cpu: CpuId) -> Option<(P, CpuId)> {
        let queued = self.backlogs[cpu.index()].take_one()?;
        self.view.states[cpu.index()].waiting -= 1;
        Some((queued.packet, queued.from))
    }

    #[inline]
    fn passed(&mut self, cpu: CpuId, packets: u32) {
        let backlog = &mut self.backlogs[cpu.index()];
        backlog.finish(packets);
        self.view.states[cpu.index()].head = backlog.head();
    }

    #[inline]
    fn complete_backlog(&mut self, cpu: CpuId) -> bool {
        self.backlogs[cpu.index()].complete()
    }

    fn signal(&mut self, from: CpuId, to: CpuId) {
        if from == to {
            return self.signals.push((from, to, self.extra_ns));
        }
        self.signals.push((from, to, self.extra_ns + u64::from(self.costs.signal_reach)));
        self.extra_ns += u64::from(self.costs.signal_send);
        self.view.states[from.index()].load.signals += 1;
    }

    fn poll_at(&mut self, cpu: CpuId, napi: Napi, at_ns: u64) {
        self.timers.push((at_ns, Event::Poll(cpu, napi)));
    }

    #[inline]
    fn wake(&mut self, on: CpuId, reading: Reading, _now_ns: u64) {
        let place = reading.reader.0 as usize;
        if place >= self.readers.len() {
            self.readers.resize(place + 1, Reader::default());
        }
        let asleep = !self.readers[place].runnable;
        if asleep {
            let cpu = self.view.nearest_online(reading.cpu);
            if cpu != self.readers[place].cpu {
                self.move_reader(reading.reader, cpu);
            }
            let costs = &self.costs;
            self.extra_ns +=
                u64::from(if cpu == on { costs.wake_local } else { costs.wake_remote });
            self.view.states[on.index()].load.wakeups += 1;
            self.woken.push((reading.reader, self.extra_ns));
        }
        let reader = &mut self.readers[place];
        reader.runnable = true;
        reader.news = true;
        reader.waiting += 1;
        self.view.states[reader.cpu.index()].waiting += 1;
    }

    #[inline]
    fn spend(&mut self, cost_ns: u64) {
        self.extra_ns += cost_ns;
    }
}

impl<P> World<P> {
    /// Returns what touching a packet of another CPU costs.
    pub(super) fn hop_ns(&self, from: CpuId, to: CpuId) -> u64 {
        let near = self.view.share_cache(from, to);
        u64::from(if near { self.costs.hop_near } else { self.costs.hop_far })
    }

    /// Returns whether packets wait on a CPU's backlog.
    #[inline]
    pub(super) fn has_backlog(&self, cpu: CpuId) -> bool {
        self.backlogs[cpu.index()].waiting() > 0
    }

    /// Lets go of a ring of this CPU that is held back, and returns its instance.
    #[inline]
    pub(super) fn release(&mut self, cpu: CpuId) -> Option<Napi> {
        if self.governors.is_empty() {
            return None;
        }
        let held = |ring: &&mut Ring<P>| ring.cpu == cpu && ring.held_until_ns > 0;
        let ring = self.rings.iter_mut().find(held)?;
        ring.held_until_ns = 0;
        Some(ring.napi)
    }

    /// Returns whether a CPU is online.
    #[inline]
    pub(super) fn is_online(&self, cpu: CpuId) -> bool {
        self.view.is_online(cpu)
    }
}
