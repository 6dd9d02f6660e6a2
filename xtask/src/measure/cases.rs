//! The published cases, with real packets.
//!
//! Two CPUs: the source, or the clients, have the first one; the reader, or the servers, the second.
//! A packet that is sent into a veth device is taken from its other end on the same CPU, so without
//! RPS packets are processed on the first CPU, beside the reader; with RPS to the second CPU they are
//! processed on the reader's.
//!
//! Elsewhere: what the lab makes of it ([`super::predict`]).

use std::net::SocketAddr;
use std::time::Duration;

use rxsteer_bench::{
    Call, CompareReport, CompareSpec, GenSpec, Means, Protocol, RrSpec, Setup, SinkSpec, Traffic,
    Until, Workload, compare,
};
use rxsteer_core::CpuSet;
use rxsteer_testbed::Pair;

use super::Bench;
use super::figures::{Group, Row};

/// Measures a group.
pub(super) type Measure = fn(&Bench<'_>) -> anyhow::Result<Group>;

/// All groups.
pub(super) const ALL: [(&str, Measure); 5] = [
    ("tcp-rr", |bench| round_trips(bench, Protocol::Tcp)),
    ("udp-rr", |bench| round_trips(bench, Protocol::Udp)),
    ("reader", reader),
    ("sockets", sockets),
    ("unconnected", unconnected),
];

/// Port of the readers.
pub(super) const PORT: u16 = 9999;

/// Bytes of each datagram.
pub(super) const BYTES: u16 = 20;

/// Work of the reader under overload, so that the source can send four times what it reads.
pub(super) const WORK: Duration = Duration::from_micros(10);

/// Work of the other readers, with which they are slower than the source.
pub(super) const LITTLE_WORK: Duration = Duration::from_micros(1);

/// Share of what is sent that counts as all: a burst of the machine's other work costs a few.
const DELIVERED: f64 = 0.99;

/// Runs of the search for the highest load that is delivered.
const SEARCH: u32 = 7;

impl Bench<'_> {
    fn compare(
        &self,
        workload: Workload,
        setups: &[Setup],
        cpus: CpuSet,
        repeats: u32,
    ) -> anyhow::Result<CompareReport> {
        let spec = CompareSpec { setups: setups.to_vec(), repeats, cpus, workload };
        Ok(compare(self.pair, &spec, &self.watch, &|_, _| {})?)
    }

    fn second_only(&self) -> CpuSet {
        let mut cpus = CpuSet::EMPTY;
        cpus.insert(self.second);
        cpus
    }

    fn both(&self) -> CpuSet {
        let mut cpus = self.second_only();
        cpus.insert(self.first);
        cpus
    }

    /// One reader that takes one datagram with a call.
    fn sink(&self) -> SinkSpec {
        SinkSpec {
            call: Call::Recv,
            cpus: vec![self.second],
            ..SinkSpec::new(SocketAddr::new(Pair::SINK_V4.into(), PORT))
        }
    }

    /// Datagrams of one flow at this rate; 0: as fast as the source can.
    fn source(&self, rate: u64, time: Duration) -> GenSpec {
        let traffic = Traffic { flows: 1, ..Traffic::new(Pair::SINK_V4.into(), PORT) };
        GenSpec {
            means: Some(Means::Packet),
            rate,
            until: Until { duration: time, ..Until::default() },
            cpu: Some(self.first),
            ..GenSpec::new(traffic)
        }
    }
}

fn group(name: &'static str, title: &'static str, about: String) -> Group {
    let (rows, experiment, warnings) = (Vec::new(), String::new(), Vec::new());
    Group { name, title, about, rows, experiment, warnings }
}

fn add(group: &mut Group, report: &CompareReport, case: impl Fn(Setup) -> String) {
    let rows = report.setups.iter().map(|setup| Row::new(case(setup.setup), setup));
    group.rows.extend(rows);
    for warning in &report.warnings {
        if !group.warnings.contains(warning) {
            group.warnings.push(warning.clone());
        }
    }
}

/// Parts A and B: 500 flows over TCP, 200 over UDP, one byte each way, under none, RPS and RFS.
fn round_trips(bench: &Bench<'_>, protocol: Protocol) -> anyhow::Result<Group> {
    let (name, title, flows) = match protocol {
        Protocol::Tcp => ("tcp-rr", "500 request/response flows over TCP", 500),
        Protocol::Udp => ("udp-rr", "200 request/response flows over UDP", 200),
    };
    let about = format!(
        "{flows} flows, one byte each way, each asks again when it has its answer; one client thread on \
         CPU {}, one server thread on CPU {}. RPS spreads the requests over both CPUs, RFS sends them to \
         the server's.",
        bench.first, bench.second
    );
    let spec = RrSpec {
        protocol,
        flows,
        until: Until { duration: bench.time, ..Until::default() },
        client_cpus: vec![bench.first],
        server_cpus: vec![bench.second],
        ..RrSpec::default()
    };
    let mut group = group(name, title, about);
    let setups = [Setup::None, Setup::Rps, Setup::Rfs];
    let workload = Workload::Rr(spec, false);
    let report = bench.compare(workload, &setups, bench.both(), bench.repeats)?;
    add(&mut group, &report, |setup| setup.to_string());
    Ok(group)
}

/// Part D: a reader on the CPU that processes packets, and beside it, as the load grows.
fn reader(bench: &Bench<'_>) -> anyhow::Result<Group> {
    let sink = SinkSpec { work: WORK, ..bench.sink() };
    let single = highest_delivered(bench, &sink)?;
    let about = format!(
        "One reader that works {} µs on each datagram, on CPU {}; the source on CPU {}. 1 x is the \
         highest load of which {:.0} % are delivered to a reader beside packet work: {single} \
         packets/s. Without RPS packets are processed on the source's CPU, beside the reader; with RPS to \
         the reader's CPU, on it.",
        WORK.as_micros(),
        bench.second,
        bench.first,
        DELIVERED * 100.0,
    );
    let mut group = group("reader", "One reader beside the packet CPU and on it", about);
    for times in [1, 2, 4] {
        let workload = Workload::Sink(sink.clone(), bench.source(single * times, bench.time));
        let setups = [Setup::None, Setup::Rps];
        let report = bench.compare(workload, &setups, bench.second_only(), bench.repeats)?;
        add(&mut group, &report, |setup| match setup {
            Setup::Rps => format!("{times} x on it"),
            _ => format!("{times} x beside"),
        });
    }
    Ok(group)
}

/// Returns the highest rate of which nearly all is read, beside packet work.
fn highest_delivered(bench: &Bench<'_>, sink: &SinkSpec) -> anyhow::Result<u64> {
    let time = bench.time / 2;
    let run = |rate: u64| -> anyhow::Result<(f64, f64)> {
        let workload = Workload::Sink(sink.clone(), bench.source(rate, time));
        let report = bench.compare(workload, &[Setup::None], bench.second_only(), 1)?;
        let row = Row::new(String::new(), &report.setups[0]);
        Ok((row.measured.median, row.offered))
    };
    let (most, _) = run(0)?;
    let (mut low, mut high) = (most * 0.5, most * 1.25);
    for _ in 0..if bench.quick { 2 } else { SEARCH } {
        let rate = f64::midpoint(low, high);
        let (read, sent) = run(rate as u64)?;
        if read >= sent * DELIVERED && sent >= rate * 0.95 {
            low = rate;
        } else {
            high = rate;
        }
    }
    Ok((low as u64).max(1))
}

/// Part C: one connected socket is sent to, others stand on the same port.
fn sockets(bench: &Bench<'_>) -> anyhow::Result<Group> {
    let about = format!(
        "Connected sockets on one port; all packets are for one of them, whose reader is on CPU {}, where \
         they are processed too (RPS), and works {} µs on each; the source is on CPU {} and sends as fast \
         as it can.",
        bench.second,
        LITTLE_WORK.as_micros(),
        bench.first
    );
    let mut group = group("sockets", "1, 500 and 20,000 connected sockets on one port", about);
    let counts: &[u32] = if bench.quick { &[1, 500] } else { &[1, 500, 20_000] };
    for count in counts {
        let mut peers = SinkSpec::peers_in_pair(Pair::SINK_V4.into(), *count);
        let idle_peers = peers.split_off(1);
        let sink = SinkSpec { peers, idle_peers, work: LITTLE_WORK, ..bench.sink() };
        let workload = Workload::Sink(sink, bench.source(0, bench.time));
        let report = bench.compare(workload, &[Setup::Rps], bench.second_only(), bench.repeats)?;
        add(&mut group, &report, |_| format!("{count} connected"));
    }
    Ok(group)
}

/// Row C6: an unconnected socket, the receiver is the bottleneck.
fn unconnected(bench: &Bench<'_>) -> anyhow::Result<Group> {
    let about = format!(
        "One unconnected socket, 20 bytes of payload; packets are processed and read on CPU {}, whose \
         reader works {} µs on each; the source on CPU {} sends as fast as it can. The receiver is the \
         bottleneck: more is sent than read, and its CPU is busy (below).",
        bench.second,
        LITTLE_WORK.as_micros(),
        bench.first
    );
    let mut group = group("unconnected", "Unconnected receive at full CPU", about);
    let sink = SinkSpec { work: LITTLE_WORK, ..bench.sink() };
    let workload = Workload::Sink(sink, bench.source(0, bench.time));
    let report = bench.compare(workload, &[Setup::Rps], bench.second_only(), bench.repeats)?;
    add(&mut group, &report, |_| "unconnected".into());
    Ok(group)
}
