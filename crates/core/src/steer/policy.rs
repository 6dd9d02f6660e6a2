//! The policies by name, each with its tables, behind one interface.

use core::fmt;
use core::str::FromStr;

use super::flow_aware::{self, Aware};
use super::linux::{self, LinuxRules};
use super::socket::{Presented, SocketFlow};
use super::{Class, Decision, Host, Packet, PortRule, Queue, Reason};
use crate::sync::AtomicU32;
use crate::table::{Bucket, DevFlows, Epoch, FlowTable, Probe, Recorded, RepeatFilter, SockTable};
use crate::{CpuId, FlowHash};

/// A steering policy.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum PolicyKind {
    /// The CPU that took the packet.
    None,
    /// Spread by hash into the queue's CPU mask.
    Rps,
    /// RFS as first proposed: one shared table, no identity check.
    Rfs2010,
    /// That, and a packet for an unconnected UDP socket clears its slot.
    RfsClear,
    /// RFS of Linux now, or of the version asked for.
    Rfs,
    /// RFS with a table for TCP and one for the rest.
    RfsSplit,
    /// RFS for TCP only.
    RfsTcp,
    /// Ours.
    #[default]
    FlowAware,
}

impl PolicyKind {
    /// All policies, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Rps,
        Self::Rfs2010,
        Self::RfsClear,
        Self::Rfs,
        Self::RfsSplit,
        Self::RfsTcp,
        Self::FlowAware,
    ];

    /// Returns the policy's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rps => "rps",
            Self::Rfs2010 => "rfs-2010",
            Self::RfsClear => "rfs-clear",
            Self::Rfs => "rfs",
            Self::RfsSplit => "rfs-split",
            Self::RfsTcp => "rfs-tcp",
            Self::FlowAware => "flow-aware",
        }
    }

    /// Returns whether the policy follows consumers.
    pub const fn follows(self) -> bool {
        !matches!(self, Self::None | Self::Rps)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text is no policy's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such policy; there are")?;
        PolicyKind::ALL.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownPolicy)
    }
}

/// The tables of a policy, in storage `B` of buckets and `W` of words.
#[derive(Clone, Debug)]
pub enum Tables<B, W> {
    /// None: `none` and `rps`, or RFS that is off.
    None,
    /// One table for all: `rfs-2010`, `rfs-clear`, `rfs`, and TCP's of `rfs-tcp`.
    Shared(SockTable<W>),
    /// One for TCP, one for the rest: `rfs-split`.
    Split(SockTable<W>, SockTable<W>),
    /// One for TCP, one for UDP, and the filter that learns flows of unconnected sockets:
    /// `flow-aware`.
    Flows(FlowTable<B>, FlowTable<B>, RepeatFilter<W>),
}

/// One policy with its tables: steers packets, and hears the sockets.
///
/// Shared by all CPUs; every method takes `&self`.
#[derive(Clone, Debug)]
pub struct Steering<B, W> {
    kind: PolicyKind,
    rules: LinuxRules,
    aware: Aware,
    tables: Tables<B, W>,
}

impl<B: AsRef<[Bucket]>, W: AsRef<[AtomicU32]>> Steering<B, W> {
    /// Makes a policy with tables that fit it; tables of another kind of policy are not asked.
    ///
    /// `rules` is for the policies of Linux, `aware` for `flow-aware`.
    pub fn new(kind: PolicyKind, rules: LinuxRules, aware: Aware, tables: Tables<B, W>) -> Self {
        Self { kind, rules, aware, tables }
    }

    /// Returns the policy.
    pub fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// Returns the policy's tables.
    pub fn tables(&self) -> &Tables<B, W> {
        &self.tables
    }

    /// Replaces the tables and returns the old ones: a change of size while in use. Linux loses
    /// what the old ones held; for `flow-aware` see [`FlowTable::copy_to`].
    pub fn replace_tables(&mut self, tables: Tables<B, W>) -> Tables<B, W> {
        core::mem::replace(&mut self.tables, tables)
    }

    /// Returns the value of a fresh slot in the storage of a [`Queue`] of this policy.
    pub fn fresh_slot(&self) -> u64 {
        match self.kind {
            PolicyKind::FlowAware => crate::table::OrderTable::FREE,
            _ => DevFlows::FRESH,
        }
    }

    /// Starts to load what [`steer`](Self::steer) will read for a packet of this hash and class.
    ///
    /// For a burst: touch all its packets in a loop that does nothing else, then steer them; see
    /// [`FlowTable::touch`]. Nothing but `flow-aware` needs it.
    #[inline(always)]
    pub fn touch(&self, hash: FlowHash, class: Class) {
        if let Tables::Flows(tcp, udp, _) = &self.tables {
            let table = if class.is_tcp() { tcp } else { udp };
            table.touch(hash);
        }
    }

    /// Chooses the CPU of a packet.
    #[inline(always)]
    pub fn steer<H: Host + ?Sized>(
        &self,
        queue: &Queue<'_>,
        packet: &Packet,
        host: &H,
        now: Epoch,
    ) -> Decision {
        match (self.kind, &self.tables) {
            (PolicyKind::FlowAware, Tables::Flows(tcp, udp, _)) => {
                let table = if packet.class.is_tcp() { tcp } else { udp };
                flow_aware::choose(
                    &self.aware,
                    queue,
                    packet,
                    host,
                    now,
                    |hash, now| table.lookup(hash, now),
                    |at, seen, cpu, moving| table.place(at, seen, cpu, moving),
                )
            }
            _ => self.steer_as_linux(queue, packet, host),
        }
    }

    /// All policies but ours: out of the caller's way.
    #[inline(never)]
    fn steer_as_linux<H: Host + ?Sized>(
        &self,
        queue: &Queue<'_>,
        packet: &Packet,
        host: &H,
    ) -> Decision {
        match (self.kind, &self.tables) {
            (kind, tables) if kind != PolicyKind::None && !packet.hash.is_none() => {
                match global(kind, tables, packet.class) {
                    Some(table) => {
                        let answer = table.lookup(packet.hash);
                        linux::choose_rfs(&self.rules, answer, queue, packet, host)
                    }
                    None => linux::choose_rps(&self.without_slots(queue), packet, host),
                }
            }
            _ => Decision::new(packet.arrived_on, Reason::Local, Probe::NotAsked),
        }
    }

    /// Notes that a packet was put on the backlog that its decision named; `tail` is that
    /// backlog's tail after it.
    #[inline]
    pub fn enqueued(&self, queue: &Queue<'_>, hash: FlowHash, decision: &Decision, tail: u32) {
        match self.kind {
            PolicyKind::None => {}
            PolicyKind::FlowAware => flow_aware::enqueued(queue, hash, decision, tail),
            _ if decision.slot != Decision::NO_SLOT => {
                DevFlows::new(queue.slots, self.rules.index).set_last_qtail(decision.slot, tail);
            }
            _ => {}
        }
    }

    /// Hears that a connected socket sent or received on `cpu`; `hash` is that of the packet
    /// received, or of the last one if it sends.
    pub fn record(
        &self,
        socket: &mut SocketFlow,
        hash: FlowHash,
        cpu: CpuId,
        now: Epoch,
    ) -> Recorded {
        match &self.tables {
            Tables::Flows(tcp, udp, _) if self.kind == PolicyKind::FlowAware => {
                let table = if socket.is_tcp() { tcp } else { udp };
                let presented = socket.present(hash, now);
                if let Presented::Replace(old) | Presented::Mute(old) = presented {
                    table.withdraw(old);
                }
                match presented {
                    Presented::Record | Presented::Replace(_) => {
                        socket.set_recorded(true);
                        table.record(hash, cpu, now)
                    }
                    Presented::Mute(_) => Recorded::Muted,
                    Presented::Nothing => Recorded::NotAFlow,
                }
            }
            tables => {
                socket.save(hash);
                let class = if socket.is_tcp() { Class::Tcp } else { Class::Udp };
                match global(self.kind, tables, class) {
                    Some(table) => {
                        socket.set_recorded(!hash.is_none());
                        table.record(hash, cpu)
                    }
                    None => Recorded::NotAFlow,
                }
            }
        }
    }

    /// Hears that an unconnected UDP socket received a packet on `cpu`.
    ///
    /// `rfs-clear` empties the packet's slot unless the socket is one of a tunnel
    /// ([`Class::Tunnel`]); `flow-aware` records it once its hash came back often enough for the
    /// rule of its port; the others do nothing.
    pub fn received_unconnected(
        &self,
        hash: FlowHash,
        class: Class,
        rule: PortRule,
        cpu: CpuId,
        now: Epoch,
    ) -> Recorded {
        match &self.tables {
            Tables::Flows(_, udp, filter) if self.kind == PolicyKind::FlowAware => {
                let sightings = match rule {
                    PortRule::Requests => return Recorded::NotAFlow,
                    PortRule::Flows => self.aware.flows_after,
                    PortRule::Learn => self.aware.learn_after,
                };
                if hash.is_none() || filter.sight(hash) < sightings {
                    return Recorded::NotAFlow;
                }
                udp.record(hash, cpu, now)
            }
            Tables::Shared(table)
                if self.rules.clear_unconnected && self.kind == PolicyKind::RfsClear =>
            {
                if class == Class::Tunnel { Recorded::NotAFlow } else { table.clear(hash) }
            }
            _ => Recorded::NotAFlow,
        }
    }

    /// Hears that a connected socket was disconnected.
    ///
    /// `flow-aware` forgets exactly this socket's flow. Linux forgets nothing, and since it sets
    /// the saved hash to 0 a later close does not either (requirement A9 asks for more).
    pub fn disconnect(&self, socket: &mut SocketFlow) -> Recorded {
        let recorded = match self.kind {
            PolicyKind::FlowAware => self.withdraw(socket),
            _ => Recorded::NotAFlow,
        };
        *socket = SocketFlow::default();
        recorded
    }

    /// Hears that a connected socket is closed.
    ///
    /// `flow-aware` forgets exactly this socket's flow. Linux, in the versions that do it, empties
    /// the word of its hash whosever it is.
    pub fn close(&self, socket: &mut SocketFlow) -> Recorded {
        let recorded = match self.kind {
            PolicyKind::FlowAware => self.withdraw(socket),
            kind if self.rules.clear_at_close => {
                let class = if socket.is_tcp() { Class::Tcp } else { Class::Udp };
                global(kind, &self.tables, class)
                    .map_or(Recorded::NotAFlow, |table| table.clear(socket.hash()))
            }
            _ => Recorded::NotAFlow,
        };
        *socket = SocketFlow::default();
        recorded
    }

    fn withdraw(&self, socket: &SocketFlow) -> Recorded {
        let Tables::Flows(tcp, udp, _) = &self.tables else { return Recorded::NotAFlow };
        let table = if socket.is_tcp() { tcp } else { udp };
        if socket.is_recorded() && table.withdraw(socket.hash()) {
            Recorded::Cleared
        } else {
            Recorded::Unchanged
        }
    }

    /// Under RFS the queue's table is RFS's alone; only plain `rps` may use it to drain.
    #[inline(always)]
    fn without_slots<'a>(&self, queue: &Queue<'a>) -> Queue<'a> {
        match self.kind {
            PolicyKind::Rps => *queue,
            _ => Queue { map: queue.map, slots: &[] },
        }
    }
}

/// Returns the global table that a policy of Linux asks for a class.
#[inline(always)]
fn global<B, W>(kind: PolicyKind, tables: &Tables<B, W>, class: Class) -> Option<&SockTable<W>> {
    match (kind, tables) {
        (PolicyKind::RfsTcp, Tables::Shared(table)) if class.is_tcp() => Some(table),
        (PolicyKind::RfsTcp, _) => None,
        (PolicyKind::Rfs2010 | PolicyKind::RfsClear | PolicyKind::Rfs, Tables::Shared(table)) => {
            Some(table)
        }
        (PolicyKind::RfsSplit, Tables::Split(tcp, rest)) => {
            Some(if class.is_tcp() { tcp } else { rest })
        }
        _ => None,
    }
}
