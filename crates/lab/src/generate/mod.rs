//! Traffic that is the same on every run: for tests, for the built-in sample, for experiments.
//!
//! A [`Scenario`] holds senders and gives their frames in order of time. All addresses are of the
//! documentation networks (RFC 5737, RFC 3849), and MAC addresses likewise (RFC 9542).
//!
//! Always true: no clock and no other input takes part but the scenario and its seed; frames are
//! made one by one, so a capture of any length needs the memory of its senders only.
//! Elsewhere: writing captures ([`crate::capture`]).

mod crowd;
mod flow;
mod packet;
mod rng;
mod sample;
mod scenario;
mod tcp;
mod tunnelled;
mod udp;
mod uniform;
mod write;

#[cfg(test)]
mod tests;

pub use crowd::{Crowd, CrowdKind};
pub use flow::{Flow, Path};
pub use packet::{Layer, MAX_PAYLOAD, Tcp, TcpFlags, V4, V6, build, packet};
pub use rng::Rng;
pub use sample::{SAMPLE_SNAP_LEN, port as sample_port, sample};
pub use scenario::{Frame, Frames, Scenario, Sender, Workload};
pub use tcp::TcpConversation;
pub use tunnelled::{Tunnel, Tunnelled};
pub use udp::{Payload, UdpConversation};
pub use uniform::{Turns, Uniform, uniform_client};
pub use write::{write_pcap, write_pcapng};

/// Time of a scenario's first frame where nothing else is said: 2026-01-01 00:00 UTC.
pub const EPOCH_NS: u64 = 1_767_225_600_000_000_000;

/// Nanoseconds of a microsecond.
pub const NS_PER_US: u64 = 1000;

/// Returns a payload of `len` zeros, at most [`MAX_PAYLOAD`].
fn zeros(len: usize) -> &'static [u8] {
    static ZEROS: [u8; MAX_PAYLOAD] = [0; MAX_PAYLOAD];
    ZEROS.get(..len).unwrap_or(&ZEROS)
}
