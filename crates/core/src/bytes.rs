//! Bounded loads from a frame: the one way in which this crate reads a packet.
//!
//! A slice implements it natively. An eBPF program implements it over the packet pointers of its
//! context, where each load is a comparison with the end of the packet that the verifier follows.

/// A frame that can be read at an offset, never past its end.
///
/// Integers are big-endian in the frame and in host order when returned. Every load of bytes that
/// are not all there is `None`.
pub trait Bytes {
    /// Returns the number of readable bytes.
    fn byte_len(&self) -> usize;

    /// Loads one byte.
    fn u8(&self, offset: usize) -> Option<u8>;

    /// Loads two bytes.
    fn u16(&self, offset: usize) -> Option<u16>;

    /// Loads four bytes.
    fn u32(&self, offset: usize) -> Option<u32>;

    /// Loads 16 bytes, such as an IPv6 address.
    fn b16(&self, offset: usize) -> Option<[u8; 16]>;

    /// Returns `value`; an eBPF reader hides from the verifier what it knows of it.
    ///
    /// Called for each loop-carried value at the head of the dissector's loop. The verifier then
    /// sees the same unknown values in each step and prunes instead of walking every path.
    #[inline(always)]
    fn forget(&self, cell: usize, value: u32) -> u32 {
        let _ = cell;
        value
    }
}

impl Bytes for [u8] {
    #[inline(always)]
    fn byte_len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn u8(&self, offset: usize) -> Option<u8> {
        self.get(offset).copied()
    }

    #[inline(always)]
    fn u16(&self, offset: usize) -> Option<u16> {
        self.get(offset..)?.first_chunk::<2>().map(|b| u16::from_be_bytes(*b))
    }

    #[inline(always)]
    fn u32(&self, offset: usize) -> Option<u32> {
        self.get(offset..)?.first_chunk::<4>().map(|b| u32::from_be_bytes(*b))
    }

    #[inline(always)]
    fn b16(&self, offset: usize) -> Option<[u8; 16]> {
        self.get(offset..)?.first_chunk::<16>().copied()
    }
}
