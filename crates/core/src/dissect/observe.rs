//! Watching the dissector: one call for each header that it reads.
//!
//! Always true: [`NoObserver`] compiles to nothing, and what only an observer wants to know (such
//! as an ICMP identifier) is read only for one.

use super::AddrKind;

/// A header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Layer {
    /// Ethernet.
    Ethernet,
    /// IEEE 802.2 logical link control, with or without SNAP.
    Llc,
    /// IEEE 802.1Q or 802.1ad tag.
    Vlan,
    /// Another tag between Ethernet and the network layer (VN-tag, E-tag, security group).
    Tag,
    /// PPPoE discovery.
    PppoeDiscovery,
    /// PPPoE session.
    Pppoe,
    /// PPP.
    Ppp,
    /// One MPLS label.
    Mpls,
    /// Control word of an Ethernet pseudowire.
    PwControl,
    /// HSR.
    Hsr,
    /// PRP.
    Prp,
    /// batman-adv.
    Batman,
    /// ARP or RARP.
    Arp,
    /// TIPC.
    Tipc,
    /// FCoE.
    Fcoe,
    /// IEEE 1588.
    Ptp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv6 hop-by-hop options.
    HopByHop,
    /// IPv6 routing header.
    Routing,
    /// IPv6 fragment header.
    FragmentHeader,
    /// IPv6 destination options.
    DestOptions,
    /// IPv6 mobility header.
    Mobility,
    /// Host identity protocol.
    Hip,
    /// Shim6.
    Shim6,
    /// Authentication header.
    Ah,
    /// Encapsulating security payload.
    Esp,
    /// Payload compression.
    IpComp,
    /// GRE.
    Gre,
    /// GRE version 1; its number has the payload's length in the high half.
    Pptp,
    /// ERSPAN.
    Erspan,
    /// Ethernet in IP.
    EtherIp,
    /// VXLAN.
    Vxlan,
    /// Geneve.
    Geneve,
    /// GTP-U.
    GtpU,
    /// L2TP version 2.
    L2tp,
    /// L2TP version 3.
    L2tpV3,
    /// WireGuard.
    WireGuard,
    /// What the port of ESP in UDP is for: ESP, IKE behind its marker, or a keepalive.
    UdpEncap,
    /// Generic UDP encapsulation.
    Gue,
    /// Teredo.
    Teredo,
    /// LISP data.
    Lisp,
    /// CAPWAP data.
    Capwap,
    /// AYIYA.
    Ayiya,
    /// Network service header.
    Nsh,
    /// MACsec.
    Macsec,
    /// Provider backbone bridging.
    Pbb,
    /// TRILL.
    Trill,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// UDP-Lite.
    UdpLite,
    /// SCTP.
    Sctp,
    /// DCCP.
    Dccp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
    /// Another IP protocol.
    OtherProtocol,
    /// Another ethertype.
    OtherEthertype,
}

impl Layer {
    /// Returns the name for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "eth",
            Self::Llc => "llc",
            Self::Vlan => "vlan",
            Self::Tag => "tag",
            Self::PppoeDiscovery => "pppoed",
            Self::Pppoe => "pppoe",
            Self::Ppp => "ppp",
            Self::Mpls => "mpls",
            Self::PwControl => "pw",
            Self::Hsr => "hsr",
            Self::Prp => "prp",
            Self::Batman => "batman",
            Self::Arp => "arp",
            Self::Tipc => "tipc",
            Self::Fcoe => "fcoe",
            Self::Ptp => "ptp",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::HopByHop => "hopopts",
            Self::Routing => "routing",
            Self::FragmentHeader => "frag",
            Self::DestOptions => "dstopts",
            Self::Mobility => "mobility",
            Self::Hip => "hip",
            Self::Shim6 => "shim6",
            Self::Ah => "ah",
            Self::Esp => "esp",
            Self::IpComp => "ipcomp",
            Self::Gre => "gre",
            Self::Pptp => "pptp",
            Self::Erspan => "erspan",
            Self::EtherIp => "etherip",
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::GtpU => "gtpu",
            Self::L2tp => "l2tp",
            Self::L2tpV3 => "l2tpv3",
            Self::WireGuard => "wireguard",
            Self::UdpEncap => "udpencap",
            Self::Gue => "gue",
            Self::Teredo => "teredo",
            Self::Lisp => "lisp",
            Self::Capwap => "capwap",
            Self::Ayiya => "ayiya",
            Self::Nsh => "nsh",
            Self::Macsec => "macsec",
            Self::Pbb => "pbb",
            Self::Trill => "trill",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::UdpLite => "udplite",
            Self::Sctp => "sctp",
            Self::Dccp => "dccp",
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmpv6",
            Self::OtherProtocol => "protocol",
            Self::OtherEthertype => "ethertype",
        }
    }
}

/// What an IP header says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct IpDetail {
    /// Source address, network order, left-aligned.
    pub src: [u8; 16],
    /// Destination address, network order, left-aligned.
    pub dst: [u8; 16],
    /// Which kind of addresses.
    pub addr_kind: AddrKind,
    /// Protocol, or the first next-header number.
    pub protocol: u8,
    /// Fragment offset in bytes (IPv4).
    pub fragment_offset: u16,
    /// More-fragments flag (IPv4).
    pub more_fragments: bool,
    /// Flow label (IPv6).
    pub label: u32,
}

/// What a header says, as far as it matters for a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// Nothing of note.
    None,
    /// Tag protocol and tag control information of a VLAN tag.
    Vlan {
        /// Tag protocol, such as 0x8100.
        tpid: u16,
        /// Priority, drop-eligible bit and identifier.
        tci: u16,
    },
    /// An IP header.
    Ip(IpDetail),
    /// An extension header: the number of what follows.
    Next(u8),
    /// An IPv6 fragment header.
    Fragment {
        /// The number of what follows.
        next: u8,
        /// Offset in bytes.
        offset: u16,
        /// More fragments follow.
        more: bool,
        /// Identification.
        id: u32,
    },
    /// Number of a tunnel or label: VNI, TEID, GRE key, MPLS label, session, SPI, receiver index.
    Id(u32),
    /// Ports.
    Ports {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// ICMP header.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Identifier, for the types that have one.
        id: Option<u16>,
    },
    /// An ethertype or IP protocol without a reader.
    Number(u16),
}

/// Is told of each header.
pub trait Observer {
    /// Whether the dissector should make the calls, and the loads that only they need.
    const ENABLED: bool = true;

    /// A header of this kind starts at this byte of the frame.
    fn layer(&mut self, layer: Layer, offset: usize, detail: Detail);
}

/// Watches nothing; compiles away.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    const ENABLED: bool = false;

    #[inline(always)]
    fn layer(&mut self, _: Layer, _: usize, _: Detail) {}
}

/// The kinds of the first headers of a frame, in order, without allocation.
#[derive(Clone, Copy, Debug)]
pub struct LayerList {
    layers: [Layer; Self::CAPACITY],
    count: usize,
}

impl LayerList {
    /// Most headers that are kept; the dissector never reports more.
    pub const CAPACITY: usize = 2 * super::MAX_STEPS;

    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { layers: [Layer::Ethernet; Self::CAPACITY], count: 0 }
    }

    /// Returns the headers, outermost first.
    pub fn as_slice(&self) -> &[Layer] {
        self.layers.get(..self.count).unwrap_or(&self.layers)
    }
}

impl Default for LayerList {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for LayerList {
    fn layer(&mut self, layer: Layer, _: usize, _: Detail) {
        if let Some(place) = self.layers.get_mut(self.count) {
            *place = layer;
            self.count += 1;
        }
    }
}
