//! Room for waiting datagrams, lent to a queue by the pool while there are any.
//!
//! A [`Segment`] holds a few datagrams in order; a [`Chain`] is a queue of segments. Producers hang
//! new segments in front ([`Pile`]), a reader takes the whole pile and turns it round.
//!
//! Always true: a segment in the pool is empty; an empty pile or chain holds no segment, and one
//! that is not holds no empty segment.

use std::collections::VecDeque;
use std::mem;

use crossbeam_queue::ArrayQueue;

use super::item::Datagram;
use crate::counters::IpVersion;

/// What a number of datagrams add up to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Totals {
    /// Datagrams.
    pub(super) packets: u64,
    /// Bytes of true size.
    pub(super) bytes: u64,
    /// How many came over IPv6.
    pub(super) v6: u64,
    /// How many have a checksum yet to be verified.
    pub(super) deferred: u64,
}

impl Totals {
    fn of<P>(datagram: &Datagram<P>) -> Self {
        Self {
            packets: 1,
            bytes: datagram.charge(),
            v6: u64::from(datagram.ip_version() == IpVersion::V6),
            deferred: u64::from(datagram.is_deferred()),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.v6 += other.v6;
        self.deferred += other.deferred;
    }
}

/// Room for [`FIRST`] or [`NEXT`] datagrams.
pub(super) struct Segment<P> {
    items: VecDeque<Datagram<P>>,
    /// Of all that was put in since it was empty; `None` once something was taken out.
    totals: Option<Totals>,
    next: Option<Box<Segment<P>>>,
}

/// Datagrams in the first segment of a queue: few, so that a million sockets with one waiting
/// datagram each hold little more than those.
const FIRST: usize = 4;
/// Datagrams in each further segment.
const NEXT: usize = 32;
/// Most segments of either kind that a pool keeps for later; the rest goes back to the allocator.
const KEPT: usize = 1024;

impl<P> Segment<P> {
    fn new(capacity: usize) -> Box<Self> {
        let items = VecDeque::with_capacity(capacity);
        Box::new(Self { items, totals: Some(Totals::default()), next: None })
    }

    fn is_full(&self) -> bool {
        self.items.len() == self.items.capacity()
    }

    #[inline]
    fn push(&mut self, datagram: Datagram<P>) {
        if let Some(totals) = &mut self.totals {
            totals.add(Totals::of(&datagram));
        }
        self.items.push_back(datagram);
    }

    #[inline]
    fn pop(&mut self) -> Option<Datagram<P>> {
        self.totals = None;
        self.items.pop_front()
    }

    /// Returns what it holds, added up anew if it was cut.
    fn totals(&self) -> Totals {
        self.totals.unwrap_or_else(|| {
            self.items.iter().fold(Totals::default(), |mut sum, datagram| {
                sum.add(Totals::of(datagram));
                sum
            })
        })
    }
}

/// Empty segments, shared by all queues of a namespace.
pub(super) struct SegmentPool<P> {
    first: ArrayQueue<Box<Segment<P>>>,
    next: ArrayQueue<Box<Segment<P>>>,
}

impl<P> SegmentPool<P> {
    pub(super) fn new() -> Self {
        Self { first: ArrayQueue::new(KEPT), next: ArrayQueue::new(KEPT) }
    }

    fn lend(&self, first: bool) -> Box<Segment<P>> {
        let (kept, capacity) = if first { (&self.first, FIRST) } else { (&self.next, NEXT) };
        kept.pop().unwrap_or_else(|| Segment::new(capacity))
    }

    fn take_back(&self, mut segment: Box<Segment<P>>) {
        segment.totals = Some(Totals::default());
        debug_assert!(segment.items.is_empty() && segment.next.is_none());
        let kept = if segment.items.capacity() < NEXT { &self.first } else { &self.next };
        drop(kept.push(segment)); // full: the segment is freed
    }

    /// Returns how many empty segments are kept.
    pub(super) fn kept(&self) -> usize {
        self.first.len() + self.next.len()
    }
}

/// Segments, the newest in front; datagrams within one in order.
pub(super) struct Pile<P> {
    newest: Option<Box<Segment<P>>>,
    packets: usize,
}

impl<P> Pile<P> {
    pub(super) const fn new() -> Self {
        Self { newest: None, packets: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    #[inline]
    pub(super) fn push(&mut self, datagram: Datagram<P>, pool: &SegmentPool<P>) {
        self.packets += 1;
        if let Some(segment) = &mut self.newest
            && !segment.is_full()
        {
            segment.push(datagram);
        } else {
            self.extend(pool).push(datagram);
        }
    }

    #[cold]
    fn extend(&mut self, pool: &SegmentPool<P>) -> &mut Segment<P> {
        let mut segment = pool.lend(self.newest.is_none());
        segment.next = self.newest.take();
        self.newest.insert(segment)
    }

    fn push_segment(&mut self, mut segment: Box<Segment<P>>) {
        self.packets += segment.items.len();
        segment.next = self.newest.take();
        self.newest = Some(segment);
    }

    /// Takes all, oldest first.
    pub(super) fn take(&mut self) -> Chain<P> {
        let packets = mem::take(&mut self.packets);
        let mut left = self.newest.take();
        let mut oldest = None;
        while let Some(mut segment) = left {
            left = segment.next.take();
            segment.next = oldest;
            oldest = Some(segment);
        }
        Chain { oldest, packets }
    }
}

impl<P> Drop for Pile<P> {
    fn drop(&mut self) {
        drop_segments(self.newest.take());
    }
}

/// Segments, the oldest in front.
pub(super) struct Chain<P> {
    oldest: Option<Box<Segment<P>>>,
    packets: usize,
}

impl<P> Chain<P> {
    pub(super) const fn new() -> Self {
        Self { oldest: None, packets: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.oldest.is_none()
    }

    /// Returns the number of datagrams.
    pub(super) const fn len(&self) -> usize {
        self.packets
    }

    /// Adds up what is held: a look at each segment, and at each datagram of one that was cut.
    pub(super) fn totals(&self) -> Totals {
        self.segments().fold(Totals::default(), |mut sum, segment| {
            sum.add(segment.totals());
            sum
        })
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Datagram<P>> {
        let segment = self.oldest.as_mut()?;
        segment.totals = None; // the caller may change what it counts
        segment.items.front_mut()
    }

    /// Returns the datagram of a place, from the front.
    pub(super) fn nth_mut(&mut self, mut place: usize) -> Option<&mut Datagram<P>> {
        let mut segment = self.oldest.as_deref_mut()?;
        while place >= segment.items.len() {
            place -= segment.items.len();
            segment = segment.next.as_deref_mut()?;
        }
        segment.totals = None; // the caller may change what it counts
        segment.items.get_mut(place)
    }

    /// Takes the datagram of a place out.
    pub(super) fn remove(
        &mut self,
        mut place: usize,
        pool: &SegmentPool<P>,
    ) -> Option<Datagram<P>> {
        let mut link = &mut self.oldest;
        while link.as_ref().is_some_and(|segment| place >= segment.items.len()) {
            let segment = link.as_mut()?;
            place -= segment.items.len();
            link = &mut segment.next;
        }
        let segment = link.as_mut()?;
        segment.totals = None;
        let datagram = segment.items.remove(place)?;
        self.packets -= 1;
        if segment.items.is_empty()
            && let Some(mut emptied) = link.take()
        {
            *link = emptied.next.take();
            pool.take_back(emptied);
        }
        Some(datagram)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Datagram<P>> {
        self.segments().flat_map(|segment| &segment.items)
    }

    fn segments(&self) -> impl Iterator<Item = &Segment<P>> {
        std::iter::successors(self.oldest.as_deref(), |segment| segment.next.as_deref())
    }

    #[inline]
    pub(super) fn pop(&mut self, pool: &SegmentPool<P>) -> Option<Datagram<P>> {
        let segment = self.oldest.as_mut()?;
        let datagram = segment.pop()?;
        self.packets -= 1;
        if segment.items.is_empty() {
            self.shift(pool);
        }
        Some(datagram)
    }

    /// Gives the first segment back, which has run empty.
    #[cold]
    fn shift(&mut self, pool: &SegmentPool<P>) {
        if let Some(mut emptied) = self.oldest.take() {
            self.oldest = emptied.next.take();
            pool.take_back(emptied);
        }
    }

    /// Takes the first `max` datagrams, or all if there are fewer.
    ///
    /// Whole segments change hands as they are; datagrams are moved only out of the one that is cut.
    pub(super) fn split(&mut self, max: usize, pool: &SegmentPool<P>) -> Self {
        if self.packets <= max {
            return mem::replace(self, Self::new());
        }
        let mut taken = Pile::new();
        let mut left = max;
        while left > 0
            && let Some(mut segment) = self.oldest.take()
        {
            if segment.items.len() <= left {
                left -= segment.items.len();
                self.oldest = segment.next.take();
                taken.push_segment(segment);
            } else {
                let mut cut = pool.lend(left <= FIRST);
                (0..left).map_while(|_| segment.pop()).for_each(|datagram| cut.push(datagram));
                left = 0;
                self.oldest = Some(segment);
                taken.push_segment(cut);
            }
        }
        self.packets -= max;
        taken.take()
    }

    /// Hangs another chain behind this one. Walks over the segments of this one.
    pub(super) fn append(&mut self, mut other: Self) {
        self.packets += mem::take(&mut other.packets);
        let mut end = &mut self.oldest;
        while let Some(segment) = end {
            end = &mut segment.next;
        }
        *end = other.oldest.take();
    }

    /// Gives all segments back, the datagrams in them dropped.
    pub(super) fn give_back(&mut self, pool: &SegmentPool<P>) {
        self.packets = 0;
        let mut left = self.oldest.take();
        while let Some(mut segment) = left {
            left = segment.next.take();
            segment.items.clear();
            pool.take_back(segment);
        }
    }
}

impl<P> Drop for Chain<P> {
    fn drop(&mut self) {
        drop_segments(self.oldest.take());
    }
}

/// Drops segments one by one: as deep recursion, a long chain would overflow the stack.
fn drop_segments<P>(mut left: Option<Box<Segment<P>>>) {
    while let Some(mut segment) = left {
        left = segment.next.take();
    }
}
