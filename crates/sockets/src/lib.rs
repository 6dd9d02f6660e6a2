//! UDP sockets for user-space stacks and simulators: which socket gets a datagram, and can it
//! hold it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod config;
mod counters;
pub mod datagram;
mod error;
mod events;
mod explain;
mod found;
mod group;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod namespace;
mod net;
mod option;
mod packet;
mod profile;
pub mod queue;
mod table;

pub use config::Config;
pub use counters::{Event, IpVersion, UdpCounters, UdpSnapshot};
pub use error::SocketError;
pub use events::FlowEvents;
pub use explain::{Explanation, Judged, Mismatch, PickedBy, Place, Score, Why};
pub use found::{Found, Stage, Walk};
pub use group::{Choice, ConnectionIdRule, Selector, UserSelector};
pub use namespace::Namespace;
pub use net::{DeviceId, Family, SocketId};
pub use option::{Owner, SocketOption, SourceFilter};
pub use packet::{Cast, Packet};
pub use profile::{BadKernelRelease, Faults, KernelRelease, KernelRules, Profile};

/// Whether this build finds connected sockets by 4-tuple: the feature `hash4`.
pub const HASH4: bool = cfg!(feature = "hash4");
