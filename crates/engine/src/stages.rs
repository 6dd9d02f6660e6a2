//! What is decided about packets on their way: the seam between the engine and its user.

use rxsteer_core::steer::{Class, Decision, Host, Reason};
use rxsteer_core::{CpuId, FlowHash, QueueId};

use crate::gro::{Segment, Train};

/// What is decided about packets on their way.
///
/// The virtual executor has one value for all CPUs, the executor of threads one for each thread,
/// over shared state.
pub trait Stages {
    /// A packet: real bytes, or a description of one.
    type Packet;

    /// What [`queued`](Self::queued) needs of a packet, which is in other hands by then.
    type Flow: Copy;

    /// Returns what [`queued`](Self::queued) needs of a packet.
    fn flow(&self, packet: &Self::Packet) -> Self::Flow;

    /// Returns what a flow limit knows of the packet's flow.
    fn hash(&self, packet: &Self::Packet) -> FlowHash;

    /// Returns the class, which says what the protocol work costs.
    fn class(&self, packet: &Self::Packet) -> Class;

    /// Returns what merging looks at; `None`: the packet is never merged.
    fn segment(&self, packet: &Self::Packet) -> Option<Segment> {
        let _ = packet;
        None
    }

    /// Chooses the CPU of a packet that a CPU took from a ring.
    ///
    /// May shed it: the engine then calls [`dropped`](Self::dropped) with [`Drop::Shed`].
    fn choose<C: Cpus>(&mut self, packet: &mut Self::Packet, at: At, cpus: &C) -> Choice;

    /// Returns whether the sender of a packet that was chosen for is one of those that lose nothing:
    /// see [`Took`](crate::overload::Took). Asked only with a governor.
    fn protects(&self, packet: &Self::Packet) -> bool {
        let _ = packet;
        false
    }

    /// Hears that a packet of this flow is on the backlog of its CPU, whose tail was then `tail`.
    ///
    /// Not called for a packet that is processed where it was taken.
    fn queued(&mut self, flow: Self::Flow, at: At, choice: &Choice, tail: u32);

    /// Takes a train of one or more packets of one flow whose protocol work is done on `on`: finds
    /// the socket and puts it on its receive queue. Returns who reads it, if anyone.
    ///
    /// May lose packets, for lack of room or of a socket, and then counts them itself.
    fn deliver(&mut self, train: Train<Self::Packet>, on: CpuId, now_ns: u64) -> Option<Reading>;

    /// A reader takes up to `most` messages (trains) off its queues.
    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> Read;

    /// Hears that the packet is lost.
    fn dropped(&mut self, packet: Self::Packet, cause: Drop, now_ns: u64);
}

/// Where and when a packet is chosen for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct At {
    /// The CPU that took it.
    pub on: CpuId,
    /// The queue that it came in by.
    pub queue: QueueId,
    /// Time.
    pub now_ns: u64,
    /// It was chosen for before, and that CPU went offline with it.
    pub again: bool,
}

/// The state of the CPUs as decisions may see it.
pub trait Cpus: Host {
    /// Returns the time that a CPU has worked so far, in ns.
    fn busy_ns(&self, cpu: CpuId) -> u64;

    /// Returns the part of it that was work of readers; 0 if the executor does not tell.
    fn readers_ns(&self, cpu: CpuId) -> u64 {
        let _ = cpu;
        0
    }

    /// Returns whether two CPUs share a cache.
    fn share_cache(&self, a: CpuId, b: CpuId) -> bool;
}

/// A decision and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The decision.
    pub decision: Decision,
    /// CPU time that it took in ns; used in virtual time only.
    pub cost_ns: u32,
}

impl Choice {
    /// Returns whether the packet is processed at once, without passing a backlog.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.decision.reason == Reason::Local
    }
}

/// Identity of a reader: a thread that takes packets off sockets.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReaderId(pub u32);

/// Who reads a train.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reading {
    /// The reader; ids are small and dense.
    pub reader: ReaderId,
    /// CPU that it runs on, or will when it wakes; another one is taken if that is offline.
    pub cpu: CpuId,
}

/// What a reader took in one turn.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Read {
    /// Messages taken; 0 if there was nothing.
    pub messages: u32,
    /// Packets in them.
    pub packets: u32,
    /// Bytes in them.
    pub bytes: u64,
    /// Of the packets, those that another CPU of the same cache processed.
    pub near: u32,
    /// Of the packets, those that a CPU of another cache processed.
    pub far: u32,
    /// Work of the application on them, in ns.
    pub work_ns: u64,
    /// Whether more waits for this reader; if not, it sleeps until the next delivery.
    pub more: bool,
}

/// Why a packet is lost in the engine.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Drop {
    /// The ring of its queue is full.
    Ring,
    /// The backlog of this CPU is full.
    Backlog(CpuId),
    /// The backlog of this CPU is half full, mostly of the packet's flow.
    FlowLimit(CpuId),
    /// The decision was to drop it.
    Shed,
    /// No CPU is left to take it over.
    Offline,
}
