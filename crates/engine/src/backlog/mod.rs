//! Backlog: the packets that other CPUs have put up for one CPU, and its promise to come for them.
//!
//! Many CPUs put packets in, one CPU takes them out. Two counters tell a position: the tail counts
//! what was ever put in, the head what was ever finished; both wrap at 2^32. A packet that is taken
//! but not yet delivered is not finished, so a flow that waits for the head to pass its last packet
//! cannot overtake itself. A mark, SCHED, says that the CPU knows: who puts a packet in and finds
//! the mark clear sets it and must signal the CPU; the CPU clears it when nothing is left. So one
//! signal covers all that comes until then.
//!
//! [`Backlog`] is for threads, [`LocalBacklog`] the same for one thread that plays all CPUs;
//! [`CpuQueue`] is what both do.
//!
//! Always true: at most `max + 1` packets are in or in work, and what is above is refused and
//! counted; a packet's position is not below the number of packets before it, itself included;
//! while packets wait the mark is set, or the one who will set it and signal is on its way; no
//! packet goes in after [`close`](Backlog::close).
//! Elsewhere: how a signal travels, and who polls (the executors); whether a flow may go on
//! ([`rxsteer_core::steer`]); dropping the packets of one greedy flow ([`crate::flow_limit`]).
//! Source: spec of the receive path, "Backlog: enqueue, drop, signal" and "Backlog poll". Linux's
//! owner takes its whole input queue over into a second one, so up to as many packets again wait
//! there uncounted; here there is one queue and one count, and memory is bounded by it.

mod local;
mod shared;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

pub use local::LocalBacklog;
pub use shared::Backlog;

/// What came of putting a packet in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a signal that is not sent is a packet that waits for ever"]
pub struct Enqueued {
    /// The packet's position: once the head has reached it, the packet is finished. Exact while one
    /// CPU puts in; with several at once it may be higher by as many as there are others, so a flow
    /// that waits for it waits a little longer, never less.
    pub tail: u32,
    /// Whether the caller must signal the owner: true once until the owner has completed.
    pub signal: bool,
}

/// Why a packet was not put in; it comes back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused<P> {
    /// More than `max` packets were waiting. Counted.
    Full(P),
    /// The owner takes no packets any more: choose another CPU. Not counted.
    Closed(P),
}

/// The backlog of a CPU, for whoever drives CPUs.
pub trait CpuQueue {
    /// What waits.
    type Packet;

    /// Puts a packet in.
    ///
    /// # Errors
    /// [`Refused`], with the packet.
    fn enqueue(&mut self, packet: Self::Packet) -> Result<Enqueued, Refused<Self::Packet>>;

    /// Takes up to `max` packets, oldest first, and appends them; returns how many. For the owner.
    fn take(&mut self, max: usize, out: &mut Vec<Self::Packet>) -> usize;

    /// Moves the head on: so many of the packets taken are delivered or dropped. For the owner.
    fn finish(&mut self, count: u32);

    /// Ends the polling: true if nothing waits, or its coming was seen and a signal follows; false
    /// if the owner must go on polling. For the owner.
    fn complete(&mut self) -> bool;

    /// Refuses packets from now on: the CPU goes offline.
    fn close(&mut self);

    /// Takes all that is left of a closed backlog and finishes it; returns how many. What was taken
    /// before must be delivered by now: it counts as finished too. For the owner.
    fn drain(&mut self, out: &mut Vec<Self::Packet>) -> usize;

    /// Takes packets again, as one that was signalled: the owner must poll until
    /// [`complete`](Self::complete).
    fn open(&mut self);

    /// Returns how many packets were ever finished; wraps at 2^32.
    fn head(&self) -> u32;

    /// Returns how many packets were ever put in; wraps at 2^32.
    fn tail(&self) -> u32;

    /// Returns how many packets are in or in work.
    fn waiting(&self) -> u32 {
        self.tail().wrapping_sub(self.head())
    }

    /// Returns how many packets were refused because it was full.
    fn dropped(&self) -> u64;
}
