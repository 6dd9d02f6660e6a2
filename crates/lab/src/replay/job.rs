//! One packet on its way, reduced to what the steps need.

use rxsteer_core::steer::{Class, PortRule};
use rxsteer_core::{FlowHash, QueueId};
use rxsteer_engine::overload::{SourcePrefix, Ticket};

/// One received packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// When it arrived, in ns since the start of the run.
    pub(super) arrived_ns: u64,
    /// Its number among the packets read, from 1.
    pub(super) number: u64,
    /// Flow hash.
    pub(super) hash: FlowHash,
    /// Place of its flow's state, and which occupant of that place it belongs to.
    pub(super) flow: u32,
    pub(super) flow_use: u32,
    /// Its number within the flow, from 1.
    pub(super) seq: u32,
    /// Place of its socket, or [`Job::NOBODY`], and which occupant of that place it belongs to.
    pub(super) socket: u32,
    pub(super) socket_use: u32,
    /// Bytes on the wire.
    pub(super) len: u32,
    /// Bytes of payload, if it may be merged with others of its flow; else 0.
    pub(super) merges_len: u16,
    /// Device queue.
    pub(super) queue: QueueId,
    /// Class.
    pub(super) class: Class,
    /// What is known of its local port.
    pub(super) rule: PortRule,
    /// Whether its socket is connected.
    pub(super) connected: bool,
    /// Whether a consumer is to read it, rather than the protocol alone.
    pub(super) wants_reader: bool,
    /// Network that it comes from.
    pub(super) source: SourcePrefix,
    /// What it uses of its socket's room while it is on its way.
    pub(super) ticket: Ticket,
    /// Whether its sender is one of those that are to lose nothing.
    pub(super) protected: bool,
}

impl Job {
    /// The socket of a packet that no known socket receives.
    pub(super) const NOBODY: u32 = u32::MAX;
}

/// What is left of a packet with its decider once it is on a backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowRef {
    pub(super) hash: FlowHash,
    pub(super) flow: u32,
    pub(super) flow_use: u32,
}
