//! Families of generic netlink: their numbers, and messages that are a command and attributes.
//!
//! Source: Documentation/userspace-api/netlink/intro-specs.rst and `genetlink-legacy`.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLA_TYPE_MASK, Nla as _, NlasIterator,
    ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};

use crate::Netlink;

/// Which family a message is of.
pub(crate) trait Family: Debug {
    /// Name that the kernel knows it by.
    const NAME: &'static str;
    /// What is missing in a kernel without it.
    const MISSING: &'static str;
}

/// A message of a family: a command and its attributes.
#[derive(Debug)]
pub(crate) struct Message<F> {
    command: u8,
    pub(crate) attributes: Vec<DefaultNla>,
    family: PhantomData<F>,
}

impl<F: Family> Message<F> {
    pub(crate) fn new(command: u8, attributes: Vec<DefaultNla>) -> Self {
        Self { command, attributes, family: PhantomData }
    }

    /// Asks this and returns the answers.
    pub(crate) fn ask(self, netlink: &mut Netlink) -> io::Result<Vec<Self>> {
        let family = number::<F>(netlink)?;
        let mut message = GenlMessage::from_payload(self);
        message.set_resolved_family_id(family);
        let answers = netlink.ask(message, 0)?;
        Ok(answers.into_iter().map(|answer| answer.payload).collect())
    }
}

impl<F: Family> GenlFamily for Message<F> {
    fn family_name() -> &'static str {
        F::NAME
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl<F> Emitable for Message<F> {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl<F: Family> ParseableParametrized<[u8], GenlHeader> for Message<F> {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self::new(header.cmd, attributes(bytes)?))
    }
}

/// Asks for the number of the family, which differs by kernel.
fn number<F: Family>(netlink: &mut Netlink) -> io::Result<u16> {
    let question = GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(F::NAME.to_owned())],
    };
    let answers = netlink.ask(GenlMessage::from_payload(question), 0)?;
    let id = answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| {
        if let GenlCtrlAttrs::FamilyId(id) = attribute { Some(*id) } else { None }
    });
    id.ok_or_else(|| io::Error::other(F::MISSING))
}

pub(crate) fn nested(kind: u16, inside: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; inside.buffer_len()];
    inside.emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}

pub(crate) fn zero_terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

pub(crate) fn attributes(bytes: &[u8]) -> Result<Vec<DefaultNla>, DecodeError> {
    NlasIterator::new(bytes)
        .map(|nla| {
            let nla = nla?;
            Ok(DefaultNla::new(nla.kind(), nla.value().to_vec()))
        })
        .collect()
}

pub(crate) fn kind(nla: &DefaultNla) -> u16 {
    nla.kind() & NLA_TYPE_MASK
}

pub(crate) fn value(nla: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; nla.value_len()];
    nla.emit_value(&mut bytes);
    bytes
}
