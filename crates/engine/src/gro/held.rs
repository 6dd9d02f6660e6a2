//! The trains that are held during a poll.

use super::{Segment, Train};

const LISTS: usize = 8;

/// The trains that one poller holds. See the [module](super) for the rules.
///
/// # Examples
/// ```
/// use rxsteer_core::FlowHash;
/// use rxsteer_engine::gro::{Checksum, Gro, Segment};
/// let segment = Segment {
///     hash: FlowHash(1),
///     flow: 1,
///     header_word: 0,
///     headers_len: 28,
///     payload_len: 1000,
///     checksum: Checksum::Good,
///     length_fits: true,
/// };
/// let last = Segment { payload_len: 500, ..segment };
/// let mut gro = Gro::new();
/// let mut trains = Vec::new();
/// for (name, segment) in [("a", segment), ("b", segment), ("c", last), ("d", segment)] {
///     gro.push(name, Some(segment), 0, |train| trains.push(train));
/// }
/// assert!(trains[0].packets().eq(&["a", "b", "c"])); // c is shorter: the last
/// gro.flush(|train| trains.push(train));
/// assert!(trains[1].packets().eq(&["d"]));
/// ```
#[derive(Clone, Debug)]
pub struct Gro<P> {
    /// In each list the oldest first.
    lists: [Vec<Held<P>>; LISTS],
}

#[derive(Clone, Debug)]
struct Held<P> {
    /// Of its first packet.
    segment: Segment,
    train: Train<P>,
    since_ns: u64,
}

impl<P> Gro<P> {
    /// Most packets in a train (`UDP_GRO_CNT_MAX`).
    pub const MOST_SEGMENTS: usize = 64;

    /// Most trains held in a list, of which there are 8 (`MAX_GRO_SKBS`).
    pub const MOST_HELD: usize = 8;

    /// Holds nothing.
    pub fn new() -> Self {
        Self { lists: [const { Vec::new() }; LISTS] }
    }

    /// Takes a packet, and gives to `out` the trains that go because of it, at most two. Without a
    /// segment the packet goes at once, alone; a flow's packets should have one all or none, since
    /// without one nobody knows whom it could overtake.
    #[inline]
    pub fn push(
        &mut self,
        packet: P,
        segment: Option<Segment>,
        now_ns: u64,
        mut out: impl FnMut(Train<P>),
    ) {
        let Some(segment) = segment else {
            out(Train::one(packet));
            return;
        };
        let list = &mut self.lists[segment.hash.0 as usize % LISTS];
        let same_flow = list.iter().position(|held| held.segment.is_of_flow(&segment));
        if !segment.may_merge() {
            if let Some(at) = same_flow {
                out(list.remove(at).train);
            }
            out(Train::of(packet, &segment));
            return;
        }
        if let Some(at) = same_flow {
            let Held { segment: first, train, .. } = &mut list[at];
            if first.fits_next(&segment, train.payload_len()) {
                train.push(packet, &segment);
                let shorter = segment.payload_len < first.payload_len;
                if shorter || train.count() == Self::MOST_SEGMENTS {
                    out(list.remove(at).train);
                }
                return;
            }
            out(list.remove(at).train);
        } else if list.len() == Self::MOST_HELD {
            out(list.remove(0).train);
        }
        let train = Train::of(packet, &segment);
        list.push(Held { segment, train, since_ns: now_ns });
    }

    /// Takes out the train that a packet's flow has here: the packet goes another way.
    pub fn take(&mut self, segment: &Segment) -> Option<Train<P>> {
        let list = &mut self.lists[segment.hash.0 as usize % LISTS];
        let at = list.iter().position(|held| held.segment.is_of_flow(segment))?;
        Some(list.remove(at).train)
    }

    /// Gives out all that is held: the poll is over.
    #[inline]
    pub fn flush(&mut self, out: impl FnMut(Train<P>)) {
        let held = self.lists.iter_mut().flat_map(|list| list.drain(..));
        held.map(|held| held.train).for_each(out);
    }

    /// Gives out the trains whose first packet came before this time: the poll is over, but packets
    /// may wait for more until a timeout (`gro_flush_timeout`), or until the next tick of the clock.
    pub fn flush_older(&mut self, before_ns: u64, mut out: impl FnMut(Train<P>)) {
        for list in &mut self.lists {
            // Times need not be in order: the clock is the caller's.
            let old = list.extract_if(.., |held| held.since_ns < before_ns);
            old.for_each(|held| out(held.train));
        }
    }

    /// Returns the time of the oldest packet that is held.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.lists.iter().flatten().map(|held| held.since_ns).min()
    }

    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }
}

impl<P> Default for Gro<P> {
    fn default() -> Self {
        Self::new()
    }
}
