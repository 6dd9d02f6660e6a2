//! Settings that the loader gives to the programs, in a map so that they can change while packets
//! flow.

use rxsteer_core::dissect::{Options, VlanHash};
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{Aware, Class, Reason};

/// Most CPUs that a receive queue may spread over; and, CPU ids being below it, most CPUs.
pub const MAX_CPUS: usize = 256;
/// Most receive queues.
pub const MAX_QUEUES: u32 = 64;
/// Slots of the order table of each queue.
pub const ORDER_SLOTS: usize = 256;
/// Buckets of the table of ports: room for 8,192.
pub const PORT_BUCKETS: u32 = 1024;
/// Words in which the readers of ports are kept in mind.
pub const READERS: u32 = 8192;
/// Most local addresses for which packets are dropped early.
pub const MAX_LOCAL: u32 = 4096;

/// Flag of an array map whose values user space can map into its memory; each starts in a cache
/// line of its own then, if its size is a multiple of one.
pub const MMAPABLE: u32 = 1 << 10;

/// What is read of a frame: as Linux does, but for what a socket does not know of its packets, the
/// VLAN and the flow label of the sender.
pub const OPTIONS: Options =
    Options { vlan: VlanHash::Ignore, ignore_flow_label: true, ..Options::KERNEL };

/// Returns the place of the counter of packets of a class that were decided on for a reason.
#[inline(always)]
pub const fn reason_index(class: Class, reason: Reason) -> usize {
    class.index() * Reason::COUNT + reason.index()
}

/// Settings of the programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Key of the software hash.
    pub hasher: SoftHasher,
    /// Buckets of the table of TCP flows; the table of UDP flows stands behind it in one map.
    pub tcp_buckets: u32,
    /// Buckets of the table of UDP flows.
    pub udp_buckets: u32,
    /// Settings of the decision.
    pub aware: Aware,
}

impl Config {
    /// Number of words.
    pub const WORDS: usize = 5;

    /// Returns the settings as they stand in the map.
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        let Self { hasher, tcp_buckets, udp_buckets, aware } = self;
        [
            hasher.k0,
            hasher.k1,
            (tcp_buckets as u64) << 32 | udp_buckets as u64,
            (aware.spill_above_packets as u64) << 32 | aware.learn_after as u64,
            aware.flows_after as u64,
        ]
    }

    /// Returns the settings that stand in the map.
    #[inline(always)]
    pub const fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [k0, k1, buckets, spill_learn, flows] = *words;
        Self {
            hasher: SoftHasher { k0, k1 },
            tcp_buckets: (buckets >> 32) as u32,
            udp_buckets: buckets as u32,
            aware: Aware {
                spill_above_packets: (spill_learn >> 32) as u32,
                learn_after: spill_learn as u32,
                flows_after: flows as u32,
            },
        }
    }
}
