//! The backlog between threads: a lock-free ring, and the protocol of positions and signals.

use std::fmt;

use super::sync::{AtomicU32, AtomicU64, Ordering, Ring, yield_now};
use super::{CpuQueue, Enqueued, Refused};

/// Bit of the producers' word that says that the owner knows of waiting packets.
const SCHED: u64 = 1 << 32;

/// Bit of the producers' word that says that the owner takes no packets any more.
const CLOSED: u64 = 1 << 33;

/// The backlog of one CPU, shared by threads. See the [module](super) for how it works.
///
/// Any thread may put packets in; taking, finishing, completing and draining are for one thread at
/// a time, the owner.
///
/// # Examples
/// ```
/// use rxsteer_engine::backlog::{Backlog, Enqueued, Refused};
/// let backlog = Backlog::new(1); // two fit
/// assert_eq!(backlog.enqueue("a"), Ok(Enqueued { tail: 1, signal: true }));
/// assert_eq!(backlog.enqueue("b"), Ok(Enqueued { tail: 2, signal: false }));
/// assert_eq!(backlog.enqueue("c"), Err(Refused::Full("c")));
/// let mut taken = Vec::new();
/// assert_eq!(backlog.take(64, &mut taken), 2);
/// assert_eq!(backlog.head(), 0); // taken, not delivered
/// backlog.finish(2);
/// assert!(backlog.complete());
/// assert_eq!((taken, backlog.head(), backlog.dropped()), (vec!["a", "b"], 2, 1));
/// ```
pub struct Backlog<P> {
    producers: OwnLine<Producers>,
    owner: OwnLine<Owner>,
    ring: Ring<P>,
    max: u32,
}

/// Begins a cache line, so that the owner's writes do not disturb the producers.
#[repr(align(64))]
struct OwnLine<T>(T);

struct Producers {
    /// The tail in the low 32 bits, and the two marks: one word, so that a position is given out
    /// only while the backlog is open.
    state: AtomicU64,
    dropped: AtomicU64,
}

/// Written by the owner alone.
struct Owner {
    head: AtomicU32,
    /// Packets ever taken: from the head to here they are in work.
    taken: AtomicU32,
}

impl<P> Backlog<P> {
    /// Most packets that `max` may ask for: 2^20.
    pub const MOST_PACKETS: u32 = 1 << 20;

    /// Makes a backlog that refuses a packet when more than `max` wait, so `max + 1` fit. All its
    /// memory is taken here: a packet's size and 8 bytes for each place.
    ///
    /// # Panics
    /// If `max` is above [`MOST_PACKETS`](Self::MOST_PACKETS).
    pub fn new(max: u32) -> Self {
        assert!(max <= Self::MOST_PACKETS, "a backlog of {max} packets");
        Self {
            producers: OwnLine(Producers { state: AtomicU64::new(0), dropped: AtomicU64::new(0) }),
            owner: OwnLine(Owner { head: AtomicU32::new(0), taken: AtomicU32::new(0) }),
            ring: Ring::new(max as usize + 1),
            max,
        }
    }

    /// Starts the counters here instead of at 0, to be near their wrap.
    #[cfg(all(test, not(loom)))]
    pub(super) fn counting_from(self, start: u32) -> Self {
        self.producers.0.state.store(u64::from(start), Ordering::Relaxed);
        self.owner.0.head.store(start, Ordering::Relaxed);
        self.owner.0.taken.store(start, Ordering::Relaxed);
        self
    }

    /// Puts a packet in. Takes no lock; two atomic updates of one word.
    ///
    /// # Errors
    /// [`Refused`], with the packet.
    pub fn enqueue(&self, packet: P) -> Result<Enqueued, Refused<P>> {
        if let Err(full) = self.reserve() {
            return Err(if full {
                self.producers.0.dropped.fetch_add(1, Ordering::Relaxed);
                Refused::Full(packet)
            } else {
                Refused::Closed(packet)
            });
        }
        let pushed = self.ring.push(packet);
        assert!(pushed.is_ok(), "the ring has a place for each position between head and tail");
        // Release: who clears the mark after this sees the packet. The tail of now and not the one
        // reserved: another thread that reserved later may have pushed earlier, and then its
        // packet is before this one.
        let state = self.producers.0.state.fetch_or(SCHED, Ordering::AcqRel);
        Ok(Enqueued { tail: state as u32, signal: state & SCHED == 0 })
    }

    /// Gives out a place. The error says whether it is full (or else closed).
    fn reserve(&self) -> Result<(), bool> {
        let word = &self.producers.0.state;
        let mut state = word.load(Ordering::Acquire);
        loop {
            if state & CLOSED != 0 {
                return Err(false);
            }
            let tail = state as u32;
            // Acquire: the places of finished packets are free in the ring.
            let waiting = tail.wrapping_sub(self.owner.0.head.load(Ordering::Acquire));
            if waiting > self.max {
                // Or the head is newer than the tail that was read.
                let now = word.load(Ordering::Acquire);
                if now == state {
                    return Err(true);
                }
                state = now;
                continue;
            }
            let next = state & !u64::from(u32::MAX) | u64::from(tail.wrapping_add(1));
            match word.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => state = now,
            }
        }
    }

    /// Takes up to `max` packets, oldest first, and appends them; returns how many.
    pub fn take(&self, max: usize, out: &mut Vec<P>) -> usize {
        let before = out.len();
        out.extend(std::iter::from_fn(|| self.ring.pop()).take(max));
        let count = out.len() - before;
        let taken = &self.owner.0.taken;
        // Relaxed: only the owner reads and writes it.
        taken.store(taken.load(Ordering::Relaxed).wrapping_add(count as u32), Ordering::Relaxed);
        count
    }

    /// Takes the oldest packet; it is in work until [`finish`](Self::finish).
    #[inline]
    pub fn take_one(&self) -> Option<P> {
        let packet = self.ring.pop()?;
        let taken = &self.owner.0.taken;
        taken.store(taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Some(packet)
    }

    /// Moves the head on: so many of the packets taken are delivered or dropped.
    pub fn finish(&self, count: u32) {
        let Owner { head, taken } = &self.owner.0;
        let (from, taken) = (head.load(Ordering::Relaxed), taken.load(Ordering::Relaxed));
        debug_assert!(count <= taken.wrapping_sub(from), "finished before they were taken");
        // Release: whoever sees the head sees the deliveries.
        head.store(from.wrapping_add(count), Ordering::Release);
    }

    /// Ends the polling: true if nothing waits, or its coming was seen and a signal follows; false
    /// if the owner must go on polling.
    #[must_use]
    pub fn complete(&self) -> bool {
        let word = &self.producers.0.state;
        // Acquire: whoever set the mark before this, his packet is seen below. Whoever sets it
        // after this finds it clear, and signals.
        word.fetch_and(!SCHED, Ordering::AcqRel);
        if self.ring.is_empty() {
            return true;
        }
        // Take the mark back, unless the packet's bringer was faster and signals.
        word.fetch_or(SCHED, Ordering::AcqRel) & SCHED != 0
    }

    /// Refuses packets from now on: the CPU goes offline. Any thread may do this.
    pub fn close(&self) {
        self.producers.0.state.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Takes all that is left of a closed backlog, oldest first, and finishes it; returns how many.
    /// What was taken before must be delivered by now: it counts as finished too.
    ///
    /// Waits for those who have a place and have not pushed yet: a few instructions, unless they
    /// are interrupted.
    pub fn drain(&self, out: &mut Vec<P>) -> usize {
        let Owner { head, taken } = &self.owner.0;
        let before = out.len();
        loop {
            self.take(usize::MAX, out);
            let state = self.producers.0.state.load(Ordering::Acquire);
            debug_assert!(state & CLOSED != 0, "drained while open");
            if taken.load(Ordering::Relaxed) == state as u32 {
                break;
            }
            yield_now();
        }
        head.store(taken.load(Ordering::Relaxed), Ordering::Release);
        out.len() - before
    }

    /// Takes packets again, as one that was signalled: the owner must poll until
    /// [`complete`](Self::complete).
    pub fn open(&self) {
        // Marked first: a producer must not find it open and unmarked, and signal an owner that
        // polls already.
        self.producers.0.state.fetch_or(SCHED, Ordering::AcqRel);
        self.producers.0.state.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Returns whether it refuses packets.
    pub fn is_closed(&self) -> bool {
        self.producers.0.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Returns how many packets were ever finished; wraps at 2^32.
    #[inline]
    pub fn head(&self) -> u32 {
        self.owner.0.head.load(Ordering::Acquire)
    }

    /// Returns how many packets were ever put in, those included that are being pushed; wraps at
    /// 2^32.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.producers.0.state.load(Ordering::Acquire) as u32
    }

    /// Returns how many packets are in or in work.
    pub fn waiting(&self) -> u32 {
        let mut head = self.head();
        loop {
            let tail = self.tail();
            // Of one moment only if the head stood still: it never passes a tail that is read after
            // it, but whoever is held up between the two finds the tail any distance ahead.
            match self.head() {
                same if same == head => return tail.wrapping_sub(head),
                now => head = now,
            }
        }
    }

    /// Returns how many packets were refused because it was full.
    pub fn dropped(&self) -> u64 {
        self.producers.0.dropped.load(Ordering::Relaxed)
    }
}

impl<P> CpuQueue for &Backlog<P> {
    type Packet = P;

    fn enqueue(&mut self, packet: P) -> Result<Enqueued, Refused<P>> {
        Backlog::enqueue(self, packet)
    }

    fn take(&mut self, max: usize, out: &mut Vec<P>) -> usize {
        Backlog::take(self, max, out)
    }

    fn finish(&mut self, count: u32) {
        Backlog::finish(self, count);
    }

    fn complete(&mut self) -> bool {
        Backlog::complete(self)
    }

    fn close(&mut self) {
        Backlog::close(self);
    }

    fn drain(&mut self, out: &mut Vec<P>) -> usize {
        Backlog::drain(self, out)
    }

    fn open(&mut self) {
        Backlog::open(self);
    }

    fn head(&self) -> u32 {
        Backlog::head(self)
    }

    fn tail(&self) -> u32 {
        Backlog::tail(self)
    }

    fn waiting(&self) -> u32 {
        Backlog::waiting(self)
    }

    fn dropped(&self) -> u64 {
        Backlog::dropped(self)
    }
}

impl<P> fmt::Debug for Backlog<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backlog")
            .field("head", &self.head())
            .field("tail", &self.tail())
            .field("max", &self.max)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
