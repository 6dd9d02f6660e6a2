//! The caller's hand on a host of threads: sending, hot-plugging, moving readers, waiting.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use rxsteer_core::steer::Host as _;
use rxsteer_core::{CpuId, QueueId};

use super::seat::Seat;
use super::world::{Bell, World};
use crate::backlog::Refused;
use crate::{ReaderId, Stages};

/// A host of threads, to send frames to and to change while they run. Shared by any number of threads.
pub struct Host<P, S> {
    pub(super) world: World<P>,
    pub(super) seats: Box<[Mutex<Seat<P, S>>]>,
    /// Held for reading during each run of a CPU, for writing while CPUs come and go.
    gate: RwLock<()>,
    /// The threads are to end once they have nothing to do.
    pub(super) ending: AtomicBool,
    /// A thread has panicked: nobody waits for it any more.
    pub(super) failed: AtomicBool,
}

impl<P: Send, S: Stages<Packet = P>> Host<P, S> {
    pub(super) fn new(world: World<P>, seats: Box<[Mutex<Seat<P, S>>]>) -> Self {
        Self {
            world,
            seats,
            gate: RwLock::new(()),
            ending: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    /// Puts a frame in the ring of a queue, and interrupts its CPU if need be.
    ///
    /// # Errors
    /// The frame comes back if the ring is full, which is counted
    /// ([`ring_dropped`](Self::ring_dropped)).
    ///
    /// # Panics
    /// If there is no such queue.
    #[inline]
    pub fn send(&self, queue: QueueId, frame: P) -> Result<(), P> {
        let ring = &self.world.rings[queue.index()];
        let enqueued = ring.frames.enqueue(frame).map_err(|refused| match refused {
            Refused::Full(frame) | Refused::Closed(frame) => frame,
        })?;
        if enqueued.signal {
            // Read after the enqueue: who moves the queue first tells its new CPU, then schedules
            // it there.
            let cpu = CpuId(ring.cpu.load(Ordering::Acquire));
            self.world.cpus[cpu.index()].bell.ring(Bell::queue(queue));
        }
        Ok(())
    }

    /// Returns the frames that a queue's ring had no room for.
    pub fn ring_dropped(&self, queue: QueueId) -> u64 {
        self.world.rings[queue.index()].frames.dropped()
    }

    /// Returns the time since the host was made, which is the time of its stages.
    pub fn now_ns(&self) -> u64 {
        self.world.now_ns()
    }

    /// Returns whether a CPU is online.
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.world.is_online(cpu)
    }

    /// Returns the packets that wait on a CPU's backlog or are in work there.
    pub fn waiting(&self, cpu: CpuId) -> u32 {
        self.world.waiting(cpu)
    }

    /// Takes a CPU offline, between two runs of all: what waits on its backlog is chosen for again,
    /// in order, and its queues go to another CPU. The last online CPU stays.
    ///
    /// Returns the number of packets of its backlog, or `None` if the CPU stays.
    pub fn offline(&self, cpu: CpuId) -> Option<u64> {
        let _gate = self.closed_gate();
        if !self.world.set_online(cpu, false) {
            return None;
        }
        let heir = self.world.nearest_online(cpu);
        let now_ns = self.now_ns();
        let backlog = &self.world.cpus[cpu.index()].backlog;
        let mut left = Vec::new();
        let mut leaving = self.seat(cpu);
        backlog.close();
        let mut seat = self.seat(heir);
        for (number, ring) in self.world.rings.iter().enumerate() {
            let queue = QueueId(number as u16);
            if ring.cpu.load(Ordering::Relaxed) == cpu.0 {
                leaving.remove_queue(queue);
                seat.add_queue(queue);
                ring.cpu.store(heir.0, Ordering::Release);
                // An interrupt may be on its way to the old CPU, or lost there.
                self.world.cpus[heir.index()].bell.ring(Bell::queue(queue));
            }
        }
        leaving.leave(&self.world, now_ns);
        let count = backlog.drain(&mut left) as u64;
        for queued in left {
            let (packet, queue) = queued.into_parts();
            seat.take_over(&self.world, packet, queue, now_ns);
        }
        seat.send_signals(&self.world, now_ns);
        Some(count)
    }

    /// Brings a CPU back; `false`: it is online or does not exist. Queues that another CPU took over
    /// stay there.
    pub fn online(&self, cpu: CpuId) -> bool {
        let _gate = self.closed_gate();
        if !self.world.set_online(cpu, true) {
            return false;
        }
        self.seat(cpu).cpu.set_leaving(false);
        let shared = &self.world.cpus[cpu.index()];
        shared.backlog.open();
        // It counts as signalled, so it must poll once.
        shared.bell.ring(Bell::FIRST);
        shared.bell.wake();
        true
    }

    /// Moves a reader to another CPU, from its next turn on.
    ///
    /// # Panics
    /// If there is no such reader.
    pub fn move_reader(&self, reader: ReaderId, cpu: CpuId) {
        let reader = &self.world.readers[reader.0 as usize];
        reader.cpu.store(cpu.0, Ordering::Release);
        reader.bell.ring(Bell::FIRST);
    }

    /// Waits until all that was sent is processed and read, which needs that nobody sends meanwhile.
    pub fn settle(&self) {
        while !self.is_settled() && !self.failed.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Everything is empty and everybody slept from before that was looked at until after.
    fn is_settled(&self) -> bool {
        let Some(before) = self.all_asleep() else { return false };
        let empty = self.world.rings.iter().all(|ring| ring.frames.waiting() == 0)
            && self.world.cpus.iter().all(|cpu| cpu.backlog.waiting() == 0);
        empty && self.all_asleep() == Some(before)
    }

    /// Returns how often all threads together woke, if all of them sleep.
    fn all_asleep(&self) -> Option<u64> {
        let cpus = self.world.cpus.iter().enumerate();
        let cpus = cpus.filter(|(id, _)| self.is_online(CpuId(*id as u16)));
        let bells = cpus.map(|(_, cpu)| &cpu.bell);
        bells
            .chain(self.world.readers.iter().map(|reader| &reader.bell))
            .map(Bell::quiet)
            .try_fold(0u64, |sum, wakes| Some(sum.wrapping_add(wakes?)))
    }

    pub(super) fn seat(&self, cpu: CpuId) -> MutexGuard<'_, Seat<P, S>> {
        self.seats[cpu.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open_gate(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed_gate(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P, S> fmt::Debug for Host<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("cpus", &self.seats.len())
            .field("queues", &self.world.rings.len())
            .field("readers", &self.world.readers.len())
            .finish_non_exhaustive()
    }
}
