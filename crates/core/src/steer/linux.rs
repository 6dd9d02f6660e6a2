//! Model of Linux's RPS and RFS decision, for all versions that differ.
//!
//! Always true: as in Linux, order is kept per slot of the queue's table and only under RFS.
//! Source: spec of the receive path, "Choosing the CPU", "Recording where the reader runs", "The
//! device flow table" and "History"; net/core/dev.c (get_rps_cpu, set_rps_cpu).

use core::fmt;
use core::str::FromStr;

use super::{Decision, Host, Packet, Queue, Reason, has_passed};
use crate::CpuId;
use crate::table::{DevFlow, DevFlows, Probe, SlotIndex};

/// Version of Linux, as far as steering differs: major and minor.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct KernelVersion(pub u16, pub u16);

impl KernelVersion {
    /// The newest version whose behaviour is modelled.
    pub const NEWEST: Self = Self(7, 3);
    /// The first version with RPS and RFS.
    pub const OLDEST: Self = Self(2, 6);
}

impl Default for KernelVersion {
    fn default() -> Self {
        Self::NEWEST
    }
}

/// A text is no kernel version with RFS; the texts that are: `2.6.35`, `4.1`, `6.18`, `6.18.44-x`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadKernelVersion;

impl fmt::Display for BadKernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a kernel version from 2.6.35 on, such as 4.1 or 6.18")
    }
}

impl core::error::Error for BadKernelVersion {}

impl FromStr for KernelVersion {
    type Err = BadKernelVersion;

    fn from_str(text: &str) -> Result<Self, BadKernelVersion> {
        let mut parts = text.trim().split(['.', '-']);
        let mut number = || parts.next()?.parse::<u16>().ok();
        let major = number().ok_or(BadKernelVersion)?;
        let minor = number().ok_or(BadKernelVersion)?;
        let patch = number().unwrap_or(0);
        match (major, minor) {
            (2, 6) if patch >= 35 => {}
            (2, _) | (0 | 1, _) => return Err(BadKernelVersion),
            _ => {}
        }
        Ok(Self(major, minor))
    }
}

/// In what the versions of Linux, and the proposals that were not merged, differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinuxRules {
    /// Words of the global table keep the upper bits of the hash (since 4.1, 2015).
    pub identity: bool,
    /// A socket that closes empties the word of its hash, whosever it is (before 4.1, and again
    /// since 6.16).
    pub clear_at_close: bool,
    /// Only sockets in state ESTABLISHED record (since 4.10/4.11, December 2016); before, every
    /// socket with a saved hash, which for UDP are the connected ones all the same.
    pub established_only: bool,
    /// How the queue's table is indexed (since 6.18 unlike the global one).
    pub index: SlotIndex,
    /// A packet that reaches an unconnected UDP socket empties the word of its hash (proposed in
    /// August and October 2014, never merged).
    pub clear_unconnected: bool,
}

impl LinuxRules {
    /// Returns the rules of a version of Linux.
    pub fn of(version: KernelVersion) -> Self {
        Self {
            identity: version >= KernelVersion(4, 1),
            clear_at_close: version < KernelVersion(4, 1) || version >= KernelVersion(6, 16),
            established_only: version >= KernelVersion(4, 11),
            index: if version >= KernelVersion(6, 18) {
                SlotIndex::Mix
            } else {
                SlotIndex::LowBits
            },
            clear_unconnected: false,
        }
    }

    /// Returns the rules of the first version of 2010, with clearing for unconnected UDP if asked.
    pub fn first(clear_unconnected: bool) -> Self {
        Self { clear_unconnected, ..Self::of(KernelVersion::OLDEST) }
    }
}

/// Spreads by hash into the queue's mask; with a queue table (`--drain`) a flow changes CPU only
/// when its old CPU has passed the last packet of its slot, which Linux does not do.
#[inline(always)]
pub(super) fn choose_rps<H: Host + ?Sized>(
    queue: &Queue<'_>,
    packet: &Packet,
    host: &H,
) -> Decision {
    if packet.hash.is_none() || queue.map.is_empty() {
        return Decision::new(packet.arrived_on, Reason::Local, Probe::NotAsked);
    }
    let slots = DevFlows::new(queue.slots, SlotIndex::Mix);
    match queue.spread(packet.hash) {
        Some(next) if !slots.is_empty() => {
            through_slot(slots, next, packet, queue, host, Reason::NoFlow, Probe::NotAsked)
        }
        _ => queue.fall_back(packet, host, Reason::NoFlow, Probe::NotAsked),
    }
}

/// Chooses by the answer of the global table and the queue's table.
#[inline(always)]
pub(super) fn choose_rfs<H: Host + ?Sized>(
    rules: &LinuxRules,
    (probe, next): (Probe, CpuId),
    queue: &Queue<'_>,
    packet: &Packet,
    host: &H,
) -> Decision {
    let slots = DevFlows::new(queue.slots, rules.index);
    if slots.is_empty() {
        // Without the queue's table RFS is off for the queue, whatever the global table says.
        return choose_rps(queue, packet, host);
    }
    match probe {
        Probe::Hit | Probe::Offline => {
            through_slot(slots, next, packet, queue, host, Reason::Hit, probe)
        }
        _ => queue.fall_back(packet, host, Reason::Miss, probe),
    }
}

/// Follows `next` as far as the slot's last position allows.
#[inline(always)]
fn through_slot<H: Host + ?Sized>(
    slots: DevFlows<'_>,
    next: CpuId,
    packet: &Packet,
    queue: &Queue<'_>,
    host: &H,
    reason: Reason,
    probe: Probe,
) -> Decision {
    let slot = slots.slot(packet.hash);
    let flow = slots.load(slot);
    let mut current = flow.cpu;
    let mut moved = false;
    if current != Some(next) {
        let may_move = current
            .is_none_or(|cpu| !host.is_online(cpu) || has_passed(host.head(cpu), flow.last_qtail));
        if may_move {
            moved = current.is_some();
            current = Some(next);
            // The head, not the tail: until the packet is put in, the slot counts as drained.
            slots.store(slot, DevFlow { cpu: current, last_qtail: host.head(next) });
        }
    }
    match current {
        Some(cpu) if host.is_online(cpu) => {
            let reason = if cpu == next { reason } else { Reason::Held };
            Decision { moved, slot, ..Decision::new(cpu, reason, probe) }
        }
        _ => {
            let probe = if probe == Probe::NotAsked { probe } else { Probe::Offline };
            let reason = if reason == Reason::Hit { Reason::Miss } else { reason };
            queue.fall_back(packet, host, reason, probe)
        }
    }
}
