//! How many packets a UDP socket without room may be sent: [`map::CREDITS`](crate::map).
//!
//! A slot of eight words, in a cache line of its own, for each socket that dropped a packet for want of
//! room a moment ago. Its name is the hash of the flow if the socket is connected, else that of its
//! port.
//!
//! | word | what |
//! | --- | --- |
//! | [`NAME`] | the name, 0 in a free slot; above it the most credit, 0 while the socket is only watched |
//! | [`LEFT`] | credit, signed, in bytes of the socket's memory |
//! | [`FULL_AT`] | when the socket last had no room for a packet |
//! | [`SINCE`] | when the span began in which reads and drops are counted |
//! | [`DROPS`] | packets in this span for which the socket had no room |
//! | [`READS`] | packets that were read in this span |
//! | [`TRIED`] | when credit was last given to try |
//! | [`QUEUED`] | bytes in the queue when the socket was last heard; above it what a packet takes |
//!
//! Times are in units of 2^20 ns ([`units`]), about a millisecond.

/// Slots; a power of two.
pub const SLOTS: usize = 1024;
/// Words of a slot.
pub const WORDS: usize = 8;
/// See the module.
pub const NAME: usize = 0;
/// See the module.
pub const LEFT: usize = 1;
/// See the module.
pub const FULL_AT: usize = 2;
/// See the module.
pub const SINCE: usize = 3;
/// See the module.
pub const DROPS: usize = 4;
/// See the module.
pub const READS: usize = 5;
/// See the module.
pub const TRIED: usize = 6;
/// See the module.
pub const QUEUED: usize = 7;

/// Time without a drop at the socket after which nothing is refused for it any more. A pause of this
/// length between two drops begins the span anew.
pub const FORGOTTEN: u64 = 64;
/// Time without a drop after which packets are let in to see what happens.
pub const PATIENCE: u64 = 16;
/// Packets that are let in then.
pub const TRIAL: i64 = 8;
/// Time without a drop after which a reader that has emptied half of the queue ends it.
pub const DRAINED: u64 = 8;
/// Length of a span. Nothing is refused before one is over in which the socket dropped more than was
/// read.
pub const SPAN: u64 = 128;
/// Fewest packets of a buffer for which it is done: a smaller queue would run empty before the packet
/// for a credit is there.
pub const FEWEST: u32 = 32;

/// Returns a time of the monotonic clock, in nanoseconds, in the units of the slots.
#[inline(always)]
pub const fn units(ns: u64) -> u64 {
    ns >> 20
}

/// Returns whether a slot is in use at this time, in units.
pub fn is_used(slot: &[u64; WORDS], now: u64) -> bool {
    slot[NAME] != 0 && now.saturating_sub(slot[FULL_AT]) <= FORGOTTEN
}

/// Returns the most credit of a socket, in bytes: its buffer; 0 for one that holds too few packets of
/// `true_size` bytes for credit to make sense.
#[inline(always)]
pub const fn most(buffer_bytes: u32, true_size: u32) -> u32 {
    let true_size = if true_size == 0 { 1 } else { true_size };
    if buffer_bytes / true_size < FEWEST { 0 } else { buffer_bytes }
}

/// Returns the credit for a queue that was heard to be `before` bytes long and is `now`: what became
/// free, and an eighth more, so that the socket stays full and goes on to say so, and what is lost
/// elsewhere does not use the credit up.
///
/// The kernel takes what is read off its account in quarters of the buffer: until then there is no
/// room for another packet, and no credit.
#[inline(always)]
pub const fn freed(before: u32, now: u32) -> i64 {
    let bytes = before.saturating_sub(now) as i64;
    bytes + bytes / 8
}

/// Returns whether a span shows a socket that cannot keep up: long enough, and more was dropped than
/// read. A burst now and then, after which the reader catches up, does not.
#[inline(always)]
pub const fn is_overloaded(span: u64, drops: u64, reads: u64) -> bool {
    span >= SPAN && drops > reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_for_few_packets_gives_no_credit() {
        assert_eq!(most(212_992, 1081), 212_992);
        assert_eq!(most(32 * 1081, 1081), 32 * 1081);
        assert_eq!(most(32 * 1081 - 1, 1081), 0);
        assert_eq!(most(u32::MAX, 0), u32::MAX);
    }

    #[test]
    fn credit_is_for_what_became_free() {
        assert_eq!(freed(212_992, 159_744), 53_248 + 6656);
        assert_eq!(freed(159_744, 212_992), 0);
    }

    #[test]
    fn a_burst_is_no_overload() {
        // 250 packets each 150 ms, of which 50 find no room.
        assert!(!is_overloaded(300, 100, 400));
        assert!(!is_overloaded(10, 5000, 0));
        assert!(is_overloaded(SPAN, 5000, 400));
    }
}
