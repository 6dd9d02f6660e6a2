//! Bounded loads from a frame: the one way in which this crate reads a packet.
//!
//! A header is taken whole: one comparison with the end of the frame, after which its fields are
//! read at constant places. A slice does this natively. An eBPF program does it over the packet
//! pointers of its context, where the verifier follows that one comparison.
//!
//! Always true: no byte past the end of the frame is read; no load can panic.
//! Elsewhere: which bytes mean what ([`mod@crate::dissect`]).

/// A frame that can be read at an offset, never past its end.
///
/// Integers are big-endian in the frame and in host order when returned. Every load of bytes that
/// are not all there is `None`.
pub trait Bytes {
    /// `N` bytes that are known to be there.
    type View<'a, const N: usize>: View
    where
        Self: 'a;

    /// Returns the number of readable bytes.
    fn byte_len(&self) -> usize;

    /// Takes the `N` bytes from `offset` on, or `None` if the frame ends before their end.
    fn view<const N: usize>(&self, offset: usize) -> Option<Self::View<'_, N>>;

    /// Loads one byte.
    #[inline(always)]
    fn u8(&self, offset: usize) -> Option<u8> {
        Some(self.view::<1>(offset)?.u8(0))
    }

    /// Loads two bytes.
    #[inline(always)]
    fn u16(&self, offset: usize) -> Option<u16> {
        Some(self.view::<2>(offset)?.u16(0))
    }

    /// Loads four bytes.
    #[inline(always)]
    fn u32(&self, offset: usize) -> Option<u32> {
        Some(self.view::<4>(offset)?.u32(0))
    }

    /// Loads 16 bytes, such as an IPv6 address.
    #[inline(always)]
    fn b16(&self, offset: usize) -> Option<[u8; 16]> {
        Some(self.view::<16>(offset)?.b16(0))
    }

    /// Returns `value`; an eBPF reader hides from the verifier what it knows of it.
    ///
    /// Called for each loop-carried value at the head of the dissector's loop, with a `cell` below
    /// [`FORGET_CELLS`]. The verifier then sees the same unknown values in each step and prunes
    /// instead of walking every path.
    #[inline(always)]
    fn forget(&self, cell: usize, value: u32) -> u32 {
        let _ = cell;
        value
    }
}

/// Number of cells that [`Bytes::forget`] is called with.
pub const FORGET_CELLS: usize = 4;

/// Bytes that were found to be there, read at places that the caller knows when compiling.
///
/// A place past the end of the view reads as 0: it is a mistake of the caller, and a view over
/// packet memory must not turn it into a wild load.
pub trait View {
    /// Loads one byte at `at`.
    fn u8(&self, at: usize) -> u8;

    /// Loads two bytes from `at` on.
    fn u16(&self, at: usize) -> u16;

    /// Loads four bytes from `at` on.
    fn u32(&self, at: usize) -> u32;

    /// Loads 16 bytes from `at` on.
    fn b16(&self, at: usize) -> [u8; 16];
}

impl<const N: usize> View for &[u8; N] {
    #[inline(always)]
    fn u8(&self, at: usize) -> u8 {
        self.get(at).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(chunk(*self, at))
    }

    #[inline(always)]
    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(chunk(*self, at))
    }

    #[inline(always)]
    fn b16(&self, at: usize) -> [u8; 16] {
        chunk(*self, at)
    }
}

/// Copies the `M` bytes from `at` on, or zeros if they are not all there.
#[inline(always)]
fn chunk<const M: usize>(bytes: &[u8], at: usize) -> [u8; M] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<M>()).copied().unwrap_or([0; M])
}

impl Bytes for [u8] {
    type View<'a, const N: usize> = &'a [u8; N];

    #[inline(always)]
    fn byte_len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn view<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.get(offset..)?.first_chunk::<N>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_is_not_all_there_is_none() {
        let frame: &[u8] = &[1, 2, 3, 4, 5];
        assert_eq!(frame.u8(4), Some(5));
        assert_eq!(frame.u8(5), None);
        assert_eq!(frame.u16(3), Some(0x0405));
        assert_eq!(frame.u16(4), None);
        assert_eq!(frame.u32(1), Some(0x0203_0405));
        assert_eq!(frame.u32(2), None);
        assert_eq!(frame.b16(0), None);
        assert_eq!(frame.u8(usize::MAX), None);
    }

    #[test]
    fn a_place_past_the_view_reads_as_zero() {
        let frame: &[u8] = &[1, 2, 3, 4];
        let view = frame.view::<4>(0).unwrap();
        assert_eq!(view.u16(2), 0x0304);
        assert_eq!(view.u16(3), 0);
        assert_eq!(view.u32(usize::MAX), 0);
    }
}
