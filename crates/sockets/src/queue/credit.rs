//! The credit of a socket: admitted minus consumed against the limit, on one cache line.
//!
//! The steering core asks a socket for room before it spends any work on a packet (lazy receiver
//! processing: Druschel and Banga, OSDI 1996). [`Credit`] is what it reads: one 64-byte line.
//!
//! Always true: each side only ever adds to its own running total, under its own lock; what is in
//! use is the difference, computed anew by each reader. So a credit cannot be lost: there is none
//! that somebody would have to hand back. A packet that dies between the hook and the queue was
//! never charged, a datagram in the queue is consumed when it is read, purged or dropped with the
//! queue, and a read of the line that fell between two writes is wrong for that one read only.
//!
//! The price: packets on their way from the hook to the queue (in a backlog) are not in the sum, so
//! a hook that admits by credit alone can admit as many more as the backlogs hold. The queue's own
//! check is exact and drops those, counted.
//! Elsewhere: the queue that writes it ([`super::ReceiveQueue`]); shedding (`rxsteer_core::steer`).

use super::limits::{HUGE_LIMIT, Limits};
use super::sync::{AtomicU64, Ordering};

/// Totals of one receive queue, readable by anybody at the cost of one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Credit {
    /// Bytes of true size ever admitted; written under the producers' lock.
    admitted_bytes: AtomicU64,
    admitted_packets: AtomicU64,
    /// Bytes of true size read, purged or found bad; written under the readers' lock.
    consumed_bytes: AtomicU64,
    consumed_packets: AtomicU64,
    limit_bytes: AtomicU64,
    limit_packets: AtomicU64,
    drops: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Credit>() == 64);

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct InUse {
    /// Bytes of true size.
    pub bytes: u64,
    /// Datagrams.
    pub packets: u64,
}

impl Credit {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            admitted_bytes: AtomicU64::new(0),
            admitted_packets: AtomicU64::new(0),
            consumed_bytes: AtomicU64::new(0),
            consumed_packets: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(u64::from(limits.bytes)),
            limit_packets: AtomicU64::new(u64::from(limits.packets)),
            drops: AtomicU64::new(0),
        }
    }

    /// Returns what is admitted and not consumed.
    ///
    /// Exact while the queue is at rest; otherwise off by what changed during the read.
    pub fn in_use(&self) -> InUse {
        // Admitted first: a datagram that comes and goes in between makes the difference too small,
        // and room is promised rather than refused. The queue has the last word. Never negative.
        let admitted_bytes = self.admitted_bytes.load(Ordering::Acquire);
        let admitted_packets = self.admitted_packets.load(Ordering::Acquire);
        let consumed_bytes = self.consumed_bytes.load(Ordering::Acquire);
        let consumed_packets = self.consumed_packets.load(Ordering::Acquire);
        InUse {
            bytes: admitted_bytes.saturating_sub(consumed_bytes),
            packets: admitted_packets.saturating_sub(consumed_packets),
        }
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Limits {
            bytes: narrow(self.limit_bytes.load(Ordering::Relaxed)),
            packets: narrow(self.limit_packets.load(Ordering::Relaxed)),
        }
    }

    /// Returns whether the queue would take a datagram of this true size now.
    ///
    /// The question of the shedding hook. Reads this one line and writes nothing.
    pub fn has_room(&self, true_size: u32) -> bool {
        self.has_room_for(u64::from(true_size.max(1)))
    }

    /// Returns how many datagrams the socket dropped, for any cause.
    pub fn drops(&self) -> u64 {
        self.drops.load(Ordering::Relaxed)
    }

    pub(super) fn has_room_for(&self, charge: u64) -> bool {
        let in_use = self.in_use();
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let limit_packets = self.limit_packets.load(Ordering::Relaxed).max(1);
        let too_many_bytes =
            in_use.bytes + charge > limit && (in_use.packets > 0 || limit > HUGE_LIMIT);
        !too_many_bytes && in_use.packets < limit_packets
    }

    pub(super) fn set_limits(&self, limits: Limits) {
        self.limit_bytes.store(u64::from(limits.bytes), Ordering::Relaxed);
        self.limit_packets.store(u64::from(limits.packets), Ordering::Relaxed);
    }

    /// Adds to the admitted totals. Only under the producers' lock: it is no atomic addition.
    pub(super) fn admit(&self, bytes: u64) {
        add(&self.admitted_packets, 1);
        add(&self.admitted_bytes, bytes);
    }

    /// Adds to the consumed totals. Only under the readers' lock: it is no atomic addition.
    pub(super) fn consume(&self, bytes: u64, packets: u64) {
        add(&self.consumed_packets, packets);
        add(&self.consumed_bytes, bytes);
    }

    pub(super) fn dropped(&self, packets: u64) {
        self.drops.fetch_add(packets, Ordering::Relaxed);
    }
}

/// Adds to a total that only the caller may write now. Release: whoever sees the new total sees
/// what was done before.
fn add(total: &AtomicU64, n: u64) {
    total.store(total.load(Ordering::Relaxed) + n, Ordering::Release);
}
