//! The atomics of the tables: the standard ones, Loom's in a model check, plain words in eBPF.

#[cfg(all(not(loom), target_has_atomic = "64"))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(target_has_atomic = "64"))]
pub(crate) use bpf::AtomicU64;
#[cfg(not(target_has_atomic = "64"))]
pub(crate) use core::sync::atomic::Ordering;

/// A word of a map of the kernel.
///
/// BPF loads and stores an aligned word as a whole, but LLVM has no atomic load for it before
/// version 4 of the instruction set, and Rust no compare-and-swap at all. Here a load is a load.
#[cfg(not(target_has_atomic = "64"))]
mod bpf {
    use core::cell::Cell;

    use super::Ordering;

    /// Stands for the type of that name in `core::sync::atomic`.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct AtomicU64(Cell<u64>);

    impl AtomicU64 {
        /// Returns a word of this value.
        pub const fn new(value: u64) -> Self {
            Self(Cell::new(value))
        }

        /// Loads the word.
        #[inline(always)]
        pub fn load(&self, _: Ordering) -> u64 {
            self.0.get()
        }

        /// Stores the word.
        #[inline(always)]
        pub fn store(&self, value: u64, _: Ordering) {
            self.0.set(value);
        }

        /// Returns a pointer to the word, for the instructions that Rust does not know.
        #[inline(always)]
        pub const fn as_ptr(&self) -> *mut u64 {
            self.0.as_ptr()
        }
    }
}
