//! Atomics of the tables, or Loom's where it checks them.

#[cfg(all(not(loom), feature = "hash4"))]
pub(super) use std::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
