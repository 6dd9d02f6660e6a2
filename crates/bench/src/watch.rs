//! What ends a run, and telling how it goes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What ends a run: whichever comes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Until {
    /// Packets or transactions.
    pub count: u64,
    /// Time.
    pub duration: Duration,
}

impl Until {
    /// Most that a run may last, so that none is forgotten.
    pub const LONGEST: Duration = Duration::from_secs(24 * 3600);
}

impl Default for Until {
    /// 100 million, 5 seconds.
    fn default() -> Self {
        Self { count: 100_000_000, duration: Duration::from_secs(5) }
    }
}

/// How a run went in one second.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Second {
    /// Since the start.
    pub elapsed: Duration,
    /// Packets or transactions in this second.
    pub count: u64,
    /// Since the start.
    pub total: u64,
    /// Dropped or failed since the start, as far as is known while it runs.
    pub lost: u64,
}

/// Who looks at a run.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Ends the run when it becomes true.
    pub stop: &'a AtomicBool,
    /// Is told about each second.
    pub on_second: &'a (dyn Fn(&Second) + Sync),
}

impl Watch<'_> {
    /// Returns whether the run shall end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Counts of a run that its threads write and its watcher reads.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) count: AtomicU64,
    pub(crate) lost: AtomicU64,
}

impl Progress {
    /// Tells the watcher about each second, until `is_over`; looks for that every 20 ms.
    pub(crate) fn tell(&self, watch: &Watch<'_>, mut is_over: impl FnMut() -> bool) {
        let start = Instant::now();
        let mut told = 0;
        let mut next = Duration::from_secs(1);
        while !is_over() {
            std::thread::sleep(Duration::from_millis(20));
            let elapsed = start.elapsed();
            if elapsed < next {
                continue;
            }
            let total = self.count.load(Ordering::Relaxed);
            let lost = self.lost.load(Ordering::Relaxed);
            (watch.on_second)(&Second { elapsed, count: total - told, total, lost });
            told = total;
            next = elapsed + Duration::from_secs(1);
        }
    }
}
