//! What was sent.

use std::time::Duration;

use serde::Serialize;

use super::Means;

/// What was sent, and what it cost.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct GenReport {
    /// The means.
    pub by: Means,
    /// The same, in words.
    pub means: String,
    /// Packets that the kernel took.
    pub sent: u64,
    /// Their bytes: of frames, or of payload where the kernel made the headers.
    pub bytes: u64,
    /// Times that the kernel had no room; what it refused was sent again later.
    pub refusals: u64,
    /// Packets that the device refused, for which it counted a drop; they were sent again later.
    pub returned: u64,
    /// Packets that fell due while the sender was too late by more than a batch; never sent.
    pub behind: u64,
    /// From the first to the last.
    #[serde(rename = "elapsed_ns", serialize_with = "as_ns")]
    pub elapsed: Duration,
    /// CPU time of the sending thread. What the kernel did on its behalf in softirqs may be in it.
    #[serde(rename = "cpu_ns", serialize_with = "as_ns")]
    pub cpu: Duration,
}

impl GenReport {
    /// Returns packets a second.
    pub fn rate(&self) -> f64 {
        rate(self.sent, self.elapsed)
    }

    /// Returns CPU time a packet, in ns; 0 if none was sent.
    pub fn ns_per_packet(&self) -> f64 {
        per(self.cpu, self.sent)
    }
}

pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

pub(crate) fn per(time: Duration, count: u64) -> f64 {
    if count == 0 { 0.0 } else { time.as_nanos() as f64 / count as f64 }
}

pub(crate) fn as_ns<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
