//! What each step of the receive path costs, in ns of CPU time.
//!
//! The defaults are round figures for a server of about 2020 at 3 GHz. They were put together from
//! the shape of published measurements, not measured on one machine: believe the ratios between
//! policies before the absolute numbers, and give your own figures where you have them.

/// Writes the costs and their defaults once, for the type and all that goes over its fields.
macro_rules! costs {
    ($($(#[$doc:meta])+ $name:ident: $default:literal,)+) => {
        /// Costs of the steps, in ns of CPU time.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        pub struct Costs {
            $($(#[$doc])+ pub $name: u32,)+
        }

        impl Default for Costs {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Costs {
            /// Nothing costs anything.
            #[cfg(test)]
            pub(crate) const NONE: Self = Self { $($name: 0,)+ };

            /// Returns the largest of all costs.
            pub fn largest(&self) -> u32 {
                [$(self.$name),+].into_iter().fold(0, u32::max)
            }
        }
    };
}

costs! {
    /// An interrupt of the device and the start of its poll; once per batch.
    interrupt: 800,
    /// Taking one packet from the ring, driver and buffer work.
    take: 120,
    /// Reading the headers and hashing, where the device gave no hash.
    hash: 30,
    /// Choosing a CPU from a mask.
    choose: 10,
    /// Asking a flow table that is in the cache.
    probe: 15,
    /// Putting a packet on a backlog and taking it off again.
    backlog: 70,
    /// Sending a signal to another CPU; once per batch.
    signal_send: 300,
    /// From when a CPU begins to send a signal until it stops the other CPU; nobody's CPU time. In a
    /// virtual machine the sender is busy for longer than that.
    signal_reach: 300,
    /// Taking a signal; once per batch.
    signal_take: 700,
    /// Touching a packet that a CPU of the same cache took.
    hop_near: 60,
    /// Touching a packet that a CPU of another cache took.
    hop_far: 180,
    /// Protocol work on a TCP packet, down to the socket.
    protocol_tcp: 700,
    /// Protocol work on a UDP packet, down to the socket.
    protocol_udp: 500,
    /// Protocol work on any other packet, and on one that nobody here reads.
    protocol_other: 300,
    /// Comparing a packet with those that are held for merging.
    gro: 40,
    /// Waking a reader that sleeps on this CPU.
    wake_local: 400,
    /// Waking a reader that sleeps on another CPU.
    wake_remote: 900,
    /// From when an interrupt, a signal or a wake-up reaches an idle CPU until that CPU's first step,
    /// the taking of what reached it included. Nobody is busy meanwhile. 0: an idle CPU polls.
    idle_exit: 0,
    /// Switching to a reader that was asleep; on its CPU.
    switch: 600,
    /// Reading one message: system call, locks.
    read: 500,
    /// Reading one more message in the same system call.
    read_next: 150,
    /// Copying 1,024 bytes to the reader.
    copy_per_kib: 60,
    /// More for a packet that was processed by another CPU of the same cache.
    read_near: 120,
    /// More for a packet that was processed by a CPU of another cache.
    read_far: 400,
    /// Work of the application on one packet, unless its rule says otherwise.
    work: 1000,
    /// Writing a flow table, where the word changes.
    record: 40,
}
