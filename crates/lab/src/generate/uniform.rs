//! Many equal flows in one sender: N flows of M packets, for table sizes and speed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::flow::{Flow, Path};
use super::packet::{Layer, Tcp, TcpFlags, build};
use super::scenario::{Frame, Sender, Workload};
use super::{EPOCH_NS, Rng, zeros};

/// In which order the flows take turns.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Turns {
    /// One after another, again and again: each flow has exactly its number of packets.
    #[default]
    RoundRobin,
    /// Drawn at random: each flow has its number of packets on average.
    Random,
}

/// Equal flows of small packets from clients to one server port.
#[derive(Clone, Debug)]
pub struct Uniform {
    /// Number of flows; at most 16,515,072 (256 addresses, 64,512 ports), more share a tuple.
    pub flows: u64,
    /// Packets of each flow.
    pub packets_per_flow: u64,
    /// Where they go.
    pub server: SocketAddr,
    /// TCP data segments instead of UDP datagrams.
    pub tcp: bool,
    /// Bytes of payload.
    pub payload_bytes: u16,
    /// Time of the first packet.
    pub start_ns: u64,
    /// Time between packets.
    pub gap_ns: u64,
    /// Packets that leave one after another at the rate of the link, followed by a pause that keeps
    /// the mean; 1: evenly.
    pub burst: u64,
    /// Time between two packets of a burst.
    pub burst_gap_ns: u64,
    /// Order of the flows.
    pub turns: Turns,
    /// Headers in front.
    pub path: Path,
    /// IPv6 flow label of all flows; 0 for none.
    pub flow_label: u32,
    /// Number of the first client; keeps several senders to one port apart.
    pub first_client: u64,
    /// All flows come from one address, and differ by port only.
    pub one_client: bool,
}

impl Default for Uniform {
    fn default() -> Self {
        Self {
            flows: 1000,
            packets_per_flow: 10,
            server: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)), 7000),
            tcp: false,
            payload_bytes: 22,
            start_ns: EPOCH_NS,
            gap_ns: 1000,
            burst: 1,
            burst_gap_ns: 0,
            turns: Turns::RoundRobin,
            path: Path::ethernet(),
            flow_label: 0,
            first_client: 0,
            one_client: false,
        }
    }
}

impl Workload for Uniform {
    fn sender(self, rng: Rng) -> Box<dyn Sender> {
        let total = self.flows.saturating_mul(self.packets_per_flow);
        Box::new(Turning { spec: self, rng, sent: 0, total, layers: Vec::new() })
    }
}

struct Turning {
    spec: Uniform,
    rng: Rng,
    sent: u64,
    total: u64,
    layers: Vec<Layer>,
}

/// Returns the client of flow `index`: an address of 198.51.100.0/24 and a port from 1024.
pub fn uniform_client(index: u64) -> SocketAddr {
    let port = 1024 + (index / 256 % 64_512) as u16;
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, index as u8)), port)
}

impl Sender for Turning {
    fn next_ns(&self) -> Option<u64> {
        let Uniform { burst, burst_gap_ns, gap_ns, start_ns, .. } = self.spec;
        let burst = burst.max(1);
        // A burst is over before the next begins.
        let within = (self.sent % burst).saturating_mul(burst_gap_ns.min(gap_ns));
        let begun = (self.sent - self.sent % burst).saturating_mul(gap_ns);
        (self.sent < self.total).then(|| start_ns.saturating_add(begun).saturating_add(within))
    }

    fn emit(&mut self, out: &mut Frame) {
        let index = match self.spec.turns {
            Turns::RoundRobin => self.sent % self.spec.flows.max(1),
            Turns::Random => self.rng.below(self.spec.flows),
        };
        let nth = self.sent / self.spec.flows.max(1);
        self.sent += 1;
        let place = if self.spec.one_client { index * 256 } else { index };
        let client = uniform_client(self.spec.first_client + place);
        let (src, dst) = (client.port(), self.spec.server.port());
        let flow_label = self.spec.flow_label;
        let flow = Flow { flow_label, ..Flow::new(client, self.spec.server) };
        self.layers.clear();
        self.layers.extend_from_slice(self.spec.path.layers(false));
        self.layers.push(flow.ip(false, nth as u16));
        self.layers.push(if self.spec.tcp {
            let seq = (nth as u32).wrapping_mul(u32::from(self.spec.payload_bytes));
            let flags = TcpFlags { ack: true, psh: true, ..TcpFlags::default() };
            Layer::Tcp(Tcp { src, dst, seq, ack: 1, flags })
        } else {
            Layer::Udp { src, dst, checksum: true }
        });
        build(&self.layers, zeros(usize::from(self.spec.payload_bytes)), &mut out.bytes);
        out.inbound = true;
    }
}
