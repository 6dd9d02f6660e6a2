//! The rules by linear scan: what the tables are checked against, for tests and oracles.
//!
//! Written straight from the rules as the recorded data show them, with lists in vectors and every
//! question answered by walking them. Shares with the tables the types of their border, the hash
//! by which groups pick, the options that are only remembered, and nothing else. Slow on purpose, and of one thread.
//!
//! Source: spec of the receive path, "UDP tables and bind" to "Early demux and multicast".

mod conflicts;
mod deliver;
mod groups;
mod operations;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rxsteer_core::CpuId;

use crate::option::Remembered;
use crate::profile::Quirks;
use crate::table::TupleHash;
use crate::{Config, DeviceId, Family, Owner, SocketError, SocketId};
use groups::Group;

/// The address a connected IPv6 socket has as its IPv4 address under Linux.
const STAND_IN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);

/// A 4-tuple: local address and port, remote address and port.
type Tuple = (Ipv6Addr, u16, Ipv6Addr, u16);

#[derive(Clone, Debug)]
struct Sock {
    family: Family,
    owner: Owner,
    open: bool,
    options: Remembered,
    reuseaddr: bool,
    reuseport: bool,
    /// The address given to bind.
    bound: Option<IpAddr>,
    device: Option<DeviceId>,
    cpu: Option<CpuId>,
    /// The user set it.
    cpu_given: bool,
    port: u16,
    port_named: bool,
    address_named: bool,
    local4: Ipv4Addr,
    local6: Ipv6Addr,
    remote4: Ipv4Addr,
    remote6: Ipv6Addr,
    remote_port: u16,
    connected: bool,
    /// The group of which it is a member.
    group: Option<usize>,
    /// The group to which it belongs, also while it is connected and no member.
    home: Option<usize>,
}

impl Sock {
    fn list_address(&self) -> Ipv6Addr {
        match self.family {
            Family::V4 if self.local4.is_unspecified() => Ipv6Addr::UNSPECIFIED,
            Family::V4 => self.local4.to_ipv6_mapped(),
            Family::V6 if self.local6 == Ipv4Addr::UNSPECIFIED.to_ipv6_mapped() => {
                Ipv6Addr::UNSPECIFIED
            }
            Family::V6 => self.local6,
        }
    }

    fn is_v4_now(&self) -> bool {
        self.family == Family::V4 || self.is_mapped()
    }

    fn is_mapped(&self) -> bool {
        self.family == Family::V6 && self.local6.to_ipv4_mapped().is_some()
    }

    fn tuple(&self) -> Tuple {
        let remote = match self.family {
            Family::V4 => self.remote4.to_ipv6_mapped(),
            Family::V6 => self.remote6,
        };
        (self.list_address(), self.port, remote, self.remote_port)
    }

    fn fits_device(&self, device: DeviceId) -> bool {
        self.device.is_none_or(|own| own == device)
    }

    /// What members of a group have in common: the address counts as bind gave it.
    fn group_key(&self) -> (Family, bool, u16, Option<DeviceId>, Owner, Option<IpAddr>) {
        let bound = self.bound.filter(|bound| !bound.is_unspecified());
        (self.family, self.options.v6only, self.port, self.device, self.owner, bound)
    }

    fn address(&self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(self.local4),
            Family::V6 => IpAddr::V6(self.local6),
        }
    }
}

/// All sockets of a namespace, found by looking at each.
#[derive(Clone, Debug)]
pub struct Model {
    quirks: Quirks,
    hash4: bool,
    hash: TupleHash,
    range: (u16, u16),
    socks: Vec<Sock>,
    groups: Vec<Group>,
    /// Sockets of a port, head first.
    by_port: BTreeMap<u16, Vec<usize>>,
    /// Sockets of an address and port, head first; all wildcards under `::`.
    by_address: BTreeMap<(Ipv6Addr, u16), Vec<usize>>,
    /// Connected sockets and the 4-tuple they are filed under, last filed first.
    filed: Vec<(Tuple, usize)>,
}

impl Model {
    /// Makes an empty namespace; `hash4`: whether connected sockets are filed by 4-tuple.
    pub fn new(config: &Config, hash4: bool) -> Self {
        Self {
            quirks: config.profile.quirks(),
            hash4: hash4 && config.profile.quirks().three_tables,
            hash: TupleHash::new(config.key),
            range: config.port_range,
            socks: Vec::new(),
            groups: Vec::new(),
            by_port: BTreeMap::new(),
            by_address: BTreeMap::new(),
            filed: Vec::new(),
        }
    }

    /// Opens a socket.
    ///
    /// # Errors
    /// None: there is no limit here.
    pub fn open(&mut self, family: Family, owner: Owner) -> Result<SocketId, SocketError> {
        self.socks.push(Sock {
            family,
            owner,
            open: true,
            options: Remembered::new(family),
            reuseaddr: false,
            reuseport: false,
            bound: None,
            device: None,
            cpu: None,
            cpu_given: false,
            port: 0,
            port_named: false,
            address_named: false,
            local4: Ipv4Addr::UNSPECIFIED,
            local6: Ipv6Addr::UNSPECIFIED,
            remote4: Ipv4Addr::UNSPECIFIED,
            remote6: Ipv6Addr::UNSPECIFIED,
            remote_port: 0,
            connected: false,
            group: None,
            home: None,
        });
        // A model never uses a place twice.
        Ok(SocketId { index: self.socks.len() as u32 - 1, generation: 0 })
    }

    /// Closes a socket.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn close(&mut self, id: SocketId) -> Result<(), SocketError> {
        let i = self.index(id)?;
        self.unhash(i);
        self.socks[i].open = false;
        Ok(())
    }

    /// Returns the local address and port; port 0: not bound.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn local(&self, id: SocketId) -> Result<(IpAddr, u16), SocketError> {
        let sock = &self.socks[self.index(id)?];
        Ok((sock.address(), sock.port))
    }

    fn index(&self, id: SocketId) -> Result<usize, SocketError> {
        let sock = self.socks.get(id.index as usize).filter(|s| s.open && id.generation == 0);
        sock.map(|_| id.index as usize).ok_or(SocketError::Closed)
    }
}

/// Writes an address of either family as an IPv6 one.
fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
