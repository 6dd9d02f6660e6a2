//! Traffic that is not flows: a new client for each request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::flow::{Flow, Path};
use super::packet::{Layer, Tcp, TcpFlags, build};
use super::scenario::{Frame, Sender, Workload};
use super::{NS_PER_US, Rng, zeros};

/// What a crowd sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrowdKind {
    /// A DNS query of about 40 bytes and its answer of about 100 (RFC 1035).
    Dns,
    /// UDP datagrams of this many bytes, never answered.
    UdpFlood {
        /// Bytes of payload.
        bytes: u16,
    },
    /// TCP SYNs that the server answers, statelessly, with SYN-ACKs; no client goes on.
    SynFlood,
}

/// Clients that come once: random addresses and ports, one request each.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Where the requests go.
    pub server: SocketAddr,
    /// What they are.
    pub kind: CrowdKind,
    /// Time of the first request.
    pub start_ns: u64,
    /// Number of requests.
    pub requests: u64,
    /// Mean time between requests.
    pub gap_ns: u64,
    /// Headers in front.
    pub path: Path,
}

impl Crowd {
    /// 1,000 requests, 10 µs apart, over bare Ethernet.
    pub fn new(server: SocketAddr, kind: CrowdKind, start_ns: u64) -> Self {
        Self {
            server,
            kind,
            start_ns,
            requests: 1000,
            gap_ns: 10 * NS_PER_US,
            path: Path::ethernet(),
        }
    }
}

impl Workload for Crowd {
    fn sender(self, mut rng: Rng) -> Box<dyn Sender> {
        let client = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let answer_after = self.gap_ns.clamp(1, 20 * NS_PER_US);
        let ip_id = rng.bits() as u16;
        Box::new(Passing {
            next_ns: self.start_ns,
            left: self.requests,
            answer: None,
            answer_after,
            layers: Vec::new(),
            body: Vec::new(),
            flow: Flow { client, server: self.server, path: self.path, flow_label: 0 },
            kind: self.kind,
            gap_ns: self.gap_ns,
            ip_id,
            rng,
        })
    }
}

/// Returns a random client: an address of two documentation networks (RFC 5737, RFC 3849) that
/// scenarios keep free of servers, and an unprivileged port.
pub(super) fn random_client(rng: &mut Rng, server: SocketAddr) -> SocketAddr {
    let bits = rng.bits();
    let port = 1024 + rng.below(64_512) as u16;
    let ip = match server.ip() {
        IpAddr::V4(_) => {
            let [.., last] = bits.to_be_bytes();
            let net = if bits & 0x100 == 0 { [198, 51, 100] } else { [203, 0, 113] };
            IpAddr::V4(Ipv4Addr::new(net[0], net[1], net[2], last))
        }
        IpAddr::V6(_) => {
            let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
            let part = |x, y| u16::from_be_bytes([x, y]);
            let host = [part(a, b), part(c, d), part(e, f), part(g, h)];
            IpAddr::V6(Ipv6Addr::new(0x2001, 0x0db8, 0xffff, 0, host[0], host[1], host[2], host[3]))
        }
    };
    SocketAddr::new(ip, port)
}

struct Passing {
    kind: CrowdKind,
    gap_ns: u64,
    rng: Rng,
    flow: Flow,
    next_ns: u64,
    left: u64,
    /// Time of the answer to the request last sent.
    answer: Option<u64>,
    answer_after: u64,
    layers: Vec<Layer>,
    body: Vec<u8>,
    ip_id: u16,
}

impl Passing {
    fn tcp(&mut self, back: bool) {
        let (src, dst) = self.flow.ends(back);
        let seq = self.rng.bits() as u32;
        let flags = TcpFlags { syn: true, ack: back, ..TcpFlags::default() };
        let ack = if back { self.rng.bits() as u32 } else { 0 };
        self.layers.push(Layer::Tcp(Tcp { src: src.port(), dst: dst.port(), seq, ack, flags }));
    }

    fn udp(&mut self, back: bool) {
        let (src, dst) = self.flow.ends(back);
        self.layers.push(Layer::Udp { src: src.port(), dst: dst.port(), checksum: true });
    }

    fn dns(&mut self, back: bool) {
        // Header: id, flags, one question, one answer if it is one (RFC 1035, section 4.1.1).
        let id = (self.ip_id ^ 0x5555).to_be_bytes();
        let flags: u16 = if back { 0x8180 } else { 0x0100 };
        self.body.clear();
        self.body.extend_from_slice(&id);
        self.body.extend_from_slice(&flags.to_be_bytes());
        self.body.extend_from_slice(&[0, 1, 0, u8::from(back), 0, 0, 0, 0]);
        self.body.extend_from_slice(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
        if back {
            // A pointer to the name, type A, class IN, 300 s, four bytes.
            self.body.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 80]);
        }
    }
}

impl Sender for Passing {
    fn next_ns(&self) -> Option<u64> {
        self.answer.or((self.left > 0).then_some(self.next_ns))
    }

    fn emit(&mut self, out: &mut Frame) {
        let back = self.answer.take().is_some();
        if !back {
            self.left = self.left.saturating_sub(1);
            self.flow.client = random_client(&mut self.rng, self.flow.server);
            self.ip_id = self.ip_id.wrapping_add(1);
            let sent = self.next_ns;
            let gap = self.rng.around(self.gap_ns.max(1)).max(1);
            self.next_ns = sent + gap;
            if !matches!(self.kind, CrowdKind::UdpFlood { .. }) {
                // Before the next request, so that one slot is enough.
                self.answer = Some(sent + self.answer_after.min(gap));
            }
        }
        self.layers.clear();
        self.layers.extend_from_slice(self.flow.path.layers(back));
        self.layers.push(self.flow.ip(back, self.ip_id));
        match self.kind {
            CrowdKind::Dns => {
                self.udp(back);
                self.dns(back);
                build(&self.layers, &self.body, &mut out.bytes);
            }
            CrowdKind::UdpFlood { bytes } => {
                self.udp(back);
                build(&self.layers, zeros(usize::from(bytes)), &mut out.bytes);
            }
            CrowdKind::SynFlood => {
                self.tcp(back);
                build(&self.layers, &[], &mut out.bytes);
            }
        }
        out.inbound = !back;
    }
}
