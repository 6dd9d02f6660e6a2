//! The backlogs of the CPUs: positions of packets in the queues of the CPUMAP, and what is done.
//!
//! A position is a count of packets sent to a CPU. A flow may change its CPU once the old one is
//! *done* with all up to the flow's last position. The program on the CPUMAP entry sees a packet
//! when it is taken from the queue, which is before it reaches its socket: the kernel's thread
//! takes up to eight at once, hands them on when the programs have run over all of them, and its
//! GRO may keep some for longer. So "taken" is not "done", and done is only what one of two things
//! proves:
//!
//! * The thread goes to sleep ([`slept`]). It does so only after it found the queue empty, and with
//!   an empty queue it has handed on everything, GRO's packets too.
//! * Enough went by ([`take`]). What was taken before a mark is done when the kernel's tick has
//!   changed since the mark and [`SETTLED`] packets were taken after that: the thread flushes GRO
//!   at least every 64 packets, and such a flush hands on whatever is older than the tick.
//!
//! Always true: `HEAD` counts only packets that are done; so a flow moves late, never early.
//! What is lost between the two counts is taken off the tail when the kernel tells of the loss, so
//! no flow waits for a packet that never comes.
//! Elsewhere: who asks ([`crate::host`]).
//! Source: the specification of the receive path, "XDP cpumap".

use core::intrinsics::{AtomicOrdering, atomic_xadd, atomic_xsub};

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_get_smp_processor_id, bpf_jiffies64};
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use rxsteer_core::CpuId;
use rxsteer_ebpf::{MAX_CPUS, MMAPABLE, cpu_state};

/// Relaxed would do, but LLVM then takes the instruction that returns nothing and hands on a register
/// that holds something else, also where the result is used.
const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;

/// Most packets that the kernel's thread takes from its queue at once.
const BATCH: u64 = 8;

/// Packets after which a flush of GRO lies behind: 64 that make the thread flush, and three batches
/// that this may be off by.
const SETTLED: u64 = 64 + 4 * BATCH;

/// See [`cpu_state`].
#[map]
static CPU_STATES: Array<[u64; cpu_state::WORDS]> =
    Array::with_max_entries(MAX_CPUS as u32, MMAPABLE);

/// The identity of the CPUMAP, for events of all CPUMAPs of the machine.
#[map]
static IDS: Array<u32> = Array::with_max_entries(1, 0);

/// The words of one CPU.
#[derive(Clone, Copy)]
pub(crate) struct Backlog(*mut u64);

impl Backlog {
    /// Returns the backlog of a CPU, or `None` if its id is beyond what the maps hold.
    #[inline(always)]
    pub(crate) fn of(cpu: u32) -> Option<Self> {
        Some(Self(CPU_STATES.get_ptr_mut(cpu)?.cast()))
    }

    /// Loads a word.
    #[inline(always)]
    pub(crate) fn word(self, word: usize) -> u64 {
        // SAFETY: `of` got a map value of `WORDS` words, and all callers stay below that.
        unsafe { self.0.add(word).read_volatile() }
    }

    /// Stores a word that no other CPU writes.
    #[inline(always)]
    fn set(self, word: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.add(word).write_volatile(value) }
    }

    /// Adds to a word that other CPUs write too and returns what it was before.
    #[inline(always)]
    fn add(self, word: usize, count: u64) -> u64 {
        // SAFETY: as above; the word is made to be written while shared.
        unsafe { atomic_xadd::<u64, u64, ORDER>(self.0.add(word), count) }
    }

    /// Counts packets that were sent to this CPU and are lost.
    #[inline(always)]
    fn lose(self, word: usize, count: u64) {
        // SAFETY: as above.
        unsafe { atomic_xsub::<u64, u64, ORDER>(self.0.add(cpu_state::TAIL), count) };
        self.add(word, count);
    }
}

/// Counts a packet that is sent to `cpu` and returns the tail of that CPU after it.
#[inline(always)]
pub(crate) fn put(cpu: CpuId) -> u32 {
    Backlog::of(u32::from(cpu.0))
        .map_or(0, |backlog| backlog.add(cpu_state::TAIL, 1).wrapping_add(1) as u32)
}

/// Counts a packet that this CPU takes from its queue.
#[inline(always)]
pub(crate) fn take() {
    // SAFETY: the helpers have no conditions.
    let (cpu, tick, task) =
        unsafe { (bpf_get_smp_processor_id(), bpf_jiffies64(), bpf_get_current_task()) };
    let Some(backlog) = Backlog::of(cpu) else { return };
    let taken = backlog.word(cpu_state::TAKEN).wrapping_add(1);
    backlog.set(cpu_state::TAKEN, taken);
    if backlog.word(cpu_state::CONSUMER) != task {
        backlog.set(cpu_state::CONSUMER, task);
    }
    // `MARK_TICK`: packets taken when the tick had changed after the mark, 0 until then.
    let since = backlog.word(cpu_state::MARK_TICK);
    if since == 0 {
        if tick != backlog.word(cpu_state::MARK_TIME) {
            backlog.set(cpu_state::MARK_TICK, taken);
        }
    } else if taken.wrapping_sub(since) >= SETTLED {
        // At the mark, the last batch was still in hand.
        let done = backlog.word(cpu_state::MARK).wrapping_sub(BATCH);
        if done.wrapping_sub(backlog.word(cpu_state::HEAD)) as i64 > 0 {
            backlog.set(cpu_state::HEAD, done);
        }
        backlog.set(cpu_state::MARK, taken);
        backlog.set(cpu_state::MARK_TIME, tick);
        backlog.set(cpu_state::MARK_TICK, 0);
    }
}

/// Notes that the thread of this CPU that takes packets goes to sleep: all it took is done.
#[inline(always)]
pub(crate) fn slept() {
    // SAFETY: the helpers have no conditions.
    let (cpu, task) = unsafe { (bpf_get_smp_processor_id(), bpf_get_current_task()) };
    let Some(backlog) = Backlog::of(cpu) else { return };
    if backlog.word(cpu_state::CONSUMER) == task {
        backlog.set(cpu_state::HEAD, backlog.word(cpu_state::TAKEN));
    }
}

/// Notes packets of a CPUMAP that did not find room in the queue of a CPU.
#[inline(always)]
pub(crate) fn lost_full(map: u32, cpu: u32, count: u32) {
    lost(map, cpu, cpu_state::LOST_FULL, count);
}

/// Notes a packet of a CPUMAP that the kernel refused after the program had sent it.
#[inline(always)]
pub(crate) fn lost_refused(map: u32, cpu: u32) {
    lost(map, cpu, cpu_state::LOST_REFUSED, 1);
}

/// Notes packets that this CPU took and could not hand on. They are done, so the tail stays.
#[inline(always)]
pub(crate) fn lost_memory(map: u32, count: u32) {
    // SAFETY: the helper has no conditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if count > 0
        && is_ours(map)
        && let Some(backlog) = Backlog::of(cpu)
    {
        backlog.add(cpu_state::LOST_MEMORY, u64::from(count));
    }
}

#[inline(always)]
fn lost(map: u32, cpu: u32, word: usize, count: u32) {
    if count > 0
        && is_ours(map)
        && let Some(backlog) = Backlog::of(cpu)
    {
        backlog.lose(word, u64::from(count));
    }
}

#[inline(always)]
fn is_ours(map: u32) -> bool {
    IDS.get(0).is_some_and(|id| *id == map)
}
