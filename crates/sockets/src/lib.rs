//! UDP sockets for user-space stacks and simulators: which socket gets a datagram, and can it
//! hold it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod counters;
pub mod datagram;
mod error;
mod net;
pub mod queue;

pub use counters::{Event, IpVersion, UdpCounters, UdpSnapshot};
pub use error::SocketError;
pub use net::{DeviceId, Family, SocketId};
