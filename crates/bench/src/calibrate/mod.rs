//! What the steps of the receive path cost on this host, for the lab's model.
//!
//! A step is a difference: the same packets are let through to one station more, or read in another
//! way. Noise only ever adds time, so the least of several short runs counts. What cannot be told apart
//! from outside the kernel, or from noise, is not given, and keeps its default.
//!
//! Elsewhere: waking ([`wake`]), reading ([`reading`]), packet work ([`processing`]).

mod processing;
mod reading;
mod wake;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rxsteer_core::CpuId;
use rxsteer_testbed::{Pair, allowed_cpus};
use serde::Serialize;

pub use wake::Wake;

use crate::error::During as _;
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
        text
    }
}

/// Measures over a pair whose receiving end polls; takes some seconds.
///
/// # Errors
/// [`BenchError::PeerDoesNotPoll`]; [`BenchError::LiveFrames`] on a kernel without them;
/// [`BenchError::Step`]; [`BenchError::Stopped`] when `stop` became true meanwhile.
pub fn calibrate(pair: &Pair, stop: &AtomicBool) -> Result<CalibrateReport, BenchError> {
    let cpus: Vec<CpuId> = allowed_cpus().during(|| "ask for the CPUs".into())?.iter().collect();
    let Some(first) = cpus.first().copied() else {
        return Err(BenchError::Options("this process may run on no CPU".into()));
    };
    let (wakes, mut costs) = wake::measure(&cpus, stop)?;
    costs.extend(reading::measure(pair, first, cpus.get(1).copied(), stop)?);
    costs.extend(processing::measure(pair, first, stop)?);
    // A step that noise hides is not one that costs nothing.
    costs.retain(|cost| cost.ns > 0);
    Ok(CalibrateReport { costs, wakes })
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
        let thread = scope.spawn(|| {
            rxsteer_testbed::pin_thread(cpu).during(|| format!("measure on CPU {cpu}"))?;
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns a difference in whole ns; 0 where noise made it negative, or there is none.
fn difference(more: f64, less: f64) -> u32 {
    let difference = more - less;
    if difference.is_finite() { difference.max(0.0).round() as u32 } else { 0 }
}
