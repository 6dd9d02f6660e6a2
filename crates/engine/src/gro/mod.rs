//! Merging consecutive packets of a flow, so that one look-up and one wake-up serve many.

/// What merging looks at of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {}

/// Packets of one flow that travel as one, in the order in which they came.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Train<P> {
    first: P,
    rest: Vec<P>,
}

impl<P> Train<P> {
    /// Makes a train of one packet; allocates nothing.
    #[inline]
    pub const fn one(packet: P) -> Self {
        Self { first: packet, rest: Vec::new() }
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
