//! How a group chooses one of its members.

use std::fmt;
use std::sync::Arc;

use crate::Packet;

use super::ConnectionIdRule;

/// What a selection says about a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Choice {
    /// This member, counted from 0 in the order of the group.
    Member(usize),
    /// No opinion: by hash of the 4-tuple.
    Hash,
    /// Nobody: the look-up ends without a socket.
    Refuse,
}

/// A selection by the user: of the packet and the number of members.
pub type UserSelector = dyn Fn(&Packet<'_>, usize) -> Choice + Send + Sync;

/// How a group chooses one of its members.
#[derive(Clone, Default)]
pub enum Selector {
    /// By hash of the 4-tuple.
    #[default]
    Hash,
    /// By a function; it runs in the look-up, so it must be quick and must not change sockets.
    User(Arc<UserSelector>),
    /// By the connection id of QUIC.
    ConnectionId(ConnectionIdRule),
}

impl Selector {
    /// Chooses; `None`: the rule could not be applied, so the hash decides, and it is counted.
    pub(super) fn choose(&self, packet: &Packet<'_>, members: usize) -> Option<Choice> {
        let choice = match self {
            Self::Hash => Choice::Hash,
            Self::User(choose) => choose(packet, members),
            Self::ConnectionId(rule) => rule.choose(packet.payload)?,
        };
        match choice {
            Choice::Member(index) if index >= members => None,
            choice => Some(choice),
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash => f.write_str("Hash"),
            Self::User(_) => f.write_str("User"),
            Self::ConnectionId(rule) => rule.fmt(f),
        }
    }
}
