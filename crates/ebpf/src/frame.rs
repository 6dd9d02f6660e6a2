//! The frame of an XDP context, read through core's [`Bytes`].
//!
//! Each load is one comparison with the end of the packet, written so that neither LLVM nor the
//! verifier loses the thread; see [`XdpFrame::at`] and [`XdpFrame::forget`].

use core::arch::asm;
use core::cell::Cell;

use aya_ebpf::programs::XdpContext;
use rxsteer_core::Bytes;
use rxsteer_core::bytes::View;
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

    /// Returns a pointer to `N` bytes at `offset` if all of them lie in front of the end of the
    /// packet.
    #[inline(always)]
    fn at<const N: usize>(&self, offset: usize) -> Option<*const u8> {
        let mut first = self.start + (offset & MAX_OFFSET);
        // SAFETY: no instruction; only hides from LLVM how the value came about. Otherwise LLVM
        // moves the arithmetic to the other side of the comparison, onto the end pointer, which
        // the verifier refuses.
        unsafe { asm!("/* {0} */", inout(reg) first, options(nomem, nostack, preserves_flags)) };
        let mut past = first + N;
        // SAFETY: as above.
        unsafe { asm!("/* {0} */", inout(reg) past, options(nomem, nostack, preserves_flags)) };
        if past > self.end { None } else { Some(first as *const u8) }
    }
}

/// `N` bytes of the packet, checked against its end.
pub(crate) struct XdpView<const N: usize>(*const u8);

impl<const N: usize> XdpView<N> {
    /// Returns a pointer to `T` at the place `at` of the view, or `None` where it does not fit.
    #[inline(always)]
    fn get<T>(&self, at: usize) -> Option<*const T> {
        if at + size_of::<T>() > N {
            return None;
        }
        // SAFETY: inside the `N` checked bytes.
        Some(unsafe { self.0.add(at) }.cast())
    }
}

impl<const N: usize> View for XdpView<N> {
    #[inline(always)]
    fn u8(&self, at: usize) -> u8 {
        // SAFETY: one of the checked bytes.
        self.get::<u8>(at).map_or(0, |p| unsafe { p.read() })
    }

    #[inline(always)]
    fn u16(&self, at: usize) -> u16 {
        // SAFETY: two of the checked bytes.
        self.get::<u16>(at).map_or(0, |p| u16::from_be(unsafe { p.read_unaligned() }))
    }

    #[inline(always)]
    fn u32(&self, at: usize) -> u32 {
        // SAFETY: four of the checked bytes.
        self.get::<u32>(at).map_or(0, |p| u32::from_be(unsafe { p.read_unaligned() }))
    }

    #[inline(always)]
    fn b16(&self, at: usize) -> [u8; 16] {
        // SAFETY: 16 of the checked bytes.
        self.get::<[u8; 16]>(at).map_or([0; 16], |p| unsafe { p.read_unaligned() })
    }
}

impl Bytes for XdpFrame<'_> {
    type View<'a, const N: usize>
        = XdpView<N>
    where
        Self: 'a;

    #[inline(always)]
    fn byte_len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn view<const N: usize>(&self, offset: usize) -> Option<XdpView<N>> {
        self.at::<N>(offset).map(XdpView)
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
