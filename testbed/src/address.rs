//! Addresses, neighbours and routes.
//!
//! Always true: an address that was given can be used (no duplicate address detection, and its route
//! is there).
//! Source: rtnetlink(7), ip-address(8), ip-neighbour(8), ip-route(8).

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use crate::error::During as _;
use crate::{Namespace, TestbedError};

impl Namespace {
    /// Gives a device an address of this prefix length.
    ///
    /// # Errors
    /// [`TestbedError::Step`], [`TestbedError::NoDevice`].
    pub fn add_address(
        &self,
        device: &str,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), TestbedError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = self.device(device)?.index;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        let message = RouteNetlinkMessage::NewAddress(message);
        let asked = self.route().ask(message, NLM_F_CREATE | NLM_F_EXCL);
        let doing = || format!("give {device} the address {address}/{prefix_len}");
        asked.map(drop).during(doing)?;
        self.wait_for(address).during(doing)
    }

    /// Waits until packets to an address are taken: IPv6 adds the route to it some time later.
    fn wait_for(&self, address: IpAddr) -> io::Result<()> {
        const AT_MOST: Duration = Duration::from_secs(10);
        let start = Instant::now();
        while !self.is_local(address)? {
            if start.elapsed() > AT_MOST {
                let message = format!("the kernel does not take it into use within {AT_MOST:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns whether packets to an address are taken here.
    fn is_local(&self, address: IpAddr) -> io::Result<bool> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(route_address(address))];
        let answers = match self.route().ask(RouteNetlinkMessage::GetRoute(message), 0) {
            // No route at all yet.
            Err(error) if error.raw_os_error() == Some(Errno::ENETUNREACH as i32) => Vec::new(),
            answers => answers?,
        };
        Ok(answers.iter().any(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => route.header.kind == RouteType::Local,
            _ => false,
        }))
    }

    /// Says which Ethernet address a neighbour has, so that nobody need ask for it.
    ///
    /// # Errors
    /// [`TestbedError::Step`], [`TestbedError::NoDevice`].
    pub fn add_neighbour(
        &self,
        device: &str,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), TestbedError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.device(device)?.index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(match address {
                IpAddr::V4(address) => NeighbourAddress::Inet(address),
                IpAddr::V6(address) => NeighbourAddress::Inet6(address),
            }),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        let message = RouteNetlinkMessage::NewNeighbour(message);
        let asked = self.route().ask(message, NLM_F_CREATE | NLM_F_REPLACE);
        asked.map(drop).during(|| format!("name the neighbour {address} on {device}"))
    }

    /// Sends what is for a network through a device; a prefix length of 0 is the default route.
    ///
    /// # Errors
    /// [`TestbedError::Step`], [`TestbedError::NoDevice`].
    pub fn add_route(
        &self,
        device: &str,
        network: IpAddr,
        prefix_len: u8,
        gateway: Option<IpAddr>,
    ) -> Result<(), TestbedError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(network);
        message.header.destination_prefix_length = prefix_len;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope =
            if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(route_address(network)),
            RouteAttribute::Oif(self.device(device)?.index),
        ];
        message.attributes.extend(gateway.map(|to| RouteAttribute::Gateway(route_address(to))));
        let message = RouteNetlinkMessage::NewRoute(message);
        let asked = self.route().ask(message, NLM_F_CREATE | NLM_F_EXCL);
        asked.map(drop).during(|| format!("route {network}/{prefix_len} through {device}"))
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}
