//! Credits of UDP sockets that had no room: what goes beyond is dropped in XDP, before any work.
//!
//! A socket that drops a packet for want of room gets a slot. From then on a packet is let in for
//! each that it reads: what is out, let in and not yet read, stays below three quarters of its
//! buffer ([`credit::most_out`]). Packets that are lost elsewhere would take their credit with them; it
//! heals in three ways: now and then the credit is compared with what is in the queue; a socket of
//! which nothing is heard for [`credit::PATIENCE`] gets a few packets on trial; and a slot means
//! nothing when its socket was silent for [`credit::FORGOTTEN`].
//!
//! Always true: a socket without a slot is let in everything; a packet is refused only by the slot
//! of its own flow or port, compared by its whole name; a socket that finds no slot free is not
//! shed for.
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

    #[inline(always)]
    fn most_out(self) -> i64 {
        (self.word(credit::NAME) >> 32) as i64
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

    /// Stores a time, if it is another.
    #[inline(always)]
    fn stamp(self, word: usize, now: u64) {
        if self.word(word) != now {
            self.set(word, now);
        }
    }

    #[inline(always)]
    fn add(self, count: i64) {
        // SAFETY: as above; the word is made to be written while shared.
        unsafe {
            atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(
                self.0.add(credit::LEFT),
                count as u64,
            )
        };
    }
}

#[inline(always)]
fn home(name: FlowHash) -> u32 {
    name.mix(credit::SLOTS.ilog2())
}

#[inline(always)]
const fn units(ns: u64) -> u64 {
    ns >> 20
}

/// Says whether a packet for this name finds no room; takes one off its credit otherwise.
///
/// `local` says where the name stands for a port of any address that the packet's is not one of
/// another host.
#[inline(always)]
pub(crate) fn refuses(name: FlowHash, ns: u64, is_local: impl FnOnce() -> bool) -> bool {
    let Some(slot) = Slot::of(name) else { return false };
    let now = units(ns);
    let past = |word| now.saturating_sub(slot.word(word));
    let silent = past(credit::HEARD);
    if silent > credit::FORGOTTEN {
        return false;
    }
    if slot.left() > 0 {
        slot.add(-1);
        return false;
    }
    if !is_local() {
        return false;
    }
    if silent > credit::PATIENCE && past(credit::MENDED) > credit::PATIENCE {
        slot.set(credit::MENDED, now);
        slot.set(credit::LEFT, credit::TRIAL as u64);
        return false;
    }
    slot.stamp(credit::SHED_AT, now);
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
    let now = units(ns);
    let most = credit::most_out(room.buffer_bytes, true_size);
    let first = home(name);
    let slot = match Slot::of(name) {
        Some(slot) => slot,
        None => {
            let is_free = |slot: &Slot| {
                slot.word(credit::NAME) == 0
                    || now.saturating_sub(slot.word(credit::HEARD)) > credit::FORGOTTEN
            };
            let free = Slot::at(first).filter(is_free);
            let Some(slot) = free.or_else(|| Slot::at(first ^ 1).filter(is_free)) else { return };
            slot.set(credit::LEFT, 0);
            slot.set(credit::MENDED, now);
            slot.set(credit::SHED_AT, now);
            slot
        }
    };
    // The queue is full, by the quarter beyond what may be out.
    let none = -i64::from(most / 3);
    if slot.left() > none {
        slot.set(credit::LEFT, none as u64);
    }
    slot.stamp(credit::HEARD, now);
    slot.set(credit::TRUE_SIZE, u64::from(true_size));
    slot.set(credit::NAME, u64::from(most) << 32 | u64::from(name.0));
    ports::note(live::PRESSED);
}

/// Hears that the socket of this name read a packet.
#[inline(always)]
pub(crate) fn read(name: FlowHash, room: Room, ns: u64) {
    let Some(slot) = Slot::of(name) else { return };
    let now = units(ns);
    let (most, left) = (slot.most_out(), slot.left());
    slot.stamp(credit::HEARD, now);
    if left < most {
        slot.add(1);
    }
    if now.saturating_sub(slot.word(credit::MENDED)) > credit::MEND {
        slot.set(credit::MENDED, now);
        let true_size = (slot.word(credit::TRUE_SIZE) as u32).max(1);
        let really = most - i64::from(room.queued_bytes / true_size);
        if left <= 0 && really > 0 {
            slot.set(credit::LEFT, really as u64);
        }
        let at_ease = now.saturating_sub(slot.word(credit::SHED_AT)) > credit::AT_EASE;
        if at_ease && left >= most / 2 {
            slot.set(credit::NAME, 0);
        }
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
