//! Flow limit: who is refused by a backlog that is half full.
//!
//! One flow that sends more than a CPU can process fills its backlog and takes the others down with
//! it. Once a backlog is half full, the CPU that puts packets on it remembers which flow each of the
//! last 128 belonged to, by bucket of the flow hash; a flow that made up more than half of them is
//! refused until it is not.
//!
//! Always true: below half of the backlog nothing is refused and nothing remembered; the counts
//! add up to at most 128, so that 8 bits hold each.
//! Elsewhere: the backlog itself and its own limit ([`crate::backlog`]).
//! Source: spec of the receive path, "Flow limit"; Documentation/networking/scaling.rst, "RPS Flow
//! Limit" (which says 256 packets where the code has 128).

use std::fmt;

use rxsteer_core::FlowHash;

/// Packets that are remembered.
const HISTORY: usize = 128;

/// What one CPU remembers of the packets that it put on crowded backlogs.
///
/// It belongs to the CPU that puts packets in, whichever backlog they go to; 512 bytes and one for
/// each bucket. As in Linux the memory is not cleared when the crowd is gone, and a fresh one
/// stands for 128 packets of bucket 0 that were counted nowhere.
///
/// # Examples
/// ```
/// use rxsteer_core::FlowHash;
/// use rxsteer_engine::flow_limit::FlowLimit;
/// let mut limit = FlowLimit::new(4096)?;
/// assert!((0..1000).all(|_| limit.allows(FlowHash(7), 499, 1000))); // not half full
/// let allowed = (0..1000).filter(|_| limit.allows(FlowHash(7), 500, 1000));
/// assert_eq!((allowed.count(), limit.dropped()), (64, 936));
/// # Ok::<(), rxsteer_engine::flow_limit::BucketCountError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FlowLimit {
    counts: Box<[u8]>,
    log: u32,
    history: [u32; HISTORY],
    oldest: usize,
    dropped: u64,
}

impl FlowLimit {
    /// Buckets that Linux has by default.
    pub const BUCKETS: u32 = 4096;

    /// Most buckets: 2^20.
    pub const MOST_BUCKETS: u32 = 1 << 20;

    /// Makes a memory of this many buckets (`net.core.flow_limit_table_len`).
    ///
    /// # Errors
    /// If it is not a power of two, or above [`MOST_BUCKETS`](Self::MOST_BUCKETS).
    pub fn new(buckets: u32) -> Result<Self, BucketCountError> {
        if !buckets.is_power_of_two() || buckets > Self::MOST_BUCKETS {
            return Err(BucketCountError { buckets });
        }
        Ok(Self {
            counts: vec![0; buckets as usize].into(),
            log: buckets.ilog2(),
            history: [0; HISTORY],
            oldest: 0,
            dropped: 0,
        })
    }

    /// Returns whether a packet may go on a backlog where `waiting` packets wait, of at most
    /// `max_backlog`; counts it if not.
    #[inline]
    pub fn allows(&mut self, hash: FlowHash, waiting: u32, max_backlog: u32) -> bool {
        if waiting < max_backlog / 2 {
            return true;
        }
        let bucket = hash.mix(self.log);
        let forgotten = std::mem::replace(&mut self.history[self.oldest], bucket);
        self.oldest = (self.oldest + 1) % HISTORY;
        let count = &mut self.counts[forgotten as usize];
        *count = count.saturating_sub(1);
        let count = &mut self.counts[bucket as usize];
        *count += 1;
        let over = usize::from(*count) > HISTORY / 2;
        self.dropped += u64::from(over);
        !over
    }

    /// Returns how many packets were refused.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// A number of buckets that cannot be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BucketCountError {
    /// The number asked for.
    pub buckets: u32,
}

impl fmt::Display for BucketCountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = FlowLimit::MOST_BUCKETS;
        write!(f, "{} flow limit buckets: must be a power of two up to {most}", self.buckets)
    }
}

impl std::error::Error for BucketCountError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MAX: u32 = 1000;
    const CROWDED: u32 = 500;

    /// Lets 10,000 packets through of which flow A has `percent` in every hundred, spread evenly;
    /// returns how many of A and of the others were refused.
    fn share(percent: u32, waiting: u32) -> (u32, u32) {
        let mut limit = FlowLimit::new(FlowLimit::BUCKETS).unwrap();
        let (mut a, mut others) = (0, 0);
        // The others are of ever new flows, none of which has the bucket of A.
        let mut strangers = (2..).map(FlowHash).filter(|hash| hash.mix(12) != FlowHash(1).mix(12));
        for n in 0..10_000u32 {
            let is_a = n * percent / 100 != (n + 1) * percent / 100;
            let hash = if is_a { FlowHash(1) } else { strangers.next().unwrap() };
            let refused = u32::from(!limit.allows(hash, waiting, MAX));
            *(if is_a { &mut a } else { &mut others }) += refused;
        }
        assert_eq!(limit.dropped(), u64::from(a + others));
        (a, others)
    }

    #[test]
    fn a_flow_with_half_of_the_packets_is_let_through_and_one_with_more_is_not() {
        assert_eq!(share(50, CROWDED), (0, 0));
        let (a, others) = share(51, CROWDED);
        assert!(a > 0, "51 % must hit the limit");
        assert_eq!(others, 0);
        // All of its packets but the first 64, since refused ones are remembered too.
        assert_eq!(share(100, CROWDED), (10_000 - 64, 0));
    }

    #[test]
    fn a_backlog_that_is_not_half_full_refuses_nobody() {
        assert_eq!(share(100, CROWDED - 1), (0, 0));
    }

    #[test]
    fn what_comes_while_there_is_no_crowd_is_not_remembered() {
        let mut limit = FlowLimit::new(FlowLimit::BUCKETS).unwrap();
        assert!((0..64).all(|_| limit.allows(FlowHash(1), CROWDED, MAX)));
        assert!((0..1000).all(|n| limit.allows(FlowHash(1000 + n), CROWDED - 1, MAX)));
        // The crowd is back, and what was remembered of the last one counts still.
        assert!(!limit.allows(FlowHash(1), CROWDED, MAX));
    }

    #[test]
    fn a_refused_flow_is_let_through_again_once_others_have_come() {
        let mut limit = FlowLimit::new(FlowLimit::BUCKETS).unwrap();
        for _ in 0..128 {
            limit.allows(FlowHash(1), CROWDED, MAX);
        }
        assert!(!limit.allows(FlowHash(1), CROWDED, MAX));
        assert!((0..65).all(|n| limit.allows(FlowHash(1000 + n * 2), CROWDED, MAX)));
        assert!(limit.allows(FlowHash(1), CROWDED, MAX));
    }

    #[test]
    fn eight_bits_hold_the_count_of_a_flow_that_never_stops() {
        // With one bucket every packet is of the same flow: at most 128 are remembered.
        let mut limit = FlowLimit::new(1).unwrap();
        let allowed = (0..1_000_000).filter(|n| limit.allows(FlowHash(*n), MAX, MAX)).count();
        assert_eq!(limit.counts[..], [1]);
        // A fresh history is of bucket 0, which is this one: each packet forgets one before it.
        assert_eq!(allowed, 1_000_000);

        let mut limit = FlowLimit::new(2).unwrap();
        let hash = (1..).map(FlowHash).find(|hash| hash.mix(1) == 1).unwrap();
        for _ in 0..1_000_000 {
            limit.allows(hash, MAX, MAX);
        }
        assert_eq!(limit.counts[..], [0, 128]);
    }

    #[test]
    fn a_fresh_memory_does_not_underflow() {
        let mut limit = FlowLimit::new(FlowLimit::BUCKETS).unwrap();
        assert!((0..128).all(|n| limit.allows(FlowHash(1000 + n * 2), CROWDED, MAX)));
        assert_eq!(limit.counts[0], 0);
        assert_eq!(limit.counts.iter().map(|count| u32::from(*count)).sum::<u32>(), 128);
    }

    #[test]
    fn a_number_of_buckets_that_is_no_power_of_two_is_refused() {
        for buckets in [0, 3, 4095, FlowLimit::MOST_BUCKETS * 2] {
            assert_eq!(FlowLimit::new(buckets).unwrap_err(), BucketCountError { buckets });
        }
        assert!(FlowLimit::new(1).is_ok() && FlowLimit::new(FlowLimit::MOST_BUCKETS).is_ok());
    }
}
