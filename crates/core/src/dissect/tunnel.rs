//! Encapsulations that an IP protocol or an ethertype announces.

use super::number::{
    ETHERTYPE_ERSPAN, ETHERTYPE_ERSPAN3, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS,
    ETHERTYPE_NSH, ETHERTYPE_PPP, ETHERTYPE_TEB, ETHERTYPE_WCCP, next,
};
use super::walk::{Exit, Step, Walk, place};
use super::{Detail, Layer, Observer, Tunnel};
use crate::Bytes;
use crate::bytes::View;

const GRE_CHECKSUM: u16 = 0x8000;
const GRE_ROUTING: u16 = 0x4000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;
const GRE_ACK: u16 = 0x0080;
const GRE_VERSION: u16 = 0x0007;

impl<'a, B: Bytes + ?Sized, O: Observer> Walk<'a, B, O> {
    /// GRE versions 0 (RFC 2784, RFC 2890) and 1 (RFC 2637).
    #[inline(always)]
    pub(super) fn gre(&mut self) -> Step {
        let header = self.view::<4>(self.offset)?;
        let flags = header.u16(0);
        let protocol = header.u16(2);
        let version = flags & GRE_VERSION;
        let (layer, tunnel) =
            if version == 1 { (Layer::Pptp, Tunnel::Pptp) } else { (Layer::Gre, Tunnel::Gre) };
        self.out.tunnel = tunnel;
        if flags & GRE_ROUTING != 0 {
            self.observe(layer, Detail::None);
            return Err(Exit::GreRouting);
        }
        if version > 1 {
            self.observe(layer, Detail::None);
            return Err(Exit::BadGreVersion);
        }
        self.out.key.ethertype = protocol;
        let mut size = 4;
        if version == 1 && (protocol != ETHERTYPE_PPP || flags & GRE_KEY == 0) {
            self.observe(layer, Detail::None);
            return Err(Exit::BadPptp);
        }
        if flags & GRE_CHECKSUM != 0 {
            size += 4;
        }
        if flags & GRE_KEY != 0 {
            let key = self.view::<4>(self.offset + size)?.u32(0);
            // Version 1: payload length in the high half, call id in the low one.
            self.out.key.key_id = if version == 0 { key } else { key & 0xffff };
            self.observe(layer, Detail::Id(key));
            size += 4;
        } else {
            self.observe(layer, Detail::None);
        }
        if flags & GRE_SEQUENCE != 0 {
            size += 4;
        }
        if version == 1 {
            return self.pptp(flags, size);
        }
        self.depth += 1;
        if protocol == ETHERTYPE_TEB {
            return self.go(next::ETHERNET, size);
        }
        if self.is_inner() {
            return self.gre_payload(protocol, size, flags & GRE_SEQUENCE != 0);
        }
        self.go(next::ethertype(protocol), size)
    }

    /// Goes on to what only inner mode looks into.
    #[inline(always)]
    fn gre_payload(&mut self, protocol: u16, size: usize, has_sequence: bool) -> Step {
        match protocol {
            ETHERTYPE_ERSPAN | ETHERTYPE_ERSPAN3 => self.erspan(protocol, size, has_sequence),
            ETHERTYPE_PPP => self.go(next::PPP, size),
            // Version 2 of WCCP puts four bytes of its own before the packet.
            ETHERTYPE_WCCP => {
                let first = self.view::<1>(self.offset + size)?.u8(0);
                self.out.key.ethertype = ETHERTYPE_IPV4;
                self.go(next::IPV4, if first >> 4 == 4 { size } else { size + 4 })
            }
            _ => self.go(next::ethertype(protocol), size),
        }
    }

    /// The PPP frame in GRE version 1. Linux reads the last two bytes of a four-byte PPP header;
    /// inner mode reads compressed ones as well.
    #[inline(always)]
    fn pptp(&mut self, flags: u16, mut size: usize) -> Step {
        if flags & GRE_ACK != 0 {
            size += 4;
        }
        if self.is_inner() {
            return self.go(next::PPP, size);
        }
        let ethertype = match self.view::<4>(self.offset + size)?.u16(2) {
            0x0021 => ETHERTYPE_IPV4,
            0x0057 => ETHERTYPE_IPV6,
            _ => ETHERTYPE_PPP,
        };
        if ethertype == ETHERTYPE_PPP {
            self.out.control = super::Control::Ppp;
        }
        self.go_ethertype(ethertype, size + 4)
    }

    /// ERSPAN: type I has no header (no GRE sequence), type II eight bytes, type III twelve and
    /// eight more if its optional part is there.
    #[inline(always)]
    fn erspan(&mut self, protocol: u16, size: usize, has_sequence: bool) -> Step {
        self.offset += size;
        self.out.tunnel = Tunnel::Erspan;
        if !has_sequence && protocol == ETHERTYPE_ERSPAN {
            self.observe(Layer::Erspan, Detail::None);
            return self.go(next::ETHERNET, 0);
        }
        let header = self.view::<4>(self.offset)?;
        self.observe(Layer::Erspan, Detail::Id(header.u32(0) & 0x3ff));
        let mut size = 8;
        if protocol == ETHERTYPE_ERSPAN3 {
            size = 12;
            if self.view::<12>(self.offset)?.u8(11) & 1 != 0 {
                size = 20;
            }
        }
        self.go(next::ETHERNET, size)
    }

    /// Ethernet in IP (RFC 3378).
    #[inline(always)]
    pub(super) fn ether_ip(&mut self) -> Step {
        let version = self.view::<2>(self.offset)?.u8(0) >> 4;
        self.observe(Layer::EtherIp, Detail::None);
        self.out.tunnel = Tunnel::EtherIp;
        if version != 3 {
            return Err(Exit::BadTunnel);
        }
        self.go(next::ETHERNET, 2)
    }

    /// L2TP version 3 directly in IP (RFC 3931): without the cookie's size the payload cannot be
    /// found, so the session decides.
    #[inline(always)]
    pub(super) fn l2tp_v3(&mut self) -> Step {
        let session = self.view::<4>(self.offset)?.u32(0);
        self.observe(Layer::L2tpV3, Detail::Id(session));
        self.out.tunnel = Tunnel::L2tp;
        self.out.payload_offset = place(self.offset);
        if session == 0 {
            self.out.control = super::Control::L2tp;
        } else {
            self.out.key.key_id = session;
        }
        Err(Exit::Stop)
    }

    /// Compressed payload (RFC 3173): not readable.
    #[inline(always)]
    pub(super) fn ipcomp(&mut self) -> Step {
        let header = self.view::<4>(self.offset)?;
        self.observe(Layer::IpComp, Detail::Id(u32::from(header.u16(2))));
        self.out.tunnel = Tunnel::IpComp;
        self.out.payload_offset = place(self.offset);
        Err(Exit::Stop)
    }

    /// ESP (RFC 4303): the SPI stands in for the ports; what follows is encrypted.
    #[inline(always)]
    pub(super) fn esp(&mut self) -> Step {
        let spi = self.view::<4>(self.offset)?.u32(0);
        self.observe(Layer::Esp, Detail::Id(spi));
        self.out.tunnel = Tunnel::Esp;
        self.spi(spi);
        Err(Exit::Stop)
    }

    /// AH (RFC 4302): the SPI stands in for the ports. Inner mode goes on to what AH protects;
    /// its length counts units of four bytes, other than that of IPv6 extension headers.
    #[inline(always)]
    pub(super) fn ah(&mut self) -> Step {
        self.out.tunnel = Tunnel::Ah;
        if !self.is_inner() {
            let spi = self.view::<4>(self.offset + 4)?.u32(0);
            self.observe(Layer::Ah, Detail::Id(spi));
            self.spi(spi);
            return Err(Exit::Stop);
        }
        let header = self.view::<8>(self.offset)?;
        let spi = header.u32(4);
        let following = header.u8(0);
        self.observe(Layer::Ah, Detail::Id(spi));
        self.spi(spi);
        if self.options.outer_only && following == super::number::PROTO_IPV4 {
            return Err(Exit::Stop);
        }
        self.out.key.protocol = following;
        self.go_behind(following, (usize::from(header.u8(1)) + 2) * 4)
    }

    /// Puts an SPI where the ports stand.
    #[inline(always)]
    pub(super) fn spi(&mut self, spi: u32) {
        self.out.key.src_port = (spi >> 16) as u16;
        self.out.key.dst_port = spi as u16;
        self.out.transport_offset = place(self.offset);
        self.out.payload_offset = place(self.offset);
    }

    /// Network service header (RFC 8300).
    #[inline(always)]
    pub(super) fn nsh(&mut self) -> Step {
        let header = self.view::<8>(self.offset)?;
        self.observe(Layer::Nsh, Detail::Id(header.u32(4) >> 8));
        self.out.tunnel = Tunnel::Nsh;
        let size = usize::from(header.u8(1) & 0x3f) * 4;
        if header.u8(0) >> 6 != 0 || size < 8 {
            return Err(Exit::BadTunnel);
        }
        match header.u8(3) {
            1 => self.go_ethertype(ETHERTYPE_IPV4, size),
            2 => self.go_ethertype(ETHERTYPE_IPV6, size),
            3 => self.go(next::ETHERNET, size),
            4 => self.go_ethertype(ETHERTYPE_NSH, size),
            5 => self.go_ethertype(ETHERTYPE_MPLS, size),
            _ => Err(Exit::Stop),
        }
    }

    /// MACsec (IEEE 802.1AE), looked into where it only authenticates.
    #[inline(always)]
    pub(super) fn macsec(&mut self) -> Step {
        let header = self.view::<6>(self.offset)?;
        self.observe(Layer::Macsec, Detail::None);
        self.out.tunnel = Tunnel::Macsec;
        let tci = header.u8(0);
        // Encrypted, or changed in another way.
        if tci & 0x0c != 0 {
            return Err(Exit::Stop);
        }
        let size = if tci & 0x20 != 0 { 14 } else { 6 };
        let ethertype = self.view::<2>(self.offset + size)?.u16(0);
        self.go_ethertype(ethertype, size + 2)
    }

    /// Provider backbone bridging (IEEE 802.1ah): a service tag, then the customer's Ethernet.
    #[inline(always)]
    pub(super) fn pbb(&mut self) -> Step {
        let tag = self.view::<4>(self.offset)?.u32(0);
        self.observe(Layer::Pbb, Detail::Id(tag & 0x00ff_ffff));
        self.out.tunnel = Tunnel::Bridge;
        self.go(next::ETHERNET, 4)
    }

    /// TRILL (RFC 6325): six bytes and options, then Ethernet.
    #[inline(always)]
    pub(super) fn trill(&mut self) -> Step {
        let header = self.view::<6>(self.offset)?;
        self.observe(Layer::Trill, Detail::None);
        self.out.tunnel = Tunnel::Bridge;
        let options = usize::from(header.u16(0) >> 6 & 0x1f) * 4;
        self.go(next::ETHERNET, 6 + options)
    }
}
