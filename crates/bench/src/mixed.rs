//! Requests and responses beside a flood of datagrams on the same link.
//!
//! The flood begins when all flows of the requests are open, so that it meets their traffic and not
//! their handshakes, and ends after the last answer.
//!
//! Elsewhere: each of the two alone ([`crate::ask_in`], [`crate::receive_in`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rxsteer_testbed::{Pair, Snmp, snmp_now};
use serde::Serialize;

use crate::error::During as _;
use crate::rr::ask_in_when;
use crate::threads::{End, join, spawn};
use crate::{
    BenchError, GenSpec, PairReport, RrPairReport, RrSpec, SinkSpec, Until, Watch, receive_in,
};

/// Requests beside a flood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MixedSpec {
    /// The requests; they say when the run ends.
    pub requests: RrSpec,
    /// By IPv6.
    pub ipv6: bool,
    /// The flood.
    pub flood: GenSpec,
    /// Who reads the flood.
    pub readers: SinkSpec,
}

/// What came of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MixedReport {
    /// Requests and responses.
    pub requests: RrPairReport,
    /// The flood.
    pub flood: PairReport,
    /// TCP segments that either end sent again, of all in the two namespaces.
    pub sent_again: u64,
}

/// How long the flood runs alone before the first request.
const AHEAD: Duration = Duration::from_millis(100);

/// How soon the wait for the flows ends.
const LOOK: Duration = Duration::from_millis(2);

/// Asks and answers over a pair, beside a flood over the same pair.
///
/// # Errors
/// Those of [`crate::ask_in`] and [`receive_in`].
pub fn mix_in(pair: &Pair, spec: &MixedSpec, watch: &Watch<'_>) -> Result<MixedReport, BenchError> {
    let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let flood = GenSpec {
        until: Until { count: u64::MAX, duration: Until::LONGEST },
        ..spec.flood.clone()
    };
    let before = segments(pair)?;
    let (requests, flood) = std::thread::scope(|scope| {
        let beside = || {
            while !ready.load(Ordering::Acquire) {
                if over.load(Ordering::Acquire) {
                    return None;
                }
                std::thread::sleep(LOOK);
            }
            let quiet = Watch { stop: &over, on_second: &|_| {} };
            Some(receive_in(pair, &spec.readers, &flood, &quiet))
        };
        let flooding = spawn(scope, 1, beside)?;
        let begin = || {
            ready.store(true, Ordering::Release);
            std::thread::sleep(AHEAD);
        };
        let requests = {
            let _end = End(&over);
            ask_in_when(pair, &spec.requests, spec.ipv6, watch, &begin)
        };
        Ok::<_, BenchError>((requests, join(flooding)))
    })?;
    // Without a flood the flows could not be opened, and that is the error to tell of.
    let requests = requests?;
    let flood = flood.expect("the flood begins before the first request")?;
    let sent_again = segments(pair)?.saturating_sub(before);
    Ok(MixedReport { requests, flood, sent_again })
}

/// Returns the segments that both ends have sent again so far.
fn segments(pair: &Pair) -> Result<u64, BenchError> {
    let mut sum = 0;
    for end in [&pair.source, &pair.sink] {
        let counters: Snmp = end.run(snmp_now)?.during(|| "read /proc/net/snmp".into())?;
        sum += counters.get("Tcp.RetransSegs");
    }
    Ok(sum)
}
