//! Devices: veth pairs, VLAN and VXLAN devices, what is known of them.
//!
//! Source: veth(4), ip-link(8); the attributes of rtnetlink(7).

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVlan, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage, VlanProtocol,
};
use nix::errno::Errno;
use rxsteer_netlink::{active_offloads, switch_offloads};

use crate::error::During as _;
use crate::{DeviceCounters, Namespace, Offloads, TestbedError};

/// One end of a veth pair.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VethEnd {
    /// Name of the device.
    pub name: String,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Offloads, each set as said here.
    pub offloads: Offloads,
}

impl VethEnd {
    /// An end with one queue each way and no offload.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), rx_queues: 1, tx_queues: 1, offloads: Offloads::NONE }
    }

    /// The same with as many queues each way.
    #[must_use]
    pub fn queues(mut self, count: u32) -> Self {
        (self.rx_queues, self.tx_queues) = (count, count);
        self
    }

    /// The same with these offloads.
    #[must_use]
    pub fn offloads(mut self, offloads: Offloads) -> Self {
        self.offloads = offloads;
        self
    }
}

/// A veth pair: what is sent at one end is received at the other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VethSpec {
    /// The end in the namespace that makes the pair.
    pub here: VethEnd,
    /// The end in the other namespace.
    pub there: VethEnd,
    /// Most bytes of a packet without its Ethernet header.
    pub mtu: u32,
}

/// A VXLAN device (RFC 7348).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VxlanSpec {
    /// Name of the device.
    pub name: String,
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// UDP port of both ends, 4789 for VXLAN.
    pub port: u16,
    /// Outer address of this end.
    pub local: IpAddr,
    /// Outer address of the other end.
    pub remote: IpAddr,
}

/// What the kernel knows of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Device {
    /// Index, by which the kernel names it.
    pub index: u32,
    /// Ethernet address; zeros for a device without one.
    pub mac: [u8; 6],
    /// Most bytes of a packet without its Ethernet header.
    pub mtu: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// What went through it.
    pub counters: DeviceCounters,
}

impl Namespace {
    /// Makes a veth pair from this namespace to another and brings both ends up.
    ///
    /// # Errors
    /// [`TestbedError::Step`] with the names, [`TestbedError::Offload`] if an end does not take an
    /// offload setting.
    pub fn add_veth(&self, to: &Self, spec: &VethSpec) -> Result<(), TestbedError> {
        let mut peer = end(&spec.there, spec.mtu);
        // Made there at once: the pair is never seen in any other namespace.
        peer.attributes.push(LinkAttribute::NetNsFd(to.file().as_raw_fd()));
        let mut message = end(&spec.here, spec.mtu);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let names = || format!("create the veth pair {} and {}", spec.here.name, spec.there.name);
        self.create(message).during(names)?;
        let ends = [(self, &spec.here), (to, &spec.there)];
        ends.iter().try_for_each(|(namespace, end)| namespace.set_up(&end.name))?;
        // Afterwards: an end that gets GRO while it is down does not tell the other that it polls, which
        // then takes no redirected frames.
        ends.iter().try_for_each(|(namespace, end)| namespace.set_offloads(&end.name, end.offloads))
    }

    /// Makes a VLAN device on top of another and brings it up; 802.1Q, or 802.1ad for a service tag.
    ///
    /// # Errors
    /// [`TestbedError::NoKind`], [`TestbedError::Step`], [`TestbedError::NoDevice`].
    pub fn add_vlan(
        &self,
        name: &str,
        lower: &str,
        vlan_id: u16,
        service: bool,
    ) -> Result<(), TestbedError> {
        let message = vlan(name, self.device(lower)?.index, vlan_id, service);
        known(self.create(message), "VLAN", "CONFIG_VLAN_8021Q")?
            .during(|| format!("create {name}, VLAN {vlan_id} on {lower}"))?;
        self.set_up(name)
    }

    /// Makes a VXLAN device and brings it up.
    ///
    /// # Errors
    /// [`TestbedError::NoKind`], [`TestbedError::Step`].
    pub fn add_vxlan(&self, spec: &VxlanSpec) -> Result<(), TestbedError> {
        let mut data = vec![InfoVxlan::Id(spec.vni), InfoVxlan::Port(spec.port)];
        data.push(match spec.local {
            IpAddr::V4(address) => InfoVxlan::Local(address),
            IpAddr::V6(address) => InfoVxlan::Local6(address),
        });
        // "Group" is also the name of a single remote end.
        data.push(match spec.remote {
            IpAddr::V4(address) => InfoVxlan::Group(address),
            IpAddr::V6(address) => InfoVxlan::Group6(address),
        });
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(spec.name.clone()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vxlan),
                LinkInfo::Data(InfoData::Vxlan(data)),
            ]),
        ];
        known(self.create(message), "VXLAN", "CONFIG_VXLAN")?
            .during(|| format!("create {}, VXLAN {}", spec.name, spec.vni))?;
        self.set_up(&spec.name)
    }

    /// Brings a device up.
    ///
    /// # Errors
    /// [`TestbedError::Step`].
    pub fn set_up(&self, device: &str) -> Result<(), TestbedError> {
        let mut message = named(device);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(message).during(|| format!("bring {device} up"))
    }

    /// Lets a device ask nobody for Ethernet addresses, by ARP or neighbour discovery, nor announce
    /// its own; who is not named by [`add_neighbour`](Self::add_neighbour) is not reached.
    ///
    /// # Errors
    /// [`TestbedError::Step`].
    pub fn set_no_arp(&self, device: &str) -> Result<(), TestbedError> {
        let mut message = named(device);
        message.header.flags = LinkFlags::Noarp;
        message.header.change_mask = LinkFlags::Noarp;
        self.change(message).during(|| format!("switch ARP off on {device}"))
    }

    /// Sets the MTU of a device.
    ///
    /// # Errors
    /// [`TestbedError::Step`].
    pub fn set_mtu(&self, device: &str, mtu: u32) -> Result<(), TestbedError> {
        let mut message = named(device);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(message).during(|| format!("set the MTU of {device} to {mtu}"))
    }

    /// Removes a device, and the other end with it.
    ///
    /// # Errors
    /// [`TestbedError::Step`].
    pub fn remove_device(&self, device: &str) -> Result<(), TestbedError> {
        let asked = self.route().ask(RouteNetlinkMessage::DelLink(named(device)), 0);
        asked.map(drop).during(|| format!("remove {device}"))
    }

    /// Sets the offloads of a device, all of them.
    ///
    /// # Errors
    /// [`TestbedError::Step`], and [`TestbedError::Offload`] if one is not as asked afterwards.
    pub fn set_offloads(&self, device: &str, offloads: Offloads) -> Result<(), TestbedError> {
        let mut netlink = self.generic();
        switch_offloads(&mut netlink, device, &offloads.by_name())
            .during(|| format!("set the offloads of {device}"))?;
        drop(netlink);
        let now = self.offloads(device)?;
        for ((offload, wanted), (_, is)) in offloads.by_name().into_iter().zip(now.by_name()) {
            if wanted != is {
                return Err(TestbedError::Offload { device: device.into(), offload, wanted });
            }
        }
        Ok(())
    }

    /// Returns which offloads a device has on.
    ///
    /// # Errors
    /// [`TestbedError::Step`].
    pub fn offloads(&self, device: &str) -> Result<Offloads, TestbedError> {
        let names = active_offloads(&mut self.generic(), device)
            .during(|| format!("ask for the offloads of {device}"))?;
        Ok(Offloads::from_names(&names))
    }

    /// Returns what the kernel knows of a device.
    ///
    /// # Errors
    /// [`TestbedError::NoDevice`], [`TestbedError::Step`].
    pub fn device(&self, device: &str) -> Result<Device, TestbedError> {
        let answers = self.route().ask(RouteNetlinkMessage::GetLink(named(device)), 0);
        let answers = match answers {
            Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => {
                return Err(TestbedError::NoDevice {
                    namespace: self.name(),
                    device: device.into(),
                });
            }
            answers => answers.during(|| format!("ask about {device}"))?,
        };
        let found = answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(read(link)),
            _ => None,
        });
        found
            .ok_or_else(|| TestbedError::NoDevice { namespace: self.name(), device: device.into() })
    }

    fn create(&self, message: LinkMessage) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewLink(message);
        self.route().ask(message, NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    fn change(&self, message: LinkMessage) -> io::Result<()> {
        self.route().ask(RouteNetlinkMessage::SetLink(message), 0).map(drop)
    }
}

fn named(device: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(device.into()));
    message
}

fn vlan(name: &str, lower: u32, vlan_id: u16, service: bool) -> LinkMessage {
    let protocol = if service { VlanProtocol::Ieee8021Ad } else { VlanProtocol::Ieee8021Q };
    let mut message = named(name);
    message.attributes.extend([
        LinkAttribute::Link(lower),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![
                InfoVlan::Id(vlan_id),
                InfoVlan::Protocol(protocol),
            ])),
        ]),
    ]);
    message
}

/// Tells a kernel that knows no such kind of device from one that refuses this device.
fn known<T>(
    made: io::Result<T>,
    kind: &'static str,
    option: &'static str,
) -> Result<io::Result<T>, TestbedError> {
    match made {
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {
            Err(TestbedError::NoKind { kind, option })
        }
        made => Ok(made),
    }
}

fn end(end: &VethEnd, mtu: u32) -> LinkMessage {
    let mut message = named(&end.name);
    message.attributes.extend([
        LinkAttribute::Mtu(mtu),
        LinkAttribute::NumRxQueues(end.rx_queues),
        LinkAttribute::NumTxQueues(end.tx_queues),
    ]);
    message
}

fn read(link: &LinkMessage) -> Device {
    let mut device = Device {
        index: link.header.index,
        mac: [0; 6],
        mtu: 0,
        rx_queues: 0,
        tx_queues: 0,
        counters: DeviceCounters::default(),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(address) => {
                device.mac = address.as_slice().try_into().unwrap_or_default();
            }
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            LinkAttribute::NumRxQueues(count) => device.rx_queues = *count,
            LinkAttribute::NumTxQueues(count) => device.tx_queues = *count,
            LinkAttribute::Stats64(stats) => {
                device.counters = DeviceCounters {
                    rx_packets: stats.rx_packets,
                    tx_packets: stats.tx_packets,
                    rx_bytes: stats.rx_bytes,
                    tx_bytes: stats.tx_bytes,
                    rx_dropped: stats.rx_dropped,
                    tx_dropped: stats.tx_dropped,
                    rx_errors: stats.rx_errors,
                    tx_errors: stats.tx_errors,
                };
            }
            _ => {}
        }
    }
    device
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable as _;

    /// Attribute numbers of the kernel's `if_link.h`: link info 18 with kind 1 and data 2, VLAN id 1,
    /// VLAN protocol 5 in network order. Each attribute is its length, its number, its bytes.
    #[test]
    fn a_vlan_request_is_what_the_kernel_expects() {
        for (service, tag) in [(false, [0x81, 0x00]), (true, [0x88, 0xa8])] {
            let message = vlan("t", 3, 7, service);
            let mut bytes = vec![0; message.buffer_len()];
            message.emit(&mut bytes);
            let attribute = |number: u16, value: &[u8]| {
                let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
                bytes.extend(number.to_ne_bytes());
                bytes.extend(value);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                bytes
            };
            let data = [attribute(1, &7u16.to_ne_bytes()), attribute(5, &tag)].concat();
            let info = [attribute(1, b"vlan\0"), attribute(2, &data)].concat();
            let expected =
                [attribute(3, b"t\0"), attribute(5, &3u32.to_ne_bytes()), attribute(18, &info)];
            // Behind the header of 16 bytes.
            assert_eq!(without_flags(&bytes[16..]), without_flags(&expected.concat()));
        }
    }

    /// Clears the mark of nested attributes, which is optional.
    fn without_flags(bytes: &[u8]) -> Vec<u8> {
        let nested = [18u16, 2].map(|number| ((number | 0x8000).to_ne_bytes(), number));
        let mut bytes = bytes.to_vec();
        for at in (0..bytes.len()).step_by(4) {
            for (marked, number) in nested {
                if bytes[at + 2..at + 4] == marked {
                    bytes[at + 2..at + 4].copy_from_slice(&number.to_ne_bytes());
                }
            }
        }
        bytes
    }
}
