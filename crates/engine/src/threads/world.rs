//! What the threads share: rings, backlogs, bells, and who is online.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rxsteer_core::steer::Host;
use rxsteer_core::{CpuId, QueueId};

use crate::backlog::{Backlog, Enqueued, Refused};
use crate::softirq::Napi;
use crate::virtual_time::Topology;
use crate::{At, Cpus, Drop, Machine, Reading, Settings};

/// What the threads share.
#[derive(Debug)]
pub(super) struct World<P> {
    pub(super) rings: Box<[Ring<P>]>,
    pub(super) cpus: Box<[SharedCpu<P>]>,
    pub(super) readers: Box<[SharedReader]>,
    cache_numbers: Vec<u32>,
    online: AtomicUsize,
    started: Instant,
}

#[derive(Debug)]
pub(super) struct Ring<P> {
    pub(super) frames: Backlog<P>,
    /// The CPU that takes its interrupts.
    pub(super) cpu: AtomicU16,
}

#[derive(Debug)]
pub(super) struct SharedCpu<P> {
    pub(super) exists: bool,
    online: AtomicBool,
    pub(super) backlog: Backlog<Queued<P>>,
    pub(super) bell: Bell,
    pub(super) busy_ns: AtomicU64,
}

#[derive(Debug)]
pub(super) struct SharedReader {
    pub(super) bell: Bell,
    /// Where it is to run.
    pub(super) cpu: AtomicU16,
}

/// A packet on a backlog, who put it there, and the queue it came in by.
#[derive(Debug)]
pub(super) struct Queued<P> {
    packet: P,
    from: CpuId,
    queue: QueueId,
}

impl<P> Queued<P> {
    pub(super) const fn new(packet: P, from: CpuId, queue: QueueId) -> Self {
        Self { packet, from, queue }
    }

    pub(super) fn into_parts(self) -> (P, QueueId) {
        (self.packet, self.queue)
    }
}

/// How a thread is told of work: bits that say which, and its sleep.
#[derive(Debug, Default)]
pub(super) struct Bell {
    bits: AtomicU64,
    thread: OnceLock<Thread>,
    asleep: AtomicBool,
    wakes: AtomicU64,
}

impl Bell {
    /// The bit of a backlog, or of a reader's news.
    pub(super) const FIRST: u64 = 1;

    /// Most queues, each of which has a bit.
    pub(super) const MOST_QUEUES: usize = 63;

    /// Returns the bit of a queue.
    pub(super) const fn queue(queue: QueueId) -> u64 {
        Self::FIRST << (queue.0 + 1)
    }

    /// Tells of work and wakes the thread.
    pub(super) fn ring(&self, bit: u64) {
        // Whoever set the bit before wakes it, or it has not looked since.
        if self.bits.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.wake();
        }
    }

    /// Wakes the thread without news.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Takes the bits.
    pub(super) fn answer(&self) -> u64 {
        // Spares the others the cache line while there is nothing.
        if self.bits.load(Ordering::Acquire) == 0 { 0 } else { self.bits.swap(0, Ordering::AcqRel) }
    }

    /// The calling thread is the one to be woken.
    pub(super) fn is_mine(&self) {
        // A second thread cannot have this bell.
        let _ = self.thread.set(std::thread::current());
    }

    /// Sleeps until work is told of, or for this time. May return for nothing.
    pub(super) fn sleep_for(&self, time: Duration) {
        if self.bits.load(Ordering::Acquire) == 0 {
            std::thread::park_timeout(time);
        }
    }

    /// Sleeps until work is told of. May return for nothing.
    pub(super) fn sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.bits.load(Ordering::SeqCst) == 0 {
            // The thread's token is given back by whoever rings between here and there.
            std::thread::park();
        }
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Returns how often the thread woke, if it sleeps and nothing is told.
    pub(super) fn quiet(&self) -> Option<u64> {
        let wakes = self.wakes.load(Ordering::SeqCst);
        let asleep = self.asleep.load(Ordering::SeqCst);
        (asleep && self.bits.load(Ordering::SeqCst) == 0).then_some(wakes)
    }
}

impl<P> World<P> {
    pub(super) fn new(topology: &Topology, settings: &Settings, readers: &[CpuId]) -> Self {
        let limits = settings.limits;
        let cpu = |id: u32| {
            let exists = topology.cpus.possible.contains(CpuId(id as u16));
            let online = exists && topology.cpus.online.contains(CpuId(id as u16));
            // Nobody puts anything on the backlog of a CPU that is offline.
            let backlog = Backlog::new(if exists { limits.max_backlog } else { 0 });
            if !online {
                backlog.close();
            }
            let online = AtomicBool::new(online);
            SharedCpu { exists, online, backlog, bell: Bell::default(), busy_ns: AtomicU64::new(0) }
        };
        let cpus: Box<[_]> = (0..topology.cpus.nr_cpu_ids()).map(cpu).collect();
        let ring = |cpu: &CpuId| Ring {
            frames: Backlog::new(limits.ring.saturating_sub(1)),
            cpu: AtomicU16::new(cpu.0),
        };
        let reader =
            |cpu: &CpuId| SharedReader { bell: Bell::default(), cpu: AtomicU16::new(cpu.0) };
        Self {
            rings: topology.irq_cpus.iter().map(ring).collect(),
            readers: readers.iter().map(reader).collect(),
            cache_numbers: topology.cache_numbers.clone(),
            online: AtomicUsize::new(
                cpus.iter().filter(|cpu| cpu.online.load(Ordering::Relaxed)).count(),
            ),
            cpus,
            started: Instant::now(),
        }
    }

    /// Returns the time since the start.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Changes whether a CPU is online; refuses to take the last one offline. Only while no thread
    /// is in a run.
    pub(super) fn set_online(&self, cpu: CpuId, online: bool) -> bool {
        let Some(shared) = self.cpus.get(cpu.index()).filter(|cpu| cpu.exists) else {
            return false;
        };
        let count = self.online.load(Ordering::Relaxed);
        if self.is_online(cpu) == online || (!online && count == 1) {
            return false;
        }
        shared.online.store(online, Ordering::Release);
        self.online.store(if online { count + 1 } else { count - 1 }, Ordering::Relaxed);
        true
    }

    /// Returns the online CPU nearest to `cpu`: itself, one of its cache, or the lowest.
    pub(super) fn nearest_online(&self, cpu: CpuId) -> CpuId {
        if self.is_online(cpu) {
            return cpu;
        }
        let ids = || (0..self.cpus.len() as u16).map(CpuId).filter(|cpu| self.is_online(*cpu));
        let near = ids().find(|other| self.share_cache(cpu, *other));
        near.or_else(|| ids().next()).expect("the last online CPU stays")
    }
}

impl<P> Host for World<P> {
    #[inline]
    fn is_online(&self, cpu: CpuId) -> bool {
        self.cpus.get(cpu.index()).is_some_and(|cpu| cpu.online.load(Ordering::Acquire))
    }

    #[inline]
    fn head(&self, cpu: CpuId) -> u32 {
        self.cpus.get(cpu.index()).map_or(0, |cpu| cpu.backlog.head())
    }

    #[inline]
    fn tail(&self, cpu: CpuId) -> u32 {
        self.cpus.get(cpu.index()).map_or(0, |cpu| cpu.backlog.tail())
    }

    /// Read by the backlog, which knows in what order: others move head and tail meanwhile.
    #[inline]
    fn waiting(&self, cpu: CpuId) -> u32 {
        self.cpus.get(cpu.index()).map_or(0, |cpu| cpu.backlog.waiting())
    }
}

impl<P> Cpus for World<P> {
    fn busy_ns(&self, cpu: CpuId) -> u64 {
        self.cpus.get(cpu.index()).map_or(0, |cpu| cpu.busy_ns.load(Ordering::Relaxed))
    }

    fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        match (self.cache_numbers.get(a.index()), self.cache_numbers.get(b.index())) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}

/// The surroundings of one CPU: what is shared, and its own timers.
#[derive(Debug)]
pub(super) struct Surroundings<'w, P> {
    pub(super) world: &'w World<P>,
    /// Instances to be scheduled at a time.
    pub(super) timers: &'w mut Vec<(u64, Napi)>,
}

impl<P> Machine<P> for Surroundings<'_, P> {
    type Cpus = World<P>;

    #[inline]
    fn cpus(&self) -> &World<P> {
        self.world
    }

    #[inline]
    fn take(&mut self, queue: QueueId) -> Option<P> {
        let frames = &self.world.rings[queue.index()].frames;
        let packet = frames.take_one()?;
        frames.finish(1);
        Some(packet)
    }

    #[inline]
    fn rearm(&mut self, queue: QueueId) -> bool {
        self.world.rings[queue.index()].frames.complete()
    }

    #[inline]
    fn enqueue(&mut self, at: At, to: CpuId, packet: P) -> Result<Enqueued, (P, Drop)> {
        let Some(target) = self.world.cpus.get(to.index()) else {
            return Err((packet, Drop::Offline));
        };
        let queued = Queued::new(packet, at.on, at.queue);
        target.backlog.enqueue(queued).map_err(|refused| match refused {
            Refused::Full(queued) => (queued.packet, Drop::Backlog(to)),
            Refused::Closed(queued) => (queued.packet, Drop::Offline),
        })
    }

    #[inline]
    fn may_skip_backlog(&self, cpu: CpuId) -> bool {
        self.world.waiting(cpu) == 0
    }

    #[inline]
    fn take_backlog(&mut self, cpu: CpuId) -> Option<(P, CpuId)> {
        let queued = self.world.cpus[cpu.index()].backlog.take_one()?;
        Some((queued.packet, queued.from))
    }

    #[inline]
    fn passed(&mut self, cpu: CpuId, packets: u32) {
        self.world.cpus[cpu.index()].backlog.finish(packets);
    }

    #[inline]
    fn complete_backlog(&mut self, cpu: CpuId) -> bool {
        self.world.cpus[cpu.index()].backlog.complete()
    }

    fn signal(&mut self, _from: CpuId, to: CpuId) {
        self.world.cpus[to.index()].bell.ring(Bell::FIRST);
    }

    fn poll_at(&mut self, _cpu: CpuId, napi: Napi, at_ns: u64) {
        // Later times of an instance follow from its next poll.
        self.timers.retain(|(_, other)| *other != napi);
        self.timers.push((at_ns, napi));
    }

    #[inline]
    fn wake(&mut self, _on: CpuId, reading: Reading, _now_ns: u64) {
        if let Some(reader) = self.world.readers.get(reading.reader.0 as usize) {
            reader.bell.ring(Bell::FIRST);
        }
    }
}
