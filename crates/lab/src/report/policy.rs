//! What one policy did with the traffic.

use serde::Serialize;

use super::{ByReason, Drops, Series};

/// What one policy did with the traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicyReport {
    /// Name of the policy.
    pub policy: String,
    /// Packets received by the modelled host.
    pub received: u64,
    /// Packets by reason of the decision and class.
    pub reasons: ByReason,
    /// What the flow table answered.
    pub probes: Probes,
    /// Probes answered by the flow's own entry among packets whose socket is connected, 0 to 1;
    /// `None` if there is no such packet.
    pub hit_rate: Option<f64>,
    /// Packets steered by an entry that another flow wrote.
    pub wrong_steers: u64,
    /// Writes of the flow table.
    pub writes: Writes,
    /// The table at the end of the run.
    pub table: TableReport,
    /// Flows that changed their CPU.
    pub moves: Moves,
    /// Packets that finished after a later packet of their flow.
    pub reordered: u64,
    /// Flows with at least one reordered packet, while they were remembered.
    pub reordered_flows: u64,
    /// Flows that lost at least one packet, while they were remembered.
    pub lossy_flows: u64,
    /// Up to 16 numbers (from 1, in the order read) of packets that were overtaken.
    pub reordered_packets: Vec<u64>,
    /// Up to 16 numbers of packets with which a flow changed its CPU.
    pub moved_packets: Vec<u64>,
    /// Up to 16 numbers of those that could overtake, since earlier packets of the flow still
    /// waited.
    pub unsafe_packets: Vec<u64>,
    /// Where packets were processed, seen from their consumer.
    pub distances: Distances,
    /// Packets put on the backlog of another CPU than the one that took them.
    pub handoffs: u64,
    /// The same per received packet.
    pub handoffs_per_packet: f64,
    /// Signals sent to other CPUs, one per batch.
    pub signals: u64,
    /// Wake-ups of a sleeping reader.
    pub wakeups: u64,
    /// Packets read by a consumer.
    pub read: u64,
    /// Those of them with which the consumer was through before the run was over; all, where its
    /// length was not set beforehand.
    #[serde(skip)]
    pub read_in_time: u64,
    /// Packets that ended in protocol processing: bare acknowledgements, SYNs, packets without a
    /// known consumer.
    pub finished_without_read: u64,
    /// Packets lost, by cause.
    pub drops: Drops,
    /// Packets whose CPU went offline with them queued, taken over by another one.
    pub rehomed: u64,
    /// Load by CPU, in ascending order of ids; every CPU that exists.
    pub cpus: Vec<CpuReport>,
    /// Largest over mean number of packets processed per online CPU; 0 without packets.
    pub max_over_mean: f64,
    /// Mean busy share of the online CPUs, 0 to 1.
    pub mean_busy: f64,
    /// Busy share of the busiest CPU, 0 to 1.
    pub max_busy: f64,
    /// CPU time spent per received packet in ns, all work included.
    pub cpu_ns_per_packet: f64,
    /// Time from arrival until its reader has it (or to the end of processing, where nobody reads).
    pub latency: Latency,
    /// How hits, losses and load developed.
    pub series: Series,
}

impl PolicyReport {
    /// Returns whether every packet is counted exactly once, as a decision and as an end.
    pub fn adds_up(&self) -> bool {
        let decided = self.reasons.total() + self.drops.ring;
        let ended = self.read + self.finished_without_read + self.drops.total();
        self.received == decided && self.received == ended
    }
}

/// What the flow table answered, one count per decided packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Probes {
    /// The policy has no table, or this packet does not ask it.
    pub not_asked: u64,
    /// An entry that passes for this flow's.
    pub hit: u64,
    /// Nothing there.
    pub empty: u64,
    /// An entry of another flow, and seen to be so.
    pub other_flow: u64,
    /// An entry too old to be believed.
    pub stale: u64,
    /// An entry that names a CPU that is offline.
    pub offline: u64,
    /// Probes that needed a second cache line (contained in the others).
    pub second_line: u64,
}

impl Probes {
    /// Returns the number of decided packets.
    pub const fn total(&self) -> u64 {
        self.not_asked + self.hit + self.misses()
    }

    /// Returns the probes that found nothing usable.
    pub const fn misses(&self) -> u64 {
        self.empty + self.other_flow + self.stale + self.offline
    }
}

/// Writes of the flow table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Writes {
    /// Records by connected sockets that changed the table.
    pub by_flows: u64,
    /// Changes of the table by traffic of no flow.
    pub by_non_flows: u64,
    /// Stores by traffic of no flow that empty a word, whether or not it was empty: the policies of
    /// 2014 store either way, and a store takes the cache line from all other CPUs.
    pub clears: u64,
    /// Records that found the table as they wanted it.
    pub unchanged: u64,
    /// Records that another flow's entry had to give way to.
    pub evictions: u64,
    /// Entries withdrawn at close or disconnect.
    pub withdrawn: u64,
    /// Entries of other flows wiped at close (Linux since 6.16 does not look whose it is).
    pub wiped_others: u64,
    /// Records refused because the socket was fed too many different hashes.
    pub refused: u64,
}

/// A flow table at the end of the run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct TableReport {
    /// Entries in all tables together.
    pub entries: u64,
    /// Entries that hold a flow.
    pub used: u64,
    /// Bytes of all tables, tables of queues included.
    pub bytes: u64,
}

/// Changes of the CPU of flows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Moves {
    /// Times that a packet of a flow went to another CPU than the one before.
    pub moved: u64,
    /// Packets kept on the old CPU because packets of the flow still waited there.
    pub held: u64,
    /// Moves made while packets of the flow still waited on the old CPU.
    pub unsafe_moves: u64,
}

/// Where packets with a consumer were processed, seen from it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Distances {
    /// On the CPU of the consumer.
    pub same_cpu: u64,
    /// On a CPU that shares a cache with it.
    pub same_cache: u64,
    /// On any other CPU.
    pub elsewhere: u64,
    /// Processed packets that nobody reads.
    pub no_consumer: u64,
}

/// Load of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuReport {
    /// The CPU.
    pub cpu: u16,
    /// Whether it is online at the end.
    pub online: bool,
    /// Packets taken from rings.
    pub taken: u64,
    /// Packets taken here for which the flow table had an entry.
    pub hits: u64,
    /// Packets taken here that asked the flow table for nothing.
    pub misses: u64,
    /// Packets whose protocol work ran here.
    pub processed: u64,
    /// The same as a share of all processed packets, 0 to 1.
    pub share: f64,
    /// Packets read by consumers here.
    pub read: u64,
    /// Packets dropped at this CPU's ring or backlog.
    pub dropped: u64,
    /// Most packets that waited on the backlog.
    pub max_backlog: u32,
    /// Passes of the receive softirq that stopped for their budget or time (`time_squeeze`).
    pub squeezed: u64,
    /// Time in interrupts and in the softirq, ahead of all tasks, in ns.
    pub softirq_ns: u64,
    /// Time in `ksoftirqd` and other threads of the kernel that do packet work, in ns.
    pub thread_ns: u64,
    /// Time in consumers, in ns.
    pub reader_ns: u64,
    /// Time spent working in ns: the sum of the three.
    pub busy_ns: u64,
    /// The same as a share of the run, 0 to 1.
    pub busy: f64,
}

/// Distribution of a time, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Number of packets measured.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// One receive queue of the modelled host.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct QueueReport {
    /// The queue.
    pub queue: u16,
    /// CPU that takes its interrupts.
    pub irq_cpu: u16,
    /// CPUs of its RPS map at the start, as a cpulist; empty for none.
    pub rps_cpus: String,
    /// The same in the kernel's hexadecimal notation.
    pub rps_cpus_hex: String,
    /// Packets that the device put on it (the same under every policy).
    pub packets: u64,
}
