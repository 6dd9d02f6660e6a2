//! Every decision of every policy, for who wants to see more than their sums.

use std::fmt;
use std::sync::Arc;

use rxsteer_core::CpuId;
use rxsteer_core::steer::{PolicyKind, Reason};

/// What a policy decided for a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chosen {
    /// Number of the packet among those read, from 1.
    pub number: u64,
    /// When it arrived, in ns since the first packet.
    pub arrived_ns: u64,
    /// CPU that took it from the device.
    pub arrived_on: CpuId,
    /// CPU that is to process it; of a packet that was shed, the one that dropped it.
    pub cpu: CpuId,
    /// Why.
    pub reason: Reason,
    /// Whether it was decided on before: the CPU chosen then went away with the packet waiting.
    pub again: bool,
}

/// Is told of the decisions of the policies of a replay, but not of those of a sweep.
///
/// It gets them in batches, those of one policy in their order; with [`threads`] from several threads.
/// Packets that found the ring of the device full have no decision.
///
/// [`threads`]: super::ReplayOptions::threads
///
/// # Examples
/// ```
/// use std::sync::{Arc, Mutex};
/// use rxsteer_lab::host::Host;
/// use rxsteer_lab::replay::{Observer, Replay, ReplayOptions};
/// let rows = Arc::new(Mutex::new(Vec::new()));
/// let into = Arc::clone(&rows);
/// let observer = Observer::new(move |policy, chosen| {
///     into.lock().unwrap().extend(chosen.iter().map(|one| (policy, one.number, one.cpu)));
/// });
/// let options = ReplayOptions { observer: Some(observer), ..ReplayOptions::default() };
/// let replay = Replay::new(Host::simple(4, 1).unwrap(), options)?;
/// let report = replay.finish(&[], Vec::new());
/// assert_eq!(rows.lock().unwrap().len() as u64, report.input.received); // none here
/// # Ok::<(), rxsteer_lab::replay::ReplayError>(())
/// ```
#[derive(Clone)]
pub struct Observer(Arc<Told>);

type Told = dyn Fn(PolicyKind, &[Chosen]) + Send + Sync;

impl Observer {
    /// Returns one that calls this.
    pub fn new(told: impl Fn(PolicyKind, &[Chosen]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    pub(super) fn tell(&self, policy: PolicyKind, chosen: &[Chosen]) {
        if !chosen.is_empty() {
            (self.0)(policy, chosen);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
