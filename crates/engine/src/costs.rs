//! What each step of the receive path costs, in ns of CPU time.
//!
//! The defaults are round figures for a server of about 2020 at 3 GHz. They were put together from
//! the shape of published measurements, not measured on one machine: believe the ratios between
//! policies before the absolute numbers, and give your own figures where you have them.

/// Costs of the steps, in ns of CPU time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Costs {
    /// An interrupt of the device and the start of its poll; once per batch.
    pub interrupt: u32,
    /// Taking one packet from the ring, driver and buffer work.
    pub take: u32,
    /// Reading the headers and hashing, where the device gave no hash.
    pub hash: u32,
    /// Choosing a CPU from a mask.
    pub choose: u32,
    /// Asking a flow table that is in the cache.
    pub probe: u32,
    /// Putting a packet on a backlog and taking it off again.
    pub backlog: u32,
    /// Sending a signal to another CPU; once per batch.
    pub signal_send: u32,
    /// Taking a signal; once per batch.
    pub signal_take: u32,
    /// Touching a packet that a CPU of the same cache took.
    pub hop_near: u32,
    /// Touching a packet that a CPU of another cache took.
    pub hop_far: u32,
    /// Protocol work on a TCP packet, down to the socket.
    pub protocol_tcp: u32,
    /// Protocol work on a UDP packet, down to the socket.
    pub protocol_udp: u32,
    /// Protocol work on any other packet, and on one that nobody here reads.
    pub protocol_other: u32,
    /// Comparing a packet with those that are held for merging.
    pub gro: u32,
    /// Waking a reader that sleeps on this CPU.
    pub wake_local: u32,
    /// Waking a reader that sleeps on another CPU.
    pub wake_remote: u32,
    /// Switching to a reader that was asleep; on its CPU.
    pub switch: u32,
    /// Reading one message: system call, locks.
    pub read: u32,
    /// Reading one more message in the same system call.
    pub read_next: u32,
    /// Copying 1,024 bytes to the reader.
    pub copy_per_kib: u32,
    /// More for a packet that was processed by another CPU of the same cache.
    pub read_near: u32,
    /// More for a packet that was processed by a CPU of another cache.
    pub read_far: u32,
    /// Work of the application on one packet, unless its rule says otherwise.
    pub work: u32,
    /// Writing a flow table, where the word changes.
    pub record: u32,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            interrupt: 800,
            take: 120,
            hash: 30,
            choose: 10,
            probe: 15,
            backlog: 70,
            signal_send: 300,
            signal_take: 700,
            hop_near: 60,
            hop_far: 180,
            protocol_tcp: 700,
            protocol_udp: 500,
            protocol_other: 300,
            gro: 40,
            wake_local: 400,
            wake_remote: 900,
            switch: 600,
            read: 500,
            read_next: 150,
            copy_per_kib: 60,
            read_near: 120,
            read_far: 400,
            work: 1000,
            record: 40,
        }
    }
}

impl Costs {
    /// Returns the largest of all costs.
    pub fn largest(&self) -> u32 {
        let Self {
            interrupt,
            take,
            hash,
            choose,
            probe,
            backlog,
            signal_send,
            signal_take,
            hop_near,
            hop_far,
            protocol_tcp,
            protocol_udp,
            protocol_other,
            gro,
            wake_local,
            wake_remote,
            switch,
            read,
            read_next,
            copy_per_kib,
            read_near,
            read_far,
            work,
            record,
        } = *self;
        let all = [
            interrupt,
            take,
            hash,
            choose,
            probe,
            backlog,
            signal_send,
            signal_take,
            hop_near,
            hop_far,
            protocol_tcp,
            protocol_udp,
            protocol_other,
            gro,
            wake_local,
            wake_remote,
            switch,
            read,
            read_next,
            copy_per_kib,
            read_near,
            read_far,
            work,
            record,
        ];
        all.into_iter().max().unwrap_or(0)
    }
}
