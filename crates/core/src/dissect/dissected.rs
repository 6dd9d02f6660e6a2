//! What the dissector found in a frame.

use super::{AddrKind, FlowKey};

/// Where a packet stands in a fragmented datagram: the innermost IP header that was read.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Fragment {
    /// A whole datagram. In kernel mode also one whose IPv6 fragment header says so ("atomic") is
    /// [`First`](Self::First), since Linux stops at that header.
    #[default]
    None = 0,
    /// Offset 0, more to come.
    First = 1,
    /// Offset above 0, more to come.
    Middle = 2,
    /// Offset above 0, no more to come.
    Last = 3,
}

impl Fragment {
    /// Returns the state for an offset and the more-fragments flag.
    #[inline(always)]
    pub const fn new(offset: u16, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::None,
            (0, true) => Self::First,
            (_, true) => Self::Middle,
            (_, false) => Self::Last,
        }
    }

    /// Returns the name for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::First => "first",
            Self::Middle => "middle",
            Self::Last => "last",
        }
    }
}

/// The innermost encapsulation that was seen, opened or not.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Tunnel {
    /// None.
    #[default]
    None = 0,
    /// IP directly in IP, any two versions.
    IpInIp,
    /// GRE version 0.
    Gre,
    /// GRE version 1 (PPTP).
    Pptp,
    /// Mirrored Ethernet in GRE.
    Erspan,
    /// MPLS, below Ethernet, PPP, GRE, IP or UDP.
    Mpls,
    /// Ethernet in IP (RFC 3378 or protocol 143).
    EtherIp,
    /// Authentication header.
    Ah,
    /// Encrypted payload; the SPI is in the key.
    Esp,
    /// ESP behind UDP; the SPI is in the key.
    EspInUdp,
    /// Compressed payload.
    IpComp,
    /// VXLAN or VXLAN-GPE.
    Vxlan,
    /// Geneve.
    Geneve,
    /// GTP-U.
    GtpU,
    /// L2TP.
    L2tp,
    /// WireGuard; encrypted.
    WireGuard,
    /// GRE behind UDP.
    GreInUdp,
    /// An IP packet right behind UDP, or generic UDP encapsulation.
    Fou,
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
    /// Provider backbone bridging or TRILL.
    Bridge,
}

impl Tunnel {
    /// Returns whether the payload is encrypted or compressed, so that no inner flow is readable.
    pub const fn is_opaque(self) -> bool {
        matches!(self, Self::Esp | Self::EspInUdp | Self::WireGuard | Self::IpComp)
    }

    /// Returns the name for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::IpInIp => "ip-in-ip",
            Self::Gre => "gre",
            Self::Pptp => "pptp",
            Self::Erspan => "erspan",
            Self::Mpls => "mpls",
            Self::EtherIp => "etherip",
            Self::Ah => "ah",
            Self::Esp => "esp",
            Self::EspInUdp => "esp-in-udp",
            Self::IpComp => "ipcomp",
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::GtpU => "gtp-u",
            Self::L2tp => "l2tp",
            Self::WireGuard => "wireguard",
            Self::GreInUdp => "gre-in-udp",
            Self::Fou => "fou",
            Self::Teredo => "teredo",
            Self::Lisp => "lisp",
            Self::Capwap => "capwap",
            Self::Ayiya => "ayiya",
            Self::Nsh => "nsh",
            Self::Macsec => "macsec",
            Self::Bridge => "bridge",
        }
    }
}

/// Traffic that runs a link or a tunnel rather than carrying someone's flow.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Control {
    /// Not control traffic.
    #[default]
    None = 0,
    /// ARP or RARP.
    Arp,
    /// PPPoE discovery.
    PppoeDiscovery,
    /// PPP other than IP and MPLS, such as LCP.
    Ppp,
    /// IKE on the port of ESP in UDP (four zero bytes).
    Ike,
    /// Keepalive on the port of ESP in UDP (one byte 0xff).
    NatKeepalive,
    /// L2TP control connection.
    L2tp,
    /// GTP-U messages other than user data.
    GtpU,
    /// WireGuard handshake or cookie.
    WireGuard,
}

impl Control {
    /// Returns the name for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Arp => "arp",
            Self::PppoeDiscovery => "pppoe-discovery",
            Self::Ppp => "ppp-control",
            Self::Ike => "ike",
            Self::NatKeepalive => "nat-keepalive",
            Self::L2tp => "l2tp-control",
            Self::GtpU => "gtp-control",
            Self::WireGuard => "wireguard-control",
        }
    }
}

/// Addresses, ports and protocol of one IP header: what a device hashes for RSS.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, align(4))]
pub struct Endpoints {
    /// Source address, network order, left-aligned.
    pub src: [u8; 16],
    /// Destination address, network order, left-aligned.
    pub dst: [u8; 16],
    /// Source port; 0 if the packet has none, is a fragment, or ends before it.
    pub src_port: u16,
    /// Destination port, likewise.
    pub dst_port: u16,
    /// IP protocol, behind the extension headers that were read.
    pub protocol: u8,
    /// Which kind of addresses.
    pub addr_kind: AddrKind,
    /// Always 0.
    pub zero: [u8; 2],
}

/// What was read of a frame.
///
/// Offsets are from the first byte of the frame, modulo 65,536. An eBPF program keeps this in
/// a map: the verifier then does not tell apart the ways on which it was filled.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Dissected {
    /// The key of the flow.
    pub key: FlowKey,
    /// The outermost IP header, if it is not the one in the key (see [`outer`](Self::outer)).
    pub(crate) saved_outer: Endpoints,
    /// Identification of the fragmented datagram.
    pub fragment_id: u32,
    /// WireGuard's receiver index (its sender index in a handshake initiation), else 0.
    pub wireguard_index: u32,
    /// Flow label of the last IPv6 header read, also where it is not in the key.
    pub label: u32,
    /// Where the innermost network header starts.
    pub network_offset: u16,
    /// Where the header behind the innermost IP header and its extensions starts; 0 if there is
    /// no IP header.
    pub transport_offset: u16,
    /// Where the payload of TCP and UDP starts; for other protocols the same as the transport.
    pub payload_offset: u16,
    /// Where the outermost IP header starts.
    pub outer_offset: u16,
    /// Fragment state.
    pub fragment: Fragment,
    /// Innermost encapsulation.
    pub tunnel: Tunnel,
    /// Control traffic.
    pub control: Control,
    /// Flags of the TCP header, from FIN in bit 0 to CWR in bit 7; 0 if there is none.
    pub tcp_flags: u8,
    /// Number of IP headers read.
    pub ip_headers: u8,
    /// Number of VLAN tags read.
    pub vlan_tags: u8,
    /// Message type of WireGuard, 1 to 4; 0 if it is none.
    pub wireguard_type: u8,
    pub(crate) flags: u8,
}

impl Dissected {
    /// The result with nothing in it.
    pub const EMPTY: Self = Self {
        key: FlowKey::EMPTY,
        saved_outer: Endpoints {
            src: [0; 16],
            dst: [0; 16],
            src_port: 0,
            dst_port: 0,
            protocol: 0,
            addr_kind: AddrKind::None,
            zero: [0; 2],
        },
        fragment_id: 0,
        wireguard_index: 0,
        label: 0,
        network_offset: 0,
        transport_offset: 0,
        payload_offset: 0,
        outer_offset: 0,
        fragment: Fragment::None,
        tunnel: Tunnel::None,
        control: Control::None,
        tcp_flags: 0,
        ip_headers: 0,
        vlan_tags: 0,
        wireguard_type: 0,
        flags: 0,
    };

    /// A flow hash exists: an Ethernet header (or the network header that it would announce) was
    /// there.
    pub(crate) const HAS_KEY: u8 = 1;
    /// Linux draws a random number for the key (TIPC keep-alive messages).
    pub(crate) const RANDOM: u8 = 2;
    /// `saved_outer` holds the outermost header.
    pub(crate) const SAVED_OUTER: u8 = 4;
    /// A header with ports was reached and they were read.
    pub(crate) const PORTS: u8 = 8;
    /// An IP header said that this is a fragment (in kernel mode: any IPv6 fragment header).
    pub(crate) const FRAGMENT: u8 = 16;

    /// Returns whether there is a key to hash. Without one (a frame shorter than its link header)
    /// Linux computes no hash, and the packet stays where it is.
    #[inline]
    pub const fn has_key(&self) -> bool {
        self.flags & Self::HAS_KEY != 0
    }

    /// Returns whether Linux hashes such a packet differently each time (TIPC keep-alive).
    #[inline]
    pub const fn is_random(&self) -> bool {
        self.flags & Self::RANDOM != 0
    }

    /// Returns whether transport ports were read; they may still both be 0.
    #[inline]
    pub const fn has_ports(&self) -> bool {
        self.flags & Self::PORTS != 0
    }

    /// Returns whether the packet counts as a fragment for the key: no ports are in it.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.flags & Self::FRAGMENT != 0
    }

    /// Returns whether this is a TCP segment that opens a connection: SYN without ACK.
    #[inline]
    pub const fn is_tcp_syn(&self) -> bool {
        self.tcp_flags & 0x12 == 0x02
    }

    /// Returns the outermost IP header: what a device would hash for RSS.
    #[inline]
    pub fn outer(&self) -> Endpoints {
        let mut copy = *self;
        if self.flags & Self::SAVED_OUTER == 0 {
            copy.save_outer();
        }
        copy.saved_outer
    }

    /// Keeps addresses, ports and protocol of the key as the outermost ones. Field by field, so
    /// that nothing is built on the stack first.
    #[inline(always)]
    pub(crate) fn save_outer(&mut self) {
        self.saved_outer.src = self.key.src;
        self.saved_outer.dst = self.key.dst;
        self.saved_outer.protocol = self.key.protocol;
        self.saved_outer.addr_kind = self.key.addr_kind;
        if self.flags & Self::PORTS != 0 {
            self.saved_outer.src_port = self.key.src_port;
            self.saved_outer.dst_port = self.key.dst_port;
        }
        self.flags |= Self::SAVED_OUTER;
    }
}
