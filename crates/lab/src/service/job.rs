//! One packet on its way, reduced to what the steps need.

use rxsteer_core::steer::{Class, Decision, PortRule, Reason};
use rxsteer_core::{CpuId, FlowHash, QueueId};

/// One received packet.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// When it arrived, in ns since the start of the run.
    pub arrived_ns: u64,
    /// Its number among the packets read, from 1.
    pub number: u64,
    /// Flow hash.
    pub hash: FlowHash,
    /// Place of its flow's state.
    pub flow: u32,
    /// Which occupant of that place it belongs to.
    pub flow_use: u32,
    /// Its number within the flow, from 1.
    pub seq: u32,
    /// Place of its socket, or [`Job::NOBODY`].
    pub socket: u32,
    /// Which occupant of that place it belongs to.
    pub socket_use: u32,
    /// Bytes on the wire.
    pub len: u32,
    /// Device queue.
    pub queue: QueueId,
    /// Class.
    pub class: Class,
    /// What is known of its local port.
    pub rule: PortRule,
    /// Whether its socket is connected.
    pub connected: bool,
    /// Whether a consumer is to read it, rather than the protocol alone.
    pub wants_reader: bool,
}

impl Job {
    /// The socket of a packet that no known socket receives.
    pub const NOBODY: u32 = u32::MAX;
}

/// A decision and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The decision.
    pub decision: Decision,
    /// CPU time that it took in ns.
    pub cost_ns: u32,
}

impl Choice {
    /// Returns whether the packet is processed at once, without passing a backlog.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.decision.reason == Reason::Local
    }
}

/// Who reads a packet.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// CPU of the consumer.
    pub cpu: CpuId,
    /// Whether it sleeps.
    pub asleep: bool,
    /// Its own work on the packet, in ns.
    pub work_ns: u32,
}

/// Why a packet is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drop {
    /// The ring of its queue is full.
    Ring,
    /// The backlog of its CPU is full.
    Backlog(CpuId),
    /// The decision was to drop it.
    Shed,
    /// No CPU is left to take it over.
    Offline,
    /// Too many packets wait for their readers in the whole model.
    ModelLimit,
}
