//! What every plane does with a flow table for every packet: the probe and, rarely, the note where
//! a flow's packets go now.
//!
//! Always true: the probe reads one cache line, or two if the mark of the hash's class is set, and
//! writes nothing.
//! Elsewhere: who writes the entries ([`super::FlowTable`]), also into the map of an eBPF program.

use super::Probe;
use super::bucket::{Bucket, Geometry, Scan};
use super::entry::{Entry, Epoch};
use crate::sync::AtomicU64;
use crate::{CpuId, FlowHash};

/// Where an entry was found; valid until someone writes there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    pub(super) bucket: u32,
    pub(super) slot: u8,
}

/// The answer of a flow table for one hash.
///
/// Every field has a value in every answer, also where nothing was found: of an `Option` LLVM leaves
/// the inside unwritten then, which the verifier of eBPF refuses to see carried along.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lookup {
    /// The entry, empty if the flow is not known or its entry is stale.
    entry: Entry,
    place: Place,
    /// [`Self::NO_HOME`], or where the flow's packets went before it was placed.
    home: CpuId,
    /// The answer in a word; never [`Probe::Offline`], which depends on the host.
    pub probe: Probe,
    /// Whether a second cache line was read.
    pub second_line: bool,
    /// Whether the entry is that of the packet's local port, which stands for all packets to it.
    pub by_port: bool,
}

impl Lookup {
    const NO_HOME: CpuId = CpuId(u16::MAX);

    /// Returns the answer that nothing is known.
    #[inline(always)]
    pub const fn missed(probe: Probe, second_line: bool) -> Self {
        Self {
            entry: Entry(0),
            place: Place { bucket: 0, slot: 0 },
            home: Self::NO_HOME,
            probe,
            second_line,
            by_port: false,
        }
    }

    /// Returns the entry and its place if the flow is known and the entry is not stale.
    #[inline(always)]
    pub const fn entry(&self) -> Option<(Entry, Place)> {
        if self.entry.is_empty() { None } else { Some((self.entry, self.place)) }
    }

    /// Returns where the flow's packets went before it was placed, if that is not where its hash
    /// spreads it.
    #[inline(always)]
    pub const fn home(&self) -> Option<CpuId> {
        if self.home.0 == Self::NO_HOME.0 { None } else { Some(self.home) }
    }

    /// Says where the flow's packets went before it was placed.
    #[inline(always)]
    #[must_use]
    pub const fn with_home(self, home: CpuId) -> Self {
        Self { home, ..self }
    }

    /// Returns the index of the bucket of the entry; any index without one.
    #[inline(always)]
    pub const fn bucket(&self) -> u32 {
        self.place.bucket
    }
}

/// Looks for `hash` in the buckets that `bucket` returns by index.
///
/// The one probe of all planes: a slice natively, a map look-up in eBPF. A bucket that is not
/// there counts as empty.
#[inline(always)]
pub fn probe_buckets<'a>(
    geometry: Geometry,
    hash: FlowHash,
    now: Epoch,
    bucket: impl Fn(u32) -> Option<&'a Bucket>,
) -> Lookup {
    let home = geometry.home(hash);
    let missed = Lookup::missed;
    if hash.is_none() {
        return missed(Probe::NotAsked, false);
    }
    let Some(first) = bucket(home) else { return missed(Probe::Empty, false) };
    let (entry, slot, index, second_line) = match first.scan(hash) {
        Scan::Found(entry, slot) => (entry, slot, home, false),
        Scan::Missed { full, further } => {
            let probe = if full { Probe::OtherFlow } else { Probe::Empty };
            if !further {
                return missed(probe, false);
            }
            let index = geometry.second(hash);
            match bucket(index).map(|second| second.scan(hash)) {
                Some(Scan::Found(entry, slot)) => (entry, slot, index, true),
                _ => return missed(probe, true),
            }
        }
    };
    if entry.is_stale(now) {
        return missed(Probe::Stale, second_line);
    }
    Lookup { entry, place: Place { bucket: index, slot }, ..missed(Probe::Hit, second_line) }
}

/// Notes to which CPU a flow's packets go now; `false` if the entry changed since it was seen.
///
/// `moving` says that the order table of the queue keeps the position of the flow's last packet.
/// `swap` is a compare-and-swap of one word: [`FlowTable::place`](super::FlowTable::place) brings
/// the standard one, an eBPF program the instruction.
#[inline(always)]
pub fn place_entry<'a>(
    place: Place,
    seen: Entry,
    cpu: CpuId,
    moving: bool,
    bucket: impl Fn(u32) -> Option<&'a Bucket>,
    swap: impl Fn(&AtomicU64, u64, u64) -> bool,
) -> bool {
    bucket(place.bucket)
        .is_some_and(|bucket| bucket.replace_by(place.slot, seen, seen.placed(cpu, moving), swap))
}
