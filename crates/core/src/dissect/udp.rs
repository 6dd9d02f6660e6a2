//! UDP, and the tunnels inside it that inner mode opens.
//!
//! Nothing in a datagram says what it carries, so the port decides, and a look at the header of
//! the tunnel itself where that has something to check. What does not look right is left as an
//! ordinary datagram: its key is the outer one.
//!
//! Source: the RFCs and specifications named at [`UdpTunnel`]; ports from the IANA registry.

use super::number::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ETHERTYPE_NSH, ETHERTYPE_TEB, PROTO_ESP,
    PROTO_GRE, next,
};
use super::walk::{Exit, Step, Walk, place};
use super::{Control, Detail, Layer, Observer, Tunnel, UdpTunnel};
use crate::Bytes;
use crate::bytes::View;

impl<'a, B: Bytes + ?Sized, O: Observer> Walk<'a, B, O> {
    /// UDP (RFC 768).
    #[inline(always)]
    pub(super) fn udp(&mut self) -> Step {
        self.ports(Layer::Udp)?;
        self.out.payload_offset = place(self.offset + 8);
        if !self.is_inner() {
            return Err(Exit::Stop);
        }
        let length = usize::from(self.view::<8>(self.offset)?.u16(4));
        if length < 8 {
            return Err(Exit::BadLength);
        }
        if self.options.outer_only {
            return Err(Exit::Stop);
        }
        let tunnel = self.tunnel_of_ports();
        if tunnel == UdpTunnel::None {
            return Err(Exit::Stop);
        }
        self.bound(length);
        self.go(next::udp(tunnel), 8)
    }

    /// Returns what the ports say that the datagram carries.
    #[inline(always)]
    fn tunnel_of_ports(&self) -> UdpTunnel {
        let (src, dst) = (self.out.key.src_port, self.out.key.dst_port);
        for rule in &self.options.ports {
            if rule.port == dst && dst != 0 {
                return rule.tunnel;
            }
        }
        match known_port(dst) {
            // These answer from their port; the others take it for entropy.
            UdpTunnel::None => match known_port(src) {
                both @ (UdpTunnel::GtpU
                | UdpTunnel::L2tp
                | UdpTunnel::WireGuard
                | UdpTunnel::EspInUdp
                | UdpTunnel::Teredo
                | UdpTunnel::Capwap
                | UdpTunnel::Ayiya) => both,
                _ => UdpTunnel::None,
            },
            tunnel => tunnel,
        }
    }

    /// Opens a tunnel.
    #[inline(always)]
    pub(super) fn udp_tunnel(&mut self, which: u32) -> Step {
        const VXLAN: u32 = next::udp(UdpTunnel::Vxlan);
        const VXLAN_GPE: u32 = next::udp(UdpTunnel::VxlanGpe);
        const GENEVE: u32 = next::udp(UdpTunnel::Geneve);
        const GTP_U: u32 = next::udp(UdpTunnel::GtpU);
        const L2TP: u32 = next::udp(UdpTunnel::L2tp);
        const WIREGUARD: u32 = next::udp(UdpTunnel::WireGuard);
        const ESP: u32 = next::udp(UdpTunnel::EspInUdp);
        const GRE: u32 = next::udp(UdpTunnel::GreInUdp);
        const MPLS: u32 = next::udp(UdpTunnel::MplsInUdp);
        const FOU: u32 = next::udp(UdpTunnel::Fou);
        const GUE: u32 = next::udp(UdpTunnel::Gue);
        const TEREDO: u32 = next::udp(UdpTunnel::Teredo);
        const LISP: u32 = next::udp(UdpTunnel::Lisp);
        const CAPWAP: u32 = next::udp(UdpTunnel::Capwap);
        const AYIYA: u32 = next::udp(UdpTunnel::Ayiya);
        match which {
            VXLAN => self.vxlan(),
            VXLAN_GPE => self.vxlan_gpe(),
            GENEVE => self.geneve(),
            GTP_U => self.gtp_u(),
            L2TP => self.l2tp(),
            WIREGUARD => self.wireguard(),
            ESP => self.esp_in_udp(),
            GRE => {
                self.out.tunnel = Tunnel::GreInUdp;
                self.decapsulate();
                self.go(next::protocol(PROTO_GRE), 0)
            }
            MPLS => self.go(next::ethertype(ETHERTYPE_MPLS), 0),
            FOU => {
                self.out.tunnel = Tunnel::Fou;
                self.go(next::ANY_IP, 0)
            }
            GUE => self.gue(),
            TEREDO => self.teredo(),
            LISP => {
                let header = self.view::<8>(self.offset)?;
                self.observe(Layer::Lisp, Detail::Id(header.u32(4) >> 8));
                self.out.tunnel = Tunnel::Lisp;
                self.go(next::ANY_IP, 8)
            }
            CAPWAP => self.capwap(),
            AYIYA => self.ayiya(),
            _ => Err(Exit::Stop),
        }
    }

    #[inline(always)]
    fn vxlan(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        self.observe(Layer::Vxlan, Detail::Id(header.u32(4) >> 8));
        self.out.tunnel = Tunnel::Vxlan;
        self.go(next::ETHERNET, 8)
    }

    #[inline(always)]
    fn vxlan_gpe(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        self.observe(Layer::Vxlan, Detail::Id(header.u32(4) >> 8));
        self.out.tunnel = Tunnel::Vxlan;
        match header.u8(3) {
            1 => self.go_ethertype(ETHERTYPE_IPV4, 8),
            2 => self.go_ethertype(ETHERTYPE_IPV6, 8),
            3 => self.go(next::ETHERNET, 8),
            4 => self.go_ethertype(ETHERTYPE_NSH, 8),
            5 => self.go_ethertype(ETHERTYPE_MPLS, 8),
            _ => Err(Exit::Stop),
        }
    }

    #[inline(always)]
    fn geneve(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        self.observe(Layer::Geneve, Detail::Id(header.u32(4) >> 8));
        self.out.tunnel = Tunnel::Geneve;
        if header.u8(0) >> 6 != 0 {
            return Err(Exit::BadTunnel);
        }
        let size = 8 + usize::from(header.u8(0) & 0x3f) * 4;
        let protocol = header.u16(2);
        if protocol == ETHERTYPE_TEB {
            return self.go(next::ETHERNET, size);
        }
        self.go_ethertype(protocol, size)
    }

    /// GTP-U version 1, and version 0 before it (3GPP TS 09.60): only message 255 carries a user's
    /// packet.
    #[inline(always)]
    fn gtp_u(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        let flags = header.u8(0);
        if flags >> 5 == 0 {
            self.observe(Layer::GtpU, Detail::None);
            self.out.tunnel = Tunnel::GtpU;
            if header.u8(1) != 255 {
                self.out.control = Control::GtpU;
                return Err(Exit::Stop);
            }
            self.bound(20 + usize::from(header.u16(2)));
            return self.go(next::ANY_IP, 20);
        }
        if flags & 0xf0 != 0x30 {
            return Err(Exit::Stop);
        }
        self.observe(Layer::GtpU, Detail::Id(header.u32(4)));
        self.out.tunnel = Tunnel::GtpU;
        if header.u8(1) != 255 {
            self.out.control = Control::GtpU;
            return Err(Exit::Stop);
        }
        self.bound(8 + usize::from(header.u16(2)));
        // Any of the three flags: sequence, N-PDU number and next extension are all there.
        if flags & 7 == 0 {
            return self.go(next::ANY_IP, 8);
        }
        let optional = self.view::<4>(self.offset + 8)?;
        let more = flags & 4 != 0 && optional.u8(3) != 0;
        self.go(if more { next::GTP_EXTENSION } else { next::ANY_IP }, 12)
    }

    /// An extension header of GTP-U: its length in units of four bytes comes first, the type of
    /// the next one last.
    #[inline(always)]
    pub(super) fn gtp_extension(&mut self) -> Step {
        let size = usize::from(self.view::<1>(self.offset)?.u8(0)) * 4;
        if size == 0 {
            return Err(Exit::BadLength);
        }
        let more = self.view::<1>(self.offset + size - 1)?.u8(0) != 0;
        self.go(if more { next::GTP_EXTENSION } else { next::ANY_IP }, size)
    }

    /// L2TP: version 2 carries PPP; version 3 has a cookie of unknown size.
    #[inline(always)]
    fn l2tp(&mut self) -> Step {
        let header = self.view::<6>(self.offset)?;
        let flags = header.u16(0);
        if flags & 15 != 2 && flags & 15 != 3 {
            return Err(Exit::Stop);
        }
        self.out.tunnel = Tunnel::L2tp;
        if flags & 0x8000 != 0 {
            let session = if flags & 0x4000 != 0 { self.view::<8>(self.offset)?.u16(6) } else { 0 };
            self.observe(Layer::L2tp, Detail::Id(u32::from(session)));
            self.out.control = Control::L2tp;
            return Err(Exit::Stop);
        }
        if flags & 15 == 3 {
            let session = self.view::<8>(self.offset)?.u32(4);
            self.observe(Layer::L2tpV3, Detail::Id(session));
            self.out.key.key_id = session;
            return Err(Exit::Stop);
        }
        let mut size = if flags & 0x4000 != 0 { 4 } else { 2 };
        let session = self.view::<4>(self.offset + size)?.u16(2);
        self.observe(Layer::L2tp, Detail::Id(u32::from(session)));
        self.out.key.key_id = u32::from(session);
        size += 4;
        if flags & 0x0800 != 0 {
            size += 4;
        }
        if flags & 0x0200 != 0 {
            size += 2 + usize::from(self.view::<2>(self.offset + size)?.u16(0));
        }
        self.go(next::PPP, size)
    }

    /// WireGuard: the message type and the receiver's index are all that can be read.
    #[inline(always)]
    fn wireguard(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        let [kind, 0, 0, 0] = header.u32(0).to_be_bytes() else {
            return Err(Exit::Stop);
        };
        // Little-endian, other than in the rest of the world.
        let index = match kind {
            1 | 3 | 4 => header.u32(4).swap_bytes(),
            2 => self.view::<12>(self.offset)?.u32(8).swap_bytes(),
            _ => return Err(Exit::Stop),
        };
        self.observe(Layer::WireGuard, Detail::Id(index));
        self.out.tunnel = Tunnel::WireGuard;
        self.out.wireguard_type = kind;
        self.out.wireguard_index = index;
        if kind != 4 {
            self.out.control = Control::WireGuard;
        }
        if self.options.wireguard_index && kind != 1 {
            self.out.key.key_id = index;
        }
        Err(Exit::Stop)
    }

    /// ESP in UDP (RFC 3948): four zero bytes mean IKE, one byte 0xff a keepalive.
    #[inline(always)]
    fn esp_in_udp(&mut self) -> Step {
        if let Ok(header) = self.view::<4>(self.offset) {
            let spi = header.u32(0);
            if spi == 0 {
                self.observe(Layer::UdpEncap, Detail::None);
                self.out.control = Control::Ike;
                return Err(Exit::Stop);
            }
            self.observe(Layer::UdpEncap, Detail::None);
            self.observe(Layer::Esp, Detail::Id(spi));
            self.decapsulate();
            self.out.tunnel = Tunnel::EspInUdp;
            self.out.key.protocol = PROTO_ESP;
            self.spi(spi);
            return Err(Exit::Stop);
        }
        self.view::<1>(self.offset)?;
        self.observe(Layer::UdpEncap, Detail::None);
        self.out.control = Control::NatKeepalive;
        Err(Exit::Stop)
    }

    /// Generic UDP encapsulation: variant 0 names an IP protocol, variant 1 is an IP packet.
    #[inline(always)]
    fn gue(&mut self) -> Step {
        let first = self.view::<1>(self.offset)?.u8(0);
        self.out.tunnel = Tunnel::Fou;
        if first >> 6 == 1 {
            return self.go(next::ANY_IP, 0);
        }
        let header = self.view::<4>(self.offset)?;
        self.observe(Layer::Gue, Detail::Next(header.u8(1)));
        // Another version, or a control message.
        if first & 0xe0 != 0 {
            return Err(Exit::Stop);
        }
        self.decapsulate();
        let protocol = header.u8(1);
        self.out.key.protocol = protocol;
        self.go_behind(protocol, 4 + usize::from(first & 0x1f) * 4)
    }

    /// Teredo (RFC 4380): authentication and origin indications may come before the packet.
    #[inline(always)]
    fn teredo(&mut self) -> Step {
        let start = self.offset;
        let mut size = 0;
        let header = self.view::<4>(start)?;
        let mut first = header.u16(0);
        if first == 1 {
            size = 13 + usize::from(header.u8(2)) + usize::from(header.u8(3));
            first = self.view::<2>(start + size)?.u16(0);
        }
        if first == 0 {
            size += 8;
            first = self.view::<2>(start + size)?.u16(0);
        }
        if first >> 12 != 6 {
            return Err(Exit::Stop);
        }
        self.observe(Layer::Teredo, Detail::None);
        self.out.tunnel = Tunnel::Teredo;
        self.go_ethertype(ETHERTYPE_IPV6, size)
    }

    /// CAPWAP data: only whole 802.3 frames are looked into.
    #[inline(always)]
    fn capwap(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        if header.u8(0) != 0 {
            // Encrypted by DTLS, or another version.
            return Err(Exit::Stop);
        }
        self.observe(Layer::Capwap, Detail::None);
        self.out.tunnel = Tunnel::Capwap;
        let word = header.u32(0);
        let size = (word >> 19 & 0x1f) as usize * 4;
        let is_wireless = word & 0x100 != 0;
        let is_fragment = word & 0x80 != 0;
        if is_wireless || is_fragment || size < 8 {
            return Err(Exit::Stop);
        }
        self.go(next::ETHERNET, size)
    }

    /// AYIYA: identity and signature have sizes of their own, then comes an IP protocol.
    #[inline(always)]
    fn ayiya(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        let identity = 1_usize << (header.u8(0) >> 4);
        let signature = usize::from(header.u8(1) >> 4) * 4;
        self.observe(Layer::Ayiya, Detail::None);
        self.out.tunnel = Tunnel::Ayiya;
        // Operation 1 forwards a packet; others run the tunnel.
        if header.u8(2) & 15 != 1 {
            return Err(Exit::Stop);
        }
        let size = 8 + identity + signature;
        match header.u8(3) {
            super::number::PROTO_IPV4 => self.go_ethertype(ETHERTYPE_IPV4, size),
            super::number::PROTO_IPV6 => self.go_ethertype(ETHERTYPE_IPV6, size),
            _ => Err(Exit::Stop),
        }
    }
}

/// Returns the tunnel that runs on a well-known port.
#[inline(always)]
const fn known_port(port: u16) -> UdpTunnel {
    match port {
        1701 => UdpTunnel::L2tp,
        // 3386: version 0. The control plane of version 1 is on 2123.
        2123 | 2152 | 3386 => UdpTunnel::GtpU,
        3544 => UdpTunnel::Teredo,
        4341 => UdpTunnel::Lisp,
        4500 => UdpTunnel::EspInUdp,
        4754 => UdpTunnel::GreInUdp,
        // 8472: what Linux takes when nothing else is said.
        4789 | 8472 => UdpTunnel::Vxlan,
        4790 => UdpTunnel::VxlanGpe,
        5072 => UdpTunnel::Ayiya,
        5247 => UdpTunnel::Capwap,
        6081 => UdpTunnel::Geneve,
        6635 => UdpTunnel::MplsInUdp,
        51820 => UdpTunnel::WireGuard,
        _ => UdpTunnel::None,
    }
}
