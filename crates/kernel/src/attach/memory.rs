//! Maps of the running programs, mapped into this process: the same memory, seen by both.
//!
//! So [`FlowTable`] sweeps the flow tables while packets flow, word by word with compare-and-swap, and a
//! word of a CPU's state changes alone; writing values back through the map's system call would undo
//! what the programs wrote meanwhile.
//!
//! Always true: a mapping is as long as its map, and lives as long as what borrows from it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rxsteer_core::CpuId;
use rxsteer_core::table::{Bucket, FlowTable};
use rxsteer_ebpf::{MAX_CPUS, cpu_state};

/// The memory of a map, as values of `T`.
#[derive(Debug)]
struct Mapped<T> {
    start: NonNull<T>,
    count: usize,
}

// SAFETY: the two types below map atomic words, made to be shared; a mapping moves with its owner.
unsafe impl<T: Sync> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> Mapped<T> {
    /// Maps the first `count` values of a map.
    ///
    /// # Safety
    /// `T` is made of atomic words, of which every value is possible.
    unsafe fn new(map: impl AsFd, count: usize) -> io::Result<Self> {
        // SAFETY: no memory of ours is touched: the kernel picks the place; it refuses a length
        // beyond the map.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, count })
    }

    fn values(&self) -> &[T] {
        // SAFETY: the mapping is that long and page-aligned, lives as long as `self`, and holds words
        // of any value, which are only ever read and written as atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<T>()) };
    }
}

/// The buckets of the flow tables.
#[derive(Debug)]
pub(crate) struct FlowMemory {
    buckets: Mapped<Bucket>,
    tcp_buckets: usize,
}

impl FlowMemory {
    /// Maps the buckets of a map: `tcp_buckets` of TCP, then the others.
    pub(crate) fn map(map: impl AsFd, tcp_buckets: u32, buckets: u32) -> io::Result<Self> {
        // SAFETY: a bucket is eight atomic words of any value.
        let buckets = unsafe { Mapped::new(map, buckets as usize) }?;
        Ok(Self { buckets, tcp_buckets: tcp_buckets as usize })
    }

    /// Returns all buckets as one table, or `None` if its size is not that of a table.
    pub(crate) fn table(&self) -> Option<FlowTable<&[Bucket]>> {
        FlowTable::new(self.buckets.values()).ok()
    }

    /// Returns the tables of TCP and of UDP, or `None` if their sizes are not those of tables.
    pub(crate) fn tables(&self) -> Option<[FlowTable<&[Bucket]>; 2]> {
        let (tcp, udp) = self.buckets.values().split_at_checked(self.tcp_buckets)?;
        Some([FlowTable::new(tcp).ok()?, FlowTable::new(udp).ok()?])
    }
}

/// The states of the CPUs, see [`cpu_state`].
#[derive(Debug)]
pub(crate) struct StateMemory(Mapped<AtomicU64>);

impl StateMemory {
    /// Maps the states of a map.
    pub(crate) fn map(map: impl AsFd) -> io::Result<Self> {
        // SAFETY: words, of any value.
        unsafe { Mapped::new(map, MAX_CPUS * cpu_state::WORDS) }.map(Self)
    }

    /// Returns a word of a CPU that the maps have room for.
    pub(crate) fn word(&self, cpu: CpuId, word: usize) -> &AtomicU64 {
        &self.0.values()[usize::from(cpu.0) * cpu_state::WORDS + word]
    }
}
