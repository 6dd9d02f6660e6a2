//! Packets that travel as one.

use super::Segment;

/// Packets of one flow that travel as one, in the order in which they came.
///
/// Each but the last has [`segment_len`](Self::segment_len) bytes of payload; the last has as many
/// or less.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Train<P> {
    first: P,
    rest: Vec<P>,
    segment_len: u16,
    payload_len: u32,
}

impl<P> Train<P> {
    /// Makes a train of one packet that merging knows nothing of; allocates nothing.
    #[inline]
    pub const fn one(packet: P) -> Self {
        Self { first: packet, rest: Vec::new(), segment_len: 0, payload_len: 0 }
    }

    /// Makes a train of one packet; allocates nothing.
    #[inline]
    pub(super) const fn of(packet: P, segment: &Segment) -> Self {
        let payload_len = segment.payload_len as u32;
        Self { first: packet, rest: Vec::new(), segment_len: segment.payload_len, payload_len }
    }

    /// Lets a packet join.
    #[inline]
    pub(super) fn push(&mut self, packet: P, segment: &Segment) {
        self.rest.push(packet);
        self.payload_len += u32::from(segment.payload_len);
    }

    /// Returns the first packet.
    #[inline]
    pub const fn first(&self) -> &P {
        &self.first
    }

    /// Returns the number of packets, at least 1.
    #[inline]
    pub fn count(&self) -> usize {
        1 + self.rest.len()
    }

    /// Returns the bytes of payload of each packet but the last; 0 if merging was not asked.
    #[inline]
    pub const fn segment_len(&self) -> u16 {
        self.segment_len
    }

    /// Returns the bytes of payload of all packets; 0 if merging was not asked.
    #[inline]
    pub const fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Returns the only packet.
    ///
    /// # Errors
    /// The train, if it has more.
    #[inline]
    pub fn into_single(self) -> Result<P, Self> {
        if self.rest.is_empty() { Ok(self.first) } else { Err(self) }
    }

    /// Returns the packets in order.
    pub fn packets(&self) -> impl Iterator<Item = &P> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl<P> IntoIterator for Train<P> {
    type Item = P;
    type IntoIter = std::iter::Chain<std::iter::Once<P>, std::vec::IntoIter<P>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.rest)
    }
}
