//! What is remembered of TCP packets before there is a connection.
//!
//! One place for each hash of the two ends, the last writer has it: a flood of SYNs costs a
//! fixed 1 MiB. A connection that lost its place to another is found a little later, as one seen
//! in the middle.

/// A packet came from the remote end.
pub(super) const IN: u8 = 1;
/// A packet went to the remote end.
pub(super) const OUT: u8 = 2;
/// A SYN came from the remote end.
pub(super) const SYN_IN: u8 = 4;
/// Data came from the remote end.
pub(super) const DATA_IN: u8 = 8;

const PLACES: usize = 1 << 16;

/// Flags by hash of the two ends.
#[derive(Debug)]
pub(super) struct HalfOpen {
    places: Vec<u64>,
}

impl HalfOpen {
    pub(super) fn new() -> Self {
        Self { places: vec![0; PLACES] }
    }

    fn place(&mut self, hash: u64) -> &mut u64 {
        let index = (hash >> 48) as usize % PLACES;
        &mut self.places[index]
    }

    /// Returns the flags of a pair of ends; 0 if nothing is remembered.
    pub(super) fn flags(&mut self, hash: u64) -> u8 {
        let place = *self.place(hash);
        if place >> 8 == hash & ((1 << 56) - 1) { place as u8 } else { 0 }
    }

    /// Adds flags to those of a pair of ends and returns all of them.
    pub(super) fn add(&mut self, hash: u64, flags: u8) -> u8 {
        let all = self.flags(hash) | flags;
        *self.place(hash) = (hash & ((1 << 56) - 1)) << 8 | u64::from(all);
        all
    }

    pub(super) fn forget(&mut self, hash: u64) {
        if self.flags(hash) != 0 {
            *self.place(hash) = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_of_their_pair_only() {
        let mut table = HalfOpen::new();
        let (a, b) = (0x1234_0000_0000_0001, 0x1234_0000_0000_0002); // the same place
        table.add(a, SYN_IN);
        assert_eq!(table.add(a, OUT), SYN_IN | OUT);
        assert_eq!(table.flags(b), 0);
        table.forget(b);
        assert_eq!(table.flags(a), SYN_IN | OUT);
        table.add(b, IN);
        assert_eq!((table.flags(a), table.flags(b)), (0, IN));
        table.forget(b);
        assert_eq!(table.flags(b), 0);
    }
}
