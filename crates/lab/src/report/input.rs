//! What was read, and what it was taken for.

use serde::Serialize;

use super::ByClass;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InputReport {
    /// Names of the files, `-` for standard input.
    pub files: Vec<String>,
    /// Packets read from them.
    pub packets_read: u64,
    /// Bytes of those packets on the wire.
    pub wire_bytes: u64,
    /// Packets to the local side.
    pub received: u64,
    /// Packets from the local side.
    pub sent: u64,
    /// Packets that were not replayed, by reason.
    pub skipped: Skipped,
    /// Received packets by class.
    pub classes: ByClass,
    /// Received packets that have no flow hash.
    pub unhashable: u64,
    /// Received packets whose dissection stopped early, by cause; they are replayed with what
    /// was read before the stop, as in Linux.
    pub dissect_errors: DissectErrors,
    /// Received fragments of IP datagrams.
    pub fragments: u64,
    /// Later fragments whose first one was not seen before them, where fragments are tracked.
    pub fragments_without_first: u64,
    /// Time from the first to the last packet, in ns.
    pub span_ns: u64,
    /// Time of the first packet, in ns since 1970; `None` if nothing was read.
    pub start_ns: Option<u64>,
    /// Packets whose time was before that of an earlier packet; they count as of the later time.
    pub time_went_back: u64,
    /// Remarks of the capture reader: truncation, unknown blocks, dropped packets.
    pub notes: Vec<CaptureNote>,
}

/// Packets that were read but not replayed, by reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Skipped {
    /// Neither to nor from a local address.
    pub not_local: u64,
    /// From one local address to another (loopback); it never reaches a device queue.
    pub local_to_local: u64,
    /// The link type has no network header that is known here.
    pub unknown_link: u64,
    /// No bytes were captured.
    pub no_bytes: u64,
}

impl Skipped {
    /// Returns the names and values in a fixed order.
    pub const fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("not_local", self.not_local),
            ("local_to_local", self.local_to_local),
            ("unknown_link", self.unknown_link),
            ("no_bytes", self.no_bytes),
        ]
    }

    /// Returns the sum over all reasons.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, n)| n).sum()
    }
}

/// Counts of early stops of the dissector, by the name of the cause.
///
/// A map in the order of names; causes that did not occur are there with 0.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct DissectErrors(pub std::collections::BTreeMap<String, u64>);

impl DissectErrors {
    /// Returns the sum over all causes.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// A remark of the capture reader.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CaptureNote {
    /// File it is about.
    pub file: String,
    /// Stable name, such as `truncated`.
    pub code: String,
    /// One line for people, with offset and reason.
    pub text: String,
}

/// Which sockets and readers were found or given.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConsumerReport {
    /// How the local side was known.
    pub local: LocalReport,
    /// TCP connections seen established.
    pub tcp_connections: u64,
    /// UDP sockets taken for connected.
    pub udp_connected: u64,
    /// UDP ports read by unconnected sockets.
    pub udp_unconnected: u64,
    /// Sockets that matched a rule of the user.
    pub by_rule: u64,
    /// SYNs that no connection followed on, so far as they were remembered.
    pub half_open: u64,
    /// Sockets closed (FIN, RST) or disconnected (a second peer appeared).
    pub closed: u64,
    /// Sockets forgotten because the limit was reached.
    pub evicted: u64,
    /// Most sockets at a time.
    pub most_at_once: u64,
    /// Limit on sockets at a time.
    pub limit: u64,
    /// Packets received by a connected socket.
    pub to_connected: u64,
    /// Packets received by an unconnected socket.
    pub to_unconnected: u64,
    /// Packets that no known socket reads.
    pub to_nobody: u64,
    /// Shares of the readers of unconnected ports, largest first, at most 64.
    pub workers: Vec<WorkerShare>,
}

/// How many packets one reader of an unconnected port gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerShare {
    /// Local port.
    pub port: u16,
    /// Reader, from 0.
    pub worker: u32,
    /// CPU on which it starts.
    pub cpu: u16,
    /// Packets by hash of addresses and ports.
    pub by_hash: u64,
    /// The same as a share of the port's packets, 0 to 1.
    pub share: f64,
    /// Share if each packet went to the next reader in turn (order of flows is not kept).
    pub round_robin: f64,
    /// Share if each packet went to a reader drawn at random (order of flows is not kept).
    pub random: f64,
    /// Share if each reader took the packets of the device queues of its CPU's place.
    pub by_cpu: f64,
}

/// How the local side was known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LocalReport {
    /// `given`, `directions` (the capture says in or out), `inferred`, or `all` (every packet
    /// counts as received).
    pub how: String,
    /// The local addresses or prefixes, at most 64.
    pub addresses: Vec<String>,
    /// Share of the first packets that these explain, 0 to 1; `None` unless inferred.
    pub explained: Option<f64>,
}

/// The flows of the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowReport {
    /// Directional flows seen among received packets; a flow that returns after it was
    /// forgotten counts again.
    pub seen: u64,
    /// Flows forgotten because the limit was reached.
    pub forgotten: u64,
    /// Limit on flows at a time.
    pub limit: u64,
    /// Packets of the largest flow.
    pub largest_packets: u64,
    /// The same as a share of all received packets, 0 to 1.
    pub largest_share: f64,
    /// The largest flow in words.
    pub largest: Option<String>,
    /// Active flows in windows of one second.
    pub one_second: WorkingSet,
    /// Active flows in windows of ten seconds.
    pub ten_seconds: WorkingSet,
    /// Entries of a table of Linux (one flow per place) that give 95 % hits with the largest
    /// ten-second working set of connected flows.
    pub fitting_entries_linux: u64,
    /// Entries of a flow-aware table that hold twice that working set.
    pub fitting_entries: u64,
}

/// How many flows are active in one window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WorkingSet {
    /// Windows with at least one packet.
    pub windows: u64,
    /// Largest number of flows.
    pub max_flows: u64,
    /// Mean number of flows.
    pub mean_flows: f64,
    /// Largest number of flows with a connected socket: those that want a table entry.
    pub max_connected: u64,
    /// Mean number of flows with a connected socket.
    pub mean_connected: f64,
    /// Whether the numbers are exact. If not, flows were forgotten within a window and may be
    /// counted more than once: the numbers are upper bounds.
    pub exact: bool,
}
