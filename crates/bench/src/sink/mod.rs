//! Reading datagrams, and accounting for those that did not come.
//!
//! Readers are threads, each with its sockets; a reader of several waits for all with `epoll`. In a
//! pair the sender is started when all sockets are open, and the readers end when nothing came for a
//! while after it ended, so that every packet that was sent is found somewhere.
//!
//! Elsewhere: the loop of a reader ([`reader`]); where packets were lost ([`account`]).

mod account;
mod idle;
mod reader;
mod sockets;
mod spec;
pub(crate) mod work;

#[cfg(test)]
mod redirected;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rxsteer_testbed::{
    CpuTimes, Pair, Snmp, Softnet, SoftnetCpu, snmp_now, softirq_now, softnet_now,
};
use serde::Serialize;

pub use account::{Account, Finding};
pub use reader::Reader;
pub(crate) use sockets::make_room;
pub use spec::{Call, SinkSpec};

use crate::error::During as _;
use crate::source::{Road, as_ns, per, rate};
use crate::threads::{End, join, spawn};
use crate::watch::Progress;
use crate::{BenchError, GenReport, GenSpec, Kind, Means, Watch, generate};

/// What was received.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SinkReport {
    /// Each reader.
    pub readers: Vec<Reader>,
    /// Datagrams that were read.
    pub received: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Datagrams that the sockets dropped, as the kernel counts them.
    pub socket_drops: u64,
    /// From the first look at the sockets to the last.
    #[serde(rename = "elapsed_ns", serialize_with = "as_ns")]
    pub elapsed: Duration,
    /// From the first datagram to the last.
    #[serde(rename = "receiving_ns", serialize_with = "as_ns")]
    pub receiving: Duration,
    /// How each CPU spent its time meanwhile, in steps of a clock tick.
    pub cpus: Vec<CpuUse>,
    /// Counters of the namespace's protocols that moved, such as `Udp.RcvbufErrors`.
    pub protocol: std::collections::BTreeMap<String, u64>,
}

impl SinkReport {
    /// Returns datagrams a second, between the first and the last; of the whole run where all came with
    /// one call.
    pub fn rate(&self) -> f64 {
        let time = if self.receiving.is_zero() { self.elapsed } else { self.receiving };
        rate(self.received, time)
    }

    /// Returns CPU time of the readers a datagram, in ns; 0 if none came.
    ///
    /// On a CPU that also processes packets, some of that work may be in it.
    pub fn ns_per_packet(&self) -> f64 {
        per(self.readers.iter().map(|reader| reader.cpu_time).sum(), self.received)
    }
}

/// How a CPU spent its time, and its backlog.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct CpuUse {
    /// Which.
    pub cpu: u16,
    /// In softirqs.
    pub softirq_ns: u64,
    /// Busy in any way.
    pub busy_ns: u64,
    /// Packets taken off a device or a backlog, of all namespaces.
    pub processed: u32,
    /// Packets that a backlog dropped, of all namespaces.
    pub dropped: u32,
    /// Times that the poll loop stopped with work left.
    pub time_squeeze: u32,
    /// Signals taken for packets of other CPUs.
    pub received_rps: u32,
}

/// Both ends of a run in a pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairReport {
    /// What was sent.
    pub source: GenReport,
    /// What was received.
    pub sink: SinkReport,
    /// Where each packet went.
    pub account: Account,
}

/// The kernel's counters around a run.
pub(crate) struct Counters {
    times: Vec<CpuTimes>,
    softnet: Softnet,
    snmp: Snmp,
}

impl Counters {
    /// Reads those of the calling thread's namespace.
    pub(crate) fn now() -> Result<Self, BenchError> {
        Ok(Self {
            times: softirq_now().during(|| "read /proc/stat".into())?,
            softnet: softnet_now().during(|| "read /proc/net/softnet_stat".into())?,
            snmp: snmp_now().during(|| "read /proc/net/snmp".into())?,
        })
    }

    pub(crate) fn cpus_since(&self, earlier: &Self) -> Vec<CpuUse> {
        let softnet = self.softnet.since(&earlier.softnet);
        let each = |now: &CpuTimes| {
            let was = earlier.times.iter().find(|was| was.cpu == now.cpu);
            let spent = now.since(was.unwrap_or(&CpuTimes::default()));
            let found = softnet.0.iter().find(|softnet| softnet.cpu == now.cpu);
            let SoftnetCpu { processed, dropped, time_squeeze, received_rps, .. } =
                found.copied().unwrap_or_default();
            CpuUse {
                cpu: now.cpu.0,
                softirq_ns: spent.softirq.as_nanos() as u64,
                busy_ns: spent.busy().as_nanos() as u64,
                processed,
                dropped,
                time_squeeze,
                received_rps,
            }
        };
        self.times.iter().map(each).collect()
    }
}

/// Reads what comes to the sockets of this process's namespace, until a bound is met.
///
/// # Errors
/// [`BenchError::Options`]; [`BenchError::Step`] if a socket cannot be opened or read.
pub fn receive(spec: &SinkSpec, watch: &Watch<'_>) -> Result<SinkReport, BenchError> {
    spec.check()?;
    let over = AtomicBool::new(false);
    read_all(spec, watch, &over, |_| Ok(())).map(|(report, ())| report)
}

/// Sends from one end of a pair and reads at the other.
///
/// # Errors
/// Those of [`receive`] and [`generate`], and [`BenchError::Options`] for packets that no UDP socket
/// gets.
pub fn receive_in(
    pair: &Pair,
    spec: &SinkSpec,
    source: &GenSpec,
    watch: &Watch<'_>,
) -> Result<PairReport, BenchError> {
    spec.check()?;
    let kind = source.traffic.kind;
    if !matches!(kind, Kind::Udp | Kind::Fragments) {
        let message = format!("a UDP reader gets nothing of {kind}; udp and fragments are read");
        return Err(BenchError::Options(message));
    }
    let devices = || -> Result<_, BenchError> {
        Ok((pair.source.device(Pair::SOURCE_DEVICE)?, pair.sink.device(Pair::SINK_DEVICE)?))
    };
    let before = devices()?;
    let over = AtomicBool::new(false);
    let polls = pair.sink.offloads(Pair::SINK_DEVICE)?.gro;
    let (sink, source) = pair.sink.run(|| {
        read_all(spec, watch, &over, |stop| {
            // Only the readers tell how it goes.
            let quiet = Watch { stop, on_second: &|_| {} };
            generate(source, Road::Pair(pair), &quiet)
        })
    })??;
    let after = devices()?;
    let lost = account::lost_on_link(
        (&before.0.counters, &after.0.counters),
        (&before.1.counters, &after.1.counters),
        source.returned,
        polls && source.by != Means::Live,
    );
    let account = Account::new((kind, spec.gro), &source, &sink, lost);
    Ok(PairReport { source, sink, account })
}

/// Opens the sockets, starts the readers, and then `meanwhile`, with the end of which the run ends.
///
/// `meanwhile` is given a flag that is set when it shall end: the watcher said so, or a reader failed.
fn read_all<T>(
    spec: &SinkSpec,
    watch: &Watch<'_>,
    over: &AtomicBool,
    meanwhile: impl FnOnce(&AtomicBool) -> Result<T, BenchError> + Send,
) -> Result<(SinkReport, T), BenchError>
where
    T: Send,
{
    let is_open_end = spec.listens_outside;
    let _idle = idle::Idle::open(spec, &spec.idle_peers)?;
    let groups = sockets::open(spec)?;
    let work = work::Work::new(spec.work);
    let before = Counters::now()?;
    let progress = Progress::default();
    let start = Instant::now();
    let deadline = start + spec.until.duration;
    let stop = AtomicBool::new(false);
    let (results, made) = std::thread::scope(|scope| {
        // Whatever happens, nobody waits for ever.
        let (_end, _stop) = (End(over), End(&stop));
        let mut readers = Vec::with_capacity(groups.len());
        for (index, group) in groups.iter().enumerate() {
            let cpu = spec.cpus.get(index % spec.cpus.len().max(1)).copied();
            let progress = &progress;
            let read = move || {
                // One that goes before the end has failed.
                let _end = End(over);
                reader::read(group, spec, (cpu, work), progress, over)
            };
            readers.push(spawn(scope, groups.len(), read)?);
        }
        let feeder = spawn(scope, 1, || meanwhile(&stop))?;
        progress.tell(watch, || {
            stop.fetch_or(watch.is_stopped(), Ordering::Relaxed);
            let is_over = if is_open_end {
                let count = progress.count.load(Ordering::Relaxed);
                watch.is_stopped() || Instant::now() >= deadline || count >= spec.until.count
            } else {
                feeder.is_finished()
            };
            is_over || over.load(Ordering::Relaxed)
        });
        stop.store(true, Ordering::Relaxed);
        let made = join(feeder);
        over.store(true, Ordering::Relaxed);
        let results: Vec<_> = readers.into_iter().map(join).collect();
        Ok::<_, BenchError>((results, made))
    })?;
    let elapsed = start.elapsed();
    let made = made?;
    let socket_drops = sockets::drops(&groups)?;
    let after = Counters::now()?;
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let first = results.iter().filter_map(|(_, span)| span.map(|(first, _)| first)).min();
    let last = results.iter().filter_map(|(_, span)| span.map(|(_, last)| last)).max();
    let readers: Vec<Reader> = results.into_iter().map(|(reader, _)| reader).collect();
    let moved = after.snmp.since(&before.snmp).0.into_iter().filter(|(_, count)| *count > 0);
    let report = SinkReport {
        received: readers.iter().map(|reader| reader.received).sum(),
        bytes: readers.iter().map(|reader| reader.bytes).sum(),
        readers,
        socket_drops,
        elapsed,
        receiving: first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first),
        cpus: after.cpus_since(&before),
        protocol: moved.collect(),
    };
    Ok((report, made))
}
