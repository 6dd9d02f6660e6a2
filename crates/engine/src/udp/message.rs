//! What a reader gets: the payload of a datagram, or of several that were merged.

use rxsteer_core::CpuId;
use rxsteer_sockets::queue::{Buffer, Payload};

/// The payload of one datagram, or of several merged ones, in the buffers in which they came.
#[derive(Debug)]
pub struct Message {
    first: Piece,
    rest: Vec<Piece>,
    cpu: CpuId,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) buffer: Buffer,
    pub(super) at: u32,
    pub(super) len: u16,
    pub(super) arrived_ns: u64,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.at as usize..][..usize::from(self.len)]
    }
}

impl Message {
    pub(super) const fn new(first: Piece, rest: Vec<Piece>, cpu: CpuId) -> Self {
        Self { first, rest, cpu }
    }

    /// Returns the number of datagrams, at least 1.
    pub fn count(&self) -> usize {
        1 + self.rest.len()
    }

    /// Returns the CPU that did the protocol work.
    pub const fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Returns the payload of each datagram, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces().map(Piece::bytes)
    }

    /// Returns when each datagram arrived.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = u64> {
        self.pieces().map(|piece| piece.arrived_ns)
    }

    /// Copies the payloads one behind the other, as far as they fit; returns the bytes copied.
    pub fn copy_to(&self, buffer: &mut [u8]) -> usize {
        let mut copied = 0;
        for bytes in self.datagrams() {
            let room = &mut buffer[copied..];
            let len = bytes.len().min(room.len());
            room[..len].copy_from_slice(&bytes[..len]);
            copied += len;
        }
        copied
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl Payload for Message {
    fn len(&self) -> usize {
        self.pieces().map(|piece| usize::from(piece.len)).sum()
    }

    fn held_len(&self) -> usize {
        self.pieces().map(|piece| piece.buffer.capacity()).sum()
    }

    /// Never asked: checksums are verified before a message is made.
    fn completes(&self, _partial: u16) -> bool {
        false
    }
}
