//! What a look-up returns.

use crate::SocketId;

/// The step of a look-up that decided, in their order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// Early demultiplexing: the head of the address list, or the only taker of a multicast.
    EarlyDemux,
    /// The connected socket of exactly this 4-tuple.
    FourTuple,
    /// The best of the sockets with this local address.
    Address,
    /// The best of the sockets without a local address.
    Wildcard,
    /// The last resort of Linux, by port alone.
    Port,
    /// Multicast and broadcast: every socket that takes it.
    Flood,
}

/// A socket that gets a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Found {
    /// The socket.
    pub socket: SocketId,
    /// The step that decided.
    pub stage: Stage,
    /// Whether the socket is connected.
    pub connected: bool,
    /// Whether the payload is another protocol's ([`SocketOption::Encapsulation`](crate::SocketOption)).
    pub encapsulation: bool,
}

/// What a look-up read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Walk {
    /// Buckets of the 4-tuple table, a cache line each.
    pub buckets: u32,
    /// Records of the 4-tuple table, a cache line each.
    pub records: u32,
    /// Lists of candidates that were looked for: those of the address and of the wildcard.
    pub lists: u32,
    /// Candidates in them, each of which is scored.
    pub candidates: u32,
}
