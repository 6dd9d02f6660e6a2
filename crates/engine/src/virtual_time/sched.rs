//! Which task a CPU runs when it does not run packet work ahead of all tasks.
//!
//! A fair scheduler of tasks of equal weight. The task with the least virtual runtime is next; it
//! runs until it sleeps, or has had its slice and another is more entitled. A task that wakes has
//! at most half a slice of credit, and gets the CPU at once if it is behind by a third of one.
//!
//! Always true: a task is queued once at most; virtual runtimes never fall behind
//! `min - slice / 2`.
//! Source: the scheduler of Linux before 6.6 (CFS), by its documentation; weights, groups and load
//! balancing are left out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::softirq::Napi;

/// What can be scheduled.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Task {
    /// The thread that does deferred packet work.
    Ksoftirqd,
    /// The thread of an instance.
    Thread(Napi),
    /// A reader.
    Reader(u32),
}

/// The tasks of one CPU.
#[derive(Debug)]
pub(super) struct RunQueue {
    slice_ns: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Task)>>,
    current: Option<Task>,
    vruntime: u64,
    ran_ns: u64,
    min_vruntime: u64,
    entered: u64,
    reschedule: bool,
    /// Readers among the tasks.
    readers: u32,
}

impl RunQueue {
    pub(super) fn new(slice_ns: u64) -> Self {
        Self {
            slice_ns,
            queue: BinaryHeap::new(),
            current: None,
            vruntime: 0,
            ran_ns: 0,
            min_vruntime: 0,
            entered: 0,
            reschedule: false,
            readers: 0,
        }
    }

    /// Returns whether a reader could run.
    #[inline]
    pub(super) const fn has_readers(&self) -> bool {
        self.readers > 0
    }

    /// Makes a task runnable that slept with this virtual runtime.
    pub(super) fn wake(&mut self, task: Task, vruntime: u64) {
        let vruntime = vruntime.max(self.min_vruntime.saturating_sub(self.slice_ns / 2));
        self.readers += u32::from(matches!(task, Task::Reader(_)));
        self.enter(task, vruntime);
        if self.current.is_none() || vruntime + self.slice_ns / 3 < self.vruntime {
            self.reschedule = true;
        }
    }

    fn enter(&mut self, task: Task, vruntime: u64) {
        self.entered += 1;
        self.queue.push(Reverse((vruntime, self.entered, task)));
    }

    /// Returns whether this is the task that runs.
    #[inline]
    pub(super) fn is_current(&self, task: Task) -> bool {
        self.current == Some(task)
    }

    /// Returns whether another task should run now.
    #[inline]
    pub(super) const fn is_reschedule_due(&self) -> bool {
        self.reschedule
    }

    /// Charges the running task; time ahead of all tasks is nobody's.
    #[inline]
    pub(super) fn charge(&mut self, ns: u64) {
        self.vruntime += ns;
        self.ran_ns += ns;
        let first = self.queue.peek().map(|Reverse((vruntime, ..))| *vruntime);
        let least = first.map_or(self.vruntime, |first| first.min(self.vruntime));
        self.min_vruntime = self.min_vruntime.max(least);
        if self.ran_ns >= self.slice_ns && first.is_some_and(|first| first < self.vruntime) {
            self.reschedule = true;
        }
    }

    /// Returns the task to run, and whether it is another one than before.
    #[inline]
    pub(super) fn pick(&mut self) -> Option<(Task, bool)> {
        if let Some(current) = self.current {
            if !self.reschedule {
                return Some((current, false));
            }
            self.current = None;
            self.enter(current, self.vruntime);
        }
        self.reschedule = false;
        let Reverse((vruntime, _, task)) = self.queue.pop()?;
        self.current = Some(task);
        self.vruntime = vruntime;
        self.ran_ns = 0;
        self.min_vruntime = self.min_vruntime.max(vruntime);
        Some((task, true))
    }

    /// The running task sleeps; returns its virtual runtime.
    pub(super) fn sleep(&mut self) -> u64 {
        if let Some(Task::Reader(_)) = self.current.take() {
            self.readers -= 1;
        }
        self.reschedule = !self.queue.is_empty();
        self.vruntime
    }

    /// Takes all tasks away, the running one first, then in the order of their turns.
    pub(super) fn clear(&mut self) -> Vec<Task> {
        let mut all: Vec<Task> = self.current.take().into_iter().collect();
        while let Some(Reverse((_, _, task))) = self.queue.pop() {
            all.push(task);
        }
        (self.reschedule, self.readers) = (false, 0);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 3_000_000;

    /// Runs `queue` for `turns` pieces of `ns`, all tasks always runnable; returns the shares.
    fn shares(queue: &mut RunQueue, turns: u64, ns: u64) -> std::collections::BTreeMap<u32, u64> {
        let mut ran = std::collections::BTreeMap::new();
        for _ in 0..turns {
            let Some((Task::Reader(id), _)) = queue.pick() else { panic!("no reader") };
            *ran.entry(id).or_default() += ns;
            queue.charge(ns);
        }
        ran
    }

    #[test]
    fn busy_tasks_share_evenly_to_a_slice() {
        let mut queue = RunQueue::new(SLICE);
        (0..3).for_each(|id| queue.wake(Task::Reader(id), 0));
        let ran = shares(&mut queue, 100_000, 1000);
        assert_eq!(ran.len(), 3);
        for ns in ran.values() {
            assert!(ns.abs_diff(100_000_000 / 3) <= SLICE, "{ran:?}");
        }
    }

    #[test]
    fn a_task_runs_its_slice_before_another_gets_its_turn() {
        let mut queue = RunQueue::new(SLICE);
        queue.wake(Task::Reader(1), 0);
        queue.wake(Task::Reader(2), 0);
        assert_eq!(queue.pick(), Some((Task::Reader(1), true)));
        queue.charge(SLICE - 1);
        assert_eq!(queue.pick(), Some((Task::Reader(1), false)));
        queue.charge(1);
        assert_eq!(queue.pick(), Some((Task::Reader(2), true)));
    }

    #[test]
    fn who_slept_long_preempts_but_cannot_save_up_more_than_half_a_slice() {
        let mut queue = RunQueue::new(SLICE);
        queue.wake(Task::Reader(1), 0);
        queue.pick();
        queue.charge(100 * SLICE);
        queue.wake(Task::Reader(2), 0);
        assert_eq!(queue.pick(), Some((Task::Reader(2), true)));
        // Half a slice of credit, then a whole slice: not a hundred.
        let mut ran = 0;
        while let Some((Task::Reader(2), _)) = queue.pick() {
            queue.charge(1000);
            ran += 1000;
        }
        assert_eq!(ran, SLICE);
    }

    #[test]
    fn who_is_only_a_little_behind_waits_for_the_slice() {
        let mut queue = RunQueue::new(SLICE);
        queue.wake(Task::Reader(1), 0);
        queue.pick();
        queue.charge(1000);
        queue.wake(Task::Reader(2), 500);
        assert!(!queue.is_reschedule_due());
        queue.sleep();
        assert_eq!(queue.pick(), Some((Task::Reader(2), true)));
    }
}
