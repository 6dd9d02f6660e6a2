//! Flow tables: ours, and models of Linux's two.
//!
//! [`FlowTable`] is the table of the `flow-aware` policy. [`SockTable`] and the functions of
//! [`DevFlows`] model the global and the per-queue table of Linux. [`OrderTable`] keeps the
//! positions of flows that are between two CPUs, [`RepeatFilter`] tells hashes that come back
//! from those that were seen once. [`probe_buckets`] and [`place_entry`] serve all planes; where
//! Rust knows no compare-and-swap (eBPF), they, [`record_entry`], [`withdraw_entry`] and the order
//! table are all there is.

mod bucket;
mod dev;
mod entry;
#[cfg(target_has_atomic = "64")]
mod flow;
mod order;
mod probe;
mod record;
#[cfg(target_has_atomic = "64")]
mod repeat;
mod sighting;
#[cfg(target_has_atomic = "64")]
mod sock;

use core::fmt;

pub use bucket::{Bucket, Geometry, Scan, WAYS};
pub use dev::{DevFlow, DevFlows, SlotIndex};
pub use entry::{Entry, Epoch};
#[cfg(target_has_atomic = "64")]
pub use flow::FlowTable;
pub use order::OrderTable;
pub use probe::{Lookup, Place, place_entry, probe_buckets};
pub use record::{record_entry, record_entry_if, withdraw_entry};
#[cfg(target_has_atomic = "64")]
pub use repeat::RepeatFilter;
pub use sighting::sight_in_word;
#[cfg(target_has_atomic = "64")]
pub use sock::SockTable;

use crate::FlowHash;

/// What a flow table said of a packet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Probe {
    /// No table was asked.
    #[default]
    NotAsked,
    /// An entry answers for this hash.
    Hit,
    /// Nothing is there, and there would be room.
    Empty,
    /// The place is taken by another flow, or by as many other flows as it holds.
    OtherFlow,
    /// The flow's entry is too old to be believed.
    Stale,
    /// The flow's entry names a CPU that is offline or does not exist.
    Offline,
}

impl Probe {
    /// Number of variants.
    pub const COUNT: usize = 6;

    /// All variants, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] =
        [Self::NotAsked, Self::Hit, Self::Empty, Self::OtherFlow, Self::Stale, Self::Offline];

    /// Returns the place of the variant's counter.
    pub const fn index(self) -> usize {
        match self {
            Self::NotAsked => 0,
            Self::Hit => 1,
            Self::Empty => 2,
            Self::OtherFlow => 3,
            Self::Stale => 4,
            Self::Offline => 5,
        }
    }

    /// Returns the variant's name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAsked => "not-asked",
            Self::Hit => "hit",
            Self::Empty => "empty",
            Self::OtherFlow => "other-flow",
            Self::Stale => "stale",
            Self::Offline => "offline",
        }
    }
}

/// What came of telling a table about a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Recorded {
    /// The socket side has nothing to tell: no hash, no flow, or no table.
    NotAFlow,
    /// The socket presents too many hashes and is not heard for a while.
    Muted,
    /// The table says so already; nothing was written.
    Unchanged,
    /// The entry was confirmed: one write in an epoch.
    Refreshed,
    /// The entry names another CPU now.
    Moved,
    /// The flow was added and nobody had to go.
    Inserted,
    /// The flow was added in place of another, whose hash or remaining bits are given.
    Evicted(FlowHash),
    /// The slot, which was the flow's own or not empty, was emptied.
    Cleared,
    /// Other writers were faster several times in a row; nothing is known to be written.
    Contended,
}

impl Recorded {
    /// Number of variants.
    pub const COUNT: usize = 9;

    /// Names of the variants in outputs, in the order of [`index`](Self::index).
    pub const NAMES: [&str; Self::COUNT] = [
        "not-a-flow",
        "muted",
        "unchanged",
        "refreshed",
        "moved",
        "inserted",
        "evicted",
        "cleared",
        "contended",
    ];

    /// Returns the place of the variant's counter.
    pub const fn index(self) -> usize {
        match self {
            Self::NotAFlow => 0,
            Self::Muted => 1,
            Self::Unchanged => 2,
            Self::Refreshed => 3,
            Self::Moved => 4,
            Self::Inserted => 5,
            Self::Evicted(_) => 6,
            Self::Cleared => 7,
            Self::Contended => 8,
        }
    }

    /// Returns whether memory of the table was written.
    pub const fn wrote(self) -> bool {
        match self {
            Self::NotAFlow | Self::Muted | Self::Unchanged | Self::Contended => false,
            Self::Refreshed | Self::Moved | Self::Inserted | Self::Evicted(_) | Self::Cleared => {
                true
            }
        }
    }
}

/// The number of elements given as storage of a table cannot be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableSizeError {
    /// The number given.
    pub count: usize,
}

impl fmt::Display for TableSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no power of two that a flow table can have", self.count)
    }
}

impl core::error::Error for TableSizeError {}
