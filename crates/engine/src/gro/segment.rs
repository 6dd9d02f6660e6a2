//! What merging looks at of a packet.

use rxsteer_core::FlowHash;

/// What is known of a packet's checksum when it could be merged.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Checksum {
    /// Right: verified, or vouched for by the device.
    #[default]
    Good,
    /// The sender sent none (UDP: field 0).
    Absent,
    /// Wrong, or not known to be right.
    Bad,
}

/// What merging looks at of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// Flow hash, whose low bits choose the list.
    pub hash: FlowHash,
    /// The same number for the packets of one flow and no others: its place in a list of flows, or
    /// 64 bits of a keyed hash of everything that tells flows apart.
    pub flow: u64,
    /// The header fields that packets of a train must share: TTL, TOS, DF and such, in any coding.
    pub header_word: u64,
    /// Bytes of IP and transport header, which a train has once.
    pub headers_len: u16,
    /// Bytes of payload.
    pub payload_len: u16,
    /// What is known of the checksum.
    pub checksum: Checksum,
    /// Whether the length field says what the packet holds.
    pub length_fits: bool,
}

impl Segment {
    /// Most bytes of an IP packet, and so of a train with its headers.
    pub const MOST_LEN: u32 = 65_535;

    /// Returns whether the packet may be part of a train of more than one.
    #[inline]
    pub const fn may_merge(&self) -> bool {
        matches!(self.checksum, Checksum::Good) && self.length_fits && self.payload_len > 0
    }

    /// Returns whether two packets are of one flow.
    #[inline]
    pub(super) fn is_of_flow(&self, other: &Self) -> bool {
        self.flow == other.flow && self.hash == other.hash
    }

    /// Returns whether a packet fits behind this first one of a train, of so many bytes of payload
    /// so far.
    #[inline]
    pub(super) fn fits_next(&self, next: &Self, payload_len: u32) -> bool {
        next.payload_len <= self.payload_len
            && next.header_word == self.header_word
            && next.headers_len == self.headers_len
            && u32::from(self.headers_len) + payload_len + u32::from(next.payload_len)
                <= Self::MOST_LEN
    }
}
