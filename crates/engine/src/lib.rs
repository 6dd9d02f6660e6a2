//! The receive path of one CPU as code, and the executors that run it on many.
//!
//! A packet's way: ring → poll → [`Stages::choose`] → own work, or the backlog of another CPU →
//! flow limit → poll → merging ([`gro`]) → [`Stages::deliver`] → reader → [`Stages::read`].
//!
//! | module | what it is |
//! | --- | --- |
//! | [`softirq`] | which instance is polled next, and when a run must stop |
//! | [`cpu`] | one CPU: what it does next, one packet's worth at a time |
//! | [`backlog`] | the queue of one CPU that all others put packets on |
//! | [`flow_limit`] | who is refused by a backlog that is half full |
//! | [`gro`] | merging packets of a flow into trains |
//! | [`overload`] | shedding early, placing beside, spilling |
//! | [`virtual_time`] | the executor of discrete events |
//! | [`threads`] | the executor of real threads |
//! | [`ready`] | which sockets of a reader have something to read |
//! | [`udp`] | the stages of real frames: steering, sockets, readers |
//!
//! The seam to the caller is one trait, [`Stages`]: it owns everything that is decided (tables,
//! sockets, counters), the engine owns queues and time.
//!
//! Always true: every packet ends exactly once: delivered and read, delivered with nobody to read
//! it, refused by its socket (which [`Stages::deliver`] counts), or in [`Stages::dropped`].
//! Elsewhere: dissecting, hashing, steering (`rxsteer-core`); sockets (`rxsteer-sockets`).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod backlog;
mod costs;
pub mod cpu;
pub mod flow_limit;
pub mod gro;
mod machine;
pub mod overload;
pub mod ready;
mod settings;
pub mod softirq;
mod stages;
// Model checks are of queues alone: under Loom the core's tables want Loom's atomics.
#[cfg(not(loom))]
pub mod threads;
#[cfg(not(loom))]
pub mod udp;
pub mod virtual_time;

pub use costs::Costs;
pub use gro::{Segment, Train};
pub use machine::Machine;
pub use settings::{Limits, Mode, Settings, UnknownMode};
pub use stages::{At, Choice, Cpus, Drop, Read, ReaderId, Reading, Stages};
