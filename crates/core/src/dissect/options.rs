//! What the caller wants read of a frame.

/// Which flow of a frame is read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// The flow keys that Linux uses for its software hash: GRE and IP in IP are opened, UDP
    /// tunnels and MPLS are not, a flow label hides the ports, length fields are not looked at.
    #[default]
    Kernel,
    /// The innermost readable flow: UDP tunnels of known ports, MPLS, AH and others are opened as
    /// well, length fields bound what is read, a flow label does not hide the ports.
    Inner,
}

/// How the outermost VLAN tag takes part in the key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum VlanHash {
    /// Identifier, priority, tag protocol and the ethertype behind it, as in Linux.
    #[default]
    Tag,
    /// The same, but a priority tag (identifier 0) counts as no tag.
    TagUnlessPriority,
    /// Not at all: one flow on two VLANs is one flow.
    Ignore,
}

/// A tunnel inside UDP, for a port of the operator's choice.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UdpTunnel {
    /// No tunnel: datagrams to this port are not opened, also where the port is a known one.
    #[default]
    None,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// VXLAN-GPE.
    VxlanGpe,
    /// Geneve (RFC 8926).
    Geneve,
    /// GTP-U (3GPP TS 29.281).
    GtpU,
    /// L2TP version 2 (RFC 2661) or 3 (RFC 3931).
    L2tp,
    /// WireGuard: only message type and receiver index are readable.
    WireGuard,
    /// ESP or IKE in UDP (RFC 3948).
    EspInUdp,
    /// GRE in UDP (RFC 8086).
    GreInUdp,
    /// MPLS in UDP (RFC 7510).
    MplsInUdp,
    /// Foo over UDP: an IPv4 or IPv6 packet follows the UDP header.
    Fou,
    /// Generic UDP encapsulation, variants 0 and 1.
    Gue,
    /// Teredo (RFC 4380).
    Teredo,
    /// LISP data (RFC 9300).
    Lisp,
    /// CAPWAP data with 802.3 payload (RFC 5415).
    Capwap,
    /// AYIYA.
    Ayiya,
}

/// A port of the operator's choice and what its datagrams carry.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PortRule {
    /// Destination port; 0 means that the rule is unused.
    pub port: u16,
    /// What its datagrams carry.
    pub tunnel: UdpTunnel,
}

/// What to read of a frame. `Options::KERNEL` and `Options::INNER` are the two usual choices.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Which flow is read.
    pub mode: Mode,
    /// How the outermost VLAN tag takes part in the key.
    pub vlan: VlanHash,
    /// Kernel mode: read the ports of an IPv6 packet although it has a flow label, and leave the
    /// label out of the key. Inner mode always does.
    pub ignore_flow_label: bool,
    /// Stop at the first encapsulation: the key is that of the outermost IP header.
    pub outer_only: bool,
    /// Read on behind a first fragment, so that its ports are known (they are then in the key).
    /// Off: a first fragment has the same key as the others of its datagram.
    pub walk_first_fragment: bool,
    /// Put WireGuard's receiver index into the key: it separates peers behind one address.
    pub wireguard_index: bool,
    /// Rules that go before the known ports; inner mode only.
    pub ports: [PortRule; 4],
}

impl Options {
    /// As Linux does.
    pub const KERNEL: Self = Self::new(Mode::Kernel);

    /// The innermost readable flow.
    pub const INNER: Self = Self::new(Mode::Inner);

    /// Returns the defaults of a mode.
    pub const fn new(mode: Mode) -> Self {
        let unused = PortRule { port: 0, tunnel: UdpTunnel::None };
        Self {
            mode,
            vlan: VlanHash::Tag,
            ignore_flow_label: false,
            outer_only: false,
            walk_first_fragment: false,
            wireguard_index: false,
            ports: [unused; 4],
        }
    }
}

impl From<Mode> for Options {
    fn from(mode: Mode) -> Self {
        Self::new(mode)
    }
}
