//! Flows over sockets that are not connected: what is kept of their answers.
//!
//! Two programs hear an answer, for neither knows all: one that sees the packet on its way out, and
//! with it the peer ([`OUT`](crate::program::OUT)); and, right after it on the same CPU, the tracepoint
//! where the socket has sent, which is in the thread of the sender and knows its network namespace. The
//! first leaves the hash in [`map::ANSWER`](crate::map::ANSWER), the second records it.
//!
//! Always true: each answer from a declared port is counted once as [`HEARD`], and at most once as
//! something else; what is left was sent later than by its thread, or by another namespace.

/// Words of the value of [`map::ANSWER`](crate::map::ANSWER): the socket's cookie, 0 for none; the hash.
pub const WORDS: usize = 2;

/// Words of the filter that tells peers that come back from others, a power of two.
pub const SIGHTINGS: u32 = 1 << 16;
/// Words of the filter in one value of its map.
pub const SIGHTINGS_A_VALUE: u32 = 16;

/// Values of the map of declared ports: 64 ports each.
pub const PORT_WORDS: u32 = 1 << 10;

/// Place of the count of answers from declared ports.
pub const HEARD: u32 = 0;
/// Place of those whose addresses and ports cannot be read: fragments, what is no Ethernet, packets of a
/// tunnel.
pub const UNREAD: u32 = 1;
/// Place of those to peers that were not answered often enough to be a flow.
pub const STRANGE: u32 = 2;
/// Place of those whose flow got no entry, because all in its place are in use.
pub const FULL: u32 = 3;
/// Place of those whose flow was given an entry.
pub const ENTERED: u32 = 4;
/// Place of those whose flow had an entry.
pub const KNOWN: u32 = 5;

/// Counts.
pub const COUNT: usize = 6;
