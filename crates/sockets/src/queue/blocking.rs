//! Waiting as a thread that sleeps.

use std::cell::LazyCell;
use std::hint;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::item::{Datagram, Payload};
use super::read::{List, RecvError, Wait};
use super::receive::ReceiveQueue;
use super::waiting::Registration;

/// How often a reader looks at an empty queue before it sleeps: first with pauses of 1, 2, 4, … 32
/// spins between, then giving its CPU to others each time, of which one may be the producer.
const LOOKS: u32 = SPINS + 4;
const SPINS: u32 = 6;

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: LazyCell<Waker> = LazyCell::new(unpark_this);
}

fn unpark_this() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

impl<P: Payload> ReceiveQueue<P> {
    /// Takes a datagram; if there is none, the thread sleeps until one comes or the time is up.
    /// `None` means no limit.
    ///
    /// # Errors
    /// [`RecvError::TimedOut`], or [`RecvError::Closed`] once a closed queue is empty.
    pub fn recv_timeout(&self, timeout: Option<Duration>) -> Result<Datagram<P>, RecvError> {
        self.block(timeout, |wait| self.take_one(wait))
    }

    /// Takes up to `max` datagrams; if there is none, the thread sleeps until one comes or the time
    /// is up. `None` means no limit. Does not wait for the batch to fill.
    ///
    /// # Errors
    /// As [`recv_timeout`](Self::recv_timeout).
    pub fn recv_batch_timeout(
        &self,
        max: usize,
        timeout: Option<Duration>,
    ) -> Result<Batch<'_, P>, RecvError> {
        self.block(timeout, |wait| self.take_many(max, wait))
    }

    fn block<T>(
        &self,
        timeout: Option<Duration>,
        mut take: impl FnMut(Option<Wait<'_>>) -> Result<T, RecvError>,
    ) -> Result<T, RecvError> {
        let taken = take(None);
        if !matches!(taken, Err(RecvError::Empty)) {
            return taken;
        }
        // To sleep and be woken costs more than to look a few times more, at the credit line only.
        for look in 0..LOOKS {
            if self.credit.in_use().packets > 0 {
                let taken = take(None);
                if !matches!(taken, Err(RecvError::Empty)) {
                    return taken;
                }
            }
            if look < SPINS {
                (0..1 << look).for_each(|_| hint::spin_loop());
            } else {
                thread::yield_now();
            }
        }
        // A time too far off to be told is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // Without its locals when the thread is being torn down; then a waker for this once.
        let waker = WAKER.try_with(|waker| Waker::clone(waker)).unwrap_or_else(|_| unpark_this());
        let mut registration = Registration::new(self, List::Readers);
        loop {
            // Registered or not any more: parking may end early, so look again each time.
            let taken = take(Some(registration.wait(&waker)));
            if !matches!(taken, Err(RecvError::Empty)) {
                return taken;
            }
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(RecvError::TimedOut);
                    }
                    thread::park_timeout(left);
                }
            }
        }
    }
}
