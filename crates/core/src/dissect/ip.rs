//! IPv4, IPv6 and the extension headers of IPv6.

use super::number::ETHERTYPE_MPLS;
use super::number::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTO_AH, PROTO_DCCP, PROTO_DEST_OPTIONS, PROTO_ESP,
    PROTO_ETHERIP, PROTO_ETHERNET, PROTO_FRAGMENT, PROTO_GRE, PROTO_HIP, PROTO_HOP_BY_HOP,
    PROTO_ICMP, PROTO_ICMPV6, PROTO_IPCOMP, PROTO_L2TP, PROTO_MOBILITY, PROTO_MPLS, PROTO_ROUTING,
    PROTO_SCTP, PROTO_SHIM6, PROTO_TCP, PROTO_UDP, PROTO_UDPLITE, next,
};
use super::walk::{Exit, KERNEL_DEPTH, Step, Walk, place};
use super::{AddrKind, Detail, Dissected, Fragment, IpDetail, Layer, Observer, Tunnel};
use crate::Bytes;
use crate::bytes::View;

impl<'a, B: Bytes + ?Sized, O: Observer> Walk<'a, B, O> {
    /// IPv4 (RFC 791).
    #[inline(always)]
    pub(super) fn ipv4(&mut self) -> Step {
        self.enter_ip_in_ip(ETHERTYPE_IPV4)?;
        let header = self.view::<20>(self.offset)?;
        let first = header.u8(0);
        if self.is_inner() && first >> 4 != 4 {
            return Err(Exit::BadVersion);
        }
        let size = usize::from(first & 15) * 4;
        if size < 20 {
            return Err(Exit::BadIhl);
        }
        self.enter_ip();
        let fragment = header.u16(6);
        let protocol = header.u8(9);
        let key = &mut self.out.key;
        key.protocol = protocol;
        if matches!(key.addr_kind, AddrKind::V6) {
            // Linux hashes four bytes behind the IPv4 addresses: here those of the IPv6 source.
            let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = key.src;
            key.residue = match self.options.mode {
                super::Mode::Kernel => u32::from_be_bytes([a, b, c, d]),
                super::Mode::Inner => 0,
            };
            // Everything else leaves the bytes behind the first four at 0.
            key.src = [0; 16];
            key.dst = [0; 16];
        }
        key.addr_kind = AddrKind::V4;
        set_short_address(&mut key.src, header.u32(12));
        set_short_address(&mut key.dst, header.u32(16));
        if O::ENABLED {
            let detail = IpDetail {
                src: self.out.key.src,
                dst: self.out.key.dst,
                addr_kind: AddrKind::V4,
                protocol,
                fragment_offset: (fragment & 0x1fff) << 3,
                more_fragments: fragment & 0x2000 != 0,
                label: 0,
            };
            self.observe(Layer::Ipv4, Detail::Ip(detail));
        }
        if self.is_inner() {
            let total = usize::from(header.u16(2));
            // 0: a large segment, longer than the field can say.
            if total != 0 {
                if total < size {
                    return Err(Exit::BadLength);
                }
                self.bound(total);
            }
        }
        self.offset += size;
        self.out.transport_offset = place(self.offset);
        self.next = next::protocol(protocol);
        if fragment & 0x3fff != 0 {
            self.out.fragment_id = u32::from(header.u16(4));
            return self.fragment(Fragment::new(fragment & 0x1fff, fragment & 0x2000 != 0));
        }
        Ok(())
    }

    /// IPv6 (RFC 8200).
    #[inline(always)]
    pub(super) fn ipv6(&mut self) -> Step {
        self.enter_ip_in_ip(ETHERTYPE_IPV6)?;
        let header = self.view::<40>(self.offset)?;
        let first = header.u32(0);
        if self.is_inner() && first >> 28 != 6 {
            return Err(Exit::BadVersion);
        }
        self.enter_ip();
        let protocol = header.u8(6);
        let label = first & 0x000f_ffff;
        self.out.label = label;
        let key = &mut self.out.key;
        key.protocol = protocol;
        key.residue = 0;
        key.addr_kind = AddrKind::V6;
        key.src = header.b16(8);
        key.dst = header.b16(24);
        if O::ENABLED {
            let detail = IpDetail {
                src: self.out.key.src,
                dst: self.out.key.dst,
                addr_kind: AddrKind::V6,
                protocol,
                fragment_offset: 0,
                more_fragments: false,
                label,
            };
            self.observe(Layer::Ipv6, Detail::Ip(detail));
        }
        if self.is_inner() {
            let payload = usize::from(header.u16(4));
            // 0 before hop-by-hop options: a jumbogram (RFC 2675) or a large segment.
            if payload != 0 || protocol != PROTO_HOP_BY_HOP {
                self.bound(40 + payload);
            }
        }
        self.offset += 40;
        self.out.transport_offset = place(self.offset);
        self.next = next::protocol(protocol);
        if label != 0 && !self.is_inner() && !self.options.ignore_flow_label {
            return self.stop_at_label(label, protocol);
        }
        Ok(())
    }

    /// Linux stops at a flow label. The ports are still read for the outermost header, since a
    /// device hashes them all the same.
    #[inline(always)]
    fn stop_at_label(&mut self, label: u32, protocol: u8) -> Step {
        self.out.key.flow_label = label;
        if self.out.ip_headers == 1 {
            self.out.save_outer();
            if matches!(protocol, PROTO_TCP | PROTO_UDP | PROTO_SCTP)
                && let Some(ports) = self.frame.u32(self.offset)
            {
                self.out.saved_outer.src_port = (ports >> 16) as u16;
                self.out.saved_outer.dst_port = ports as u16;
            }
        }
        Err(Exit::Stop)
    }

    /// Notes an IP header: a second one makes what was read so far the outer one.
    #[inline(always)]
    fn enter_ip(&mut self) {
        if self.out.ip_headers == 0 {
            self.out.outer_offset = place(self.offset);
        } else {
            self.decapsulate();
            if self.is_inner() {
                // Nothing of the outer transport belongs to the inner flow.
                let key = &mut self.out.key;
                key.src_port = 0;
                key.dst_port = 0;
                key.key_id = 0;
                self.out.flags &= !(Dissected::PORTS | Dissected::FRAGMENT);
                self.out.fragment = Fragment::None;
                self.out.tcp_flags = 0;
                self.out.control = super::Control::None;
            }
        }
        self.out.ip_headers = self.out.ip_headers.wrapping_add(1);
        self.out.network_offset = place(self.offset);
    }

    /// Keeps the outermost endpoints before the key becomes that of something inside.
    #[inline(always)]
    pub(super) fn decapsulate(&mut self) {
        if self.out.flags & Dissected::SAVED_OUTER == 0 {
            self.out.save_outer();
        }
    }

    /// Stops at a fragment, or goes on behind the first one where that is asked for.
    #[inline(always)]
    fn fragment(&mut self, fragment: Fragment) -> Step {
        self.out.fragment = fragment;
        self.out.flags |= Dissected::FRAGMENT;
        match fragment {
            Fragment::None | Fragment::First if self.options.walk_first_fragment => Ok(()),
            _ => Err(Exit::Stop),
        }
    }

    /// A header that an IP protocol number announces, other than TCP and UDP.
    #[inline(always)]
    pub(super) fn protocol(&mut self, protocol: u8) -> Step {
        let is_v6 = self.out.key.ethertype == ETHERTYPE_IPV6;
        match protocol {
            PROTO_HOP_BY_HOP if is_v6 => self.extension(Layer::HopByHop),
            PROTO_ROUTING if is_v6 => self.extension(Layer::Routing),
            PROTO_DEST_OPTIONS if is_v6 => self.extension(Layer::DestOptions),
            PROTO_FRAGMENT if is_v6 => self.fragment_header(),
            PROTO_ICMP => self.icmp(Layer::Icmp),
            PROTO_ICMPV6 => self.icmp(Layer::Icmpv6),
            PROTO_ESP => self.esp(),
            PROTO_AH => self.ah(),
            PROTO_DCCP => self.ports_only(Layer::Dccp),
            PROTO_SCTP => self.ports_only(Layer::Sctp),
            PROTO_UDPLITE => self.ports_only(Layer::UdpLite),
            PROTO_GRE | PROTO_MPLS | PROTO_ETHERIP | PROTO_ETHERNET | PROTO_L2TP
                if self.options.outer_only =>
            {
                Err(Exit::Stop)
            }
            PROTO_GRE => self.gre(),
            PROTO_MPLS => {
                self.out.tunnel = Tunnel::Mpls;
                self.go_ethertype(ETHERTYPE_MPLS, 0)
            }
            _ if self.is_inner() => self.inner_protocol(protocol, is_v6),
            _ => self.other_protocol(protocol),
        }
    }

    /// A header that Linux does not look behind.
    #[inline(always)]
    fn inner_protocol(&mut self, protocol: u8, is_v6: bool) -> Step {
        match protocol {
            // Nothing is carried behind these two (RFC 6275 and RFC 7401: next header 59).
            PROTO_MOBILITY => self.ends_chain(Layer::Mobility),
            PROTO_HIP => self.ends_chain(Layer::Hip),
            PROTO_SHIM6 if is_v6 => self.extension(Layer::Shim6),
            PROTO_ETHERIP => self.ether_ip(),
            PROTO_ETHERNET => {
                self.out.tunnel = Tunnel::EtherIp;
                self.go(next::ETHERNET, 0)
            }
            PROTO_L2TP => self.l2tp_v3(),
            PROTO_IPCOMP => self.ipcomp(),
            _ => self.other_protocol(protocol),
        }
    }

    #[inline(always)]
    fn ends_chain(&mut self, layer: Layer) -> Step {
        self.out.payload_offset = place(self.offset);
        self.stop_at(layer)
    }

    #[inline(always)]
    fn other_protocol(&mut self, protocol: u8) -> Step {
        self.observe(Layer::OtherProtocol, Detail::Number(u16::from(protocol)));
        self.out.payload_offset = place(self.offset);
        Err(Exit::Stop)
    }

    /// Notes that the IP header here follows another one directly. One step of the loop then does
    /// for both.
    #[inline(always)]
    fn enter_ip_in_ip(&mut self, ethertype: u16) -> Step {
        if next::as_protocol(self.next).is_none() {
            return Ok(());
        }
        if self.options.outer_only {
            return Err(Exit::Stop);
        }
        self.out.tunnel = Tunnel::IpInIp;
        self.out.key.ethertype = ethertype;
        self.depth += 1;
        if !self.is_inner() && self.depth > KERNEL_DEPTH {
            return Err(Exit::TooDeep);
        }
        Ok(())
    }

    /// An IPv6 extension header whose second byte is its length in units of eight bytes.
    #[inline(always)]
    fn extension(&mut self, layer: Layer) -> Step {
        let header = self.view::<2>(self.offset)?;
        let following = header.u8(0);
        self.observe(layer, Detail::Next(following));
        self.out.key.protocol = following;
        self.depth += 1;
        self.go_behind(following, (usize::from(header.u8(1)) + 1) * 8)
    }

    /// Goes on to the protocol behind an extension header of `size` bytes.
    #[inline(always)]
    pub(super) fn go_behind(&mut self, protocol: u8, size: usize) -> Step {
        self.go(next::protocol(protocol), size)?;
        self.out.transport_offset = place(self.offset);
        Ok(())
    }

    /// IPv6 fragment header. Linux stops here; inner mode reads on if it says that the datagram is
    /// whole (RFC 6946).
    #[inline(always)]
    fn fragment_header(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        let following = header.u8(0);
        let place = header.u16(2);
        let id = header.u32(4);
        let more = place & 1 != 0;
        self.observe(
            Layer::FragmentHeader,
            Detail::Fragment { next: following, offset: place & 0xfff8, more, id },
        );
        self.out.key.protocol = following;
        self.out.fragment_id = id;
        self.go_behind(following, 8)?;
        let fragment = match Fragment::new(place >> 3, more) {
            Fragment::None if self.is_inner() => return Ok(()),
            Fragment::None => Fragment::First,
            other => other,
        };
        self.fragment(fragment)
    }
}

/// Puts four bytes, as a big-endian number, where an address stands, and leaves the others.
#[inline(always)]
pub(super) fn set_short_address(place: &mut [u8; 16], address: u32) {
    if let Some(first) = place.first_chunk_mut::<4>() {
        *first = address.to_be_bytes();
    }
}
