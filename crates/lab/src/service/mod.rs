//! The service model: when each step of a packet's way is done, on which CPU, and what is lost.
//!
//! This is the one seam between steering and time. A [`Service`] owns the queues and the clock of
//! every CPU; the [`Stages`] own everything that is decided: the tables, the sockets, the
//! counters. [`Fifo`] serves each CPU's work in the order of its arrival; [`Instant`] does all
//! work of a packet at once, for when only the tables matter.
//!
//! Always true: every job given to [`Service::arrive`] ends exactly once, in [`Stages::processed`]
//! with nobody to read, in [`Stages::read`] or in [`Stages::dropped`], at the latest in
//! [`Service::drain`]; time never goes back.
//! Elsewhere: what a packet is (`crate::replay`); the costs ([`crate::host::Costs`]).

mod cpus;
mod fifo;
mod instant;
mod job;

pub use cpus::{CpuLoad, Cpus};
pub use fifo::Fifo;
pub use instant::Instant;
pub use job::{Choice, Drop, Job, Reading};

use rxsteer_core::CpuId;

/// What is decided about packets on their way.
pub trait Stages {
    /// Chooses the CPU of a packet that CPU `on` took from its ring.
    ///
    /// `again` means that it was chosen for before, and that CPU went offline with it.
    fn choose(&mut self, job: &Job, on: CpuId, now_ns: u64, cpus: &Cpus, again: bool) -> Choice;

    /// Hears that the packet is on the backlog of its CPU, whose tail is now `tail`.
    fn queued(&mut self, job: &Job, choice: &Choice, tail: u32);

    /// Hears that CPU `on` finished the protocol work; returns who reads the packet, if anyone.
    ///
    /// May lose it instead, for lack of room: then it counts the drop and returns `None`.
    fn processed(&mut self, job: &Job, on: CpuId, now_ns: u64) -> Option<Reading>;

    /// Hears that a consumer on CPU `on` has read the packet.
    fn read(&mut self, job: &Job, on: CpuId, now_ns: u64);

    /// Hears that the packet is lost.
    fn dropped(&mut self, job: &Job, cause: Drop, now_ns: u64);
}

/// A model of time and queues.
pub trait Service {
    /// Takes a packet that arrives at a device queue at `now_ns`, not before the one before it.
    fn arrive<S: Stages>(&mut self, job: Job, now_ns: u64, stages: &mut S);

    /// Does all that is done by `until_ns`.
    fn advance<S: Stages>(&mut self, until_ns: u64, stages: &mut S);

    /// Does all that is left and returns the time at which the last of it was done.
    fn drain<S: Stages>(&mut self, stages: &mut S) -> u64;

    /// Takes a CPU offline; what waits there is taken over by others. The last online CPU stays.
    ///
    /// Returns the number of packets that were taken over, or `None` if the CPU stays.
    fn offline<S: Stages>(&mut self, cpu: CpuId, now_ns: u64, stages: &mut S) -> Option<u64>;

    /// Brings a CPU back.
    fn online(&mut self, cpu: CpuId);

    /// Returns the state of the CPUs.
    fn cpus(&self) -> &Cpus;
}

#[cfg(test)]
mod tests;
