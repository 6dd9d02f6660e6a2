//! The frame of an XDP context, or of a packet on its way out, read through core's [`Bytes`].
//!
//! Each header is one comparison with the end of the packet, written so that neither LLVM nor the
//! verifier loses the thread; see [`XdpFrame::at`] and [`XdpFrame::forget`].
//!
//! Always true: a view points to bytes that were compared with the end of the packet.
//! Source: the kernel's Documentation/bpf/verifier.rst, "Direct packet access".

use core::arch::asm;
use core::cell::Cell;

use aya_ebpf::bindings::{__sk_buff, xdp_md};
use aya_ebpf::programs::XdpContext;
use rxsteer_core::Bytes;
use rxsteer_core::bytes::{FORGET_CELLS, View};

/// Highest offset that is read: the verifier wants a bound on what is added to a packet pointer.
///
/// Nothing is lost: what an XDP program sees of a frame is shorter than a page.
const MAX_OFFSET: usize = 0x7fff;

/// A frame between the two packet pointers of its context.
pub(crate) struct Frame<'a, C> {
    ctx: *const C,
    cells: &'a [Cell<u32>; FORGET_CELLS],
}

/// The frame of an XDP context.
pub(crate) type XdpFrame<'a> = Frame<'a, xdp_md>;

/// The frame of a packet on its way out, as far as it lies in one piece: all headers do.
pub(crate) type SkbFrame<'a> = Frame<'a, __sk_buff>;

/// A context with two packet pointers.
pub(crate) trait Context {
    /// Returns where start and end of the packet stand.
    fn places(this: *const Self) -> (*const u32, *const u32);
}

impl Context for xdp_md {
    #[inline(always)]
    fn places(this: *const Self) -> (*const u32, *const u32) {
        // SAFETY: the context is valid while the program runs.
        unsafe { (&raw const (*this).data, &raw const (*this).data_end) }
    }
}

impl Context for __sk_buff {
    #[inline(always)]
    fn places(this: *const Self) -> (*const u32, *const u32) {
        // SAFETY: as above.
        unsafe { (&raw const (*this).data, &raw const (*this).data_end) }
    }
}

impl<'a> SkbFrame<'a> {
    /// Reads the frame of `skb`; `cells` are scratch memory outside the stack.
    #[inline(always)]
    pub(crate) fn of(skb: *const __sk_buff, cells: &'a [Cell<u32>; FORGET_CELLS]) -> Self {
        Self { ctx: skb, cells }
    }
}

impl<'a> XdpFrame<'a> {
    /// Reads the frame of `ctx`; `cells` are scratch memory outside the stack.
    #[inline(always)]
    pub(crate) fn new(ctx: &XdpContext, cells: &'a [Cell<u32>; FORGET_CELLS]) -> Self {
        Self { ctx: ctx.ctx, cells }
    }
}

impl<C: Context> Frame<'_, C> {
    /// Loads the packet pointers anew.
    ///
    /// The verifier notes with a packet pointer how far it was compared. Kept over the loop, that
    /// note would differ from path to path and keep it from pruning.
    #[inline(always)]
    fn pointers(&self) -> (usize, usize) {
        // SAFETY: the context is valid while the program runs; volatile, so that LLVM loads again.
        let (start, end) = C::places(self.ctx);
        unsafe { (start.read_volatile() as usize, end.read_volatile() as usize) }
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

impl<C: Context> Bytes for Frame<'_, C> {
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
