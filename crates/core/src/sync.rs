//! The atomics of the tables: the standard ones, or Loom's in a model check.

#[cfg(all(not(loom), target_has_atomic = "32"))]
pub(crate) use core::sync::atomic::AtomicU32;
// On the BPF target: loads and stores only.
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
