//! Options of a socket.

use std::net::IpAddr;

use rxsteer_core::CpuId;

use crate::{DeviceId, Family, SocketError};

/// The user that owns a socket; reuseport groups are of one owner.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Owner(pub u32);

/// Whose datagrams a member of a multicast group takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SourceFilter {
    /// From all sources but these.
    Except(Vec<IpAddr>),
    /// From these sources only.
    Only(Vec<IpAddr>),
}

impl SourceFilter {
    /// Takes datagrams from every source.
    pub const ANY: Self = Self::Except(Vec::new());

    /// Returns whether datagrams from this source are taken.
    pub fn takes(&self, source: IpAddr) -> bool {
        match self {
            Self::Except(sources) => !sources.contains(&source),
            Self::Only(sources) => sources.contains(&source),
        }
    }
}

/// An option of a socket and its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SocketOption {
    /// `SO_BINDTODEVICE`: only packets that come in on this device; `None`: on any.
    Device(Option<DeviceId>),
    /// `SO_REUSEADDR`: share the address with others that say so too.
    ReuseAddr(bool),
    /// `SO_REUSEPORT`: share the address, and its packets by hash, with others of the same owner.
    ReusePort(bool),
    /// `SO_INCOMING_CPU`: prefer packets processed on this CPU; `None`: no preference.
    IncomingCpu(Option<CpuId>),
    /// `IPV6_V6ONLY`, before bind: no IPv4 packets.
    V6Only(bool),
    /// `IP_MULTICAST_ALL` and `IPV6_MULTICAST_ALL`: take groups that others of this host joined.
    MulticastAll(bool),
    /// `IP_ADD_MEMBERSHIP` and kin: take this group on this device; again: a new source filter.
    Join(IpAddr, DeviceId, SourceFilter),
    /// `IP_DROP_MEMBERSHIP` and kin.
    Leave(IpAddr, DeviceId),
    /// `IP_LOCAL_PORT_RANGE`: lowest and highest automatic port of this socket.
    PortRange(u16, u16),
    /// `UDP_ENCAP`: the payload is another protocol's; look-ups say so of the socket they find.
    Encapsulation(bool),
}

/// The options that are only remembered until something asks for them.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) v6only: bool,
    pub(crate) mcast_all4: bool,
    pub(crate) mcast_all6: bool,
    pub(crate) joined: Vec<(IpAddr, DeviceId, SourceFilter)>,
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) encapsulation: bool,
}

impl Remembered {
    pub(crate) const fn new(family: Family) -> Self {
        Self {
            v6only: false,
            // Linux leaves IPv4 groups that others joined out of IPv6 sockets.
            mcast_all4: matches!(family, Family::V4),
            mcast_all6: true,
            joined: Vec::new(),
            ports: None,
            encapsulation: false,
        }
    }

    /// Sets one of these options of a socket; others are passed over.
    pub(crate) fn set(
        &mut self,
        option: SocketOption,
        family: Family,
        bound: bool,
    ) -> Result<(), SocketError> {
        match option {
            SocketOption::V6Only(on) => {
                if family == Family::V4 || bound {
                    return Err(SocketError::Invalid);
                }
                self.v6only = on;
            }
            SocketOption::MulticastAll(on) => (self.mcast_all4, self.mcast_all6) = (on, on),
            SocketOption::Join(group, device, filter) => {
                if !group.is_multicast() {
                    return Err(SocketError::Invalid);
                }
                self.leave(group, device);
                self.joined.push((group, device, filter));
            }
            SocketOption::Leave(group, device) => {
                if !self.leave(group, device) {
                    return Err(SocketError::AddressNotAvailable);
                }
            }
            SocketOption::PortRange(low, high) => {
                if low == 0 || low > high {
                    return Err(SocketError::Invalid);
                }
                self.ports = Some((low, high));
            }
            SocketOption::Encapsulation(on) => self.encapsulation = on,
            SocketOption::Device(_)
            | SocketOption::ReuseAddr(_)
            | SocketOption::ReusePort(_)
            | SocketOption::IncomingCpu(_) => {}
        }
        Ok(())
    }

    fn leave(&mut self, group: IpAddr, device: DeviceId) -> bool {
        let before = self.joined.len();
        self.joined.retain(|(g, d, _)| (*g, *d) != (group, device));
        self.joined.len() < before
    }
}
