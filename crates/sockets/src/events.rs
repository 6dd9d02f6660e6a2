//! What sockets tell the steering side: which flows there are.
//!
//! A connected socket is the statement "this 4-tuple is a flow". Connecting makes it, connecting to
//! another remote end withdraws it and makes another, disconnecting and closing withdraw it. Linux
//! withdraws nothing on disconnect; this does under every profile, since it is no part of a look-up.
//!
//! Always true: what is withdrawn was told before and not withdrawn since; a socket has at most one
//! flow.

use std::fmt;

use rxsteer_core::FlowKey;
use rxsteer_core::dissect::AddrKind;

use crate::SocketId;
use crate::table::Tuple;

/// Hears of the flows of connected sockets.
///
/// Called from within operations, under the lock of the namespace, after look-ups can see the
/// change: implementations must be quick and must not operate on sockets of the namespace.
///
/// The key is that of the packets which the socket receives, as [`rxsteer_core::dissect()`] finds it
/// in them; hash it as the packets are hashed. For
/// [`Steering`](rxsteer_core::steer::Steering) keep a
/// [`SocketFlow`](rxsteer_core::steer::SocketFlow) for each socket: record it when the socket's
/// reader runs, and hand it to `disconnect` when its flow is withdrawn.
pub trait FlowEvents: fmt::Debug + Send + Sync {
    /// A socket has this flow from now on.
    fn connected(&self, socket: SocketId, flow: &FlowKey);

    /// A socket no longer has this flow.
    fn withdrawn(&self, socket: SocketId, flow: &FlowKey);
}

/// Returns the key of the packets that a connected socket receives.
pub(crate) fn flow_key(tuple: &Tuple) -> FlowKey {
    let v4 = tuple.is_v4();
    let address = |address: u128| {
        // Left-aligned: an IPv4 address takes the first four bytes.
        if v4 { (address << 96).to_be_bytes() } else { address.to_be_bytes() }
    };
    FlowKey {
        src: address(tuple.remote),
        dst: address(tuple.local),
        src_port: tuple.remote_port,
        dst_port: tuple.local_port,
        ethertype: if v4 { 0x0800 } else { 0x86dd },
        protocol: 17,
        addr_kind: if v4 { AddrKind::V4 } else { AddrKind::V6 },
        ..FlowKey::default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
