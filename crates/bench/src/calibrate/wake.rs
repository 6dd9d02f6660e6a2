//! How long it takes to wake a thread, and what it costs who wakes it.
//!
//! Two threads wake each other in turn (`futex(2)`, as `park` and `unpark` do), each bound to a CPU. Half
//! a turn is the time from waking to running.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{Thread, park};
use std::time::{Duration, Instant};

use rxsteer_core::CpuId;
use rxsteer_lab::host::Host;
use rxsteer_testbed::pin_thread;
use serde::Serialize;

use super::Cost;
use crate::BenchError;
use crate::error::During as _;
use crate::threads::{join, spawn};

/// Turns of one measurement.
const TURNS: u32 = 400;

/// Measurements, of which the least counts.
const TRIES: u32 = 5;

/// Most CPUs among which all pairs are measured.
const MOST_CPUS: usize = 8;

/// From waking on one CPU to running on another.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Wake {
    /// CPU of who wakes.
    pub from: u16,
    /// CPU of who is woken.
    pub to: u16,
    /// From waking to running, in ns.
    pub latency_ns: u32,
    /// What waking takes of who wakes, in ns; `None` on one CPU, where who wakes is put aside at once.
    pub waker_ns: Option<u32>,
}

pub(super) fn measure(
    cpus: &[CpuId],
    stop: &AtomicBool,
) -> Result<(Vec<Wake>, Vec<Cost>), BenchError> {
    let mut wakes = Vec::new();
    let some = &cpus[..cpus.len().min(MOST_CPUS)];
    for from in some {
        for to in some {
            wakes.push(one(*from, *to, stop)?);
        }
    }
    let median = |values: Vec<u32>| {
        let mut values = values;
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    };
    let local = wakes.iter().filter(|wake| wake.from == wake.to).map(|wake| wake.latency_ns);
    let remote = wakes.iter().filter_map(|wake| wake.waker_ns);
    let mut costs = Vec::new();
    if let Some(both) = median(local.collect()) {
        let default = Host::simple(1, 1).expect("a host of one CPU and queue is allowed").costs;
        let share = f64::from(default.wake_local) / f64::from(default.wake_local + default.switch);
        let wake = (f64::from(both) * share).round() as u32;
        let how = "from waking to running on the same CPU, shared out as the defaults are";
        costs.push(Cost { name: "wake_local", ns: wake, how });
        costs.push(Cost { name: "switch", ns: both - wake, how: "the rest of that" });
    }
    if let Some(ns) = median(remote.collect()) {
        costs.push(Cost { name: "wake_remote", ns, how: "waking a thread of another CPU" });
        let latency = wakes.iter().filter(|wake| wake.from != wake.to).map(|wake| wake.latency_ns);
        let spent = ns + costs.iter().find(|cost| cost.name == "switch").map_or(0, |cost| cost.ns);
        costs.push(Cost {
            name: "idle_exit",
            ns: median(latency.collect()).unwrap_or(0).saturating_sub(spent),
            how: "from waking to running on another CPU that is idle, without wake_remote and switch",
        });
    }
    Ok((wakes, costs))
}

/// Measures one pair of CPUs, in a thread that may be bound.
fn one(from: CpuId, to: CpuId, stop: &AtomicBool) -> Result<Wake, BenchError> {
    let mut best = Wake { from: from.0, to: to.0, latency_ns: u32::MAX, waker_ns: None };
    for _ in 0..TRIES {
        super::go_on(stop)?;
        let (turn, waker) = super::on(from, || turns(from, to))?;
        best.latency_ns = best.latency_ns.min((turn / 2).as_nanos() as u32);
        if from != to {
            let waker = waker.as_nanos() as u32;
            best.waker_ns = Some(best.waker_ns.map_or(waker, |least| least.min(waker)));
        }
    }
    Ok(best)
}

/// Lets two threads wake each other and returns the median turn and the median time of waking.
fn turns(from: CpuId, to: CpuId) -> Result<(Duration, Duration), BenchError> {
    // The turn that is being played; it is whose it is by being odd or even.
    let (ball, over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A thread that echoes: it needs the handle of the first one, which is this one.
        let first: Thread = std::thread::current();
        let echo = spawn(scope, 1, {
            let (ball, over) = (&ball, &over);
            move || -> Result<(), BenchError> {
                let end = Leave { over, other: &first };
                pin_thread(to).during(|| format!("measure on CPU {to}"))?;
                while !over.load(Ordering::Acquire) {
                    if ball.load(Ordering::Acquire) % 2 == 1 {
                        ball.fetch_add(1, Ordering::AcqRel);
                        end.other.unpark();
                    } else {
                        park();
                    }
                }
                Ok(())
            }
        })?;
        let result = {
            let _end = Leave { over: &over, other: echo.thread() };
            play(from, echo.thread(), &ball, &over)
        };
        join(echo)?;
        result
    })
}

/// Tells the other thread that this one plays no more, also by an error or a panic.
struct Leave<'a> {
    over: &'a AtomicBool,
    other: &'a Thread,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.other.unpark();
    }
}

fn play(
    from: CpuId,
    echo: &Thread,
    ball: &AtomicU32,
    over: &AtomicBool,
) -> Result<(Duration, Duration), BenchError> {
    pin_thread(from).during(|| format!("measure on CPU {from}"))?;
    let mut turns = Vec::new();
    let mut waking = Vec::new();
    for _ in 0..TURNS {
        let start = Instant::now();
        let played = ball.fetch_add(1, Ordering::AcqRel) + 1;
        echo.unpark();
        waking.push(start.elapsed());
        while ball.load(Ordering::Acquire) == played {
            if over.load(Ordering::Acquire) {
                return Err(BenchError::Stopped("a thread was woken"));
            }
            park();
        }
        turns.push(start.elapsed());
    }
    turns.sort_unstable();
    waking.sort_unstable();
    Ok((turns[turns.len() / 2], waking[waking.len() / 2]))
}
