//! What a look-up looks at of a datagram.

use std::net::IpAddr;

use rxsteer_core::CpuId;

use crate::DeviceId;

/// To whom the IP layer found the datagram to be addressed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Cast {
    /// One host: at most one socket gets it.
    #[default]
    Unicast,
    /// A multicast group: every socket that takes the group gets it.
    Multicast,
    /// A broadcast address of a device, or 255.255.255.255: every socket that fits gets it.
    Broadcast,
}

/// What a look-up looks at of a datagram; addresses and ports as in its headers, so the source is
/// the remote end.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Source address; of the same family as `dst`.
    pub src: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port.
    pub dst_port: u16,
    /// The device it came in on.
    pub device: DeviceId,
    /// The CPU that processes it.
    pub cpu: CpuId,
    /// To whom it is addressed.
    pub cast: Cast,
    /// Whether this host sent it to itself; early demultiplexing leaves such packets out.
    pub from_this_host: bool,
    /// What follows the UDP header, for groups that choose by content; may be empty.
    pub payload: &'a [u8],
}
