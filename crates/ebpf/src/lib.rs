//! What the programs and the code that loads them must agree on: names and layouts of the maps.
//!
//! Always true: a map value is words of one size, so that its bytes are the value on both sides.
//! Elsewhere: the programs (`src/main.rs` of this crate, another target); loading them
//! (`rxsteer-kernel`).
#![no_std]
#![warn(missing_docs, unreachable_pub)]
#![forbid(unsafe_code)]

pub mod answer;
mod config;
pub mod cpu_state;
pub mod credit;
pub mod live;
mod offsets;
mod seen;

pub use config::{
    Config, MAX_CPUS, MAX_LOCAL, MAX_QUEUES, MMAPABLE, OPTIONS, ORDER_SLOTS, PORT_BUCKETS, READERS,
    reason_index,
};
pub use offsets::{Offsets, place};
pub use seen::Seen;

/// Maps, by their names in the object.
pub mod map {
    /// Array of one: [`Config::to_words`](super::Config::to_words).
    pub const CONFIG: &str = "CONFIG";
    /// Array of the buckets of the flow tables, [`Bucket::to_words`] each.
    ///
    /// [`Bucket::to_words`]: rxsteer_core::table::Bucket::to_words
    pub const FLOWS: &str = "FLOWS";
    /// Array by CPU: see [`cpu_state`](super::cpu_state).
    pub const CPU_STATES: &str = "CPU_STATES";
    /// Array by receive queue: how many CPUs, how many stand in [`BEFORE`], then the ids of the former.
    pub const QUEUES: &str = "QUEUES";
    /// Array by receive queue: the CPUs before the list was changed; then, by CPU, whether nothing waits
    /// there that went by the list of before.
    pub const BEFORE: &str = "BEFORE";
    /// Array by receive queue: its order table.
    pub const ORDER: &str = "ORDER";
    /// CPUMAP by CPU.
    pub const CPUS: &str = "CPUS";
    /// Per-CPU array by [`reason_index`](super::reason_index): packets.
    pub const REASONS: &str = "REASONS";
    /// Array of one: the [`Seen`](super::Seen) of the last observed frame.
    pub const SEEN: &str = "SEEN";
    /// Array of one: the kernel's number of the map [`CPUS`].
    pub const IDS: &str = "IDS";
    /// Hash map by socket cookie: the flow that a connected socket is responsible for.
    pub const SOCKETS: &str = "SOCKETS";
    /// Per-CPU array by [`Recorded::index`](rxsteer_core::table::Recorded::index): what came of
    /// hearing sockets.
    pub const RECORDS: &str = "RECORDS";
    /// Array of the buckets of the table of ports, as those of [`FLOWS`].
    pub const PORTS: &str = "PORTS";
    /// Array of [`Readers`](rxsteer_core::steer::Readers), by a few bits of the name of the port.
    pub const PORT_READERS: &str = "PORT_READERS";
    /// Array of one: see [`live`](super::live).
    pub const LIVE: &str = "LIVE";
    /// Array of slots: see [`credit`](super::credit).
    pub const CREDITS: &str = "CREDITS";
    /// Array of [`answer::PORT_WORDS`](super::answer::PORT_WORDS): the ports that were declared for flows,
    /// a bit each.
    pub const FLOW_PORTS: &str = "FLOW_PORTS";
    /// Per-CPU array of one: the last answer seen; see [`answer`](super::answer).
    pub const ANSWER: &str = "ANSWER";
    /// Array: the peers that were answered, as words of a filter of repeats.
    pub const SIGHTINGS: &str = "SIGHTINGS";
    /// Per-CPU array by the places in [`answer`](super::answer): what became of answers.
    pub const ANSWERS: &str = "ANSWERS";
    /// Hash map of the addresses of the interface's namespace: 16 bytes, IPv4 as `::ffff:a.b.c.d`.
    pub const LOCAL: &str = "LOCAL";
}

/// Global variables, by their names in the object; the loader writes them before loading.
pub mod global {
    /// [`Offsets::to_words`](super::Offsets::to_words).
    pub const OFFSETS: &str = "OFFSETS";
    /// Number of the network namespace whose sockets are heard; 0: all.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// Numbers of the network namespace and of the interface whose ports are served; 0: any.
    pub const PLACE: &str = "PLACE";
}

/// Programs, by their names in the object.
pub mod program {
    /// Steers: the program that a device gets.
    pub const STEER: &str = "rxsteer_steer";
    /// Records what is read of each frame and the decision; passes it.
    pub const OBSERVE: &str = "rxsteer_observe";
    /// Spreads by a plain hash of addresses and ports, without tables: to measure against.
    pub const BARE: &str = "rxsteer_bare";
    /// Does nothing: the floor of every measurement.
    pub const PASS: &str = "rxsteer_pass";
    /// On the entries of the CPUMAP: counts what each CPU takes.
    pub const TAKEN: &str = "rxsteer_taken";
    /// When a socket is closed for good: withdraws the flow of a UDP socket.
    pub const RELEASED: &str = "rxsteer_released";
    /// On the way out: sees the answers of sockets that are not connected.
    pub const OUT: &str = "rxsteer_out";
    /// Programs on BTF tracepoints, and the tracepoint of each.
    pub const EVENTS: [(&str, &str); 8] = [
        ("rxsteer_slept", "sched_switch"),
        ("rxsteer_lost_full", "xdp_cpumap_enqueue"),
        ("rxsteer_lost_memory", "xdp_cpumap_kthread"),
        ("rxsteer_lost_refused", "xdp_redirect_err"),
        ("rxsteer_received", "sock_recv_length"),
        ("rxsteer_sent", "sock_send_length"),
        ("rxsteer_state", "inet_sock_set_state"),
        ("rxsteer_full", "udp_fail_queue_rcv_skb"),
    ];
    /// How many of [`EVENTS`], from the front, are about backlogs; the others hear sockets.
    pub const BACKLOG_EVENTS: usize = 4;
}
