//! The figures of a run, by name.

use std::collections::BTreeMap;

use toml::Spanned;

use crate::config::{ConfigError, Source};
use crate::report::{ByClass, PolicyReport, SeriesPoint};

/// A figure of a run.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its name in files and outputs.
    pub name: &'static str,
    /// What it is counted in: `1/s`, `share` (0 to 1), `us`, `ns`, `packets`, `bytes`, and so on.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// Figures that can be shown over time.
pub(super) const OVER_TIME: [&str; 3] = ["hit_rate", "dropped_share", "reordered"];

const fn of(name: &'static str, unit: &'static str, meaning: &'static str) -> Measure {
    Measure { name, unit, meaning }
}

/// All figures, in the order of outputs.
pub const MEASURES: &[Measure] = &[
    of("received", "packets", "packets that the host received"),
    of("read", "packets", "packets read by a consumer"),
    of("finished", "packets", "packets that ended in protocol work: acknowledgements, SYNs"),
    of("dropped", "packets", "packets lost, shed ones too"),
    of("shed", "packets", "of them, dropped early since their socket had no room"),
    of("ring_drops", "packets", "of them, dropped since the ring was full"),
    of("backlog_drops", "packets", "of them, dropped since a CPU's backlog was full"),
    of("socket_drops", "packets", "of them, dropped since the receive buffer was full"),
    of("received_per_s", "1/s", "packets received a second"),
    of("read_per_s", "1/s", "packets read a second, until the end of the duration"),
    of("dropped_share", "share", "packets lost, of those received"),
    of("read_share", "share", "packets read, of those received"),
    of("cpu_share", "share", "busy time of all online CPUs"),
    of("busiest_cpu_share", "share", "busy time of the busiest CPU"),
    of("cpu_ns_per_packet", "ns", "CPU time of all kinds, a packet received"),
    of("cpu_ns_per_read", "ns", "CPU time of all kinds, a packet read"),
    of("mean_us", "us", "time from arrival to the end of reading: mean"),
    of("p50_us", "us", "the same: median"),
    of("p90_us", "us", "the same: 90th percentile"),
    of("p95_us", "us", "the same: 95th percentile"),
    of("p99_us", "us", "the same: 99th percentile"),
    of("hit_rate", "share", "packets of connected sockets that their own entry steered"),
    of("wrong_steers", "packets", "packets steered by an entry that another flow wrote"),
    of("steered_tcp", "share", "TCP packets (no SYNs) that an entry steered"),
    of("steered_udp", "share", "UDP packets that an entry steered"),
    of("syn_asked", "share", "SYNs for which the flow table was asked"),
    of("writes_by_flows", "writes", "changes of the table by connected sockets"),
    of("writes_by_non_flows", "writes", "changes of the table by traffic of no flow"),
    of("clears", "writes", "stores that empty a word, whether or not it was empty"),
    of("clears_per_slot_s", "1/s", "the same, a word and second"),
    of("evictions", "writes", "entries that gave way to another flow's"),
    of("table_entries", "entries", "entries of all tables"),
    of("table_used", "entries", "of them, in use at the end"),
    of("table_bytes", "bytes", "bytes of all tables"),
    of("moved", "packets", "packets with which a flow changed its CPU"),
    of("held", "packets", "packets kept on the old CPU for the sake of order"),
    of("unsafe_moves", "packets", "changes while packets of the flow still waited"),
    of("reordered", "packets", "packets that finished after a later one of their flow"),
    of("reordered_flows", "flows", "flows with such a packet"),
    of("lossy_flows", "flows", "flows that lost at least one packet"),
    of("on_consumer_cpu", "share", "packets processed on the CPU of their consumer"),
    of("in_consumer_cache", "share", "packets processed there or on a CPU that shares its cache"),
    of("handoffs_per_packet", "per packet", "packets put on another CPU's backlog"),
    of("signals_per_packet", "per packet", "signals to other CPUs"),
    of("wakeups_per_packet", "per packet", "wake-ups of sleeping readers"),
    of("cpus_used", "CPUs", "CPUs that processed packets"),
    of("largest_cpu", "share", "packets processed by the CPU that processed most"),
    of("max_over_mean", "factor", "the same over the mean of the online CPUs"),
    of("lookups", "packets", "packets looked up"),
    of("found", "packets", "of them, those that a socket gets"),
    of("right_share", "share", "packets that reached the socket they are for"),
    of(
        "touches_per_lookup",
        "per packet",
        "cache lines, lists and candidates that a look-up reads",
    ),
    of("candidates_per_lookup", "per packet", "sockets that a look-up scores"),
    of("modelled_per_s", "1/s", "packets a second by the costs of the file"),
    of("moved_lookups", "packets", "packets of clients that changed their address"),
    of("owner_kept", "share", "of these, those that the owner of the connection gets"),
    of("rehomed", "packets", "packets taken over from a CPU that went offline"),
];

/// Refuses the name of no measure.
pub(super) fn known(source: Source<'_>, name: &Spanned<String>) -> Result<(), ConfigError> {
    if MEASURES.iter().any(|measure| measure.name == name.get_ref()) {
        return Ok(());
    }
    let names: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
    let message = format!("`{}`: allowed are {}", name.get_ref(), names.join(", "));
    Err(source.refuse(name, message))
}

impl Measure {
    /// Returns the measure of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MEASURES.iter().find(|measure| measure.name == name)
    }
}

/// Picks a counter of a class.
type OfClass = fn(&ByClass) -> u64;

/// Returns all figures of one policy's part of a run of this length.
pub(super) fn of_policy(report: &PolicyReport, duration_ns: u64) -> BTreeMap<String, f64> {
    let seconds = duration_ns as f64 / 1e9;
    let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    let reasons = &report.reasons;
    let by_table = |class: OfClass| class(&reasons.hit) + class(&reasons.held);
    let decided = |class: OfClass| -> u64 { reasons.named().iter().map(|(_, of)| class(of)).sum() };
    let asked = |class: OfClass| by_table(class) + class(&reasons.miss) + class(&reasons.beside);
    let tcp: OfClass = |c| c.tcp;
    let udp: OfClass = |c| c.udp;
    let syn: OfClass = |c| c.tcp_syn;
    let probed = report.policy != "none" && report.policy != "rps";
    let d = &report.distances;
    let with_consumer = d.same_cpu + d.same_cache + d.elsewhere;
    let latency = &report.latency;
    let us = |ns: u64| ns as f64 / 1e3;
    let busy: u64 = report.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let largest = report.cpus.iter().map(|cpu| cpu.share).fold(0.0, f64::max);
    let drops = &report.drops;
    let writes = &report.writes;
    let clears = writes.clears as f64;
    let all: [(&str, f64); 49] = [
        ("received", report.received as f64),
        ("read", report.read as f64),
        ("finished", report.finished_without_read as f64),
        ("dropped", drops.total() as f64),
        ("shed", drops.shed as f64),
        ("ring_drops", drops.ring as f64),
        ("backlog_drops", drops.backlog as f64),
        ("socket_drops", drops.receive_buffer as f64),
        ("received_per_s", report.received as f64 / seconds),
        ("read_per_s", report.read_in_time as f64 / seconds),
        ("dropped_share", share(drops.total(), report.received)),
        ("read_share", share(report.read, report.received)),
        ("cpu_share", report.mean_busy),
        ("busiest_cpu_share", report.max_busy),
        ("cpu_ns_per_packet", report.cpu_ns_per_packet),
        ("cpu_ns_per_read", share(busy, report.read)),
        ("mean_us", latency.mean_ns / 1e3),
        ("p50_us", us(latency.p50_ns)),
        ("p90_us", us(latency.p90_ns)),
        ("p95_us", us(latency.p95_ns)),
        ("p99_us", us(latency.p99_ns)),
        ("hit_rate", report.hit_rate.unwrap_or(0.0)),
        ("wrong_steers", report.wrong_steers as f64),
        ("steered_tcp", share(by_table(tcp), decided(tcp))),
        ("steered_udp", share(by_table(udp), decided(udp))),
        ("syn_asked", if probed { share(asked(syn), decided(syn)) } else { 0.0 }),
        ("writes_by_flows", writes.by_flows as f64),
        ("writes_by_non_flows", writes.by_non_flows as f64),
        ("clears", clears),
        ("clears_per_slot_s", clears / seconds / report.table.entries.max(1) as f64),
        ("evictions", writes.evictions as f64),
        ("table_entries", report.table.entries as f64),
        ("table_used", report.table.used as f64),
        ("table_bytes", report.table.bytes as f64),
        ("moved", report.moves.moved as f64),
        ("held", report.moves.held as f64),
        ("unsafe_moves", report.moves.unsafe_moves as f64),
        ("reordered", report.reordered as f64),
        ("reordered_flows", report.reordered_flows as f64),
        ("lossy_flows", report.lossy_flows as f64),
        ("on_consumer_cpu", share(d.same_cpu, with_consumer)),
        ("in_consumer_cache", share(d.same_cpu + d.same_cache, with_consumer)),
        ("handoffs_per_packet", report.handoffs_per_packet),
        ("signals_per_packet", share(report.signals, report.received)),
        ("wakeups_per_packet", share(report.wakeups, report.received)),
        ("cpus_used", report.cpus.iter().filter(|cpu| cpu.processed > 0).count() as f64),
        ("largest_cpu", largest),
        ("max_over_mean", report.max_over_mean),
        ("rehomed", report.rehomed as f64),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns a figure over time: seconds and values.
pub(super) fn over_time(name: &str, report: &PolicyReport) -> Vec<(f64, f64)> {
    let value = |point: &SeriesPoint| match name {
        "hit_rate" => (point.asked > 0).then(|| point.hits as f64 / point.asked as f64),
        "dropped_share" => (point.packets > 0).then(|| point.dropped as f64 / point.packets as f64),
        _ => Some(point.reordered as f64),
    };
    let width_s = report.series.width_ns as f64 / 1e9;
    let points = report.series.points.iter().enumerate();
    points.filter_map(|(index, point)| Some((index as f64 * width_s, value(point)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_of_the_list_is_made_and_no_other() {
        let made = of_policy(&PolicyReport::default(), 1_000_000_000);
        let of_lookups = [
            "lookups",
            "found",
            "right_share",
            "touches_per_lookup",
            "candidates_per_lookup",
            "modelled_per_s",
            "moved_lookups",
            "owner_kept",
        ];
        let listed: std::collections::BTreeSet<_> = MEASURES.iter().map(|m| m.name).collect();
        let made: std::collections::BTreeSet<_> =
            made.keys().map(String::as_str).chain(of_lookups).collect();
        assert_eq!(listed, made);
    }
}
