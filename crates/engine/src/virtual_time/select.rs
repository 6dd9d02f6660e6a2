//! Between two pieces of work: who runs next on a CPU.

use rxsteer_core::CpuId;
use rxsteer_core::steer::Class;

use super::sched::Task;
use super::world::World;
use super::{Context, Interrupt, Kind, Piece, VirtualCpu, VirtualTime};
use crate::cpu::{Begun, Cpu, Work};
use crate::settings::Mode;
use crate::softirq::After;
use crate::stages::{Read, ReaderId, Stages};

impl<P> VirtualTime<P> {
    /// Begins the next piece of work of a CPU that is free at `now_ns`; returns when it is over.
    pub(super) fn select<S>(&mut self, cpu: CpuId, now_ns: u64, stages: &mut S) -> Option<u64>
    where
        S: Stages<Packet = P>,
    {
        let (at, world) = (&mut self.cpus[cpu.index()], &mut self.world);
        let mode = self.settings.mode;
        let mut interrupts_ns = 0;
        // Switches to tasks that find nothing to do, and the one to the task that has.
        let mut switch_ns = 0;
        let (kind, own_ns) = loop {
            while let Some(interrupt) = at.interrupts.pop_front() {
                interrupts_ns += at.interrupted(interrupt, world);
            }
            if at.context != Context::None {
                world.boundary = (now_ns, at.sched.has_readers() || world.has_backlog(cpu));
                match at.cpu.begin(now_ns, world, stages) {
                    Begun::Step(work) => break (Kind::Work(at.context), world.price_ns(cpu, work)),
                    Begun::Over(polled) => {
                        if let Context::Run { .. } = at.context {
                            let softirq = at.cpu.softirq_mut();
                            softirq.polled(polled.napi, polled.packets, polled.through, now_ns);
                        }
                    }
                    Begun::Nothing => at.go_on(now_ns),
                }
            } else if at.cpu.softirq().is_pending() && at.may_run_softirq(mode) {
                at.cpu.softirq_mut().begin_run(now_ns);
                at.context = Context::Run { ksoftirqd: false };
            } else if !at.sched.has_readers()
                && !world.has_backlog(cpu)
                && let Some(napi) = world.release(cpu)
            {
                at.raise(napi);
            } else if let Some((task, switched)) = at.sched.pick() {
                if switched {
                    switch_ns += u64::from(world.costs.switch);
                }
                at.yielded = false;
                match task {
                    Task::Ksoftirqd if at.cpu.softirq().is_pending() => {
                        at.cpu.softirq_mut().begin_run(now_ns);
                        at.context = Context::Run { ksoftirqd: true };
                    }
                    Task::Thread(napi) if at.cpu.is_scheduled(napi) => {
                        at.cpu.begin_poll(napi);
                        at.context = Context::Thread(napi);
                    }
                    Task::Ksoftirqd | Task::Thread(_) => at.sleep_thread(task),
                    Task::Reader(id) => {
                        let begin_ns = now_ns + interrupts_ns + switch_ns;
                        let batch = self.settings.read_batch;
                        if let Some((more, ns)) = world.turn(cpu, id, begin_ns, batch, stages) {
                            break (Kind::Reader { id, more }, ns);
                        }
                        let reader = &mut world.readers[id as usize];
                        (reader.runnable, reader.vruntime) = (false, at.sched.sleep());
                    }
                }
            } else if interrupts_ns + switch_ns > 0 {
                break (Kind::Interrupts, 0);
            } else {
                return None;
            }
        };
        let ns = interrupts_ns + switch_ns + own_ns;
        at.piece = Some(Piece { kind, ns, interrupts_ns });
        Some(now_ns + ns)
    }

    /// A reader's turn is over: it goes on, or sleeps until the next delivery.
    #[inline]
    pub(super) fn turn_over(&mut self, cpu: CpuId, id: u32, more: bool) {
        let reader = &mut self.world.readers[id as usize];
        reader.runnable = more || reader.news;
        let runnable = reader.runnable;
        let sched = &mut self.cpus[cpu.index()].sched;
        if sched.is_current(Task::Reader(id)) {
            if !runnable {
                reader.vruntime = sched.sleep();
            }
            return;
        }
        // Its CPU went offline during its turn, and may be back.
        let heir = self.world.view.nearest_online(cpu);
        self.world.move_reader(ReaderId(id), heir);
        if runnable {
            self.world.woken.push((ReaderId(id), 0));
        }
    }
}

impl<P> VirtualCpu<P> {
    /// Takes an interrupt; returns what it costs in ns.
    #[inline]
    fn interrupted(&mut self, interrupt: Interrupt, world: &World<P>) -> u64 {
        self.raise(match interrupt {
            Interrupt::Device(napi) => napi,
            Interrupt::Signal => Cpu::<P>::BACKLOG,
        });
        // Pending softirqs run at the end of an interrupt, whoever was interrupted.
        self.yielded = false;
        interrupt.cost_ns(&world.costs)
    }

    #[inline]
    fn may_run_softirq(&self, mode: Mode) -> bool {
        match mode {
            Mode::Inline => !self.yielded,
            Mode::Ksoftirqd => !self.threads[0].runnable,
            Mode::Threaded => false,
        }
    }

    /// A poll is over, and the signals before it are sent: goes on with the run, or ends it.
    fn go_on(&mut self, now_ns: u64) {
        match self.context {
            Context::None => {}
            Context::Thread(_) => {
                if !self.cpu.begin_signals() {
                    self.context = Context::None;
                }
            }
            Context::Run { ksoftirqd } => {
                if let Some(napi) = self.cpu.softirq_mut().next(now_ns) {
                    return self.cpu.begin_poll(napi);
                }
                if self.cpu.begin_signals() {
                    return;
                }
                let reschedule = self.sched.is_reschedule_due();
                match self.cpu.softirq_mut().end_pass(now_ns, reschedule) {
                    After::Again => {}
                    After::Idle => self.context = Context::None,
                    // The thread's next run begins at once unless another task is due.
                    After::Deferred if ksoftirqd => self.context = Context::None,
                    After::Deferred => {
                        self.context = Context::None;
                        self.yielded = true;
                        self.wake_thread(Task::Ksoftirqd);
                    }
                }
            }
        }
    }
}

impl<P> World<P> {
    /// Lets a reader take what it can; returns whether it left anything, and what it costs in ns.
    /// `None`: there was nothing.
    fn turn<S>(
        &mut self,
        cpu: CpuId,
        id: u32,
        now_ns: u64,
        batch: u32,
        stages: &mut S,
    ) -> Option<(bool, u64)>
    where
        S: Stages<Packet = P>,
    {
        let costs = &self.costs;
        let call_ns = u64::from(costs.read);
        let Read { messages, packets, bytes, near, far, work_ns, more } =
            stages.read(ReaderId(id), cpu, now_ns + call_ns, batch.max(1));
        let reader = &mut self.readers[id as usize];
        reader.news = false;
        let state = &mut self.view.states[reader.cpu.index()];
        let gone = if messages == 0 { reader.waiting } else { messages.min(reader.waiting) };
        reader.waiting -= gone;
        state.waiting -= gone;
        if messages == 0 {
            return None;
        }
        state.load.read += u64::from(packets);
        let ns = call_ns
            + u64::from(messages - 1) * u64::from(costs.read_next)
            + bytes * u64::from(costs.copy_per_kib) / 1024
            + u64::from(near) * u64::from(costs.read_near)
            + u64::from(far) * u64::from(costs.read_far)
            + work_ns;
        Some((more, ns))
    }

    /// Returns what a step of packet work costs in ns, but for what only its end shows.
    #[inline]
    fn price_ns(&self, cpu: CpuId, work: Work) -> u64 {
        match work {
            Work::Take => u64::from(self.costs.take),
            Work::Merge { from } => {
                from.map_or(0, |from| self.hop_ns(from, cpu)) + u64::from(self.costs.gro)
            }
            Work::Deliver { class, from, .. } => {
                let hop_ns = from.map_or(0, |from| self.hop_ns(from, cpu));
                let protocol_ns = match class {
                    Class::Tcp | Class::TcpSyn => self.costs.protocol_tcp,
                    Class::Udp | Class::Tunnel => self.costs.protocol_udp,
                    Class::Other => self.costs.protocol_other,
                };
                hop_ns + u64::from(protocol_ns)
            }
            // Each signal is charged as it is sent.
            Work::Signal { .. } => 0,
        }
    }
}
