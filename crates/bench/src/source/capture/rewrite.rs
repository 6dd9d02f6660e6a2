//! What is changed in a captured packet so that it arrives at the receiver of a pair.
//!
//! A packet for one host goes to the receiver: its Ethernet address, its IP address of that version. A
//! packet for a group stays as it is, and so does every source but those of the loopback device, which
//! IP takes from nobody else. What is inside a tunnel is not touched. Bytes that the capture does not have
//! can be filled in with zeroes, with a checksum over them in the outermost transport header.
//!
//! Always true: a packet is written out or has one reason why not; a checksum that was right is right
//! afterwards, and a wrong one over bytes that are all there stays wrong.
//! Elsewhere: sums over changed words ([`crate::traffic::Places`]).
//! Source: RFC 1122, section 3.2.1.3 (addresses of loopback); RFC 1624.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rxsteer_core::dissect::{AddrKind, Dissected, Fragment, Mode, Options, Start, dissect};
use rxsteer_lab::capture::Packet;
use rxsteer_testbed::Pair;
use serde::Serialize;

use crate::traffic::{Checksum, Link, Places, checksum_over};

const ETHERNET_LEN: usize = 14;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
/// What a VLAN tag adds to the longest frame.
const TAG_LEN: usize = 4;
const ETHERTYPE_CTAG: u16 = 0x8100;
const ETHERTYPE_STAG: u16 = 0x88a8;
/// Smallest number in an ethertype field that is an ethertype (IEEE 802.3, clause 3.2.6).
const ETHERTYPE_MIN: u16 = 0x0600;

/// Only the outermost headers, with the ports of a first fragment.
const OUTER: Options =
    Options { outer_only: true, walk_first_fragment: true, ..Options::new(Mode::Inner) };

/// Packets in which something was changed, each counted once for each change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Rewritten {
    /// An Ethernet header was put in the place of another link header, or of none.
    pub link_headers: u64,
    /// The Ethernet address of the receiver was written.
    pub ethernet: u64,
    /// The IP address of the receiver was written.
    pub destinations: u64,
    /// A source of the loopback device became the address of the sender.
    pub sources: u64,
    /// Bytes that the capture does not have were filled in with zeroes.
    pub padded: u64,
}

/// Packets of a capture that were not sent, each with its reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Unsent {
    /// The capture has not all of their bytes, and they were not to be filled in.
    pub truncated: u64,
    /// Longer than the link takes.
    pub too_long: u64,
    /// Not even an Ethernet header.
    pub too_short: u64,
    /// Of a link type, or with a link header, that leads to no ethertype.
    pub no_ethertype: u64,
    /// Read before the run was ended, and not sent any more.
    pub left: u64,
}

impl Unsent {
    /// Returns all of them.
    pub fn total(&self) -> u64 {
        self.truncated + self.too_long + self.too_short + self.no_ethertype + self.left
    }
}

/// Writes captured packets as frames for a pair.
pub(super) struct Rewriter {
    link: Link,
    /// Most bytes of an IP packet.
    mtu: usize,
    /// Whether bytes that the capture does not have are filled in.
    pads: bool,
    pub(super) rewritten: Rewritten,
    pub(super) unsent: Unsent,
}

impl Rewriter {
    pub(super) fn new(link: Link, mtu: u32, pads: bool) -> Self {
        let (rewritten, unsent) = Default::default();
        Self { link, mtu: mtu as usize, pads, rewritten, unsent }
    }

    /// Returns the bytes of the longest frame.
    pub(super) fn longest(&self) -> usize {
        self.mtu + ETHERNET_LEN + TAG_LEN
    }

    /// Writes a packet as a frame; returns whether it can be sent, and counts why not.
    pub(super) fn write(&mut self, packet: &Packet<'_>, frame: &mut Vec<u8>) -> bool {
        frame.clear();
        let Ok((start, offset)) = packet.link.start(packet.data) else {
            self.unsent.no_ethertype += 1;
            return false;
        };
        let has_ethernet = match start {
            Start::Ethernet => true,
            Start::Network { ethertype: ETHERTYPE_MIN.., .. } => false,
            // Without an ethertype of its own: a length, in a frame of IEEE 802.3.
            Start::Network { .. } => {
                self.unsent.no_ethertype += 1;
                return false;
            }
        };
        let missing = packet.orig_len.saturating_sub(packet.cap_len) as usize;
        if missing > 0 && !self.pads {
            self.unsent.truncated += 1;
            return false;
        }
        if let Start::Network { ethertype, .. } = start {
            frame.extend(self.link.sink);
            frame.extend(self.link.source);
            frame.extend(ethertype.to_be_bytes());
        }
        let body = &packet.data[offset..];
        if has_ethernet && body.len() < ETHERNET_LEN {
            self.unsent.too_short += 1;
            return false;
        }
        let ethertype = if has_ethernet { body } else { &frame[..] };
        let tagged = matches!(
            u16::from_be_bytes([ethertype[12], ethertype[13]]),
            ETHERTYPE_CTAG | ETHERTYPE_STAG
        );
        let room = self.longest() - if tagged { 0 } else { TAG_LEN };
        if frame.len() + body.len() + missing > room {
            self.unsent.too_long += 1;
            return false;
        }
        frame.extend(body);
        frame.resize(frame.len() + missing, 0);
        self.rewritten.padded += u64::from(missing > 0);
        let is_group = frame[0] & 1 != 0;
        if !has_ethernet {
            self.rewritten.link_headers += 1;
        } else if !is_group && frame[..6] != self.link.sink {
            frame[..6].copy_from_slice(&self.link.sink);
            self.rewritten.ethernet += 1;
        }
        self.readdress(frame, is_group, missing > 0);
        true
    }

    /// Writes the addresses of the outermost IP header, and the checksum of what was filled in.
    fn readdress(&mut self, frame: &mut [u8], is_group: bool, is_padded: bool) {
        let mut seen = Dissected::EMPTY;
        // What is faulty behind the IP header is not our matter.
        let _ = dissect(&*frame, Start::Ethernet, &OUTER, &mut seen);
        if seen.ip_headers == 0 {
            return;
        }
        let at = usize::from(seen.outer_offset);
        let is_v4 = seen.key.addr_kind == AddrKind::V4;
        if frame.len() < at + if is_v4 { V4_LEN } else { V6_LEN } {
            return;
        }
        let checksum = transport_checksum(&seen, frame);
        if !is_group {
            self.exchange_both(frame, at, is_v4, checksum);
        }
        if is_padded && let Some(checksum) = checksum {
            sum_up(frame, &seen, checksum);
        }
    }

    fn exchange_both(
        &mut self,
        frame: &mut [u8],
        at: usize,
        is_v4: bool,
        checksum: Option<Checksum>,
    ) {
        let from = address(frame, at, is_v4, false);
        let to = address(frame, at, is_v4, true);
        let (source, sink): (IpAddr, IpAddr) = if is_v4 {
            (Pair::SOURCE_V4.into(), Pair::SINK_V4.into())
        } else {
            (Pair::SOURCE_V6.into(), Pair::SINK_V6.into())
        };
        let is_for_all = to == IpAddr::V4(Ipv4Addr::BROADCAST);
        if to != sink && !to.is_multicast() && !is_for_all {
            exchange(frame, at, true, sink, checksum);
            self.rewritten.destinations += 1;
        }
        if from.is_loopback() {
            exchange(frame, at, false, source, checksum);
            self.rewritten.sources += 1;
        }
    }
}

/// Returns an address of the IP header at this place, which is all there.
fn address(frame: &[u8], at: usize, is_v4: bool, is_destination: bool) -> IpAddr {
    let place = address_place(at, is_v4, is_destination);
    if is_v4 {
        let bytes: [u8; 4] = *frame[place..].first_chunk().expect("the header is all there");
        Ipv4Addr::from(bytes).into()
    } else {
        let bytes: [u8; 16] = *frame[place..].first_chunk().expect("the header is all there");
        Ipv6Addr::from(bytes).into()
    }
}

fn address_place(at: usize, is_v4: bool, is_destination: bool) -> usize {
    match (is_v4, is_destination) {
        (true, false) => at + 12,
        (true, true) => at + 16,
        (false, false) => at + 8,
        (false, true) => at + 24,
    }
}

/// Writes an address and mends the checksums over it.
fn exchange(
    frame: &mut [u8],
    at: usize,
    is_destination: bool,
    new: IpAddr,
    checksum: Option<Checksum>,
) {
    let place = address_place(at, new.is_ipv4(), is_destination);
    let places =
        |address, ip_checksum| Places { address, ip_checksum, checksum, ..Places::default() };
    match new {
        IpAddr::V4(new) => places(place, Some(at + 10)).write(frame, new.octets(), 0),
        IpAddr::V6(new) => {
            for (word, bytes) in new.octets().as_chunks::<4>().0.iter().enumerate() {
                places(place + 4 * word, None).write(frame, *bytes, 0);
            }
        }
    }
}

/// Returns the checksum that covers the addresses, if there is one in this packet.
///
/// Source: RFC 9293 (TCP), RFC 768 and 3828 (UDP, UDP-Lite), RFC 4340 (DCCP), RFC 4443 (ICMPv6).
fn transport_checksum(seen: &Dissected, frame: &[u8]) -> Option<Checksum> {
    if matches!(seen.fragment, Fragment::Middle | Fragment::Last) {
        return None;
    }
    let (behind, is_udp) = match seen.key.protocol {
        6 => (16, false),
        17 | 136 => (6, true),
        33 => (6, false),
        58 => (2, false),
        _ => return None,
    };
    let at = usize::from(seen.transport_offset) + behind;
    let sum = frame.get(at..at + 2)?;
    // Over UDP 0 is no checksum.
    (!is_udp || sum != [0, 0]).then_some(Checksum { at, is_udp })
}

/// Writes the checksum of a whole datagram anew, as far as the IP header says where it ends.
fn sum_up(frame: &mut [u8], seen: &Dissected, checksum: Checksum) {
    let at = usize::from(seen.outer_offset);
    let transport = usize::from(seen.transport_offset);
    let word = |place: usize| usize::from(u16::from_be_bytes([frame[place], frame[place + 1]]));
    let (end, addresses) = match seen.key.addr_kind {
        AddrKind::V4 => (at + word(at + 2), at + 12..at + V4_LEN),
        _ => (at + V6_LEN + word(at + 4), at + 8..at + V6_LEN),
    };
    // Of a fragment it is over bytes that are in other packets.
    if seen.fragment != Fragment::None || end < checksum.at + 2 || end > frame.len() {
        return;
    }
    frame[checksum.at..checksum.at + 2].fill(0);
    let len = ((end - transport) as u32).to_be_bytes();
    let protocol = [0, seen.key.protocol];
    let pieces = [&frame[addresses], &len, &protocol, &frame[transport..end]];
    let sum = match checksum_over(&pieces) {
        0 if checksum.is_udp => 0xffff,
        sum => sum,
    };
    frame[checksum.at..checksum.at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests;
