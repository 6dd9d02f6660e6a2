//! Network interfaces and the XDP programs on them, asked over netlink.
//!
//! Source: rtnetlink(7); `IFLA_XDP` in the kernel's `linux/if_link.h`.

use std::fmt;
use std::io;

use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp};
use rxsteer_ebpf::program;
use rxsteer_netlink::{Netlink, Protocol};

/// How a program is attached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AttachedMode {
    /// In the driver.
    Native,
    /// In the network stack, on packets that are built already.
    Skb,
    /// In the device.
    Hardware,
}

impl fmt::Display for AttachedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Skb => "skb",
            Self::Hardware => "hardware",
        })
    }
}

/// An XDP program on an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OnInterface {
    /// Name of the interface.
    pub interface: String,
    /// Number of the interface.
    pub index: u32,
    /// Number of the program, as the kernel gives it.
    pub id: u32,
    /// How it is attached.
    pub mode: AttachedMode,
    /// Name of the program; empty if the kernel does not tell.
    pub program: String,
}

impl OnInterface {
    /// Returns whether it is the program that steers, of this version or another. The kernel keeps 15
    /// bytes of a program's name.
    pub fn is_ours(&self) -> bool {
        self.program.len() >= 13 && program::STEER.starts_with(&self.program)
    }
}

/// Returns the XDP programs on all interfaces of the namespace of the calling thread.
///
/// # Errors
/// What the kernel answered. Names need [`lists_programs`]; without they are empty.
pub fn programs_on_interfaces() -> io::Result<Vec<OnInterface>> {
    let mut found = Vec::new();
    for link in links()? {
        let index = link.header.index;
        let mut name = String::new();
        let mut programs = Vec::new();
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(this) => name = this,
                LinkAttribute::Xdp(xdp) => programs.extend(xdp.iter().filter_map(attached)),
                _ => {}
            }
        }
        found.extend(programs.into_iter().map(|(id, mode)| OnInterface {
            interface: name.clone(),
            index,
            id,
            mode,
            program: program_name(id),
        }));
    }
    Ok(found)
}

/// Returns whether the kernel lists programs to this process: it does so with `CAP_SYS_ADMIN`, which must
/// be one of the host and not of a user namespace.
pub fn lists_programs() -> bool {
    let mut all = aya::programs::loaded_programs().peekable();
    // One of a list may be gone when it is looked at; all of them are only if they may not be.
    all.peek().is_none() || all.any(|program| program.is_ok())
}

/// What a check wants to know of an interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
    pub(super) rx_queues: u32,
    pub(super) tx_queues: u32,
    pub(super) is_up: bool,
    /// Kind of a virtual device, such as `veth`; empty for others.
    pub(super) kind: String,
    /// The interface that this one is tied to: the other end of a veth pair, what is below a VLAN.
    pub(super) peer: Option<u32>,
    /// The network namespace of that one, by the number that this one has for it; `None`: this one.
    pub(super) peer_namespace: Option<i32>,
    /// Bus and name of the device behind it, such as `pci` and `0000:01:00.0`.
    pub(super) device: Option<(String, String)>,
}

impl Link {
    fn read(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            is_up: message.header.flags.contains(LinkFlags::Up),
            ..Self::default()
        };
        let (mut bus, mut device) = (None, None);
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::NumRxQueues(count) => link.rx_queues = count,
                LinkAttribute::NumTxQueues(count) => link.tx_queues = count,
                LinkAttribute::Link(index) => link.peer = Some(index).filter(|index| *index != 0),
                LinkAttribute::LinkNetNsId(id) => link.peer_namespace = Some(id),
                LinkAttribute::ParentDevName(name) => device = Some(name),
                LinkAttribute::ParentDevBusName(name) => bus = Some(name),
                LinkAttribute::LinkInfo(infos) => {
                    for info in infos {
                        if let LinkInfo::Kind(kind) = info {
                            link.kind = kind.to_string();
                        }
                    }
                }
                _ => {}
            }
        }
        link.device = bus.zip(device);
        link
    }
}

/// Returns what the kernel says of all interfaces of the namespace of the calling thread.
pub(super) fn all_links() -> io::Result<Vec<Link>> {
    Ok(links()?.into_iter().map(Link::read).collect())
}

/// Returns the number of an interface of the namespace of the calling thread.
pub(super) fn index_of(interface: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(interface).ok()
}

fn attached(attribute: &LinkXdp) -> Option<(u32, AttachedMode)> {
    match *attribute {
        LinkXdp::DrvProgId(id) => Some((id, AttachedMode::Native)),
        LinkXdp::SkbProgId(id) => Some((id, AttachedMode::Skb)),
        LinkXdp::HwProgId(id) => Some((id, AttachedMode::Hardware)),
        _ => None,
    }
}

fn program_name(id: u32) -> String {
    let found = aya::programs::loaded_programs().flatten().find(|program| program.id() == id);
    found.and_then(|program| program.name_as_str().map(str::to_owned)).unwrap_or_default()
}

fn links() -> io::Result<Vec<LinkMessage>> {
    rxsteer_netlink::links(&mut Netlink::open(Protocol::Route)?)
}
