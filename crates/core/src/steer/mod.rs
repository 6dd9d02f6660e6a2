//! Choosing the CPU that processes a packet: the decision, and the policies to compare.
//!
//! [`Steering`] holds the tables of one policy. For each packet [`Steering::steer`] returns a
//! [`Decision`]; the caller puts the packet on that CPU's backlog and tells the position with
//! [`Steering::enqueued`]. The socket side tells what it knows with [`Steering::record`],
//! [`Steering::received_unconnected`], [`Steering::disconnect`] and [`Steering::close`]. The state
//! of the CPUs is an argument ([`Host`]), and so is the time.
//!
//! Always true: every packet gets one decision with exactly one reason; a packet is never sent to
//! a CPU that is offline, except when the CPU that took it is; a flow of the `flow-aware` policy
//! changes CPU only when its old CPU has passed its last packet.
//! Elsewhere: hashing ([`crate::hash`]), tables ([`crate::table`]), backlogs and queues (the host).
//! Source: spec of the receive path, "Choosing the CPU" and "Recording where the reader runs".

mod class;
mod flow_aware;
mod linux;
#[cfg(target_has_atomic = "64")]
mod policy;
mod port;
mod socket;

pub use class::{Class, PortRule};
pub use flow_aware::{Aware, choose as choose_flow_aware, enqueued as enqueued_flow_aware};
pub use linux::{KernelVersion, LinuxRules};
#[cfg(target_has_atomic = "64")]
pub use policy::{PolicyKind, Steering, Tables, UnknownPolicy};
pub use port::{MANY, Readers, port_name};
pub use socket::SocketFlow;

use crate::sync::AtomicU64;
use crate::table::Probe;
use crate::{CpuId, FlowHash};

/// Why a packet goes where it goes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// An entry of the flow table named the CPU.
    Hit,
    /// The table has no entry that can be used: spread by hash.
    Miss,
    /// Not looked up: spread by hash.
    NoFlow,
    /// The consumer moved, but packets of the flow are still queued on the old CPU.
    Held,
    /// Beside the consumer, on a CPU that shares a cache with it: its own cannot carry both.
    Beside,
    /// Not a flow, and its first CPU is deep in backlog: sent to its second choice.
    Spilled,
    /// Dropped here: the receiving socket has no room, so all further work would be in vain.
    Shed,
    /// Stays on the CPU that took it.
    #[default]
    Local,
    /// No flow of its own, but its local port has one reader: sent to that reader's CPU.
    Port,
}

impl Reason {
    /// Number of variants.
    pub const COUNT: usize = 9;

    /// All variants, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [
        Self::Hit,
        Self::Miss,
        Self::NoFlow,
        Self::Held,
        Self::Beside,
        Self::Spilled,
        Self::Shed,
        Self::Local,
        Self::Port,
    ];

    /// Returns the place of the variant's counter.
    pub const fn index(self) -> usize {
        match self {
            Self::Hit => 0,
            Self::Miss => 1,
            Self::NoFlow => 2,
            Self::Held => 3,
            Self::Beside => 4,
            Self::Spilled => 5,
            Self::Shed => 6,
            Self::Local => 7,
            Self::Port => 8,
        }
    }

    /// Returns the variant's name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::NoFlow => "no_flow",
            Self::Held => "held",
            Self::Beside => "beside",
            Self::Spilled => "spilled",
            Self::Shed => "shed",
            Self::Local => "local",
            Self::Port => "port",
        }
    }
}

/// Where a packet goes, and why.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Decision {
    /// The CPU that processes the packet.
    pub cpu: CpuId,
    /// Why.
    pub reason: Reason,
    /// What the flow table said.
    pub probe: Probe,
    /// Whether the probe read a second cache line.
    pub second_line: bool,
    /// Whether the flow changed its CPU with this packet.
    pub moved: bool,
    /// Slot of the queue's table that wants the packet's position, or [`Decision::NO_SLOT`]; under
    /// `flow-aware` the name of the port whose position is kept, if not that of the packet's own hash.
    slot: u32,
}

impl Decision {
    const NO_SLOT: u32 = u32::MAX;

    #[inline(always)]
    const fn new(cpu: CpuId, reason: Reason, probe: Probe) -> Self {
        Self { cpu, reason, probe, second_line: false, moved: false, slot: Self::NO_SLOT }
    }
}

/// What a decision looks at of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packet {
    /// Its flow hash, [`FlowHash::NONE`] if nothing could be hashed.
    pub hash: FlowHash,
    /// What kind of traffic it is.
    pub class: Class,
    /// What is known of its local port.
    pub rule: PortRule,
    /// The CPU that took it from the device.
    pub arrived_on: CpuId,
    /// Whether the receiving socket is known to have no room for it.
    pub refused: bool,
}

/// The state of the CPUs that a decision may look at.
pub trait Host {
    /// Returns whether a CPU is online.
    fn is_online(&self, cpu: CpuId) -> bool;

    /// Returns whether flows go to a CPU because their consumer runs there. A CPU that is online and
    /// takes none is being taken out of use: it works off what waits there, so that order is kept.
    #[inline(always)]
    fn takes_flows(&self, cpu: CpuId) -> bool {
        self.is_online(cpu)
    }

    /// Returns the number of packets ever taken off a CPU's backlog; wraps at 2^32.
    fn head(&self, cpu: CpuId) -> u32;

    /// Returns the number of packets ever put on a CPU's backlog; wraps at 2^32.
    fn tail(&self, cpu: CpuId) -> u32;

    /// Returns how many packets wait for a CPU. Differs from tail and head where those are told
    /// late, so that no flow moves early.
    #[inline(always)]
    fn waiting(&self, cpu: CpuId) -> u32 {
        self.tail(cpu).wrapping_sub(self.head(cpu))
    }

    /// Returns the least loaded CPU that shares a cache with `cpu` if `cpu` cannot carry both the
    /// consumers that run there and their packets.
    #[inline(always)]
    fn beside(&self, cpu: CpuId) -> Option<CpuId> {
        let _ = cpu;
        None
    }
}

/// What a decision looks at of the receive queue a packet came in by.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    /// The packed list of CPUs of the queue's mask; empty: no RPS.
    pub map: &'a [CpuId],
    /// Storage of the queue's table: [`crate::table::DevFlows`] under Linux's policies (fresh
    /// slots hold [`DevFlows::FRESH`](crate::table::DevFlows::FRESH)),
    /// [`crate::table::OrderTable`] under `flow-aware` (free slots hold 0). Empty: no table.
    pub slots: &'a [AtomicU64],
}

impl Queue<'_> {
    /// Returns the CPU that a hash has in the mask, as Linux picks it: `(hash * n) >> 32`.
    #[inline(always)]
    pub fn spread(&self, hash: FlowHash) -> Option<CpuId> {
        self.map.get(hash.scale(self.map.len() as u32) as usize).copied()
    }

    /// Spreads by hash; stays local without a mask or if the CPU of the hash is offline, for
    /// which Linux has no second choice.
    #[inline(always)]
    fn fall_back<H: Host + ?Sized>(
        &self,
        packet: &Packet,
        host: &H,
        reason: Reason,
        probe: Probe,
    ) -> Decision {
        match self.spread(packet.hash) {
            Some(cpu) if host.is_online(cpu) => Decision::new(cpu, reason, probe),
            _ => Decision::new(packet.arrived_on, Reason::Local, probe),
        }
    }
}

/// Returns whether a backlog has passed a position: everything put in up to it was taken off.
///
/// The counters wrap, so their distance is compared (scaling.rst, RFS, first of the three
/// conditions for a move).
#[inline(always)]
pub(crate) const fn has_passed(head: u32, last_qtail: u32) -> bool {
    head.wrapping_sub(last_qtail) as i32 >= 0
}

#[cfg(all(test, not(loom)))]
mod tests;
