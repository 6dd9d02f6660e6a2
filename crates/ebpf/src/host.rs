//! The state of the host, in maps, as core's [`Host`] and [`Queue`].

use core::slice;

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use rxsteer_core::steer::{Host, Queue};
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_ebpf::{MAX_CPUS, MAX_QUEUES, ORDER_SLOTS, cpu_state};

use crate::backlog::Backlog;

/// The packed list of CPUs of each queue.
#[map]
static QUEUES: Array<QueueMask> = Array::with_max_entries(MAX_QUEUES, 0);

/// The list that each queue had before it was changed, while packets that it spread may wait.
#[map]
static BEFORE: Array<Before> = Array::with_max_entries(MAX_QUEUES, 0);

/// The positions of flows that are between two CPUs.
#[map]
static ORDER: Array<[u64; ORDER_SLOTS]> = Array::with_max_entries(MAX_QUEUES, 0);

/// The CPUs that a queue spreads over.
#[repr(C)]
pub(crate) struct QueueMask {
    count: u16,
    /// CPUs in [`BEFORE`]; 0: that list is not in use any more.
    before: u16,
    cpus: [CpuId; MAX_CPUS],
}

/// The CPUs that a queue spread over before.
#[repr(C)]
pub(crate) struct Before {
    cpus: [CpuId; MAX_CPUS],
    /// By CPU: 1 once this queue found nothing waiting there.
    rested: [u16; MAX_CPUS],
}

/// Returns the queue of this index as it is for a hash, or `None` if it is beyond what the maps hold.
///
/// After a change of the list, a hash is spread as before until its CPU of before has nothing waiting:
/// then all its packets are done, and it is spread as the new list says from then on.
#[inline(always)]
pub(crate) fn queue(index: u32, hash: FlowHash) -> Option<Queue<'static>> {
    let mask = QUEUES.get(index)?;
    let mut map = list(&mask.cpus, mask.count)?;
    if mask.before != 0
        && let Some(before) = before(index, mask.before, map, hash)
    {
        map = before;
    }
    // SAFETY: a map value of that many words, which lives as long as the program.
    let slots = unsafe { slice::from_raw_parts(ORDER.get_ptr(index)?.cast(), ORDER_SLOTS) };
    Some(Queue { map, slots })
}

/// Returns the order table that the packets of ports have, whichever queue they came in by.
#[inline(always)]
pub(crate) fn slots_of_ports() -> Option<Queue<'static>> {
    // SAFETY: a map value of that many words, which lives as long as the program.
    let slots = unsafe { slice::from_raw_parts(ORDER.get_ptr(0)?.cast(), ORDER_SLOTS) };
    Some(Queue { map: &[], slots })
}

/// Returns 1 if no packet waits, or is in work, on any CPU that a queue spreads over; 0 if not, or if
/// there are more than 16.
///
/// A function of its own in eBPF, for the verifier.
#[inline(never)]
pub(crate) fn all_rest(index: u32) -> u64 {
    let Some(mask) = QUEUES.get(index) else { return 0 };
    let count = usize::from(mask.count);
    if count > 16 {
        return 0;
    }
    for place in 0..16 {
        if place >= count {
            break;
        }
        let Some(cpu) = mask.cpus.get(place) else { return 0 };
        if MapHost.tail(*cpu) != MapHost.head(*cpu) {
            return 0;
        }
    }
    1
}

/// Spreads a hash over the list of a queue, whatever the list was before.
#[inline(always)]
pub(crate) fn spread(index: u32, hash: FlowHash) -> Option<CpuId> {
    let mask = QUEUES.get(index)?;
    Queue { map: list(&mask.cpus, mask.count)?, slots: &[] }.spread(hash)
}

#[inline(always)]
fn list(cpus: &'static [CpuId; MAX_CPUS], count: u16) -> Option<&'static [CpuId]> {
    let count = usize::from(count);
    if count > MAX_CPUS { None } else { cpus.get(..count) }
}

/// Returns the list of before, if the hash must still go by it.
#[inline(always)]
fn before(index: u32, count: u16, new: &[CpuId], hash: FlowHash) -> Option<&'static [CpuId]> {
    let value = BEFORE.get_ptr_mut(index)?;
    // SAFETY: a map value of plain integers, which lives as long as the program.
    let list = list(unsafe { &(*value).cpus }, count)?;
    let spread = |map| Queue { map, slots: &[] }.spread(hash);
    let cpu = spread(list)?;
    if spread(new) == Some(cpu) || cpu.0 as usize >= MAX_CPUS {
        return None;
    }
    // SAFETY: as above, and in bounds; only the CPU that serves the queue writes there.
    let rested = unsafe { (&raw mut (*value).rested).cast::<u16>().add(cpu.0 as usize) };
    // SAFETY: as above.
    if unsafe { *rested } != 0 {
        return None;
    }
    let waiting = MapHost.tail(cpu).wrapping_sub(MapHost.head(cpu)) as i32;
    if !MapHost.is_online(cpu) || waiting <= 0 {
        // SAFETY: as above.
        unsafe { *rested = 1 };
        return None;
    }
    Some(list)
}

/// The CPUs as the maps say.
pub(crate) struct MapHost;

impl Host for MapHost {
    #[inline(always)]
    fn is_online(&self, cpu: CpuId) -> bool {
        word(cpu, cpu_state::ONLINE) != 0
    }

    #[inline(always)]
    fn takes_flows(&self, cpu: CpuId) -> bool {
        u64::from(word(cpu, cpu_state::ONLINE)) & cpu_state::TAKES != 0
    }

    #[inline(always)]
    fn head(&self, cpu: CpuId) -> u32 {
        if u64::from(word(cpu, cpu_state::ONLINE)) & cpu_state::HOLDS != 0 {
            // Behind every position that a flow may wait for.
            return word(cpu, cpu_state::TAIL).wrapping_sub(1 << 30);
        }
        word(cpu, cpu_state::HEAD)
    }

    #[inline(always)]
    fn tail(&self, cpu: CpuId) -> u32 {
        word(cpu, cpu_state::TAIL)
    }

    #[inline(always)]
    fn beside(&self, cpu: CpuId) -> Option<CpuId> {
        match word(cpu, cpu_state::BESIDE) {
            0 => None,
            more => Some(CpuId((more - 1) as u16)),
        }
    }

    /// What was taken waits no longer, whether it is done or not.
    #[inline(always)]
    fn waiting(&self, cpu: CpuId) -> u32 {
        let waiting = word(cpu, cpu_state::TAIL).wrapping_sub(word(cpu, cpu_state::TAKEN));
        // Between the two loads the CPU may have taken more than were there at the first.
        if (waiting as i32) < 0 { 0 } else { waiting }
    }
}

#[inline(always)]
fn word(cpu: CpuId, word: usize) -> u32 {
    Backlog::of(u32::from(cpu.0)).map_or(0, |backlog| backlog.word(word) as u32)
}
