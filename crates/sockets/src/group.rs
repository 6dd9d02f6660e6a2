//! Reuseport groups: sockets that share an address and its packets.
//!
//! Members stand in the order in which they joined; when one leaves, the last takes its place. A
//! packet gets the member that the [`Selector`] names, by default the one that its 4-tuple hashes
//! to. Connected members are passed over.
//!
//! Elsewhere: who joins and leaves when ([`crate::table`]).
//! Source: spec of the receive path, "Reuseport groups".

mod connection_id;
mod selector;
mod view;

pub use connection_id::ConnectionIdRule;
pub use selector::{Choice, Selector, UserSelector};
pub(crate) use view::{CpuOf, GroupView, HAS_REMOTE4, HAS_REMOTE6, Member, Picked};

/// Most members of a group; one more is refused (Linux doubles an array up to here).
pub(crate) const MOST_MEMBERS: usize = 32_768;
