//! Consumers: which sockets exist, who reads them and on which CPU.
//!
//! What is not given in a TOML file ([`Scenario::from_toml`]) is inferred from the packets:
//!
//! | traffic | taken for | from when on |
//! | --- | --- | --- |
//! | TCP | a connected socket per connection | the first packet after its SYN; seen in the middle: packets both ways (one way, in a capture that has no sent packets: the second with data) |
//! | UDP, one peer, both ways, and the local side spoke first or has the higher port | a connected socket | the second direction shows |
//! | other UDP | one unconnected socket for each local address and port (or as many as `workers` says) | the first packet |
//! | tunnels over UDP whose inner flow is readable | as the inner flow | as above |
//! | all else, fragments without known ports | nobody | |
//!
//! A connection is closed by RST, or by FIN both ways. A connected UDP socket that a second peer
//! talks to is disconnected. The n-th socket is read by a thread on the n-th CPU that serves, in
//! turn. State is bounded; the socket that was idle longest (by the clock method) makes room.
//!
//! Always true: a socket place is opened before it is used and closed before it is opened again.
//! Elsewhere: which address is local, and the packets themselves (`crate::replay`).

mod address;
mod duration;
mod half_open;
mod scenario;
mod sockets;

pub use address::{AddrPattern, AddressError, Prefix};
pub use duration::{DurationError, parse_duration_ns};
pub use scenario::{Change, ConsumerRule, Event, Protocol, Scenario};
pub(crate) use scenario::{ConsumerFile, EventFile};
pub(crate) use sockets::{Found, Heard, Note, Opened, Sockets, Tuple};
