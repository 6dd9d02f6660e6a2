//! Shedding early at the hook of real sockets: by the credit line of the socket that a look-up finds.
//!
//! The look-up before the work is one more than without, so it is made only while a socket of the
//! namespace is half full, or was a moment ago: deliveries tell. Until then one packet in eight teaches
//! who is familiar, and nothing else is done.
//!
//! Always true: a frame's ticket is given back when the frame reaches the sockets or is lost.
//! Left out: multicast and broadcast, which have many sockets, are never shed here.
//! Elsewhere: the rule ([`crate::overload::shed`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rxsteer_core::dissect::{AddrKind, Dissected, Fragment};
use rxsteer_core::steer::Class;
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_sockets::queue::{Credit, Datagram};
use rxsteer_sockets::{Cast, DeviceId, Found, Packet};

use super::frame::Frame;
use super::message::Message;
use super::socket::Sockets;
use crate::At;
use crate::overload::shed::Counts;
use crate::overload::{Key, Offer, Room, ShedSettings, Shedder, SourcePrefix, Ticket, Verdict};

/// How long look-ups go on after a socket was half full.
const AWAKE_NS: u64 = 10_000_000;

/// One packet of so many teaches while all sockets have room.
const LESSON: u32 = 8;

/// The hook that sheds, shared by all threads.
#[derive(Debug)]
pub(super) struct Shedding {
    shedder: Mutex<Shedder>,
    awake_until_ns: AtomicU64,
}

impl Shedding {
    pub(super) fn new(settings: ShedSettings, key: Key) -> Self {
        let shedder = Mutex::new(Shedder::new(settings, key));
        Self { shedder, awake_until_ns: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Shedder> {
        self.shedder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> Counts {
        *self.lock().counts()
    }

    /// Returns whether the hook must be asked about a packet; `lesson` is the thread's count.
    #[inline]
    pub(super) fn wants(&self, now_ns: u64, lesson: &mut u32) -> bool {
        *lesson += 1;
        now_ns < self.awake_until_ns.load(Ordering::Relaxed) || *lesson >= LESSON
    }

    /// Hears how full a socket is after a delivery.
    #[inline]
    pub(super) fn delivered(&self, credit: &Credit, now_ns: u64) {
        if Room::of(credit).is_half_full() {
            let until_ns = now_ns.saturating_add(AWAKE_NS);
            self.awake_until_ns.store(until_ns, Ordering::Relaxed);
        }
    }

    /// Decides about a frame of UDP that was dissected; returns whether it is refused.
    pub(super) fn refuses(
        &self,
        sockets: &Sockets,
        frame: &mut Frame,
        seen: &Dissected,
        hash: FlowHash,
        at: At,
        lesson: &mut u32,
    ) -> bool {
        let At { on, now_ns, .. } = at;
        *lesson = 0;
        let offer = Offer {
            socket: 0,
            hash,
            source: SourcePrefix::of(&seen.key),
            class: Class::Udp,
            known_flow: false,
            true_size: frame.held_len().saturating_add(Datagram::<Message>::OVERHEAD),
        };
        if now_ns >= self.awake_until_ns.load(Ordering::Relaxed) {
            self.lock().observe(&offer, now_ns);
            return false;
        }
        let payload = frame.bytes().get(usize::from(seen.payload_offset)..).unwrap_or_default();
        let found =
            packet(seen, on, payload).and_then(|packet| sockets.namespace().lookup(&packet));
        let Some(Found { socket: id, connected, .. }) = found else { return false };
        let room = sockets.with(id, |socket| Room::of(socket.queue.credit()));
        let Some(room) = room else { return false };
        let socket = id.index ^ id.generation.wrapping_mul(0x9e37_79b9);
        let offer = Offer { socket, known_flow: connected, ..offer };
        match self.lock().judge(&offer, &room, now_ns) {
            Verdict::Admit { ticket, protected } => {
                (frame.ticket, frame.protected) = (ticket, protected);
                false
            }
            Verdict::Shed(_) => true,
        }
    }

    /// Hears that frames reached the sockets.
    pub(super) fn reached<'a>(&self, frames: impl Iterator<Item = &'a Frame>) {
        let mut shedder = None;
        for ticket in frames.map(|frame| frame.ticket).filter(|ticket| !ticket.is_none()) {
            shedder.get_or_insert_with(|| self.lock()).reached(ticket);
        }
    }

    /// Hears that a frame was lost on its way.
    pub(super) fn lost(&self, ticket: Ticket) {
        if !ticket.is_none() {
            self.lock().lost(ticket);
        }
    }
}

/// Returns what a look-up needs of a packet for one host.
fn packet<'a>(seen: &Dissected, cpu: CpuId, payload: &'a [u8]) -> Option<Packet<'a>> {
    let key = &seen.key;
    let v4 = |[a, b, c, d, ..]: [u8; 16]| IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    let v6 = |address: [u8; 16]| IpAddr::V6(Ipv6Addr::from(address));
    let (src, dst) = match key.addr_kind {
        AddrKind::V4 => (v4(key.src), v4(key.dst)),
        AddrKind::V6 => (v6(key.src), v6(key.dst)),
        AddrKind::None | AddrKind::Tipc => return None,
    };
    let one_host = !dst.is_multicast() && dst != IpAddr::V4(Ipv4Addr::BROADCAST);
    // With a flow label in the key, Linux's dissector reads no ports.
    let has_ports = seen.fragment == Fragment::None && seen.ip_headers == 1 && key.dst_port != 0;
    (one_host && has_ports).then_some(Packet {
        src,
        src_port: key.src_port,
        dst,
        dst_port: key.dst_port,
        device: DeviceId(1),
        cpu,
        cast: Cast::Unicast,
        from_this_host: false,
        payload,
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
