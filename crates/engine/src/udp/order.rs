//! Whether the datagrams of a flow are read in the order in which they arrived.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use rxsteer_sockets::SocketId;

/// The last arrival that a reader saw of each flow.
#[derive(Debug, Default)]
pub(super) struct OrderWatch {
    last: HashMap<(SocketId, SocketAddr), u64>,
}

impl OrderWatch {
    /// Most flows that are watched; more are read unwatched.
    const MOST_FLOWS: usize = 1 << 20;

    /// Notes that a datagram was read; returns whether a later one of its flow was read before.
    pub(super) fn saw(&mut self, socket: SocketId, peer: SocketAddr, arrived_ns: u64) -> bool {
        let room = self.last.len() < Self::MOST_FLOWS;
        match self.last.entry((socket, peer)) {
            Entry::Occupied(mut last) => {
                let reordered = arrived_ns < *last.get();
                if !reordered {
                    last.insert(arrived_ns);
                }
                reordered
            }
            Entry::Vacant(place) => {
                if room {
                    place.insert(arrived_ns);
                }
                false
            }
        }
    }
}
