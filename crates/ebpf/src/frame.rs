//! The frame of an XDP context, read through core's [`Bytes`].
//!
//! Each header is one comparison with the end of the packet, written so that neither LLVM nor the
//! verifier loses the thread; see [`XdpFrame::at`] and [`XdpFrame::forget`].
//!
//! Always true: a view points to bytes that were compared with the end of the packet.
//! Source: the kernel's Documentation/bpf/verifier.rst, "Direct packet access".

use core::arch::asm;
use core::cell::Cell;

use aya_ebpf::bindings::xdp_md;
use aya_ebpf::programs::XdpContext;
use rxsteer_core::Bytes;
use rxsteer_core::bytes::{FORGET_CELLS, View};

/// Highest offset that is read: the verifier wants a bound on what is added to a packet pointer.
///
/// Nothing is lost: what an XDP program sees of a frame is shorter than a page.
const MAX_OFFSET: usize = 0x7fff;

/// A frame between the two packet pointers of its context.
pub(crate) struct XdpFrame<'a> {
    ctx: *const xdp_md,
    cells: &'a [Cell<u32>; FORGET_CELLS],
}

impl<'a> XdpFrame<'a> {
    /// Reads the frame of `ctx`; `cells` are scratch memory outside the stack.
    #[inline(always)]
    pub(crate) fn new(ctx: &XdpContext, cells: &'a [Cell<u32>; FORGET_CELLS]) -> Self {
        Self { ctx: ctx.ctx, cells }
    }

    /// Loads the packet pointers anew.
    ///
    /// The verifier notes with a packet pointer how far it was compared. Kept over the loop, that
    /// note would differ from path to path and keep it from pruning.
    #[inline(always)]
    fn pointers(&self) -> (usize, usize) {
        // SAFETY: the context is valid while the program runs; volatile, so that LLVM loads again.
        unsafe {
            let start = (&raw const (*self.ctx).data).read_volatile();
            let end = (&raw const (*self.ctx).data_end).read_volatile();
            (start as usize, end as usize)
        }
    }

    /// Returns a pointer to the `size` bytes at `offset` if they lie in front of the end.
    ///
    /// LLVM would rearrange this sum and comparison into what the verifier refuses: a constant
    /// subtracted from the packet pointer, arithmetic on the end pointer. So it is not told how
    /// any of the three numbers came about.
    #[inline(always)]
    fn at(&self, offset: usize, size: usize) -> Option<*const u8> {
        let offset = opaque(offset);
        if offset > MAX_OFFSET {
            return None;
        }
        let (start, end) = self.pointers();
        let first = opaque(start + offset);
        let past = opaque(first + size);
        if past > end { None } else { Some(first as *const u8) }
    }
}

/// Returns `value`; LLVM does not know that.
#[inline(always)]
pub(crate) fn opaque(mut value: usize) -> usize {
    // SAFETY: no instruction.
    unsafe { asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

impl Bytes for XdpFrame<'_> {
    type View<'a, const N: usize>
        = XdpView<N>
    where
        Self: 'a;

    #[inline(always)]
    fn byte_len(&self) -> usize {
        let (start, end) = self.pointers();
        end - start
    }

    #[inline(always)]
    fn view<const N: usize>(&self, offset: usize) -> Option<XdpView<N>> {
        self.at(offset, N).map(|first| XdpView { first })
    }

    /// Sends the value through a cell of a map value.
    ///
    /// The verifier tracks the stack and registers but not the content of map values: what comes
    /// back is "any 32-bit number", so each step of a loop looks like the one before and is pruned.
    #[inline(always)]
    fn forget(&self, cell: usize, value: u32) -> u32 {
        let Some(cell) = self.cells.get(cell) else { return value };
        cell.set(value);
        reload();
        cell.get()
    }
}

/// Makes LLVM keep nothing of memory in registers from before to after.
///
/// Without it LLVM would carry fields of the result from step to step on the stack, where the
/// verifier tells their values apart.
#[inline(always)]
pub(crate) fn reload() {
    // SAFETY: no instruction; says only that memory may have changed.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// `N` bytes of the packet that were found to be there.
#[derive(Clone, Copy)]
pub(crate) struct XdpView<const N: usize> {
    first: *const u8,
}

impl<const N: usize> XdpView<N> {
    #[inline(always)]
    fn load<T: Copy + Default>(&self, at: usize) -> T {
        if at + size_of::<T>() > N {
            return T::default();
        }
        // SAFETY: `at..at + size` lies in the `N` bytes that `XdpFrame::at` has compared with the
        // end of the packet, and every bit pattern is a value of the integers this is called with.
        unsafe { self.first.add(at).cast::<T>().read_unaligned() }
    }
}

impl<const N: usize> View for XdpView<N> {
    #[inline(always)]
    fn u8(&self, at: usize) -> u8 {
        self.load(at)
    }

    #[inline(always)]
    fn u16(&self, at: usize) -> u16 {
        u16::from_be(self.load(at))
    }

    #[inline(always)]
    fn u32(&self, at: usize) -> u32 {
        u32::from_be(self.load(at))
    }

    #[inline(always)]
    fn b16(&self, at: usize) -> [u8; 16] {
        self.load(at)
    }
}
