//! Which instance is polled next, and when a run must stop.
//!
//! A run is made of passes over the poll list; a pass polls each instance at most once. What is left
//! of a pass goes back on the list in this order: not polled yet, scheduled meanwhile, polled but
//! not through. This is bookkeeping only: no packet is touched and the time is an argument.
//!
//! Always true: an instance is in the list, in the pass, or among those to be polled again, once at
//! most in all; a pass ends by itself after each of its instances was polled.
//! Elsewhere: what a poll does ([`crate::cpu`]).
//! Source: Linux, net/core/dev.c (net_rx_action) and kernel/softirq.c (handle_softirqs), by their
//! behaviour.

use std::collections::VecDeque;

use crate::settings::Limits;

/// Place of a poll instance on its CPU: a queue of a device, or the backlog.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Napi(pub u16);

/// What follows from a pass that is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// Another pass begins at once.
    Again,
    /// Nothing is left.
    Idle,
    /// Something is left, but the run must stop: `ksoftirqd` is to be woken.
    Deferred,
}

/// What a CPU's receive softirq did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SoftirqCounts {
    /// Runs begun.
    pub runs: u64,
    /// Passes over the poll list.
    pub passes: u64,
    /// Passes that stopped for their budget or their time (`time_squeeze`).
    pub squeezed: u64,
    /// Runs that stopped with work left.
    pub deferred: u64,
    /// Polls that reported more than their weight, which is an error of the device's driver.
    pub overweight: u64,
}

/// The poll list of a CPU and the limits of its runs.
///
/// # Examples
/// ```
/// use rxsteer_engine::Limits;
/// use rxsteer_engine::softirq::{After, Napi, Softirq};
/// let mut softirq = Softirq::new(Limits::default());
/// softirq.schedule(Napi(1));
/// softirq.begin_run(0);
/// assert_eq!(softirq.next(0), Some(Napi(1)));
/// softirq.polled(Napi(1), 3, true, 2_000); // 3 packets, and the ring is empty
/// assert_eq!(softirq.next(2_000), None);
/// assert_eq!(softirq.end_pass(2_000, false), After::Idle);
/// ```
#[derive(Clone, Debug)]
pub struct Softirq {
    limits: Limits,
    /// Scheduled for the next pass.
    list: VecDeque<Napi>,
    /// Not polled yet in this pass.
    pass: VecDeque<Napi>,
    /// Polled in this pass and not through.
    again: Vec<Napi>,
    in_pass: bool,
    budget: i64,
    pass_began_ns: u64,
    run_began_ns: u64,
    passes: u32,
    counts: SoftirqCounts,
}

impl Softirq {
    /// Makes an empty poll list.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            list: VecDeque::new(),
            pass: VecDeque::new(),
            again: Vec::new(),
            in_pass: false,
            budget: 0,
            pass_began_ns: 0,
            run_began_ns: 0,
            passes: 0,
            counts: SoftirqCounts::default(),
        }
    }

    /// Puts an instance on the poll list; the caller knows that it is not there.
    #[inline]
    pub fn schedule(&mut self, napi: Napi) {
        debug_assert!(!self.contains(napi));
        self.list.push_back(napi);
    }

    /// Takes an instance off, wherever it is.
    pub fn remove(&mut self, napi: Napi) {
        self.list.retain(|n| *n != napi);
        self.pass.retain(|n| *n != napi);
        self.again.retain(|n| *n != napi);
    }

    /// Forgets all instances and ends the pass under way: the CPU goes offline.
    pub fn clear(&mut self) {
        self.list.clear();
        self.pass.clear();
        self.again.clear();
        self.in_pass = false;
        self.budget = 0;
    }

    /// Returns whether a run would find work.
    #[inline]
    pub fn is_pending(&self) -> bool {
        !self.list.is_empty()
    }

    /// Begins a run.
    pub fn begin_run(&mut self, now_ns: u64) {
        self.run_began_ns = now_ns;
        self.passes = 0;
        self.counts.runs += 1;
    }

    /// Returns the instance to poll next; `None`: the pass is over.
    #[inline]
    pub fn next(&mut self, now_ns: u64) -> Option<Napi> {
        if !self.in_pass {
            self.in_pass = true;
            self.budget = i64::from(self.limits.budget);
            self.pass_began_ns = now_ns;
            self.passes += 1;
            self.counts.passes += 1;
            std::mem::swap(&mut self.pass, &mut self.list);
        }
        if self.budget == Self::STOP {
            return None;
        }
        if self.pass.is_empty() && self.again.is_empty() {
            std::mem::swap(&mut self.pass, &mut self.list);
        }
        self.pass.pop_front()
    }

    /// Budget of a pass that was stopped.
    const STOP: i64 = i64::MIN;

    /// Hears that a poll of `packets` is over; `through`: it completed.
    ///
    /// More packets than its weight are counted as an error, and only the weight is charged.
    #[inline]
    pub fn polled(&mut self, napi: Napi, packets: u32, through: bool, now_ns: u64) {
        self.counts.overweight += u64::from(packets > self.limits.weight);
        self.budget -= i64::from(packets.min(self.limits.weight));
        if !through {
            self.again.push(napi);
        }
        if self.budget <= 0 || now_ns.saturating_sub(self.pass_began_ns) >= self.limits.budget_ns {
            self.counts.squeezed += 1;
            self.budget = Self::STOP;
        }
    }

    /// Ends a pass; `reschedule`: the scheduler wants the CPU for a task.
    pub fn end_pass(&mut self, now_ns: u64, reschedule: bool) -> After {
        debug_assert!(self.in_pass);
        self.in_pass = false;
        self.budget = 0;
        // Not polled yet, scheduled meanwhile, polled but not through.
        self.pass.append(&mut self.list);
        std::mem::swap(&mut self.pass, &mut self.list);
        self.list.extend(self.again.drain(..));
        if self.list.is_empty() {
            return After::Idle;
        }
        let in_time = now_ns.saturating_sub(self.run_began_ns) < self.limits.run_ns;
        if in_time && !reschedule && self.passes < self.limits.passes {
            return After::Again;
        }
        self.counts.deferred += 1;
        After::Deferred
    }

    /// Returns what was counted.
    pub const fn counts(&self) -> SoftirqCounts {
        self.counts
    }

    fn contains(&self, napi: Napi) -> bool {
        self.list.contains(&napi) || self.pass.contains(&napi) || self.again.contains(&napi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_to(n: u16) -> Softirq {
        let mut softirq = Softirq::new(Limits::default());
        (0..n).for_each(|i| softirq.schedule(Napi(i)));
        softirq.begin_run(0);
        softirq
    }

    /// Polls with endless work until the pass is over; returns who was polled.
    fn endless(softirq: &mut Softirq, now_ns: u64) -> Vec<u16> {
        let mut polled = Vec::new();
        while let Some(napi) = softirq.next(now_ns) {
            polled.push(napi.0);
            softirq.polled(napi, 64, false, now_ns);
        }
        polled
    }

    #[test]
    fn three_endless_instances_get_one_poll_each_and_no_squeeze() {
        let mut softirq = three_to(3);
        assert_eq!(endless(&mut softirq, 0), [0, 1, 2]);
        assert_eq!(softirq.end_pass(0, false), After::Again, "the softirq is raised again");
        assert_eq!(softirq.counts().squeezed, 0);
    }

    #[test]
    fn of_six_endless_instances_five_are_polled_and_the_sixth_is_first_next_time() {
        let mut softirq = three_to(6);
        assert_eq!(endless(&mut softirq, 0), [0, 1, 2, 3, 4], "320 packets");
        assert_eq!(softirq.counts().squeezed, 1);
        assert_eq!(softirq.end_pass(0, false), After::Again);
        assert_eq!(endless(&mut softirq, 0), [5, 0, 1, 2, 3]);
    }

    #[test]
    fn what_is_left_is_ordered_unpolled_then_new_then_unfinished() {
        let mut softirq = three_to(6);
        for n in 0..5 {
            assert_eq!(softirq.next(0), Some(Napi(n)));
            if n == 2 {
                softirq.schedule(Napi(9));
            }
            softirq.polled(Napi(n), 64, n == 3, 0);
        }
        assert_eq!(softirq.next(0), None);
        softirq.end_pass(0, false);
        assert_eq!(softirq.list, [5, 9, 0, 1, 2, 4].map(Napi));
    }

    #[test]
    fn a_pass_goes_on_with_new_instances_only_if_none_is_to_be_polled_again() {
        for (through, then) in [(true, Some(Napi(7))), (false, None)] {
            let mut softirq = three_to(1);
            let first = softirq.next(0).unwrap();
            softirq.schedule(Napi(7));
            softirq.polled(first, 64, through, 0);
            assert_eq!(softirq.next(0), then);
        }
    }

    #[test]
    fn time_stops_a_pass_and_both_limits_at_once_count_one_squeeze() {
        let limits = Limits { budget: 64, budget_ns: 1000, ..Limits::default() };
        for (packets, now_ns, squeezed) in [(1, 999, 0), (1, 1000, 1), (64, 0, 1), (64, 1000, 1)] {
            let mut softirq = Softirq::new(limits);
            (0..2).for_each(|i| softirq.schedule(Napi(i)));
            softirq.begin_run(0);
            let first = softirq.next(0).unwrap();
            softirq.polled(first, packets, true, now_ns);
            assert_eq!(softirq.counts().squeezed, squeezed, "{packets} packets, {now_ns} ns");
            assert_eq!(softirq.next(now_ns).is_none(), squeezed == 1);
        }
    }

    #[test]
    fn the_tenth_pass_is_the_last() {
        let mut softirq = three_to(1);
        for pass in 1..=10 {
            endless(&mut softirq, 0);
            let expected = if pass < 10 { After::Again } else { After::Deferred };
            assert_eq!(softirq.end_pass(0, false), expected, "pass {pass}");
        }
        softirq.begin_run(0);
        endless(&mut softirq, 0);
        assert_eq!(softirq.end_pass(0, false), After::Again, "a new run counts anew");
    }

    #[test]
    fn a_run_stops_after_its_time_or_when_a_task_is_due() {
        for (now_ns, due, expected) in [
            (1_999_999, false, After::Again),
            (2_000_000, false, After::Deferred),
            (0, true, After::Deferred),
        ] {
            let mut softirq = three_to(1);
            endless(&mut softirq, now_ns);
            assert_eq!(softirq.end_pass(now_ns, due), expected, "{now_ns} ns, due: {due}");
        }
    }

    #[test]
    fn a_poll_above_its_weight_is_reported_and_charged_as_its_weight() {
        let mut softirq = three_to(6);
        for _ in 0..4 {
            let napi = softirq.next(0).unwrap();
            softirq.polled(napi, 65, false, 0);
        }
        assert_eq!(softirq.counts().overweight, 4);
        assert!(softirq.next(0).is_some(), "4 * 64 of 300 are spent");
    }

    #[test]
    fn a_removed_instance_is_polled_no_more() {
        let mut softirq = three_to(3);
        softirq.remove(Napi(1));
        assert_eq!(endless(&mut softirq, 0), [0, 2]);
        softirq.remove(Napi(0));
        softirq.end_pass(0, false);
        assert_eq!(softirq.list, [Napi(2)]);
    }
}
