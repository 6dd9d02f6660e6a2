//! What the steps of the receive path cost on this host, for the lab's model.
//!
//! A step is a difference: the same packets are let through to one station more, or read in another
//! way. Noise only ever adds time, so the least of several short runs counts. What cannot be told apart
//! from outside the kernel, or from noise, is not given, and keeps its default.
//!
//! Always true: each cost of the model is either measured or kept, once, and says how or why.
//! Elsewhere: waking ([`wake`]), reading ([`reading`]), packet work ([`processing`]), other CPUs
//! ([`signals`]), applications ([`sending`]), what is kept ([`kept`]).

mod kept;
mod processing;
mod reading;
mod sending;
mod signals;
mod wake;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rxsteer_core::CpuId;
use rxsteer_testbed::{Pair, allowed_cpus};
use serde::Serialize;

pub use kept::Kept;
pub use wake::Wake;

use crate::error::During as _;
use crate::threads::{join, spawn};
use crate::{BenchError, HostFacts};

/// What a step costs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Cost {
    /// Its name in the host file.
    pub name: &'static str,
    /// In ns.
    pub ns: u32,
    /// How it was measured.
    pub how: &'static str,
}

/// All that was measured.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CalibrateReport {
    /// Steps.
    pub costs: Vec<Cost>,
    /// Steps that keep their defaults, and why.
    pub kept: Vec<Kept>,
    /// What applications spend; not of the model, but for what a workload says of its own work.
    pub application: Vec<Cost>,
    /// How long waking a thread takes, from CPU to CPU.
    pub wakes: Vec<Wake>,
}

impl CalibrateReport {
    /// Returns the host file with these costs, which `lab` and `replay` read.
    pub fn to_toml(&self, host: &HostFacts) -> String {
        let mut text = format!(
            "# Measured by rxsteer bench calibrate on {} {}, {}, CPUs {}.\n\
             # Costs that are not here keep their defaults.\n\n",
            host.kernel, host.machine, host.cpu_model, host.online
        );
        if !host.online.is_empty() {
            writeln!(text, "cpus = {:?}", host.online).expect("a string takes all");
        }
        if !host.caches.is_empty() {
            writeln!(text, "caches = {:?}", host.caches).expect("a string takes all");
        }
        text.push_str("\n[costs]\n");
        for Cost { name, ns, how } in &self.costs {
            writeln!(text, "{name} = {ns} # {how}").expect("a string takes all");
        }
        for Kept { name, ns, why } in &self.kept {
            writeln!(text, "# {name} = {ns}: {why}").expect("a string takes all");
        }
        text.push_str("\n# What applications spend here, for `work_ns` of a consumer:\n");
        for Cost { name, ns, how } in &self.application {
            writeln!(text, "# {name}: {ns} ({how})").expect("a string takes all");
        }
        text
    }
}

/// Measures over a pair whose receiving end polls; takes about 12 seconds on two CPUs, and is
/// bounded by packets and turns, not by time.
///
/// # Errors
/// [`BenchError::PeerDoesNotPoll`]; [`BenchError::LiveFrames`] on a kernel without them;
/// [`BenchError::Step`]; [`BenchError::Stopped`] when `stop` became true meanwhile.
pub fn calibrate(pair: &Pair, stop: &AtomicBool) -> Result<CalibrateReport, BenchError> {
    let cpus: Vec<CpuId> = allowed_cpus().during(|| "ask for the CPUs".into())?.iter().collect();
    let Some(first) = cpus.first().copied() else {
        return Err(BenchError::Options("this process may run on no CPU".into()));
    };
    let other = cpus.get(1).copied();
    let (wakes, mut costs) = wake::measure(&cpus, stop)?;
    costs.extend(reading::measure(pair, first, other, stop)?);
    let (steps, of_processing) = processing::measure(pair, first, stop)?;
    costs.extend(of_processing);
    let mut application = Vec::new();
    if let Some(other) = other {
        costs.extend(signals::measure(pair, first, other, &steps, stop)?);
        // Reading here is reading what the other CPU sent.
        let near = if shares_cache(first, other) { "read_near" } else { "read_far" };
        let of = |name: &str| costs.iter().find(|cost| cost.name == name).map_or(0, |cost| cost.ns);
        let read_ns = of("read") + of(near);
        let sending = sending::measure(pair, (first, other), &steps, read_ns, stop)?;
        costs.extend(sending.costs);
        application = sending.application;
    }
    // A step that noise hides is not one that costs nothing.
    let hidden: Vec<&'static str> =
        costs.iter().filter(|cost| cost.ns == 0).map(|cost| cost.name).collect();
    costs.retain(|cost| cost.ns > 0);
    let kept = kept::all(&costs, &hidden, other.is_some());
    Ok(CalibrateReport { costs, kept, application, wakes })
}

/// Returns whether two CPUs share their last cache; `false` where the kernel does not say.
fn shares_cache(one: CpuId, other: CpuId) -> bool {
    let facts = HostFacts::read();
    let groups = facts.caches.iter().filter_map(|list| rxsteer_core::CpuSet::from_list(list).ok());
    groups.into_iter().any(|group| group.contains(one) && group.contains(other))
}

/// Returns an error if the measurement shall end; asked before each short run.
fn go_on(stop: &AtomicBool) -> Result<(), BenchError> {
    if stop.load(Ordering::Relaxed) {
        return Err(BenchError::Stopped("all steps were measured"));
    }
    Ok(())
}

/// Runs `work` in a thread of its own on this CPU.
fn on<T: Send>(
    cpu: CpuId,
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    std::thread::scope(|scope| {
        let pinned = || {
            rxsteer_testbed::pin_thread(cpu).during(|| format!("measure on CPU {cpu}"))?;
            work()
        };
        join(spawn(scope, 1, pinned)?)
    })
}

/// Returns a difference in whole ns; 0 where noise made it negative, or there is none.
fn difference(more: f64, less: f64) -> u32 {
    let difference = more - less;
    if difference.is_finite() { difference.max(0.0).round() as u32 } else { 0 }
}
