//! An array that grows and never moves: elements are in segments of doubling size.
//!
//! Always true: an element, once there, stays at its address and lives as long as the array, so
//! readers need no protection; the first segment has 64 elements (2 under Loom) and each next one as many as all
//! before it.

use std::sync::OnceLock;

/// Number of elements of the first segment, as a power of two.
const FIRST: u32 = if cfg!(loom) { 1 } else { 6 };

/// Number of segments: enough for every `u32`.
const SEGMENTS: usize = (u32::BITS - FIRST) as usize + 1;

/// The array; `T::default()` is what new elements hold.
#[derive(Debug)]
pub(crate) struct Segments<T> {
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
}

impl<T: Default> Segments<T> {
    pub(crate) const fn new() -> Self {
        Self { segments: [const { OnceLock::new() }; SEGMENTS] }
    }

    /// Returns an element if its segment is there.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        let (segment, offset) = place(index);
        self.segments.get(segment)?.get()?.get(offset)
    }

    /// Returns an element, and makes its segment if need be.
    pub(crate) fn at_or_make(&self, index: u32) -> &T {
        let (segment, offset) = place(index);
        let make = || {
            let len = if segment == 0 { 1 << FIRST } else { 1 << (FIRST as usize + segment - 1) };
            std::iter::repeat_with(T::default).take(len).collect()
        };
        &self.segments[segment].get_or_init(make)[offset]
    }
}

/// Returns the segment of an element, and its place there.
#[inline]
const fn place(index: u32) -> (usize, usize) {
    if index < 1 << FIRST {
        return (0, index as usize);
    }
    let top = u32::BITS - 1 - index.leading_zeros();
    ((top - FIRST + 1) as usize, (index - (1 << top)) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for index in 0..100_000 {
            let (segment, offset) = place(index);
            if segment != next.0 {
                // A segment is full when the next one begins.
                let len = if next.0 == 0 { 64 } else { 64 << (next.0 - 1) };
                assert_eq!((next.1, segment, offset), (len, next.0 + 1, 0), "at {index}");
                next = (segment, 0);
            }
            assert_eq!((segment, offset), next, "at {index}");
            next.1 += 1;
        }
        assert_eq!(place(u32::MAX).0, SEGMENTS - 1);
    }

    #[test]
    fn an_element_that_was_never_made_is_none() {
        let segments = Segments::<u32>::new();
        assert_eq!(segments.at(64), None);
        assert_eq!(segments.at_or_make(64), &0);
        assert_eq!(segments.at(64), Some(&0));
        assert_eq!(segments.at(63), None);
    }
}
