//! Requests and responses: how many a second, and how long each takes.
//!
//! In a closed loop each flow asks again when it has its answer. That is what a benchmark of
//! throughput does, and it hides waiting: while the server stands still, nobody asks. In an open loop
//! requests fall due at a fixed rate whatever happens, and the time of each counts from when it was
//! due, so those that would have been asked meanwhile are in the figures (no coordinated omission).
//!
//! Elsewhere: asking ([`client`]), answering ([`server`]), quantiles ([`latency`]).

mod client;
mod latency;
mod server;
mod spec;
mod stream;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rxsteer_testbed::Pair;
use serde::Serialize;

pub(crate) use client::bookkeeping;
pub use latency::{Latency, Quantiles};
pub use server::ServerReport;
pub use spec::{Delay, Pace, Protocol, RrSpec};

use crate::sink::{Counters, CpuUse};
use crate::source::{as_ns, per, rate};
use crate::watch::Progress;
use crate::{BenchError, Permit, Watch};

/// What came of asking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RrReport {
    /// Requests that were answered.
    pub transactions: u64,
    /// Requests that were not answered in time.
    pub lost: u64,
    /// Answers that came after their request had been given up, or to none.
    pub late: u64,
    /// Requests that fell due and were not asked in time already.
    pub skipped: u64,
    /// Times that the other host said that nobody listens there; such requests are among the lost.
    pub refused: u64,
    /// From the first request to the end.
    #[serde(rename = "elapsed_ns", serialize_with = "as_ns")]
    pub elapsed: Duration,
    /// From when a request was due (open loop) or asked (closed loop) to its answer.
    pub latency: Quantiles,
    /// In an open loop, from when it was asked; shorter, where the asker itself was late.
    pub since_asked: Option<Quantiles>,
    /// CPU time of the asking threads.
    #[serde(rename = "cpu_ns", serialize_with = "as_ns")]
    pub cpu_time: Duration,
}

impl RrReport {
    /// Returns transactions a second.
    pub fn rate(&self) -> f64 {
        rate(self.transactions, self.elapsed)
    }
}

/// Both ends in a pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RrPairReport {
    /// The asking end.
    pub client: RrReport,
    /// The answering end.
    pub server: ServerReport,
    /// How each CPU spent its time meanwhile.
    pub cpus: Vec<CpuUse>,
}

impl RrPairReport {
    /// Returns CPU time of the answering threads a transaction, in ns.
    pub fn server_ns(&self) -> f64 {
        per(self.server.cpu_time, self.server.answered)
    }
}

/// Asks a server elsewhere.
///
/// # Errors
/// [`BenchError::NotOurs`] unless its address was named; [`BenchError::Options`],
/// [`BenchError::Step`].
pub fn ask(
    spec: &RrSpec,
    to: SocketAddr,
    permit: &Permit,
    watch: &Watch<'_>,
) -> Result<RrReport, BenchError> {
    spec.check()?;
    permit.check(to.ip())?;
    let progress = Progress::default();
    client::run(spec, to, None, watch, &progress, &|| {})
}

/// Answers who asks, as far as their addresses were named, until a bound is met.
///
/// # Errors
/// [`BenchError::Options`], [`BenchError::Step`].
pub fn serve(
    spec: &RrSpec,
    at: SocketAddr,
    permit: &Permit,
    watch: &Watch<'_>,
) -> Result<ServerReport, BenchError> {
    spec.check()?;
    let server = server::Server::open(spec, at, &[], Some(permit))?;
    let (progress, over) = (Progress::default(), AtomicBool::new(false));
    let deadline = Instant::now() + spec.until.duration;
    let (result, ()) = server.run(&progress, &over, || {
        progress.tell(watch, || {
            let count = progress.count.load(Ordering::Relaxed);
            watch.is_stopped() || Instant::now() >= deadline || count >= spec.until.count
        });
    })?;
    result
}

/// Asks from one end of a pair and answers at the other.
///
/// # Errors
/// [`BenchError::Options`], [`BenchError::Step`].
pub fn ask_in(
    pair: &Pair,
    spec: &RrSpec,
    ipv6: bool,
    watch: &Watch<'_>,
) -> Result<RrPairReport, BenchError> {
    ask_in_when(pair, spec, ipv6, watch, &|| {})
}

/// The same; `ready` is called when all flows are open, before the first request.
pub(crate) fn ask_in_when(
    pair: &Pair,
    spec: &RrSpec,
    ipv6: bool,
    watch: &Watch<'_>,
    ready: &(dyn Fn() + Sync),
) -> Result<RrPairReport, BenchError> {
    spec.check()?;
    let (from, to) = if ipv6 {
        (Pair::SOURCE_V6.into(), Pair::SINK_V6.into())
    } else {
        (Pair::SOURCE_V4.into(), Pair::SINK_V4.into())
    };
    let at = SocketAddr::new(to, spec::PORT);
    let peers = spec.peers(from);
    pair.sink.run(|| {
        let server = server::Server::open(spec, at, &peers, None)?;
        let (progress, over) = (Progress::default(), AtomicBool::new(false));
        let before = Counters::now()?;
        let (served, asked) = server.run(&progress, &over, || {
            let progress = Progress::default();
            pair.source.run(|| client::run(spec, at, Some(from), watch, &progress, ready))
        })?;
        let cpus = Counters::now()?.cpus_since(&before);
        Ok(RrPairReport { client: asked??, server: served?, cpus })
    })?
}
