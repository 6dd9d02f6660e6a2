//! A datagram in a receive queue, and what the queue must know of its payload.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rxsteer_core::FlowHash;

use crate::counters::IpVersion;
use crate::datagram::{Checksum, completes};

/// The payload of a queued datagram: bytes, a handle to bytes elsewhere, or just a length.
pub trait Payload {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Returns whether there is none: a datagram may be empty and is delivered all the same.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory it keeps from other use, slack included: its part of the true size.
    fn held_len(&self) -> usize {
        self.len()
    }

    /// Returns whether the payload completes this partial sum to a right checksum (see
    /// [`Checksum::Deferred`]).
    fn completes(&self, partial: u16) -> bool;
}

impl Payload for Vec<u8> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn held_len(&self) -> usize {
        self.capacity()
    }

    fn completes(&self, partial: u16) -> bool {
        completes(partial, self)
    }
}

impl Payload for Box<[u8]> {
    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn completes(&self, partial: u16) -> bool {
        completes(partial, self)
    }
}

impl Payload for Arc<[u8]> {
    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn completes(&self, partial: u16) -> bool {
        completes(partial, self)
    }
}

impl Payload for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn completes(&self, partial: u16) -> bool {
        completes(partial, self)
    }
}

/// A payload without bytes, for simulators.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Simulated {
    /// Bytes it stands for.
    pub len: u32,
    /// Whether its checksum is wrong, for datagrams whose check is deferred.
    pub bad_checksum: bool,
}

impl Simulated {
    /// Creates a payload of so many bytes, with a right checksum.
    pub const fn new(len: u32) -> Self {
        Self { len, bad_checksum: false }
    }
}

impl Payload for Simulated {
    fn len(&self) -> usize {
        self.len as usize
    }

    fn completes(&self, _partial: u16) -> bool {
        !self.bad_checksum
    }
}

/// A datagram on its way through a receive queue.
#[derive(Clone, Debug)]
pub struct Datagram<P> {
    /// Address and port of the sender, in the IP version of the packet.
    pub peer: SocketAddr,
    /// Address it was sent to.
    pub local: IpAddr,
    /// When it arrived, in nanoseconds of the caller's clock.
    pub timestamp_ns: u64,
    /// Flow hash of the packet; what a reader's CPU is recorded under.
    pub flow_hash: FlowHash,
    /// Bytes of memory that it holds, by which limits count: payload, its slack and what describes
    /// it. At least 1.
    pub true_size: u32,
    /// Bytes of each piece, the last one perhaps shorter, if the payload is several datagrams merged
    /// into one (UDP GRO); 0 if it is one datagram.
    pub segment_len: u16,
    /// What is known about its checksum.
    pub checksum: Checksum,
    /// What it carries.
    pub payload: P,
    pub(super) drops_before: u32,
    /// It is empty, and a peek has seen it.
    pub(super) peeked: bool,
}

impl<P: Payload> Datagram<P> {
    /// Bytes counted for a datagram besides its payload, unless the caller sets
    /// [`true_size`](Self::true_size): what this crate holds to describe it, rounded up.
    pub const OVERHEAD: u32 = (size_of::<Self>() as u32).next_multiple_of(64);

    /// Creates a datagram without time, hash or segments, its checksum verified, its true size what the
    /// payload [holds](Payload::held_len) and [`OVERHEAD`](Self::OVERHEAD).
    pub fn new(peer: SocketAddr, local: IpAddr, payload: P) -> Self {
        let held = u32::try_from(payload.held_len()).unwrap_or(u32::MAX);
        Self {
            peer,
            local,
            timestamp_ns: 0,
            flow_hash: FlowHash::NONE,
            true_size: held.saturating_add(Self::OVERHEAD),
            segment_len: 0,
            checksum: Checksum::Verified,
            payload,
            drops_before: 0,
            peeked: false,
        }
    }

    /// Returns whether the checksum is right, absent by permission, or completed by the payload.
    pub(super) fn is_intact(&self) -> bool {
        match self.checksum {
            Checksum::Verified | Checksum::Absent => true,
            Checksum::Deferred(partial) => self.payload.completes(partial),
        }
    }
}

impl<P> Datagram<P> {
    /// Returns how many datagrams the socket had dropped when this one was admitted; wraps at 2^32.
    ///
    /// What `SO_RXQ_OVFL` reports: the difference between two datagrams read one after the other is
    /// what was lost between them.
    pub const fn drops_before(&self) -> u32 {
        self.drops_before
    }

    /// Returns the IP version of the packet, under whose counters it belongs.
    pub const fn ip_version(&self) -> IpVersion {
        IpVersion::of(&self.peer)
    }

    pub(super) const fn is_deferred(&self) -> bool {
        matches!(self.checksum, Checksum::Deferred(_))
    }

    /// Returns the size that limits count: a datagram without any would be admitted without end.
    pub(super) const fn charge(&self) -> u64 {
        if self.true_size == 0 { 1 } else { self.true_size as u64 }
    }
}

/// Why a queue did not take a datagram.
pub enum PushError<P> {
    /// The receive buffer is full: dropped and counted (`RcvbufErrors`).
    BufferFull,
    /// The namespace's memory for UDP is used up: dropped and counted (`MemErrors`).
    NoMemory,
    /// The socket was closed meanwhile. Not counted: here it is back, for a second look-up, since the
    /// port may have a new owner.
    Closed(Datagram<P>),
}

impl<P> fmt::Debug for PushError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BufferFull => "BufferFull",
            Self::NoMemory => "NoMemory",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<P> fmt::Display for PushError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BufferFull => "receive buffer full (ENOMEM)",
            Self::NoMemory => "no memory for UDP (ENOBUFS)",
            Self::Closed(_) => "socket is closed (EBADF)",
        })
    }
}

impl<P> std::error::Error for PushError<P> {}
