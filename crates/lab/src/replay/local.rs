//! Which side is the host that is replayed.
//!
//! A packet's direction is taken, in this order, from: the addresses that were given; the
//! capture itself (pcapng, Linux cooked headers); the addresses inferred from the first packets;
//! or, if none stand out, every packet counts as received (a router, a mirror port).
//!
//! The inference takes the address that is in the most of the first packets, then the one in the
//! most of those that are left, and so on, until [`ENOUGH`] are explained; of two that are in
//! equally many, the one that received more, then the one with the lower ports, then the one that
//! received first. At most [`MOST_ADDRESSES`] addresses are local.

use std::collections::HashMap;

use rxsteer_core::dissect::{AddrKind, Endpoints};

use super::frame::Frame;
use crate::capture::Direction;
use crate::consumer::Prefix;
use crate::report::LocalReport;

/// Most packets that are looked at before the first is replayed.
pub(super) const FIRST_PACKETS: usize = 16_384;

/// Share of the first packets that the local addresses must be in.
const ENOUGH: f64 = 0.9;

const MOST_ADDRESSES: usize = 16;

/// Which side is local, as the user says it.
#[derive(Clone, Debug, Default)]
pub enum LocalRule {
    /// Find out.
    #[default]
    Infer,
    /// Every packet is received.
    All,
    /// These addresses.
    Prefixes(Vec<Prefix>),
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    Received,
    Sent,
    NotLocal,
    LocalToLocal,
}

/// Which side is local, decided.
#[derive(Clone, Debug)]
pub(super) struct Local {
    prefixes: Vec<Prefix>,
    all: bool,
    directions_first: bool,
    how: &'static str,
    explained: Option<f64>,
}

impl Local {
    /// Decides by the rule and the first packets.
    pub(super) fn decide(rule: &LocalRule, first: &[Frame]) -> Self {
        let plain = |prefixes: &[Prefix], how, all| Self {
            prefixes: prefixes.to_vec(),
            all,
            directions_first: false,
            how,
            explained: None,
        };
        match rule {
            LocalRule::Prefixes(prefixes) => return plain(prefixes, "given", false),
            LocalRule::All => return plain(&[], "all", true),
            LocalRule::Infer => {}
        }
        let told = first.iter().filter(|f| f.direction != Direction::Unknown).count();
        let both_ways = |way| first.iter().any(|f| f.direction == way);
        let told_all = told > 0 && told * 10 >= first.len() * 9;
        let mut local = infer(first);
        if told_all && (both_ways(Direction::Inbound) || both_ways(Direction::Outbound)) {
            local.directions_first = true;
            local.how = "directions";
            local.explained = None;
        }
        local
    }

    /// Returns where a packet goes.
    #[inline]
    pub(super) fn way(&self, frame: &Frame) -> Way {
        if self.directions_first {
            match frame.direction {
                Direction::Inbound => return Way::Received,
                Direction::Outbound => return Way::Sent,
                Direction::Unknown => {}
            }
        }
        if self.all {
            return Way::Received;
        }
        let outer = &frame.outer;
        if matches!(outer.addr_kind, AddrKind::None | AddrKind::Tipc) {
            return Way::Received;
        }
        match (self.holds(outer.addr_kind, &outer.src), self.holds(outer.addr_kind, &outer.dst)) {
            (true, true) => Way::LocalToLocal,
            (true, false) => Way::Sent,
            (false, true) => Way::Received,
            (false, false) if is_group(outer) => Way::Received,
            (false, false) => Way::NotLocal,
        }
    }

    #[inline]
    fn holds(&self, kind: AddrKind, address: &[u8; 16]) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(kind, address))
    }

    pub(super) fn report(&self) -> LocalReport {
        LocalReport {
            how: self.how.into(),
            addresses: self.prefixes.iter().take(64).map(Prefix::to_string).collect(),
            explained: self.explained,
        }
    }

    /// Returns whether no side stood out although one was looked for.
    pub(super) fn nobody(&self) -> bool {
        self.all && self.explained.is_some()
    }
}

/// Returns whether a destination is multicast or broadcast: received by whoever listens.
fn is_group(outer: &Endpoints) -> bool {
    match outer.addr_kind {
        AddrKind::V4 => outer.dst[0] >= 224 && outer.dst[0] < 240 || outer.dst[..4] == [255; 4],
        AddrKind::V6 => outer.dst[0] == 0xff,
        _ => false,
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    packets: u64,
    received: u64,
    port_sum: u64,
    first_received: usize,
}

fn infer(first: &[Frame]) -> Local {
    let with_address: Vec<&Endpoints> = first
        .iter()
        .map(|frame| &frame.outer)
        .filter(|o| matches!(o.addr_kind, AddrKind::V4 | AddrKind::V6) && !is_group(o))
        .collect();
    let mut left: Vec<&Endpoints> = with_address.clone();
    let mut prefixes = Vec::new();
    let wanted = (with_address.len() as f64 * (1.0 - ENOUGH)) as usize;
    while left.len() > wanted && prefixes.len() < MOST_ADDRESSES {
        let Some((kind, address)) = most_frequent(&left) else { break };
        prefixes.push(Prefix::host(kind, address));
        left.retain(|o| o.addr_kind != kind || o.src != address && o.dst != address);
    }
    let explained = if with_address.is_empty() {
        1.0
    } else {
        1.0 - left.len() as f64 / with_address.len() as f64
    };
    let all = explained < ENOUGH;
    if all {
        prefixes.clear();
    }
    let how = if all || with_address.is_empty() { "all" } else { "inferred" };
    Local {
        all: all || with_address.is_empty(),
        prefixes,
        directions_first: false,
        how,
        explained: (!with_address.is_empty()).then_some(explained),
    }
}

fn most_frequent(packets: &[&Endpoints]) -> Option<(AddrKind, [u8; 16])> {
    let mut seen: HashMap<(u8, [u8; 16]), Seen> = HashMap::new();
    for (index, packet) in packets.iter().enumerate() {
        let kind = packet.addr_kind as u8;
        let src = seen
            .entry((kind, packet.src))
            .or_insert(Seen { first_received: usize::MAX, ..Seen::default() });
        src.packets += 1;
        src.port_sum += u64::from(packet.src_port);
        if packet.dst == packet.src {
            continue;
        }
        let dst = seen
            .entry((kind, packet.dst))
            .or_insert(Seen { first_received: usize::MAX, ..Seen::default() });
        dst.packets += 1;
        dst.received += 1;
        dst.port_sum += u64::from(packet.dst_port);
        dst.first_received = dst.first_received.min(index);
    }
    // The address itself comes last, so that the order of the map decides nothing.
    let best = seen.into_iter().max_by(|(ka, a), (kb, b)| {
        (a.packets, a.received)
            .cmp(&(b.packets, b.received))
            .then(b.port_sum.cmp(&a.port_sum))
            .then(b.first_received.cmp(&a.first_received))
            .then(kb.cmp(ka))
    });
    best.map(|((kind, address), _)| (if kind == 4 { AddrKind::V4 } else { AddrKind::V6 }, address))
}

#[cfg(test)]
mod tests;
