//! The frame of an XDP context, read through core's [`Bytes`].
//!
//! Each load is one comparison with the end of the packet, written so that neither LLVM nor the
//! verifier loses the thread; see [`XdpFrame::at`] and [`XdpFrame::forget`].

use core::arch::asm;
use core::cell::Cell;

use aya_ebpf::programs::XdpContext;
use rxsteer_core::Bytes;
use rxsteer_ebpf::FORGET_CELLS;

/// Highest offset that is read; gives the verifier a bound.
///
/// Core's dissector takes a bounded number of headers, none longer than 2 KiB, so it stays below.
const MAX_OFFSET: usize = 0x7fff;

/// A frame between the two packet pointers of its context.
pub(crate) struct XdpFrame<'a> {
    start: usize,
    end: usize,
    cells: &'a [Cell<u32>; FORGET_CELLS],
}

impl<'a> XdpFrame<'a> {
    /// Takes the packet pointers of `ctx`; `cells` are scratch memory outside the stack.
    #[inline(always)]
    pub(crate) fn new(ctx: &XdpContext, cells: &'a [Cell<u32>; FORGET_CELLS]) -> Self {
        Self { start: ctx.data(), end: ctx.data_end(), cells }
    }

    /// Returns a pointer to `T` at `offset` if all of it lies in front of the end of the packet.
    #[inline(always)]
    fn at<T>(&self, offset: usize) -> Option<*const T> {
        let mut first = self.start + (offset & MAX_OFFSET);
        // SAFETY: no instruction; only hides from LLVM how the value came about. Otherwise LLVM
        // moves the arithmetic to the other side of the comparison, onto the end pointer, which
        // the verifier refuses.
        unsafe { asm!("/* {0} */", inout(reg) first, options(nomem, nostack, preserves_flags)) };
        let mut past = first + size_of::<T>();
        // SAFETY: as above.
        unsafe { asm!("/* {0} */", inout(reg) past, options(nomem, nostack, preserves_flags)) };
        if past > self.end { None } else { Some(first as *const T) }
    }
}

impl Bytes for XdpFrame<'_> {
    #[inline(always)]
    fn byte_len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn u8(&self, offset: usize) -> Option<u8> {
        // SAFETY: `at` has checked one byte.
        self.at::<u8>(offset).map(|p| unsafe { p.read() })
    }

    #[inline(always)]
    fn u16(&self, offset: usize) -> Option<u16> {
        // SAFETY: `at` has checked two bytes.
        self.at::<u16>(offset).map(|p| u16::from_be(unsafe { p.read_unaligned() }))
    }

    #[inline(always)]
    fn u32(&self, offset: usize) -> Option<u32> {
        // SAFETY: `at` has checked four bytes.
        self.at::<u32>(offset).map(|p| u32::from_be(unsafe { p.read_unaligned() }))
    }

    #[inline(always)]
    fn b16(&self, offset: usize) -> Option<[u8; 16]> {
        // SAFETY: `at` has checked 16 bytes.
        self.at::<[u32; 4]>(offset).map(|p| unsafe { p.cast::<[u8; 16]>().read_unaligned() })
    }

    /// Sends the value through a cell of a map value.
    ///
    /// The verifier tracks the stack and registers but not the content of map values: what comes
    /// back is "any 32-bit number", so each step of a loop looks like the one before and is pruned.
    #[inline(always)]
    fn forget(&self, cell: usize, value: u32) -> u32 {
        let Some(cell) = self.cells.get(cell) else { return value };
        // SAFETY: a `Cell` may be written through its pointer while it is shared on one CPU;
        // volatile, so that LLVM does not see that the value comes back unchanged.
        unsafe {
            cell.as_ptr().write_volatile(value);
            cell.as_ptr().read_volatile()
        }
    }
}
