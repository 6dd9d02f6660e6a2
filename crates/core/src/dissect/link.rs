//! Headers below the network layer: Ethernet, tags, PPPoE, PPP, MPLS, HSR, batman-adv, TIPC.

use super::ip::set_short_address;
use super::number::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MIN, ETHERTYPE_MPLS, ETHERTYPE_MPLS_UPSTREAM,
    ETHERTYPE_PRP, LINUX_802_2, LINUX_802_3, next,
};
use super::walk::{Exit, MAX_TAGS, Step, Walk, place};
use super::{AddrKind, Control, Detail, Dissected, Layer, Observer, Tunnel, VlanHash};
use crate::Bytes;
use crate::bytes::View;

impl<'a, B: Bytes + ?Sized, O: Observer> Walk<'a, B, O> {
    /// Goes behind the Ethernet header at `offset`.
    #[inline(always)]
    pub(super) fn enter_ethernet(&mut self, header: B::View<'a, 14>) {
        self.observe(Layer::Ethernet, Detail::None);
        self.offset += 14;
        self.enter_network(header.u16(12));
    }

    /// Stands at the first network header, of this ethertype.
    #[inline(always)]
    pub(super) fn enter_network(&mut self, ethertype: u16) {
        if ethertype >= ETHERTYPE_MIN {
            self.out.key.ethertype = ethertype;
            self.next = next::ethertype(ethertype);
            return;
        }
        // Linux gives 802.3 frames one of two made-up ethertypes, by what stands behind the length.
        let is_raw = self.frame.u16(self.offset) == Some(0xffff);
        let linux = if is_raw { LINUX_802_3 } else { LINUX_802_2 };
        self.out.key.ethertype = linux;
        self.next = next::ethertype(linux);
        if self.is_inner() && !is_raw {
            self.next = next::LLC;
        }
    }

    /// Ethernet inside another header.
    #[inline(always)]
    pub(super) fn ethernet(&mut self) -> Step {
        let header = self.view::<14>(self.offset)?;
        self.observe(Layer::Ethernet, Detail::None);
        let ethertype = header.u16(12);
        self.out.key.ethertype = ethertype;
        let is_length = self.is_inner() && ethertype < ETHERTYPE_MIN;
        self.go(if is_length { next::LLC } else { next::ethertype(ethertype) }, 14)
    }

    /// IEEE 802.2, of which only SNAP with an ethertype (RFC 1042) is looked behind.
    #[inline(always)]
    pub(super) fn llc(&mut self) -> Step {
        let llc = self.view::<3>(self.offset)?;
        self.observe(Layer::Llc, Detail::None);
        if llc.u16(0) != 0xaaaa || llc.u8(2) != 3 {
            return Err(Exit::Stop);
        }
        let snap = self.view::<8>(self.offset)?;
        if snap.u8(3) != 0 || snap.u16(4) != 0 {
            return Err(Exit::Stop);
        }
        self.go_ethertype(snap.u16(6), 8)
    }

    /// IEEE 802.1Q or 802.1ad tag.
    #[inline(always)]
    pub(super) fn vlan(&mut self) -> Step {
        let tpid = self.next as u16;
        if self.is_inner() && self.out.vlan_tags >= MAX_TAGS {
            return Err(Exit::TooManyTags);
        }
        let header = self.view::<4>(self.offset)?;
        let tci = header.u16(0);
        let inner = header.u16(2);
        self.observe(Layer::Vlan, Detail::Vlan { tpid, tci });
        self.out.vlan_tags += 1;
        let in_key = match self.options.vlan {
            VlanHash::Tag => true,
            VlanHash::TagUnlessPriority => tci & 0xfff != 0,
            VlanHash::Ignore => false,
        };
        let key = &mut self.out.key;
        if in_key && key.vlan_tpid == 0 {
            // Linux leaves the drop-eligible bit out.
            key.vlan_tci = tci & 0xefff;
            key.vlan_tpid = tpid;
            key.vlan_inner_type = inner;
        }
        let is_length = self.is_inner() && inner < ETHERTYPE_MIN;
        self.go_ethertype(inner, 4)?;
        if is_length {
            self.next = next::LLC;
        }
        Ok(())
    }

    /// A tag of `size` bytes with the ethertype of what follows behind it.
    #[inline(always)]
    pub(super) fn tag(&mut self, size: usize) -> Step {
        let inner = self.view::<2>(self.offset + size)?.u16(0);
        self.observe(Layer::Tag, Detail::Number(self.next as u16));
        self.go_ethertype(inner, size + 2)
    }

    /// PPPoE discovery: control traffic of one session.
    #[inline(always)]
    pub(super) fn pppoe_discovery(&mut self) -> Step {
        self.out.control = Control::PppoeDiscovery;
        if self.is_inner() {
            let session = self.view::<4>(self.offset)?.u16(2);
            self.observe(Layer::PppoeDiscovery, Detail::Id(u32::from(session)));
            self.out.key.key_id = u32::from(session);
            Err(Exit::Stop)
        } else {
            self.stop_at(Layer::PppoeDiscovery)
        }
    }

    /// PPPoE session (RFC 2516): IP and MPLS are looked into, other PPP protocols are control.
    #[inline(always)]
    pub(super) fn pppoe(&mut self) -> Step {
        if self.is_inner() {
            return self.pppoe_inner();
        }
        let header = self.view::<8>(self.offset)?;
        if header.u16(0) != 0x1100 {
            return Err(Exit::BadPppoe);
        }
        self.observe(Layer::Pppoe, Detail::Id(u32::from(header.u16(2))));
        match ppp_ethertype(header.u16(6)) {
            Some(ethertype) => self.go_ethertype(ethertype, 8),
            None => {
                self.out.control = Control::Ppp;
                Err(Exit::Stop)
            }
        }
    }

    #[inline(always)]
    fn pppoe_inner(&mut self) -> Step {
        let header = self.view::<6>(self.offset)?;
        if header.u16(0) != 0x1100 {
            return Err(Exit::BadPppoe);
        }
        let session = u32::from(header.u16(2));
        self.observe(Layer::Pppoe, Detail::Id(session));
        self.out.key.key_id = session;
        // The length counts what follows the header; what lies behind it is padding.
        self.bound(6 + usize::from(header.u16(4)));
        self.go(next::PPP, 6)
    }

    /// PPP (RFC 1661), with address and control field or without, protocol compressed or not.
    #[inline(always)]
    pub(super) fn ppp(&mut self) -> Step {
        let mut size = 0;
        if let Ok(header) = self.view::<2>(self.offset)
            && header.u16(0) == 0xff03
        {
            size = 2;
        }
        let first = self.view::<1>(self.offset + size)?.u8(0);
        let protocol = if first & 1 == 1 {
            size += 1;
            u16::from(first)
        } else {
            let both = self.view::<2>(self.offset + size)?.u16(0);
            size += 2;
            both
        };
        self.observe(Layer::Ppp, Detail::Number(protocol));
        match ppp_ethertype(protocol) {
            Some(ethertype) => {
                self.out.key.key_id = 0;
                self.go_ethertype(ethertype, size)
            }
            None if protocol & 0x0101 == 1 => {
                self.out.control = Control::Ppp;
                Err(Exit::Stop)
            }
            None => Err(Exit::BadPpp),
        }
    }

    /// One MPLS label (RFC 3032). Linux looks at none; inner mode looks below the last.
    #[inline(always)]
    pub(super) fn mpls(&mut self) -> Step {
        if !self.is_inner() {
            self.out.tunnel = Tunnel::Mpls;
            return self.stop_at(Layer::Mpls);
        }
        let entry = self.view::<4>(self.offset)?.u32(0);
        let label = entry >> 12;
        self.observe(Layer::Mpls, Detail::Id(label));
        self.out.tunnel = Tunnel::Mpls;
        if entry & 0x100 == 0 {
            return self.go(self.next, 4);
        }
        // Below the generic associated channel label (13) there is no packet (RFC 5586), nor
        // below the OAM alert label (14, RFC 3429).
        if label == 13 || label == 14 {
            return Err(Exit::Stop);
        }
        self.go(next::BELOW_MPLS, 4)
    }

    /// What stands below the last label: nothing says it, so the first nibble is asked (RFC 4928).
    #[inline(always)]
    pub(super) fn below_mpls(&mut self) -> Step {
        let nibble = self.view::<1>(self.offset)?.u8(0) >> 4;
        match nibble {
            4 => self.go_ethertype(ETHERTYPE_IPV4, 0),
            6 => self.go_ethertype(ETHERTYPE_IPV6, 0),
            0 => {
                // An Ethernet pseudowire with control word (RFC 4448).
                self.view::<4>(self.offset)?;
                self.observe(Layer::PwControl, Detail::None);
                self.go(next::ETHERNET, 4)
            }
            _ => Err(Exit::Stop),
        }
    }

    /// An IP packet of the version that its first nibble says.
    #[inline(always)]
    pub(super) fn any_ip(&mut self) -> Step {
        match self.view::<1>(self.offset)?.u8(0) >> 4 {
            4 => self.go_ethertype(ETHERTYPE_IPV4, 0),
            6 => self.go_ethertype(ETHERTYPE_IPV6, 0),
            _ => Err(Exit::Stop),
        }
    }

    /// HSR or PRP tag (IEC 62439-3): six bytes, the ethertype of what follows at their end.
    #[inline(always)]
    pub(super) fn hsr(&mut self) -> Step {
        let inner = self.view::<6>(self.offset)?.u16(4);
        let is_prp = self.next == next::ethertype(ETHERTYPE_PRP);
        self.observe(if is_prp { Layer::Prp } else { Layer::Hsr }, Detail::None);
        self.go_ethertype(inner, 6)
    }

    /// batman-adv unicast packet (compatibility version 15): ten bytes, then Ethernet.
    #[inline(always)]
    pub(super) fn batman(&mut self) -> Step {
        let header = self.view::<24>(self.offset)?;
        self.observe(Layer::Batman, Detail::None);
        if header.u8(1) != 15 || header.u8(0) != 0x40 {
            return Err(Exit::BadBatman);
        }
        self.depth += 1;
        self.go(next::ETHERNET, 10)
    }

    /// TIPC: the fourth word, the node where the message comes from.
    #[inline(always)]
    pub(super) fn tipc(&mut self) -> Step {
        let header = self.view::<16>(self.offset)?;
        self.observe(Layer::Tipc, Detail::None);
        if header.u32(0) & TIPC_KEEPALIVE == TIPC_KEEPALIVE {
            self.out.flags |= Dissected::RANDOM;
        }
        let key = &mut self.out.key;
        // Linux hashes the four bytes behind its own along with it: those of an outer header.
        let [_, _, _, _, e, f, g, h, ..] = key.src;
        let [a, b, c, d, ..] = key.dst;
        let residue = match key.addr_kind {
            AddrKind::V4 => [a, b, c, d],
            AddrKind::V6 => [e, f, g, h],
            AddrKind::None | AddrKind::Tipc => [0; 4],
        };
        key.residue =
            if self.options.mode == super::Mode::Kernel { u32::from_be_bytes(residue) } else { 0 };
        key.src = [0; 16];
        key.dst = [0; 16];
        set_short_address(&mut key.src, header.u32(12));
        key.addr_kind = AddrKind::Tipc;
        self.out.network_offset = place(self.offset);
        Err(Exit::Stop)
    }
}

/// User 7 (link protocol) and the keep-alive bit in the first word of a TIPC header.
const TIPC_KEEPALIVE: u32 = 0x0e08_0000;

/// Returns the ethertype of what a PPP protocol number announces.
#[inline(always)]
fn ppp_ethertype(protocol: u16) -> Option<u16> {
    match protocol {
        0x0021 => Some(ETHERTYPE_IPV4),
        0x0057 => Some(ETHERTYPE_IPV6),
        0x0281 => Some(ETHERTYPE_MPLS),
        0x0283 => Some(ETHERTYPE_MPLS_UPSTREAM),
        _ => None,
    }
}
