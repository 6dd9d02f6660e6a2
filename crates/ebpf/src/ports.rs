//! The ports of UDP sockets that are not connected: a flow table of their own, by name.
//!
//! Always true: a port stands in the table while somebody reads there, and is taken out with the
//! socket that put it in; only sockets of the interface's namespace, and those bound to no other
//! device, are heard. Nothing is written while the one reader of a port stays on its CPU.
//! Elsewhere: names and readers of ports (`rxsteer_core::steer`); hearing the sockets
//! ([`crate::sockets`]).

use aya_ebpf::helpers::generated::bpf_get_current_pid_tgid;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use rxsteer_core::dissect::AddrKind;
use rxsteer_core::steer::{MANY, Readers, port_name};
use rxsteer_core::table::{
    Bucket, Epoch, Geometry, Lookup, Recorded, WAYS, probe_buckets, record_entry, withdraw_entry,
};
use rxsteer_core::{CpuId, FlowHash, FlowKey};
use rxsteer_ebpf::{MMAPABLE, PORT_BUCKETS, READERS, live};

use crate::flows::swap;
use crate::host::all_rest;

/// The table of ports.
#[map]
static PORTS: Array<[u64; WAYS]> = Array::with_max_entries(PORT_BUCKETS, MMAPABLE);

/// Who reads each port: [`Readers`], by a few bits of its name.
#[map]
static PORT_READERS: Array<u64> = Array::with_max_entries(READERS, 0);

/// See [`live`].
#[map]
static LIVE: Array<[u64; live::WORDS]> = Array::with_max_entries(1, 0);

/// Returns a word of what holds at the moment.
#[inline(always)]
pub(crate) fn live(word: usize) -> u64 {
    // SAFETY: callers name words below `WORDS`, of a map value that lives as long as the program.
    LIVE.get_ptr(0).map_or(0, |words| unsafe { words.cast::<u64>().add(word).read_volatile() })
}

/// Sets a flag of what is there, unless it is set.
#[inline(always)]
pub(crate) fn note(flag: u64) {
    let Some(words) = LIVE.get_ptr_mut(0) else { return };
    // SAFETY: a word of a map value, which lives as long as the program. Two writers may take a flag
    // from each other; whoever misses it sets it again with the next word of its socket.
    unsafe {
        let present = words.cast::<u64>().add(live::PRESENT);
        let old = present.read_volatile();
        if old & flag == 0 {
            present.write_volatile(old | flag);
        }
    }
}

/// Returns the arrangement of the table.
#[inline(always)]
fn geometry() -> Geometry {
    const GEOMETRY: Geometry = match Geometry::new(PORT_BUCKETS as usize) {
        Some(geometry) => geometry,
        None => panic!("a power of two"),
    };
    GEOMETRY
}

/// Returns a bucket of the table.
#[inline(always)]
pub(crate) fn bucket(index: u32) -> Option<&'static Bucket> {
    let bucket = PORTS.get_ptr(index)?;
    // SAFETY: a map value of that size and alignment, which lives as long as the program; a
    // bucket is eight words of any value.
    Some(unsafe { &*bucket.cast() })
}

/// The names under which the socket of a packet may stand.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    /// Bound to the address that the packet is for.
    pub(crate) bound: FlowHash,
    /// Bound to no address.
    pub(crate) wild: FlowHash,
}

impl Names {
    /// Returns the names for a packet that has ports.
    #[inline(always)]
    pub(crate) fn of(key: &FlowKey) -> Self {
        let is_v6 = key.addr_kind == AddrKind::V6;
        let (words, _) = key.dst.as_chunks::<4>();
        let address = [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes);
        Self {
            bound: port_name(key.dst_port, is_v6, Some(address)),
            wild: port_name(key.dst_port, is_v6, None),
        }
    }
}

/// Adds to what is known of a packet's flow what its port says, if that is needed.
#[inline(always)]
pub(crate) fn consult(known: Lookup, names: &Names, queue: u32, ns: u64, now: Epoch) -> Lookup {
    let placed = known.entry().is_some_and(|(entry, _)| entry.current_cpu().is_some());
    let present = live(live::PRESENT);
    if placed || present & (live::WILD | live::BOUND) == 0 {
        return known;
    }
    let mut found = Lookup::missed(known.probe, false);
    if present & live::BOUND != 0 {
        found = lookup(names.bound, now);
    }
    if found.entry().is_none() && present & live::WILD != 0 {
        found = lookup(names.wild, now);
    }
    let Some((port, _)) = found.entry() else { return known };
    if port.wanted_cpu() == MANY {
        return known;
    }
    if port.current_cpu().is_none() && !begins(queue, ns) {
        return known;
    }
    if known.entry().is_some() {
        return known.with_home(port.current_cpu().unwrap_or(port.wanted_cpu()));
    }
    found.by_port = true;
    found
}

/// Returns whether a port that was never placed goes to its reader from now on. Its packets were spread,
/// and none should be overtaken: so at a moment at which all of them are done, or, should there be
/// none, in one of 32 spans of 34 ms.
#[inline(always)]
fn begins(queue: u32, ns: u64) -> bool {
    ns >> 25 & 31 == 0 || all_rest(queue) != 0
}

#[inline(always)]
fn lookup(name: FlowHash, now: Epoch) -> Lookup {
    probe_buckets(geometry(), name, now, bucket)
}

/// Hears that the calling thread reads a port on `cpu`.
#[inline(always)]
pub(crate) fn heard(name: FlowHash, flag: u64, cpu: CpuId, ns: u64, now: Epoch) -> Recorded {
    // SAFETY: the helper has no conditions.
    let thread = unsafe { bpf_get_current_pid_tgid() } as u32;
    let mut goes = cpu;
    if let Some(word) = PORT_READERS.get_ptr_mut(name.mix(READERS.ilog2())) {
        // SAFETY: a map value, which lives as long as the program. Of two writers at a time one is
        // not heard: it will speak again.
        unsafe {
            let old = Readers(word.read_volatile());
            let (new, cpu) = old.hear(name, thread, cpu, (ns >> 22) as u16);
            if new != old {
                word.write_volatile(new.0);
            }
            goes = cpu;
        }
    }
    note(flag);
    record_entry(geometry(), name, goes, now, bucket, |word, old, new| {
        swap(word.as_ptr(), old, new)
    })
}

/// Forgets a port and no other; returns whether it was there.
#[inline(always)]
pub(crate) fn withdraw(name: FlowHash) -> bool {
    withdraw_entry(geometry(), name, bucket, |word, old, new| swap(word.as_ptr(), old, new))
}
