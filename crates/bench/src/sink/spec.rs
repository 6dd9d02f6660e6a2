//! How to read.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rxsteer_core::CpuId;
use rxsteer_testbed::Pair;
use serde::Serialize;

use crate::traffic::Flow;
use crate::words::words;
use crate::{BenchError, Until};

/// The system call of a reader.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// `recv(2)`: one datagram, no control messages.
    #[default]
    Recv,
    /// `recvmsg(2)`: one datagram.
    Recvmsg,
    /// `recvmmsg(2)`: a batch.
    Recvmmsg,
    /// A ring of `io_uring(7)`, on which each socket has one request that goes on (multishot).
    #[serde(rename = "io-uring")]
    IoUring,
}

words!(Call: "recv" Call::Recv, "recvmsg" Call::Recvmsg, "recvmmsg" Call::Recvmmsg, "io-uring" Call::IoUring);

/// How to read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SinkSpec {
    /// Where.
    pub listen: SocketAddr,
    /// By which system call.
    pub call: Call,
    /// Most datagrams with one `recvmmsg`; buffers of a ring, rounded up to a power of two.
    pub batch: usize,
    /// Takes datagrams that the kernel merged (`UDP_GRO`).
    pub gro: bool,
    /// Reading threads.
    pub threads: usize,
    /// One socket for each thread on the same port (`SO_REUSEPORT`), not one for all.
    pub reuseport: bool,
    /// Connected sockets, one for each of these senders, shared out among the threads; none for
    /// unconnected ones.
    pub peers: Vec<SocketAddr>,
    /// Connected sockets besides, one for each of these senders, that nobody reads: they only stand in
    /// the tables of the kernel.
    pub idle_peers: Vec<SocketAddr>,
    /// Work on each datagram that was read, in a loop; none for a reader that only reads.
    pub work: Duration,
    /// CPUs of the threads, in turn; empty for where the scheduler puts them.
    pub cpus: Vec<CpuId>,
    /// Busy polling of the device while there is nothing to read (`SO_BUSY_POLL`).
    pub busy_poll: Duration,
    /// Receive buffer in bytes, as the kernel will count it; `None` for the host's default.
    pub receive_buffer: Option<usize>,
    /// When to end, where there is no sender of our own.
    pub until: Until,
    /// Whether the end of a sender of our own does not matter, since there is none.
    pub listens_outside: bool,
}

impl SinkSpec {
    /// Most datagrams with one `recvmmsg`.
    pub const MOST_BATCH: usize = 1024;
    /// Most threads.
    pub const MOST_THREADS: usize = 256;
    /// Most work on a datagram; a reader looks at the end of the run only after that on a batch.
    pub const MOST_WORK: Duration = Duration::from_millis(10);

    /// One thread that reads with `recvmmsg` of 64 from one socket.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            call: Call::Recvmmsg,
            batch: 64,
            gro: false,
            threads: 1,
            reuseport: false,
            peers: Vec::new(),
            idle_peers: Vec::new(),
            work: Duration::ZERO,
            cpus: Vec::new(),
            busy_poll: Duration::ZERO,
            receive_buffer: None,
            until: Until::default(),
            listens_outside: false,
        }
    }

    /// Returns the senders of the first `count` flows of a set in a pair.
    pub fn peers_in_pair(to: IpAddr, count: u32) -> Vec<SocketAddr> {
        let peer = |index| {
            let Flow { address, port } = Flow::of_set(index);
            let ip: IpAddr = match to {
                IpAddr::V4(_) => (Pair::SOURCE_V4.to_bits() + address).to_be_bytes().into(),
                IpAddr::V6(_) => {
                    (Pair::SOURCE_V6.to_bits() + u128::from(address)).to_be_bytes().into()
                }
            };
            SocketAddr::new(ip, port)
        };
        (0..count).map(peer).collect()
    }

    pub(super) fn check(&self) -> Result<(), BenchError> {
        let refuse = |message: String| Err(BenchError::Options(message));
        if !(1..=Self::MOST_BATCH).contains(&self.batch) {
            return refuse(format!("batch {}: allowed are 1 to {}", self.batch, Self::MOST_BATCH));
        }
        if !(1..=Self::MOST_THREADS).contains(&self.threads) {
            let most = Self::MOST_THREADS;
            return refuse(format!("{} threads: allowed are 1 to {most}", self.threads));
        }
        if self.gro && self.call == Call::Recv {
            let message = "recv cannot tell how many datagrams were merged; GRO needs recvmsg or \
                           recvmmsg";
            return refuse(message.into());
        }
        if !self.busy_poll.is_zero() && self.call == Call::IoUring {
            return refuse(
                "a ring of io_uring does not poll for its sockets (SO_BUSY_POLL)".into(),
            );
        }
        if !self.peers.is_empty() && self.reuseport {
            return refuse("connected sockets need no reuseport".into());
        }
        if self.work > Self::MOST_WORK {
            let most = Self::MOST_WORK;
            return refuse(format!("{:?} of work: allowed is at most {most:?}", self.work));
        }
        if self.until.duration > Until::LONGEST {
            return refuse(format!("{:?}: allowed is at most a day", self.until.duration));
        }
        Ok(())
    }
}
