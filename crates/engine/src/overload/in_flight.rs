//! Packets on their way from the hook to their socket: they use its room, and may never arrive.
//!
//! A socket's credit line knows what its queue holds. What the hook let in and still waits on a
//! backlog is not in it, so a hook that looks at the line alone lets in a backlog too many. Counting
//! those packets closes the gap and opens another: one that is lost on the way (backlog full, flow
//! limit, malformed, CPU gone) would use room for ever. Two ways give it back:
//!
//! 1. *Explicit*: whoever loses the packet hands its [`Ticket`] back ([`InFlight::end`]).
//! 2. *Audit*: admissions are counted by generation. No packet is on its way for longer than
//!    [`longest_ns`](InFlight::new), so what a generation that old still has was lost.
//!
//! Always true: a ticket gives back what it took, at most once, and nothing after the audit did; once
//! nothing is on its way and `longest_ns` plus a third have passed, the count is 0, whatever was
//! lost.

/// What one admitted packet uses of its socket's room while it is on its way.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Ticket {
    pub(super) charge: u32,
    pub(super) slot: u16,
    generation: u16,
}

impl Ticket {
    /// The ticket of a packet that is not counted.
    pub const NONE: Self = Self { charge: 0, slot: 0, generation: 0 };

    /// Returns whether there is nothing to give back.
    pub const fn is_none(self) -> bool {
        self.charge == 0
    }
}

const GENERATIONS: usize = 4;

/// The packets on their way to one socket.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    generation: u16,
    started_ns: u64,
    period_ns: u64,
    parts: [u64; GENERATIONS],
    packets: [u64; GENERATIONS],
    /// Sums of the two, and when the next generation begins.
    all_parts: u64,
    all_packets: u64,
    ends_ns: u64,
}

impl InFlight {
    /// Makes an empty count; no packet is on its way for longer than `longest_ns`.
    pub fn new(longest_ns: u64, now_ns: u64) -> Self {
        let period_ns = longest_ns.div_ceil(GENERATIONS as u64 - 1).max(1);
        let ends_ns = now_ns.saturating_add(period_ns);
        Self { period_ns, started_ns: now_ns, ends_ns, ..Self::default() }
    }

    /// Returns the packets that are counted as on their way.
    #[inline]
    pub const fn packets(&self) -> u64 {
        self.all_packets
    }

    /// Returns the parts of the room that they use.
    #[inline]
    pub const fn parts(&self) -> u64 {
        self.all_parts
    }

    /// Counts a packet that was let in.
    #[inline]
    pub fn begin(&mut self, slot: u16, charge: u32) -> Ticket {
        let at = usize::from(self.generation) % GENERATIONS;
        self.parts[at] += u64::from(charge);
        self.packets[at] += 1;
        self.all_parts += u64::from(charge);
        self.all_packets += 1;
        Ticket { charge, slot, generation: self.generation }
    }

    /// Takes back a ticket: the packet reached its socket, or was lost.
    ///
    /// Returns `false` if the audit has given it back already.
    #[inline]
    pub fn end(&mut self, ticket: Ticket) -> bool {
        let age = self.generation.wrapping_sub(ticket.generation);
        let at = usize::from(ticket.generation) % GENERATIONS;
        if usize::from(age) >= GENERATIONS || self.packets[at] == 0 {
            return false;
        }
        let parts = self.parts[at].min(u64::from(ticket.charge));
        self.packets[at] -= 1;
        self.parts[at] -= parts;
        self.all_packets -= 1;
        self.all_parts -= parts;
        true
    }

    /// Gives back what must have been lost by now; returns the number of packets.
    ///
    /// One comparison unless a period has passed. Time that goes back is taken as standing still.
    #[inline]
    pub fn audit(&mut self, now_ns: u64) -> u64 {
        if now_ns < self.ends_ns { 0 } else { self.turn(now_ns) }
    }

    /// Forgets everything; tickets given out before are void.
    pub fn reset(&mut self, now_ns: u64) {
        self.generation = self.generation.wrapping_add(GENERATIONS as u16);
        self.start(now_ns);
        self.parts = [0; GENERATIONS];
        self.packets = [0; GENERATIONS];
        (self.all_parts, self.all_packets) = (0, 0);
    }

    fn start(&mut self, now_ns: u64) {
        self.started_ns = now_ns;
        self.ends_ns = now_ns.saturating_add(self.period_ns);
    }

    #[cold]
    fn turn(&mut self, now_ns: u64) -> u64 {
        let passed = now_ns.saturating_sub(self.started_ns) / self.period_ns;
        let mut healed = 0;
        for _ in 0..passed.min(GENERATIONS as u64) {
            self.generation = self.generation.wrapping_add(1);
            let at = usize::from(self.generation) % GENERATIONS;
            healed += std::mem::take(&mut self.packets[at]);
            self.all_parts -= std::mem::take(&mut self.parts[at]);
        }
        self.all_packets -= healed;
        self.start(self.started_ns.saturating_add(passed.saturating_mul(self.period_ns)));
        healed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const LONGEST: u64 = 900;

    #[test]
    fn a_ticket_is_taken_once_and_not_after_the_audit() {
        let mut flight = InFlight::new(LONGEST, 0);
        let (first, second) = (flight.begin(0, 5), flight.begin(0, 7));
        assert_eq!((flight.packets(), flight.parts()), (2, 12));
        assert!(flight.end(first));
        assert_eq!((flight.packets(), flight.parts()), (1, 7));
        // Not lost before the longest time has passed, lost a third after it.
        assert_eq!(flight.audit(LONGEST), 0);
        assert_eq!(flight.audit(LONGEST + 300), 1);
        assert_eq!((flight.packets(), flight.parts()), (0, 0));
        assert!(!flight.end(second));
        let third = flight.begin(0, 9);
        assert!(!flight.end(second) && flight.end(third));
    }

    #[test]
    fn a_reset_voids_all_tickets() {
        let mut flight = InFlight::new(LONGEST, 0);
        let old = flight.begin(0, 5);
        flight.reset(10);
        let new = flight.begin(0, 5);
        assert!(!flight.end(old));
        assert!(flight.end(new));
    }

    #[derive(Clone, Copy, Debug)]
    enum End {
        Reaches(u64),
        IsLostAloud(u64),
        IsLostSilently,
    }

    fn end() -> impl Strategy<Value = End> {
        prop_oneof![
            4 => (0..=LONGEST).prop_map(End::Reaches),
            1 => (0..=LONGEST).prop_map(End::IsLostAloud),
            1 => Just(End::IsLostSilently),
        ]
    }

    proptest! {
        /// Against a list of what is really on its way: the count is never below the truth, is
        /// above it by no more than what was lost silently of late, and comes back to it.
        #[test]
        fn lost_credits_heal(packets in prop::collection::vec((end(), 1u32..100, 0u64..60), 0..600)) {
            let mut flight = InFlight::new(LONGEST, 0);
            let mut under_way: VecDeque<(u64, Ticket)> = VecDeque::new();
            let mut silent: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (end, charge, gap) in packets {
                now += gap;
                under_way.retain(|(until, ticket)| {
                    if *until <= now {
                        assert!(flight.end(*ticket), "an honest packet was healed");
                    }
                    *until > now
                });
                flight.audit(now);
                let ticket = flight.begin(0, charge);
                match end {
                    End::Reaches(after) | End::IsLostAloud(after) => {
                        under_way.push_back((now + after, ticket));
                    }
                    End::IsLostSilently => silent.push((now, u64::from(charge))),
                }
                let truth: u64 = under_way.iter().map(|(_, t)| u64::from(t.charge)).sum();
                let recent = silent.iter().filter(|(at, _)| at + LONGEST + 300 >= now);
                let most: u64 = truth + recent.map(|(_, charge)| charge).sum::<u64>();
                prop_assert!((truth..=most).contains(&flight.parts()), "{truth} {most} {flight:?}");
            }
            flight.audit(now + LONGEST + 300);
            prop_assert_eq!((flight.packets(), flight.parts()), (0, 0));
        }
    }
}
