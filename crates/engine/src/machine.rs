//! What a CPU's receive path stands on: rings, backlogs, signals and the wake-up of readers.

use rxsteer_core::{CpuId, QueueId};

use crate::backlog::Enqueued;
use crate::softirq::Napi;
use crate::stages::{At, Cpus, Drop, Reading};

/// The surroundings of a CPU. Each executor has its own.
pub trait Machine<P> {
    /// The state of the CPUs as decisions may see it.
    type Cpus: Cpus;

    /// Returns the state of the CPUs.
    fn cpus(&self) -> &Self::Cpus;

    /// Takes the next packet off a ring.
    fn take(&mut self, queue: QueueId) -> Option<P>;

    /// Lets the queue interrupt again; `false`: packets came meanwhile, it is to be polled again.
    fn rearm(&mut self, queue: QueueId) -> bool;

    /// Puts a packet that was chosen for at `at` on the backlog of `to`.
    ///
    /// # Errors
    /// The packet comes back if the backlog is full ([`Drop::Backlog`]) or the CPU is gone
    /// ([`Drop::Offline`]).
    fn enqueue(&mut self, at: At, to: CpuId, packet: P) -> Result<Enqueued, (P, Drop)>;

    /// Returns whether a packet for the CPU's own backlog may be processed at once instead: nothing
    /// of the CPU waits there or is in work. `false`: it takes the way over the backlog all the
    /// same, as in Linux.
    fn may_skip_backlog(&self, cpu: CpuId) -> bool {
        let _ = cpu;
        false
    }

    /// Takes the next packet off the CPU's own backlog, and who put it there.
    fn take_backlog(&mut self, cpu: CpuId) -> Option<(P, CpuId)>;

    /// Advances the head of the CPU's backlog: so many packets are delivered.
    fn passed(&mut self, cpu: CpuId, packets: u32);

    /// Lets the next enqueue to the CPU's backlog signal again; `false`: packets came meanwhile.
    fn complete_backlog(&mut self, cpu: CpuId) -> bool;

    /// Signals CPU `to` that its backlog is to be polled; `from` may be the same.
    fn signal(&mut self, from: CpuId, to: CpuId);

    /// Schedules an instance of a CPU at a time, unless it is polled before: it holds packets for
    /// merging. Called only with a flush timeout.
    fn poll_at(&mut self, cpu: CpuId, napi: Napi, at_ns: u64);

    /// Wakes a reader, if it sleeps.
    fn wake(&mut self, on: CpuId, reading: Reading, now_ns: u64);

    /// Hears that the step under way took so much longer; used in virtual time only.
    fn spend(&mut self, cost_ns: u64) {
        let _ = cost_ns;
    }
}
