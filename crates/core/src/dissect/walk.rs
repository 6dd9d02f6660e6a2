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

/// Why the loop ends. One byte, also as a [`Step`]: LLVM would carry the position of an error, set
/// or not, through the loop, and the verifier would follow it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Exit {
    /// The flow is read.
    Stop,
    Truncated,
    UnknownEthertype,
    BadIhl,
    BadVersion,
    BadLength,
    BadPppoe,
    BadPpp,
    BadBatman,
    GreRouting,
    BadGreVersion,
    BadPptp,
    BadTunnel,
    TooManyTags,
    TooDeep,
}

impl Exit {
    /// Returns the result for an end in the header at `offset`.
    #[inline(always)]
    fn at(self, offset: usize) -> Result<(), DissectError> {
        let at = place(offset);
        Err(match self {
            Self::Stop => return Ok(()),
            Self::Truncated => DissectError::Truncated(at),
            Self::UnknownEthertype => DissectError::UnknownEthertype(at),
            Self::BadIhl => DissectError::BadIhl(at),
            Self::BadVersion => DissectError::BadVersion(at),
            Self::BadLength => DissectError::BadLength(at),
            Self::BadPppoe => DissectError::BadPppoe(at),
            Self::BadPpp => DissectError::BadPpp(at),
            Self::BadBatman => DissectError::BadBatman(at),
            Self::GreRouting => DissectError::GreRouting(at),
            Self::BadGreVersion => DissectError::BadGreVersion(at),
            Self::BadPptp => DissectError::BadPptp(at),
            Self::BadTunnel => DissectError::BadTunnel(at),
            Self::TooManyTags => DissectError::TooManyTags(at),
            Self::TooDeep => DissectError::TooDeep(at),
        })
    }
}

/// `Ok`: read the header `next` at `offset`.
pub(super) type Step = Result<(), Exit>;

/// What one step leaves to the next, besides the result.
#[derive(Clone, Copy)]
struct Carried {
    offset: usize,
    next: u32,
    end: usize,
    depth: u32,
}

/// Reads the headers of a frame into `out`, from the first on.
#[inline(always)]
pub(super) fn walk<B: Bytes + ?Sized, O: Observer>(
    frame: &B,
    start: Start,
    options: &Options,
    out: &mut Dissected,
    observer: &mut O,
) -> Result<(), DissectError> {
    let is_inner = matches!(options.mode, Mode::Inner);
    let end = if is_inner { frame.byte_len() } else { 0 };
    let mut carried = Carried { offset: 0, next: 0, end, depth: 0 };
    let step = Walk::step_with(frame, options, out, observer, &mut carried, |w| w.start(start));
    if let Err(exit) = step {
        return exit.at(carried.offset);
    }
    for _ in 0..MAX_STEPS {
        carried.offset = frame.forget(0, carried.offset as u32) as usize;
        carried.next = frame.forget(1, carried.next);
        carried.depth = frame.forget(2, carried.depth);
        if is_inner {
            carried.end = frame.forget(3, carried.end as u32) as usize;
        }
        let step = Walk::step_with(frame, options, out, observer, &mut carried, Walk::bounded_step);
        if let Err(exit) = step {
            return exit.at(carried.offset);
        }
    }
    Exit::TooDeep.at(carried.offset)
}

/// One step of the loop.
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
    /// Does one step and keeps what it leaves.
    #[inline(always)]
    fn step_with<T>(
        frame: &'a B,
        options: &'a Options,
        out: &'a mut Dissected,
        observer: &'a mut O,
        carried: &mut Carried,
        step: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let Carried { offset, next, end, depth } = *carried;
        let mut walk = Self { frame, options, out, observer, offset, next, end, depth };
        let result = step(&mut walk);
        *carried =
            Carried { offset: walk.offset, next: walk.next, end: walk.end, depth: walk.depth };
        result
    }

    /// Reads one header, unless Linux would go no deeper.
    #[inline(always)]
    fn bounded_step(&mut self) -> Step {
        if !self.is_inner() && self.depth > KERNEL_DEPTH && !self.is_read_past_the_bound() {
            return Err(Exit::TooDeep);
        }
        self.step()
    }

    /// Finds the first network header.
    #[inline(always)]
    fn start(&mut self, start: Start) -> Step {
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
                Err(Exit::Stop)
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
            _ if !self.is_inner() => Err(Exit::Stop),
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
        Err(Exit::UnknownEthertype)
    }

    /// Goes on to `next`, `size` bytes after the start of this header.
    #[inline(always)]
    pub(super) fn go(&mut self, next: u32, size: usize) -> Step {
        self.offset += size;
        self.next = next;
        Ok(())
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
        Err(Exit::Stop)
    }

    #[inline(always)]
    pub(super) fn is_inner(&self) -> bool {
        matches!(self.options.mode, Mode::Inner)
    }

    /// Takes `N` bytes from `offset` on.
    #[inline(always)]
    pub(super) fn view<const N: usize>(&self, offset: usize) -> Result<B::View<'a, N>, Exit> {
        if self.is_inner() && offset + N > self.end {
            return Err(Exit::Truncated);
        }
        self.frame.view::<N>(offset).ok_or(Exit::Truncated)
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

/// Returns an offset as it stands in errors and results. It wraps at 65,536, which takes a frame
/// that is longer and has over 30 extension headers of 2 KiB; a comparison would cost the verifier
/// more than that is worth.
#[inline(always)]
pub(super) fn place(offset: usize) -> u16 {
    offset as u16
}
