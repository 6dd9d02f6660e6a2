//! The look-up of one packet: which socket, and by which rule.
//!
//! In this order, and the first that finds a socket decides: under Linux's rules the head of the
//! address list, if the packet is exactly of its connection; the 4-tuple table, if the slot of the
//! address has connected sockets; the best candidate of the address; the best of the wildcard;
//! under Linux's rules the best of those under the stand-in address.
//!
//! Always true: a look-up takes no lock and changes no table; it starts again only if a writer
//! published a change of the port meanwhile.
//! Source: spec of the receive path, "UDP socket lookup".

use std::sync::atomic::Ordering;

use rxsteer_core::FlowHash;

use crate::group::{HAS_REMOTE4, HAS_REMOTE6, Picked};
use crate::{Found, Packet, SocketId, Stage};

use super::entry::{CONNECTED, ENCAPSULATION, Entry, REUSEPORT};
use super::list::List;
use super::publish::Published;
use super::tuple::{Tuple, wide};

/// Packets looked up at a time: enough for the loads of a core that can overlap.
const BURST: usize = 32;

/// A socket that gets the packet, and whether it has a remote end of the packet's family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Receiver {
    pub(super) socket: SocketId,
    pub(super) stage: Stage,
    pub(super) flags: u16,
    pub(super) has_remote: bool,
}

impl Receiver {
    #[inline]
    pub(super) fn new(entry: &Entry, stage: Stage, v4: bool) -> Self {
        Self { socket: entry.socket, stage, flags: entry.flags, has_remote: entry.has_remote(v4) }
    }

    #[inline]
    pub(super) const fn found(&self) -> Found {
        Found {
            socket: self.socket,
            stage: self.stage,
            connected: self.flags & CONNECTED != 0,
            encapsulation: self.flags & ENCAPSULATION != 0,
        }
    }
}

/// What walking a list came to.
enum Best {
    Nothing,
    Is(Receiver),
    /// A group's selection refuses the packet, which ends the look-up.
    Refused,
}

impl Published {
    /// Returns the socket that gets a unicast packet.
    #[inline]
    pub(crate) fn lookup(&self, packet: &Packet<'_>) -> Option<Found> {
        self.receiver(packet, 0).map(|receiver| receiver.found())
    }

    /// Looks up several packets, so that their loads overlap; see [`BURST`].
    pub(crate) fn lookup_burst(&self, packets: &[Packet<'_>], found: &mut [Option<Found>]) {
        for (packets, found) in packets.chunks(BURST).zip(found.chunks_mut(BURST)) {
            #[cfg(feature = "hash4")]
            let hashes = self.touch(packets);
            #[cfg(not(feature = "hash4"))]
            let hashes = [0; BURST];
            for ((packet, hash), found) in packets.iter().zip(hashes).zip(found) {
                let receiver = self.receiver(packet, hash);
                *found = receiver.map(|receiver| receiver.found());
            }
        }
    }

    /// Loads the buckets of a burst, then the records. Between the loads of a kind there is next to
    /// nothing else, so that a core has all of them under way at a time. Returns the hashes of the
    /// 4-tuples; 0: not needed.
    #[cfg(feature = "hash4")]
    fn touch(&self, packets: &[Packet<'_>]) -> [u64; BURST] {
        let mut hashes = [0; BURST];
        for (hash, packet) in hashes.iter_mut().zip(packets) {
            let tuple = Tuple::of(packet);
            if self.four.may_hold(tuple.local, tuple.local_port) {
                *hash = self.hash.of(&tuple);
            }
        }
        let mut loaded = 0;
        for hash in hashes.iter().filter(|hash| **hash != 0) {
            loaded ^= self.four.touch_bucket(*hash);
        }
        let records = hashes.map(|hash| if hash == 0 { 0 } else { self.four.leads_to(hash) });
        for record in records {
            loaded ^= self.four.touch_record(record);
        }
        std::hint::black_box(loaded);
        hashes
    }

    /// Returns who gets a unicast packet; `hash` is that of the 4-tuple, 0 if the caller has none.
    #[inline]
    pub(super) fn receiver(&self, packet: &Packet<'_>, hash: u64) -> Option<Receiver> {
        let local = wide(packet.dst);
        loop {
            let reading = self.versions.begin(packet.dst_port);
            if self.early_demux
                && !packet.from_this_host
                && let Some(receiver) = self.head(packet, local)
            {
                return Some(receiver);
            }
            #[cfg(feature = "hash4")]
            if self.four.may_hold(local, packet.dst_port)
                && let Some(receiver) = self.by_tuple(packet, hash)
            {
                return Some(receiver); // nobody has a better claim, whatever moved
            }
            #[cfg(not(feature = "hash4"))]
            let _ = hash;
            // What is found by score is the best only if nothing moved meanwhile.
            let best = self.by_score(packet, local);
            if reading.holds() {
                return best;
            }
        }
    }

    #[inline]
    fn head(&self, packet: &Packet<'_>, local: u128) -> Option<Receiver> {
        let lists = self.lists.pin();
        let head = lists.get(&(local, packet.dst_port))?.head.as_ref()?;
        head.is_exactly(packet)
            .then(|| Receiver::new(head, Stage::EarlyDemux, packet.dst.is_ipv4()))
    }

    /// Not inlined: what it needs in registers is not to be paid for by look-ups that skip it.
    #[cfg(feature = "hash4")]
    #[inline(never)]
    fn by_tuple(&self, packet: &Packet<'_>, hash: u64) -> Option<Receiver> {
        let tuple = Tuple::of(packet);
        let hash = if hash == 0 { self.hash.of(&tuple) } else { hash };
        let hit = self.four.lookup(hash, &tuple, packet.device)?;
        let (socket, flags) = (hit.socket, hit.flags);
        Some(Receiver { socket, stage: Stage::FourTuple, flags, has_remote: true })
    }

    #[inline]
    fn by_score(&self, packet: &Packet<'_>, local: u128) -> Option<Receiver> {
        let lists = self.lists.pin();
        for (address, stage) in [(local, Stage::Address), (0, Stage::Wildcard)] {
            let Some(list) = lists.get(&(address, packet.dst_port)) else { continue };
            match self.best(list, packet, stage) {
                Best::Is(receiver) => return Some(receiver),
                Best::Refused => return None,
                Best::Nothing => {}
            }
        }
        if !self.port_stage || packet.dst.is_ipv6() {
            return None;
        }
        if local as u32 != super::sock::STAND_IN {
            return None;
        }
        let ports = self.ports.pin();
        match self.best(&ports.get(&packet.dst_port)?.stand_ins, packet, Stage::Port) {
            Best::Is(receiver) => Some(receiver),
            Best::Nothing | Best::Refused => None,
        }
    }

    /// Returns the best candidate of a list: the first of the highest score, but that a group
    /// picks one of its members, which is final if none of them ever connected.
    #[inline]
    fn best(&self, list: &List, packet: &Packet<'_>, stage: Stage) -> Best {
        let v4 = packet.dst.is_ipv4();
        if let Some(entry) = list.single()
            && entry.group == 0
        {
            return match entry.score(packet, || false) {
                Some(_) => Best::Is(Receiver::new(entry, stage, v4)),
                None => Best::Nothing,
            };
        }
        let score = |entry: &Entry| {
            entry.score(packet, || crate::group::CpuOf::is_on(self, entry.socket, packet.cpu))
        };
        let mut best = Best::Nothing;
        let mut best_score = -1;
        for entry in list.iter() {
            let Some(own) = score(entry) else { continue };
            if own <= best_score {
                continue;
            }
            best_score = own;
            best = Best::Is(Receiver::new(entry, stage, v4));
            let asks = entry.group != 0
                && entry.has(REUSEPORT)
                && (!entry.has(CONNECTED) || self.by_group)
                && stage != Stage::Port;
            if !asks {
                continue;
            }
            let groups = self.groups.pin();
            let Some(group) = groups.get(&entry.group) else { continue };
            let (picked, not_applied) = group.pick(packet, self.pick_hash(packet), self);
            if not_applied {
                self.selector_misses.fetch_add(1, Ordering::Relaxed);
            }
            let member = match picked {
                Picked::Member(member) => member,
                Picked::Nobody => continue,
                Picked::Refused => return Best::Refused,
            };
            let remote = if v4 { HAS_REMOTE4 } else { HAS_REMOTE6 };
            let receiver = Receiver {
                socket: member.socket,
                stage,
                flags: member.flags,
                has_remote: member.flags & remote != 0,
            };
            if !group.had_connected {
                return Best::Is(receiver);
            }
            best = Best::Is(receiver);
            // It holds the place with the higher of the two scores.
            let picked = list.iter().find(|entry| entry.socket == member.socket);
            best_score = best_score.max(picked.and_then(score).unwrap_or(-1));
        }
        best
    }

    /// Returns the hash by which groups pick.
    #[inline]
    pub(super) fn pick_hash(&self, packet: &Packet<'_>) -> FlowHash {
        FlowHash(self.hash.of(&Tuple::of(packet)) as u32)
    }
}
