//! What one thread's stages counted.

use rxsteer_core::steer::{Class, Reason};
use rxsteer_sockets::Event;

use crate::Drop;

/// What happened to packets, counted in packets, merged or not.
///
/// Summed over the threads of a host, and with `waiting` datagrams still in receive queues:
///
/// * taken from rings = the sum of all reasons;
/// * that + copies = dropped + ended + queued;
/// * queued = read + waiting + discarded by closing sockets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tally {
    /// First decisions, by reason and class.
    pub decided: [[u64; Class::COUNT]; Reason::COUNT],
    /// Decisions of which a flow's change of its CPU came.
    pub moved: u64,
    /// Packets that were decided on again, since their CPU went offline.
    pub again: u64,
    /// Shed.
    pub shed: u64,
    /// Lost at a full ring.
    pub ring: u64,
    /// Lost at a full backlog.
    pub backlog: u64,
    /// Refused by the flow limit.
    pub flow_limit: u64,
    /// Lost since no CPU was there to take them.
    pub offline: u64,
    /// Ended at the sockets without being queued, by [`Event::index`].
    pub ended: [u64; Event::COUNT],
    /// Put on receive queues.
    pub queued: u64,
    /// Copies of multicast and broadcast packets, beyond the first, that were queued or ended.
    pub copies: u64,
    /// Trains that were delivered.
    pub trains: u64,
    /// Read.
    pub read: u64,
    /// Messages in which they were read.
    pub messages: u64,
    /// Read after a later packet of their flow; counted if the order is watched.
    pub reordered: u64,
}

impl Tally {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            decided: [[0; Class::COUNT]; Reason::COUNT],
            moved: 0,
            again: 0,
            shed: 0,
            ring: 0,
            backlog: 0,
            flow_limit: 0,
            offline: 0,
            ended: [0; Event::COUNT],
            queued: 0,
            copies: 0,
            trains: 0,
            read: 0,
            messages: 0,
            reordered: 0,
        }
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) {
        let Self {
            decided,
            moved,
            again,
            shed,
            ring,
            backlog,
            flow_limit,
            offline,
            ended,
            queued,
            copies,
            trains,
            read,
            messages,
            reordered,
        } = other;
        let all = self.decided.iter_mut().flatten().zip(decided.iter().flatten());
        all.chain(self.ended.iter_mut().zip(ended)).for_each(|(sum, n)| *sum += n);
        self.moved += moved;
        self.again += again;
        self.shed += shed;
        self.ring += ring;
        self.backlog += backlog;
        self.flow_limit += flow_limit;
        self.offline += offline;
        self.queued += queued;
        self.copies += copies;
        self.trains += trains;
        self.read += read;
        self.messages += messages;
        self.reordered += reordered;
    }

    /// Returns the first decisions of a reason.
    pub fn reason(&self, reason: Reason) -> u64 {
        self.decided[reason.index()].iter().sum()
    }

    /// Returns all first decisions: the packets that were taken from rings.
    pub fn decisions(&self) -> u64 {
        self.decided.iter().flatten().sum()
    }

    /// Returns the packets lost on their way, those lost at full rings left out, which nobody took.
    pub const fn dropped(&self) -> u64 {
        self.shed + self.backlog + self.flow_limit + self.offline
    }

    /// Returns how many ended in this way at the sockets.
    pub const fn ended(&self, event: Event) -> u64 {
        self.ended[event.index()]
    }

    /// Returns all that ended at the sockets without being queued.
    pub fn all_ended(&self) -> u64 {
        self.ended.iter().sum()
    }

    pub(super) const fn count_drop(&mut self, cause: Drop) {
        match cause {
            Drop::Ring => self.ring += 1,
            Drop::Backlog(_) => self.backlog += 1,
            Drop::FlowLimit(_) => self.flow_limit += 1,
            Drop::Shed => self.shed += 1,
            Drop::Offline => self.offline += 1,
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}
