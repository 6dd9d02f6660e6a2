//! Shedding early: a packet that its socket has no room for is dropped before any work.
//!
//! The rule, for each packet at the hook:
//!
//! 1. *Credit.* What the socket's queue holds, and what is on its way there ([`in_flight`]), is in
//!    use. If the packet does not fit into the rest it is shed ([`Cause::Full`]).
//! 2. *Shares.* While less than half of the room is in use that is all. From then on the room is
//!    shared by class, source prefix and flow ([`shares`]), and a packet whose class, prefix or flow
//!    has its share is shed.
//!
//! The class of a packet is what its sender has shown to be ([`familiar`]): of a flow that comes
//! back (or that the caller knows: a connected socket's), from a prefix that comes back, or a
//! stranger's. Weights are 4, 2 and 1.
//!
//! # What it guarantees
//!
//! Let a reader take µ packets/s of a socket whose room is not tiny (some hundred packets), and let
//! the load of all be beyond it by any factor.
//!
//! * A class loses nothing while it offers less than 7/8 · w/W of µ, w its weight, W the sum of the
//!   weights of the classes that offer: a familiar prefix beside a flood from random sources keeps all
//!   it sends up to 0.51 µ (7/8 · 2/3 · 7/8), a familiar flow up to 0.53 µ (7/8 · 4/5 · 7/8 · 7/8).
//! * A prefix loses nothing while it offers less than 7/8 of its class's share divided by the number of
//!   prefixes of that class with packets waiting; a flow likewise within its prefix.
//! * The reader is never idle because of it: nobody is refused for his share while less than half of
//!   the room is in use.
//! * What is let in is at most what fits, on its way or in the queue.
//!
//! # What it does not
//!
//! * A prefix that nobody saw before the flood is a stranger's, and takes part in its lottery until it
//!   becomes familiar: 8 packets and 32 ms later, if it sends more than the flood puts on its bucket
//!   ([`familiar`]).
//! * Whoever forges *your* prefix has your prefix's share; your flows keep theirs as long as their
//!   hashes are not forged too.
//! * Whoever forges 1,000 prefixes for long has 1,000 shares. A share below one packet is none.
//! * The first moments: when the load of those within their share changes faster than the queue
//!   drains, the last eighth of the room must carry it.
//! * The ring before the hook is not fair; see [`governor`](super::governor).
//!
//! State is kept for [`ShedSettings::sockets`] sockets; one that is half full takes the place of one
//! that is not. A socket that finds no place has the first rule only, and what is on its way is not
//! counted ([`Counts::unplaced`]). Below a quarter of the room nobody's share is kept.
//!
//! Always true: offered = admitted + shed by each cause.

use super::familiar::{Familiar, FamiliarSettings};
use super::in_flight::{InFlight, Ticket};
use super::room::{ROOM, Room, Scale};
use super::shares::{CLASSES, Level, Path, Shares, Standing};
use super::source::{Key, SourcePrefix};
use rxsteer_core::steer::{
    Aware, Class, Decision, Host, Packet, PortRule, Queue, choose_flow_aware,
};
use rxsteer_core::table::{Epoch, Lookup, Probe};
use rxsteer_core::{CpuId, FlowHash};

#[cfg(doc)]
use super::{familiar, in_flight, shares};

/// Settings of a [`Shedder`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ShedSettings {
    /// Rule 2, the shares.
    pub fair: bool,
    /// Counts packets on their way.
    pub in_flight: bool,
    /// Sockets that state is kept for, 1 to 65,536.
    pub sockets: u32,
    /// Packets of one socket whose owners are remembered: what its room holds, or the shares are
    /// those of the last so many. At most 2^24.
    pub log_packets: u32,
    /// Weights of the classes, by [`Standing::index`].
    pub weights: [u8; CLASSES],
    /// One of so many packets teaches who is familiar while its socket has room; 0 for none. All do
    /// while a socket is half full.
    pub learn_one_in: u32,
    /// When a prefix or a flow is familiar.
    pub familiar: FamiliarSettings,
    /// No packet is on its way from the hook to its socket for longer than this, in ns.
    pub longest_ns: u64,
}

impl Default for ShedSettings {
    /// 16 sockets of 4,096 packets, weights 4, 2, 1, one packet in 4 teaches, 200 ms: 0.6 MiB.
    fn default() -> Self {
        Self {
            fair: true,
            in_flight: true,
            sockets: 16,
            log_packets: 4096,
            weights: [4, 2, 1],
            learn_one_in: 4,
            familiar: FamiliarSettings::default(),
            longest_ns: 200_000_000,
        }
    }
}

/// A packet at the hook.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Offer {
    /// The socket that it is for; any number that tells sockets apart.
    pub socket: u32,
    /// Its flow hash.
    pub hash: FlowHash,
    /// Its source.
    pub source: SourcePrefix,
    /// Its class.
    pub class: Class,
    /// Whether the caller knows it to be of a flow: its socket is connected, or a table says so.
    pub known_flow: bool,
    /// What it will charge its socket, in bytes.
    pub true_size: u32,
}

/// Why a packet is shed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Cause {
    /// Its socket has no room at all.
    Full,
    /// Its class has its share.
    Class,
    /// Its source prefix has its share.
    Prefix,
    /// Its flow has its share.
    Flow,
}

impl Cause {
    /// Number of variants.
    pub const COUNT: usize = 4;

    /// All variants, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [Self::Full, Self::Class, Self::Prefix, Self::Flow];

    /// Returns the place of the variant's counter.
    pub const fn index(self) -> usize {
        match self {
            Self::Full => 0,
            Self::Class => 1,
            Self::Prefix => 2,
            Self::Flow => 3,
        }
    }

    /// Returns the variant's name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Class => "class-share",
            Self::Prefix => "prefix-share",
            Self::Flow => "flow-share",
        }
    }
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Let it in.
    Admit {
        /// To give back when the packet reaches its socket or is lost.
        ticket: Ticket,
        /// Whether its sender is one of those that lose nothing: see
        /// [`Took`](super::Took).
        protected: bool,
    },
    /// Drop it.
    Shed(Cause),
}

/// What a shedder did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Packets asked about.
    pub offered: u64,
    /// Let in.
    pub admitted: u64,
    /// Shed, by [`Cause::index`].
    pub shed: [u64; Cause::COUNT],
    /// Tickets given back by packets that reached their socket.
    pub reached: u64,
    /// Tickets given back by packets that were lost on the way.
    pub lost: u64,
    /// Tickets that the audit gave back.
    pub healed: u64,
    /// Tickets that came after the audit had given them back.
    pub late: u64,
    /// Packets to sockets more than half full that no state could be kept for.
    pub unplaced: u64,
}

impl Counts {
    /// Returns the packets that were shed.
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }
}

/// Returns the decision to drop a packet on the CPU that took it, whatever the policy.
pub fn refusal(on: CpuId) -> Decision {
    struct Nobody;
    impl Host for Nobody {
        fn is_online(&self, _: CpuId) -> bool {
            false
        }
        fn head(&self, _: CpuId) -> u32 {
            0
        }
        fn tail(&self, _: CpuId) -> u32 {
            0
        }
    }
    let packet = Packet {
        hash: FlowHash::NONE,
        class: Class::Other,
        rule: PortRule::Learn,
        arrived_on: on,
        refused: true,
    };
    let queue = Queue { map: &[], slots: &[] };
    let (settings, now) = (Aware::default(), Epoch::default());
    let nothing = Lookup::missed(Probe::NotAsked, false);
    let place = |_, _, _, _| false;
    choose_flow_aware(&settings, &queue, &packet, &Nobody, now, |_, _| nothing, place)
}

/// The hook that sheds early.
///
/// For one CPU, or shared behind a lock.
#[derive(Clone, Debug)]
pub struct Shedder {
    settings: ShedSettings,
    key: Key,
    familiar: Familiar,
    ids: Vec<u32>,
    slots: Vec<Slot>,
    lesson: u32,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Slot {
    shares: Shares,
    in_flight: InFlight,
    scale: Scale,
    /// When it last had a packet, and when it was last half full with one.
    used_ns: u64,
    pressed_ns: u64,
    /// Tick of the last refusal; 0: none.
    refused: u32,
}

/// The id of a slot without a socket. A socket of this number has no state.
const NOBODY: u32 = u32::MAX;
/// Slots in which a socket may be.
const PROBES: usize = 4;
/// How long a socket that was half full keeps its slot from one that is.
const KEEP_PRESSED_NS: u64 = 10_000_000;
/// How long a socket that had a packet keeps its slot from one that has room.
const KEEP_USED_NS: u64 = 1_000_000_000;
/// Ticks of refusals: 2^20 ns. Whoever was refused in the last 64 is not protected.
const TICK_LOG: u32 = 20;
const MEMORY_TICKS: u32 = 64;

impl Shedder {
    /// Makes a shedder under a key drawn at random; allocates all it will use.
    pub fn new(settings: ShedSettings, key: Key) -> Self {
        let places = if settings.fair || settings.in_flight { settings.sockets } else { 0 };
        let places = places.min(1 << 16) as usize;
        let nodes = if settings.fair { settings.log_packets } else { 1 };
        let slot = Slot {
            shares: Shares::new(nodes, settings.weights),
            in_flight: InFlight::new(settings.longest_ns, 0),
            scale: Scale::default(),
            used_ns: 0,
            pressed_ns: 0,
            refused: 0,
        };
        Self {
            settings,
            key,
            familiar: Familiar::new(settings.familiar),
            ids: vec![NOBODY; places],
            slots: vec![slot; places],
            lesson: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the bytes that it uses.
    pub fn memory_bytes(&self) -> usize {
        let slot = |slot: &Slot| slot.shares.memory_bytes() + size_of::<Slot>() + 4;
        self.familiar.memory_bytes() + self.slots.iter().map(slot).sum::<usize>()
    }

    /// Returns what was done so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Decides about a packet for a socket with this room.
    ///
    /// No allocation. Takes about as long as four software hashes of a flow while the socket has
    /// room, and as seven while it is half full (`cargo bench -p rxsteer-engine --bench overload`).
    #[inline]
    pub fn judge(&mut self, offer: &Offer, room: &Room, now_ns: u64) -> Verdict {
        self.counts.offered += 1;
        let half_full = room.is_half_full();
        let slot = self.slot(offer.socket);
        let slot = slot.or_else(|| self.claim(offer.socket, half_full, now_ns));
        let verdict = match slot {
            Some(slot) => self.judge_placed(slot, offer, room, now_ns),
            None => {
                self.counts.unplaced += u64::from(half_full);
                self.teach(offer, now_ns);
                match room.takes(offer.true_size) {
                    true => Verdict::Admit {
                        ticket: Ticket::NONE,
                        protected: self.settings.fair && !half_full,
                    },
                    false => Verdict::Shed(Cause::Full),
                }
            }
        };
        match verdict {
            Verdict::Admit { .. } => self.counts.admitted += 1,
            Verdict::Shed(cause) => self.counts.shed[cause.index()] += 1,
        }
        verdict
    }

    /// Learns from a packet whose socket is not asked about, for it is known to have room.
    pub fn observe(&mut self, offer: &Offer, now_ns: u64) {
        if self.settings.fair {
            self.learn(offer, now_ns);
        }
    }

    /// Hears that an admitted packet reached its socket, whatever that did with it.
    #[inline]
    pub fn reached(&mut self, ticket: Ticket) {
        if !ticket.is_none() {
            let known = self.end(ticket);
            *(if known { &mut self.counts.reached } else { &mut self.counts.late }) += 1;
        }
    }

    /// Hears that an admitted packet was lost before it reached its socket.
    #[inline]
    pub fn lost(&mut self, ticket: Ticket) {
        if !ticket.is_none() {
            let known = self.end(ticket);
            *(if known { &mut self.counts.lost } else { &mut self.counts.late }) += 1;
        }
    }

    /// Gives back what was lost without a word, for all sockets; due every
    /// [`longest_ns`](ShedSettings::longest_ns). Sockets that packets come for are audited anyway.
    pub fn audit(&mut self, now_ns: u64) {
        for slot in &mut self.slots {
            self.counts.healed += slot.in_flight.audit(now_ns);
        }
    }

    /// Returns the packets that are counted as on their way to a socket.
    pub fn under_way(&self, socket: u32) -> u64 {
        let slot = self.slot(socket).and_then(|slot| self.slots.get(slot));
        slot.map_or(0, |slot| slot.in_flight.packets())
    }

    /// Forgets a socket that is gone, whose number may be used again.
    pub fn forget(&mut self, socket: u32, now_ns: u64) {
        if let Some(at) = self.slot(socket) {
            self.ids[at] = NOBODY;
            self.slots[at].clear(now_ns);
        }
    }

    fn judge_placed(&mut self, at: usize, offer: &Offer, room: &Room, now_ns: u64) -> Verdict {
        let Some(slot) = self.slots.get_mut(at) else { return Verdict::Shed(Cause::Full) };
        if !slot.scale.fits(room) {
            slot.scale = Scale::of(room);
        }
        self.counts.healed += slot.in_flight.audit(now_ns);
        let under_way = slot.in_flight.packets();
        let used = u64::from(slot.scale.used(room)) + slot.in_flight.parts();
        let used = used.min(u64::from(ROOM)) as u32;
        let charge = slot.scale.charge(offer.true_size);
        let fits = (room.is_empty() && under_way == 0)
            || (room.takes(offer.true_size) && used + charge <= ROOM);
        slot.used_ns = now_ns;
        let pressed = used >= ROOM / 2;
        if pressed {
            slot.pressed_ns = now_ns;
        }
        let tick = ((now_ns >> TICK_LOG) as u32).max(1);
        if !self.settings.fair || (used < ROOM / 4 && fits) {
            let shed_lately = slot.refused != 0 && tick.wrapping_sub(slot.refused) <= MEMORY_TICKS;
            let protected = self.settings.fair && !shed_lately;
            self.teach(offer, now_ns);
            return match fits {
                true => self.admit(at, charge, None, protected),
                false => Verdict::Shed(Cause::Full),
            };
        }

        let path = self.path(at, offer, now_ns);
        let slot = &mut self.slots[at];
        slot.shares.settle(room.used_packets + under_way);
        let cause = match pressed.then(|| slot.shares.over(&path, charge, used)).flatten() {
            _ if !fits => Some(Cause::Full),
            Some(Level::Class) => Some(Cause::Class),
            Some(Level::Prefix) => Some(Cause::Prefix),
            Some(Level::Flow) => Some(Cause::Flow),
            None => None,
        };
        match cause {
            Some(cause) => {
                slot.refused = tick;
                slot.shares.refuse(&path, tick);
                Verdict::Shed(cause)
            }
            None => {
                let protected = !slot.shares.was_refused(&path, tick, MEMORY_TICKS);
                self.admit(at, charge, Some(&path), protected)
            }
        }
    }

    #[inline]
    fn admit(&mut self, at: usize, charge: u32, path: Option<&Path>, protected: bool) -> Verdict {
        let slot = &mut self.slots[at];
        if let Some(path) = path {
            slot.shares.enter(path, charge);
        }
        let ticket = match self.settings.in_flight {
            true => slot.in_flight.begin(at as u16, charge),
            false => Ticket::NONE,
        };
        Verdict::Admit { ticket, protected }
    }

    /// Says what a packet's sender is, and learns from it.
    #[inline]
    fn path(&mut self, at: usize, offer: &Offer, now_ns: u64) -> Path {
        let prefix = self.key.prefix(offer.source);
        let flow = (!offer.hash.is_none()).then(|| self.key.flow(offer.source, offer.hash));
        let standing = if offer.class == Class::TcpSyn {
            Standing::Stranger
        } else {
            let epoch = self.familiar.epoch(now_ns);
            let regular = self.familiar.sight(prefix, epoch);
            let returns = flow.is_some_and(|flow| self.familiar.sight(flow, epoch));
            match offer.known_flow || returns {
                true => Standing::Flow,
                false if regular => Standing::Regular,
                false => Standing::Stranger,
            }
        };
        self.slots[at].shares.path(standing, prefix, flow)
    }

    /// Learns from a packet whose socket has room.
    #[inline]
    fn teach(&mut self, offer: &Offer, now_ns: u64) {
        let Self { settings, lesson, .. } = self;
        if !settings.fair || settings.learn_one_in == 0 {
            return;
        }
        *lesson += 1;
        if *lesson < settings.learn_one_in {
            return;
        }
        *lesson = 0;
        self.learn(offer, now_ns);
    }

    fn learn(&mut self, offer: &Offer, now_ns: u64) {
        if offer.class == Class::TcpSyn {
            return;
        }
        let epoch = self.familiar.epoch(now_ns);
        self.familiar.sight(self.key.prefix(offer.source), epoch);
        if !offer.hash.is_none() && !offer.known_flow {
            self.familiar.sight(self.key.flow(offer.source, offer.hash), epoch);
        }
    }

    /// The slots of a socket: a few in a row.
    #[inline]
    fn probes(&self, socket: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.ids.len();
        let first = ((u64::from(FlowHash(socket).mix(32)) * count as u64) >> 32) as usize;
        (0..PROBES.min(count))
            .map(move |n| if first + n < count { first + n } else { first + n - count })
    }

    #[inline]
    fn slot(&self, socket: u32) -> Option<usize> {
        self.probes(socket).find(|at| self.ids[*at] == socket && socket != NOBODY)
    }

    /// Finds a slot for a socket: a free one, or one whose socket needs it less.
    #[cold]
    fn claim(&mut self, socket: u32, half_full: bool, now_ns: u64) -> Option<usize> {
        let needs_it = |slot: &Slot| {
            let (since, keep) = match half_full {
                true => (slot.pressed_ns, KEEP_PRESSED_NS),
                false => (slot.used_ns, KEEP_USED_NS),
            };
            now_ns.saturating_sub(since) <= keep
        };
        let is_free = |at: &usize| self.ids[*at] == NOBODY || !needs_it(&self.slots[*at]);
        let at = self.probes(socket).find(is_free).filter(|_| socket != NOBODY)?;
        self.ids[at] = socket;
        self.slots[at].clear(now_ns);
        Some(at)
    }

    fn end(&mut self, ticket: Ticket) -> bool {
        let slot = self.slots.get_mut(usize::from(ticket.slot));
        slot.is_some_and(|slot| slot.in_flight.end(ticket))
    }
}

impl Slot {
    fn clear(&mut self, now_ns: u64) {
        self.shares.clear();
        self.in_flight.reset(now_ns);
        self.scale = Scale::default();
        (self.used_ns, self.pressed_ns, self.refused) = (now_ns, now_ns, 0);
    }
}

#[cfg(test)]
mod tests;
