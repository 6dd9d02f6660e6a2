//! Datagrams by UDP sockets, one socket for each flow.
//!
//! What goes out with one system call is of one flow, so a batch is a burst of a flow.
//!
//! Source: sendmmsg(2); udp(7), `UDP_SEGMENT`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use rxsteer_testbed::Pair;

use super::{GenSpec, Means, Sender, Sent, is_full};
use crate::error::During as _;
use crate::traffic::{FIRST_PORT, Flows};
use crate::{BenchError, Kind, Pattern, sys};

/// Most flows, each of which is an open file.
const MOST_SOCKETS: u32 = 900;

/// Most segments of one send (`UDP_MAX_SEGMENTS` of Linux before 6.9).
const MOST_SEGMENTS: usize = 64;

/// Most bytes of one UDP datagram over IPv4.
const MOST_BYTES: usize = 65_507;

/// The sockets of the flows, and the sizes in turn.
struct Sockets {
    sockets: Vec<UdpSocket>,
    flows: Flows,
    sizes: Vec<u16>,
    next_size: usize,
    /// The flow of the last call, if some of its packets were refused: they go first.
    owing: Option<(usize, u64)>,
}

impl Sockets {
    fn open(spec: &GenSpec, means: &'static str, in_pair: bool) -> Result<Self, BenchError> {
        let traffic = &spec.traffic;
        let cannot = |what: String, why| Err(BenchError::CannotSend { means, what, why });
        if traffic.kind != Kind::Udp {
            return cannot(traffic.kind.to_string(), "packet can, in the testbed");
        }
        if traffic.pattern == Pattern::Random {
            return cannot("random sources".into(), "packet can, in the testbed");
        }
        if traffic.flows > MOST_SOCKETS {
            let what = format!("{} flows", traffic.flows);
            return cannot(what, "it opens a socket for each, at most 900");
        }
        let any: IpAddr = match traffic.to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from: IpAddr = match traffic.to {
            _ if !in_pair => any,
            IpAddr::V4(_) => Pair::SOURCE_V4.into(),
            IpAddr::V6(_) => Pair::SOURCE_V6.into(),
        };
        let to = SocketAddr::new(traffic.to, traffic.port);
        let open = |index: u32| -> Result<UdpSocket, BenchError> {
            // Elsewhere the kernel chooses, so as not to take the port of another.
            let port = if in_pair { FIRST_PORT + index as u16 } else { 0 };
            let socket = UdpSocket::bind((from, port))
                .during(|| format!("open a UDP socket at {from} port {port}"))?;
            socket.connect(to).during(|| format!("connect to {to}"))?;
            Ok(socket)
        };
        let sockets: Result<Vec<_>, _> = (0..traffic.flows).map(open).collect();
        Ok(Self {
            sockets: sockets?,
            flows: Flows::new(traffic.pattern, traffic.flows, 1, traffic.seed),
            sizes: traffic.sizes.cycle().to_vec(),
            next_size: 0,
            owing: None,
        })
    }

    /// Sends up to `most` packets of one flow; `send` says what became of them.
    ///
    /// A refusal by the receiver's host (ICMP) is told with the next packet and is not its error.
    fn send(
        &mut self,
        most: usize,
        send: impl FnOnce(&UdpSocket, usize) -> io::Result<Sent>,
    ) -> io::Result<Sent> {
        let (index, count) = match self.owing.take() {
            Some((index, left)) => (index, most.min(left as usize)),
            None => (self.flows.next_index() as usize, most),
        };
        let sent = match send(&self.sockets[index], count) {
            Err(error) if is_full(&error) || error.kind() == io::ErrorKind::ConnectionRefused => {
                Sent { refusals: 1, ..Sent::default() }
            }
            sent => sent?,
        };
        let left = (count as u64).saturating_sub(sent.packets);
        self.owing = (left > 0).then_some((index, left));
        Ok(sent)
    }

    fn next_size(&mut self) -> usize {
        let size = self.sizes[self.next_size];
        self.next_size = (self.next_size + 1) % self.sizes.len();
        usize::from(size)
    }
}

/// Many with one `sendmmsg`.
pub(super) struct Mmsg {
    sockets: Sockets,
    batch: sys::Batch,
    /// Messages that have their size.
    filled: usize,
}

impl Mmsg {
    pub(super) fn open(spec: &GenSpec, in_pair: bool) -> Result<Self, BenchError> {
        let sockets = Sockets::open(spec, "mmsg", in_pair)?;
        let longest = usize::from(spec.traffic.sizes.largest()).max(1);
        let batch = sys::Batch::new(spec.batch, longest).during(|| "make buffers".into())?;
        Ok(Self { sockets, batch, filled: 0 })
    }
}

impl Sender for Mmsg {
    fn send(&mut self, most: usize) -> io::Result<Sent> {
        let most = most.min(self.batch.count());
        for index in self.filled..most {
            let size = self.sockets.next_size();
            self.batch.fill(index, |_| size);
        }
        self.filled = self.filled.max(most);
        let batch = &mut self.batch;
        let sent = self.sockets.send(most, |socket, count| {
            let count = batch.send(socket.as_fd(), 0, count)?;
            let bytes = (0..count).map(|index| batch.len(index) as u64).sum();
            Ok(Sent { packets: count as u64, bytes, ..Sent::default() })
        })?;
        // The sizes of those that were not sent move to the front.
        let count = sent.packets as usize;
        for index in count..self.filled {
            let size = self.batch.len(index);
            self.batch.fill(index - count, |_| size);
        }
        self.filled -= count;
        Ok(sent)
    }

    fn means(&self) -> Means {
        Means::Mmsg
    }

    fn describe(&self) -> String {
        format!("datagrams by UDP sockets, sendmmsg of {}", self.batch.count())
    }
}

/// Many with one `send`, which the kernel cuts.
pub(super) struct Merged {
    sockets: Sockets,
    bytes: Vec<u8>,
    size: usize,
    most: usize,
}

impl Merged {
    pub(super) fn open(spec: &GenSpec, in_pair: bool) -> Result<Self, BenchError> {
        let size = match spec.traffic.sizes.only() {
            Some(size) if size > 0 => usize::from(size),
            _ => {
                return Err(BenchError::CannotSend {
                    means: "gso",
                    what: format!("payloads of {} bytes", spec.traffic.sizes),
                    why: "all must have one size, and not 0; mmsg can",
                });
            }
        };
        let sockets = Sockets::open(spec, "gso", in_pair)?;
        for socket in &sockets.sockets {
            let (level, name) = (libc::SOL_UDP, libc::UDP_SEGMENT);
            sys::set_option(socket.as_fd(), level, name, size as i32)
                .during(|| "switch UDP segmentation on (Linux 4.18)".into())?;
        }
        let most = MOST_SEGMENTS.min(MOST_BYTES / size).min(spec.batch);
        Ok(Self { sockets, bytes: vec![0; most * size], size, most })
    }
}

impl Sender for Merged {
    fn send(&mut self, most: usize) -> io::Result<Sent> {
        let (bytes, size) = (&self.bytes, self.size);
        self.sockets.send(most.min(self.most), |socket, count| {
            let len = socket.send(&bytes[..count * size])?;
            Ok(Sent { packets: len.div_ceil(size) as u64, bytes: len as u64, ..Sent::default() })
        })
    }

    fn means(&self) -> Means {
        Means::Gso
    }

    fn describe(&self) -> String {
        format!("datagrams by UDP sockets, GSO of {} segments", self.most)
    }
}

/// Each with its own `send`.
pub(super) struct Single {
    sockets: Sockets,
    bytes: Vec<u8>,
    /// Size of a datagram that is to be sent again.
    refused: Option<usize>,
}

impl Single {
    pub(super) fn open(spec: &GenSpec, in_pair: bool) -> Result<Self, BenchError> {
        let bytes = vec![0; usize::from(spec.traffic.sizes.largest())];
        Ok(Self { sockets: Sockets::open(spec, "send", in_pair)?, bytes, refused: None })
    }
}

impl Sender for Single {
    fn send(&mut self, _: usize) -> io::Result<Sent> {
        let size = match self.refused.take() {
            Some(size) => size,
            None => self.sockets.next_size(),
        };
        let bytes = &self.bytes[..size];
        let sent = self.sockets.send(1, |socket, _| {
            let len = socket.send(bytes)?;
            Ok(Sent { packets: 1, bytes: len as u64, ..Sent::default() })
        })?;
        self.refused = (sent.packets == 0).then_some(size);
        Ok(sent)
    }

    fn means(&self) -> Means {
        Means::Send
    }

    fn describe(&self) -> String {
        "datagrams by UDP sockets, one send each".into()
    }
}
