//! The flow tables of the running programs, mapped into this process: the same memory, seen by
//! both.
//!
//! So [`FlowTable`] sweeps them while packets flow, word by word with compare-and-swap; writing
//! buckets back through the map's system call would undo what the programs wrote meanwhile.
//!
//! Always true: the mapping is as long as the map, and lives as long as what borrows from it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use rxsteer_core::table::{Bucket, FlowTable};

/// The buckets of a map.
#[derive(Debug)]
pub(crate) struct FlowMemory {
    start: NonNull<Bucket>,
    buckets: usize,
    tcp_buckets: usize,
}

// SAFETY: buckets are made of atomic words and made to be shared; the mapping moves with its owner.
unsafe impl Send for FlowMemory {}
// SAFETY: as above.
unsafe impl Sync for FlowMemory {}

impl FlowMemory {
    /// Maps the buckets of a map: `tcp_buckets` of TCP, then the others.
    pub(crate) fn map(map: impl AsFd, tcp_buckets: u32, buckets: u32) -> io::Result<Self> {
        let (tcp_buckets, buckets) = (tcp_buckets as usize, buckets as usize);
        let len = buckets * size_of::<Bucket>();
        // SAFETY: no memory of ours is touched: the kernel picks the place; it refuses a length
        // beyond the map.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
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
        Ok(Self { start, buckets, tcp_buckets })
    }

    /// Returns the tables of TCP and of UDP, or `None` if their sizes are not those of tables.
    pub(crate) fn tables(&self) -> Option<[FlowTable<&[Bucket]>; 2]> {
        // SAFETY: the mapping is that long and page-aligned, lives as long as `self`, and holds
        // words of any value, which are only ever read and written as atomics.
        let all = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.buckets) };
        let (tcp, udp) = all.split_at_checked(self.tcp_buckets)?;
        Some([FlowTable::new(tcp).ok()?, FlowTable::new(udp).ok()?])
    }
}

impl Drop for FlowMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.buckets * size_of::<Bucket>()) };
    }
}
