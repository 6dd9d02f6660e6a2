//! The state of the host, in maps, as core's [`Host`] and [`Queue`].

use core::slice;

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use rxsteer_core::CpuId;
use rxsteer_core::steer::{Host, Queue};
use rxsteer_ebpf::{MAX_CPUS, MAX_QUEUES, ORDER_SLOTS, cpu_state};

use crate::backlog::Backlog;

/// The packed list of CPUs of each queue.
#[map]
static QUEUES: Array<QueueMask> = Array::with_max_entries(MAX_QUEUES, 0);

/// The positions of flows that are between two CPUs.
#[map]
static ORDER: Array<[u64; ORDER_SLOTS]> = Array::with_max_entries(MAX_QUEUES, 0);

/// The CPUs that a queue spreads over.
#[repr(C)]
pub(crate) struct QueueMask {
    count: u32,
    cpus: [CpuId; MAX_CPUS],
}

/// Returns the queue of this index, or `None` if it is beyond what the maps hold.
#[inline(always)]
pub(crate) fn queue(index: u32) -> Option<Queue<'static>> {
    let mask = QUEUES.get(index)?;
    let count = mask.count as usize;
    let map = if count > MAX_CPUS { return None } else { mask.cpus.get(..count)? };
    // SAFETY: a map value of that many words, which lives as long as the program.
    let slots = unsafe { slice::from_raw_parts(ORDER.get_ptr(index)?.cast(), ORDER_SLOTS) };
    Some(Queue { map, slots })
}

/// The CPUs as the maps say.
pub(crate) struct MapHost;

impl Host for MapHost {
    #[inline(always)]
    fn is_online(&self, cpu: CpuId) -> bool {
        word(cpu, cpu_state::ONLINE) != 0
    }

    #[inline(always)]
    fn head(&self, cpu: CpuId) -> u32 {
        word(cpu, cpu_state::HEAD)
    }

    #[inline(always)]
    fn tail(&self, cpu: CpuId) -> u32 {
        word(cpu, cpu_state::TAIL)
    }

    /// What was taken waits no longer, whether it is done or not.
    #[inline(always)]
    fn waiting(&self, cpu: CpuId) -> u32 {
        word(cpu, cpu_state::TAIL).wrapping_sub(word(cpu, cpu_state::TAKEN))
    }
}

#[inline(always)]
fn word(cpu: CpuId, word: usize) -> u32 {
    Backlog::of(u32::from(cpu.0)).map_or(0, |backlog| backlog.word(word) as u32)
}
