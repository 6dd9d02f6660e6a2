//! One policy on one host: its ledger, driven by an executor through the items of the front.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use rxsteer_core::table::Epoch;
use rxsteer_core::{CpuId, QueueId};
use rxsteer_engine::Reading;
use rxsteer_engine::virtual_time::{AtOnce, CpuLoad, View, VirtualTime};

use super::decisions::Observer;
use super::item::{Item, Timed};
use super::job::Job;
use super::ledger::Ledger;
use crate::consumer::{Change, Event};
use crate::host::Host;
use crate::report::PolicyReport;

/// A policy that takes in the items of a replay.
pub(super) trait Run: Send {
    /// Takes in items, in order of time.
    fn run(&mut self, items: &[Timed]);

    /// Does what is left and closes the books; the run lasted `span_ns` at least.
    fn finish(self: Box<Self>, span_ns: u64) -> PolicyReport;
}

/// What does the work of a policy's packets, in time or at once.
pub(super) trait Executor {
    fn arrive(&mut self, job: Job, now_ns: u64, ledger: &mut Ledger);
    fn advance(&mut self, until_ns: u64, ledger: &mut Ledger);
    /// Does what is left; returns when the last of it was done.
    fn drain(&mut self, ledger: &mut Ledger) -> u64;
    /// Returns the packets that were taken over; `None`: the CPU stays.
    fn offline(&mut self, cpu: CpuId, now_ns: u64, ledger: &mut Ledger) -> Option<u64>;
    fn online(&mut self, cpu: CpuId);
    /// Messages came to a reader from another one.
    fn wake(&mut self, reading: Reading, messages: u32, now_ns: u64, ledger: &mut Ledger);
    fn cpus(&self) -> &View;
    fn loads(&self) -> Vec<(CpuId, bool, CpuLoad)>;
}

impl Executor for VirtualTime<Job> {
    #[inline]
    fn arrive(&mut self, job: Job, now_ns: u64, ledger: &mut Ledger) {
        let queue: QueueId = job.queue;
        VirtualTime::arrive(self, job, queue, now_ns, ledger);
    }

    fn advance(&mut self, until_ns: u64, ledger: &mut Ledger) {
        VirtualTime::advance(self, until_ns, ledger);
    }

    fn drain(&mut self, ledger: &mut Ledger) -> u64 {
        VirtualTime::drain(self, ledger)
    }

    fn offline(&mut self, cpu: CpuId, now_ns: u64, ledger: &mut Ledger) -> Option<u64> {
        VirtualTime::offline(self, cpu, now_ns, ledger)
    }

    fn online(&mut self, cpu: CpuId) {
        VirtualTime::online(self, cpu);
    }

    fn wake(&mut self, reading: Reading, messages: u32, now_ns: u64, ledger: &mut Ledger) {
        VirtualTime::wake(self, reading, messages, now_ns, ledger);
    }

    fn cpus(&self) -> &View {
        VirtualTime::cpus(self)
    }

    fn loads(&self) -> Vec<(CpuId, bool, CpuLoad)> {
        VirtualTime::loads(self).collect()
    }
}

impl Executor for AtOnce {
    #[inline]
    fn arrive(&mut self, job: Job, now_ns: u64, ledger: &mut Ledger) {
        let queue = job.queue;
        AtOnce::arrive(self, job, queue, now_ns, ledger);
    }

    fn advance(&mut self, until_ns: u64, _ledger: &mut Ledger) {
        AtOnce::advance(self, until_ns);
    }

    fn drain(&mut self, _ledger: &mut Ledger) -> u64 {
        self.last_ns()
    }

    fn offline(&mut self, cpu: CpuId, _now_ns: u64, _ledger: &mut Ledger) -> Option<u64> {
        AtOnce::offline(self, cpu).then_some(0)
    }

    fn online(&mut self, cpu: CpuId) {
        AtOnce::online(self, cpu);
    }

    fn wake(&mut self, _: Reading, _: u32, _: u64, _: &mut Ledger) {
        // Nothing ever waits.
    }

    fn cpus(&self) -> &View {
        AtOnce::cpus(self)
    }

    fn loads(&self) -> Vec<(CpuId, bool, CpuLoad)> {
        AtOnce::loads(self).collect()
    }
}

/// A policy on a host under an executor.
#[derive(Debug)]
pub(super) struct Lane<S> {
    pub(super) executor: S,
    pub(super) ledger: Ledger,
    pub(super) host: Arc<Host>,
    pub(super) events: Arc<[Event]>,
    pub(super) observer: Option<Observer>,
}

impl<S: Executor + Send> Run for Lane<S> {
    fn run(&mut self, items: &[Timed]) {
        for timed in items {
            if let Item::Packet(job) = timed.item {
                self.ledger.arrived(timed.ns);
                self.executor.arrive(job, timed.ns, &mut self.ledger);
                continue;
            }
            self.executor.advance(timed.ns, &mut self.ledger);
            match timed.item {
                Item::Packet(_) => {}
                Item::Sent { socket, socket_use } => self.ledger.sent(socket, socket_use),
                Item::Open(opened) => self.ledger.opened(&opened),
                Item::Connect { socket } => self.ledger.connected(socket),
                Item::Disconnect { socket } => self.ledger.disconnected(socket),
                Item::Close { socket } => self.ledger.closed(socket),
                Item::Place { socket, cpu } => {
                    if let Some((reading, messages)) = self.ledger.placed(socket, cpu) {
                        self.executor.wake(reading, messages, timed.ns, &mut self.ledger);
                    }
                }
                Item::End(end_ns) => self.ledger.ends_at(end_ns),
                Item::Event(number) => self.event(number as usize, timed.ns),
            }
        }
        self.tell();
    }

    fn finish(mut self: Box<Self>, span_ns: u64) -> PolicyReport {
        let end_ns = self.executor.drain(&mut self.ledger).max(span_ns);
        self.tell();
        self.ledger.report(&self.executor.loads(), end_ns)
    }
}

impl<S: Executor> Lane<S> {
    /// Tells the observer of the decisions since the last time.
    fn tell(&mut self) {
        if let Some(observer) = &self.observer {
            let kind = self.ledger.kind;
            self.ledger.drain_decisions(|chosen| observer.tell(kind, chosen));
        }
    }

    fn event(&mut self, number: usize, now_ns: u64) {
        let events = Arc::clone(&self.events);
        match &events[number].change {
            Change::Mask { queue, mask } => {
                let queues = match queue {
                    Some(queue) => usize::from(*queue)..usize::from(*queue) + 1,
                    None => 0..self.host.queues.len(),
                };
                for queue in queues {
                    // The mask is cut to the CPUs that are online now, as at each write.
                    let Ok((cpus, _)) = self.host.resolve(queue, mask) else { continue };
                    let cpus = cpus.intersection(&self.executor.cpus().online());
                    self.ledger.tables.set_map(queue, &cpus);
                }
            }
            Change::Offline(cpu) => {
                let packets = self.executor.offline(*cpu, now_ns, &mut self.ledger);
                self.ledger.rehomed(packets.unwrap_or(0));
            }
            Change::Online(cpu) => self.executor.online(*cpu),
            Change::Resize(sizes) => self.ledger.tables.resize(sizes, Epoch::from_ns(now_ns)),
            // The front tells where each thread goes.
            Change::Migrate { .. } => {}
        }
    }
}

/// All lanes, in this thread or spread over others; the result is the same.
pub(super) enum Lanes {
    Here(Vec<Box<dyn Run>>),
    Threads(Vec<Worker>),
}

pub(super) struct Worker {
    items: SyncSender<Arc<Vec<Timed>>>,
    thread: JoinHandle<Vec<Box<dyn Run>>>,
}

/// Batches that may wait for a thread.
const BATCHES_AHEAD: usize = 8;

impl Lanes {
    /// Spreads lanes over `threads` threads besides the caller's; 0 for none.
    pub(super) fn new(lanes: Vec<Box<dyn Run>>, threads: usize) -> Self {
        let threads = threads.min(lanes.len());
        if threads == 0 {
            return Self::Here(lanes);
        }
        let mut shares: Vec<Vec<Box<dyn Run>>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, lane) in lanes.into_iter().enumerate() {
            shares[index % threads].push(lane);
        }
        Self::Threads(shares.into_iter().map(Worker::start).collect())
    }

    /// Gives items to every lane and returns an empty vector for the next.
    pub(super) fn run(&mut self, items: Vec<Timed>) -> Vec<Timed> {
        match self {
            Self::Here(lanes) => {
                let mut items = items;
                for lane in lanes {
                    lane.run(&items);
                }
                items.clear();
                items
            }
            Self::Threads(workers) => {
                let capacity = items.capacity();
                let items = Arc::new(items);
                for worker in workers {
                    // A closed channel means that the thread panicked: `finish` passes that on.
                    let _ = worker.items.send(Arc::clone(&items));
                }
                Vec::with_capacity(capacity)
            }
        }
    }

    /// Returns the reports in the order of the lanes.
    pub(super) fn finish(self, span_ns: u64) -> Vec<PolicyReport> {
        match self {
            Self::Here(lanes) => lanes.into_iter().map(|lane| lane.finish(span_ns)).collect(),
            Self::Threads(workers) => {
                let mut shares: Vec<_> = workers
                    .into_iter()
                    .map(|worker| {
                        drop(worker.items);
                        let lanes = worker.thread.join();
                        lanes.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).into_iter()
                    })
                    .collect();
                let mut reports = Vec::new();
                while let Some(lane) = {
                    let next = reports.len() % shares.len();
                    shares[next].next()
                } {
                    reports.push(lane.finish(span_ns));
                }
                reports
            }
        }
    }
}

impl Worker {
    fn start(mut lanes: Vec<Box<dyn Run>>) -> Self {
        let (items, received) = sync_channel::<Arc<Vec<Timed>>>(BATCHES_AHEAD);
        let thread = std::thread::spawn(move || {
            for batch in received {
                for lane in &mut lanes {
                    lane.run(&batch);
                }
            }
            lanes
        });
        Self { items, thread }
    }
}
