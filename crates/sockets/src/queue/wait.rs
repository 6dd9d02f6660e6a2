//! Who waits for a datagram.

use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;

/// Wakers in the order in which they came. The first one needs no memory of its own.
#[derive(Default)]
pub(super) struct WaitList {
    first: Option<(u64, Waker)>,
    more: BTreeMap<u64, Waker>,
    next_key: u64,
}

/// A waiter's place in a list; empty when not waiting.
pub(super) type Place = Option<u64>;

impl WaitList {
    /// Registers a waker, in its old place if it still has one.
    ///
    /// Returns the waker it displaced, for the caller to drop without a lock: dropping a waker may
    /// run foreign code.
    pub(super) fn register(&mut self, place: &mut Place, waker: &Waker) -> Option<Waker> {
        if let Some(slot) = place.and_then(|key| self.slot(key)) {
            return (!slot.will_wake(waker)).then(|| mem::replace(slot, waker.clone()));
        }
        let waker = waker.clone();
        let key = self.next_key;
        self.next_key += 1;
        if self.first.is_none() {
            self.first = Some((key, waker));
        } else {
            self.more.insert(key, waker);
        }
        *place = Some(key);
        None
    }

    /// Returns whether nobody waits.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none() // the others come after it
    }

    /// Takes out the waker that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Waker> {
        let (_, waker) = self.first.take()?;
        self.first = self.more.pop_first();
        Some(waker)
    }

    /// Takes out a certain waker; `None` if it was woken meanwhile.
    pub(super) fn remove(&mut self, key: u64) -> Option<Waker> {
        if self.first.as_ref().is_some_and(|(first, _)| *first == key) {
            return self.pop();
        }
        self.more.remove(&key)
    }

    /// Wakes all.
    pub(super) fn wake_all(mut self) {
        while let Some(waker) = self.pop() {
            waker.wake();
        }
    }

    fn slot(&mut self, key: u64) -> Option<&mut Waker> {
        match &mut self.first {
            Some((first, waker)) if *first == key => Some(waker),
            _ => self.more.get_mut(&key),
        }
    }
}
