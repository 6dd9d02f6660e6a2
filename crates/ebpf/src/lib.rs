//! What the programs and the code that loads them must agree on: names and layouts of the maps.
//!
//! Always true: a map value is words of one size, so that its bytes are the value on both sides.
//! Elsewhere: the programs (`src/main.rs` of this crate, another target); loading them
//! (`rxsteer-kernel`).
#![no_std]
#![warn(missing_docs, unreachable_pub)]
#![forbid(unsafe_code)]

mod config;
mod seen;

pub use config::{Config, MAX_CPUS, MAX_QUEUES, ORDER_SLOTS};
pub use seen::Seen;

/// Maps, by their names in the object.
pub mod map {
    /// Array of one: [`Config::to_words`](super::Config::to_words).
    pub const CONFIG: &str = "CONFIG";
    /// Array of the buckets of the flow tables, [`Bucket::to_words`] each.
    ///
    /// [`Bucket::to_words`]: rxsteer_core::table::Bucket::to_words
    pub const FLOWS: &str = "FLOWS";
    /// Array by CPU: online or not, head and tail of its backlog, 0.
    pub const CPU_STATES: &str = "CPU_STATES";
    /// Array by receive queue: how many CPUs, then their ids.
    pub const QUEUES: &str = "QUEUES";
    /// Array by receive queue: its order table.
    pub const ORDER: &str = "ORDER";
    /// CPUMAP by CPU.
    pub const CPUS: &str = "CPUS";
    /// Per-CPU array by [`Reason::index`](rxsteer_core::steer::Reason::index): packets.
    pub const REASONS: &str = "REASONS";
    /// Array of one: the [`Seen`](super::Seen) of the last observed frame.
    pub const SEEN: &str = "SEEN";
}

/// Programs, by their names in the object.
pub mod program {
    /// Steers: the program that a device gets.
    pub const STEER: &str = "rxsteer_steer";
    /// Records what is read of each frame, as Linux reads it, and the decision; passes it.
    pub const OBSERVE: &str = "rxsteer_observe";
    /// Spreads by a plain hash of addresses and ports, without tables: to measure against.
    pub const BARE: &str = "rxsteer_bare";
    /// Does nothing: the floor of every measurement.
    pub const PASS: &str = "rxsteer_pass";
}
