//! The stages of UDP over real frames: from Ethernet frames to sockets that are read.
//!
//! ```text
//! Frame → dissect → hash → steer → … → check → segment → … → look-up → receive queue → reader
//! ```
//!
//! [`Plane`] steers: tables of a policy, masks that can change while packets flow, rules of ports.
//! [`Sockets`] is a namespace of sockets, each with its receive queue and the reader it belongs to.
//! With [`Sockets::shedding`] a frame that its socket has no room for is dropped before any work.
//! [`UdpStages`] brings both together for one thread of an executor; all its values share them.
//!
//! Always true: a frame ends once: shed or lost on its way ([`Tally::dropped`]), at the sockets
//! ([`Tally::ended`]), or queued and then read or still waiting; a socket with something to read is
//! in the list of its reader, or a thread is about to put it there; a datagram is read as it was
//! sent, whether it was merged on its way or not.
//! Elsewhere: which socket, and queues ([`rxsteer_sockets`]); who runs when (the executors).
//! Left out: fragments are counted and not put together; tunnels are not opened.

mod frame;
mod message;
mod order;
mod plane;
mod shedding;
mod socket;
mod stages;
mod tally;
#[cfg(all(test, not(loom)))]
pub(crate) mod testing;
#[cfg(all(test, not(loom)))]
mod tests;

pub use frame::Frame;
pub use message::Message;
pub use plane::{Plane, PlaneSettings};
pub use socket::{OpenError, Socket, SocketSettings, Sockets};
pub use stages::{Consume, Turn, UdpStages};
pub use tally::Tally;
