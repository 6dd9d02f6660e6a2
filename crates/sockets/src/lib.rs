//! UDP sockets for user-space stacks and simulators: which socket gets a datagram, and can it
//! hold it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod counters;
pub mod datagram;
mod config;
mod error;
mod found;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod net;
pub mod queue;

pub use counters::{Event, IpVersion, UdpCounters, UdpSnapshot};
mod option;
mod packet;
mod profile;
mod table;

pub use config::Config;
pub use error::SocketError;
pub use found::{Found, Stage};
pub use net::{DeviceId, Family, SocketId};
pub use option::{Owner, SocketOption, SourceFilter};
pub use packet::{Cast, Packet};
pub use profile::Profile;
