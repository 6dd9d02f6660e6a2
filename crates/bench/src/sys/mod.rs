//! The few system calls for which no crate has a safe and reusable form.
//!
//! The only `unsafe` of this crate is here. `nix` has `recvmmsg`, but its headers keep the length
//! that the kernel wrote into them, so the second call finds no room for control messages; its
//! link-layer address cannot be made, only read; and it has no names for some options of sockets. The
//! `io-uring` crate leaves the memory of buffers and requests to its caller.

mod batch;
mod uring;

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

pub(crate) use batch::Batch;
pub(crate) use uring::{Message, Uring};

/// Sets an option whose value is an `int`.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    let pointer = std::ptr::from_ref(&value).cast();
    // SAFETY: the pointer and the length are those of `value`, which lives for the call; the kernel
    // only reads it.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Binds a packet socket to a device, to send there; it receives nothing.
pub(crate) fn bind_to_device(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let index = i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let pointer = std::ptr::from_ref(&address).cast();
    // SAFETY: the pointer and the length are those of `address`, which lives for the call; the kernel
    // only reads it.
    let result = unsafe { libc::bind(socket.as_raw_fd(), pointer, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
