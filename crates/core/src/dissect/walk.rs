//! The loop over the headers of a frame.
//!
//! One bounded loop asks "what comes next" in one number space ([`super::number::next`]). Each
//! step reads one header, writes what it says into the result, and leaves the next number and its
//! offset. Nested loops would multiply the ways that the eBPF verifier has to walk; here what is
//! carried from step to step passes through [`Bytes::forget`] at the head of the loop, so that all
//! ways meet there.
//!
//! Always true: at most [`MAX_STEPS`] headers are read; a step reads only below `end` in inner
//! mode and only inside the frame in both.
//! Elsewhere: the headers themselves, by kind: [`super::link`], [`super::ip`], [`super::tunnel`],
//! [`super::udp`], [`super::transport`].

use super::number::{
    ETHERTYPE_ARP, ETHERTYPE_BATMAN, ETHERTYPE_CFM, ETHERTYPE_CMD, ETHERTYPE_ETAG,
    ETHERTYPE_FABRICPATH, ETHERTYPE_FCOE, ETHERTYPE_HSR, ETHERTYPE_MACSEC, ETHERTYPE_MPLS,
    ETHERTYPE_MPLS_UPSTREAM, ETHERTYPE_NSH, ETHERTYPE_OLD_STAG, ETHERTYPE_PBB, ETHERTYPE_PPPOE,
    ETHERTYPE_PPPOE_DISCOVERY, ETHERTYPE_PRP, ETHERTYPE_PTP, ETHERTYPE_RARP, ETHERTYPE_TEB,
    ETHERTYPE_TIPC, ETHERTYPE_TRILL, ETHERTYPE_VNTAG, PROTO_AH, PROTO_DCCP, PROTO_ESP, PROTO_SCTP,
    PROTO_TCP, PROTO_UDP, PROTO_UDPLITE, next,
};
use super::{Control, Detail, DissectError, Dissected, Layer, Mode, Observer, Options, Start};
use crate::Bytes;

/// Most headers that are read of one frame. Kernel mode stops earlier, as Linux does: after the
/// 15th header inside another one.
pub const MAX_STEPS: usize = 40;

/// Most VLAN tags in inner mode; kernel mode is bound by the number of headers alone.
pub const MAX_TAGS: u8 = 8;

/// How often Linux goes on to a header inside another one (6.18).
pub(super) const KERNEL_DEPTH: u32 = 15;

/// What a step leaves the loop to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Go {
    /// Read the header `next` at `offset`.
    On,
    /// The flow is read.
    Stop,
}

pub(super) type Step = Result<Go, DissectError>;

/// State of the loop.
pub(super) struct Walk<'a, B: ?Sized, O> {
    pub(super) frame: &'a B,
    pub(super) options: &'a Options,
    pub(super) out: &'a mut Dissected,
    pub(super) observer: &'a mut O,
    /// Where the next header starts.
    pub(super) offset: usize,
    /// What it is.
    pub(super) next: u32,
    /// Inner mode: where the enclosing headers say that the packet ends.
    pub(super) end: usize,
    /// Headers inside others so far, counted as Linux does.
    pub(super) depth: u32,
}

impl<'a, B: Bytes + ?Sized, O: Observer> Walk<'a, B, O> {
    /// Walks the frame from its first header on.
    #[inline(always)]
    pub(super) fn run(&mut self, start: Start) -> Result<(), DissectError> {
        if self.is_inner() {
            self.end = self.frame.byte_len();
        }
        self.start(start)?;
        for _ in 0..MAX_STEPS {
            self.offset = self.frame.forget(0, self.offset as u32) as usize;
            self.next = self.frame.forget(1, self.next);
            self.depth = self.frame.forget(2, self.depth);
            if self.is_inner() {
                self.end = self.frame.forget(3, self.end as u32) as usize;
            } else if self.depth > KERNEL_DEPTH && !self.is_read_past_the_bound() {
                return Err(DissectError::TooDeep(self.here()));
            }
            if self.step()? == Go::Stop {
                return Ok(());
            }
        }
        Err(DissectError::TooDeep(self.here()))
    }

    /// Finds the first network header.
    #[inline(always)]
    fn start(&mut self, start: Start) -> Result<(), DissectError> {
        match start {
            Start::Ethernet => {
                self.offset = 0;
                let header = self.view::<14>(0)?;
                self.enter_ethernet(header);
            }
            Start::Network { ethertype, offset } => {
                self.offset = usize::from(offset);
                self.enter_network(ethertype);
            }
        }
        self.out.flags |= Dissected::HAS_KEY;
        Ok(())
    }

    /// Linux reads ports, and the Ethernet header in GRE, before it looks at the bound.
    #[inline(always)]
    fn is_read_past_the_bound(&self) -> bool {
        const TCP: u32 = next::protocol(PROTO_TCP);
        const UDP: u32 = next::protocol(PROTO_UDP);
        const DCCP: u32 = next::protocol(PROTO_DCCP);
        const ESP: u32 = next::protocol(PROTO_ESP);
        const AH: u32 = next::protocol(PROTO_AH);
        const SCTP: u32 = next::protocol(PROTO_SCTP);
        const UDPLITE: u32 = next::protocol(PROTO_UDPLITE);
        matches!(self.next, TCP | UDP | DCCP | ESP | AH | SCTP | UDPLITE | next::ETHERNET)
    }

    /// Reads one header.
    #[inline(always)]
    fn step(&mut self) -> Step {
        match self.next {
            next::IPV4 | next::IPV4_PROTOCOL => return self.ipv4(),
            next::UDP_PROTOCOL => return self.udp(),
            next::TCP => return self.tcp(),
            next::IPV6 | next::IPV6_PROTOCOL => return self.ipv6(),
            next::CTAG | next::STAG => return self.vlan(),
            _ => {}
        }
        if let Some(protocol) = next::as_protocol(self.next) {
            return self.protocol(protocol);
        }
        if self.next <= 0xffff { self.ethertype(self.next as u16) } else { self.other() }
    }

    /// Reads a network header other than the most frequent ones.
    #[inline(always)]
    fn ethertype(&mut self, ethertype: u16) -> Step {
        match ethertype {
            ETHERTYPE_PPPOE => self.pppoe(),
            ETHERTYPE_MPLS | ETHERTYPE_MPLS_UPSTREAM => self.mpls(),
            ETHERTYPE_TIPC => self.tipc(),
            ETHERTYPE_HSR | ETHERTYPE_PRP => self.hsr(),
            ETHERTYPE_BATMAN => self.batman(),
            ETHERTYPE_ARP | ETHERTYPE_RARP => {
                self.out.control = Control::Arp;
                self.stop_at(Layer::Arp)
            }
            ETHERTYPE_PPPOE_DISCOVERY => self.pppoe_discovery(),
            ETHERTYPE_FCOE => self.stop_at(Layer::Fcoe),
            ETHERTYPE_PTP => self.stop_at(Layer::Ptp),
            ETHERTYPE_CFM => {
                self.observe(Layer::OtherEthertype, Detail::Number(ethertype));
                Ok(Go::Stop)
            }
            _ if self.is_inner() => self.inner_ethertype(ethertype),
            _ => self.unknown_ethertype(ethertype),
        }
    }

    /// Reads a network header that Linux does not look behind.
    #[inline(always)]
    fn inner_ethertype(&mut self, ethertype: u16) -> Step {
        match ethertype {
            ETHERTYPE_OLD_STAG => self.vlan(),
            ETHERTYPE_TEB => self.go(next::ETHERNET, 0),
            // FabricPath: a tag of two bytes between two Ethernet headers.
            ETHERTYPE_FABRICPATH => {
                self.observe(Layer::Tag, Detail::Number(ethertype));
                self.go(next::ETHERNET, 2)
            }
            ETHERTYPE_NSH => self.nsh(),
            ETHERTYPE_MACSEC => self.macsec(),
            ETHERTYPE_PBB => self.pbb(),
            ETHERTYPE_TRILL => self.trill(),
            ETHERTYPE_VNTAG => self.tag(4),
            ETHERTYPE_CMD => self.tag(6),
            ETHERTYPE_ETAG => self.tag(6),
            _ => self.unknown_ethertype(ethertype),
        }
    }

    /// Reads a header that has neither an ethertype nor a protocol number.
    #[inline(always)]
    fn other(&mut self) -> Step {
        match self.next {
            next::ETHERNET => self.ethernet(),
            _ if !self.is_inner() => Ok(Go::Stop),
            next::LLC => self.llc(),
            next::PPP => self.ppp(),
            next::BELOW_MPLS => self.below_mpls(),
            next::ANY_IP => self.any_ip(),
            next::GTP_EXTENSION => self.gtp_extension(),
            tunnel => self.udp_tunnel(tunnel),
        }
    }

    #[inline(always)]
    fn unknown_ethertype(&mut self, ethertype: u16) -> Step {
        self.observe(Layer::OtherEthertype, Detail::Number(ethertype));
        Err(DissectError::UnknownEthertype(self.here()))
    }

    /// Goes on to `next`, `size` bytes after the start of this header.
    #[inline(always)]
    pub(super) fn go(&mut self, next: u32, size: usize) -> Step {
        self.offset += size;
        self.next = next;
        Ok(Go::On)
    }

    /// Goes on to the network header `ethertype` inside this one: where Linux says "once more".
    #[inline(always)]
    pub(super) fn go_ethertype(&mut self, ethertype: u16, size: usize) -> Step {
        self.out.key.ethertype = ethertype;
        self.depth += 1;
        self.go(next::ethertype(ethertype), size)
    }

    /// Reports a header behind which nothing is read.
    #[inline(always)]
    pub(super) fn stop_at(&mut self, layer: Layer) -> Step {
        self.observe(layer, Detail::None);
        Ok(Go::Stop)
    }

    #[inline(always)]
    pub(super) fn is_inner(&self) -> bool {
        matches!(self.options.mode, Mode::Inner)
    }

    /// Returns the start of this header for an error or an offset of the result.
    #[inline(always)]
    pub(super) fn here(&self) -> u16 {
        clamp(self.offset)
    }

    /// Takes `N` bytes from `offset` on.
    #[inline(always)]
    pub(super) fn view<const N: usize>(
        &self,
        offset: usize,
    ) -> Result<B::View<'a, N>, DissectError> {
        if self.is_inner() && offset + N > self.end {
            return Err(DissectError::Truncated(self.here()));
        }
        self.frame.view::<N>(offset).ok_or(DissectError::Truncated(self.here()))
    }

    /// Lowers `end` to `size` bytes after the start of this header.
    #[inline(always)]
    pub(super) fn bound(&mut self, size: usize) {
        let end = self.offset + size;
        if end < self.end {
            self.end = end;
        }
    }

    #[inline(always)]
    pub(super) fn observe(&mut self, layer: Layer, detail: Detail) {
        if O::ENABLED {
            self.observer.layer(layer, self.offset, detail);
        }
    }
}

/// Returns an offset as it stands in errors and results.
#[inline(always)]
pub(super) fn clamp(offset: usize) -> u16 {
    if offset > 0xffff { 0xffff } else { offset as u16 }
}
