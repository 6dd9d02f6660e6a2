//! The `flow-aware` policy: a flow is what a connected socket, or a port known for flows, says.
//!
//! | what the packet is | where it goes |
//! | --- | --- |
//! | its socket has no room | dropped here ([`Reason::Shed`]) |
//! | not hashed, or the queue has no mask and no tables | stays ([`Reason::Local`]) |
//! | connection request, request to a port of requests, no TCP or UDP | by hash ([`Reason::NoFlow`]) |
//! | a known flow | to its consumer, order kept ([`Reason::Hit`], [`Reason::Held`], [`Reason::Beside`]) |
//! | of a port with one reader | to that reader, as one flow ([`Reason::Port`] in place of a hit) |
//! | unknown | by hash ([`Reason::Miss`]) |
//!
//! A packet that goes by hash and is not likely to be of a flow (no TCP segment, no tunnel) takes
//! its second choice if the first is deep in backlog ([`Reason::Spilled`]).
//!
//! Order: a flow that stays on its CPU costs no write. When the wanted CPU differs from the
//! current one, the first packet goes to the current CPU and leaves its position in the queue's
//! [`OrderTable`], unless that CPU has nothing queued at all; the flow moves with the first packet
//! that finds the position passed. A flow that was never placed counts as being where its hash
//! spread it, or where the reader of its port is, which is where its packets went before its socket
//! spoke. A port that was never placed had its packets on all CPUs and goes to its reader at once.
//!
//! Always true: steering writes to the flow table only when a flow changes its CPU or begins to;
//! packets of non-flows never write.

use super::{Class, Decision, Host, Packet, PortRule, Queue, Reason, has_passed};
use crate::table::{Entry, Epoch, Lookup, OrderTable, Place, Probe};
use crate::{CpuId, FlowHash};

/// Settings of the policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Aware {
    /// Backlog of the first choice, in packets, above which a packet that is no flow takes its
    /// second choice; `u32::MAX`: never.
    pub spill_above_packets: u32,
    /// Sightings of a hash on a port without a rule that make it a flow.
    pub learn_after: u32,
    /// Sightings of a hash on a port of flows before it is recorded: 2 keeps out strangers that
    /// never come back.
    pub flows_after: u32,
}

impl Default for Aware {
    /// Spills above 128 packets; learns after 8 sightings, on ports of flows after 2.
    fn default() -> Self {
        Self { spill_above_packets: 128, learn_after: 8, flows_after: 2 }
    }
}

/// Chooses the CPU of a packet.
///
/// `lookup` asks the flow table of the packet's class, `place` writes the CPU of a flow into the
/// entry seen at a place and says whether it was still the same; see
/// [`FlowTable`](crate::table::FlowTable). They are arguments so that a map in eBPF serves as well.
#[inline(always)]
pub fn choose<H: Host + ?Sized>(
    settings: &Aware,
    queue: &Queue<'_>,
    packet: &Packet,
    host: &H,
    now: Epoch,
    lookup: impl FnOnce(FlowHash, Epoch) -> Lookup,
    place: impl FnOnce(Place, Entry, CpuId, bool) -> bool,
) -> Decision {
    if packet.refused {
        return Decision::new(packet.arrived_on, Reason::Shed, Probe::NotAsked);
    }
    if packet.hash.is_none() {
        return Decision::new(packet.arrived_on, Reason::Local, Probe::NotAsked);
    }
    let asks = packet.class.may_be_flow()
        && !(packet.class == Class::Udp && packet.rule == PortRule::Requests);
    if !asks {
        return spread(settings, queue, packet, host, Reason::NoFlow, Probe::NotAsked, false);
    }
    let known = lookup(packet.hash, now);
    let Lookup { probe, second_line, by_port, .. } = known;
    let Some((entry, at)) = known.entry() else {
        return spread(settings, queue, packet, host, Reason::Miss, probe, second_line);
    };

    let (wanted, reached) = match host.beside(entry.wanted_cpu()) {
        Some(cpu) => (cpu, Reason::Beside),
        None if by_port => (entry.wanted_cpu(), Reason::Port),
        None => (entry.wanted_cpu(), Reason::Hit),
    };
    // While the consumer's CPU takes none the flow goes by hash, order kept all the same.
    let target = if host.takes_flows(wanted) {
        Decision::new(wanted, reached, Probe::Hit)
    } else {
        queue.fall_back(packet, host, Reason::Miss, Probe::Offline)
    };
    let target = Decision { second_line, ..target };
    let current = match entry.current_cpu() {
        Some(cpu) => cpu,
        None if by_port => target.cpu,
        None => known.home().or(queue.spread(packet.hash)).unwrap_or(packet.arrived_on),
    };
    if current == target.cpu {
        if entry.current_cpu().is_none() || entry.is_moving() {
            place(at, entry, current, false);
        }
        return target;
    }

    let order = OrderTable::new(queue.slots);
    let current_is_online = host.is_online(current);
    // The entry's own hash: all packets of a port have one position.
    let key = entry.hash();
    let position = if entry.is_moving() { order.last_qtail(key) } else { None };
    // Without a position wait for all that is queued there now.
    let passed = !current_is_online
        || has_passed(host.head(current), position.unwrap_or_else(|| host.tail(current)));
    if passed {
        if place(at, entry, target.cpu, false) {
            order.forget(key);
            return Decision { moved: true, ..target };
        }
        if !current_is_online {
            return target;
        }
        // The entry changed meanwhile, so the move was not noted: stay until the next packet.
    } else if !entry.is_moving() || entry.current_cpu().is_none() {
        place(at, entry, current, true);
    }
    let slot = if by_port { key.0 } else { Decision::NO_SLOT };
    Decision { second_line, slot, ..Decision::new(current, Reason::Held, Probe::Hit) }
}

/// Notes the position of a packet that was held on its flow's old CPU: `tail` is that of the CPU of
/// the decision after the packet was put there.
#[inline(always)]
pub fn enqueued(queue: &Queue<'_>, hash: FlowHash, decision: &Decision, tail: u32) {
    if decision.reason == Reason::Held {
        let port = FlowHash(decision.slot);
        let key = if decision.slot == Decision::NO_SLOT { hash } else { port };
        OrderTable::new(queue.slots).set(key, tail);
    }
}

/// Spreads by hash, or to the second choice if the first is deep in backlog.
#[inline(always)]
fn spread<H: Host + ?Sized>(
    settings: &Aware,
    queue: &Queue<'_>,
    packet: &Packet,
    host: &H,
    reason: Reason,
    probe: Probe,
    second_line: bool,
) -> Decision {
    let first = queue.fall_back(packet, host, reason, probe);
    let decision = Decision { second_line, ..first };
    // An unknown TCP or tunnel packet is of a flow all the same: its order would be lost.
    let keeps_order = reason == Reason::Miss && packet.class != Class::Udp;
    if settings.spill_above_packets == u32::MAX || first.reason == Reason::Local || keeps_order {
        return decision;
    }
    let depth = |cpu| host.waiting(cpu);
    if depth(first.cpu) <= settings.spill_above_packets {
        return decision;
    }
    // The second choice: independent of the first, since it is scaled from other bits.
    let other = FlowHash(packet.hash.mix(32));
    match queue.spread(other) {
        Some(cpu) if host.is_online(cpu) && depth(cpu) < depth(first.cpu) / 2 => {
            Decision { cpu, reason: Reason::Spilled, ..decision }
        }
        _ => decision,
    }
}
