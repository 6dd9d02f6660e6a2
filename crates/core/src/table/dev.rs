//! Model of Linux's per-queue flow table: the CPU in use by each slot and the position of the
//! slot's last packet in that CPU's backlog.
//!
//! Always true: the index is inside the table for every size, also for one entry.
//! Source: spec, "Steering data layouts" and "The device flow table"; net/core/dev.c
//! (get_rps_cpu, set_rps_cpu).

use crate::sync::{AtomicU64, Ordering};
use crate::{CpuId, FlowHash};

/// How a slot is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SlotIndex {
    /// The low bits of the hash, like the global table (before 6.18).
    LowBits,
    /// The top bits of a product, so that flows do not collide in both tables (since 6.18).
    Mix,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DevFlow {
    /// CPU in use, `None` in a fresh slot.
    pub cpu: Option<CpuId>,
    /// Tail of that CPU's backlog after the slot's last packet; wraps at 2^32.
    pub last_qtail: u32,
}

/// A view of one queue's table, or of none if there are no slots.
#[derive(Clone, Copy, Debug)]
pub struct DevFlows<'a> {
    slots: &'a [AtomicU64],
    log: u32,
    index: SlotIndex,
}

const NO_CPU: u64 = 0xffff;

impl<'a> DevFlows<'a> {
    /// Value of a fresh slot in the storage.
    pub const FRESH: u64 = NO_CPU;

    /// Returns a view of `slots`; if their number is no power of two the rest is not used.
    #[inline]
    pub const fn new(slots: &'a [AtomicU64], index: SlotIndex) -> Self {
        Self { slots, log: if slots.is_empty() { 0 } else { slots.len().ilog2() }, index }
    }

    /// Returns whether the queue has no table.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the slot of a hash, below the number of slots.
    #[inline(always)]
    pub const fn slot(self, hash: FlowHash) -> u32 {
        match self.index {
            SlotIndex::LowBits => hash.0 & ((1 << self.log) - 1),
            SlotIndex::Mix => hash.mix(self.log),
        }
    }

    /// Reads a slot.
    #[inline(always)]
    pub fn load(self, slot: u32) -> DevFlow {
        let word = self.slots.get(slot as usize).map_or(NO_CPU, |w| w.load(Ordering::Relaxed));
        let cpu = word & 0xffff;
        let cpu = if cpu == NO_CPU { None } else { Some(CpuId(cpu as u16)) };
        DevFlow { cpu, last_qtail: (word >> 32) as u32 }
    }

    /// Writes a slot.
    #[inline(always)]
    pub fn store(self, slot: u32, flow: DevFlow) {
        let cpu = flow.cpu.map_or(NO_CPU, |cpu| u64::from(cpu.0));
        if let Some(word) = self.slots.get(slot as usize) {
            word.store(u64::from(flow.last_qtail) << 32 | cpu, Ordering::Relaxed);
        }
    }

    /// Writes the position of a slot's last packet and leaves its CPU.
    #[inline(always)]
    pub fn set_last_qtail(self, slot: u32, tail: u32) {
        if let Some(word) = self.slots.get(slot as usize) {
            let cpu = word.load(Ordering::Relaxed) & 0xffff;
            word.store(u64::from(tail) << 32 | cpu, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_slot_is_inside_tables_of_every_size() {
        for log in [0, 1, 2, 15] {
            let slots: Vec<_> = (0..1 << log).map(|_| AtomicU64::new(DevFlows::FRESH)).collect();
            for index in [SlotIndex::LowBits, SlotIndex::Mix] {
                let table = DevFlows::new(&slots, index);
                for hash in [0u32, 1, 0x51cc_c178, 0x8000_0000, u32::MAX] {
                    assert!((table.slot(FlowHash(hash)) as usize) < slots.len());
                }
            }
        }
    }

    #[test]
    fn a_position_is_written_without_touching_the_cpu() {
        let slots = [const { AtomicU64::new(DevFlows::FRESH) }; 2];
        let table = DevFlows::new(&slots, SlotIndex::Mix);
        assert_eq!(table.load(1).cpu, None);
        table.store(1, DevFlow { cpu: Some(CpuId(4095)), last_qtail: 7 });
        table.set_last_qtail(1, u32::MAX);
        assert_eq!(table.load(1), DevFlow { cpu: Some(CpuId(4095)), last_qtail: u32::MAX });
    }
}
