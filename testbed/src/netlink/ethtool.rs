//! The kernel's ethtool family: which offloads a device has on, and switching them.
//!
//! Source: Documentation/networking/ethtool-netlink.rst, "FEATURES_GET", "FEATURES_SET" and "Bit
//! sets"; the numbers are those of the kernel's interface header `ethtool_netlink.h`.

use std::io;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLA_TYPE_MASK, Nla as _, NlasIterator,
    ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};

use super::Netlink;

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

/// A message of the ethtool family: a command and its attributes.
#[derive(Debug)]
struct Ethtool {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Ethtool {
    fn family_name() -> &'static str {
        "ethtool"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Ethtool {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Ethtool {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self { command: header.cmd, attributes: attributes(bytes)? })
    }
}

/// Asks for the number of the family, which differs by kernel.
fn family(netlink: &mut Netlink) -> io::Result<u16> {
    let question = GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(Ethtool::family_name().to_owned())],
    };
    let answers = netlink.ask(GenlMessage::from_payload(question), 0)?;
    let id = answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| {
        if let GenlCtrlAttrs::FamilyId(id) = attribute { Some(*id) } else { None }
    });
    id.ok_or_else(|| io::Error::other("the kernel has no ethtool family in netlink (Linux 5.6)"))
}

fn ask(netlink: &mut Netlink, message: Ethtool) -> io::Result<Vec<Ethtool>> {
    let family = family(netlink)?;
    let mut message = GenlMessage::from_payload(message);
    message.set_resolved_family_id(family);
    let answers = netlink.ask(message, 0)?;
    Ok(answers.into_iter().map(|answer| answer.payload).collect())
}

/// Returns the names of the offloads that a device has on.
pub(crate) fn active(netlink: &mut Netlink, device: &str) -> io::Result<Vec<String>> {
    let question = Ethtool { command: FEATURES_GET, attributes: vec![header(device)] };
    let answers = ask(netlink, question)?;
    let mut names = Vec::new();
    for answer in &answers {
        for set in answer.attributes.iter().filter(|nla| kind(nla) == FEATURES_ACTIVE) {
            names.extend(names_in(&value(set)).map_err(super::bad)?);
        }
    }
    Ok(names)
}

/// Switches offloads by name; those that are not named stay as they are.
pub(crate) fn switch(netlink: &mut Netlink, device: &str, to: &[(&str, bool)]) -> io::Result<()> {
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
    ask(netlink, Ethtool { command: FEATURES_SET, attributes: vec![header(device), wanted] })?;
    Ok(())
}

fn header(device: &str) -> DefaultNla {
    nested(FEATURES_HEADER, &[DefaultNla::new(HEADER_DEV_NAME, zero_terminated(device))])
}

fn nested(kind: u16, inside: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; inside.buffer_len()];
    inside.emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}

fn zero_terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
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

fn attributes(bytes: &[u8]) -> Result<Vec<DefaultNla>, DecodeError> {
    NlasIterator::new(bytes)
        .map(|nla| {
            let nla = nla?;
            Ok(DefaultNla::new(nla.kind(), nla.value().to_vec()))
        })
        .collect()
}

fn kind(nla: &DefaultNla) -> u16 {
    nla.kind() & NLA_TYPE_MASK
}

fn value(nla: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; nla.value_len()];
    nla.emit_value(&mut bytes);
    bytes
}
