//! What the running programs have counted.

use rxsteer_core::CpuId;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;

/// Packets sent to one CPU and what became of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuCounters {
    /// Packets that the decision sent there, less those that were then lost on the way.
    pub sent: u64,
    /// Packets that it took.
    pub taken: u64,
    /// Packets that it is done with, at least.
    pub done: u64,
    /// Packets lost because its queue was full.
    pub lost_full: u64,
    /// Packets that the kernel did not take after the decision.
    pub lost_refused: u64,
    /// Packets lost after being taken, for want of memory.
    pub lost_memory: u64,
}

impl CpuCounters {
    /// Returns the packets that wait for the CPU.
    pub const fn waiting(&self) -> u64 {
        self.sent.saturating_sub(self.taken)
    }

    /// Returns the packets that are lost, by whatever cause.
    pub const fn lost(&self) -> u64 {
        self.lost_full + self.lost_refused + self.lost_memory
    }
}

/// Answers from ports that were declared for flows, by sockets without a peer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Answers {
    /// All of them.
    pub heard: u64,
    /// Those of flows that had an entry.
    pub known: u64,
    /// Those whose flow was given one.
    pub entered: u64,
    /// Those to peers that were not answered often enough to be a flow.
    pub strange: u64,
    /// Those whose flow got no entry, because all in its place are in use.
    pub full: u64,
    /// Those whose addresses and ports could not be read, such as fragments.
    pub unread: u64,
}

impl Answers {
    /// Returns the answers of which it cannot be told on which CPU their thread runs: those that were
    /// sent later than by it, or by another network namespace.
    pub const fn late(&self) -> u64 {
        let Self { heard, known, entered, strange, full, unread } = *self;
        heard.saturating_sub(known + entered + strange + full + unread)
    }

    /// Returns all answers by what came of them, with its name in outputs; the sum is all that were
    /// heard.
    pub const fn results(&self) -> [(&'static str, u64); 6] {
        [
            ("known", self.known),
            ("entered", self.entered),
            ("strange", self.strange),
            ("full", self.full),
            ("unread", self.unread),
            ("late", self.late()),
        ]
    }
}

/// Everything that was counted since the attachment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Packets by class and reason.
    pub packets: [[u64; Reason::COUNT]; Class::COUNT],
    /// Packets by the CPU that took them from the device; CPUs that took none are left out.
    pub arrived: Vec<(CpuId, u64)>,
    /// The CPUs that may take packets.
    pub cpus: Vec<(CpuId, CpuCounters)>,
    /// What came of hearing sockets, by [`Recorded::index`].
    pub records: [u64; Recorded::COUNT],
    /// Answers of sockets without a peer.
    pub answers: Answers,
}

impl Counters {
    /// Returns the packets of all classes and reasons: every packet that came in.
    pub fn seen(&self) -> u64 {
        self.packets.iter().flatten().sum()
    }

    /// Returns the packets of all classes with this reason.
    pub fn reason(&self, reason: Reason) -> u64 {
        self.packets.iter().map(|class| class[reason.index()]).sum()
    }

    /// Returns the packets of this class.
    pub fn class(&self, class: Class) -> u64 {
        self.packets[class.index()].iter().sum()
    }

    /// Returns the share of packets of known flows among those that the tables were asked for;
    /// `None` if they were asked for none.
    pub fn hit_rate(&self) -> Option<f64> {
        let known =
            self.reason(Reason::Hit) + self.reason(Reason::Held) + self.reason(Reason::Beside);
        let asked = known + self.reason(Reason::Miss);
        (asked > 0).then(|| known as f64 / asked as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_rates_follow_from_the_table() {
        let mut counters = Counters::default();
        assert_eq!((counters.seen(), counters.hit_rate()), (0, None));
        counters.packets[Class::Udp.index()][Reason::Hit.index()] = 6;
        counters.packets[Class::Tcp.index()][Reason::Miss.index()] = 2;
        counters.packets[Class::Other.index()][Reason::Local.index()] = 5;
        assert_eq!((counters.seen(), counters.class(Class::Udp)), (13, 6));
        assert_eq!((counters.reason(Reason::Miss), counters.hit_rate()), (2, Some(0.75)));
        let cpu =
            CpuCounters { sent: 5, taken: 3, lost_full: 1, lost_memory: 2, ..Default::default() };
        assert_eq!((cpu.waiting(), cpu.lost()), (2, 3));
    }
}
