//! Numbers of protocols, and the one number space in which the loop asks "what comes next".

/// DoD IPv4 (RFC 894).
pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6 (RFC 2464).
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
/// ARP (RFC 826).
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
/// Reverse ARP (RFC 903).
pub(crate) const ETHERTYPE_RARP: u16 = 0x8035;
/// Customer tag, IEEE 802.1Q.
pub(crate) const ETHERTYPE_CTAG: u16 = 0x8100;
/// Service tag, IEEE 802.1ad.
pub(crate) const ETHERTYPE_STAG: u16 = 0x88a8;
/// Tag protocol in use before 802.1ad.
pub(crate) const ETHERTYPE_OLD_STAG: u16 = 0x9100;
/// PPPoE discovery (RFC 2516).
pub(crate) const ETHERTYPE_PPPOE_DISCOVERY: u16 = 0x8863;
/// PPPoE session (RFC 2516).
pub(crate) const ETHERTYPE_PPPOE: u16 = 0x8864;
/// MPLS unicast (RFC 5332).
pub(crate) const ETHERTYPE_MPLS: u16 = 0x8847;
/// MPLS with an upstream-assigned label (RFC 5332).
pub(crate) const ETHERTYPE_MPLS_UPSTREAM: u16 = 0x8848;
/// TIPC.
pub(crate) const ETHERTYPE_TIPC: u16 = 0x88ca;
/// Fibre Channel over Ethernet.
pub(crate) const ETHERTYPE_FCOE: u16 = 0x8906;
/// IEEE 1588 over Ethernet.
pub(crate) const ETHERTYPE_PTP: u16 = 0x88f7;
/// Connectivity fault management, IEEE 802.1ag.
pub(crate) const ETHERTYPE_CFM: u16 = 0x8902;
/// HSR, IEC 62439-3.
pub(crate) const ETHERTYPE_HSR: u16 = 0x892f;
/// PRP, IEC 62439-3.
pub(crate) const ETHERTYPE_PRP: u16 = 0x88fb;
/// batman-adv.
pub(crate) const ETHERTYPE_BATMAN: u16 = 0x4305;
/// Transparent Ethernet bridging (RFC 1701).
pub(crate) const ETHERTYPE_TEB: u16 = 0x6558;
/// ERSPAN types I and II.
pub(crate) const ETHERTYPE_ERSPAN: u16 = 0x88be;
/// ERSPAN type III.
pub(crate) const ETHERTYPE_ERSPAN3: u16 = 0x22eb;
/// PPP (RFC 2637 and RFC 7042).
pub(crate) const ETHERTYPE_PPP: u16 = 0x880b;
/// WCCP in GRE.
pub(crate) const ETHERTYPE_WCCP: u16 = 0x883e;
/// Network service header (RFC 8300).
pub(crate) const ETHERTYPE_NSH: u16 = 0x894f;
/// MACsec, IEEE 802.1AE.
pub(crate) const ETHERTYPE_MACSEC: u16 = 0x88e5;
/// Backbone service tag, IEEE 802.1ah.
pub(crate) const ETHERTYPE_PBB: u16 = 0x88e7;
/// TRILL (RFC 6325).
pub(crate) const ETHERTYPE_TRILL: u16 = 0x22f3;
/// VN-tag.
pub(crate) const ETHERTYPE_VNTAG: u16 = 0x8926;
/// E-tag, IEEE 802.1BR.
pub(crate) const ETHERTYPE_ETAG: u16 = 0x893f;
/// Security group tag.
pub(crate) const ETHERTYPE_CMD: u16 = 0x8909;
/// FabricPath, before its second Ethernet header.
pub(crate) const ETHERTYPE_FABRICPATH: u16 = 0x8903;
/// First number that is an ethertype; below it stands a length (IEEE 802.3).
pub(crate) const ETHERTYPE_MIN: u16 = 0x0600;
/// What Linux calls an 802.3 frame with a raw IPX packet (0xffff behind the length).
pub(crate) const LINUX_802_3: u16 = 0x0001;
/// What Linux calls any other 802.3 frame.
pub(crate) const LINUX_802_2: u16 = 0x0004;

pub(crate) const PROTO_HOP_BY_HOP: u8 = 0;
pub(crate) const PROTO_ICMP: u8 = 1;
pub(crate) const PROTO_IPV4: u8 = 4;
pub(crate) const PROTO_TCP: u8 = 6;
pub(crate) const PROTO_UDP: u8 = 17;
pub(crate) const PROTO_DCCP: u8 = 33;
pub(crate) const PROTO_IPV6: u8 = 41;
pub(crate) const PROTO_ROUTING: u8 = 43;
pub(crate) const PROTO_FRAGMENT: u8 = 44;
pub(crate) const PROTO_GRE: u8 = 47;
pub(crate) const PROTO_ESP: u8 = 50;
pub(crate) const PROTO_AH: u8 = 51;
pub(crate) const PROTO_ICMPV6: u8 = 58;
pub(crate) const PROTO_DEST_OPTIONS: u8 = 60;
pub(crate) const PROTO_ETHERIP: u8 = 97;
pub(crate) const PROTO_IPCOMP: u8 = 108;
pub(crate) const PROTO_L2TP: u8 = 115;
pub(crate) const PROTO_SCTP: u8 = 132;
pub(crate) const PROTO_MOBILITY: u8 = 135;
pub(crate) const PROTO_UDPLITE: u8 = 136;
pub(crate) const PROTO_MPLS: u8 = 137;
pub(crate) const PROTO_HIP: u8 = 139;
pub(crate) const PROTO_SHIM6: u8 = 140;
pub(crate) const PROTO_ETHERNET: u8 = 143;

/// What the next header is: ethertypes as they are, IP protocols from 0x1_0000 on, and from
/// 0x2_0000 on what has neither number.
pub(crate) mod next {
    use super::super::UdpTunnel;

    const PROTOCOL: u32 = 0x1_0000;
    const OTHER: u32 = 0x2_0000;
    const UDP: u32 = 0x3_0000;

    pub(crate) const fn ethertype(number: u16) -> u32 {
        number as u32
    }

    pub(crate) const fn protocol(number: u8) -> u32 {
        PROTOCOL | number as u32
    }

    pub(crate) const fn udp(tunnel: UdpTunnel) -> u32 {
        UDP | tunnel as u32
    }

    /// An Ethernet header.
    pub(crate) const ETHERNET: u32 = OTHER;
    /// An 802.2 header.
    pub(crate) const LLC: u32 = OTHER | 1;
    /// A PPP header, possibly compressed.
    pub(crate) const PPP: u32 = OTHER | 2;
    /// What stands below the last MPLS label.
    pub(crate) const BELOW_MPLS: u32 = OTHER | 3;
    /// An extension header of GTP-U.
    pub(crate) const GTP_EXTENSION: u32 = OTHER | 4;
    /// An IP packet whose version says which.
    pub(crate) const ANY_IP: u32 = OTHER | 5;

    pub(crate) const IPV4: u32 = super::ETHERTYPE_IPV4 as u32;
    pub(crate) const IPV6: u32 = super::ETHERTYPE_IPV6 as u32;
    pub(crate) const CTAG: u32 = super::ETHERTYPE_CTAG as u32;
    pub(crate) const STAG: u32 = super::ETHERTYPE_STAG as u32;

    pub(crate) const IPV4_PROTOCOL: u32 = protocol(super::PROTO_IPV4);
    pub(crate) const IPV6_PROTOCOL: u32 = protocol(super::PROTO_IPV6);
    pub(crate) const TCP: u32 = protocol(super::PROTO_TCP);
    pub(crate) const UDP_PROTOCOL: u32 = protocol(super::PROTO_UDP);

    /// Returns the IP protocol, if it is one.
    pub(crate) const fn as_protocol(next: u32) -> Option<u8> {
        if next & 0xffff_0000 == PROTOCOL { Some(next as u8) } else { None }
    }
}
