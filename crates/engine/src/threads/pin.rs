//! Pinning threads to CPUs of the machine.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rxsteer_core::CpuId;

/// The CPUs of the machine that threads may be pinned to.
#[derive(Clone, Debug)]
pub(super) struct Pins(Vec<usize>);

impl Pins {
    /// Those that the calling thread may run on; none if `pin` is off or the machine does not tell.
    pub(super) fn new(pin: bool) -> Self {
        let allowed = pin.then(|| sched_getaffinity(None).ok()).flatten();
        let ids = |set: CpuSet| (0..CpuSet::MAX_CPU).filter(|id| set.is_set(*id)).collect();
        Self(allowed.map(ids).unwrap_or_default())
    }

    /// Pins the calling thread; CPUs beyond those of the machine start over at its first. Returns
    /// whether it is pinned.
    pub(super) fn pin(&self, cpu: CpuId) -> bool {
        let Some(id) = cpu.index().checked_rem(self.0.len()).map(|place| self.0[place]) else {
            return false;
        };
        let mut set = CpuSet::new();
        set.set(id);
        sched_setaffinity(None, &set).is_ok()
    }
}
