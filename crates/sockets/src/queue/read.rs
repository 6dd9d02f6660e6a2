//! The readers' side: taking, copying out.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

use super::batch::Batch;
use super::item::{Datagram, Payload};
use super::receive::{Reader, ReceiveQueue};
use super::segment::{Chain, Pile};
use super::sync::{MutexGuard, lock};
use super::wait::Place;
use crate::counters::{Event, IpVersion};
use crate::datagram::{Checksum, Malformed};

/// Why a read gave nothing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RecvError {
    /// Nothing waits (`EAGAIN`).
    Empty,
    /// Nothing came before the time was up (`EAGAIN`).
    TimedOut,
    /// Nothing waits, and the queue is closed.
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no datagram waits",
            Self::TimedOut => "no datagram came in time",
            Self::Closed => "socket is closed",
        })
    }
}

impl std::error::Error for RecvError {}

/// A datagram copied into the reader's buffer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Received {
    /// Bytes copied.
    pub copied: usize,
    /// Byte of the datagram at which copying began: 0 but for a peek at an offset.
    pub from: usize,
    /// Bytes the datagram has: what `MSG_TRUNC` makes `recvmsg` return.
    pub len: usize,
    /// Address and port of the sender.
    pub peer: SocketAddr,
    /// Address it was sent to.
    pub local: IpAddr,
    /// When it arrived, in nanoseconds of the producer's clock.
    pub timestamp_ns: u64,
    /// See [`Datagram::segment_len`].
    pub segment_len: u16,
    /// See [`Datagram::drops_before`].
    pub drops_before: u32,
}

impl Received {
    /// Returns whether the buffer was too short and the rest is lost (`MSG_TRUNC` in the flags of
    /// `recvmsg`); after a peek it is still there.
    pub const fn is_truncated(&self) -> bool {
        self.from + self.copied < self.len
    }

    /// Copies what comes behind `from`, which is no more than it has.
    pub(super) fn copy<P>(datagram: &Datagram<P>, from: usize, buffer: &mut [u8]) -> Self
    where
        P: AsRef<[u8]>,
    {
        let whole = datagram.payload.as_ref();
        let bytes = &whole[from..];
        let copied = bytes.len().min(buffer.len());
        buffer[..copied].copy_from_slice(&bytes[..copied]);
        Self {
            copied,
            from,
            len: whole.len(),
            peer: datagram.peer,
            local: datagram.local,
            timestamp_ns: datagram.timestamp_ns,
            segment_len: datagram.segment_len,
            drops_before: datagram.drops_before,
        }
    }
}

/// A wish to be woken if there is nothing to take.
pub(super) struct Wait<'a> {
    pub(super) waker: &'a Waker,
    pub(super) place: &'a mut Place,
    pub(super) list: List,
}

/// In which list to wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum List {
    /// One of these is woken for each push.
    Readers,
    /// All of these are.
    Watchers,
}

impl<P> ReceiveQueue<P> {
    /// Locks the readers' side, which has at least one datagram then. If there is none, registers
    /// the wish to wait, in the same step in which it is found empty.
    pub(super) fn fill(
        &self,
        wait: Option<&mut Wait<'_>>,
    ) -> Result<MutexGuard<'_, Reader<P>>, RecvError> {
        // Declared first, so dropped last: a displaced waker must not be dropped under a lock.
        let _displaced: Option<Waker>;
        let mut reader = lock(&self.reader.0);
        if !reader.chain.is_empty() {
            return Ok(reader);
        }
        let mut arrivals = lock(&self.arrivals);
        reader.chain = arrivals.pile.take();
        if !reader.chain.is_empty() {
            drop(arrivals);
            return Ok(reader);
        }
        if self.is_closed() {
            return Err(RecvError::Closed);
        }
        if let Some(wait) = wait {
            match wait.list {
                List::Readers => {
                    _displaced = arrivals.readers.register(wait.place, wait.waker);
                }
                List::Watchers => {
                    let watchers = arrivals.watchers.get_or_insert_default();
                    _displaced = watchers.register(wait.place, wait.waker);
                }
            }
        }
        Err(RecvError::Empty)
    }

    /// Gives up a place in a list, after a read or without one.
    ///
    /// A reader that was woken wakes the next one if there is anything left to take. So while
    /// datagrams and waiting readers are there, one reader is awake that has yet to come here.
    pub(super) fn give_up(&self, place: &mut Place, list: List) {
        let Some(key) = place.take() else { return };
        // Declared before the locks, so dropped after them.
        let _removed: Option<Waker>;
        let mut next = None;
        {
            let reader = lock(&self.reader.0);
            let mut arrivals = lock(&self.arrivals);
            match list {
                List::Watchers => {
                    _removed = arrivals.watchers.as_mut().and_then(|list| list.remove(key));
                }
                List::Readers => {
                    let removed = arrivals.readers.remove(key);
                    if removed.is_none() && !(reader.chain.is_empty() && arrivals.pile.is_empty()) {
                        next = arrivals.next_reader();
                    }
                    _removed = removed;
                }
            }
        }
        if let Some(next) = next {
            next.wake();
        }
    }
}

impl<P: Payload> ReceiveQueue<P> {
    /// Takes the datagram that has waited longest.
    ///
    /// A datagram whose checksum was deferred is verified now, without a lock; a wrong one is dropped
    /// and counted, and the next one is tried.
    ///
    /// # Errors
    /// [`RecvError::Empty`], or [`RecvError::Closed`] once a closed queue is empty.
    pub fn try_recv(&self) -> Result<Datagram<P>, RecvError> {
        self.take_one(None)
    }

    /// Takes up to `max` datagrams by one operation, all that wait if there are fewer: each lock once,
    /// one write to the credit line.
    ///
    /// As [`try_recv`](Self::try_recv) otherwise. The batch has at least one datagram, unless `max`
    /// is 0.
    ///
    /// # Errors
    /// [`RecvError::Empty`], or [`RecvError::Closed`] once a closed queue is empty.
    pub fn try_recv_batch(&self, max: usize) -> Result<Batch<'_, P>, RecvError> {
        self.take_many(max, None)
    }

    /// Takes the datagram that has waited longest and copies it into a buffer; what does not fit is
    /// lost, and [`Received`] says so.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn try_recv_into(&self, buffer: &mut [u8]) -> Result<Received, RecvError>
    where
        P: AsRef<[u8]>,
    {
        let room = buffer.len();
        self.take_one_into(None, room).map(|datagram| Received::copy(&datagram, 0, buffer))
    }

    pub(super) fn take_one(&self, wait: Option<Wait<'_>>) -> Result<Datagram<P>, RecvError> {
        self.take_one_into(wait, usize::MAX)
    }

    /// Takes a datagram for a reader with room for so many bytes.
    fn take_one_into(
        &self,
        mut wait: Option<Wait<'_>>,
        room: usize,
    ) -> Result<Datagram<P>, RecvError> {
        loop {
            let mut reader = self.fill(wait.as_mut())?;
            let Some(mut datagram) = reader.chain.pop(&self.context.segments) else { continue };
            self.consumed(&mut reader, datagram.charge(), 1);
            let deferred = datagram.is_deferred();
            if !deferred {
                self.counters.delivered(&reader, 1);
                reader.was_read(datagram.payload.len().min(room));
            }
            drop(reader);
            if !deferred {
                self.context.counters.count(datagram.ip_version(), Event::Delivered, 1);
                return Ok(datagram);
            }
            if datagram.is_intact() {
                datagram.checksum = Checksum::Verified;
                self.context.counters.count(datagram.ip_version(), Event::Delivered, 1);
                self.counters.count(Event::Delivered, 1);
                lock(&self.reader.0).was_read(datagram.payload.len().min(room));
                return Ok(datagram);
            }
            self.count_drop(datagram.ip_version(), Event::Malformed(Malformed::BadChecksum));
        }
    }

    pub(super) fn take_many(
        &self,
        max: usize,
        mut wait: Option<Wait<'_>>,
    ) -> Result<Batch<'_, P>, RecvError> {
        if max == 0 {
            return Ok(Batch::new(Chain::new(), &self.context));
        }
        loop {
            let mut reader = self.fill(wait.as_mut())?;
            let mut chain = reader.chain.split(max, &self.context.segments);
            if chain.len() < max {
                // The readers' side has run empty: what has arrived since completes the batch.
                reader.chain = lock(&self.arrivals).pile.take();
                let missing = max - chain.len();
                chain.append(reader.chain.split(missing, &self.context.segments));
            }
            let mut totals = chain.totals();
            let has_offset = reader.peek_offset.is_some();
            self.consumed(&mut reader, totals.bytes, totals.packets);
            let verified = totals.packets - totals.deferred;
            self.counters.delivered(&reader, verified);
            drop(reader);
            if totals.deferred > 0 {
                chain = self.intact(chain);
                totals = chain.totals();
                self.counters.count(Event::Delivered, totals.packets - verified);
            }
            let v4 = totals.packets - totals.v6;
            for (version, n) in [(IpVersion::V4, v4), (IpVersion::V6, totals.v6)] {
                if n > 0 {
                    self.context.counters.count(version, Event::Delivered, n);
                }
            }
            if !chain.is_empty() {
                if has_offset {
                    let len = chain.iter().map(|datagram| datagram.payload.len()).sum();
                    lock(&self.reader.0).was_read(len);
                }
                return Ok(Batch::new(chain, &self.context));
            }
        }
    }

    /// Drops and counts what has a wrong checksum.
    fn intact(&self, mut chain: Chain<P>) -> Chain<P> {
        let mut intact = Pile::new();
        while let Some(mut datagram) = chain.pop(&self.context.segments) {
            if datagram.is_intact() {
                if datagram.is_deferred() {
                    datagram.checksum = Checksum::Verified;
                }
                intact.push(datagram, &self.context.segments);
            } else {
                self.count_drop(datagram.ip_version(), Event::Malformed(Malformed::BadChecksum));
            }
        }
        intact.take()
    }
}
