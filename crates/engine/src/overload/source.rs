//! Where a packet comes from, coarsely, and hashing that a sender cannot aim.

use rxsteer_core::dissect::AddrKind;
use rxsteer_core::hash::Sip13;
use rxsteer_core::{FlowHash, FlowKey};

/// The network that a packet claims to come from: /24 of IPv4, /56 of IPv6.
///
/// The size that one site usually has; a sender with many addresses in it has one share.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SourcePrefix(u64);

impl SourcePrefix {
    /// The prefix of packets that are not IP.
    pub const NONE: Self = Self(0);

    /// Returns the prefix of an IPv4 address.
    pub const fn v4(address: [u8; 4]) -> Self {
        let [a, b, c, _] = address;
        Self(4 << 56 | (a as u64) << 16 | (b as u64) << 8 | c as u64)
    }

    /// Returns the prefix of an IPv6 address.
    pub const fn v6(address: [u8; 16]) -> Self {
        Self(6 << 56 | (u128::from_be_bytes(address) >> 72) as u64)
    }

    /// Returns the prefix of a packet's source.
    #[inline]
    pub fn of(key: &FlowKey) -> Self {
        match key.addr_kind {
            AddrKind::V4 => {
                let [a, b, c, d, ..] = key.src;
                Self::v4([a, b, c, d])
            }
            AddrKind::V6 => Self::v6(key.src),
            AddrKind::None | AddrKind::Tipc => Self::NONE,
        }
    }
}

/// A key of 128 bits, drawn at random at start, so that nobody can choose who shares a slot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Key {
    /// First half.
    pub k0: u64,
    /// Second half.
    pub k1: u64,
}

impl Key {
    /// Returns the keyed hash of a prefix.
    #[inline]
    pub fn prefix(&self, prefix: SourcePrefix) -> u64 {
        Sip13::new(self.k0, self.k1).word(prefix.0).finish(8 << 56)
    }

    /// Returns the keyed hash of a flow within its prefix.
    ///
    /// Keyed once more, for a flow hash may be a device's, whose key is known.
    #[inline]
    pub fn flow(&self, prefix: SourcePrefix, flow: FlowHash) -> u64 {
        let last = 12 << 56 | u64::from(flow.0);
        Sip13::new(self.k0, self.k1).word(prefix.0).finish(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_a_24_or_a_56_and_families_differ() {
        assert_eq!(SourcePrefix::v4([192, 0, 2, 1]), SourcePrefix::v4([192, 0, 2, 254]));
        assert_ne!(SourcePrefix::v4([192, 0, 2, 1]), SourcePrefix::v4([192, 0, 3, 1]));
        let six = |byte: usize, value: u8| {
            let mut address = [0; 16];
            address[byte] = value;
            SourcePrefix::v6(address)
        };
        assert_eq!(six(7, 1), six(15, 1)); // byte 7 is behind bit 56
        assert_ne!(six(6, 1), six(15, 1));
        assert_ne!(SourcePrefix::v4([0, 0, 0, 0]), six(0, 0));
        assert_eq!(SourcePrefix::of(&FlowKey::EMPTY), SourcePrefix::NONE);
        let mut key = FlowKey { addr_kind: AddrKind::V4, ..FlowKey::EMPTY };
        key.src[..4].copy_from_slice(&[192, 0, 2, 7]);
        assert_eq!(SourcePrefix::of(&key), SourcePrefix::v4([192, 0, 2, 0]));
    }

    #[test]
    fn another_key_is_another_hash() {
        let (a, b) = (Key { k0: 1, k1: 2 }, Key { k0: 1, k1: 3 });
        let site = SourcePrefix::v4([192, 0, 2, 1]);
        assert_ne!(a.prefix(site), b.prefix(site));
        assert_ne!(a.flow(site, FlowHash(7)), a.flow(site, FlowHash(8)));
        assert_ne!(a.flow(site, FlowHash(7)), b.flow(site, FlowHash(7)));
    }
}
