//! Threads of a run: how they are started, and how one that fails ends the others.
//!
//! Always true: a thread that cannot be started is an error and no panic; a thread that was started ends
//! after those that it is waited for with, since whoever leaves has set the flag that they look at.
//! Source: pthread_create(3), `EAGAIN`; setrlimit(2), `RLIMIT_AS` and `RLIMIT_NPROC`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::BenchError;
use crate::error::During as _;

/// Starts one of `count` threads.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    count: usize,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, BenchError> {
    let started = Builder::new().name("bench".into()).spawn_scoped(scope, work);
    started.during(|| match count {
        1 => "start a thread".into(),
        count => format!("start {count} threads"),
    })
}

/// Waits for a thread; its panic goes on here.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sets a flag when it goes, also by an error or a panic.
pub(crate) struct End<'a>(pub(crate) &'a AtomicBool);

impl End<'_> {
    /// Goes without setting the flag: this thread did what it should, and the others go on.
    pub(crate) fn not_yet(self) {
        std::mem::forget(self);
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
