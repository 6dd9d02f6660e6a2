//! One CPU with its stages, as the thread that drives it holds it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use rxsteer_core::{CpuId, QueueId};

use super::world::{Surroundings, World};
use crate::cpu::{Begun, Cpu, CpuCounts, Polled};
use crate::softirq::{After, Napi, SoftirqCounts};
use crate::{At, Mode, Settings, Stages};

/// One CPU with its stages.
#[derive(Debug)]
pub(super) struct Seat<P, S> {
    id: CpuId,
    pub(super) cpu: Cpu<P>,
    pub(super) stages: S,
    mode: Mode,
    /// Instance of each queue that is its own.
    napis: Vec<Option<Napi>>,
    /// Scheduled instances, in the mode `threaded`.
    turns: VecDeque<Napi>,
    /// Instances to be scheduled at a time, since they hold packets for merging.
    timers: Vec<(u64, Napi)>,
}

/// What one CPU's thread did, and its stages.
#[derive(Debug)]
pub struct Seated<S> {
    /// The CPU.
    pub cpu: CpuId,
    /// The stages of its thread.
    pub stages: S,
    /// What its receive path did.
    pub counts: CpuCounts,
    /// What its softirq did.
    pub softirq: SoftirqCounts,
    /// Packets that were refused since its backlog was full.
    pub backlog_dropped: u64,
    /// Time spent in runs, in ns of the machine's clock; preemption included.
    pub busy_ns: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ran {
    /// There was nothing to do.
    Idle,
    /// All is done, as far as it goes.
    Done,
    /// It had to stop with work left.
    Stopped,
}

impl<P, S: Stages<Packet = P>> Seat<P, S> {
    pub(super) fn new(id: CpuId, settings: &Settings, queues: usize, stages: S) -> Self {
        Self {
            id,
            cpu: Cpu::new(id, settings),
            stages,
            mode: settings.mode,
            napis: vec![None; queues],
            turns: VecDeque::new(),
            timers: Vec::new(),
        }
    }

    /// Does what there is to do, up to the limits of one run.
    pub(super) fn run(&mut self, world: &World<P>) -> Ran {
        let began_ns = world.now_ns();
        self.answer(world);
        self.ring_timers(began_ns);
        let ran = if self.mode == Mode::Threaded {
            self.turn(world, began_ns)
        } else if self.cpu.softirq().is_pending() {
            self.softirq(world, began_ns)
        } else {
            Ran::Idle
        };
        if ran != Ran::Idle {
            let ns = world.now_ns().saturating_sub(began_ns);
            world.cpus[self.id.index()].busy_ns.fetch_add(ns, Ordering::Relaxed);
        }
        ran
    }

    /// Schedules what the bell tells.
    fn answer(&mut self, world: &World<P>) {
        let mut bits = world.cpus[self.id.index()].bell.answer();
        while bits != 0 {
            let place = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let napi = match place.checked_sub(1) {
                None => Some(Cpu::<P>::BACKLOG),
                // A queue that went to another CPU meanwhile was scheduled there.
                Some(queue) => self.napis.get(queue).copied().flatten(),
            };
            if let Some(napi) = napi {
                self.schedule(napi);
            }
        }
    }

    fn ring_timers(&mut self, now_ns: u64) {
        while let Some(due) = self.timers.iter().position(|(at_ns, _)| *at_ns <= now_ns) {
            let (_, napi) = self.timers.swap_remove(due);
            self.schedule(napi);
        }
    }

    /// Returns the time of the next timer.
    pub(super) fn next_timer_ns(&self) -> Option<u64> {
        self.timers.iter().map(|(at_ns, _)| *at_ns).min()
    }

    fn schedule(&mut self, napi: Napi) {
        if self.cpu.schedule(napi) && self.mode == Mode::Threaded {
            self.turns.push_back(napi);
        }
    }

    fn softirq(&mut self, world: &World<P>, began_ns: u64) -> Ran {
        let mut now_ns = began_ns;
        self.cpu.softirq_mut().begin_run(now_ns);
        loop {
            while let Some(napi) = self.cpu.softirq_mut().next(now_ns) {
                let polled = self.poll(world, napi, now_ns);
                now_ns = world.now_ns();
                let softirq = self.cpu.softirq_mut();
                softirq.polled(polled.napi, polled.packets, polled.through, now_ns);
            }
            self.send_signals(world, now_ns);
            self.answer(world);
            match self.cpu.softirq_mut().end_pass(now_ns, false) {
                After::Again => {}
                After::Idle => return Ran::Done,
                After::Deferred => return Ran::Stopped,
            }
        }
    }

    /// One poll of the instance whose turn it is.
    fn turn(&mut self, world: &World<P>, now_ns: u64) -> Ran {
        let Some(napi) = self.turns.pop_front() else { return Ran::Idle };
        let polled = self.poll(world, napi, now_ns);
        self.send_signals(world, now_ns);
        if !polled.through {
            self.turns.push_back(napi);
        }
        Ran::Stopped
    }

    fn poll(&mut self, world: &World<P>, napi: Napi, now_ns: u64) -> Polled {
        self.cpu.begin_poll(napi);
        let around = &mut Surroundings { world, timers: &mut self.timers };
        loop {
            match self.cpu.begin(now_ns, around, &self.stages) {
                Begun::Step(_) => self.cpu.finish(now_ns, around, &mut self.stages),
                Begun::Over(polled) => return polled,
                Begun::Nothing => unreachable!("a poll under way has a step or is over"),
            }
        }
    }

    /// Sends the signals that are owed.
    pub(super) fn send_signals(&mut self, world: &World<P>, now_ns: u64) {
        if self.cpu.begin_signals() {
            let around = &mut Surroundings { world, timers: &mut self.timers };
            self.cpu.finish(now_ns, around, &mut self.stages);
        }
    }

    /// Chooses again for a packet of a CPU that goes offline.
    pub(super) fn take_over(&mut self, world: &World<P>, packet: P, queue: QueueId, now_ns: u64) {
        let at = At { on: self.id, queue, now_ns, again: true };
        let around = &mut Surroundings { world, timers: &mut self.timers };
        self.cpu.take_over(packet, at, around, &mut self.stages);
    }

    /// Gives the CPU a queue; what is in its ring is polled.
    pub(super) fn add_queue(&mut self, queue: QueueId) {
        let napi = self.cpu.add_queue(queue);
        self.napis[queue.index()] = Some(napi);
    }

    /// Takes a queue away.
    pub(super) fn remove_queue(&mut self, queue: QueueId) {
        if let Some(napi) = self.napis[queue.index()].take() {
            self.cpu.remove_queue(napi);
            self.turns.retain(|turn| *turn != napi);
            self.timers.retain(|(_, timer)| *timer != napi);
        }
    }

    /// Ends the packet work of the CPU between two runs, its queues gone already: what it holds is
    /// delivered, and nothing is scheduled any more.
    pub(super) fn leave(&mut self, world: &World<P>, now_ns: u64) {
        self.cpu.set_leaving(true);
        self.send_signals(world, now_ns);
        let around = &mut Surroundings { world, timers: &mut self.timers };
        while let Begun::Step(_) = self.cpu.begin(now_ns, around, &self.stages) {
            self.cpu.finish(now_ns, around, &mut self.stages);
        }
        self.cpu.softirq_mut().clear();
        self.turns.clear();
        self.timers.clear();
    }

    pub(super) fn finished(self, world: &World<P>) -> Seated<S> {
        let shared = &world.cpus[self.id.index()];
        Seated {
            cpu: self.id,
            counts: self.cpu.counts(),
            softirq: self.cpu.softirq().counts(),
            backlog_dropped: shared.backlog.dropped(),
            busy_ns: shared.busy_ns.load(Ordering::Relaxed),
            stages: self.stages,
        }
    }
}
