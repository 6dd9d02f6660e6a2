//! Sending over a pair, and counting at its other end.

use std::net::{SocketAddr, UdpSocket};

use rxsteer_testbed::Pair;
use serde::Serialize;

use super::{GenReport, GenSpec, Road, generate};
use crate::error::During as _;
use crate::{BenchError, Kind, Watch};

/// What was sent over a pair, and what the devices say of it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct GenPairReport {
    /// What was sent.
    pub source: GenReport,
    /// Packets that the receiver's device counted.
    pub arrived: u64,
    /// Packets that the sender's device dropped: no room at the other end.
    pub dropped: u64,
}

/// Sends over a pair to a UDP socket that nobody reads, so that no host complains.
///
/// # Errors
/// Those of [`generate`].
pub fn generate_in(
    pair: &Pair,
    spec: &GenSpec,
    watch: &Watch<'_>,
) -> Result<GenPairReport, BenchError> {
    let at = SocketAddr::new(spec.traffic.to, spec.traffic.port);
    let _unread = if spec.traffic.kind == Kind::TcpSyn {
        None
    } else {
        let opened = pair.sink.run(|| UdpSocket::bind(at))?;
        Some(opened.during(|| format!("open a UDP socket at {at}"))?)
    };
    let send = || generate(spec, Road::Pair(pair), watch);
    let (source, (arrived, dropped)) = counted(pair, send, |source| source.returned)?;
    Ok(GenPairReport { source, arrived, dropped })
}

/// Returns what was sent, the packets that the receiver's device counted meanwhile, and those that the
/// sender's device dropped, without those that were `returned` to the sender.
pub(super) fn counted<T>(
    pair: &Pair,
    send: impl FnOnce() -> Result<T, BenchError>,
    returned: impl FnOnce(&T) -> u64,
) -> Result<(T, (u64, u64)), BenchError> {
    let counters = || -> Result<_, BenchError> {
        let source = pair.source.device(Pair::SOURCE_DEVICE)?.counters;
        Ok((source.tx_dropped, pair.sink.device(Pair::SINK_DEVICE)?.counters.rx_packets))
    };
    let before = counters()?;
    let sent = send()?;
    let after = counters()?;
    let arrived = after.1.wrapping_sub(before.1);
    let dropped = after.0.wrapping_sub(before.0).saturating_sub(returned(&sent));
    Ok((sent, (arrived, dropped)))
}
