//! TCP connections: handshake, requests and responses, close.
//!
//! A model of what a capture shows, not of TCP: nothing is lost, and one acknowledgment stands for
//! two segments.

use std::collections::VecDeque;

use super::flow::Flow;
use super::packet::{Layer, Tcp, TcpFlags, build};
use super::scenario::{Frame, Sender, Workload};
use super::{NS_PER_US, Rng, zeros};

/// Bytes of data in a full segment on Ethernet: 1500 less the two headers and timestamps.
const SEGMENT_BYTES: u32 = 1448;

const SYN: TcpFlags = TcpFlags { syn: true, ack: false, psh: false, fin: false, rst: false };
const SYN_ACK: TcpFlags = TcpFlags { ack: true, ..SYN };
const ACK: TcpFlags = TcpFlags { syn: false, ..SYN_ACK };
const PSH: TcpFlags = TcpFlags { psh: true, ..ACK };
const FIN: TcpFlags = TcpFlags { fin: true, ..ACK };

/// One TCP connection.
#[derive(Clone, Debug)]
pub struct TcpConversation {
    /// Ends and way.
    pub flow: Flow,
    /// Time of the first segment.
    pub start_ns: u64,
    /// Round-trip time.
    pub rtt_ns: u64,
    /// Requests sent by the client.
    pub requests: u32,
    /// Bytes of each request.
    pub request_bytes: u32,
    /// Bytes of each response.
    pub response_bytes: u32,
    /// Mean time from a response to the next request.
    pub gap_ns: u64,
    /// Segments of the handshake are part of the capture; otherwise it began before.
    pub handshake: bool,
    /// The client closes after the last response; otherwise the connection stays, idle.
    pub close: bool,
}

impl TcpConversation {
    /// A connection with ten requests of 100 bytes, answered by 1,000 bytes each, 1 ms apart.
    pub fn new(flow: Flow, start_ns: u64) -> Self {
        Self {
            flow,
            start_ns,
            rtt_ns: 200 * NS_PER_US,
            requests: 10,
            request_bytes: 100,
            response_bytes: 1000,
            gap_ns: 1000 * NS_PER_US,
            handshake: true,
            close: true,
        }
    }
}

impl Workload for TcpConversation {
    fn sender(self, mut rng: Rng) -> Box<dyn Sender> {
        let seq = [rng.bits() as u32, rng.bits() as u32];
        let mut connection = Connection {
            next_ns: self.start_ns,
            stage: if self.handshake { Stage::Open } else { Stage::Request(0) },
            pending: VecDeque::new(),
            layers: Vec::new(),
            seq,
            ip_id: rng.bits() as u16,
            rng,
            spec: self,
        };
        connection.refill();
        Box::new(connection)
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Open,
    Request(u32),
    Close,
    Done,
}

#[derive(Clone, Copy)]
struct Segment {
    time_ns: u64,
    back: bool,
    flags: TcpFlags,
    data_len: u32,
}

struct Connection {
    spec: TcpConversation,
    rng: Rng,
    stage: Stage,
    /// When the next stage may begin.
    next_ns: u64,
    pending: VecDeque<Segment>,
    layers: Vec<Layer>,
    /// Next sequence number of the client and of the server.
    seq: [u32; 2],
    ip_id: u16,
}

impl Connection {
    /// Queues the segments of the next stages until there are some or the end is reached.
    fn refill(&mut self) {
        while self.pending.is_empty() {
            let half = self.rng.around(self.spec.rtt_ns / 2);
            let start = self.next_ns;
            match self.stage {
                Stage::Open => {
                    self.push(start, false, SYN, 0);
                    self.push(start + 10 * NS_PER_US, true, SYN_ACK, 0);
                    self.push(start + 10 * NS_PER_US + 2 * half, false, ACK, 0);
                    self.next_ns = start + 20 * NS_PER_US + 2 * half;
                    self.stage = Stage::Request(0);
                }
                Stage::Request(n) if n < self.spec.requests => {
                    let asked = self.data(start, false, self.spec.request_bytes);
                    let answered =
                        self.data(asked + 30 * NS_PER_US, true, self.spec.response_bytes);
                    let gap = self.rng.around(self.spec.gap_ns.max(2));
                    self.next_ns = answered + 2 * half + gap;
                    self.stage = Stage::Request(n + 1);
                }
                Stage::Request(_) => {
                    self.stage = if self.spec.close { Stage::Close } else { Stage::Done };
                }
                Stage::Close => {
                    self.push(start, false, FIN, 0);
                    self.push(start + 20 * NS_PER_US, true, FIN, 0);
                    self.push(start + 20 * NS_PER_US + 2 * half, false, ACK, 0);
                    self.stage = Stage::Done;
                }
                Stage::Done => return,
            }
        }
    }

    /// Queues the segments of one message and the acknowledgments they draw; returns the last time.
    fn data(&mut self, start: u64, back: bool, bytes: u32) -> u64 {
        let mut left = bytes;
        let mut time = start;
        let mut count = 0;
        while left > 0 {
            let len = left.min(SEGMENT_BYTES);
            left -= len;
            count += 1;
            time += 2 * NS_PER_US;
            self.push(time, back, if left == 0 { PSH } else { ACK }, len);
            if count % 2 == 0 {
                time += NS_PER_US;
                self.push(time, !back, ACK, 0);
            }
        }
        time
    }

    fn push(&mut self, time_ns: u64, back: bool, flags: TcpFlags, data_len: u32) {
        self.pending.push_back(Segment { time_ns, back, flags, data_len });
    }
}

impl Sender for Connection {
    fn next_ns(&self) -> Option<u64> {
        self.pending.front().map(|segment| segment.time_ns)
    }

    fn emit(&mut self, out: &mut Frame) {
        let Some(segment) = self.pending.pop_front() else { return };
        let back = segment.back;
        let (src, dst) = self.spec.flow.ends(back);
        let [client_seq, server_seq] = self.seq;
        let (seq, ack) = if back { (server_seq, client_seq) } else { (client_seq, server_seq) };
        self.ip_id = self.ip_id.wrapping_add(1);
        self.layers.clear();
        self.layers.extend_from_slice(self.spec.flow.path.layers(back));
        self.layers.push(self.spec.flow.ip(back, self.ip_id));
        self.layers.push(Layer::Tcp(Tcp {
            src: src.port(),
            dst: dst.port(),
            seq,
            ack: if segment.flags.ack { ack } else { 0 },
            flags: segment.flags,
        }));
        build(&self.layers, zeros(segment.data_len as usize), &mut out.bytes);
        out.inbound = !back;
        // SYN and FIN take one sequence number each (RFC 9293, section 3.4).
        let used = segment.data_len + u32::from(segment.flags.syn) + u32::from(segment.flags.fin);
        let slot = usize::from(back);
        self.seq[slot] = self.seq[slot].wrapping_add(used);
        if self.pending.is_empty() {
            self.refill();
        }
    }
}
