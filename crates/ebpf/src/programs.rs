//! The programs and their maps.

use core::cell::Cell;

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::{Array, PerCpuArray};
use aya_ebpf::programs::XdpContext;
use rxsteer_core::Bytes;
use rxsteer_core::bytes::FORGET_CELLS;
use rxsteer_core::dissect::{Dissected, Options, Start, dissect};
use rxsteer_core::hash::SoftHasher;
use rxsteer_ebpf::Seen;

use crate::frame::XdpFrame;

/// What a program keeps outside its stack of 512 bytes, and outside the verifier's eyes.
#[repr(C)]
pub(crate) struct Scratch {
    /// What was read of the frame.
    dissected: Dissected,
    /// Cells for `Bytes::forget`.
    cells: [u32; FORGET_CELLS],
}

/// Scratch memory, one a CPU: an XDP program is not preempted by another on its CPU.
#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// What was made of the last frame. For test runs, one at a time: CPUs would overwrite each other.
#[map]
static SEEN: Array<Seen> = Array::with_max_entries(1, 0);

/// Key of the software hash: two random numbers.
#[map]
static HASH_KEY: Array<[u64; 2]> = Array::with_max_entries(1, 0);

/// Records what core makes of the frame, and passes it.
#[xdp]
pub(crate) fn rxsteer_observe(ctx: XdpContext) -> u32 {
    let _ = observe(&ctx, &Options::KERNEL);
    XDP_PASS
}

/// The same for the innermost flow.
#[xdp]
pub(crate) fn rxsteer_observe_inner(ctx: XdpContext) -> u32 {
    let _ = observe(&ctx, &Options::INNER);
    XDP_PASS
}

/// Does nothing: the floor of every measurement.
#[xdp]
pub(crate) fn rxsteer_pass(_ctx: XdpContext) -> u32 {
    XDP_PASS
}

#[inline(always)]
fn observe(ctx: &XdpContext, options: &Options) -> Option<()> {
    let scratch = SCRATCH.get_ptr_mut(0)?;
    let seen = SEEN.get_ptr_mut(0)?;
    let &[k0, k1] = HASH_KEY.get(0)?;
    // SAFETY: the value lives as long as the program, only this CPU uses it, and it starts as
    // zeroes, of which every field has a value.
    let (out, cells) = unsafe { (&mut (*scratch).dissected, cells(&raw mut (*scratch).cells)) };
    let frame = XdpFrame::new(ctx, cells);
    let result = dissect(&frame, Start::Ethernet, options, out);
    let stopped = frame.forget(0, Seen::stopped(result));
    let hash = SoftHasher { k0, k1 }.hash_symmetric(&out.key);
    // SAFETY: a map value of plain integers, which lives as long as the program.
    unsafe { (*seen).write(out, stopped, hash) };
    Some(())
}

/// # Safety
/// `cells` points to memory that lives as long as the program and that nothing else borrows.
#[inline(always)]
unsafe fn cells(cells: *mut [u32; FORGET_CELLS]) -> &'static [Cell<u32>; FORGET_CELLS] {
    // SAFETY: the caller's duty; `Cell<u32>` has the layout of `u32`.
    unsafe { &*cells.cast() }
}

/// The verifier has proved that no path leads here.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Asks the kernel for the helpers that it keeps for GPL-compatible programs; MIT is one.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
