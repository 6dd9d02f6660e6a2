//! The steering core: from bytes to flow key, to hash, to the CPU that should process the packet.
//!
//! One crate, compiled for the host and for eBPF, so that a replay, a simulation and the running
//! kernel make the same decision for the same packet. No heap, no clock, no syscall, no panic:
//! time, random keys and the state of the CPUs are arguments.
//!
//! The way of a packet: [`mod@dissect`] reads a [`FlowKey`] through a [`Bytes`] reader, [`hash`] turns
//! it into a [`FlowHash`], [`steer`] looks it up in the [`table`]s and returns a
//! [`Decision`](steer::Decision).
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_has_atomic = "64"),
    allow(dead_code, reason = "without compare-and-swap, on the BPF target, nobody writes tables")
)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod bytes;
pub mod cpu;
pub mod dissect;
pub mod hash;
mod id;
mod port_set;
pub mod steer;
mod sync;
pub mod table;

pub use bytes::Bytes;
pub use cpu::CpuSet;
pub use dissect::{DissectError, Dissected, FlowKey, dissect};
pub use hash::FlowHash;
pub use id::{CpuId, QueueId};
pub use port_set::{PortSet, PortSetError};
