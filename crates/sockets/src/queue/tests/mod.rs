//! Tests of the receive queue: its rules, who is woken, and a model beside it.

mod model;
mod rules;
mod stress;
mod wake;

use std::net::SocketAddr;
use std::sync::Arc;

use super::*;
use crate::datagram::Checksum;

fn context() -> Arc<QueueContext<Simulated>> {
    Arc::default()
}

fn queue(context: &Arc<QueueContext<Simulated>>, bytes: u32) -> ReceiveQueue<Simulated> {
    ReceiveQueue::new(context, Limits::bytes(bytes))
}

/// A datagram of this true size; the timestamp is its name.
fn sized(name: u64, true_size: u32) -> Datagram<Simulated> {
    let peer = SocketAddr::from(([192, 0, 2, 1], 4433));
    let datagram = Datagram::new(peer, [198, 51, 100, 7].into(), Simulated::new(true_size / 2));
    Datagram { timestamp_ns: name, true_size, ..datagram }
}

fn over_ipv6(datagram: Datagram<Simulated>) -> Datagram<Simulated> {
    let peer = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 4433));
    Datagram { peer, ..datagram }
}

/// The same with a checksum that is still to be verified.
fn deferred(mut datagram: Datagram<Simulated>, bad: bool) -> Datagram<Simulated> {
    datagram.checksum = Checksum::Deferred(0);
    datagram.payload.bad_checksum = bad;
    datagram
}

fn names(batch: Batch<'_, Simulated>) -> Vec<u64> {
    batch.map(|datagram| datagram.timestamp_ns).collect()
}
