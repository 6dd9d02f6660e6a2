//! Frames by a packet socket.
//!
//! Source: packet(7), `PACKET_QDISC_BYPASS`.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{Means, Sender, Sent, is_full};
use crate::error::During as _;
use crate::traffic::Frames;
use crate::{BenchError, sys};

/// A packet socket and its frames.
pub(super) struct PacketSocket {
    socket: OwnedFd,
    frames: Frames,
    batch: sys::Batch,
    /// Frames that are written and not sent yet.
    ready: std::ops::Range<usize>,
}

impl PacketSocket {
    /// Opens a socket that sends on a device of this thread's namespace.
    pub(super) fn open(index: u32, frames: Frames, batch: usize) -> Result<Self, BenchError> {
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
        let batch = sys::Batch::new(batch, frames.longest());
        Ok(Self { socket, frames, batch, ready: 0..0 })
    }
}

impl Sender for PacketSocket {
    fn send(&mut self, most: usize) -> io::Result<Sent> {
        if self.ready.is_empty() {
            let count = most.min(self.batch.count());
            for index in 0..count {
                self.batch.fill(index, |slot| self.frames.write(slot));
            }
            self.ready = 0..count;
        }
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

    fn means(&self) -> Means {
        Means::Packet
    }

    fn describe(&self) -> String {
        format!("frames by AF_PACKET, sendmmsg of {}, past the qdisc", self.batch.count())
    }
}
