//! Replay: what each policy would do with the packets of a capture on a modelled host.
//!
//! | part | what it does |
//! | --- | --- |
//! | `front` | reads each packet once: direction, flow, hash, queue, socket |
//! | `lane` | one policy: an executor of [`rxsteer_engine`] and a `ledger` |
//! | `ledger` | decides, remembers, counts |
//! | `findings`, [`crate::verdict`] | what the counts mean |
//!
//! Always true: the same packets, host and options give the same report, byte for byte, with any
//! number of threads; memory depends on the limits of [`ReplayOptions`] and the table sizes, not
//! on the length of the capture.
//! Elsewhere: reading captures ([`crate::capture`]), showing reports (the command line).

mod decisions;
mod error;
mod findings;
mod flows;
mod fragments;
mod frame;
mod front;
mod item;
mod job;
mod lane;
mod ledger;
mod local;
mod options;
mod readers;
mod round_trips;
mod tables;
mod workers;

use std::ops::ControlFlow;
use std::sync::Arc;

use rxsteer_core::dissect::{Mode, VlanHash};
use rxsteer_core::hash::ToeplitzKey;
use rxsteer_core::steer::PolicyKind;
use rxsteer_engine::virtual_time::{AtOnce, VirtualTime};

pub use decisions::{Chosen, Observer};
pub use error::ReplayError;
pub use local::LocalRule;
pub use options::{ReplayOptions, ServiceKind, hasher};

pub(crate) use frame::Reader;
pub(crate) use round_trips::{Clients, RoundTrips, round_trips};

use crate::capture::{CaptureError, Captures, NoteKind, Packet};
use crate::consumer::{Change, Event};
use crate::host::{Host, TableSizes};
use crate::report::{
    CaptureNote, ConsumerReport, FlowReport, HostReport, PolicyReport, QueueReport, Report,
    SCHEMA_VERSION, Settings, SweepCurve, SweepPoint,
};
use crate::rss::Spreading;
use front::Front;
use lane::{Lane, Lanes, Run};
use ledger::Ledger;

/// A replay under way.
///
/// # Examples
/// ```
/// use rxsteer_lab::host::Host;
/// use rxsteer_lab::replay::{Replay, ReplayOptions};
/// let replay = Replay::new(Host::simple(4, 1).unwrap(), ReplayOptions::default())?;
/// let report = replay.finish(&[], Vec::new());
/// assert_eq!(report.input.packets_read, 0); // and the verdict says so
/// # Ok::<(), rxsteer_lab::replay::ReplayError>(())
/// ```
pub struct Replay {
    host: Arc<Host>,
    options: ReplayOptions,
    front: Front,
    lanes: Lanes,
}

/// How far a replay is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Packets read.
    pub packets: u64,
    /// Bytes of the files read, before decompression.
    pub bytes_read: u64,
    /// Bytes of all files; `None` for a pipe.
    pub total_bytes: Option<u64>,
}

/// Packets between two reports of progress.
const PROGRESS_PACKETS: u64 = 1 << 16;

impl Replay {
    /// Prepares a replay.
    ///
    /// # Errors
    /// A table size of the sweep that the kernel would refuse, too many of them, tables that need
    /// more than [`ReplayOptions::MAX_TABLE_BYTES`], or a device (its key, its indirection table)
    /// that does not fit the host.
    pub fn new(host: Host, options: ReplayOptions) -> Result<Self, ReplayError> {
        check(&host, &options)?;
        let host = Arc::new(host);
        let events: Arc<[Event]> = options.scenario.events.clone().into();
        let mut lanes: Vec<Box<dyn Run>> = Vec::new();
        for policy in &options.policies {
            let observer = options.observer.clone();
            lanes.push(lane(*policy, &host, &options, options.service, &events, observer));
        }
        for entries in &options.sweep_table_entries {
            let mut sized = Host::clone(&host);
            sized.set_tables(TableSizes::for_entries(*entries)?);
            let sized = Arc::new(sized);
            for policy in options.policies.iter().filter(|p| p.follows()) {
                let service = ServiceKind::Instant;
                lanes.push(lane(*policy, &sized, &options, service, &events, None));
            }
        }
        Ok(Self {
            front: Front::new(&host, &options, events),
            lanes: Lanes::new(lanes, options.threads),
            host,
            options,
        })
    }

    /// Says beforehand when the run is over, in the time of packets: what is read later does not
    /// count as read in time.
    pub(crate) fn ends_at(&mut self, ts_ns: u64) {
        self.front.end_ts_ns = Some(ts_ns);
    }

    /// Takes in the next packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        if self.front.packet(packet) {
            self.give_items();
        }
    }

    /// Takes in all packets of captures and returns the report; calls `progress` now and then. If
    /// that breaks, the report is of the packets so far, and has a note.
    ///
    /// A fault in a capture after its first packets ends the replay: the report is of the packets
    /// before it, and has a note with the code `damaged`. A capture that ends early has a note too.
    ///
    /// # Errors
    /// A fault in a capture before the first packet.
    pub fn run(
        mut self,
        captures: &mut Captures,
        files: &[String],
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Report, CaptureError> {
        let mut packets = 0u64;
        let mut stopped = false;
        let mut damage = None;
        loop {
            let packet = match captures.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(error) if packets == 0 => return Err(error),
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            };
            self.packet(&packet);
            packets += 1;
            if packets.is_multiple_of(PROGRESS_PACKETS) {
                let so_far = Progress {
                    packets,
                    bytes_read: captures.bytes_read(),
                    total_bytes: captures.total_bytes(),
                };
                if progress(&so_far).is_break() {
                    stopped = true;
                    break;
                }
            }
        }
        let mut notes: Vec<_> = captures
            .notes()
            .iter()
            .map(|note| CaptureNote {
                file: note.file.clone(),
                code: note_code(&note.kind).into(),
                text: note.kind.to_string(),
            })
            .collect();
        if let Some(error) = damage {
            notes.push(CaptureNote {
                file: error.file().to_owned(),
                code: "damaged".into(),
                text: format!("{}; {packets} packets before it were replayed", error.place()),
            });
        }
        if stopped {
            notes.push(CaptureNote {
                file: files.join(", "),
                code: "stopped".into(),
                text: format!("stopped after {packets} packets, as asked"),
            });
        }
        Ok(self.finish(files, notes))
    }

    /// Ends the replay and returns the report.
    pub fn finish(mut self, files: &[String], notes: Vec<CaptureNote>) -> Report {
        self.front.decide_local();
        self.front.last_events();
        self.give_items();
        let span_ns = self.front.span_ns();
        let mut policies = self.lanes.finish(span_ns);
        let swept = policies.split_off(self.options.policies.len());
        let mut report = Report {
            schema_version: SCHEMA_VERSION,
            generator: concat!("rxsteer ", env!("CARGO_PKG_VERSION")).into(),
            settings: settings(&self.options),
            host: host_report(&self.host, &self.front),
            input: self.front.report(),
            consumers: consumers(&self.front, self.options.socket_limit),
            flows: flow_report(&self.front),
            policies,
            sweeps: sweeps(&self.options, &swept),
            findings: Vec::new(),
            verdict: crate::verdict::nothing(),
        };
        report.input.files = files.to_vec();
        report.input.notes = notes;
        report.findings = findings::find(&self.front, &self.host, &report);
        report.verdict = crate::verdict::judge(&self.host, &report);
        report
    }

    fn give_items(&mut self) {
        let items = self.front.take_items();
        let items = self.lanes.run(items);
        self.front.give_back(items);
    }
}

fn check(host: &Host, options: &ReplayOptions) -> Result<(), ReplayError> {
    let sizes = options.sweep_table_entries.len();
    if sizes > ReplayOptions::MAX_SWEEP {
        return Err(ReplayError::SweepTooLong(sizes));
    }
    if host.rss.key.len() < ToeplitzKey::MIN_LEN {
        return Err(ReplayError::ShortKey(host.rss.key.len()));
    }
    let bytes = table_bytes(host, options)?;
    if bytes > ReplayOptions::MAX_TABLE_BYTES {
        return Err(ReplayError::TablesTooLarge { bytes });
    }
    let queues = host.queues.len();
    match host.rss.table.iter().find(|queue| usize::from(**queue) >= queues) {
        Some(&queue) => Err(ReplayError::NoSuchQueue { queue, queues }),
        None => Ok(()),
    }
}

/// Returns the bytes that the flow tables of all policies take at most, with all sizes of a sweep
/// and, where an event gives the tables another size, with the old ones and the new.
pub(crate) fn table_bytes(host: &Host, options: &ReplayOptions) -> Result<u64, ReplayError> {
    let queues = host.queues.len() as u32;
    let of = |sizes: &TableSizes, flow_cnts: u64| -> u64 {
        options.policies.iter().map(|kind| tables::memory(*kind, sizes, flow_cnts)).sum()
    };
    let shared = |sizes: &TableSizes| {
        of(sizes, u64::from(sizes.flow_cnt_per_queue(queues)) * u64::from(queues))
    };
    let mut bytes = of(&host.tables, host.queues.iter().map(|q| u64::from(q.flow_cnt)).sum());
    for entries in &options.sweep_table_entries {
        bytes += shared(&TableSizes::for_entries(*entries)?);
    }
    let resized = options.scenario.events.iter().filter_map(|event| match &event.change {
        Change::Resize(sizes) => Some(shared(sizes)),
        _ => None,
    });
    let lanes = 1 + options.sweep_table_entries.len() as u64;
    Ok(bytes + 2 * lanes * resized.max().unwrap_or(0))
}

fn lane(
    policy: PolicyKind,
    host: &Arc<Host>,
    options: &ReplayOptions,
    service: ServiceKind,
    events: &Arc<[Event]>,
    observer: Option<Observer>,
) -> Box<dyn Run> {
    let mut ledger = Ledger::new(policy, host, options.kernel, options.drain);
    if observer.is_some() {
        ledger.keep_decisions();
    }
    let (host, events) = (Arc::clone(host), Arc::clone(events));
    match service {
        ServiceKind::Engine => {
            let settings = host.settings();
            let govern = ledger.govern().or(settings.govern);
            let settings = crate::host::Settings { govern, ..settings };
            let executor = VirtualTime::new(&host.topology(), &settings, &host.costs);
            Box::new(Lane { executor, ledger, host, events, observer })
        }
        ServiceKind::Instant => {
            let executor = AtOnce::new(&host.topology());
            Box::new(Lane { executor, ledger, host, events, observer })
        }
    }
}

fn note_code(kind: &NoteKind) -> &'static str {
    match kind {
        NoteKind::Truncated(_) => "truncated",
        NoteKind::NoPackets => "no-packets",
        NoteKind::SkippedBlocks { .. } => "skipped-blocks",
        NoteKind::TimeBackwards { .. } => "time-backwards",
        NoteKind::NoTime { .. } => "no-time",
        NoteKind::TimeOutOfRange { .. } => "time-out-of-range",
        NoteKind::UnknownLink { .. } => "unknown-link",
        NoteKind::LongerThanWire { .. } => "longer-than-wire",
        NoteKind::QueueOutOfRange { .. } => "queue-out-of-range",
        NoteKind::Lost { .. } => "lost",
    }
}

fn settings(options: &ReplayOptions) -> Settings {
    Settings {
        seed: options.seed,
        mode: match options.mode {
            Mode::Kernel => "kernel".into(),
            Mode::Inner => "inner".into(),
        },
        vlan: match options.vlan {
            VlanHash::Tag => "tag".into(),
            VlanHash::TagUnlessPriority => "tag-unless-priority".into(),
            VlanHash::Ignore => "ignore".into(),
        },
        outer_only: options.outer_only,
        wireguard_index: options.wireguard_index,
        spread_esp: options.spread_esp,
        flow_label: if options.ignore_flow_label { "ignore".into() } else { "use".into() },
        kernel: format!("{}.{}", options.kernel.0, options.kernel.1),
        drain: options.drain,
        track_fragments: options.track_fragments,
        workers: options.workers,
        flow_ports: options.flow_ports.to_string(),
        service: match options.service {
            ServiceKind::Engine => "engine".into(),
            ServiceKind::Instant => "instant".into(),
        },
    }
}

fn host_report(host: &Host, front: &Front) -> HostReport {
    let ids = host.cpus.nr_cpu_ids();
    HostReport {
        source: host.source.clone(),
        possible: host.cpus.possible.list().to_string(),
        online: host.cpus.online.list().to_string(),
        isolated: host.cpus.isolated.list().to_string(),
        caches: host.caches.iter().map(|group| group.list().to_string()).collect(),
        queues: host
            .queues
            .iter()
            .enumerate()
            .map(|(number, queue)| QueueReport {
                queue: number as u16,
                irq_cpu: queue.irq_cpu.0,
                rps_cpus: queue.rps.list().to_string(),
                rps_cpus_hex: queue.rps.mask(ids).to_string(),
                packets: front.counts.queues[number],
            })
            .collect(),
        rps_sock_flow_entries: u64::from(host.tables.sock_flow_entries),
        rps_flow_cnt: host.queues.iter().map(|q| u64::from(q.flow_cnt)).max().unwrap_or(0),
        flow_entries: u64::from(host.tables.flow_entries),
        max_backlog: host.limits.max_backlog,
        ring: host.limits.ring,
        spreading: match host.rss.spreading {
            Spreading::Toeplitz => "toeplitz".into(),
            Spreading::Recorded => "recorded".into(),
        },
    }
}

fn consumers(front: &Front, limit: usize) -> ConsumerReport {
    let (counts, sockets) = (&front.counts, front.sockets.counts);
    let cpus: std::collections::BTreeMap<(u16, u32), rxsteer_core::CpuId> = front
        .sockets
        .unconnected()
        .map(|(_, port, member, cpu, _)| ((port, member), cpu))
        .collect();
    ConsumerReport {
        local: front.local().map(|local| local.report()).unwrap_or_default(),
        tcp_connections: sockets.tcp,
        udp_connected: sockets.udp_connected,
        udp_unconnected: sockets.udp_unconnected,
        by_rule: sockets.by_rule,
        half_open: sockets.syns.saturating_sub(sockets.syns_followed),
        closed: sockets.closed,
        evicted: sockets.evicted,
        most_at_once: sockets.most,
        limit: limit as u64,
        to_connected: counts.to_connected,
        to_unconnected: counts.to_unconnected,
        to_nobody: counts.to_nobody,
        workers: front
            .workers
            .report(|port, member| cpus.get(&(port, member)).copied().unwrap_or_default()),
    }
}

fn flow_report(front: &Front) -> FlowReport {
    let [one_second, ten_seconds] = front.flows.working_sets();
    let largest = front.flows.largest();
    let largest_packets = largest.map_or(0, |l| l.0);
    let connected = ten_seconds.max_connected;
    FlowReport {
        seen: front.flows.seen,
        forgotten: front.flows.forgotten,
        limit: front.flows.limit() as u64,
        largest_packets,
        largest_share: largest_packets as f64 / front.counts.received.max(1) as f64,
        largest: largest.map(|l| l.1.to_string()),
        one_second,
        ten_seconds,
        // One flow a place: of n flows in m places each is alone with (1 - 1/m)^(n-1), and the
        // mean over equally busy flows is 95 % at about n = m / 10.
        fitting_entries_linux: connected.saturating_mul(10).max(1).next_power_of_two(),
        fitting_entries: connected.saturating_mul(2).max(8).next_power_of_two(),
    }
}

fn sweeps(options: &ReplayOptions, swept: &[PolicyReport]) -> Vec<SweepCurve> {
    let policies: Vec<PolicyKind> =
        options.policies.iter().copied().filter(|p| p.follows()).collect();
    let sizes = &options.sweep_table_entries;
    let point = |policy: usize, (index, entries): (usize, &u64)| {
        let report = &swept[index * policies.len() + policy];
        let d = &report.distances;
        let with_consumer = d.same_cpu + d.same_cache + d.elsewhere;
        SweepPoint {
            value: entries.next_power_of_two(),
            hit_rate: report.hit_rate,
            wrong_steers: report.wrong_steers,
            on_consumer_cpu: (with_consumer > 0).then(|| d.same_cpu as f64 / with_consumer as f64),
            table_bytes: report.table.bytes,
            dropped: report.drops.total(),
            p99_ns: None,
            max_busy: report.max_busy,
        }
    };
    if sizes.is_empty() {
        return Vec::new();
    }
    policies
        .iter()
        .enumerate()
        .map(|(number, policy)| SweepCurve {
            parameter: "table-entries".into(),
            policy: policy.name().into(),
            points: sizes.iter().enumerate().map(|size| point(number, size)).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
