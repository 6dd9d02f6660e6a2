//! Toeplitz: the hash by which devices spread packets over their queues (RSS).
//!
//! For each set bit of the input, from the left, the 32 bits of the key that start at that bit are
//! added without carry. [`ToeplitzKey::hash`] does just that; [`ToeplitzTable`] does four bits at a
//! time from tables of 4,608 bytes, made once for a key.
//!
//! Always true: both give the same hash for every key and input.
//! Elsewhere: the input's fields and order ([`RssInput`]); the queue ([`super::IndirectionTable`]).
//! Source: Microsoft, "RSS hash functions" and "Verifying the RSS hash calculation".

use core::fmt;

use super::RssInput;

/// A key of a device: at least 40 bytes, of any length above (52 is common).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ToeplitzKey<'a>(&'a [u8]);

impl<'a> ToeplitzKey<'a> {
    /// Bytes that the longest input (IPv6 addresses and ports, 36 bytes) needs.
    pub const MIN_LEN: usize = 40;

    /// A key under which both directions of a flow have one hash: 0x6d5a, repeated.
    ///
    /// Its period of 16 bits makes equal the parts of the key that meet source and destination
    /// (Woo and Park, "Scalable TCP session monitoring with symmetric receive-side scaling", 2012).
    pub const SYMMETRIC: ToeplitzKey<'static> = ToeplitzKey(&SYMMETRIC);

    /// Takes the bytes of a key as `ethtool -x` prints them.
    ///
    /// # Errors
    /// Fewer than [`MIN_LEN`](Self::MIN_LEN) bytes.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_core::hash::{RssInput, ToeplitzKey};
    /// let key = ToeplitzKey::SYMMETRIC;
    /// let (a, b) = ([192, 0, 2, 1], [198, 51, 100, 7]);
    /// assert_eq!(
    ///     key.hash(&RssInput::v4_ports(a, b, 40_000, 443)),
    ///     key.hash(&RssInput::v4_ports(b, a, 443, 40_000)),
    /// );
    /// assert!(ToeplitzKey::new(&[0; 16]).is_err());
    /// ```
    pub const fn new(bytes: &'a [u8]) -> Result<Self, KeyTooShort> {
        if bytes.len() < Self::MIN_LEN { Err(KeyTooShort(bytes.len())) } else { Ok(Self(bytes)) }
    }

    /// Returns the bytes of the key.
    pub const fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the hash, bit by bit: the definition, and slow (a few hundred steps).
    pub fn hash(&self, input: &RssInput) -> u32 {
        let mut hash = 0;
        for (place, byte) in input.bytes().iter().enumerate() {
            for bit in 0..8 {
                if byte << bit & 0x80 != 0 {
                    hash ^= self.window(place * 8 + bit);
                }
            }
        }
        hash
    }

    /// Returns the 32 bits of the key that start at this bit.
    fn window(&self, bit: usize) -> u32 {
        let start = bit / 8;
        let five = (start..start + 5).fold(0u64, |five, place| {
            five << 8 | u64::from(self.0.get(place).copied().unwrap_or(0))
        });
        (five >> (8 - bit % 8)) as u32
    }
}

const SYMMETRIC: [u8; 52] = {
    let mut key = [0x5a; 52];
    let mut place = 0;
    while place < key.len() {
        key[place] = 0x6d;
        place += 2;
    }
    key
};

/// A key of this many bytes does not cover the longest input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyTooShort(pub usize);

impl fmt::Display for KeyTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an RSS key needs at least {} bytes, this has {}", ToeplitzKey::MIN_LEN, self.0)
    }
}

impl core::error::Error for KeyTooShort {}

/// A key made ready: for each half byte of the input, the sum of the windows of its set bits.
#[derive(Clone, Debug)]
pub struct ToeplitzTable {
    rows: [[[u32; 16]; 2]; RssInput::MAX_LEN],
}

impl ToeplitzTable {
    /// Makes the tables of a key: 4,608 bytes.
    pub fn new(key: ToeplitzKey<'_>) -> Self {
        let mut rows = [[[0; 16]; 2]; RssInput::MAX_LEN];
        for (half, row) in rows.as_flattened_mut().iter_mut().enumerate() {
            for (value, sum) in row.iter_mut().enumerate() {
                *sum = (0..4)
                    .filter(|bit| value << bit & 8 != 0)
                    .fold(0, |sum, bit| sum ^ key.window(half * 4 + bit));
            }
        }
        Self { rows }
    }

    /// Returns the hash: two loads for each byte of the input, 12 bytes for IPv4 with ports.
    #[inline]
    pub fn hash(&self, input: &RssInput) -> u32 {
        let mut hash = 0;
        for ([high, low], byte) in self.rows.iter().zip(input.bytes()) {
            // Both indices are below 16 by their width.
            hash ^= high[usize::from(byte >> 4)] ^ low[usize::from(byte & 15)];
        }
        hash
    }
}
