//! UDP counters with the kernel's names and meanings, for each IP version of a namespace.
//!
//! What is counted is an [`Event`]: each datagram that arrives ends in exactly one of them, or is
//! still waiting in a queue. The kernel's counters (`/proc/net/snmp`, `Udp` and `Udp6`) are sums of
//! events, so they cannot contradict each other: `InErrors` is always the sum of its causes.
//!
//! Always true: a [`UdpCounters`] never loses or doubles a count; `InErrors` = `RcvbufErrors` +
//! `MemErrors` + `InCsumErrors` + bad lengths + refusals.
//! Elsewhere: what is malformed ([`crate::datagram`]); what a queue refuses ([`crate::queue`]).
//! Source: spec of the receive path, "UDP header checks and per-socket receive", its table of
//! counters; RFC 4113 for the four oldest names.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::datagram::{IpFault, Malformed};

/// The IP version whose counters a datagram belongs to: the one of the packet, not of the
/// socket. An IPv4 datagram read from an IPv6 socket counts under [`V4`](Self::V4).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum IpVersion {
    /// IPv4, `Udp` in `/proc/net/snmp`.
    V4,
    /// IPv6, `Udp6` in `/proc/net/snmp6`.
    V6,
}

impl IpVersion {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the version of an address as it was on the wire.
    pub const fn of(addr: &SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::V4 => 0,
            Self::V6 => 1,
        }
    }
}

/// How a datagram ended.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Event {
    /// Handed to a reader (counted when read, not when queued), or to an encapsulation handler.
    Delivered,
    /// No socket wanted it.
    NoPort,
    /// The socket's receive buffer was full.
    BufferFull,
    /// The namespace's memory for UDP was used up.
    NoMemory,
    /// Refused by a socket filter or by policy.
    Refused,
    /// Malformed; includes a wrong checksum, found at arrival or when read.
    Malformed(Malformed),
    /// Multicast or broadcast that no socket wanted.
    MulticastIgnored,
    /// Admitted to a queue that was closed before anybody read it. The kernel does not count these.
    Discarded,
    /// Dropped in the IP layer, before UDP: part of no UDP counter of the kernel.
    Ip(IpFault),
}

impl Event {
    /// Number of different events.
    pub const COUNT: usize = 7 + Malformed::COUNT + IpFault::COUNT;

    /// Returns every event, in the order of their index.
    pub fn all() -> impl Iterator<Item = Self> {
        [
            Self::Delivered,
            Self::NoPort,
            Self::BufferFull,
            Self::NoMemory,
            Self::Refused,
            Self::MulticastIgnored,
            Self::Discarded,
        ]
        .into_iter()
        .chain(Malformed::ALL.into_iter().map(Self::Malformed))
        .chain(IpFault::ALL.into_iter().map(Self::Ip))
    }

    /// Returns the place of the event's counter, below [`COUNT`](Self::COUNT).
    pub const fn index(self) -> usize {
        match self {
            Self::Delivered => 0,
            Self::NoPort => 1,
            Self::BufferFull => 2,
            Self::NoMemory => 3,
            Self::Refused => 4,
            Self::MulticastIgnored => 5,
            Self::Discarded => 6,
            Self::Malformed(why) => 7 + why.index(),
            Self::Ip(fault) => 7 + Malformed::COUNT + fault.index(),
        }
    }
}

/// The counters of one namespace, both IP versions.
///
/// Counting touches a cache line that few other threads use: threads are spread over shards, which
/// are added up when read. Counts wrap at 2^64.
///
/// # Examples
/// ```
/// use rxsteer_sockets::{Event, IpVersion, UdpCounters};
/// let counters = UdpCounters::new();
/// counters.count(IpVersion::V4, Event::BufferFull, 3);
/// let udp = counters.snapshot(IpVersion::V4);
/// assert_eq!((udp.rcvbuf_errors, udp.in_errors), (3, 3));
/// ```
#[derive(Debug)]
pub struct UdpCounters {
    shards: Box<[Shard]>,
}

#[derive(Debug)]
#[repr(align(128))] // two lines: CPUs fetch them in pairs
struct Shard([[AtomicU64; Event::COUNT]; 2]);

/// Shards of a namespace; more threads than this share.
const SHARDS: usize = 8;

impl UdpCounters {
    /// Creates counters that are all 0.
    pub fn new() -> Self {
        let zero = || Shard([const { [const { AtomicU64::new(0) }; Event::COUNT] }; 2]);
        Self { shards: (0..SHARDS).map(|_| zero()).collect() }
    }

    /// Adds `n` datagrams that ended this way.
    pub fn count(&self, version: IpVersion, event: Event, n: u64) {
        let shard = &self.shards[shard_of_thread()];
        shard.0[version.index()][event.index()].fetch_add(n, Ordering::Relaxed);
    }

    /// Returns how many datagrams ended this way.
    pub fn event(&self, version: IpVersion, event: Event) -> u64 {
        let (version, event) = (version.index(), event.index());
        self.shards
            .iter()
            .fold(0, |sum, shard| sum.wrapping_add(shard.0[version][event].load(Ordering::Relaxed)))
    }

    /// Returns the counters of one IP version under the kernel's names.
    ///
    /// Not one instant: what other threads count meanwhile may be in some of the sums.
    pub fn snapshot(&self, version: IpVersion) -> UdpSnapshot {
        let mut sums = UdpSnapshot::default();
        for event in Event::all() {
            sums.add(event, self.event(version, event));
        }
        sums
    }
}

impl Default for UdpCounters {
    fn default() -> Self {
        Self::new()
    }
}

fn shard_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Without initialisation or destruction: the cheapest kind.
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let shard = SHARD.get();
    if shard != usize::MAX {
        return shard;
    }
    let shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    SHARD.set(shard);
    shard
}

/// UDP counters of the kernel (receiving side), for a namespace and IP version or for one socket.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct UdpSnapshot {
    /// Datagrams delivered: counted when read.
    pub in_datagrams: u64,
    /// Datagrams for a port without a socket. Always 0 for a socket.
    pub no_ports: u64,
    /// Datagrams not delivered for any other reason: the sum of the causes below, of bad lengths
    /// and of refusals.
    pub in_errors: u64,
    /// Dropped since the receive buffer was full; part of `in_errors`.
    pub rcvbuf_errors: u64,
    /// Dropped for a wrong or forbidden checksum; part of `in_errors`.
    pub in_csum_errors: u64,
    /// Multicast and broadcast datagrams without a reader; no part of `in_errors`.
    pub ignored_multi: u64,
    /// Dropped since memory accounting refused; part of `in_errors`.
    pub mem_errors: u64,
}

impl UdpSnapshot {
    /// Adds `n` times an event to the counters it belongs to.
    pub const fn add(&mut self, event: Event, n: u64) {
        match event {
            Event::Delivered => self.in_datagrams += n,
            Event::NoPort => self.no_ports += n,
            Event::BufferFull => {
                self.rcvbuf_errors += n;
                self.in_errors += n;
            }
            Event::NoMemory => {
                self.mem_errors += n;
                self.in_errors += n;
            }
            Event::Malformed(Malformed::BadChecksum | Malformed::NoChecksum) => {
                self.in_csum_errors += n;
                self.in_errors += n;
            }
            Event::Malformed(
                Malformed::ShortHeader
                | Malformed::LengthBelowHeader
                | Malformed::LengthBeyondPacket,
            )
            | Event::Refused => self.in_errors += n,
            Event::MulticastIgnored => self.ignored_multi += n,
            Event::Discarded | Event::Ip(_) => {}
        }
    }

    /// Returns names and values in the order of `/proc/net/snmp`, without the counters of sending.
    pub const fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("InDatagrams", self.in_datagrams),
            ("NoPorts", self.no_ports),
            ("InErrors", self.in_errors),
            ("RcvbufErrors", self.rcvbuf_errors),
            ("InCsumErrors", self.in_csum_errors),
            ("IgnoredMulti", self.ignored_multi),
            ("MemErrors", self.mem_errors),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_counter_of_its_own() {
        let indices: Vec<usize> = Event::all().map(Event::index).collect();
        assert_eq!(indices, (0..Event::COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn kernel_names_are_sums_of_events() {
        // Powers of two, so that every sum names its parts. Expected by the spec's table.
        let counters = UdpCounters::new();
        for event in Event::all() {
            counters.count(IpVersion::V6, event, 1 << event.index());
        }
        let bit = |event: Event| 1u64 << event.index();
        let bad = bit(Event::Malformed(Malformed::BadChecksum));
        let none = bit(Event::Malformed(Malformed::NoChecksum));
        let lengths = bit(Event::Malformed(Malformed::ShortHeader))
            + bit(Event::Malformed(Malformed::LengthBelowHeader))
            + bit(Event::Malformed(Malformed::LengthBeyondPacket));
        let full = bit(Event::BufferFull);
        let memory = bit(Event::NoMemory);
        let expected = UdpSnapshot {
            in_datagrams: bit(Event::Delivered),
            no_ports: bit(Event::NoPort),
            in_errors: full + memory + bad + none + lengths + bit(Event::Refused),
            rcvbuf_errors: full,
            in_csum_errors: bad + none,
            ignored_multi: bit(Event::MulticastIgnored),
            mem_errors: memory,
        };
        assert_eq!(counters.snapshot(IpVersion::V6), expected);
        assert_eq!(counters.snapshot(IpVersion::V4), UdpSnapshot::default());
    }

    #[test]
    fn counts_of_many_threads_add_up() {
        let counters = UdpCounters::new();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counters.count(IpVersion::V4, Event::NoPort, 2);
                    }
                });
            }
        });
        assert_eq!(counters.event(IpVersion::V4, Event::NoPort), 2 * 100 * 2 * SHARDS as u64);
    }
}
