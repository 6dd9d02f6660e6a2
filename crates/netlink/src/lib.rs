//! Questions to the kernel over netlink, one at a time: interfaces, their offloads, and what XDP
//! their drivers know.
//!
//! Elsewhere: what is asked, and what is made of the answers (`rxsteer-kernel`, `rxsteer-testbed`).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod ask;
mod ethtool;
mod family;
mod link;
mod netdev;

pub use ask::{Netlink, Protocol};
pub use ethtool::{active_offloads, switch_offloads};
pub use link::{links, namespace_id};
pub use netdev::{XdpFeatures, xdp_features};
