//! The programs and their maps.

use core::cell::Cell;

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::{Array, PerCpuArray};
use aya_ebpf::programs::XdpContext;
use rxsteer_core::dissect::{Dissected, Options, Start, dissect};
use rxsteer_ebpf::{FORGET_CELLS, Seen};

use crate::frame::XdpFrame;

/// Scratch cells, one set a CPU: an XDP program is not preempted by another on its CPU.
#[map]
static CELLS: PerCpuArray<[u32; FORGET_CELLS]> = PerCpuArray::with_max_entries(1, 0);

/// What was made of the last frame. For test runs, one at a time: CPUs would overwrite each other.
#[map]
static SEEN: Array<Seen> = Array::with_max_entries(1, 0);

/// Records what core makes of the frame, and passes it.
#[xdp]
pub(crate) fn rxsteer_observe(ctx: XdpContext) -> u32 {
    let _ = observe(&ctx);
    XDP_PASS
}

/// Does nothing: the floor of every measurement.
#[xdp]
pub(crate) fn rxsteer_pass(_ctx: XdpContext) -> u32 {
    XDP_PASS
}

#[inline(always)]
fn observe(ctx: &XdpContext) -> Option<()> {
    let frame = XdpFrame::new(ctx, cells()?);
    let seen = SEEN.get_ptr_mut(0)?;
    let mut out = Dissected::default();
    let result = dissect(&frame, Start::Ethernet, &Options::KERNEL, &mut out);
    // SAFETY: a map value of plain integers, which lives as long as the program.
    unsafe { (*seen).write(&out, result, 0) };
    Some(())
}

#[inline(always)]
fn cells() -> Option<&'static [Cell<u32>; FORGET_CELLS]> {
    let cells = CELLS.get_ptr_mut(0)?;
    // SAFETY: map values outlive the program; `Cell<u32>` has the layout of `u32`.
    Some(unsafe { &*cells.cast() })
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
