//! The kernel's ethtool family: which offloads a device has on, and switching them.
//!
//! Source: Documentation/networking/ethtool-netlink.rst, "FEATURES_GET", "FEATURES_SET" and "Bit
//! sets"; the numbers are those of the kernel's interface header `ethtool_netlink.h`.

use std::io;

use netlink_packet_core::{DecodeError, DefaultNla};

use crate::Netlink;
use crate::ask::bad;
use crate::family::{Family, Message, attributes, kind, nested, value, zero_terminated};

const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;

const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const HEADER_DEV_NAME: u16 = 2;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

#[derive(Debug)]
struct Ethtool;

impl Family for Ethtool {
    const NAME: &'static str = "ethtool";
    const MISSING: &'static str = "the kernel has no ethtool family in netlink (Linux 5.6)";
}

/// Asks by a socket of [`Protocol::Generic`] for the names of the offloads that a device has on.
///
/// # Errors
/// What the kernel answered.
///
/// [`Protocol::Generic`]: crate::Protocol::Generic
pub fn active_offloads(netlink: &mut Netlink, device: &str) -> io::Result<Vec<String>> {
    let answers = Message::<Ethtool>::new(FEATURES_GET, vec![header(device)]).ask(netlink)?;
    let mut names = Vec::new();
    for answer in &answers {
        for set in answer.attributes.iter().filter(|nla| kind(nla) == FEATURES_ACTIVE) {
            names.extend(names_in(&value(set)).map_err(bad)?);
        }
    }
    Ok(names)
}

/// Switches offloads by name, by a socket of [`Protocol::Generic`]; those that are not named stay as
/// they are.
///
/// # Errors
/// What the kernel answered.
///
/// [`Protocol::Generic`]: crate::Protocol::Generic
pub fn switch_offloads(netlink: &mut Netlink, device: &str, to: &[(&str, bool)]) -> io::Result<()> {
    let bits: Vec<DefaultNla> = to
        .iter()
        .map(|(name, on)| {
            let mut bit = vec![DefaultNla::new(BIT_NAME, zero_terminated(name))];
            if *on {
                bit.push(DefaultNla::new(BIT_VALUE, Vec::new()));
            }
            nested(BITS_BIT, &bit)
        })
        .collect();
    let wanted = nested(FEATURES_WANTED, &[nested(BITSET_BITS, &bits)]);
    Message::<Ethtool>::new(FEATURES_SET, vec![header(device), wanted]).ask(netlink)?;
    Ok(())
}

fn header(device: &str) -> DefaultNla {
    nested(FEATURES_HEADER, &[DefaultNla::new(HEADER_DEV_NAME, zero_terminated(device))])
}

/// Returns the names in a bit set that lists its bits.
fn names_in(set: &[u8]) -> Result<Vec<String>, DecodeError> {
    let mut names = Vec::new();
    for bits in attributes(set)?.iter().filter(|nla| kind(nla) == BITSET_BITS) {
        for bit in attributes(&value(bits))? {
            for name in attributes(&value(&bit))?.iter().filter(|nla| kind(nla) == BIT_NAME) {
                let name = value(name);
                names.push(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned());
            }
        }
    }
    Ok(names)
}
