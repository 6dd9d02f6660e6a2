//! Links: what ties a program to its place, as descriptors that can be handed on.
//!
//! Aya keeps the descriptors of its links to itself. Those that must be given another program, or go
//! to another process, are made here.
//!
//! Source: bpf(2); `BPF_LINK_CREATE` and `BPF_LINK_UPDATE` in the kernel's `linux/bpf.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use aya_obj::generated::{
    BPF_F_BEFORE, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attach_type, bpf_attr, bpf_cmd,
};

/// Puts an XDP program on an interface, in its driver or in the network stack.
pub(crate) fn attach_xdp(
    program: &impl AsFd,
    interface: u32,
    is_native: bool,
) -> io::Result<OwnedFd> {
    let flags = if is_native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
    let mut attr = empty();
    attr.link_create.attach_type = bpf_attach_type::BPF_XDP as u32;
    attr.link_create.flags = flags;
    attr.link_create.__bindgen_anon_1.prog_fd = number(program);
    attr.link_create.__bindgen_anon_2.target_ifindex = interface;
    // SAFETY: the fields that this command reads are set, and hold no pointer.
    unsafe { bpf_new(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
}

/// Puts another program in the place of the one that a link holds: each packet sees one or the other.
pub(crate) fn update(link: &impl AsFd, program: &impl AsFd) -> io::Result<()> {
    let mut attr = empty();
    attr.link_update.link_fd = number(link);
    attr.link_update.__bindgen_anon_1.new_prog_fd = number(program);
    // SAFETY: as above.
    unsafe { bpf(bpf_cmd::BPF_LINK_UPDATE, &mut attr) }.map(drop)
}

/// Has a program see what an interface sends, ahead of those that see it already.
pub(crate) fn attach_out(program: &impl AsFd, interface: u32) -> io::Result<OwnedFd> {
    let mut attr = empty();
    attr.link_create.attach_type = bpf_attach_type::BPF_TCX_EGRESS as u32;
    attr.link_create.flags = BPF_F_BEFORE;
    attr.link_create.__bindgen_anon_1.prog_fd = number(program);
    attr.link_create.__bindgen_anon_2.target_ifindex = interface;
    // SAFETY: as above.
    unsafe { bpf_new(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
}

/// Attaches a program to the BTF tracepoint that it was loaded for.
pub(crate) fn attach_tracepoint(program: &impl AsFd) -> io::Result<OwnedFd> {
    let mut attr = empty();
    attr.raw_tracepoint.prog_fd = number(program);
    // SAFETY: as above; the name of the tracepoint is none, as BTF tracepoints want it.
    unsafe { bpf_new(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr) }
}

/// Calls bpf(2).
///
/// # Safety
/// What the command reads of `attr` is set, and what it points to outlives the call.
unsafe fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes `size_of::<bpf_attr>()` bytes of `attr`; the rest is the
    // caller's duty.
    let said = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_int, &raw mut *attr, size_of::<bpf_attr>())
    };
    if said < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(said).expect("what bpf(2) returns fits in a C int"))
}

/// Calls bpf(2) with a command that makes something and returns its descriptor.
///
/// # Safety
/// As for [`bpf`].
pub(crate) unsafe fn bpf_new(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller's duty.
    let descriptor = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel just handed this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns arguments of which none is set.
pub(crate) fn empty() -> bpf_attr {
    // SAFETY: the union is plain integers, for which all zeroes is a value; the kernel wants the
    // fields it is not told about to be zero.
    unsafe { std::mem::zeroed() }
}

fn number(descriptor: &impl AsFd) -> u32 {
    descriptor.as_fd().as_raw_fd() as u32
}
