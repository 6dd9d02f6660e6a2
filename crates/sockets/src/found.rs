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
