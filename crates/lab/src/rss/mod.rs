//! Receive-side scaling: which queue of the device a packet goes to.
//!
//! A device hashes addresses and ports with Toeplitz and looks the queue up in an indirection
//! table by the low bits (`table[hash % size]`). Both can be imported from the output of
//! `ethtool -x`. Packets that are not IP go to queue 0; fragments, and UDP where its ports are left
//! out, are spread by addresses only.
//!
//! Elsewhere: the hash function ([`rxsteer_core::hash`]); what CPU takes a queue's packets
//! ([`crate::host`]).
//! Source: Microsoft, "RSS hashing functions" and the default key of its verification suite, which
//! many drivers use; ethtool(8), `-x`.

mod ethtool;

pub use ethtool::{EthtoolError, EthtoolReason};

/// How packets are spread over queues.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Spreading {
    /// By Toeplitz hash and indirection table.
    #[default]
    Toeplitz,
    /// As the capture recorded it (pcapng `epb_queue`); by hash where it did not.
    Recorded,
}

/// The receive-side scaling of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rss {
    /// Where a packet's queue comes from.
    pub spreading: Spreading,
    /// Key of the Toeplitz hash, at least 40 bytes.
    pub key: Vec<u8>,
    /// Queues by low bits of the hash; empty for `i % queues`.
    pub table: Vec<u16>,
    /// Whether the ports of UDP are hashed (`ethtool -N DEV rx-flow-hash udp4 sdfn`).
    pub udp_ports: bool,
}

impl Rss {
    /// Key of Microsoft's RSS verification suite, the default of many drivers.
    pub const DEFAULT_KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Entries of the indirection table where none was given, before it repeats.
    const DEFAULT_TABLE_LEN: usize = 128;

    /// Most entries of an indirection table.
    pub const MAX_TABLE_LEN: usize = 1 << 16;

    /// Imports key and table from the output of `ethtool -x DEV`.
    ///
    /// # Errors
    /// The first line that is not of that output, or says what cannot be modelled, with its number.
    pub fn from_ethtool(text: &str) -> Result<Self, EthtoolError> {
        ethtool::parse(text)
    }

    /// Returns the indirection table for a number of queues.
    ///
    /// The default repeats the queues in turn in at least 128 places, a multiple of the number of
    /// queues so that all get the same share.
    pub fn table_for(&self, queues: usize) -> Vec<u16> {
        if !self.table.is_empty() {
            return self.table.clone();
        }
        let len = Self::DEFAULT_TABLE_LEN.div_ceil(queues) * queues;
        (0..len).map(|i| (i % queues) as u16).collect()
    }
}

impl Default for Rss {
    fn default() -> Self {
        Self {
            spreading: Spreading::Toeplitz,
            key: Self::DEFAULT_KEY.to_vec(),
            table: Vec::new(),
            udp_ports: true,
        }
    }
}

#[cfg(test)]
mod tests;
