//! The kernel's netdev family: what XDP a driver says that it knows.
//!
//! Source: the specification `netdev.yaml` of the kernel, "dev-get" and "xdp-act".

use std::io;

use netlink_packet_core::DefaultNla;

use crate::Netlink;
use crate::family::{Family, Message, kind, value};

const DEV_GET: u8 = 1;
const DEV_IFINDEX: u16 = 1;
const DEV_XDP_FEATURES: u16 = 3;

/// What XDP a driver says that it knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    /// Returns whether it runs programs, and does what they say with a packet.
    pub const fn is_native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether a program may redirect packets.
    pub const fn redirects(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// Returns whether a program may be given packets of more than one buffer, as jumbo frames are.
    pub const fn takes_fragments(self) -> bool {
        self.0 & 1 << 5 != 0
    }
}

#[derive(Debug)]
struct Netdev;

impl Family for Netdev {
    const NAME: &'static str = "netdev";
    const MISSING: &'static str = "the kernel has no netdev family in netlink (Linux 6.3)";
}

/// Asks by a socket of [`Protocol::Generic`] what XDP an interface of its namespace knows; `None` if
/// the answer has nothing of it.
///
/// # Errors
/// What the kernel answered; before Linux 6.3 that it knows no such question.
///
/// [`Protocol::Generic`]: crate::Protocol::Generic
pub fn xdp_features(netlink: &mut Netlink, index: u32) -> io::Result<Option<XdpFeatures>> {
    let of = DefaultNla::new(DEV_IFINDEX, index.to_ne_bytes().to_vec());
    let answers = Message::<Netdev>::new(DEV_GET, vec![of]).ask(netlink)?;
    let told = answers.iter().flat_map(|answer| &answer.attributes);
    Ok(told.filter(|nla| kind(nla) == DEV_XDP_FEATURES).find_map(|nla| {
        let bytes: [u8; 8] = value(nla).try_into().ok()?;
        Some(XdpFeatures(u64::from_ne_bytes(bytes)))
    }))
}
