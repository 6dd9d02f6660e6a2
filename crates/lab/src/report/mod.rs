//! What a replay says: plain data, complete, in an order that never changes.
//!
//! Every type here is serialised by `serde` with the names of its fields, and those names are the
//! stable keys of `--json`. A field is added without notice; a field that is renamed, removed or
//! given another meaning raises [`SCHEMA_VERSION`].
//!
//! Always true of a finished report: `input.packets_read` equals `input.received + input.sent`
//! plus the skipped packets by reason; for every policy `received` equals the sum of all reasons
//! plus the packets dropped before a decision, and it equals what was delivered plus what was
//! dropped ([`PolicyReport::adds_up`]).
//! Elsewhere: what the counters are counted by (`crate::replay`); how a report is shown (the
//! command line).

mod by;
mod input;
mod policy;
mod series;

use serde::Serialize;

pub use by::{ByClass, ByReason, Drops};
pub use input::{
    CaptureNote, ConsumerReport, DissectErrors, FlowReport, InputReport, LocalReport, Skipped,
    WorkerShare, WorkingSet,
};
pub use policy::{
    CpuReport, Distances, Latency, Moves, PolicyReport, Probes, QueueReport, TableReport, Writes,
};
pub use series::{Series, SeriesPoint};

/// Version of the JSON form of a [`Report`].
pub const SCHEMA_VERSION: u32 = 1;

/// The whole answer of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name and version of the program that wrote the report.
    pub generator: String,
    /// What was asked for.
    pub settings: Settings,
    /// The host that was modelled.
    pub host: HostReport,
    /// What was read.
    pub input: InputReport,
    /// Which sockets and readers were found or given.
    pub consumers: ConsumerReport,
    /// The flows of the capture and how many are active at a time.
    pub flows: FlowReport,
    /// One entry per policy, in the order asked for.
    pub policies: Vec<PolicyReport>,
    /// One curve per swept quantity and policy; empty without a sweep.
    pub sweeps: Vec<SweepCurve>,
    /// What the traffic or the host makes impossible or risky, most important first.
    pub findings: Vec<Finding>,
    /// Which policy, with which settings, and why.
    pub verdict: Verdict,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Seed of the software hash and of all else that is drawn.
    pub seed: u64,
    /// `kernel` or `inner`: which fields make the flow hash.
    pub mode: String,
    /// `use` or `ignore`: whether an IPv6 flow label takes part in the hash.
    pub flow_label: String,
    /// `tag`, `tag-unless-priority` or `ignore`: how the outermost VLAN tag takes part in the hash.
    pub vlan: String,
    /// Whether the outermost IP header only is hashed.
    pub outer_only: bool,
    /// Whether WireGuard's receiver index is part of the hash.
    pub wireguard_index: bool,
    /// Version of Linux whose tables the policy `rfs` models.
    pub kernel: String,
    /// Whether a change of the RPS mask waits for each flow's queued packets.
    pub drain: bool,
    /// Whether later fragments follow the ports of the first.
    pub track_fragments: bool,
    /// Whether each packet of an IPsec tunnel goes to the next CPU.
    pub spread_esp: bool,
    /// Readers of each unconnected UDP port.
    pub workers: u32,
    /// Unconnected UDP ports that carry flows, such as `443,10000-10100`, or `none`.
    pub flow_ports: String,
    /// `engine` or `instant`: the receive engine in virtual time, or all work of a packet at once.
    pub service: String,
}

/// The host that was modelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostReport {
    /// Where the model came from: `8 cpus, 2 queues`, or the name of its file.
    pub source: String,
    /// CPUs that exist, as a cpulist.
    pub possible: String,
    /// CPUs that are online, as a cpulist.
    pub online: String,
    /// CPUs kept free of receive work, as a cpulist; empty if none.
    pub isolated: String,
    /// Cache groups, each a cpulist.
    pub caches: Vec<String>,
    /// Receive queues, by index.
    pub queues: Vec<QueueReport>,
    /// Entries of the global table as Linux would round them; 0 for none.
    pub rps_sock_flow_entries: u64,
    /// Entries of the table of each queue as Linux would round them; 0 for none.
    pub rps_flow_cnt: u64,
    /// Entries of each of the two flow tables (TCP, UDP) of the policy `flow-aware`.
    pub flow_entries: u64,
    /// Most packets on one CPU's backlog; the kernel takes one more (`netdev_max_backlog`).
    pub max_backlog: u32,
    /// Most packets in the ring of one queue.
    pub ring: u32,
    /// How the packets are spread over the queues: `toeplitz`, `recorded`.
    pub spreading: String,
}

/// A curve of one quantity against another, for one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepCurve {
    /// What was varied: `table-entries`, `queues`, `cpus`.
    pub parameter: String,
    /// Name of the policy.
    pub policy: String,
    /// Points in ascending order.
    pub points: Vec<SweepPoint>,
}

/// One point of a [`SweepCurve`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepPoint {
    /// Value of the varied quantity.
    pub value: u64,
    /// Hits among the packets of flows with a connected socket, 0 to 1; `None` without such.
    pub hit_rate: Option<f64>,
    /// Packets steered by another flow's entry.
    pub wrong_steers: u64,
    /// Packets processed on the CPU of their consumer, 0 to 1; `None` without consumers.
    pub on_consumer_cpu: Option<f64>,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// 99th percentile of the latency in ns; `None` if nothing was measured.
    pub p99_ns: Option<u64>,
    /// Largest share of busy time of one CPU, 0 to 1.
    pub max_busy: f64,
}

/// Something about the traffic or the host that a reader should know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name for programs, such as `label-hides-ports`.
    pub code: FindingCode,
    /// How much it matters.
    pub severity: Severity,
    /// One sentence for people.
    pub text: String,
    /// The measured figures that the sentence rests on, by name.
    pub evidence: Vec<Evidence>,
}

/// Stable names of findings.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingCode {
    /// Nothing was read or nothing was received.
    Empty,
    /// No address stands out as the local one; every packet counts as received.
    NoLocalAddress,
    /// One flow carries nearly all packets and cannot be split without reordering.
    Unsplittable,
    /// One flow carries more than half of the packets.
    LargeFlow,
    /// All packets of a port come from one address and port, so a hash cannot spread them.
    OneSourceTuple,
    /// IPv6 flow labels take the place of the ports in the hash.
    LabelHidesPorts,
    /// A flow's hash changed within its life.
    FlowMoved,
    /// Fragments of a flow are processed on another CPU than its whole datagrams.
    SplitFlow,
    /// One CPU takes all or nearly all packets.
    OneCpuTakesAll,
    /// Every queue's interrupt is on one CPU.
    AllIrqsOnOneCpu,
    /// The RPS CPUs of a queue are only its IRQ CPU.
    IrqCpuIsRpsCpu,
    /// The hardware already reaches every CPU.
    RssReachesAll,
    /// RFS is off because a table is missing.
    RfsOff,
    /// A table size is rounded up by the kernel.
    SizeRounded,
    /// A mask names CPUs that are offline, isolated or do not exist.
    MaskFiltered,
    /// A state limit was reached and older state was dropped.
    LimitReached,
    /// A policy reordered packets within flows.
    Reordered,
    /// A policy steered packets by entries of other flows.
    WrongSteers,
    /// The table does not fit the active flows.
    TableTooSmall,
    /// Only one CPU can take packets.
    OneCpu,
    /// A reader is slower than its packets arrive; a larger buffer only delays the loss.
    ReaderTooSlow,
    /// Packet work on the CPU of a reader runs ahead of it and leaves it no time.
    ReaderStarved,
    /// Times in the capture went backwards.
    TimeWentBack,
    /// The capture ends early or parts of it could not be used.
    CaptureIncomplete,
    /// A consumer rule met no packet, or an event lies behind the last one.
    WithoutEffect,
    /// Several queues, and no hash key of the device was given.
    AssumedRssKey,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Loss, reordering, or a setting without effect.
    Problem,
    /// A limit of what steering can do here.
    Limit,
    /// Good to know.
    Note,
}

/// One figure behind a statement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Name of the figure, such as `largest_flow_share`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit: `packets`, `share`, `ns`, `flows`, `cpus`, `entries`, `per packet`, `factor`.
    pub unit: String,
}

impl Evidence {
    /// Makes one figure.
    pub fn new(name: &str, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.into() }
    }
}

/// Which policy, with which settings, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Stable name for programs.
    pub code: VerdictCode,
    /// Name of the recommended policy among those compared; `none` means: leave steering off.
    pub policy: String,
    /// The answer in one sentence.
    pub summary: String,
    /// What it buys, each with its figure.
    pub buys: Vec<String>,
    /// What it costs, each with its figure.
    pub costs: Vec<String>,
    /// When the answer would be another one.
    pub unless: Vec<String>,
    /// Why not the others: one line per policy that was compared and not chosen.
    pub others: Vec<PolicyRemark>,
    /// The exact values to write, in the order to write them.
    pub settings: Vec<Setting>,
    /// The figures that the answer rests on.
    pub evidence: Vec<Evidence>,
}

/// Stable names of verdicts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictCode {
    /// Steering gains nothing that pays for it.
    LeaveItOff,
    /// RPS.
    UseRps,
    /// One of the RFS policies of Linux.
    UseRfs,
    /// The flow-aware policy.
    UseFlowAware,
    /// Something else comes first: more queues, IRQ placement, another way to spread.
    FixFirst,
    /// There is nothing to judge.
    NoData,
}

/// What a policy that was not chosen would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyRemark {
    /// Name of the policy.
    pub policy: String,
    /// Why it was not chosen, with figures.
    pub text: String,
}

/// One value to write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// File below the root, with `DEV` for the device.
    pub path: String,
    /// What to write, in the kernel's notation.
    pub value: String,
    /// The line to paste: `echo VALUE > PATH`.
    pub line: String,
    /// Why this value.
    pub why: String,
}

impl Setting {
    /// Makes a setting and its line to paste.
    pub fn new(path: String, value: String, why: String) -> Self {
        let line = format!("echo {value} > {path}");
        Self { path, value, line, why }
    }
}
