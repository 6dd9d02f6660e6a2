//! Why a bench cannot run.

use std::io;
use std::net::IpAddr;

use rxsteer_testbed::{TestbedError, limit_hint};

/// Why a bench cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The testbed cannot be made.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A step failed.
    #[error("cannot {doing}: {source}{}", limit_hint(source))]
    Step {
        /// The step.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The packets asked for cannot be sent by the means asked for.
    #[error("{means} cannot send {what}: {why}")]
    CannotSend {
        /// Name of the means.
        means: &'static str,
        /// What was asked for.
        what: String,
        /// Why not, and what can.
        why: &'static str,
    },
    /// Options that do not go together, or a value out of range.
    #[error("{0}")]
    Options(String),
    /// An address outside the testbed.
    #[error(
        "{0} is not in a testbed of this program; sending there needs --i-own-this-network {0}"
    )]
    NotOurs(IpAddr),
    /// Frames that were redirected to a veth device would be lost at its other end.
    #[error(
        "frames redirected to {device} are lost: its veth peer {peer} neither polls nor has an XDP \
         program; switch GRO on there (ethtool -K {peer} gro on), or attach a program that passes"
    )]
    PeerDoesNotPoll {
        /// The device.
        device: String,
        /// Its other end.
        peer: String,
    },
    /// The kernel refused the eBPF program that sends frames.
    #[error("the kernel refuses live frames: {0}")]
    LiveFrames(String),
    /// The kernel, or a filter before it, gives this process no io_uring.
    #[error(
        "io_uring cannot be used here: {0}; it takes Linux 6.0, sysctl kernel.io_uring_disabled = 0, and \
         a seccomp filter that lets it (those of containers often do not); recvmmsg takes none of these"
    )]
    NoIoUring(#[source] io::Error),
    /// Told to end too early for a result.
    #[error("stopped before {0}")]
    Stopped(&'static str),
    /// Steering cannot be attached to the receiving end.
    #[error("cannot attach rxsteer to the receiving end: {0}")]
    Attach(#[from] rxsteer_kernel::AttachError),
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(#[from] rxsteer_lab::capture::CaptureError),
}

/// Adds to an error what was being done.
pub(crate) trait During<T> {
    fn during(self, doing: impl FnOnce() -> String) -> Result<T, BenchError>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, doing: impl FnOnce() -> String) -> Result<T, BenchError> {
        self.map_err(|source| BenchError::Step { doing: doing(), source: source.into() })
    }
}
