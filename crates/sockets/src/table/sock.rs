//! The state of one socket, as writers keep it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::option::Remembered;
use crate::{Family, Owner, SocketId};

use super::entry::{self, Entry};
use super::publish::Footprint;
use super::tuple::{MAPPED, Tuple, is_v4};

/// The address a connected IPv6 socket has as its IPv4 address under Linux: 127.0.0.6.
pub(super) const STAND_IN: u32 = 0x7f00_0006;

/// What the members of a reuseport group have in common.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct GroupKey {
    family: Family,
    v6only: bool,
    port: u16,
    device: u32,
    owner: Owner,
    address: u128,
}

/// Where a connected socket is filed by 4-tuple. Without the table all that is left is that it would
/// be: it leaves its group then.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Filed {
    #[cfg(feature = "hash4")]
    pub(super) tuple: Tuple,
    /// Number of the filing: of several sockets with one 4-tuple, the highest is found.
    #[cfg(feature = "hash4")]
    pub(super) order: u64,
}

impl Filed {
    /// Returns whether this is the 4-tuple under which it is filed.
    pub(super) fn is_under(&self, tuple: &Tuple) -> bool {
        #[cfg(feature = "hash4")]
        return self.tuple == *tuple;
        #[cfg(not(feature = "hash4"))]
        {
            let _ = tuple;
            false
        }
    }
}

/// One socket.
#[derive(Debug)]
pub(crate) struct Sock {
    pub(super) family: Family,
    pub(super) owner: Owner,
    pub(super) options: Remembered,
    pub(super) reuseaddr: bool,
    pub(super) reuseport: bool,
    /// 0: none.
    pub(super) device: u32,
    /// Whether its user set its incoming CPU.
    pub(super) cpu_given: bool,
    /// 0: not bound.
    pub(super) port: u16,
    /// Whether bind named the port, and whether it named an address.
    pub(super) port_named: bool,
    pub(super) address_named: bool,
    /// The address that bind gave, as [`GroupKey`] has it.
    pub(super) bound: u128,
    /// Local and remote addresses; an IPv6 socket has both kinds. 0: the wildcard, or none.
    pub(super) local4: u32,
    pub(super) local6: u128,
    pub(super) remote4: u32,
    pub(super) remote6: u128,
    pub(super) remote_port: u16,
    pub(super) connected: bool,
    /// The reuseport group it belongs to; 0: none.
    pub(super) home: u32,
    /// The group of which it is a member at present: its home, or 0 while it is connected.
    pub(super) group: u32,
    /// Places on the list of its port and on that of its address.
    pub(super) port_rank: i64,
    pub(super) rank: i64,
    /// The address on whose list it is; differs from its own only within an operation.
    pub(super) listed_at: u128,
    pub(super) filed: Option<Filed>,
    /// The flow that the steering side was told of; boxed, as few namespaces tell of any.
    pub(super) flow: Option<Box<Tuple>>,
    /// What look-ups see of it at present.
    pub(super) published: Footprint,
}

impl Sock {
    pub(super) fn new(family: Family, owner: Owner) -> Self {
        Self {
            family,
            owner,
            options: Remembered::new(family),
            reuseaddr: false,
            reuseport: false,
            device: 0,
            cpu_given: false,
            port: 0,
            port_named: false,
            address_named: false,
            bound: 0,
            local4: 0,
            local6: 0,
            remote4: 0,
            remote6: 0,
            remote_port: 0,
            connected: false,
            home: 0,
            group: 0,
            port_rank: 0,
            rank: 0,
            listed_at: 0,
            filed: None,
            flow: None,
            published: Footprint::default(),
        }
    }

    /// Returns the address under which the socket is listed: 0 for all wildcards, also
    /// `::ffff:0.0.0.0`.
    pub(super) fn list_address(&self) -> u128 {
        match self.family {
            Family::V4 => listed(MAPPED | u128::from(self.local4)),
            Family::V6 => listed(self.local6),
        }
    }

    /// Returns the local address as the family writes it.
    pub(crate) fn local(&self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(self.local4)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.local6)),
        }
    }

    /// Returns the local port; 0: not bound.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the remote end as the family writes it, if the socket is connected.
    pub(crate) fn remote_end(&self) -> Option<(IpAddr, u16)> {
        let address = match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(self.remote4)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.remote6)),
        };
        self.connected.then_some((address, self.remote_port))
    }

    /// Returns the 4-tuple the socket has now.
    pub(super) fn tuple(&self) -> Tuple {
        let remote = match self.family {
            Family::V4 => MAPPED | u128::from(self.remote4),
            Family::V6 => self.remote6,
        };
        Tuple {
            local: self.list_address(),
            remote,
            local_port: self.port,
            remote_port: self.remote_port,
        }
    }

    /// Returns the key of its group; `as_bound`: with the address that bind gave, else with that
    /// of now.
    pub(super) fn group_key(&self, as_bound: bool) -> GroupKey {
        let address = match self.family {
            _ if as_bound => self.bound,
            Family::V4 => u128::from(self.local4),
            Family::V6 => self.local6,
        };
        GroupKey {
            family: self.family,
            v6only: self.options.v6only,
            port: self.port,
            device: self.device,
            owner: self.owner,
            address,
        }
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.family == Family::V6 && is_v4(self.local6)
    }

    /// Returns the bits of [`Entry::flags`].
    pub(super) fn flags(&self) -> u16 {
        let v4 = self.family == Family::V4;
        let v4_address = match self.family {
            Family::V4 => true,
            // `::` takes IPv4 too, as long as nothing stands in for its IPv4 address.
            Family::V6 => self.is_mapped() || (self.local6 == 0 && self.local4 == 0),
        };
        let bit = |on: bool, flag: u16| if on { flag } else { 0 };
        bit(v4_address && !self.options.v6only, entry::TAKES_V4)
            | bit(!v4 && !self.is_mapped(), entry::TAKES_V6)
            | bit(v4, entry::IS_V4)
            | bit(self.connected, entry::CONNECTED)
            | bit(self.reuseport, entry::REUSEPORT)
            | bit(self.options.encapsulation, entry::ENCAPSULATION)
            | bit(self.options.mcast_all4, entry::MCAST_ALL4)
            | bit(self.options.mcast_all6, entry::MCAST_ALL6)
            | bit(!self.options.joined.is_empty(), entry::JOINED)
    }

    /// Returns the socket as candidate of the list of its address.
    pub(super) fn entry(&self, socket: SocketId) -> Entry {
        Entry {
            rank: self.rank,
            socket,
            remote6: if self.family == Family::V6 { self.remote6 } else { 0 },
            remote4: self.remote4,
            device: self.device,
            group: self.group,
            remote_port: self.remote_port,
            flags: self.flags(),
        }
    }

    /// Returns whether the socket is found under the stand-in address.
    pub(super) fn has_stand_in(&self) -> bool {
        self.port != 0 && self.family == Family::V6 && self.local4 == STAND_IN && !self.is_mapped()
    }

    /// Returns the socket as candidate under the stand-in address.
    pub(super) fn stand_in_entry(&self, socket: SocketId) -> Entry {
        let takes = if self.options.v6only { 0 } else { entry::TAKES_V4 };
        Entry {
            rank: self.port_rank,
            flags: self.flags() & !entry::TAKES_V6 | takes,
            ..self.entry(socket)
        }
    }
}

/// Writes an address as lists and group keys have it: 0 for all wildcards.
pub(super) const fn listed(address: u128) -> u128 {
    if address == MAPPED { 0 } else { address }
}

/// Returns whether two sockets of one port may meet: their local addresses overlap, equal or one a
/// wildcard that covers the other.
pub(super) fn addresses_overlap(a: &Sock, b: &Sock) -> bool {
    let equal = match (a.family, b.family) {
        (Family::V6, Family::V6) => a.local6 == b.local6,
        _ => !a.options.v6only && !b.options.v6only && a.local4 == b.local4,
    };
    equal || covers(a, b) || covers(b, a)
}

fn covers(wild: &Sock, other: &Sock) -> bool {
    let other_is_v4 = other.family == Family::V4 || other.is_mapped();
    match wild.family {
        Family::V4 => wild.local4 == 0 && !other.options.v6only,
        Family::V6 if wild.is_mapped() => wild.local4 == 0 && !other.options.v6only && other_is_v4,
        Family::V6 => wild.local6 == 0 && !(wild.options.v6only && other_is_v4),
    }
}
