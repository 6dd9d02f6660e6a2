//! Which sockets of a reader have something to read.
//!
//! A mark on each socket says that it is in its reader's list. Who queues something and finds the
//! mark clear sets it and puts the socket in; the reader clears it when it leaves the socket, then
//! looks once more.
//!
//! Always true: a socket with something to read is in the list once, or a thread is about to put it
//! there (model-checked).
//! Elsewhere: waking the reader (the executors); what is read ([`crate::udp`]).

#[cfg(not(loom))]
use crossbeam_queue::SegQueue as List;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(loom)]
use list::List;

/// The mark of a socket: whether its reader has it in its list.
#[derive(Debug)]
pub struct Mark(AtomicBool);

impl Mark {
    /// The mark of a socket that is in no list.
    #[expect(clippy::new_without_default, reason = "Loom's atomics have no default either")]
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }
}

/// The list of a reader, of sockets `T`. It grows with the sockets that are in it, no further.
#[derive(Debug)]
pub struct Ready<T> {
    list: List<T>,
}

impl<T> Ready<T> {
    /// An empty list.
    #[expect(clippy::new_without_default, reason = "Loom's queue has no default either")]
    pub fn new() -> Self {
        Self { list: List::new() }
    }

    /// Notes that a socket has something to read.
    pub fn note(&self, mark: &Mark, socket: impl FnOnce() -> T) {
        // Release: who clears the mark sees what was queued before.
        if !mark.0.swap(true, Ordering::AcqRel) {
            self.list.push(socket());
        }
    }

    /// Takes the socket that has waited longest.
    pub fn take(&self) -> Option<T> {
        self.list.pop()
    }

    /// Returns whether no socket waits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Puts a socket back that has more to read.
    pub fn put_back(&self, socket: T) {
        self.list.push(socket);
    }

    /// Leaves a socket that was found empty; `has_more` looks once more.
    pub fn leave(&self, mark: &Mark, socket: impl FnOnce() -> T, has_more: impl FnOnce() -> bool) {
        mark.0.swap(false, Ordering::AcqRel);
        if has_more() {
            self.note(mark, socket);
        }
    }
}

/// An unbounded queue under a lock, in place of the lock-free one, whose inside Loom cannot see.
#[cfg(loom)]
mod list {
    use std::collections::VecDeque;

    use loom::sync::Mutex;

    #[derive(Debug)]
    pub(super) struct List<T>(Mutex<VecDeque<T>>);

    impl<T> List<T> {
        pub(super) fn new() -> Self {
            Self(Mutex::new(VecDeque::new()))
        }

        pub(super) fn push(&self, item: T) {
            self.0.lock().expect("no panic under the lock").push_back(item);
        }

        pub(super) fn pop(&self) -> Option<T> {
            self.0.lock().expect("no panic under the lock").pop_front()
        }

        pub(super) fn is_empty(&self) -> bool {
            self.0.lock().expect("no panic under the lock").is_empty()
        }
    }
}
