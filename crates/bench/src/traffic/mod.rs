//! What is sent: kinds of packets, sizes, and who they seem to come from.
//!
//! Elsewhere: the bytes ([`frames`]); which flow comes next ([`pattern`]).

mod frames;
mod patch;
mod pattern;
mod sizes;

use std::net::IpAddr;

use serde::Serialize;

use crate::words::words;

pub(crate) use frames::{Frames, Link};
pub(crate) use patch::{Checksum, Places, checksum_over};
pub(crate) use pattern::{Flow, Flows};
pub use sizes::Sizes;

/// Source port of the first flow; the others follow.
pub(crate) const FIRST_PORT: u16 = 10_000;

/// Flows of one source address; the next address follows after them.
pub(crate) const PORTS: u32 = 50_000;

/// Most flows.
pub(crate) const MOST_FLOWS: u32 = 1 << 22;

/// Kinds of packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// UDP datagrams.
    #[default]
    Udp,
    /// First packets of TCP connections that never come about.
    TcpSyn,
    /// UDP datagrams in VXLAN (RFC 7348); the outer source port is made from the inner flow.
    Vxlan,
    /// UDP datagrams in two IP fragments; each counts as a packet.
    Fragments,
}

/// Which flow the next packet is of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One flow after the other, and again.
    #[default]
    InTurn,
    /// Any of the flows, each as likely.
    Uniform,
    /// Any of the flows, flow `k` as likely as `1 / k` (Zipf).
    HeavyTail,
    /// A new random source each time: addresses of 198.18.0.0/15 or 2001:2::/48, any port from 1024.
    Random,
}

/// What is sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Traffic {
    /// Kind of packets.
    pub kind: Kind,
    /// Flows; of no meaning under [`Pattern::Random`].
    pub flows: u32,
    /// Which flow comes next.
    pub pattern: Pattern,
    /// Bytes of payload.
    pub sizes: Sizes,
    /// Where it goes.
    pub to: IpAddr,
    /// Destination port; of the inner packet in VXLAN.
    pub port: u16,
    /// Seed of all that is drawn.
    pub seed: u64,
}

impl Traffic {
    /// UDP of 20 bytes payload in 64 flows to this address and port.
    pub fn new(to: IpAddr, port: u16) -> Self {
        Self {
            kind: Kind::Udp,
            flows: 64,
            pattern: Pattern::InTurn,
            sizes: Sizes::fixed(20),
            to,
            port,
            seed: 1,
        }
    }
}

words!(Kind: "udp" Kind::Udp, "tcp-syn" Kind::TcpSyn, "vxlan" Kind::Vxlan, "fragments" Kind::Fragments);
words!(Pattern: "in-turn" Pattern::InTurn, "uniform" Pattern::Uniform,
    "heavy-tail" Pattern::HeavyTail, "random" Pattern::Random);
