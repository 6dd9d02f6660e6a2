//! A pair to send over, and who looks at it.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod observer;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_bench::{GenSpec, Traffic, Until, Watch};
use rxsteer_testbed::{Pair, PairSpec, Testbed, TestbedError};

/// Longer than any of these runs takes, so that the count ends it.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const PORT: u16 = 9999;

pub(crate) static GO_ON: AtomicBool = AtomicBool::new(false);

/// Nobody looks.
pub(crate) const NOBODY: Watch<'_> = Watch { stop: &GO_ON, on_second: &|_| {} };

/// Returns a pair; `None`, and says why, where this process may not have one.
pub(crate) fn pair(test: &str, spec: &PairSpec) -> Option<Pair> {
    match Testbed::new() {
        Ok(testbed) => Some(Pair::new(&testbed, spec).unwrap()),
        Err(TestbedError::Privilege(missing)) => {
            eprintln!("skipped {test}: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sends this many packets.
pub(crate) fn packets(traffic: Traffic, count: u64) -> GenSpec {
    GenSpec { until: Until { count, duration: LONG }, ..GenSpec::new(traffic) }
}
