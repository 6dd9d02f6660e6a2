//! What is to be replayed, and how.

use rxsteer_core::PortSet;
use rxsteer_core::dissect::{Mode, VlanHash};
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{KernelVersion, PolicyKind};

use super::decisions::Observer;
use super::local::LocalRule;
use crate::consumer::Scenario;

/// Returns the flow hash of a seed; live, its key would be random.
pub fn hasher(seed: u64) -> SoftHasher {
    SoftHasher {
        k0: seed ^ 0x736f_6d65_7073_6575,
        k1: seed.rotate_left(32) ^ 0x646f_7261_6e64_6f6d,
    }
}

/// What does the work of the packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ServiceKind {
    /// The receive engine in virtual time.
    #[default]
    Engine,
    /// All work of a packet is done at once: only the tables matter.
    Instant,
}

/// What is to be replayed, and how.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Policies to compare, in the order of the report.
    pub policies: Vec<PolicyKind>,
    /// Which fields make the flow hash.
    pub mode: Mode,
    /// Leave IPv6 flow labels out of the hash and use the ports.
    pub ignore_flow_label: bool,
    /// Hash the outermost IP header only, whatever it carries.
    pub outer_only: bool,
    /// Put WireGuard's receiver index into the hash (mode `inner`): it separates peers behind one
    /// address.
    pub wireguard_index: bool,
    /// How the outermost VLAN tag takes part in the hash.
    pub vlan: VlanHash,
    /// Seed of the hash and of all else that is drawn.
    pub seed: u64,
    /// Version of Linux whose tables `rfs`, `rfs-split` and `rfs-tcp` model.
    pub kernel: KernelVersion,
    /// Under `rps`, a flow changes CPU only when its old CPU has passed its packets.
    pub drain: bool,
    /// Later fragments follow the ports that the first one had.
    pub track_fragments: bool,
    /// Spread each packet of an IPsec tunnel to the next CPU in turn.
    pub spread_esp: bool,
    /// Which side is local.
    pub local: LocalRule,
    /// Readers of each unconnected UDP port that no rule says more of; at least 1.
    pub workers: u32,
    /// Local ports of unconnected UDP sockets that carry flows, where no rule says more: as of
    /// `rxsteer attach`, which takes the answers for what is taken here of the reads.
    pub flow_ports: PortSet,
    /// Known consumers, and events.
    pub scenario: Scenario,
    /// Table sizes to try besides the host's own, in entries.
    pub sweep_table_entries: Vec<u64>,
    /// What does the work of the packets.
    pub service: ServiceKind,
    /// Most flows remembered at a time.
    pub flow_limit: usize,
    /// Most sockets at a time.
    pub socket_limit: usize,
    /// Threads for the policies besides the one that reads; 0 for none. The result is the same.
    pub threads: usize,
    /// Who is told of every decision.
    pub observer: Option<Observer>,
}

impl ReplayOptions {
    /// Most table sizes in one sweep.
    pub const MAX_SWEEP: usize = 64;

    /// Most bytes of memory for the flow tables of all policies and table sizes together.
    pub const MAX_TABLE_BYTES: u64 = 4 << 30;
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            policies: PolicyKind::ALL.to_vec(),
            mode: Mode::Kernel,
            ignore_flow_label: false,
            outer_only: false,
            wireguard_index: false,
            vlan: VlanHash::Tag,
            seed: 0,
            kernel: KernelVersion::NEWEST,
            drain: false,
            track_fragments: false,
            spread_esp: false,
            local: LocalRule::Infer,
            workers: 1,
            flow_ports: PortSet::EMPTY,
            scenario: Scenario::default(),
            sweep_table_entries: Vec::new(),
            service: ServiceKind::Engine,
            flow_limit: 1 << 18,
            socket_limit: 1 << 18,
            threads: 0,
            observer: None,
        }
    }
}
