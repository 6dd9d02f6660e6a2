//! Where packets may be sent.
//!
//! A bench sends as fast as it can, so a typing mistake would be an attack. Addresses of the own
//! testbed are free; any other, loopback too, must be named by who says that the network is theirs.

use std::net::IpAddr;

use crate::BenchError;

/// The addresses outside the testbed that may be sent to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Permit {
    named: Vec<IpAddr>,
}

impl Permit {
    /// Allows the addresses that were named.
    pub fn new(named: Vec<IpAddr>) -> Self {
        Self { named }
    }

    /// Checks that an address was named.
    ///
    /// # Errors
    /// [`BenchError::NotOurs`] with the flag that would allow it.
    pub fn check(&self, address: IpAddr) -> Result<(), BenchError> {
        // One that an IPv4 socket of IPv6 shows is the same address.
        if self.named.iter().any(|named| named.to_canonical() == address.to_canonical()) {
            return Ok(());
        }
        Err(BenchError::NotOurs(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_named_is_allowed() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let permit = Permit::new(vec![address("192.0.2.7"), address("2001:db8::1")]);
        for allowed in ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1"] {
            permit.check(address(allowed)).unwrap();
        }
        for refused in ["192.0.2.8", "127.0.0.1", "::1", "198.19.255.254"] {
            let error = permit.check(address(refused)).unwrap_err().to_string();
            assert!(error.ends_with(&format!("--i-own-this-network {refused}")), "{error}");
        }
        assert!(Permit::default().check(address("192.0.2.7")).is_err());
    }
}
