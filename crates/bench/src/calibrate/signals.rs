//! What it costs to hand packets to another CPU: signals, and touching what another CPU took.
//!
//! A packet socket sends one frame or several with a call, and then waits until the other CPU, to which
//! RPS sends them, must be through. The first frame of a call signals; those behind it find the signal
//! given. So one frame and several differ by frames without a signal, and what is left of one is the call
//! and the signal. The call is measured in the same way with RPS to the own CPU, where nobody is signalled.
//! What the other CPU spends is missing to a loop that runs there.
//!
//! Source: Documentation/networking/scaling.rst, "RPS" (a signal where the backlog was empty).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rxsteer_core::{CpuId, CpuSet};
use rxsteer_testbed::{Pair, pin_thread, softnet_now};

use super::processing::{self, PORT, Station, Steps};
use super::{Cost, difference};
use crate::BenchError;
use crate::error::During as _;
use crate::sink::work::chain;
use crate::source::packet::PacketSocket;
use crate::traffic::{Frames, Link};

/// Frames of a call with several.
const SEVERAL: usize = 8;

/// Calls of one measurement.
const CALLS: u32 = 150;

/// Measurements; the median counts, since noise on the other CPU and on this one point different ways.
const TRIES: u32 = 25;

/// Time for the other CPU after each call.
const PATIENCE: Duration = Duration::from_micros(60);

/// Counts of the loop in 2 ms, of which it makes thousands when it is alone.
const LEAST_TURNS: u64 = 100;

/// A turn that is longer than this was interrupted.
const GAP: Duration = Duration::from_nanos(1000);

/// Turns of the loop on the other CPU between two counts.
const TURNS: u64 = 50;

/// What a call took, in ns.
#[derive(Clone, Copy, Debug)]
struct Spent {
    here: f64,
    /// On the other CPU.
    there: f64,
    /// Signals that the other CPU took.
    signals: f64,
    /// Until the loop on the other CPU stood still, from the beginning of the call.
    until_there: f64,
}

pub(super) fn measure(
    pair: &Pair,
    cpu: CpuId,
    other: CpuId,
    steps: &Steps,
    stop: &AtomicBool,
) -> Result<Vec<Cost>, BenchError> {
    let socket = processing::open(pair)?;
    processing::little_room(&socket)?;
    let calls = |to: CpuId| -> Result<[Spent; 2], BenchError> {
        let mut mask = CpuSet::EMPTY;
        mask.insert(to);
        processing::spread(pair, &mask)?;
        let both = [1, SEVERAL].map(|frames| median(pair, (cpu, other), frames, stop));
        processing::spread(pair, &CpuSet::EMPTY)?;
        let [one, several] = both;
        Ok([one?, several?])
    };
    let [own_one, own_several] = calls(cpu)?;
    let [one, several] = calls(other)?;
    let more = (SEVERAL - 1) as f64;
    let without = |one: f64, several: f64| one - (several - one) / more;
    let send = without(one.here, several.here) - without(own_one.here, own_several.here);
    let take = without(one.there, several.there);
    let hop = (several.there - one.there) / more - steps.full;
    // If it did not go as described, the differences mean something else.
    let as_described = (0.7..1.5).contains(&one.signals) && several.signals < 2.5;
    let told = |ns: f64| if as_described { difference(ns, 0.0) } else { 0 };
    let near = super::shares_cache(cpu, other);
    Ok(vec![
        Cost {
            name: "signal_send",
            ns: told(send),
            how: "by RPS to another CPU: a call that sends one frame, without the frame and the call",
        },
        Cost {
            name: "signal_reach",
            // What is left of the call when the signal is taken out of it comes first.
            ns: told(one.until_there - (one.here - send)),
            how: "when a loop on that CPU stops, from when the signal begins to be sent",
        },
        Cost {
            name: "signal_take",
            ns: told(take),
            how: "what a loop on that CPU misses, without what it misses for a frame",
        },
        Cost {
            name: if near { "hop_near" } else { "hop_far" },
            ns: told(hop),
            how: "what it misses for one frame more, without the frame's way to a full socket",
        },
    ])
}

/// Sends frames on one CPU while a loop runs on the other; returns medians of several tries.
fn median(
    pair: &Pair,
    (cpu, other): (CpuId, CpuId),
    frames: usize,
    stop: &AtomicBool,
) -> Result<Spent, BenchError> {
    let (turns, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (began, gap_ns) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let looper = scope.spawn(|| -> Result<(), BenchError> {
            pin_thread(other).during(|| format!("measure on CPU {other}"))?;
            let mut x = 1u64;
            let mut last = began.elapsed();
            while !over.load(Ordering::Relaxed) {
                x = std::hint::black_box(chain(x, TURNS));
                turns.fetch_add(1, Ordering::Relaxed);
                let now = began.elapsed();
                if now - last > GAP {
                    gap_ns.store(last.as_nanos() as u64, Ordering::Relaxed);
                }
                last = now;
            }
            Ok(())
        });
        let result = pair.source.run(|| {
            pin_thread(cpu).during(|| format!("measure on CPU {cpu}"))?;
            let alone = alone(&turns);
            let runs = (0..TRIES).map(|_| {
                super::go_on(stop)?;
                run(pair, other, frames, (&turns, alone), (began, &gap_ns))
            });
            runs.collect::<Result<Vec<_>, _>>()
        });
        over.store(true, Ordering::Relaxed);
        looper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let runs = result??;
        let of = |value: fn(&Spent) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Ok(Spent {
            here: of(|s| s.here),
            there: of(|s| s.there),
            signals: of(|s| s.signals),
            until_there: of(|s| s.until_there),
        })
    })
}

fn run(
    pair: &Pair,
    other: CpuId,
    frames: usize,
    (turns, alone): (&AtomicU64, f64),
    (began, gap_ns): (Instant, &AtomicU64),
) -> Result<Spent, BenchError> {
    let link = Link { source: pair.source_device.mac, sink: pair.sink_device.mac };
    let station = Station { link, port: PORT, batch: frames };
    let made = Frames::new(&station.spec().traffic, &link)?;
    let mut socket = PacketSocket::open(pair.source_device.index, made, frames)?;
    let before = signals(other)?;
    let (mut calls, mut until_there) = (Vec::new(), Vec::new());
    let (start, turns_before) = (Instant::now(), turns.load(Ordering::Relaxed));
    for _ in 0..CALLS {
        let call = Instant::now();
        socket.run(frames).during(|| "send frames".into())?;
        calls.push(call.elapsed());
        while call.elapsed() < PATIENCE {}
        let called_ns = call.duration_since(began).as_nanos() as u64;
        let gap_ns = gap_ns.load(Ordering::Relaxed);
        if gap_ns > called_ns {
            until_there.push(gap_ns - called_ns);
        }
    }
    let all = start.elapsed().as_nanos() as f64;
    let missing = all - (turns.load(Ordering::Relaxed) - turns_before) as f64 * alone;
    let signals = signals(other)?.wrapping_sub(before);
    calls.sort_unstable();
    until_there.sort_unstable();
    let until_there = until_there.get(until_there.len() / 2).map_or(0.0, |ns| *ns as f64);
    let each = |value: f64| value / f64::from(CALLS);
    let here = calls[calls.len() / 2].as_nanos() as f64;
    Ok(Spent { here, there: each(missing), signals: each(f64::from(signals)), until_there })
}

/// Returns what a count of the loop takes when nothing interrupts it, in ns.
fn alone(turns: &AtomicU64) -> f64 {
    let round = |_| {
        let (before, start) = (turns.load(Ordering::Relaxed), Instant::now());
        while start.elapsed() < Duration::from_millis(2) {}
        let done = turns.load(Ordering::Relaxed) - before;
        // Another had that CPU: not alone.
        if done < LEAST_TURNS {
            return f64::INFINITY;
        }
        start.elapsed().as_nanos() as f64 / done as f64
    };
    (0..20).map(round).fold(f64::INFINITY, f64::min)
}

/// Returns the signals that a CPU has taken.
fn signals(cpu: CpuId) -> Result<u32, BenchError> {
    let softnet = softnet_now().during(|| "read /proc/net/softnet_stat".into())?;
    let of = softnet.0.iter().find(|softnet| softnet.cpu == cpu);
    Ok(of.map_or(0, |softnet| softnet.received_rps))
}
