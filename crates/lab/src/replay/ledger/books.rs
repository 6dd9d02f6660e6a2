//! The counts of a policy, and the report that they become.

use hdrhistogram::Histogram;
use rxsteer_core::CpuId;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Probe;
use rxsteer_engine::Train;
use rxsteer_engine::virtual_time::CpuLoad;

use super::Ledger;
use crate::replay::job::Job;
use crate::replay::readers::Distance;
use crate::report::{
    ByReason, CpuReport, Distances, Drops, Latency, Moves, PolicyReport, Probes, SeriesPoint,
    Writes,
};

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) reasons: [[u64; Class::COUNT]; Reason::COUNT],
    pub(super) probes: [u64; Probe::COUNT],
    pub(super) second_line: u64,
    /// Hits and misses by the CPU that took the packet.
    pub(super) by_cpu: Vec<[u64; 2]>,
    pub(super) asked: u64,
    pub(super) hits: u64,
    pub(super) wrong_steers: u64,
    pub(super) writes: Writes,
    pub(super) moves: Moves,
    pub(super) reordered: u64,
    pub(super) reordered_flows: u64,
    pub(super) lossy_flows: u64,
    pub(super) reordered_packets: Vec<u64>,
    pub(super) moved_packets: Vec<u64>,
    pub(super) unsafe_packets: Vec<u64>,
    pub(super) distances: Distances,
    pub(super) handoffs: u64,
    pub(super) read: u64,
    pub(super) read_in_time: u64,
    pub(super) finished: u64,
    pub(super) drops: Drops,
    pub(super) rehomed: u64,
}

/// Most numbers of packets that are kept of each kind.
const MOST_NAMED: usize = 16;

pub(super) fn name(packets: &mut Vec<u64>, number: u64) {
    if packets.len() < MOST_NAMED {
        packets.push(number);
    }
}

impl Ledger {
    pub(in crate::replay) fn rehomed(&mut self, packets: u64) {
        self.counts.rehomed += packets;
    }

    pub(super) fn point(&mut self, now_ns: u64) -> &mut SeriesPoint {
        // Spans of 2^20 ns, so that only one shift is needed for each packet.
        let span = now_ns >> 20;
        if span != self.point_span {
            self.flush_point();
            self.point_span = span;
        }
        &mut self.point
    }

    fn flush_point(&mut self) {
        self.series.add(self.point_span << 20, std::mem::take(&mut self.point));
    }

    pub(super) fn finished(&mut self, job: &Job, now_ns: u64) {
        let ns = now_ns - job.arrived_ns;
        self.latency.saturating_record(ns.max(1));
        self.latency_sum += u128::from(ns);
    }

    /// Ends packets that the protocol alone took.
    #[inline]
    pub(super) fn end_unread(&mut self, train: &Train<Job>, now_ns: u64) {
        for job in train.packets() {
            self.counts.finished += 1;
            self.finished(job, now_ns);
        }
    }

    #[inline]
    pub(super) fn count_distance(&mut self, on: CpuId, consumer: CpuId, packets: u64) {
        let distances = &mut self.counts.distances;
        match self.readers.distance(on, consumer) {
            Distance::Here => distances.same_cpu += packets,
            Distance::Near => distances.same_cache += packets,
            Distance::Far => distances.elsewhere += packets,
        }
    }

    /// Closes the books at `end_ns`.
    pub(in crate::replay) fn report(
        mut self,
        loads: &[(CpuId, bool, CpuLoad)],
        end_ns: u64,
    ) -> PolicyReport {
        self.flush_point();
        let counts = self.counts;
        let (cpus, busy) = cpu_reports(loads, end_ns, &counts.by_cpu);
        let processed: Vec<u64> = cpus.iter().filter(|c| c.online).map(|c| c.processed).collect();
        let mean = processed.iter().sum::<u64>() as f64 / processed.len().max(1) as f64;
        let max = processed.iter().max().copied().unwrap_or(0) as f64;
        let per_packet = |n: u64| n as f64 / counts.received.max(1) as f64;
        let follows = self.kind.follows();
        PolicyReport {
            policy: self.kind.name().into(),
            received: counts.received,
            reasons: reasons(&counts.reasons),
            probes: probes(&counts.probes, counts.second_line),
            hit_rate: (follows && counts.asked > 0)
                .then(|| counts.hits as f64 / counts.asked as f64),
            wrong_steers: counts.wrong_steers,
            writes: counts.writes,
            table: self.tables.report(),
            moves: counts.moves,
            reordered: counts.reordered,
            reordered_flows: counts.reordered_flows,
            lossy_flows: counts.lossy_flows,
            reordered_packets: counts.reordered_packets,
            moved_packets: counts.moved_packets,
            unsafe_packets: counts.unsafe_packets,
            distances: counts.distances,
            handoffs: counts.handoffs,
            handoffs_per_packet: per_packet(counts.handoffs),
            signals: loads.iter().map(|(.., load)| load.signals).sum(),
            wakeups: loads.iter().map(|(.., load)| load.wakeups).sum(),
            read: counts.read,
            read_in_time: counts.read_in_time,
            finished_without_read: counts.finished,
            drops: counts.drops,
            rehomed: counts.rehomed,
            max_over_mean: if mean > 0.0 { max / mean } else { 0.0 },
            mean_busy: busy.0,
            max_busy: busy.1,
            cpu_ns_per_packet: per_packet(cpus.iter().map(|c| c.busy_ns).sum()),
            cpus,
            latency: latency(&self.latency, self.latency_sum),
            series: self.series,
        }
    }
}

fn cpu_reports(
    loads: &[(CpuId, bool, CpuLoad)],
    end_ns: u64,
    probes: &[[u64; 2]],
) -> (Vec<CpuReport>, (f64, f64)) {
    let total: u64 = loads.iter().map(|(.., load)| load.processed).sum();
    let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    let reports: Vec<CpuReport> = loads
        .iter()
        .map(|&(cpu, online, load)| CpuReport {
            cpu: cpu.0,
            online,
            taken: load.taken,
            hits: probes[cpu.index()][0],
            misses: probes[cpu.index()][1],
            processed: load.processed,
            share: share(load.processed, total),
            read: load.read,
            dropped: load.dropped,
            max_backlog: load.max_backlog,
            squeezed: load.squeezed,
            softirq_ns: load.softirq_ns,
            thread_ns: load.thread_ns,
            reader_ns: load.reader_ns,
            busy_ns: load.busy_ns(),
            busy: share(load.busy_ns(), end_ns),
        })
        .collect();
    let online: Vec<f64> = reports.iter().filter(|c| c.online).map(|c| c.busy).collect();
    let mean = online.iter().sum::<f64>() / online.len().max(1) as f64;
    let max = online.iter().copied().fold(0.0, f64::max);
    (reports, (mean, max))
}

fn reasons(counts: &[[u64; Class::COUNT]; Reason::COUNT]) -> ByReason {
    let mut by = ByReason::default();
    for reason in Reason::ALL {
        for class in Class::ALL {
            *by.of(reason).of(class) = counts[reason.index()][class.index()];
        }
    }
    by
}

fn probes(counts: &[u64; Probe::COUNT], second_line: u64) -> Probes {
    let of = |probe: Probe| counts[probe.index()];
    Probes {
        not_asked: of(Probe::NotAsked),
        hit: of(Probe::Hit),
        empty: of(Probe::Empty),
        other_flow: of(Probe::OtherFlow),
        stale: of(Probe::Stale),
        offline: of(Probe::Offline),
        second_line,
    }
}

fn latency(histogram: &Histogram<u64>, sum: u128) -> Latency {
    let count = histogram.len();
    if count == 0 {
        return Latency::default();
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile);
    Latency {
        count,
        mean_ns: sum as f64 / count as f64,
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p95_ns: at(0.95),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: histogram.max(),
    }
}
