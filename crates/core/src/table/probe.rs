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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lookup {
    /// The entry and its place if the flow is known and the entry is not stale.
    pub entry: Option<(Entry, Place)>,
    /// The answer in a word; never [`Probe::Offline`], which depends on the host.
    pub probe: Probe,
    /// Whether a second cache line was read.
    pub second_line: bool,
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
    let missed = |probe, second_line| Lookup { entry: None, probe, second_line };
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
    Lookup { entry: Some((entry, Place { bucket: index, slot })), probe: Probe::Hit, second_line }
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
