//! What the front of a replay tells every policy: the same items, in order of time.

use rxsteer_core::CpuId;

use super::job::Job;
use crate::consumer::Opened;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    /// Time in ns since the first packet.
    pub(super) ns: u64,
    /// What happens.
    pub(super) item: Item,
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    /// A packet arrives.
    Packet(Job),
    /// The user of a connected socket sends.
    Sent { socket: u32, socket_use: u32 },
    /// A socket comes to be, in a place that is free or whose occupant is gone.
    Open(Opened),
    /// An unconnected socket is connected.
    Connect { socket: u32 },
    /// A connected socket is disconnected.
    Disconnect { socket: u32 },
    /// A socket is closed, its place will be used again.
    Close { socket: u32 },
    /// The thread that reads a socket is on another CPU from now on.
    Place { socket: u32, cpu: CpuId },
    /// Before all others, where it is known: the run is over at this time, in ns.
    End(u64),
    /// The event of this number takes place.
    Event(u32),
}
