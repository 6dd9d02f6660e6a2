//! A packet socket with frames that wait to be sent.
//!
//! Always true: frames go in the order in which they were put in, each once.
//! Source: packet(7), `PACKET_QDISC_BYPASS`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{Sent, is_full};
use crate::error::During as _;
use crate::{BenchError, sys};

/// A packet socket and its frames.
pub(super) struct Outlet {
    socket: OwnedFd,
    batch: sys::Batch,
    /// Frames that are written and not sent yet.
    ready: Range<usize>,
}

impl Outlet {
    /// Opens a socket that sends on a device of this thread's namespace, with room for `batch` frames
    /// of up to `longest` bytes.
    pub(super) fn open(index: u32, batch: usize, longest: usize) -> Result<Self, BenchError> {
        let open = || -> io::Result<OwnedFd> {
            // Without a protocol it receives nothing, and costs the receive path nothing.
            let socket =
                socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
            sys::bind_to_device(socket.as_fd(), index)?;
            let (level, name) = (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS);
            sys::set_option(socket.as_fd(), level, name, 1)?;
            Ok(socket)
        };
        let socket = open().during(|| "open a packet socket".into())?;
        let batch = sys::Batch::new(batch, longest).during(|| "make buffers".into())?;
        Ok(Self { socket, batch, ready: 0..0 })
    }

    /// Returns how many frames wait.
    pub(super) fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Returns whether another frame can wait.
    pub(super) fn has_room(&self) -> bool {
        self.ready.is_empty() || self.ready.end < self.batch.count()
    }

    /// Puts a frame in, where there is room: `write` gets the room for it and returns its length.
    pub(super) fn put(&mut self, write: impl FnOnce(&mut [u8]) -> usize) {
        debug_assert!(self.has_room());
        if self.ready.is_empty() {
            self.ready = 0..0;
        }
        self.batch.fill(self.ready.end, write);
        self.ready.end += 1;
    }

    /// Sends up to `most` of the frames that wait, with one system call.
    pub(super) fn send(&mut self, most: usize) -> io::Result<Sent> {
        let end = self.ready.end.min(self.ready.start + most);
        match self.batch.send(self.socket.as_fd(), self.ready.start, end) {
            Ok(count) => {
                let sent = self.ready.start..self.ready.start + count;
                self.ready.start = sent.end;
                // One that the device refused ends the call; its error is lost if others went before.
                let refused = u64::from(sent.end < end);
                let bytes = sent.map(|index| self.batch.len(index) as u64).sum();
                Ok(Sent { packets: count as u64, bytes, refusals: refused, returned: refused })
            }
            Err(error) if is_full(&error) => {
                Ok(Sent { refusals: 1, returned: 1, ..Sent::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// Says what it is, in words.
    pub(super) fn describe(&self) -> String {
        format!("frames by AF_PACKET, sendmmsg of {}, past the qdisc", self.batch.count())
    }
}
