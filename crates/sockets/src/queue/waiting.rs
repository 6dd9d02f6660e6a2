//! Waiting without a thread: futures, a stream, and readiness as of `poll(2)`. No runtime is
//! assumed; any executor will do.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use futures_core::future::FusedFuture;

use super::batch::Batch;
use super::item::{Datagram, Payload};
use super::read::{List, RecvError, Wait};
use super::receive::ReceiveQueue;
use super::wait::Place;

/// A place in a wait list, given up when dropped.
pub(super) struct Registration<'q, P> {
    queue: &'q ReceiveQueue<P>,
    place: Place,
    list: List,
}

impl<'q, P> Registration<'q, P> {
    pub(super) const fn new(queue: &'q ReceiveQueue<P>, list: List) -> Self {
        Self { queue, place: None, list }
    }

    pub(super) const fn wait<'a>(&'a mut self, waker: &'a Waker) -> Wait<'a> {
        Wait { waker, place: &mut self.place, list: self.list }
    }

    /// Turns the answer of a read into that of a future. One that is done must not keep a place in
    /// the list, or it would be woken in another's stead.
    fn settle<T>(&mut self, taken: Result<T, RecvError>) -> Poll<Result<T, RecvError>> {
        if matches!(taken, Err(RecvError::Empty)) {
            return Poll::Pending;
        }
        self.queue.give_up(&mut self.place, self.list);
        Poll::Ready(taken)
    }
}

impl<P> Drop for Registration<'_, P> {
    fn drop(&mut self) {
        self.queue.give_up(&mut self.place, self.list);
    }
}

impl<P: Payload> ReceiveQueue<P> {
    /// Waits for a datagram. Cancel safe: a future dropped before it was ready has taken nothing, and
    /// if it had been woken, another reader is.
    ///
    /// Ready with [`RecvError::Closed`] once a closed queue is empty.
    pub const fn recv(&self) -> Recv<'_, P> {
        Recv { registration: Registration::new(self, List::Readers), done: false }
    }

    /// Waits for up to `max` datagrams: for the first, and takes what is there then. Cancel safe, as
    /// [`recv`](Self::recv).
    pub const fn recv_batch(&self, max: usize) -> RecvBatch<'_, P> {
        RecvBatch { registration: Registration::new(self, List::Readers), max, done: false }
    }

    /// Returns the stream of datagrams to come. It ends when a closed queue is empty.
    pub const fn incoming(&self) -> Incoming<'_, P> {
        Incoming { registration: Registration::new(self, List::Readers) }
    }

    /// Returns a handle that tells when there is something to read, and takes nothing.
    pub const fn watch(&self) -> Watch<'_, P> {
        Watch { registration: Registration::new(self, List::Watchers) }
    }
}

/// A future that takes one datagram; see [`ReceiveQueue::recv`].
#[must_use = "futures do nothing unless polled"]
pub struct Recv<'q, P> {
    registration: Registration<'q, P>,
    done: bool,
}

impl<P: Payload> Future for Recv<'_, P> {
    type Output = Result<Datagram<P>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let queue = self.registration.queue;
        let taken = queue.take_one(Some(self.registration.wait(cx.waker())));
        let taken = self.registration.settle(taken);
        self.done = taken.is_ready();
        taken
    }
}

impl<P: Payload> FusedFuture for Recv<'_, P> {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

/// A future that takes a batch; see [`ReceiveQueue::recv_batch`].
#[must_use = "futures do nothing unless polled"]
pub struct RecvBatch<'q, P> {
    registration: Registration<'q, P>,
    max: usize,
    done: bool,
}

impl<'q, P: Payload> Future for RecvBatch<'q, P> {
    type Output = Result<Batch<'q, P>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (queue, max) = (self.registration.queue, self.max);
        let taken = queue.take_many(max, Some(self.registration.wait(cx.waker())));
        let taken = self.registration.settle(taken);
        self.done = taken.is_ready();
        taken
    }
}

impl<P: Payload> FusedFuture for RecvBatch<'_, P> {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

/// The stream of datagrams to come; see [`ReceiveQueue::incoming`].
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'q, P> {
    registration: Registration<'q, P>,
}

impl<P: Payload> Stream for Incoming<'_, P> {
    type Item = Datagram<P>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let queue = self.registration.queue;
        let taken = queue.take_one(Some(self.registration.wait(cx.waker())));
        self.registration.settle(taken).map(Result::ok)
    }
}

/// What a watcher is told.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Readiness {
    /// A read would give a datagram, unless another reader is quicker (`POLLIN`).
    Readable,
    /// Nothing waits and nothing will come (`POLLHUP`).
    Closed,
}

/// Tells when a queue has something to read; see [`ReceiveQueue::watch`].
///
/// Level-triggered: ready as long as there is something. All watchers are woken for a datagram, not
/// one of them. To watch many queues from one thread, or beside file descriptors, pass a waker that
/// notes which queue it was or writes to an `eventfd`.
pub struct Watch<'q, P> {
    registration: Registration<'q, P>,
}

impl<P: Payload> Watch<'_, P> {
    /// Returns what a read would meet; pending if nothing waits, and the task is woken when that
    /// changes. The last waker given is the one that counts.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        let queue = self.registration.queue;
        match queue.front(Some(self.registration.wait(cx.waker())), |_| ()) {
            Ok(()) => Poll::Ready(Readiness::Readable),
            Err(RecvError::Closed) => Poll::Ready(Readiness::Closed),
            Err(RecvError::Empty | RecvError::TimedOut) => Poll::Pending,
        }
    }

    /// Waits until a read would give something. Cancel safe.
    pub async fn ready(&mut self) -> Readiness {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await
    }
}
