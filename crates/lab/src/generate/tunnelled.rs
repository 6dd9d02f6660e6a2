//! Many flows inside one tunnel between two hosts.
//!
//! What tells the flows apart from outside differs by tunnel: nothing (one UDP tuple, one SPI), the
//! source port, into which the sender puts the hash of the inner flow (RFC 7348, section 5; RFC
//! 8926, section 3.3), or the inner headers themselves, where they can be read.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::flow::Path;
use super::packet::{Layer, V4, build};
use super::scenario::{Frame, Sender, Workload};
use super::uniform::uniform_client;
use super::{EPOCH_NS, Rng, zeros};

/// Port of WireGuard where nothing else is said.
const WIREGUARD_PORT: u16 = 51_820;

/// A tunnel protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tunnel {
    /// VXLAN; with or without the inner hash in the source port.
    Vxlan {
        /// The source port tells the inner flows apart.
        entropy: bool,
    },
    /// Geneve, likewise.
    Geneve {
        /// The source port tells the inner flows apart.
        entropy: bool,
    },
    /// GRE, its inner headers readable.
    Gre,
    /// ESP: one SPI, all else encrypted.
    Esp,
    /// WireGuard: one UDP tuple, all else encrypted.
    WireGuard,
}

/// UDP flows inside a tunnel, received at its end.
#[derive(Clone, Debug)]
pub struct Tunnelled {
    /// The protocol.
    pub tunnel: Tunnel,
    /// Number of inner flows.
    pub flows: u64,
    /// Number of packets, of the flows in turn.
    pub packets: u64,
    /// Bytes of inner payload.
    pub payload_bytes: u16,
    /// The other end of the tunnel.
    pub from: Ipv4Addr,
    /// This end.
    pub to: Ipv4Addr,
    /// Where the inner packets go.
    pub server: SocketAddr,
    /// Time of the first packet.
    pub start_ns: u64,
    /// Mean time between packets.
    pub gap_ns: u64,
}

impl Tunnelled {
    /// 64 flows of 10 packets each, 10 µs apart.
    pub fn new(tunnel: Tunnel) -> Self {
        Self {
            tunnel,
            flows: 64,
            packets: 640,
            payload_bytes: 64,
            from: Ipv4Addr::new(192, 0, 2, 20),
            to: Ipv4Addr::new(192, 0, 2, 10),
            server: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 200)), 7000),
            start_ns: EPOCH_NS,
            gap_ns: 10_000,
        }
    }
}

impl Workload for Tunnelled {
    fn sender(self, rng: Rng) -> Box<dyn Sender> {
        let next_ns = self.start_ns;
        Box::new(Sending { spec: self, rng, sent: 0, next_ns, layers: Vec::new() })
    }
}

struct Sending {
    spec: Tunnelled,
    rng: Rng,
    sent: u64,
    next_ns: u64,
    layers: Vec<Layer>,
}

impl Sending {
    fn outer(&self, flow: u64, nth: u32) -> Path {
        let spec = &self.spec;
        let (from, to) = (IpAddr::V4(spec.from), IpAddr::V4(spec.to));
        // Stands for the hash of the inner flow.
        let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let port = |entropy: bool| if entropy { hash as u16 } else { 0 };
        let plain = |layers: &[Layer]| {
            let ip = Layer::V4(V4::new(spec.from, spec.to));
            Path::new([&[Layer::Ethernet { back: false }, ip], layers].concat())
        };
        match spec.tunnel {
            Tunnel::Vxlan { entropy } => Path::vxlan(from, to, 42, port(entropy)),
            Tunnel::Geneve { entropy } => Path::geneve(from, to, 42, port(entropy)),
            Tunnel::Gre => Path::gre(from, to, None),
            Tunnel::Esp => plain(&[Layer::Esp { spi: 0x1234_5678, seq: nth }]),
            Tunnel::WireGuard => plain(&[
                Layer::Udp { src: WIREGUARD_PORT, dst: WIREGUARD_PORT, checksum: false },
                Layer::WireGuard { receiver: 0x5763_6172, counter: u64::from(nth) },
            ]),
        }
    }
}

impl Sender for Sending {
    fn next_ns(&self) -> Option<u64> {
        (self.sent < self.spec.packets).then_some(self.next_ns)
    }

    fn emit(&mut self, out: &mut Frame) {
        let flow = self.sent % self.spec.flows.max(1);
        self.sent += 1;
        self.next_ns += self.rng.around(self.spec.gap_ns.max(1)).max(1);
        let path = self.outer(flow, self.sent as u32);
        self.layers.clear();
        self.layers.extend_from_slice(path.layers(false));
        let len = usize::from(self.spec.payload_bytes);
        // What is encrypted has no headers to be read.
        if !matches!(self.spec.tunnel, Tunnel::Esp | Tunnel::WireGuard) {
            let client = uniform_client(flow);
            let inner = super::flow::Flow::new(client, self.spec.server);
            self.layers.push(inner.ip(false, self.sent as u16));
            let (src, dst) = (client.port(), self.spec.server.port());
            self.layers.push(Layer::Udp { src, dst, checksum: true });
        }
        build(&self.layers, zeros(len), &mut out.bytes);
        out.inbound = true;
    }
}
