//! Order table: the last position of each flow that is between two CPUs.
//!
//! A flow in the flow table needs no position while it stays on its CPU, so steering it writes
//! nothing. Once its consumer has moved, each packet that still goes to the old CPU leaves its
//! position here, until the old CPU has passed the last of them. Few flows are between two CPUs
//! at once, so the table is small: one slot a hash, the last writer has it. A flow that lost its
//! slot is told "no position" and waits for the whole backlog of its CPU instead: later, never
//! early.
//!
//! Always true: a position is returned only to the hash that left it.

use crate::FlowHash;
use crate::sync::{AtomicU64, Ordering};

/// A view of the positions of one receive queue.
#[derive(Clone, Copy, Debug)]
pub struct OrderTable<'a> {
    slots: &'a [AtomicU64],
    log: u32,
}

impl<'a> OrderTable<'a> {
    /// Value of a free slot in the storage.
    pub const FREE: u64 = 0;

    /// Returns a view of `slots`; if their number is no power of two the rest is not used.
    #[inline]
    pub const fn new(slots: &'a [AtomicU64]) -> Self {
        Self { slots, log: if slots.is_empty() { 0 } else { slots.len().ilog2() } }
    }

    #[inline(always)]
    fn slot(self, hash: FlowHash) -> Option<&'a AtomicU64> {
        self.slots.get(hash.mix(self.log) as usize)
    }

    /// Returns the backlog's tail after the flow's last packet, if it is known.
    #[inline(always)]
    pub fn last_qtail(self, hash: FlowHash) -> Option<u32> {
        let word = self.slot(hash)?.load(Ordering::Relaxed);
        if (word >> 32) as u32 == hash.0 && !hash.is_none() { Some(word as u32) } else { None }
    }

    /// Notes the backlog's tail after a packet of the flow was put in.
    #[inline(always)]
    pub fn set(self, hash: FlowHash, tail: u32) {
        if let Some(slot) = self.slot(hash) {
            slot.store(u64::from(hash.0) << 32 | u64::from(tail), Ordering::Relaxed);
        }
    }

    /// Forgets the flow's position, and no other's.
    #[inline(always)]
    pub fn forget(self, hash: FlowHash) {
        if let Some(slot) = self.slot(hash) {
            let word = slot.load(Ordering::Relaxed);
            if (word >> 32) as u32 == hash.0 {
                slot.store(Self::FREE, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_returned_only_to_its_own_flow() {
        let slots = [const { AtomicU64::new(OrderTable::FREE) }; 1];
        let table = OrderTable::new(&slots);
        assert_eq!(table.last_qtail(FlowHash(5)), None);
        table.set(FlowHash(5), 0);
        assert_eq!(table.last_qtail(FlowHash(5)), Some(0));
        table.set(FlowHash(6), u32::MAX);
        table.forget(FlowHash(5));
        assert_eq!(table.last_qtail(FlowHash(5)), None);
        assert_eq!(table.last_qtail(FlowHash(6)), Some(u32::MAX));
        table.forget(FlowHash(6));
        assert_eq!(table.last_qtail(FlowHash(6)), None);
        assert_eq!(OrderTable::new(&[]).last_qtail(FlowHash(6)), None);
    }
}
