//! Both ends of a conversation and the headers around it: VLAN tags, PPPoE, tunnels.

use std::net::{IpAddr, SocketAddr};

use super::packet::{Layer, V4, V6};

/// Port of VXLAN (RFC 7348).
const VXLAN_PORT: u16 = 4789;
/// Port of Geneve (RFC 8926).
const GENEVE_PORT: u16 = 6081;
/// Port of GTP-U (3GPP TS 29.281).
const GTP_PORT: u16 = 2152;

/// The headers in front of a conversation's IP header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Path {
    to_server: Vec<Layer>,
    to_client: Vec<Layer>,
}

impl Path {
    /// Bare Ethernet.
    pub fn ethernet() -> Self {
        Self::new(vec![Layer::Ethernet { back: false }])
    }

    /// The headers from client to server; those of the way back have both Ethernet and IP
    /// addresses swapped. UDP ports stay: a tunnel's destination port is that of the protocol in
    /// both directions.
    pub fn new(to_server: Vec<Layer>) -> Self {
        let to_client = to_server.iter().map(|layer| turned(*layer)).collect();
        Self { to_server, to_client }
    }

    /// Ethernet and VLAN tags with these ids, the outermost first; of several, the outer ones are
    /// service tags.
    pub fn vlan(vids: &[u16]) -> Self {
        let mut layers = vec![Layer::Ethernet { back: false }];
        for (index, vid) in vids.iter().enumerate() {
            let tpid = if index + 1 == vids.len() { 0x8100 } else { 0x88a8 };
            layers.push(Layer::Vlan { tpid, vid: *vid });
        }
        Self::new(layers)
    }

    /// A PPPoE session.
    pub fn pppoe(session: u16) -> Self {
        Self::new(vec![Layer::Ethernet { back: false }, Layer::Pppoe { session }])
    }

    /// GRE between two hosts.
    pub fn gre(from: IpAddr, to: IpAddr, key: Option<u32>) -> Self {
        Self::new(vec![Layer::Ethernet { back: false }, ip(from, to, 0, 0), Layer::Gre { key }])
    }

    /// VXLAN between two hosts. `entropy` stands for the hash of the inner flow, which the sender
    /// puts into the source port.
    pub fn vxlan(from: IpAddr, to: IpAddr, vni: u32, entropy: u16) -> Self {
        Self::tunnel(from, to, entropy, VXLAN_PORT, Layer::Vxlan { vni }, true)
    }

    /// Geneve between two hosts, as [`Self::vxlan`].
    pub fn geneve(from: IpAddr, to: IpAddr, vni: u32, entropy: u16) -> Self {
        Self::tunnel(from, to, entropy, GENEVE_PORT, Layer::Geneve { vni }, true)
    }

    /// GTP-U between two hosts, as [`Self::vxlan`] but without an inner Ethernet header.
    pub fn gtp(from: IpAddr, to: IpAddr, teid: u32, entropy: u16) -> Self {
        Self::tunnel(from, to, entropy, GTP_PORT, Layer::Gtp { teid }, false)
    }

    fn tunnel(
        from: IpAddr,
        to: IpAddr,
        entropy: u16,
        port: u16,
        header: Layer,
        inner_ethernet: bool,
    ) -> Self {
        // The dynamic ports, as RFC 7348, section 5 recommends.
        let src = 49_152 + entropy % 16_384;
        let mut layers = vec![
            Layer::Ethernet { back: false },
            ip(from, to, 0, 0),
            Layer::Udp { src, dst: port, checksum: false },
            header,
        ];
        if inner_ethernet {
            layers.push(Layer::Ethernet { back: false });
        }
        Self::new(layers)
    }

    /// Returns the headers of one direction.
    pub fn layers(&self, back: bool) -> &[Layer] {
        if back { &self.to_client } else { &self.to_server }
    }
}

/// A client, a server and the way between them.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The end that opens the conversation.
    pub client: SocketAddr,
    /// The end that answers.
    pub server: SocketAddr,
    /// Headers in front.
    pub path: Path,
    /// IPv6 flow label of both directions; 0 for none. IPv4 ignores it.
    pub flow_label: u32,
}

impl Flow {
    /// A flow over bare Ethernet without a flow label.
    pub fn new(client: SocketAddr, server: SocketAddr) -> Self {
        Self { client, server, path: Path::ethernet(), flow_label: 0 }
    }

    /// Takes another way.
    pub fn over(mut self, path: Path) -> Self {
        self.path = path;
        self
    }

    /// Returns source and destination of one direction.
    pub fn ends(&self, back: bool) -> (SocketAddr, SocketAddr) {
        if back { (self.server, self.client) } else { (self.client, self.server) }
    }

    /// Returns the IP layer of one direction.
    pub fn ip(&self, back: bool, id: u16) -> Layer {
        let (src, dst) = self.ends(back);
        ip(src.ip(), dst.ip(), id, self.flow_label)
    }
}

/// Returns an IP layer; if only one address is IPv6, the other is mapped into it.
pub(super) fn ip(src: IpAddr, dst: IpAddr, id: u16, flow_label: u32) -> Layer {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Layer::V4(V4 { id, ..V4::new(src, dst) }),
        (src, dst) => Layer::V6(V6 { flow_label, ..V6::new(six(src), six(dst)) }),
    }
}

fn six(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

/// Returns the layer of the opposite direction.
fn turned(layer: Layer) -> Layer {
    match layer {
        Layer::Ethernet { back } => Layer::Ethernet { back: !back },
        Layer::V4(v4) => Layer::V4(V4 { src: v4.dst, dst: v4.src, ..v4 }),
        Layer::V6(v6) => Layer::V6(V6 { src: v6.dst, dst: v6.src, ..v6 }),
        other => other,
    }
}
