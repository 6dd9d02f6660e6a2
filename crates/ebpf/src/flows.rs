//! The flow tables, in a map.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use rxsteer_core::steer::Class;
use rxsteer_core::table::{
    Bucket, Epoch, Geometry, Lookup, Recorded, WAYS, probe_buckets, record_entry, record_entry_if,
    withdraw_entry,
};
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_ebpf::{Config, MMAPABLE};

/// The buckets: those of TCP, then those of UDP. The loader sets how many.
#[map]
static FLOWS: Array<[u64; WAYS]> = Array::with_max_entries(2 * 8192, MMAPABLE);

const _: () = assert!(size_of::<Bucket>() == 8 * WAYS && align_of::<Bucket>() == 8);

/// One of the flow tables.
#[derive(Clone, Copy)]
pub(crate) struct Flows {
    first: u32,
    geometry: Geometry,
}

impl Flows {
    /// Returns the table that holds the flows of a class, if its size is possible.
    #[inline(always)]
    pub(crate) fn of(config: &Config, class: Class) -> Option<Self> {
        let (first, buckets) = if class.is_tcp() {
            (0, config.tcp_buckets)
        } else {
            (config.tcp_buckets, config.udp_buckets)
        };
        Some(Self { first, geometry: Geometry::new(buckets as usize)? })
    }

    /// Returns what the table knows of a flow.
    #[inline(always)]
    pub(crate) fn lookup(self, hash: FlowHash, now: Epoch) -> Lookup {
        probe_buckets(self.geometry, hash, now, |index| self.bucket(index))
    }

    /// Records that the consumer of a flow runs on `cpu`.
    #[inline(always)]
    pub(crate) fn record(self, hash: FlowHash, cpu: CpuId, now: Epoch) -> Recorded {
        record_entry(
            self.geometry,
            hash,
            cpu,
            now,
            |index| self.bucket(index),
            |word, old, new| swap(word.as_ptr(), old, new),
        )
    }

    /// The same for a flow that no connected socket vouches for; see [`record_entry_if`].
    #[inline(always)]
    pub(crate) fn record_if(
        self,
        hash: FlowHash,
        cpu: CpuId,
        now: Epoch,
        may_enter: impl FnOnce() -> bool,
    ) -> Recorded {
        record_entry_if(
            self.geometry,
            hash,
            cpu,
            now,
            may_enter,
            |index| self.bucket(index),
            |word, old, new| swap(word.as_ptr(), old, new),
        )
    }

    /// Forgets a flow and no other; returns whether there was one.
    #[inline(always)]
    pub(crate) fn withdraw(self, hash: FlowHash) -> bool {
        withdraw_entry(
            self.geometry,
            hash,
            |index| self.bucket(index),
            |word, old, new| swap(word.as_ptr(), old, new),
        )
    }

    /// Returns a bucket of the table.
    #[inline(always)]
    pub(crate) fn bucket(self, index: u32) -> Option<&'static Bucket> {
        let bucket = FLOWS.get_ptr(self.first.wrapping_add(index))?;
        // SAFETY: a map value of that size and alignment, which lives as long as the program; a
        // bucket is eight words of any value.
        Some(unsafe { &*bucket.cast() })
    }
}

/// Swaps `new` in for `old`; `false` if the word holds something else.
#[inline(always)]
pub(crate) fn swap(word: *mut u64, old: u64, new: u64) -> bool {
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
    // SAFETY: the word lives in a map and is made to be written while shared.
    unsafe { atomic_cxchg::<u64, ORDER, ORDER>(word, old, new).1 }
}
