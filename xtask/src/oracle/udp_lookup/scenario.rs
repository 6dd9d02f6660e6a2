//! The file format: one scenario a line, as JSON.
//!
//! Fields that are not known here are passed over; a step of a kind that is not known, or a value
//! that does not fit, makes its scenario fail with the reason.

use std::net::IpAddr;

use serde::Deserialize;

/// Sockets, and what happens to them.
#[derive(Debug, Deserialize)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) devices: Vec<Device>,
    pub(super) sockets: Vec<Socket>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    #[serde(default)]
    pub(super) bcast: Vec<IpAddr>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Socket {
    pub(super) id: u64,
    pub(super) family: u8,
    pub(super) bind: Option<IpAddr>,
    #[serde(default)]
    pub(super) port: u16,
    pub(super) dev: Option<String>,
    #[serde(default)]
    pub(super) opts: Options,
    pub(super) connect: Option<(IpAddr, u16)>,
    pub(super) err: Option<String>,
    pub(super) connect_err: Option<String>,
    pub(super) local: Option<(IpAddr, u16)>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Options {
    #[serde(default)]
    pub(super) reuseaddr: bool,
    #[serde(default)]
    pub(super) reuseport: bool,
    #[serde(default)]
    pub(super) v6only: bool,
    pub(super) incoming_cpu: Option<i64>,
    #[serde(default)]
    pub(super) uid: u32,
    pub(super) mcast_all: Option<bool>,
    #[serde(default)]
    pub(super) join: Vec<(IpAddr, String)>,
    pub(super) auto_port: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Step {
    New {
        sock: Socket,
    },
    Connect {
        id: u64,
        to: (IpAddr, u16),
        local: (IpAddr, u16),
        err: Option<String>,
    },
    Disconnect {
        id: u64,
        local: Option<(IpAddr, u16)>,
    },
    Close {
        id: u64,
    },
    Set {
        id: u64,
        opt: String,
        value: serde_json::Value,
    },
    Packet {
        #[serde(flatten)]
        way: Way,
        sport: u16,
        rx: Option<Vec<u64>>,
        any_of: Option<Vec<u64>>,
        same_as: Option<usize>,
    },
    Spread {
        #[serde(flatten)]
        way: Way,
        sports: (u16, u32),
        each_of: Vec<u64>,
    },
}

/// The fields that packets and spreads have in common.
#[derive(Debug, Deserialize)]
pub(super) struct Way {
    #[serde(rename = "in")]
    pub(super) device: String,
    #[serde(default, rename = "loop")]
    pub(super) from_this_host: bool,
    pub(super) cpu: u16,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) dport: u16,
    #[serde(default)]
    pub(super) depends: Vec<String>,
}
