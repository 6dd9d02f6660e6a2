//! The counters of one socket.

use std::sync::atomic::{AtomicU64, Ordering};

use super::receive::Reader;
use super::sync::MutexGuard;
use crate::counters::{Event, UdpSnapshot};
use crate::datagram::Malformed;

/// What happened to the datagrams of one socket. Drops for a full buffer, the ones that may come by
/// the million, have no counter of their own: they are the drops that have no other cause.
#[derive(Debug, Default)]
pub(super) struct SocketCounters {
    /// Written under the readers' lock.
    delivered: AtomicU64,
    /// Delivered after their checksum was verified, which is done without the lock.
    delivered_late: AtomicU64,
    no_memory: AtomicU64,
    bad_checksum: AtomicU64,
    refused: AtomicU64,
}

impl SocketCounters {
    /// Adds what is delivered, cheaply: the guard shows that nobody else adds here now.
    pub(super) fn delivered<P>(&self, _reader: &MutexGuard<'_, Reader<P>>, n: u64) {
        let delivered = self.delivered.load(Ordering::Relaxed);
        self.delivered.store(delivered + n, Ordering::Relaxed);
    }

    /// Adds `n` datagrams that ended this way; events that concern no socket are not counted here.
    pub(super) fn count(&self, event: Event, n: u64) {
        let counter = match event {
            Event::Delivered => &self.delivered_late,
            Event::NoMemory => &self.no_memory,
            Event::Malformed(Malformed::BadChecksum | Malformed::NoChecksum) => &self.bad_checksum,
            Event::Malformed(
                Malformed::ShortHeader
                | Malformed::LengthBelowHeader
                | Malformed::LengthBeyondPacket,
            )
            | Event::Refused => &self.refused,
            Event::BufferFull
            | Event::NoPort
            | Event::MulticastIgnored
            | Event::Discarded
            | Event::Ip(_) => return,
        };
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the counters under the kernel's names, for a socket that dropped so many datagrams.
    pub(super) fn snapshot(&self, drops: impl FnOnce() -> u64) -> UdpSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let no_memory = load(&self.no_memory);
        let bad_checksum = load(&self.bad_checksum);
        let refused = load(&self.refused);
        let mut sums = UdpSnapshot::default();
        sums.add(Event::Delivered, load(&self.delivered) + load(&self.delivered_late));
        sums.add(Event::NoMemory, no_memory);
        sums.add(Event::Malformed(Malformed::BadChecksum), bad_checksum);
        sums.add(Event::Refused, refused);
        // Each cause is counted after its drop and read before it, so as a rule this is not negative.
        let buffer_full = drops().saturating_sub(no_memory + bad_checksum + refused);
        sums.add(Event::BufferFull, buffer_full);
        sums
    }
}
