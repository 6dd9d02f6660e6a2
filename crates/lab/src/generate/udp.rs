//! UDP conversations of one client with one server: request and response, QUIC-like, WireGuard-like.
//!
//! Whether the server's socket is connected cannot be seen in a frame; a consumer file says it.
//! Datagrams longer than the MTU go as fragments.

use std::collections::VecDeque;

use super::flow::Flow;
use super::packet::{Layer, MAX_PAYLOAD, V4, V6, build};
use super::scenario::{Frame, Sender, Workload};
use super::{NS_PER_US, Rng, zeros};

/// What the payload looks like.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Payload {
    /// Zeros.
    #[default]
    Zeros,
    /// QUIC version 1: a long header first, short headers after (RFC 9000, section 17).
    Quic,
    /// WireGuard data messages.
    WireGuard,
}

/// One client's exchange of datagrams with a server.
#[derive(Clone, Debug)]
pub struct UdpConversation {
    /// Ends and way.
    pub flow: Flow,
    /// Time of the first datagram.
    pub start_ns: u64,
    /// Requests sent by the client.
    pub requests: u32,
    /// Bytes of each request.
    pub request_bytes: u32,
    /// Datagrams that answer one request.
    pub responses: u32,
    /// Bytes of each response.
    pub response_bytes: u32,
    /// Mean time from one request to the next.
    pub gap_ns: u64,
    /// Largest IP packet; longer datagrams are fragmented.
    pub mtu: usize,
    /// Kind of payload.
    pub payload: Payload,
    /// Requests after which the client goes on from another port, as after a change of network or
    /// of a translator on the way; 0: never. The connection id stays.
    pub migrate_after: u32,
}

impl UdpConversation {
    /// Ten requests of 64 bytes, each with one response of 64 bytes, 1 ms apart.
    pub fn new(flow: Flow, start_ns: u64) -> Self {
        Self {
            flow,
            start_ns,
            requests: 10,
            request_bytes: 64,
            responses: 1,
            response_bytes: 64,
            gap_ns: 1000 * NS_PER_US,
            mtu: 1500,
            payload: Payload::Zeros,
            migrate_after: 0,
        }
    }
}

impl Workload for UdpConversation {
    fn sender(self, mut rng: Rng) -> Box<dyn Sender> {
        let mut exchange = Exchange {
            next_ns: self.start_ns,
            sent: 0,
            pending: VecDeque::new(),
            fragments: VecDeque::new(),
            layers: Vec::new(),
            body: Vec::new(),
            connection_id: rng.bits(),
            ip_id: rng.bits() as u16,
            count: [0; 2],
            rng,
            spec: self,
        };
        exchange.refill();
        Box::new(exchange)
    }
}

struct Exchange {
    spec: UdpConversation,
    rng: Rng,
    next_ns: u64,
    sent: u32,
    /// Datagrams to come: time, direction, bytes.
    pending: VecDeque<(u64, bool, u32)>,
    /// Fragments of the datagram last taken off `pending`, ready to go.
    fragments: VecDeque<(u64, bool, Vec<u8>)>,
    layers: Vec<Layer>,
    body: Vec<u8>,
    connection_id: u64,
    ip_id: u16,
    /// Datagrams sent so far by the client and by the server.
    count: [u64; 2],
}

impl Exchange {
    fn refill(&mut self) {
        if self.sent >= self.spec.requests {
            return;
        }
        let migrate = self.spec.migrate_after;
        if migrate > 0 && self.sent > 0 && self.sent.is_multiple_of(migrate) {
            let client = &mut self.spec.flow.client;
            client.set_port(1024 + (client.port().wrapping_sub(1024).wrapping_add(7919)) % 64_512);
        }
        self.sent += 1;
        let start = self.next_ns;
        self.pending.push_back((start, false, self.spec.request_bytes));
        let mut time = start + self.rng.around(40 * NS_PER_US);
        for _ in 0..self.spec.responses {
            self.pending.push_back((time, true, self.spec.response_bytes));
            time += 3 * NS_PER_US;
        }
        self.next_ns = time.max(start + self.rng.around(self.spec.gap_ns.max(2)));
    }

    fn body(&mut self, back: bool, len: usize) {
        let slot = usize::from(back);
        let nth = self.count[slot];
        self.count[slot] += 1;
        self.body.clear();
        match self.spec.payload {
            Payload::Zeros => {}
            Payload::Quic if nth == 0 => {
                self.body.push(0xc0); // long header, Initial
                self.body.extend_from_slice(&1u32.to_be_bytes());
                self.body.push(8);
                self.body.extend_from_slice(&self.connection_id.to_be_bytes());
            }
            Payload::Quic => {
                self.body.push(0x40); // short header
                self.body.extend_from_slice(&self.connection_id.to_be_bytes());
            }
            Payload::WireGuard => {
                self.body.extend_from_slice(&[4, 0, 0, 0]);
                self.body.extend_from_slice(&(self.connection_id as u32).to_le_bytes());
                self.body.extend_from_slice(&nth.to_le_bytes());
            }
        }
        self.body.resize(len.min(MAX_PAYLOAD), 0);
    }

    /// Cuts the datagram in `self.body` into fragments that fit the MTU.
    fn fragment(&mut self, time_ns: u64, back: bool, udp: Layer) {
        let ip = self.spec.flow.ip(back, self.ip_id);
        let path = self.spec.flow.path.layers(back);
        // The UDP header and its checksum, which covers the whole datagram.
        let mut datagram = Vec::new();
        build(&[ip, udp], &self.body, &mut datagram);
        let (header_len, room) = match ip {
            Layer::V6(_) => (40, self.spec.mtu.saturating_sub(48)),
            _ => (20, self.spec.mtu.saturating_sub(20)),
        };
        let chunk = (room & !7).max(8);
        let content = datagram.get(header_len..).unwrap_or_default();
        let count = content.chunks(chunk).len();
        for (index, bytes) in content.chunks(chunk).enumerate() {
            let offset = (index * chunk) as u16;
            let more = index + 1 < count;
            self.layers.clear();
            self.layers.extend_from_slice(path);
            match ip {
                Layer::V4(v4) => self.layers.push(Layer::V4(V4 {
                    fragment: Some((offset, more)),
                    protocol: Some(17),
                    ..v4
                })),
                Layer::V6(v6) => {
                    self.layers.push(Layer::V6(V6 { protocol: Some(44), ..v6 }));
                    let id = u32::from(self.ip_id);
                    self.layers.push(Layer::Fragment6 { offset, more, id, protocol: 17 });
                }
                _ => {}
            }
            let mut frame = Vec::new();
            build(&self.layers, bytes, &mut frame);
            let time_ns = time_ns + index as u64 * NS_PER_US;
            self.fragments.push_back((time_ns, back, frame));
        }
    }
}

impl Sender for Exchange {
    fn next_ns(&self) -> Option<u64> {
        if let Some((time_ns, _, _)) = self.fragments.front() {
            return Some(*time_ns);
        }
        self.pending.front().map(|(time_ns, _, _)| *time_ns)
    }

    fn emit(&mut self, out: &mut Frame) {
        if let Some((_, back, frame)) = self.fragments.pop_front() {
            out.inbound = !back;
            out.bytes = frame;
            return;
        }
        let Some((time_ns, back, len)) = self.pending.pop_front() else { return };
        let (src, dst) = self.spec.flow.ends(back);
        let udp = Layer::Udp { src: src.port(), dst: dst.port(), checksum: true };
        self.ip_id = self.ip_id.wrapping_add(1);
        out.inbound = !back;
        let ip = self.spec.flow.ip(back, self.ip_id);
        let ip_len = if matches!(ip, Layer::V6(_)) { 40 } else { 20 };
        if self.spec.payload == Payload::Zeros && len as usize + 8 + ip_len <= self.spec.mtu {
            self.layers.clear();
            self.layers.extend_from_slice(self.spec.flow.path.layers(back));
            self.layers.push(ip);
            self.layers.push(udp);
            build(&self.layers, zeros(len as usize), &mut out.bytes);
        } else {
            self.body(back, len as usize);
            if self.body.len() + 8 + ip_len <= self.spec.mtu {
                self.layers.clear();
                self.layers.extend_from_slice(self.spec.flow.path.layers(back));
                self.layers.push(ip);
                self.layers.push(udp);
                build(&self.layers, &self.body, &mut out.bytes);
            } else {
                self.fragment(time_ns, back, udp);
                if let Some((_, _, frame)) = self.fragments.pop_front() {
                    out.bytes = frame;
                }
            }
        }
        if self.pending.is_empty() {
            self.refill();
        }
    }
}
