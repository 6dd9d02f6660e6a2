//! Datagrams taken by one operation.

use std::fmt;

use super::context::QueueContext;
use super::item::Datagram;
use super::segment::Chain;

/// Datagrams taken off a queue by one operation, in order.
///
/// An iterator that hands them out by value; [`iter`](Self::iter) only looks. The room they wait in
/// is lent by the pool of the namespace and goes back when the batch is dropped, together with the
/// datagrams not handed out: those count as delivered.
pub struct Batch<'q, P> {
    chain: Chain<P>,
    context: &'q QueueContext<P>,
}

impl<'q, P> Batch<'q, P> {
    pub(super) const fn new(chain: Chain<P>, context: &'q QueueContext<P>) -> Self {
        Self { chain, context }
    }

    /// Returns the datagrams left, without taking them.
    pub fn iter(&self) -> impl Iterator<Item = &Datagram<P>> {
        self.chain.iter()
    }

    /// Returns the sum of the true sizes of the datagrams left; adds them up.
    pub fn true_size(&self) -> u64 {
        self.chain.totals().bytes
    }

    /// Returns whether no datagram is left.
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }
}

impl<P> Iterator for Batch<'_, P> {
    type Item = Datagram<P>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.chain.pop(&self.context.segments)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.chain.len(), Some(self.chain.len()))
    }
}

impl<P> ExactSizeIterator for Batch<'_, P> {}

impl<P> Drop for Batch<'_, P> {
    fn drop(&mut self) {
        self.chain.give_back(&self.context.segments);
    }
}

impl<P> fmt::Debug for Batch<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish()
    }
}
