//! Peeking: looking at what waits and leaving it, from the front or from an offset on.
//!
//! The offset (`SO_PEEK_OFF`) counts bytes of payload from the front of the queue. A peek starts
//! there and moves it on by what it copied; a read moves it back by what it took, down to 0.
//!
//! Always true: a datagram is dropped by a peek only if its checksum is found wrong, and is counted
//! then.
//! Source: socket(7), `SO_PEEK_OFF`; what happens with several datagrams is Linux 6.18's, which
//! `tests/kernel_queue.rs` compares.

use super::item::{Datagram, Payload};
use super::read::{Received, RecvError, Wait};
use super::receive::{Reader, ReceiveQueue};
use super::sync::{MutexGuard, lock};
use crate::counters::Event;
use crate::datagram::Malformed;

impl<P> Reader<P> {
    /// Moves the offset back by what was read.
    #[inline]
    pub(super) fn was_read(&mut self, len: usize) {
        if let Some(offset) = &mut self.peek_offset {
            *offset = offset.saturating_sub(u32::try_from(len).unwrap_or(u32::MAX));
        }
    }
}

impl<P> ReceiveQueue<P> {
    /// Makes [`peek_into`](Self::peek_into) start at an offset from now on (`SO_PEEK_OFF`); `None`, as
    /// at first: at the front, always.
    pub fn set_peek_offset(&self, offset: Option<u32>) {
        lock(&self.reader.0).peek_offset = offset;
    }

    /// Returns the offset at which the next peek starts, in bytes of payload.
    pub fn peek_offset(&self) -> Option<u32> {
        lock(&self.reader.0).peek_offset
    }
}

impl<P: Payload> ReceiveQueue<P> {
    /// Copies the datagram that has waited longest and leaves it (`MSG_PEEK`); with a
    /// [`peek_offset`](Self::peek_offset), copies from there and moves it on by what it copied.
    ///
    /// At an offset datagrams are passed over that lie before it, and empty ones that were peeked at;
    /// if the offset lies within a datagram, copying begins there. Linux also reports truncation if the
    /// buffer is just as long as what is left of such a datagram; here only if something is cut off.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn peek_into(&self, buffer: &mut [u8]) -> Result<Received, RecvError>
    where
        P: AsRef<[u8]>,
    {
        loop {
            let mut reader = self.fill(None)?;
            let offset = reader.peek_offset;
            let Some((place, from)) = self.place_at(&mut reader, offset.unwrap_or(0)) else {
                return Err(if self.is_closed() { RecvError::Closed } else { RecvError::Empty });
            };
            if let Some(datagram) = reader.chain.nth_mut(place).filter(|seen| seen.is_intact()) {
                datagram.settle();
                let copied = Received::copy(datagram, from, buffer);
                reader.peek_offset =
                    offset.map(|offset| offset.saturating_add(copied.copied as u32));
                return Ok(copied);
            }
            self.drop_bad(reader, place);
        }
    }

    /// Looks at the datagram that has waited longest and leaves it, whatever the offset is.
    ///
    /// A wrong checksum is dropped and counted, as by a read. `look` runs under the readers' lock: it
    /// must not read from this queue, which would wait for itself.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn peek<R>(&self, look: impl FnOnce(&Datagram<P>) -> R) -> Result<R, RecvError> {
        self.front(None, look)
    }

    /// Returns whether a read would give a datagram now. As `poll(2)` does, verifies the one in front
    /// and drops bad ones first, so it does not promise what the read then refuses.
    pub fn is_readable(&self) -> bool {
        self.front(None, |_| ()).is_ok()
    }

    /// Looks at the first datagram that is intact, dropping bad ones before it.
    pub(super) fn front<R>(
        &self,
        mut wait: Option<Wait<'_>>,
        look: impl FnOnce(&Datagram<P>) -> R,
    ) -> Result<R, RecvError> {
        loop {
            let mut reader = self.fill(wait.as_mut())?;
            let Some(front) = reader.chain.front_mut() else { continue };
            if front.is_intact() {
                front.settle();
                return Ok(look(front));
            }
            self.drop_bad(reader, 0);
        }
    }

    /// Returns the place of the datagram that a peek at an offset looks at, and the offset in it; what
    /// has arrived is moved to the reader's side if need be.
    fn place_at(&self, reader: &mut Reader<P>, offset: u32) -> Option<(usize, usize)> {
        let find = |reader: &Reader<P>| {
            let mut left = offset as usize;
            for (place, datagram) in reader.chain.iter().enumerate() {
                let len = datagram.payload.len();
                let by_offset = reader.peek_offset.is_some();
                if by_offset && left >= len && (left > 0 || datagram.peeked) {
                    left -= len;
                } else {
                    return Some((place, left));
                }
            }
            None
        };
        find(reader).or_else(|| {
            let arrived = lock(&self.arrivals).pile.take();
            reader.chain.append(arrived);
            find(reader)
        })
    }

    /// Drops the datagram of this place, whose checksum is wrong, and counts it.
    fn drop_bad(&self, mut reader: MutexGuard<'_, Reader<P>>, place: usize) {
        let Some(bad) = reader.chain.remove(place, &self.context.segments) else { return };
        self.consumed(&mut reader, bad.charge(), 1);
        drop(reader);
        self.count_drop(bad.ip_version(), Event::Malformed(Malformed::BadChecksum));
        drop(bad);
    }
}

impl<P: Payload> Datagram<P> {
    /// Notes that a peek found it intact.
    fn settle(&mut self) {
        if self.is_deferred() {
            self.checksum = crate::datagram::Checksum::Verified;
        }
        self.peeked |= self.payload.is_empty();
    }
}
