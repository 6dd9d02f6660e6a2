//! Frames of our own making by a packet socket.

use std::io;

use super::outlet::Outlet;
use super::{Means, Sender, Sent};
use crate::BenchError;
use crate::traffic::Frames;

/// A packet socket and what it sends.
pub(crate) struct PacketSocket {
    outlet: Outlet,
    frames: Frames,
}

impl PacketSocket {
    /// Opens a socket that sends on a device of this thread's namespace.
    pub(crate) fn open(index: u32, frames: Frames, batch: usize) -> Result<Self, BenchError> {
        Ok(Self { outlet: Outlet::open(index, batch, frames.longest())?, frames })
    }

    /// Sends so many frames.
    pub(crate) fn run(&mut self, frames: usize) -> io::Result<()> {
        let mut left = frames as u64;
        while left > 0 {
            left -= Sender::send(self, left as usize)?.packets.min(left);
        }
        Ok(())
    }
}

impl Sender for PacketSocket {
    fn send(&mut self, most: usize) -> io::Result<Sent> {
        if self.outlet.waiting() == 0 {
            for _ in 0..most {
                if !self.outlet.has_room() {
                    break;
                }
                self.outlet.put(|slot| self.frames.write(slot));
            }
        }
        self.outlet.send(most)
    }

    fn means(&self) -> Means {
        Means::Packet
    }

    fn describe(&self) -> String {
        self.outlet.describe()
    }
}
