//! What is measured.
//!
//! Source: the published comparisons of RPS and RFS used 500 TCP and 200 UDP request/response flows of one
//! byte each way; the published overload is small datagrams at several times what a reader takes.

use std::net::SocketAddr;
use std::time::Duration;

use rxsteer_bench::{
    CompareSpec, GenSpec, MixedSpec, OverloadSpec, Pace, Pattern, Protocol, RrSpec, Setup,
    SinkSpec, Traffic, Until, Workload,
};
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_testbed::Pair;

/// Set-ups, of which the last is ours.
pub(super) const SETUPS: [Setup; 5] =
    [Setup::None, Setup::Rps, Setup::Rfs, Setup::Threaded, Setup::Rxsteer];

/// Loads of the cases with overload.
pub(super) const MULTIPLES: [f64; 3] = [1.0, 2.0, 4.0];

/// Port of the datagrams.
const PORT: u16 = 9999;

/// Flows of the datagrams.
const FLOWS: u32 = 64;

/// Work of the reader on each datagram, so that a source can send four times what it reads.
const WORK: Duration = Duration::from_micros(10);

/// One comparison.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Figures of its table, by their names in a comparison.
    pub(super) shown: &'static [&'static str],
    cpus: CpuSet,
    workload: Workload,
}

impl Case {
    pub(super) fn spec(&self, repeats: u32) -> CompareSpec {
        CompareSpec {
            setups: SETUPS.to_vec(),
            repeats,
            cpus: self.cpus,
            workload: self.workload.clone(),
        }
    }
}

const ASKED: &[&str] = &["transactions", "median", "99 %", "all CPUs"];
const MIXED: &[&str] = &["transactions", "median", "99 %", "flood sent", "flood read"];
const READ: &[&str] = &["sent", "read", "all CPUs"];

/// Returns all cases; clients and sources run on `first`, servers and readers on `second`.
pub(super) fn all(cpus: &CpuSet, first: CpuId, second: CpuId, time: Duration) -> Vec<Case> {
    let until = Until { duration: time, ..Until::default() };
    let requests = |protocol, flows| RrSpec {
        protocol,
        flows,
        until,
        client_cpus: vec![first],
        server_cpus: vec![second],
        ..RrSpec::default()
    };
    let case = |name, title, shown, workload| Case { name, title, shown, cpus: *cpus, workload };
    // Few enough that both CPUs rest most of the time.
    let light = RrSpec {
        pace: Pace::Open(2000),
        request_len: RrSpec::NUMBER_LEN,
        response_len: RrSpec::NUMBER_LEN,
        ..requests(Protocol::Udp, 200)
    };
    vec![
        case(
            "udp-rr-1",
            "UDP, one flow: each request waits for the answer before",
            ASKED,
            Workload::Rr(requests(Protocol::Udp, 1), false),
        ),
        case(
            "udp-rr-light",
            "UDP, 200 flows, 2,000 requests a second: an idle host",
            ASKED,
            Workload::Rr(light, false),
        ),
        case(
            "udp-rr-200",
            "UDP, 200 flows, as fast as they are answered",
            ASKED,
            Workload::Rr(requests(Protocol::Udp, 200), false),
        ),
        case(
            "tcp-rr-500",
            "TCP, 500 flows, as fast as they are answered",
            ASKED,
            Workload::Rr(requests(Protocol::Tcp, 500), false),
        ),
        case(
            "mixed",
            "The same beside UDP datagrams from random sources, 1 M a second or what the host can",
            MIXED,
            Workload::Mixed(mixed(requests(Protocol::Tcp, 500), first, second)),
        ),
        case(
            "overload",
            "Datagrams of 64 connected flows to a reader that works 10 µs on each",
            READ,
            overload(SinkSpec::peers_in_pair(Pair::SINK_V4.into(), FLOWS), first, second, time),
        ),
        case(
            "overload-unconnected",
            "The same to one socket that is not connected",
            READ,
            overload(Vec::new(), first, second, time),
        ),
    ]
}

fn mixed(requests: RrSpec, first: CpuId, second: CpuId) -> MixedSpec {
    let to = Pair::SINK_V4.into();
    let traffic = Traffic { pattern: Pattern::Random, ..Traffic::new(to, PORT) };
    let flood = GenSpec { rate: 1_000_000, batch: 256, cpu: Some(first), ..GenSpec::new(traffic) };
    let readers = SinkSpec { cpus: vec![second], ..SinkSpec::new(SocketAddr::new(to, PORT)) };
    MixedSpec { requests, ipv6: false, flood, readers }
}

fn overload(peers: Vec<SocketAddr>, first: CpuId, second: CpuId, time: Duration) -> Workload {
    let to = Pair::SINK_V4.into();
    let traffic = Traffic { flows: FLOWS, ..Traffic::new(to, PORT) };
    // A trial of a CPU beside the reader's takes some tenths of a second: what holds is what it ends in.
    let until = Until { duration: time * 2, count: u64::MAX };
    Workload::Overload(OverloadSpec {
        sink: SinkSpec {
            peers,
            work: WORK,
            cpus: vec![second],
            ..SinkSpec::new(SocketAddr::new(to, PORT))
        },
        source: GenSpec { cpu: Some(first), until, ..GenSpec::new(traffic) },
        multiples: MULTIPLES.to_vec(),
    })
}
