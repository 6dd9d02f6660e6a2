//! The executor of discrete events: many CPUs in virtual nanoseconds, in one thread.
//!
//! A CPU does one piece of work at a time, and what the piece does shows when it is over. Between
//! two pieces it takes interrupts, then decides who runs: the softirq run under way, a pending
//! softirq, or a task ([`Mode`]). A piece is one packet's worth: taking it, its protocol work, or
//! one turn of a reader. So an interrupt waits for the piece under way: a microsecond or so, but also all
//! of a reader's work on a message, where a kernel would interrupt it.
//!
//! | mode | a pending softirq runs | what is left by a run |
//! | --- | --- | --- |
//! | `inline` | at the next boundary; right after a run that had to stop, the task gets one | wakes `ksoftirqd`, but does not wait for it |
//! | `ksoftirqd` | at the next boundary, unless `ksoftirqd` is runnable | waits for `ksoftirqd` |
//! | `threaded` | never: each instance has a thread | its thread goes on in its turn |
//!
//! Readers take their messages at the beginning of their turn: that is when the kernel takes them
//! off the queue and records the flow. [`Stages::read`] is told the time at which it has them.
//!
//! A CPU that was idle takes its time until its first step ([`Costs::idle_exit`]); packets that come
//! meanwhile wait with the first and need no signal and no wake-up of their own.
//!
//! Always true: equal arrivals and settings give equal results, on any machine; a CPU has at most
//! one event in the heap; time never goes back; every packet that arrives ends once, at the latest
//! in [`VirtualTime::drain`], if the stages let their readers read.
//! [`AtOnce`] is for where time does not matter: it does all work of a packet when it arrives.
//! Elsewhere: what a CPU does with a packet ([`crate::cpu`]); limits ([`crate::softirq`]).

mod at_once;
mod sched;
mod select;
mod view;
mod world;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};

use rxsteer_core::cpu::CpuStates;
use rxsteer_core::{CpuId, QueueId};

pub use at_once::AtOnce;
pub use view::{CpuLoad, View};

use crate::backlog::{CpuQueue as _, LocalBacklog};
use crate::costs::Costs;
use crate::cpu::{Begun, Cpu};
use crate::machine::Machine;
use crate::overload::Governor;
use crate::settings::{Mode, Settings};
use crate::softirq::Napi;
use crate::stages::{At, Drop, ReaderId, Reading, Stages};
use sched::{RunQueue, Task};
use world::{Ring, World};

/// The CPUs and queues of a host.
#[derive(Clone, Debug)]
pub struct Topology {
    /// CPUs that exist and are online.
    pub cpus: CpuStates,
    /// Number of the cache group of each CPU, by id; CPUs of one number share a cache.
    pub cache_numbers: Vec<u32>,
    /// The CPU that takes the interrupts of each queue.
    pub irq_cpus: Vec<CpuId>,
}

/// Many CPUs in virtual time.
#[derive(Debug)]
pub struct VirtualTime<P> {
    settings: Settings,
    cpus: Vec<VirtualCpu<P>>,
    world: World<P>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Events that are not in the heap yet: the heap is in use while they come up.
    coming: Vec<(u64, Event)>,
    last_ns: u64,
}

/// What happens at a time. Of events at the same time the first kind goes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    /// The piece under way of a CPU is over.
    Piece(CpuId),
    /// A queue's interrupt was put off until now.
    Interrupt(QueueId),
    /// A signal of another CPU is there by now.
    Signal(CpuId),
    /// An instance is polled for what it holds.
    Poll(CpuId, Napi),
    /// A queue was held back until now.
    Release(QueueId),
}

#[derive(Debug)]
struct VirtualCpu<P> {
    cpu: Cpu<P>,
    sched: RunQueue,
    /// Virtual runtimes of the threads of the kernel: `ksoftirqd`, then one for each instance.
    threads: Vec<Thread>,
    interrupts: VecDeque<Interrupt>,
    context: Context,
    piece: Option<Piece>,
    /// End of what it did last.
    free_ns: u64,
    /// A run had to stop, and no task had its turn since.
    yielded: bool,
    /// Its piece is over and what follows is being found out.
    stepping: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    vruntime: u64,
    runnable: bool,
}

#[derive(Clone, Copy, Debug)]
enum Interrupt {
    Device(Napi),
    Signal,
}

impl Interrupt {
    /// Returns what taking it costs in ns.
    #[inline]
    fn cost_ns(self, costs: &Costs) -> u64 {
        u64::from(match self {
            Self::Device(_) => costs.interrupt,
            Self::Signal => costs.signal_take,
        })
    }
}

/// On whose behalf packet work is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Context {
    None,
    /// A run of the softirq, ahead of all tasks or as a task.
    Run {
        ksoftirqd: bool,
    },
    /// A poll by the thread of an instance.
    Thread(Napi),
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    kind: Kind,
    /// Price of the piece in ns.
    ns: u64,
    /// Interrupts in it, in ns.
    interrupts_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Packet work.
    Work(Context),
    /// A turn of a reader that has more to read or not.
    Reader { id: u32, more: bool },
    /// Interrupts only.
    Interrupts,
}

impl<P> VirtualTime<P> {
    /// Makes a host at time 0, with nothing under way.
    ///
    /// # Panics
    /// If a queue's CPU does not exist or is offline.
    pub fn new(topology: &Topology, settings: &Settings, costs: &Costs) -> Self {
        let ids = topology.cpus.nr_cpu_ids() as u16;
        let mut cpus: Vec<_> = (0..ids).map(|id| VirtualCpu::new(CpuId(id), settings)).collect();
        let view = View::new(&topology.cpus, topology.cache_numbers.clone());
        let rings = topology.irq_cpus.iter().enumerate().map(|(number, cpu)| {
            assert!(topology.cpus.online.contains(*cpu), "queue {number}: CPU {cpu} is not online");
            let napi = cpus[cpu.index()].add_queue(QueueId(number as u16));
            Ring::new(*cpu, napi)
        });
        let world = World {
            view,
            rings: rings.collect(),
            backlogs: (0..ids).map(|_| LocalBacklog::new(settings.limits.max_backlog)).collect(),
            readers: Vec::new(),
            costs: *costs,
            governors: match settings.govern {
                Some(govern) => (0..ids).map(|_| Governor::new(govern)).collect(),
                None => Vec::new(),
            },
            boundary: (0, false),
            extra_ns: 0,
            woken: Vec::new(),
            timers: Vec::new(),
            signals: Vec::new(),
        };
        Self {
            settings: *settings,
            cpus,
            world,
            events: BinaryHeap::new(),
            coming: Vec::new(),
            last_ns: 0,
        }
    }

    /// Takes a packet that arrives at a queue at `now_ns`, not before the one before it.
    ///
    /// # Panics
    /// If there is no such queue.
    #[inline]
    pub fn arrive<S>(&mut self, packet: P, queue: QueueId, now_ns: u64, stages: &mut S)
    where
        S: Stages<Packet = P>,
    {
        self.advance(now_ns, stages);
        let ring = &mut self.world.rings[queue.index()];
        let cpu = ring.cpu;
        let state = &mut self.world.view.states[cpu.index()];
        if ring.packets.len() >= self.settings.limits.ring as usize {
            state.load.dropped += 1;
            return stages.dropped(packet, Drop::Ring, now_ns);
        }
        ring.packets.push_back(packet);
        state.waiting += 1;
        if !ring.armed {
            return;
        }
        let Settings { interrupt_delay_ns, interrupt_packets, .. } = self.settings;
        if interrupt_delay_ns > 0 && (ring.packets.len() as u64) < u64::from(interrupt_packets) {
            if ring.interrupt_ns == 0 {
                ring.interrupt_ns = now_ns + interrupt_delay_ns;
                self.coming.push((ring.interrupt_ns, Event::Interrupt(queue)));
            }
        } else {
            self.interrupt(queue, now_ns, stages);
        }
        self.enter_coming();
    }

    /// Interrupts the CPU of a queue.
    fn interrupt<S: Stages<Packet = P>>(&mut self, queue: QueueId, now_ns: u64, stages: &mut S) {
        let ring = &mut self.world.rings[queue.index()];
        (ring.armed, ring.interrupt_ns, ring.held_until_ns) = (false, 0, 0);
        let (cpu, napi) = (ring.cpu, ring.napi);
        self.cpus[cpu.index()].interrupts.push_back(Interrupt::Device(napi));
        self.start(cpu, now_ns, stages);
    }

    /// Does all that is over by `until_ns`.
    #[inline]
    pub fn advance<S: Stages<Packet = P>>(&mut self, until_ns: u64, stages: &mut S) {
        let mut events = std::mem::take(&mut self.events);
        loop {
            let Some(mut first) = events.peek_mut() else { break };
            let Reverse((time, event)) = *first;
            if time > until_ns {
                break;
            }
            let again = match event {
                Event::Piece(cpu) => self.step(time, cpu, stages),
                Event::Interrupt(_) | Event::Signal(_) | Event::Poll(..) | Event::Release(_) => {
                    self.timer(time, event, stages);
                    None
                }
            };
            match again {
                Some(end) => {
                    *first = Reverse((end, event));
                    drop(first);
                }
                None => {
                    PeekMut::pop(first);
                }
            }
            // Not `extend`, which sorts anew when it takes that for cheaper.
            self.coming.drain(..).for_each(|event| events.push(Reverse(event)));
        }
        self.events = events;
    }

    fn timer<S: Stages<Packet = P>>(&mut self, now_ns: u64, event: Event, stages: &mut S) {
        match event {
            Event::Piece(_) => {}
            Event::Interrupt(queue) => {
                let ring = &self.world.rings[queue.index()];
                if ring.armed && ring.interrupt_ns == now_ns {
                    self.interrupt(queue, now_ns, stages);
                }
            }
            Event::Signal(cpu) => {
                if self.world.is_online(cpu) {
                    self.cpus[cpu.index()].interrupts.push_back(Interrupt::Signal);
                    self.start(cpu, now_ns, stages);
                }
            }
            Event::Release(queue) => {
                let ring = &mut self.world.rings[queue.index()];
                if ring.held_until_ns == now_ns {
                    self.interrupt(queue, now_ns, stages);
                }
            }
            Event::Poll(cpu, napi) => {
                let at = &mut self.cpus[cpu.index()];
                if self.world.is_online(cpu) && !at.cpu.is_scheduled(napi) {
                    at.interrupts.push_back(Interrupt::Device(napi));
                    self.start(cpu, now_ns, stages);
                }
            }
        }
    }

    /// Does all that is left and returns the time at which the last of it was done.
    pub fn drain<S: Stages<Packet = P>>(&mut self, stages: &mut S) -> u64 {
        self.advance(u64::MAX, stages);
        self.last_ns
    }

    /// Returns the time at which the next piece of work is over, if any is under way.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((time, _))| *time)
    }

    /// Returns whether nothing is under way and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.events.is_empty()
            && self.world.view.states.iter().all(|s| s.waiting == 0 && s.head == s.tail)
    }

    /// Takes a CPU offline; what waits there is taken over by others. The last online CPU stays.
    ///
    /// Returns the number of packets of its backlog that were taken over, or `None` if the CPU
    /// stays.
    pub fn offline<S>(&mut self, cpu: CpuId, now_ns: u64, stages: &mut S) -> Option<u64>
    where
        S: Stages<Packet = P>,
    {
        self.advance(now_ns, stages);
        if !self.world.view.set_online(cpu, false) {
            return None;
        }
        let heir = self.world.view.nearest_online(cpu);
        self.world.backlogs[cpu.index()].close();
        self.move_queues(cpu, heir);
        self.leave(cpu, now_ns, stages);
        self.move_tasks(cpu, heir);
        let mut left = Vec::new();
        let backlog = &mut self.world.backlogs[cpu.index()];
        let taken_over = backlog.drain(&mut left) as u64;
        let state = &mut self.world.view.states[cpu.index()];
        state.head = backlog.head();
        state.waiting -= taken_over as u32;
        for queued in left {
            let at = At { on: heir, queue: queued.queue, now_ns, again: true };
            self.cpus[heir.index()].cpu.take_over(queued.packet, at, &mut self.world, stages);
        }
        // Signals that are owed by then are sent now.
        for to in self.cpus[heir.index()].cpu.take_owed() {
            self.world.signals.push((heir, to, 0));
        }
        self.world.extra_ns = 0;
        self.pass_on(now_ns, stages);
        self.start(heir, now_ns, stages);
        self.enter_coming();
        Some(taken_over)
    }

    /// Tells that messages came to a reader by another way than [`Stages::deliver`], such as from
    /// another reader, and wakes it if it sleeps.
    pub fn wake<S>(&mut self, reading: Reading, messages: u32, now_ns: u64, stages: &mut S)
    where
        S: Stages<Packet = P>,
    {
        self.advance(now_ns, stages);
        self.world.extra_ns = 0;
        for _ in 0..messages {
            Machine::wake(&mut self.world, reading.cpu, reading, now_ns);
        }
        self.world.extra_ns = 0;
        self.pass_on(now_ns, stages);
        self.enter_coming();
    }

    /// Brings a CPU back. Interrupts that another CPU took over stay there.
    pub fn online(&mut self, cpu: CpuId) {
        if self.world.view.set_online(cpu, true) {
            self.cpus[cpu.index()].cpu.set_leaving(false);
            let backlog = &mut self.world.backlogs[cpu.index()];
            backlog.open();
            // It is empty: the first packet signals.
            backlog.complete();
        }
    }

    /// Returns what each CPU that exists did, with whether it is online.
    pub fn loads(&self) -> impl Iterator<Item = (CpuId, bool, CpuLoad)> {
        let states = self.world.view.states.iter().zip(&self.cpus).enumerate();
        states.filter(|(_, (state, _))| state.exists).map(|(id, (state, at))| {
            let (counts, softirq) = (at.cpu.counts(), at.cpu.softirq().counts());
            let load = CpuLoad {
                taken: counts.taken,
                processed: counts.processed,
                squeezed: softirq.squeezed,
                deferred: softirq.deferred,
                ..state.load
            };
            (CpuId(id as u16), state.online, load)
        })
    }

    /// Returns the state of the CPUs.
    pub const fn cpus(&self) -> &View {
        &self.world.view
    }

    /// Begins what is next on a CPU that is idle.
    fn start<S: Stages<Packet = P>>(&mut self, cpu: CpuId, at_ns: u64, stages: &mut S) {
        let at = &self.cpus[cpu.index()];
        let from_ns = at_ns.max(at.free_ns) + at.exit_ns(at_ns, &self.world.costs);
        if at.piece.is_none()
            && !at.stepping
            && let Some(end) = self.select(cpu, from_ns, stages)
        {
            self.coming.push((end, Event::Piece(cpu)));
        }
        // Also those of a poll that was over at once.
        self.coming.append(&mut self.world.timers);
    }

    fn enter_coming(&mut self) {
        self.coming.drain(..).for_each(|event| self.events.push(Reverse(event)));
    }

    /// Ends the piece under way of a CPU and begins the next; returns when that is over.
    #[inline]
    fn step<S>(&mut self, now_ns: u64, cpu: CpuId, stages: &mut S) -> Option<u64>
    where
        S: Stages<Packet = P>,
    {
        self.last_ns = self.last_ns.max(now_ns);
        let at = &mut self.cpus[cpu.index()];
        let piece = at.piece.take().expect("an event is of a piece under way");
        at.stepping = true;
        self.world.extra_ns = 0;
        let load = &mut self.world.view.states[cpu.index()].load;
        load.softirq_ns += piece.interrupts_ns;
        let own_ns = piece.ns - piece.interrupts_ns;
        match piece.kind {
            Kind::Work(context) => {
                at.cpu.finish(now_ns, &mut self.world, stages);
                let ns = own_ns + self.world.extra_ns;
                let took = at.cpu.take_took();
                if let Some(governor) = self.world.governors.get_mut(cpu.index()) {
                    let narrow = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
                    governor.interrupted(narrow(piece.interrupts_ns));
                    match took {
                        Some(took) => governor.took(now_ns, narrow(ns), took),
                        None => governor.spent(narrow(ns)),
                    }
                }
                let load = &mut self.world.view.states[cpu.index()].load;
                if context == (Context::Run { ksoftirqd: false }) {
                    load.softirq_ns += ns;
                } else {
                    load.thread_ns += ns;
                    at.sched.charge(ns);
                }
            }
            Kind::Reader { id, more } => {
                load.reader_ns += own_ns;
                at.sched.charge(own_ns);
                self.turn_over(cpu, id, more);
            }
            Kind::Interrupts => load.softirq_ns += own_ns,
        }
        let free_ns = now_ns + self.world.extra_ns;
        self.last_ns = self.last_ns.max(free_ns);
        self.pass_on(now_ns, stages);
        let end = self.select(cpu, free_ns, stages);
        let at = &mut self.cpus[cpu.index()];
        (at.stepping, at.free_ns) = (false, free_ns);
        self.coming.append(&mut self.world.timers);
        end
    }

    /// Tells other CPUs what the step under way did.
    #[inline]
    fn pass_on<S: Stages<Packet = P>>(&mut self, now_ns: u64, stages: &mut S) {
        while let Some((id, after_ns)) = self.world.woken.pop() {
            let reader = &self.world.readers[id.0 as usize];
            let (cpu, vruntime) = (reader.cpu, reader.vruntime);
            self.cpus[cpu.index()].sched.wake(Task::Reader(id.0), vruntime);
            self.start(cpu, now_ns + after_ns, stages);
        }
        if self.world.signals.is_empty() {
            return;
        }
        let mut signals = std::mem::take(&mut self.world.signals);
        for (from, to, after_ns) in signals.drain(..) {
            if !self.world.is_online(to) {
                continue;
            }
            let at = &mut self.cpus[to.index()];
            if from == to || self.settings.mode == Mode::Threaded {
                at.raise(Cpu::<P>::BACKLOG);
            } else if after_ns > 0 {
                // Not before it is there: a CPU that is busy would take it between two pieces.
                self.coming.push((now_ns + after_ns, Event::Signal(to)));
                continue;
            } else {
                at.interrupts.push_back(Interrupt::Signal);
            }
            self.start(to, now_ns + after_ns, stages);
        }
        self.world.signals = signals;
    }

    /// Ends the packet work of a CPU that goes offline: what it has in hand is done at once.
    fn leave<S: Stages<Packet = P>>(&mut self, cpu: CpuId, now_ns: u64, stages: &mut S) {
        let at = &mut self.cpus[cpu.index()];
        at.cpu.set_leaving(true);
        at.interrupts.clear();
        at.yielded = false;
        loop {
            at.cpu.finish(now_ns, &mut self.world, stages);
            let begun = at.cpu.begin(now_ns, &mut self.world, stages);
            if !matches!(begun, Begun::Step(_)) && !at.cpu.has_ready() {
                break;
            }
        }
        at.context = Context::None;
        at.cpu.softirq_mut().clear();
        // The time of the piece under way is spent all the same.
        if let Some(Piece { kind: kind @ Kind::Work(_), .. }) = &mut at.piece {
            *kind = Kind::Interrupts;
        }
        for to in at.cpu.take_owed() {
            self.world.signals.push((cpu, to, 0));
        }
    }

    /// Gives the queues of a CPU that went offline to another one.
    fn move_queues(&mut self, from: CpuId, to: CpuId) {
        for (number, ring) in self.world.rings.iter_mut().enumerate() {
            if ring.cpu != from {
                continue;
            }
            self.cpus[from.index()].cpu.remove_queue(ring.napi);
            let heir = &mut self.cpus[to.index()];
            (ring.cpu, ring.napi) = (to, heir.add_queue(QueueId(number as u16)));
            (ring.armed, ring.interrupt_ns) = (ring.packets.is_empty(), 0);
            ring.held_until_ns = 0;
            if !ring.armed {
                heir.interrupts.push_back(Interrupt::Device(ring.napi));
            }
            let waiting = ring.packets.len() as u32;
            self.world.view.states[from.index()].waiting -= waiting;
            self.world.view.states[to.index()].waiting += waiting;
        }
    }

    /// Gives the readers of a CPU that went offline to another one; its kernel threads end.
    fn move_tasks(&mut self, from: CpuId, to: CpuId) {
        let leaving = &mut self.cpus[from.index()];
        let in_turn = match leaving.piece {
            Some(Piece { kind: Kind::Reader { id, .. }, .. }) => Some(id),
            _ => None,
        };
        let tasks = leaving.sched.clear();
        leaving.threads.iter_mut().for_each(|thread| thread.runnable = false);
        for task in tasks {
            let Task::Reader(id) = task else { continue };
            // The one whose turn it is moves when that is over.
            if in_turn != Some(id) {
                self.world.move_reader(ReaderId(id), to);
                self.cpus[to.index()].sched.wake(task, 0);
            }
        }
    }
}

impl<P> VirtualCpu<P> {
    fn new(id: CpuId, settings: &Settings) -> Self {
        Self {
            cpu: Cpu::new(id, settings),
            sched: RunQueue::new(settings.slice_ns),
            threads: vec![Thread::default(); 2],
            interrupts: VecDeque::new(),
            context: Context::None,
            piece: None,
            free_ns: 0,
            yielded: false,
            stepping: false,
        }
    }

    fn add_queue(&mut self, queue: QueueId) -> Napi {
        let napi = self.cpu.add_queue(queue);
        let threads = self.threads.len().max(usize::from(napi.0) + 2);
        self.threads.resize(threads, Thread::default());
        napi
    }

    /// Returns what passes before this CPU, without a piece under way, takes the interrupts of
    /// `now_ns`: what its way out of the idle loop takes beyond taking them.
    fn exit_ns(&self, now_ns: u64, costs: &Costs) -> u64 {
        // Who was busy until now has not begun to idle.
        if now_ns <= self.free_ns {
            return 0;
        }
        let taking_ns: u64 = self.interrupts.iter().map(|interrupt| interrupt.cost_ns(costs)).sum();
        u64::from(costs.idle_exit).saturating_sub(taking_ns)
    }

    /// Schedules an instance, and wakes its thread if it has one.
    #[inline]
    fn raise(&mut self, napi: Napi) {
        if self.cpu.schedule(napi) && self.cpu.is_threaded() {
            self.wake_thread(Task::Thread(napi));
        }
    }

    fn thread(&mut self, task: Task) -> &mut Thread {
        let place = match task {
            Task::Thread(napi) => usize::from(napi.0) + 1,
            Task::Ksoftirqd | Task::Reader(_) => 0,
        };
        &mut self.threads[place]
    }

    fn wake_thread(&mut self, task: Task) {
        let thread = self.thread(task);
        if !std::mem::replace(&mut thread.runnable, true) {
            let vruntime = thread.vruntime;
            self.sched.wake(task, vruntime);
        }
    }

    /// The thread that runs has nothing to do.
    fn sleep_thread(&mut self, task: Task) {
        let vruntime = self.sched.sleep();
        *self.thread(task) = Thread { vruntime, runnable: false };
    }
}

#[cfg(test)]
mod tests;
