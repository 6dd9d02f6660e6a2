//! Addresses, prefixes and ports as a rule names them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rxsteer_core::dissect::AddrKind;

/// An address prefix, such as `192.0.2.0/24`; an address alone is a prefix of full length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prefix {
    bytes: [u8; 16],
    kind: AddrKind,
    bits: u8,
}

impl Prefix {
    /// Makes the prefix of one address.
    pub fn host(kind: AddrKind, bytes: [u8; 16]) -> Self {
        Self { bytes, kind, bits: if kind == AddrKind::V4 { 32 } else { 128 } }
    }

    /// Returns whether an address (left-aligned, network order) lies in the prefix.
    #[inline]
    pub fn contains(&self, kind: AddrKind, address: &[u8; 16]) -> bool {
        if kind != self.kind {
            return false;
        }
        let differs = u128::from_be_bytes(*address) ^ u128::from_be_bytes(self.bytes);
        self.bits == 0 || differs >> (128 - u32::from(self.bits)) == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.bytes;
        let (address, full) = match self.kind {
            AddrKind::V4 => (IpAddr::from([a, b, c, d]), 32),
            _ => (IpAddr::from(self.bytes), 128),
        };
        address.fmt(f)?;
        if self.bits < full { write!(f, "/{}", self.bits) } else { Ok(()) }
    }
}

impl FromStr for Prefix {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = || AddressError(text.chars().take(60).collect());
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let (bytes, kind, full) = match address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                (bytes, AddrKind::V4, 32)
            }
            IpAddr::V6(v6) => (v6.octets(), AddrKind::V6, 128),
        };
        let bits = match bits {
            None => full,
            Some(bits) => bits.parse().ok().filter(|b| *b <= full).ok_or_else(refuse)?,
        };
        Ok(Self { bytes, kind, bits })
    }
}

/// Addresses and port that a rule matches; what is not given matches all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AddrPattern {
    /// Addresses.
    pub prefix: Option<Prefix>,
    /// Port.
    pub port: Option<u16>,
}

impl AddrPattern {
    /// Returns whether an address and port match.
    pub fn matches(&self, kind: AddrKind, address: &[u8; 16], port: u16) -> bool {
        self.port.is_none_or(|p| p == port)
            && self.prefix.is_none_or(|prefix| prefix.contains(kind, address))
    }
}

impl FromStr for AddrPattern {
    type Err = AddressError;

    /// Reads `:443`, `192.0.2.1`, `192.0.2.0/24:443`, `2001:db8::1` or `[2001:db8::/32]:443`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = || AddressError(text.chars().take(60).collect());
        let text = text.trim();
        let port = |text: &str| text.parse::<u16>().map_err(|_| refuse());
        if let Some(rest) = text.strip_prefix('[') {
            let (prefix, rest) = rest.split_once(']').ok_or_else(refuse)?;
            let port = match rest {
                "" => None,
                rest => Some(port(rest.strip_prefix(':').ok_or_else(refuse)?)?),
            };
            return Ok(Self { prefix: Some(prefix.parse().map_err(|_| refuse())?), port });
        }
        match text.matches(':').count() {
            0 => Ok(Self { prefix: Some(text.parse()?), port: None }),
            1 => {
                let (address, number) = text.split_once(':').ok_or_else(refuse)?;
                let prefix = match address {
                    "" | "*" => None,
                    address => Some(address.parse().map_err(|_| refuse())?),
                };
                Ok(Self { prefix, port: Some(port(number)?) })
            }
            _ => Ok(Self { prefix: Some(text.parse()?), port: None }),
        }
    }
}

/// A text names no address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}`: an address, a prefix such as 192.0.2.0/24, a port such as :443, or both \
             (192.0.2.1:443, [2001:db8::1]:443) is allowed",
            self.0
        )
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_its_addresses_and_no_others() {
        let prefix: Prefix = "192.0.2.0/25".parse().unwrap();
        let v4 = |d| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&[192, 0, 2, d]);
            bytes
        };
        assert!(prefix.contains(AddrKind::V4, &v4(127)));
        assert!(!prefix.contains(AddrKind::V4, &v4(128)));
        assert!(!prefix.contains(AddrKind::V6, &v4(1)));
        assert!("0.0.0.0/0".parse::<Prefix>().unwrap().contains(AddrKind::V4, &v4(128)));
        assert_eq!(prefix.to_string(), "192.0.2.0/25");
        assert_eq!("2001:db8::1".parse::<Prefix>().unwrap().to_string(), "2001:db8::1");
    }

    #[test]
    fn a_pattern_takes_address_port_or_both() {
        let pattern = |text: &str| text.parse::<AddrPattern>().unwrap();
        assert_eq!(pattern(":443").port, Some(443));
        assert!(pattern(":443").prefix.is_none());
        assert_eq!(pattern("*:53").port, Some(53));
        assert_eq!(pattern("192.0.2.0/24:443").port, Some(443));
        assert!(pattern("2001:db8::1").prefix.is_some());
        assert_eq!(pattern("[2001:db8::/32]:443").port, Some(443));
        assert_eq!(pattern("192.0.2.1").port, None);
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_is_allowed() {
        for text in ["", ":", ":70000", "192.0.2.1/33", "192.0.2", "[::1", "[::1]443", "host:1"] {
            let error = text.parse::<AddrPattern>().unwrap_err();
            assert!(error.to_string().contains("is allowed"), "{text}");
        }
        assert!("2001:db8::/129".parse::<Prefix>().is_err());
    }
}
