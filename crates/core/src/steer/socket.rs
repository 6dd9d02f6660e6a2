//! What a connected socket tells of its flow, and the guard against sockets that tell too much.
//!
//! A connected socket has one flow. Its packets can still come with several hashes: fragments have
//! another hash than whole datagrams, IPv6 labels change, and someone may send a crafted mix to
//! push the flows of others out of the table. So a socket holds one entry at a time, a new hash
//! takes the old one's entry away, and a socket that changes its hash too often in an epoch is
//! not heard until the next.
//!
//! Always true: a socket is responsible for at most one entry; a muted socket has none.

use crate::FlowHash;
use crate::table::Epoch;

use super::Class;

/// The flow of one connected socket, kept with the socket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SocketFlow {
    hash: FlowHash,
    tcp: bool,
    recorded: bool,
    changes: u8,
    epoch: Epoch,
}

/// What to do about a hash that a socket presents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Presented {
    Record,
    /// Record, and take back the entry of this earlier hash.
    Replace(FlowHash),
    /// Do not record, and take back the entry of this earlier hash if it is not 0.
    Mute(FlowHash),
    Nothing,
}

impl SocketFlow {
    /// Most changes of hash in an epoch before the socket is not heard until the next.
    pub const MOST_CHANGES: u8 = 8;

    /// Returns the flow of a socket whose last packet had this hash; `class` says in which table
    /// the flow belongs.
    pub const fn new(hash: FlowHash, class: Class) -> Self {
        Self { hash, tcp: class.is_tcp(), recorded: false, changes: 0, epoch: Epoch(0) }
    }

    /// Returns the hash of the last packet that was queued to the socket.
    pub const fn hash(&self) -> FlowHash {
        self.hash
    }

    pub(super) const fn is_tcp(&self) -> bool {
        self.tcp
    }

    /// Returns whether the socket is responsible for an entry.
    pub const fn is_recorded(&self) -> bool {
        self.recorded
    }

    pub(super) fn set_recorded(&mut self, recorded: bool) {
        self.recorded = recorded;
    }

    /// Saves the hash of a packet that is queued to the socket, as Linux does; no guard.
    pub fn save(&mut self, hash: FlowHash) {
        self.hash = hash;
    }

    /// Weighs the hash of the packet that the socket's user receives, or of the last one if it
    /// sends.
    pub(super) fn present(&mut self, hash: FlowHash, now: Epoch) -> Presented {
        if hash.is_none() {
            return Presented::Nothing;
        }
        if now != self.epoch {
            self.epoch = now;
            self.changes = 0;
        }
        if hash == self.hash {
            return if self.changes > Self::MOST_CHANGES {
                Presented::Mute(FlowHash::NONE)
            } else {
                Presented::Record
            };
        }
        let old = if self.recorded { self.hash } else { FlowHash::NONE };
        if !self.hash.is_none() {
            self.changes = self.changes.saturating_add(1);
        }
        self.hash = hash;
        self.recorded = false;
        if self.changes > Self::MOST_CHANGES {
            Presented::Mute(old)
        } else if old.is_none() {
            Presented::Record
        } else {
            Presented::Replace(old)
        }
    }
}
