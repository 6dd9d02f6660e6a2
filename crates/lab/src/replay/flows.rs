//! The flows of the capture: what was found out about each, so that it is found out once.
//!
//! A flow is one direction between two ends. The state is bounded: at the limit the flow that was
//! idle longest (by the clock method) makes room, and counts anew if it comes back.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use rxsteer_core::FlowHash;

use super::frame::Ident;
use crate::report::WorkingSet;

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) ident: Ident,
    /// What else went into the hash.
    pub(super) hashed: [u64; 2],
    pub(super) label: u32,
    pub(super) hash: FlowHash,
    pub(super) queue: u16,
    /// Which occupant of its place this is.
    pub(super) flow_use: u32,
    pub(super) seq: u32,
    pub(super) socket: u32,
    pub(super) socket_use: u32,
    /// Times that the hash changed with the IPv6 flow label.
    pub(super) label_changes: u32,
    pub(super) packets: u64,
    pub(super) received: bool,
    pub(super) connected: bool,
    pub(super) opaque: bool,
    pub(super) label_hides_ports: bool,
    referenced: bool,
    /// The window, one more than its number, in which the flow was last counted: all flows,
    /// connected flows, for windows of 1 s and of 10 s.
    counted: [[u32; 2]; 2],
}

impl Flow {
    fn new(ident: Ident, flow_use: u32) -> Self {
        Self {
            ident,
            hashed: [u64::MAX; 2],
            label: 0,
            hash: FlowHash::NONE,
            queue: 0,
            flow_use,
            seq: 0,
            socket: u32::MAX,
            socket_use: 0,
            label_changes: 0,
            packets: 0,
            received: false,
            connected: false,
            opaque: false,
            label_hides_ports: false,
            referenced: false,
            counted: [[0; 2]; 2],
        }
    }
}

/// All flows that are remembered.
#[derive(Debug)]
pub(super) struct Flows {
    slab: Vec<Flow>,
    index: HashTable<u32>,
    state: RandomState,
    hand: usize,
    limit: usize,
    pub(super) forgotten: u64,
    pub(super) seen: u64,
    /// The largest flow so far that was forgotten.
    largest_forgotten: Option<(u64, Ident)>,
    windows: [Window; 2],
}

impl Flows {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            slab: Vec::new(),
            index: HashTable::new(),
            state: RandomState::default(),
            hand: 0,
            limit: limit.max(1),
            forgotten: 0,
            seen: 0,
            largest_forgotten: None,
            windows: [Window::new(1_000_000_000), Window::new(10_000_000_000)],
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the place of a flow, made if it is new.
    #[inline]
    pub(super) fn place(&mut self, ident: &Ident) -> usize {
        let hash = hash_of(&self.state, ident);
        let slab = &self.slab;
        if let Some(place) = self.index.find(hash, |place| slab[*place as usize].ident == *ident) {
            let place = *place as usize;
            self.slab[place].referenced = true;
            return place;
        }
        self.make(ident, hash)
    }

    #[inline(never)]
    fn make(&mut self, ident: &Ident, hash: u64) -> usize {
        let place = if self.slab.len() < self.limit {
            self.slab.push(Flow::new(*ident, 1));
            self.slab.len() - 1
        } else {
            let place = self.evict();
            let flow_use = self.slab[place].flow_use.wrapping_add(1);
            self.slab[place] = Flow::new(*ident, flow_use);
            place
        };
        let (slab, state) = (&self.slab, &self.state);
        self.index.insert_unique(hash, place as u32, |place| {
            hash_of(state, &slab[*place as usize].ident)
        });
        place
    }

    fn evict(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.slab.len();
            let flow = &mut self.slab[place];
            if flow.referenced {
                flow.referenced = false;
                continue;
            }
            let flow = *flow;
            if flow.received {
                self.forgotten += 1;
                for (window, counted) in self.windows.iter_mut().zip(flow.counted) {
                    window.exact &= counted[0] != window.number;
                }
                let largest = self.largest_forgotten.as_ref().map_or(0, |l| l.0);
                if flow.packets > largest {
                    self.largest_forgotten = Some((flow.packets, flow.ident));
                }
            }
            let hash = hash_of(&self.state, &flow.ident);
            if let Ok(entry) = self.index.find_entry(hash, |p| *p as usize == place) {
                entry.remove();
            }
            return place;
        }
    }

    #[inline]
    pub(super) fn at(&mut self, place: usize) -> &mut Flow {
        &mut self.slab[place]
    }

    /// Counts a received packet of a flow in the windows of its time.
    #[inline]
    pub(super) fn count(&mut self, place: usize, now_ns: u64) {
        let flow = &mut self.slab[place];
        flow.packets += 1;
        if !flow.received {
            flow.received = true;
            self.seen += 1;
        }
        for (window, counted) in self.windows.iter_mut().zip(&mut flow.counted) {
            if now_ns >= window.until_ns {
                window.turn(now_ns);
            }
            if counted[0] != window.number {
                counted[0] = window.number;
                window.flows += 1;
            }
            if flow.connected && counted[1] != window.number {
                counted[1] = window.number;
                window.connected += 1;
            }
        }
    }

    /// Returns the flows that are remembered, in the order of their places.
    pub(super) fn all(&self) -> &[Flow] {
        &self.slab
    }

    /// Returns packets and name of the largest received flow.
    pub(super) fn largest(&self) -> Option<(u64, Ident)> {
        let kept = self.slab.iter().filter(|f| f.received).map(|f| (f.packets, f.ident));
        let mut largest = self.largest_forgotten;
        for (packets, ident) in kept {
            if largest.is_none_or(|l| packets > l.0) {
                largest = Some((packets, ident));
            }
        }
        largest
    }

    /// Returns the working sets in windows of 1 s and of 10 s.
    pub(super) fn working_sets(&self) -> [WorkingSet; 2] {
        self.windows.map(Window::report)
    }
}

fn hash_of(state: &RandomState, ident: &Ident) -> u64 {
    let mut hasher = state.build_hasher();
    for word in ident.words() {
        hasher.write_u64(word);
    }
    hasher.finish()
}

/// Counts of flows in windows of equal length.
#[derive(Clone, Copy, Debug)]
struct Window {
    width_ns: u64,
    until_ns: u64,
    /// Number of the window, from 1.
    number: u32,
    flows: u64,
    connected: u64,
    windows: u64,
    most: u64,
    sum: u64,
    most_connected: u64,
    sum_connected: u64,
    exact: bool,
}

impl Window {
    fn new(width_ns: u64) -> Self {
        Self {
            width_ns,
            until_ns: width_ns,
            number: 1,
            flows: 0,
            connected: 0,
            windows: 0,
            most: 0,
            sum: 0,
            most_connected: 0,
            sum_connected: 0,
            exact: true,
        }
    }

    fn turn(&mut self, now_ns: u64) {
        self.end();
        let number = now_ns / self.width_ns;
        self.until_ns = (number + 1).saturating_mul(self.width_ns);
        self.number = (number as u32).wrapping_add(1);
    }

    fn end(&mut self) {
        if self.flows > 0 {
            self.windows += 1;
            self.most = self.most.max(self.flows);
            self.sum += self.flows;
            self.most_connected = self.most_connected.max(self.connected);
            self.sum_connected += self.connected;
        }
        (self.flows, self.connected) = (0, 0);
    }

    fn report(mut self) -> WorkingSet {
        self.end();
        let mean =
            |sum: u64| if self.windows == 0 { 0.0 } else { sum as f64 / self.windows as f64 };
        WorkingSet {
            windows: self.windows,
            max_flows: self.most,
            mean_flows: mean(self.sum),
            max_connected: self.most_connected,
            mean_connected: mean(self.sum_connected),
            exact: self.exact,
        }
    }
}

#[cfg(test)]
mod tests;
