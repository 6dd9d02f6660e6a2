//! Identities and addresses: what tables and queues agree on.

use std::fmt;

/// A socket of a [`Namespace`](crate), for as long as it is open.
///
/// A place in the namespace and a generation, so the id of a closed socket is never the id of
/// another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SocketId {
    /// Place in the namespace; reused after a close.
    pub index: u32,
    /// How often the place was used before.
    pub generation: u32,
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Number of a device of the host, from 1, as the kernel numbers interfaces.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceId(pub u32);

/// Address family that a socket was made for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// `AF_INET`: IPv4 only.
    V4,
    /// `AF_INET6`: IPv6, and IPv4 as mapped addresses unless the socket is v6-only.
    V6,
}
