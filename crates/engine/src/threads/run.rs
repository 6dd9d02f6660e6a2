//! Starting the threads of a host, and ending them.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rxsteer_core::steer::Host as _;
use rxsteer_core::{CpuId, QueueId};

use super::host::Host;
use super::pin::Pins;
use super::seat::{Ran, Seat, Seated};
use super::world::{Bell, World};
use crate::backlog::Backlog;
use crate::virtual_time::Topology;
use crate::{Mode, ReaderId, Settings, Stages};

/// A host of threads.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its CPUs and queues. CPUs beyond those of the machine share what the machine has.
    pub topology: Topology,
    /// How it works. `slice_ns` is the machine's affair, and this device never puts interrupts off.
    pub settings: Settings,
    /// The CPU on which each reader starts.
    pub readers: Vec<CpuId>,
    /// Whether threads are pinned to CPUs of the machine.
    pub pin: bool,
}

/// Why a host was not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SetupError {
    /// More queues than this executor has bits for: 63.
    TooManyQueues(usize),
    /// This queue's CPU is not online.
    QueueOffline(QueueId),
    /// This reader's CPU does not exist.
    NoReaderCpu(ReaderId),
    /// No CPU is online.
    NoCpu,
    /// A ring or a backlog of more packets than 1,048,576.
    TooLong(u32),
    /// The settings ask for the governor, which is for virtual time.
    Governed,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyQueues(count) => {
                write!(f, "{count} queues: at most {} are possible", Bell::MOST_QUEUES)
            }
            Self::QueueOffline(queue) => write!(f, "the CPU of queue {queue} is not online"),
            Self::NoReaderCpu(reader) => write!(f, "the CPU of reader {} does not exist", reader.0),
            Self::NoCpu => f.write_str("no CPU is online"),
            Self::TooLong(count) => {
                let most = Backlog::<()>::MOST_PACKETS;
                write!(f, "room for {count} packets: at most {most} are possible")
            }
            Self::Governed => f.write_str(
                "`govern` is set: threads cannot tell whether a reader could run; \
                 only virtual time holds rings back",
            ),
        }
    }
}

impl std::error::Error for SetupError {}

/// What the threads of a host did.
#[derive(Debug)]
pub struct Finished<R, S> {
    /// What the caller's part returned.
    pub result: R,
    /// The CPUs that exist, with their stages.
    pub cpus: Vec<Seated<S>>,
    /// The stages of the readers, in their order.
    pub readers: Vec<S>,
    /// Frames for which the rings had no room, by queue.
    pub ring_dropped: Vec<u64>,
    /// Whether all threads were pinned.
    pub pinned: bool,
}

impl<R, S> Finished<R, S> {
    /// Returns the stages of all threads.
    pub fn stages(&self) -> impl Iterator<Item = &S> {
        self.cpus.iter().map(|cpu| &cpu.stages).chain(&self.readers)
    }
}

/// Runs a host while `body` does, and until all that was sent by then is processed and read. `stages`
/// makes the stages of one thread: for each CPU id in order, then for each reader.
///
/// # Errors
/// [`SetupError`], before anything runs.
///
/// # Panics
/// If a thread does.
pub fn run<P, S, R>(
    setup: &Setup,
    mut stages: impl FnMut() -> S,
    body: impl FnOnce(&Host<P, S>) -> R,
) -> Result<Finished<R, S>, SetupError>
where
    P: Send,
    S: Stages<Packet = P> + Send,
{
    check(setup)?;
    let host = host(setup, &mut stages);
    let pins = Pins::new(setup.pin);
    let pinned = AtomicBool::new(setup.pin);
    let pin = |cpu: CpuId| {
        if setup.pin && !pins.pin(cpu) {
            pinned.store(false, Ordering::Relaxed);
        }
    };
    let possible: Vec<CpuId> = setup.topology.cpus.possible.iter().collect();
    let (result, readers) = thread::scope(|scope| {
        let ending = EndOnDrop(&host);
        for cpu in &possible {
            let (host, pin, mode) = (&host, &pin, setup.settings.mode);
            scope.spawn(move || {
                let _failing = FailOnPanic(host);
                pin(*cpu);
                drive(host, *cpu, mode);
            });
        }
        let readers: Vec<_> = (0..setup.readers.len() as u32)
            .map(|reader| {
                let (host, pin, stages) = (&host, &pin, stages());
                scope.spawn(move || {
                    let _failing = FailOnPanic(host);
                    read(host, ReaderId(reader), &setup.settings, pin, stages)
                })
            })
            .collect();
        let result = body(&host);
        host.settle();
        drop(ending);
        let joined = readers.into_iter().map(|reader| match reader.join() {
            Ok(stages) => stages,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (result, joined.collect())
    });
    let Host { world, seats, .. } = host;
    let seats = seats
        .into_iter()
        .map(|seat| seat.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    let exists = |id: &(usize, Seat<P, S>)| world.cpus[id.0].exists;
    Ok(Finished {
        result,
        cpus: seats.enumerate().filter(exists).map(|(_, seat)| seat.finished(&world)).collect(),
        readers,
        ring_dropped: world.rings.iter().map(|ring| ring.frames.dropped()).collect(),
        pinned: pinned.into_inner(),
    })
}

pub(super) fn check(setup: &Setup) -> Result<(), SetupError> {
    let Setup { topology, settings, readers, .. } = setup;
    if topology.cpus.online.is_empty() {
        return Err(SetupError::NoCpu);
    }
    if topology.irq_cpus.len() > Bell::MOST_QUEUES {
        return Err(SetupError::TooManyQueues(topology.irq_cpus.len()));
    }
    let offline = |cpu: &CpuId| !topology.cpus.online.contains(*cpu);
    if let Some(queue) = topology.irq_cpus.iter().position(offline) {
        return Err(SetupError::QueueOffline(QueueId(queue as u16)));
    }
    let missing = |cpu: &CpuId| !topology.cpus.possible.contains(*cpu);
    if let Some(reader) = readers.iter().position(missing) {
        return Err(SetupError::NoReaderCpu(ReaderId(reader as u32)));
    }
    if settings.govern.is_some() {
        return Err(SetupError::Governed);
    }
    let limits = settings.limits;
    let too_long = |count: &u32| *count > Backlog::<()>::MOST_PACKETS;
    match [limits.ring, limits.max_backlog].into_iter().find(too_long) {
        Some(count) => Err(SetupError::TooLong(count)),
        None => Ok(()),
    }
}

fn host<P: Send, S: Stages<Packet = P>>(
    setup: &Setup,
    stages: &mut impl FnMut() -> S,
) -> Host<P, S> {
    let world = World::new(&setup.topology, &setup.settings, &setup.readers);
    let queues = setup.topology.irq_cpus.len();
    let ids = (0..world.cpus.len() as u16).map(CpuId);
    let mut seats: Vec<_> =
        ids.map(|cpu| Seat::new(cpu, &setup.settings, queues, stages())).collect();
    for (queue, cpu) in setup.topology.irq_cpus.iter().enumerate() {
        seats[cpu.index()].add_queue(QueueId(queue as u16));
    }
    Host::new(world, seats.into_iter().map(Mutex::new).collect())
}

/// The thread of a CPU.
fn drive<P: Send, S: Stages<Packet = P>>(host: &Host<P, S>, cpu: CpuId, mode: Mode) {
    let bell = &host.world.cpus[cpu.index()].bell;
    bell.is_mine();
    loop {
        let ran = {
            let _gate = host.open_gate();
            if host.world.is_online(cpu) { host.seat(cpu).run(&host.world) } else { Ran::Idle }
        };
        match ran {
            Ran::Done => {}
            Ran::Stopped => {
                if mode != Mode::Inline {
                    thread::yield_now();
                }
            }
            Ran::Idle => {
                let timer_ns = host.seat(cpu).next_timer_ns();
                if let Some(at_ns) = timer_ns {
                    let left_ns = at_ns.saturating_sub(host.now_ns());
                    bell.sleep_for(Duration::from_nanos(left_ns));
                } else if host.ending.load(Ordering::Acquire) {
                    return;
                } else {
                    bell.sleep();
                }
            }
        }
    }
}

/// The thread of a reader.
fn read<P: Send, S: Stages<Packet = P>>(
    host: &Host<P, S>,
    reader: ReaderId,
    settings: &Settings,
    pin: &impl Fn(CpuId),
    mut stages: S,
) -> S {
    let shared = &host.world.readers[reader.0 as usize];
    shared.bell.is_mine();
    let mut on = None;
    loop {
        shared.bell.answer();
        let wanted = host.world.nearest_online(CpuId(shared.cpu.load(Ordering::Acquire)));
        if on != Some(wanted) {
            on = Some(wanted);
            pin(wanted);
        }
        let read = stages.read(reader, wanted, host.now_ns(), settings.read_batch.max(1));
        if read.messages > 0 || read.more {
            continue;
        }
        if host.ending.load(Ordering::Acquire) {
            return stages;
        }
        shared.bell.sleep();
    }
}

/// Ends the threads, also if the caller's part panics.
struct EndOnDrop<'h, P: Send, S: Stages<Packet = P>>(&'h Host<P, S>);

impl<P: Send, S: Stages<Packet = P>> Drop for EndOnDrop<'_, P, S> {
    fn drop(&mut self) {
        let Host { world, ending, .. } = self.0;
        ending.store(true, Ordering::Release);
        let cpus = world.cpus.iter().map(|cpu| &cpu.bell);
        // The bit, too: who is about to sleep looks at it.
        cpus.chain(world.readers.iter().map(|reader| &reader.bell)).for_each(|bell| {
            bell.ring(Bell::FIRST);
            bell.wake();
        });
    }
}

/// Says so if its thread panics, so that nobody waits for it.
struct FailOnPanic<'h, P: Send, S: Stages<Packet = P>>(&'h Host<P, S>);

impl<P: Send, S: Stages<Packet = P>> Drop for FailOnPanic<'_, P, S> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.store(true, Ordering::Release);
        }
    }
}
