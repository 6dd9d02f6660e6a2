//! The queue itself, and the producers' side of it.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use super::context::QueueContext;
use super::counts::SocketCounters;
use super::credit::{Credit, InUse};
use super::item::{Datagram, PushError};
use super::limits::{Limits, Release};
use super::memory::{MemoryAccount, PAGE_BYTES};
use super::segment::{Chain, Pile};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use super::wait::WaitList;
use crate::counters::{Event, IpVersion, UdpSnapshot};
use crate::datagram::Malformed;

/// The receive queue of one socket. See the [module](super) for how it works.
#[repr(C)] // in this order: first what producers write, then what readers write
pub struct ReceiveQueue<P> {
    pub(super) credit: Credit,
    pub(super) arrivals: Mutex<Arrivals<P>>,
    /// Written under the producers' lock.
    closed: AtomicBool,
    release: Release,
    pub(super) context: Arc<QueueContext<P>>,
    pub(super) reader: OwnLine<Mutex<Reader<P>>>,
    pub(super) counters: SocketCounters,
}

/// Begins a cache line, so that readers who lock do not disturb producers who do.
#[repr(align(64))]
pub(super) struct OwnLine<T>(pub(super) T);

/// The producers' side: under their lock.
pub(super) struct Arrivals<P> {
    pub(super) pile: Pile<P>,
    /// Readers that wait to take a datagram.
    pub(super) readers: WaitList,
    /// Those that want to know when there is one.
    pub(super) watchers: Option<Box<WaitList>>,
    wakeups: u64,
    /// Pages drawn from the account.
    pages: u64,
}

/// The readers' side: under their lock.
pub(super) struct Reader<P> {
    pub(super) chain: Chain<P>,
    /// Read, but not yet told to the credit.
    owed: InUse,
    /// Where the next peek starts, in bytes of payload; `None`: at the front.
    pub(super) peek_offset: Option<u32>,
}

impl<P> Arrivals<P> {
    /// Takes one reader and all watchers out of the lists, to be woken.
    #[inline]
    fn who_wakes(&mut self) -> Wake {
        if self.readers.is_empty() && self.watchers.is_none() {
            return Wake { reader: None, watchers: None };
        }
        let wake = Wake { reader: self.next_reader(), watchers: self.watchers.take() };
        self.wakeups += u64::from(wake.watchers.is_some());
        wake
    }

    /// Takes the reader that has waited longest out of the list, to be woken.
    pub(super) fn next_reader(&mut self) -> Option<Waker> {
        let reader = self.readers.pop()?;
        self.wakeups += 1;
        Some(reader)
    }
}

/// What became of a burst.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[must_use]
pub struct Burst {
    /// Datagrams admitted.
    pub admitted: u64,
    /// Dropped and counted: the receive buffer was full.
    pub buffer_full: u64,
    /// Dropped and counted: no memory.
    pub no_memory: u64,
    /// The socket is closed: nothing was taken, and all are where they were.
    pub closed: bool,
}

/// Why a datagram is not admitted, for inside use.
#[derive(Clone, Copy)]
enum Refusal {
    BufferFull,
    NoMemory,
}

/// Wakers to be called once the lock is released.
#[must_use]
pub(super) struct Wake {
    reader: Option<Waker>,
    watchers: Option<Box<WaitList>>,
}

impl Wake {
    #[inline]
    pub(super) fn wake(self) {
        if let Some(reader) = self.reader {
            reader.wake();
        }
        if let Some(watchers) = self.watchers {
            watchers.wake_all();
        }
    }
}

impl<P> ReceiveQueue<P> {
    /// Creates an empty queue that releases room exactly ([`Release::Exact`]). Allocates nothing.
    pub fn new(context: &Arc<QueueContext<P>>, limits: Limits) -> Self {
        Self::with_release(context, limits, Release::Exact)
    }

    /// Creates an empty queue that releases room as this says: a [`Release`], or a
    /// [`Profile`](crate::Profile) whose way it is.
    pub fn with_release(
        context: &Arc<QueueContext<P>>,
        limits: Limits,
        release: impl Into<Release>,
    ) -> Self {
        Self {
            credit: Credit::new(limits),
            arrivals: Mutex::new(Arrivals {
                pile: Pile::new(),
                readers: WaitList::default(),
                watchers: None,
                wakeups: 0,
                pages: 0,
            }),
            closed: AtomicBool::new(false),
            release: release.into(),
            context: Arc::clone(context),
            reader: OwnLine(Mutex::new(Reader {
                chain: Chain::new(),
                owed: InUse::default(),
                peek_offset: None,
            })),
            counters: SocketCounters::default(),
        }
    }

    /// Returns the credit line: what waits, and the limits.
    pub const fn credit(&self) -> &Credit {
        &self.credit
    }

    /// Changes the limits. What waits stays, also if it is more than they allow.
    pub fn set_limits(&self, limits: Limits) {
        self.credit.set_limits(limits);
    }

    /// Returns the counters of this socket under the kernel's names.
    ///
    /// Exact while nobody is in the middle of an operation; otherwise a drop for another cause may be
    /// seen as one for a full buffer for a moment.
    pub fn counters(&self) -> UdpSnapshot {
        self.counters.snapshot(|| self.credit.drops())
    }

    /// Returns how often a waker was called for datagrams: once for each reader, and once for all
    /// watchers of an event.
    pub fn wakeups(&self) -> u64 {
        lock(&self.arrivals).wakeups
    }

    /// Admits a datagram, or drops and counts it.
    ///
    /// Takes the producers' lock once; a datagram for which there is no room costs no lock. Wakes at
    /// most one reader, and those who watch.
    ///
    /// # Errors
    /// [`PushError::BufferFull`] and [`PushError::NoMemory`], dropped and counted;
    /// [`PushError::Closed`] with the datagram, not counted.
    pub fn push(&self, datagram: Datagram<P>) -> Result<(), PushError<P>> {
        if self.is_closed() {
            return Err(PushError::Closed(datagram));
        }
        let version = datagram.ip_version();
        // What the lock would make certain is likely enough: in an overload this is the common case.
        if !self.credit.has_room_for(datagram.charge()) {
            return Err(self.refused(version, Refusal::BufferFull));
        }
        let mut arrivals = lock(&self.arrivals);
        if self.is_closed() {
            return Err(PushError::Closed(datagram));
        }
        if let Err(refusal) = self.charge(&mut arrivals, datagram.charge()) {
            drop(arrivals); // before the datagram
            return Err(self.refused(version, refusal));
        }
        self.append(&mut arrivals, datagram);
        let wake = arrivals.who_wakes();
        drop(arrivals);
        wake.wake();
        Ok(())
    }

    /// Admits the datagrams of a burst, in order, each if there is room for it; drops and counts the
    /// others.
    ///
    /// Takes the producers' lock once and wakes one reader once, for all of them. Leaves the vector
    /// empty, its capacity kept; if the socket is closed, leaves it as it is.
    pub fn push_burst(&self, burst: &mut Vec<Datagram<P>>) -> Burst {
        let mut result = Burst::default();
        let mut refused = Vec::new();
        let smallest = burst.iter().map(Datagram::charge).min();
        if !self.is_closed() && smallest.is_some_and(|size| !self.credit.has_room_for(size)) {
            for datagram in burst.drain(..) {
                self.refused(datagram.ip_version(), Refusal::BufferFull);
                result.buffer_full += 1;
            }
            return result;
        }
        let mut arrivals = lock(&self.arrivals);
        if self.is_closed() {
            result.closed = true;
            return result;
        }
        for datagram in burst.drain(..) {
            match self.charge(&mut arrivals, datagram.charge()) {
                Ok(()) => {
                    self.append(&mut arrivals, datagram);
                    result.admitted += 1;
                }
                Err(refusal) => {
                    self.refused(datagram.ip_version(), refusal);
                    match refusal {
                        Refusal::BufferFull => result.buffer_full += 1,
                        Refusal::NoMemory => result.no_memory += 1,
                    }
                    refused.push(datagram); // to be dropped without the lock
                }
            }
        }
        let wake = (result.admitted > 0).then(|| arrivals.who_wakes());
        drop(arrivals);
        if let Some(wake) = wake {
            wake.wake();
        }
        result
    }

    /// Counts a datagram for this socket that a filter or policy refused before the queue.
    pub fn count_refused(&self, version: IpVersion) {
        self.count_drop(version, Event::Refused);
    }

    /// Counts a datagram for this socket that was found malformed before the queue: by an
    /// encapsulation socket, say, or over IPv6 without a checksum that the socket insists on.
    pub fn count_malformed(&self, version: IpVersion, why: Malformed) {
        self.count_drop(version, Event::Malformed(why));
    }

    pub(super) fn count_drop(&self, version: IpVersion, why: Event) {
        self.context.counters.count(version, why, 1);
        self.credit.dropped(1);
        self.counters.count(why, 1);
    }

    /// Closes the queue: no datagram is admitted any more, and all who wait are woken. What waits can
    /// still be read.
    pub fn close(&self) {
        let mut arrivals = lock(&self.arrivals);
        self.closed.store(true, Ordering::Release);
        let readers = mem::take(&mut arrivals.readers);
        let watchers = arrivals.watchers.take();
        drop(arrivals);
        readers.wake_all();
        if let Some(watchers) = watchers {
            watchers.wake_all();
        }
    }

    /// Returns whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Drops all that waits, counted as [`Event::Discarded`]; returns how many.
    pub fn purge(&self) -> u64 {
        let mut reader = lock(&self.reader.0);
        let mut older = mem::replace(&mut reader.chain, Chain::new());
        let mut newer = lock(&self.arrivals).pile.take();
        let totals = {
            let mut totals = older.totals();
            totals.add(newer.totals());
            totals
        };
        self.consumed(&mut reader, totals.bytes, totals.packets);
        drop(reader);
        older.give_back(&self.context.segments);
        newer.give_back(&self.context.segments);
        let v4 = totals.packets - totals.v6;
        for (version, n) in [(IpVersion::V4, v4), (IpVersion::V6, totals.v6)] {
            if n > 0 {
                self.context.counters.count(version, Event::Discarded, n);
            }
        }
        totals.packets
    }

    /// Tells the credit what was read, now or later.
    pub(super) fn consumed(&self, reader: &mut Reader<P>, bytes: u64, packets: u64) {
        reader.owed.bytes += bytes;
        reader.owed.packets += packets;
        let hold = match self.release {
            Release::Exact => false,
            Release::Quarter => {
                let quarter = u64::from(self.credit.limits().bytes >> 2);
                !reader.chain.is_empty() && reader.owed.bytes < quarter
            }
        };
        if hold {
            return;
        }
        let owed = mem::take(&mut reader.owed);
        self.credit.consume(owed.bytes, owed.packets);
        let memory = self.context.memory.as_ref().filter(|_| reader.chain.is_empty());
        if memory.is_some() || self.release == Release::Quarter {
            let mut arrivals = lock(&self.arrivals);
            if let Some(memory) = memory {
                self.give_back(memory, &mut arrivals);
            }
            if self.release == Release::Quarter {
                reader.chain.append(arrivals.pile.take());
            }
        }
    }

    /// Finds room for a datagram of this size, and draws memory for it.
    fn charge(&self, arrivals: &mut MutexGuard<'_, Arrivals<P>>, size: u64) -> Result<(), Refusal> {
        if !self.credit.has_room_for(size) {
            return Err(Refusal::BufferFull);
        }
        if let Some(memory) = &self.context.memory {
            let held = self.credit.in_use().bytes;
            let pages = (held + size).div_ceil(PAGE_BYTES);
            let missing = pages.saturating_sub(arrivals.pages);
            if missing > 0 && !memory.draw(missing, held) {
                return Err(Refusal::NoMemory);
            }
            arrivals.pages += missing;
        }
        Ok(())
    }

    fn append(&self, arrivals: &mut MutexGuard<'_, Arrivals<P>>, mut datagram: Datagram<P>) {
        datagram.drops_before = self.credit.drops() as u32; // wraps, as documented
        self.credit.admit(datagram.charge());
        arrivals.pile.push(datagram, &self.context.segments);
    }

    fn give_back(&self, memory: &MemoryAccount, arrivals: &mut MutexGuard<'_, Arrivals<P>>) {
        let pages = self.credit.in_use().bytes.div_ceil(PAGE_BYTES);
        let excess = arrivals.pages.saturating_sub(pages);
        memory.give_back(excess);
        arrivals.pages -= excess;
    }

    fn refused(&self, version: IpVersion, refusal: Refusal) -> PushError<P> {
        let (event, error) = match refusal {
            Refusal::BufferFull => (Event::BufferFull, PushError::BufferFull),
            Refusal::NoMemory => (Event::NoMemory, PushError::NoMemory),
        };
        self.count_drop(version, event);
        error
    }
}

impl<P> Drop for ReceiveQueue<P> {
    fn drop(&mut self) {
        self.purge();
    }
}

impl<P> fmt::Debug for ReceiveQueue<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveQueue")
            .field("in_use", &self.credit.in_use())
            .field("limits", &self.credit.limits())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
