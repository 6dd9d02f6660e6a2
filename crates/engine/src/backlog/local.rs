//! The backlog of one thread that plays all CPUs: the same answers, without atomics.

use std::collections::VecDeque;

use super::{CpuQueue, Enqueued, Refused};

/// The backlog of one CPU in virtual time. See the [module](super) for how it works.
///
/// Takes memory as packets come, for `max + 1` of them at most.
#[derive(Clone, Debug)]
pub struct LocalBacklog<P> {
    packets: VecDeque<P>,
    head: u32,
    tail: u32,
    max: u32,
    scheduled: bool,
    closed: bool,
    dropped: u64,
}

impl<P> LocalBacklog<P> {
    /// Makes a backlog that refuses a packet when more than `max` wait, so `max + 1` fit. Above
    /// 2^31 - 2 `max` counts as that, since positions are compared by signed distance.
    pub const fn new(max: u32) -> Self {
        const MOST: u32 = i32::MAX as u32 - 1;
        Self {
            packets: VecDeque::new(),
            head: 0,
            tail: 0,
            max: if max > MOST { MOST } else { max },
            scheduled: false,
            closed: false,
            dropped: 0,
        }
    }

    /// Starts the counters here instead of at 0, to be near their wrap.
    #[cfg(all(test, not(loom)))]
    pub(super) fn counting_from(self, start: u32) -> Self {
        Self { head: start, tail: start, ..self }
    }

    /// Takes the oldest packet; it is in work until [`finish`](CpuQueue::finish).
    #[inline]
    pub fn take_one(&mut self) -> Option<P> {
        self.packets.pop_front()
    }

    /// Returns whether nothing is left to take; packets may be in work.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

impl<P> CpuQueue for LocalBacklog<P> {
    type Packet = P;

    #[inline]
    fn enqueue(&mut self, packet: P) -> Result<Enqueued, Refused<P>> {
        if self.closed {
            return Err(Refused::Closed(packet));
        }
        if self.waiting() > self.max {
            self.dropped += 1;
            return Err(Refused::Full(packet));
        }
        self.packets.push_back(packet);
        self.tail = self.tail.wrapping_add(1);
        let signal = !std::mem::replace(&mut self.scheduled, true);
        Ok(Enqueued { tail: self.tail, signal })
    }

    fn take(&mut self, max: usize, out: &mut Vec<P>) -> usize {
        let count = max.min(self.packets.len());
        out.extend(self.packets.drain(..count));
        count
    }

    #[inline]
    fn finish(&mut self, count: u32) {
        debug_assert!(
            count as usize + self.packets.len() <= self.waiting() as usize,
            "finished before they were taken"
        );
        self.head = self.head.wrapping_add(count);
    }

    #[inline]
    fn complete(&mut self) -> bool {
        self.scheduled = !self.packets.is_empty();
        !self.scheduled
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn drain(&mut self, out: &mut Vec<P>) -> usize {
        debug_assert!(self.closed, "drained while open");
        let count = self.packets.len();
        out.extend(self.packets.drain(..));
        self.head = self.tail;
        count
    }

    fn open(&mut self) {
        self.scheduled = true;
        self.closed = false;
    }

    #[inline]
    fn head(&self) -> u32 {
        self.head
    }

    #[inline]
    fn tail(&self) -> u32 {
        self.tail
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
