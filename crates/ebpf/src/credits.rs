//! Credits of UDP sockets that had no room: what goes beyond is dropped in XDP, before any work.
//!
//! A socket that drops a packet for want of room gets a slot, and is watched. It is shed for once it
//! kept dropping for [`credit::SPAN`] and dropped more than was read: then as much is let in as becomes
//! free in its queue, and an eighth more. So its queue stays as full as it was, and some packets are
//! still dropped there: each says that there is no room, and takes back what credit is left. When no
//! more are dropped there, the socket is not overloaded, or credit was lost elsewhere: it gets some
//! packets on trial after [`credit::PATIENCE`], and everything as soon as the reader has emptied half
//! of its queue, at the latest after [`credit::FORGOTTEN`].
//!
//! Always true: a packet is refused only by the slot of its own flow or port, compared by its whole
//! name, and only while the socket itself dropped one within [`credit::FORGOTTEN`]; a socket that
//! finds no slot free is not shed for.
//! Elsewhere: the layout of a slot ([`credit`]); who has room ([`crate::sockets`]).
//! Source: Druschel and Banga, "Lazy receiver processing", OSDI 1996.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use rxsteer_core::FlowHash;
use rxsteer_core::FlowKey;
use rxsteer_core::dissect::AddrKind;
use rxsteer_ebpf::{MAX_LOCAL, credit, live};

use crate::ports;

/// See [`credit`].
#[map]
static CREDITS: Array<[u64; credit::WORDS]> = Array::with_max_entries(credit::SLOTS as u32, 0);

/// The addresses of the interface's namespace.
#[map]
static LOCAL: HashMap<[u32; 4], u32> = HashMap::with_max_entries(MAX_LOCAL, 0);

/// The receive queue of a socket.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) queued_bytes: u32,
    pub(crate) buffer_bytes: u32,
}

/// Returns whether some socket had no room a moment ago.
#[inline(always)]
pub(crate) fn are_pressed() -> bool {
    ports::live(live::PRESENT) & live::PRESSED != 0
}

/// Returns whether packets are to be dropped early at all.
#[inline(always)]
pub(crate) fn are_on() -> bool {
    ports::live(live::SWITCHES) & live::SHED != 0
}

/// The words of a slot.
#[derive(Clone, Copy)]
struct Slot(*mut u64);

impl Slot {
    #[inline(always)]
    fn at(index: u32) -> Option<Self> {
        Some(Self(CREDITS.get_ptr_mut(index)?.cast()))
    }

    /// Returns the slot of this name.
    #[inline(always)]
    fn of(name: FlowHash) -> Option<Self> {
        let first = home(name);
        let slot = Self::at(first).filter(|slot| slot.is_of(name));
        slot.or_else(|| Self::at(first ^ 1).filter(|slot| slot.is_of(name)))
    }

    #[inline(always)]
    fn is_of(self, name: FlowHash) -> bool {
        self.word(credit::NAME) as u32 == name.0
    }

    /// Returns the most credit, in bytes; 0 if the socket is only watched.
    #[inline(always)]
    fn most(self) -> i64 {
        (self.word(credit::NAME) >> 32) as i64
    }

    /// Returns what a packet takes, in bytes.
    #[inline(always)]
    fn true_size(self) -> i64 {
        (self.word(credit::QUEUED) >> 32) as i64
    }

    #[inline(always)]
    fn left(self) -> i64 {
        self.word(credit::LEFT) as i64
    }

    #[inline(always)]
    fn word(self, word: usize) -> u64 {
        // SAFETY: `at` got a map value of `WORDS` words, and all callers stay below that.
        unsafe { self.0.add(word).read_volatile() }
    }

    /// Stores a word. Of two writers at a time one is lost, which heals as lost packets do.
    #[inline(always)]
    fn set(self, word: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.add(word).write_volatile(value) }
    }

    #[inline(always)]
    fn add(self, word: usize, count: i64) {
        // SAFETY: as above; the word is made to be written while shared.
        unsafe {
            atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(self.0.add(word), count as u64)
        };
    }

    /// Counts reads and drops from now on.
    #[inline(always)]
    fn begin_span(self, now: u64) {
        self.set(credit::SINCE, now);
        self.set(credit::DROPS, 0);
        self.set(credit::READS, 0);
    }
}

#[inline(always)]
fn home(name: FlowHash) -> u32 {
    name.mix(credit::SLOTS.ilog2())
}

/// Says whether a packet for this name finds no room; takes one off its credit otherwise.
///
/// `local` says where the name stands for a port of any address that the packet's is not one of
/// another host.
#[inline(always)]
pub(crate) fn refuses(name: FlowHash, ns: u64, is_local: impl FnOnce() -> bool) -> bool {
    let Some(slot) = Slot::of(name) else { return false };
    if slot.most() == 0 {
        return false;
    }
    let now = credit::units(ns);
    let past = |word| now.saturating_sub(slot.word(word));
    let without_drop = past(credit::FULL_AT);
    if without_drop > credit::FORGOTTEN {
        return false;
    }
    if slot.left() > 0 {
        slot.add(credit::LEFT, -slot.true_size());
        return false;
    }
    if !is_local() {
        return false;
    }
    if without_drop > credit::PATIENCE && past(credit::TRIED) > credit::PATIENCE {
        slot.set(credit::TRIED, now);
        slot.set(credit::LEFT, (credit::TRIAL * slot.true_size()) as u64);
        return false;
    }
    true
}

/// Returns whether the packet is for an address of this host.
#[inline(always)]
pub(crate) fn is_local(key: &FlowKey) -> bool {
    let (words, _) = key.dst.as_chunks::<4>();
    let address = [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes);
    let address = match key.addr_kind {
        AddrKind::V4 => [0, 0, 0xffff_u32.to_be(), address[0]],
        _ => address,
    };
    // SAFETY: the value is not looked at.
    unsafe { LOCAL.get(&address) }.is_some()
}

/// Hears that a socket had no room for a packet of this size.
#[inline(always)]
pub(crate) fn full(name: FlowHash, room: Room, true_size: u32, ns: u64) {
    if name.is_none() {
        return;
    }
    let now = credit::units(ns);
    let first = home(name);
    let is_over = |slot: &Slot| now.saturating_sub(slot.word(credit::FULL_AT)) > credit::FORGOTTEN;
    let slot = match Slot::of(name) {
        Some(slot) => slot,
        None => {
            let is_free = |slot: &Slot| slot.word(credit::NAME) == 0 || is_over(slot);
            let free = Slot::at(first).filter(is_free);
            let Some(slot) = free.or_else(|| Slot::at(first ^ 1).filter(is_free)) else { return };
            slot.begin_span(now);
            slot.set(credit::NAME, u64::from(name.0));
            slot
        }
    };
    if is_over(&slot) {
        slot.begin_span(now);
        slot.set(credit::NAME, u64::from(name.0));
    }
    slot.add(credit::DROPS, 1);
    if slot.word(credit::FULL_AT) != now {
        slot.set(credit::FULL_AT, now);
    }
    slot.set(credit::QUEUED, u64::from(true_size) << 32 | u64::from(room.queued_bytes));
    // What became free before has been filled: there is no room.
    if slot.left() > 0 {
        slot.set(credit::LEFT, 0);
    }
    let span = now.saturating_sub(slot.word(credit::SINCE));
    if span >= credit::SPAN {
        if slot.most() == 0
            && credit::is_overloaded(span, slot.word(credit::DROPS), slot.word(credit::READS))
        {
            let most = credit::most(room.buffer_bytes, true_size);
            slot.set(credit::NAME, u64::from(most) << 32 | u64::from(name.0));
        }
        slot.begin_span(now);
    }
    ports::note(live::PRESSED);
}

/// Hears that the socket of this name read a packet.
#[inline(always)]
pub(crate) fn read(name: FlowHash, room: Room, ns: u64) {
    let Some(slot) = Slot::of(name) else { return };
    slot.add(credit::READS, 1);
    let most = slot.most();
    if most == 0 {
        return;
    }
    let queued = slot.word(credit::QUEUED);
    let freed = credit::freed(queued as u32, room.queued_bytes);
    if queued as u32 != room.queued_bytes {
        slot.set(credit::QUEUED, queued >> 32 << 32 | u64::from(room.queued_bytes));
    }
    if freed > 0 && slot.left() < most {
        slot.add(credit::LEFT, freed);
    }
    let without_drop = credit::units(ns).saturating_sub(slot.word(credit::FULL_AT));
    if without_drop > credit::DRAINED && room.queued_bytes <= room.buffer_bytes / 2 {
        slot.set(credit::NAME, 0);
    }
}

/// Forgets a socket.
#[inline(always)]
pub(crate) fn forget(name: FlowHash) {
    if are_pressed()
        && let Some(slot) = Slot::of(name)
    {
        slot.set(credit::NAME, 0);
    }
}
