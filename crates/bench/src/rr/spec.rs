//! How to ask and answer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rxsteer_core::CpuId;
use serde::Serialize;

use crate::traffic::FIRST_PORT;
use crate::words::words;
use crate::{BenchError, Until};

/// Port of the server in a pair.
pub(super) const PORT: u16 = 9998;

/// Protocol of the requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Datagrams; one that is lost is given up.
    #[default]
    Udp,
    /// Connections, made before the first request.
    Tcp,
}

words!(Protocol: "udp" Protocol::Udp, "tcp" Protocol::Tcp);

/// When the next request is asked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// A flow asks again when it has its answer.
    #[default]
    Closed,
    /// So many requests a second of all flows together, whatever happens.
    Open(u64),
}

/// Standing still on purpose, to see whether the figures tell of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Delay {
    /// A server thread stands still before each so many-th answer.
    pub every: u64,
    /// For how long.
    pub time: Duration,
}

/// How to ask and answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RrSpec {
    /// Protocol.
    pub protocol: Protocol,
    /// UDP sockets are connected: the asking ones, and in a pair the answering ones too.
    pub connected: bool,
    /// Flows, each with its socket.
    pub flows: u32,
    /// Bytes of a request.
    pub request_len: usize,
    /// Bytes of a response.
    pub response_len: usize,
    /// When the next request is asked.
    pub pace: Pace,
    /// When to end.
    pub until: Until,
    /// How long to wait for an answer.
    pub patience: Duration,
    /// Asking threads.
    pub client_threads: usize,
    /// Answering threads.
    pub server_threads: usize,
    /// CPUs of the asking threads, in turn; empty for where the scheduler puts them.
    pub client_cpus: Vec<CpuId>,
    /// CPUs of the answering threads, in turn.
    pub server_cpus: Vec<CpuId>,
    /// Standing still on purpose.
    pub delay: Option<Delay>,
}

impl Default for RrSpec {
    /// One byte each way over one connected UDP flow, in a closed loop.
    fn default() -> Self {
        Self {
            protocol: Protocol::Udp,
            connected: true,
            flows: 1,
            request_len: 1,
            response_len: 1,
            pace: Pace::Closed,
            until: Until::default(),
            patience: Duration::from_secs(1),
            client_threads: 1,
            server_threads: 1,
            client_cpus: Vec::new(),
            server_cpus: Vec::new(),
            delay: None,
        }
    }
}

impl RrSpec {
    /// Most flows.
    pub const MOST_FLOWS: u32 = 50_000;
    /// Most bytes of a request or a response.
    pub const LARGEST: usize = 8192;
    /// Most threads at each end.
    pub const MOST_THREADS: usize = 256;
    /// Bytes of the number that tells requests of an open loop apart.
    pub const NUMBER_LEN: usize = 8;

    /// Whether requests carry a number, so that an answer is known by it.
    pub(super) fn is_numbered(&self) -> bool {
        self.protocol == Protocol::Udp
            && self.request_len.min(self.response_len) >= Self::NUMBER_LEN
    }

    /// Returns the asking ends, if they are known before they ask.
    pub(super) fn peers(&self, from: IpAddr) -> Vec<SocketAddr> {
        if self.protocol == Protocol::Tcp || !self.connected {
            return Vec::new();
        }
        (0..self.flows).map(|flow| SocketAddr::new(from, FIRST_PORT + flow as u16)).collect()
    }

    pub(super) fn check(&self) -> Result<(), BenchError> {
        let refuse = |message: String| Err(BenchError::Options(message));
        if !(1..=Self::MOST_FLOWS).contains(&self.flows) {
            let most = Self::MOST_FLOWS;
            return refuse(format!("{} flows: allowed are 1 to {most}", self.flows));
        }
        for len in [self.request_len, self.response_len] {
            if !(1..=Self::LARGEST).contains(&len) {
                return refuse(format!("{len} bytes: allowed are 1 to {}", Self::LARGEST));
            }
        }
        for threads in [self.client_threads, self.server_threads] {
            if !(1..=Self::MOST_THREADS).contains(&threads) {
                let most = Self::MOST_THREADS;
                return refuse(format!("{threads} threads: allowed are 1 to {most}"));
            }
        }
        if let Pace::Open(rate) = self.pace {
            if !(1..=1_000_000_000).contains(&rate) {
                return refuse(format!("{rate} requests a second: allowed are 1 to 1000000000"));
            }
            if self.protocol == Protocol::Udp && !self.is_numbered() {
                let message = "in an open loop over UDP several requests of a flow may be on their \
                               way; to tell them apart, requests and responses need at least 8 bytes";
                return refuse(message.into());
            }
        }
        if self.until.duration > Until::LONGEST {
            return refuse(format!("{:?}: allowed is at most a day", self.until.duration));
        }
        Ok(())
    }
}
