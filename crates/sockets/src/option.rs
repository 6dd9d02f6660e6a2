//! Options of a socket.

use std::net::IpAddr;

use rxsteer_core::CpuId;

use crate::DeviceId;

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
