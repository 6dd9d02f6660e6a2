//! One CPU: what it does next, one packet's worth at a time.
//!
//! A poll takes packets from a ring or from the backlog, at most `dev_weight` of them, and brings
//! each as far as it goes: to another CPU's backlog, or to a socket. [`Cpu::begin`] says what the
//! next step is, so that an executor can price it, and [`Cpu::finish`] does it. Executors decide
//! when a poll begins, and who runs between two steps.
//!
//! Always true: there is one poll at a time; a packet in hand is passed on before the next one is
//! taken; the head of a backlog moves when a poll is over, by the packets it delivered.
//! Elsewhere: which instance is polled next ([`crate::softirq`]); queues and signals
//! ([`crate::Machine`]).
//! Source: Linux, net/core/dev.c (process_backlog, napi_poll), by their behaviour. Packets are
//! merged behind the choice of the CPU here, as in a cpumap; Linux merges before it.

use std::collections::VecDeque;

use rxsteer_core::steer::{Class, Host as _, Reason};
use rxsteer_core::{CpuId, QueueId};

use crate::backlog::Enqueued;
use crate::flow_limit::FlowLimit;
use crate::gro::{Gro, Segment, Train};
use crate::machine::Machine;
use crate::overload::Took;
use crate::settings::{Mode, Settings};
use crate::softirq::{Napi, Softirq};
use crate::stages::{At, Choice, Drop, Stages};

/// The receive path of one CPU.
#[derive(Debug)]
pub struct Cpu<P> {
    id: CpuId,
    settings: Settings,
    softirq: Softirq,
    instances: Vec<Instance<P>>,
    poll: Option<Poll>,
    hand: Hand<P>,
    /// Merged and to be delivered.
    ready: VecDeque<Train<P>>,
    /// CPUs that are still to be signalled, the last one first.
    owed: Vec<CpuId>,
    flow_limit: Option<FlowLimit>,
    leaving: bool,
    /// What the last step that took a packet was good for.
    took: Option<Took>,
    counts: CpuCounts,
}

/// What one CPU's receive path did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuCounts {
    /// Packets taken from rings.
    pub taken: u64,
    /// Packets whose protocol work is done.
    pub processed: u64,
    /// Trains in which they were delivered.
    pub trains: u64,
    /// Signals sent to other CPUs.
    pub signals: u64,
    /// Polls.
    pub polls: u64,
}

#[derive(Debug)]
struct Instance<P> {
    source: Source,
    scheduled: bool,
    /// What it holds for merging; nothing between polls, unless there is a flush timeout.
    gro: Gro<P>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    Backlog,
    Queue(QueueId),
    /// The queue went to another CPU.
    None,
}

#[derive(Clone, Copy, Debug)]
struct Poll {
    napi: Napi,
    packets: u32,
    flushed: bool,
}

#[derive(Debug)]
enum Hand<P> {
    Empty,
    Taken(P, QueueId),
    Merging { packet: P, segment: Segment, from: Option<CpuId> },
    Train { train: Train<P>, from: Option<CpuId> },
    Signals,
}

/// What a step is, for pricing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Work {
    /// Takes a packet off a ring and chooses its CPU.
    Take,
    /// Compares a packet with those that are held, and merges it or holds it.
    Merge {
        /// The other CPU that put it on the backlog here.
        from: Option<CpuId>,
    },
    /// Does the protocol work of a train.
    Deliver {
        /// Class of its packets.
        class: Class,
        /// Number of its packets.
        packets: u32,
        /// The other CPU that put it on the backlog here.
        from: Option<CpuId>,
    },
    /// Sends signals.
    Signal {
        /// Their number.
        count: u32,
    },
}

/// What comes next on a CPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begun {
    /// A step, to be followed by [`Cpu::finish`].
    Step(Work),
    /// The poll is over.
    Over(Polled),
    /// No poll is under way and no signal is owed.
    Nothing,
}

/// A poll that is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Polled {
    /// The instance.
    pub napi: Napi,
    /// Packets taken.
    pub packets: u32,
    /// Whether it completed; if not, it stays scheduled.
    pub through: bool,
}

impl<P> Cpu<P> {
    /// The instance that stands for the backlog.
    pub const BACKLOG: Napi = Napi(0);

    /// Makes a CPU with a backlog and no queue.
    pub fn new(id: CpuId, settings: &Settings) -> Self {
        Self {
            id,
            settings: *settings,
            softirq: Softirq::new(settings.limits),
            instances: vec![Instance::new(Source::Backlog)],
            poll: None,
            hand: Hand::Empty,
            ready: VecDeque::new(),
            owed: Vec::new(),
            flow_limit: flow_limit(settings.flow_limit_buckets),
            leaving: false,
            took: None,
            counts: CpuCounts::default(),
        }
    }

    /// Gives the CPU a queue and returns its instance, which is not scheduled.
    ///
    /// # Panics
    /// At 65,535 instances.
    pub fn add_queue(&mut self, queue: QueueId) -> Napi {
        let new = Instance::new(Source::Queue(queue));
        let free = |i: &Instance<P>| i.source == Source::None && !i.scheduled;
        let place = match self.instances.iter().position(free) {
            Some(place) => {
                self.instances[place] = new;
                place
            }
            None => {
                self.instances.push(new);
                self.instances.len() - 1
            }
        };
        Napi(u16::try_from(place).expect("queues are numbered in 16 bits"))
    }

    /// Takes a queue away; what was taken from it already stays here and is to be delivered by
    /// steps that follow, what is held for merging included.
    pub fn remove_queue(&mut self, napi: Napi) {
        let instance = &mut self.instances[usize::from(napi.0)];
        instance.source = Source::None;
        instance.gro.flush(|train| self.ready.push_back(train));
        if self.poll.is_none_or(|poll| poll.napi != napi) {
            instance.scheduled = false;
            self.softirq.remove(napi);
        }
    }

    /// Schedules an instance; `false`: it was already.
    ///
    /// In the mode [`Mode::Threaded`] its thread is to be woken, else the softirq is pending.
    #[inline]
    pub fn schedule(&mut self, napi: Napi) -> bool {
        let instance = &mut self.instances[usize::from(napi.0)];
        if instance.scheduled {
            return false;
        }
        instance.scheduled = true;
        if self.settings.mode != Mode::Threaded {
            self.softirq.schedule(napi);
        }
        true
    }

    /// Returns whether an instance is scheduled.
    pub fn is_scheduled(&self, napi: Napi) -> bool {
        self.instances[usize::from(napi.0)].scheduled
    }

    /// Returns whether each instance has a thread of its own.
    #[inline]
    pub fn is_threaded(&self) -> bool {
        self.settings.mode == Mode::Threaded
    }

    /// Returns the poll list.
    #[inline]
    pub const fn softirq(&self) -> &Softirq {
        &self.softirq
    }

    /// Returns the poll list, for running it.
    #[inline]
    pub const fn softirq_mut(&mut self) -> &mut Softirq {
        &mut self.softirq
    }

    /// Returns what was counted.
    pub const fn counts(&self) -> CpuCounts {
        self.counts
    }

    /// Returns what the last step was good for, if it took a packet off a ring.
    #[inline]
    pub const fn take_took(&mut self) -> Option<Took> {
        self.took.take()
    }

    /// Begins a poll of a scheduled instance.
    #[inline]
    pub fn begin_poll(&mut self, napi: Napi) {
        debug_assert!(self.poll.is_none() && self.is_scheduled(napi));
        self.counts.polls += 1;
        self.poll = Some(Poll { napi, packets: 0, flushed: false });
        // Signals that are owed go out before the backlog is polled.
        if napi == Self::BACKLOG && !self.owed.is_empty() {
            self.hand = Hand::Signals;
        }
    }

    /// Sends the signals that are owed, as a step of its own; `false`: there are none.
    ///
    /// To be called when a pass over the poll list, or a thread's round, is over.
    #[inline]
    pub fn begin_signals(&mut self) -> bool {
        if self.owed.is_empty() {
            return false;
        }
        self.hand = Hand::Signals;
        true
    }

    /// Picks up the next piece of work and says what it is.
    #[inline]
    pub fn begin<M, S>(&mut self, now_ns: u64, machine: &mut M, stages: &S) -> Begun
    where
        M: Machine<P>,
        S: Stages<Packet = P>,
    {
        loop {
            match &self.hand {
                Hand::Empty => {}
                Hand::Taken(..) => return Begun::Step(Work::Take),
                Hand::Merging { from, .. } => {
                    return Begun::Step(Work::Merge { from: *from });
                }
                Hand::Train { train, from } => {
                    return Begun::Step(Work::Deliver {
                        class: stages.class(train.first()),
                        packets: train.count() as u32,
                        from: *from,
                    });
                }
                Hand::Signals => {
                    return Begun::Step(Work::Signal { count: self.owed.len() as u32 });
                }
            }
            if let Some(train) = self.ready.pop_front() {
                self.hand = Hand::Train { train, from: None };
                continue;
            }
            let Some(poll) = &mut self.poll else { return Begun::Nothing };
            if !poll.flushed && poll.packets < self.settings.limits.weight && !self.leaving {
                match self.instances[usize::from(poll.napi.0)].source {
                    Source::Queue(queue) => {
                        if let Some(packet) = machine.take(queue) {
                            poll.packets += 1;
                            self.counts.taken += 1;
                            self.hand = Hand::Taken(packet, queue);
                            continue;
                        }
                    }
                    Source::Backlog => {
                        if let Some((packet, from)) = machine.take_backlog(self.id) {
                            poll.packets += 1;
                            let from = (from != self.id).then_some(from);
                            self.hand = self.unmerged(packet, from, stages);
                            continue;
                        }
                    }
                    Source::None => {}
                }
            }
            if self.settings.gro && !std::mem::replace(&mut poll.flushed, true) {
                self.flush(now_ns);
                continue;
            }
            return Begun::Over(self.end_poll(now_ns, machine));
        }
    }

    /// Makes ready what is held for merging when a poll takes no more: all of it, unless a queue
    /// that is through waits for more until a timeout.
    fn flush(&mut self, now_ns: u64) {
        let Some(Poll { napi, packets, .. }) = self.poll else { return };
        let Instance { source, gro, .. } = &mut self.instances[usize::from(napi.0)];
        if gro.is_empty() {
            return;
        }
        let out = |train| self.ready.push_back(train);
        let timeout_ns = self.settings.gro_flush_ns;
        let through = packets < self.settings.limits.weight && !self.leaving;
        if timeout_ns == 0 || !through || !matches!(source, Source::Queue(_)) {
            return gro.flush(out);
        }
        gro.flush_older((now_ns + 1).saturating_sub(timeout_ns), out);
    }

    /// Returns the next step of a packet that is to be processed here.
    #[inline]
    fn unmerged<S: Stages<Packet = P>>(
        &self,
        packet: P,
        from: Option<CpuId>,
        stages: &S,
    ) -> Hand<P> {
        if self.settings.gro
            && let Some(segment) = stages.segment(&packet)
        {
            return Hand::Merging { packet, segment, from };
        }
        Hand::Train { train: Train::one(packet), from }
    }

    fn end_poll<M: Machine<P>>(&mut self, now_ns: u64, machine: &mut M) -> Polled {
        let Poll { napi, packets, .. } = self.poll.take().expect("the caller saw it");
        let instance = &mut self.instances[usize::from(napi.0)];
        let full = packets >= self.settings.limits.weight;
        let through = match instance.source {
            Source::Backlog => {
                machine.passed(self.id, packets);
                self.leaving || (!full && machine.complete_backlog(self.id))
            }
            Source::Queue(queue) => self.leaving || (!full && machine.rearm(queue)),
            Source::None => true,
        };
        instance.scheduled = !through;
        if through && let Some(oldest_ns) = instance.gro.oldest_ns() {
            // Not before the poll is over: while it delivers, it is scheduled, and a timer that
            // goes off then would find nothing to do.
            let at_ns = (oldest_ns + self.settings.gro_flush_ns).max(now_ns);
            machine.poll_at(self.id, napi, at_ns);
        }
        Polled { napi, packets, through }
    }

    /// Does the step that [`begin`](Self::begin) named; it ends at `now_ns`.
    #[inline]
    pub fn finish<M, S>(&mut self, now_ns: u64, machine: &mut M, stages: &mut S)
    where
        M: Machine<P>,
        S: Stages<Packet = P>,
    {
        match std::mem::replace(&mut self.hand, Hand::Empty) {
            Hand::Empty => {}
            Hand::Taken(packet, queue) => {
                let at = At { on: self.id, queue, now_ns, again: false };
                self.place(packet, at, machine, stages);
            }
            Hand::Merging { packet, segment, .. } => {
                // A packet is in hand only during a poll.
                let napi = self.poll.map_or(Self::BACKLOG, |poll| poll.napi);
                let gro = &mut self.instances[usize::from(napi.0)].gro;
                gro.push(packet, Some(segment), now_ns, |train| self.ready.push_back(train));
            }
            Hand::Train { train, .. } => self.deliver(train, now_ns, machine, stages),
            Hand::Signals => {
                while let Some(to) = self.owed.pop() {
                    self.counts.signals += 1;
                    machine.signal(self.id, to);
                }
            }
        }
    }

    /// Takes over a packet that was on the backlog of a CPU which is going offline: chooses again.
    ///
    /// `at.on` is this CPU. What would be done at once goes on its own backlog.
    pub fn take_over<M, S>(&mut self, packet: P, at: At, machine: &mut M, stages: &mut S)
    where
        M: Machine<P>,
        S: Stages<Packet = P>,
    {
        debug_assert!(at.again && at.on == self.id);
        self.place(packet, at, machine, stages);
    }

    #[inline]
    fn place<M, S>(&mut self, mut packet: P, at: At, machine: &mut M, stages: &mut S)
    where
        M: Machine<P>,
        S: Stages<Packet = P>,
    {
        let choice = stages.choose(&mut packet, at, machine.cpus());
        machine.spend(u64::from(choice.cost_ns));
        if choice.decision.reason == Reason::Shed {
            self.took = Some(Took::Wasted);
            return stages.dropped(packet, Drop::Shed, at.now_ns);
        }
        let protected = self.settings.govern.is_some() && stages.protects(&packet);
        let elsewhere = choice.decision.cpu != self.id;
        self.took = Some(if elsewhere {
            Took::Elsewhere { protected }
        } else {
            Took::Useful { protected }
        });
        // What stays on a CPU whose backlog is empty has nothing before it there that it could
        // overtake; what this poll holds of its flow goes first, here as on its way elsewhere.
        let stays = choice.is_inline() || (!elsewhere && machine.may_skip_backlog(self.id));
        if stays && !at.again {
            self.hand = self.unmerged(packet, None, stages);
            return;
        }
        if let Some(train) = self.held_of_flow(&packet, stages) {
            // It was processed here until now, and must not be overtaken on the other CPU.
            self.deliver(train, at.now_ns, machine, stages);
        }
        self.enqueue(packet, at, choice, machine, stages);
    }

    /// Returns what the poll under way, or an earlier one of its queue, holds of a packet's flow.
    #[inline]
    fn held_of_flow<S: Stages<Packet = P>>(&mut self, packet: &P, stages: &S) -> Option<Train<P>> {
        let gro = &mut self.instances[usize::from(self.poll?.napi.0)].gro;
        if gro.is_empty() {
            return None;
        }
        gro.take(&stages.segment(packet)?)
    }

    fn deliver<M, S>(&mut self, train: Train<P>, now_ns: u64, machine: &mut M, stages: &mut S)
    where
        M: Machine<P>,
        S: Stages<Packet = P>,
    {
        self.counts.trains += 1;
        self.counts.processed += train.count() as u64;
        if let Some(reading) = stages.deliver(train, self.id, now_ns) {
            machine.wake(self.id, reading, now_ns);
        }
    }

    fn enqueue<M, S>(&mut self, packet: P, at: At, choice: Choice, machine: &mut M, stages: &mut S)
    where
        M: Machine<P>,
        S: Stages<Packet = P>,
    {
        let to = choice.decision.cpu;
        if let Some(limit) = &mut self.flow_limit {
            let waiting = machine.cpus().waiting(to);
            let max_backlog = self.settings.limits.max_backlog;
            if !limit.allows(stages.hash(&packet), waiting, max_backlog) {
                self.took = Some(Took::Wasted);
                return stages.dropped(packet, Drop::FlowLimit(to), at.now_ns);
            }
        }
        let flow = stages.flow(&packet);
        let Enqueued { tail, signal } = match machine.enqueue(at, to, packet) {
            Ok(enqueued) => enqueued,
            Err((packet, cause)) => {
                self.took = Some(Took::Wasted);
                return stages.dropped(packet, cause, at.now_ns);
            }
        };
        if !choice.is_inline() {
            stages.queued(flow, at, &choice, tail);
        }
        if signal {
            if to == self.id {
                machine.signal(self.id, to);
            } else if self.settings.mode == Mode::Threaded {
                self.counts.signals += 1;
                machine.signal(self.id, to);
            } else {
                self.owed.push(to);
            }
        }
    }

    /// The CPU goes offline or comes back. While it leaves, a poll under way takes no more packets
    /// and nothing else is scheduled.
    pub fn set_leaving(&mut self, leaving: bool) {
        self.leaving = leaving;
        if leaving && self.poll.is_none_or(|poll| poll.napi != Self::BACKLOG) {
            self.instances[0].scheduled = false;
            self.softirq.remove(Self::BACKLOG);
        }
    }

    /// Returns whether something is to be delivered that no poll will come back for.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Gives up the signals that are owed, so that another CPU sends them.
    pub fn take_owed(&mut self) -> Vec<CpuId> {
        std::mem::take(&mut self.owed)
    }
}

impl<P> Instance<P> {
    fn new(source: Source) -> Self {
        Self { source, scheduled: false, gro: Gro::new() }
    }
}

/// The nearest number of buckets that there can be; none for 0.
fn flow_limit(buckets: u32) -> Option<FlowLimit> {
    if buckets == 0 {
        return None;
    }
    let buckets = buckets.min(FlowLimit::MOST_BUCKETS).next_power_of_two();
    Some(FlowLimit::new(buckets).expect("a power of two, and not too large"))
}
