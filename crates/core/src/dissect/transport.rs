//! Transport headers: where the walk ends with ports.

use super::walk::{Exit, Step, Walk, place};
use super::{Detail, Dissected, Layer, Observer};
use crate::Bytes;
use crate::bytes::View;

impl<'a, B: Bytes + ?Sized, O: Observer> Walk<'a, B, O> {
    /// TCP (RFC 9293).
    #[inline(always)]
    pub(super) fn tcp(&mut self) -> Step {
        self.ports(Layer::Tcp)?;
        // Linux reads ports where only they are left; the rest of the header may be cut off.
        let rest = self.view::<2>(self.offset + 12)?.u16(0);
        self.out.tcp_flags = rest as u8;
        self.out.payload_offset = place(self.offset + usize::from(rest >> 12) * 4);
        Err(Exit::Stop)
    }

    /// SCTP, DCCP and UDP-Lite: the ports come first, as in UDP.
    #[inline(always)]
    pub(super) fn ports_only(&mut self, layer: Layer) -> Step {
        self.ports(layer)?;
        if self.is_inner() {
            // The ports are in the key; whether the rest is there is for the error counters.
            if matches!(layer, Layer::UdpLite) {
                self.view::<8>(self.offset)?;
            } else {
                self.view::<12>(self.offset)?;
            }
        }
        Err(Exit::Stop)
    }

    /// ICMP and ICMPv6: nothing of them is in the key, so that all kinds between two hosts are one
    /// flow, as in Linux.
    #[inline(always)]
    pub(super) fn icmp(&mut self, layer: Layer) -> Step {
        if self.is_inner() {
            // An SPI of an enclosing AH gives way.
            self.out.key.src_port = 0;
            self.out.key.dst_port = 0;
        }
        self.out.payload_offset = place(self.offset);
        if O::ENABLED {
            self.observe_icmp(layer);
        }
        Err(Exit::Stop)
    }

    #[inline(always)]
    fn observe_icmp(&mut self, layer: Layer) {
        let Ok(header) = self.view::<2>(self.offset) else {
            return self.observe(layer, Detail::None);
        };
        let kind = header.u8(0);
        let has_id = match layer {
            Layer::Icmp => matches!(kind, 0 | 8 | 13..=18 | 42 | 43),
            _ => matches!(kind, 128 | 129 | 160 | 161),
        };
        let id = match self.view::<2>(self.offset + 4) {
            Ok(id) if has_id => Some(id.u16(0)),
            _ => None,
        };
        self.observe(layer, Detail::Icmp { kind, code: header.u8(1), id });
    }

    /// Reads the ports into the key.
    #[inline(always)]
    pub(super) fn ports(&mut self, layer: Layer) -> Step {
        let both = self.view::<4>(self.offset)?.u32(0);
        let (src, dst) = ((both >> 16) as u16, both as u16);
        self.out.key.src_port = src;
        self.out.key.dst_port = dst;
        self.out.flags |= Dissected::PORTS;
        self.out.payload_offset = place(self.offset);
        self.observe(layer, Detail::Ports { src, dst });
        Ok(())
    }
}
