//! Classes of traffic: what a packet is, from its headers alone.

/// What kind of traffic a packet is.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// TCP, except connection requests.
    Tcp,
    /// A TCP segment with SYN and without ACK: answered by cookies in a flood, so it neither uses
    /// nor writes a flow table.
    TcpSyn,
    /// UDP and UDP-Lite.
    Udp,
    /// UDP to a port of a tunnel protocol, or ESP in UDP: a flow by its outer header.
    Tunnel,
    /// All else.
    #[default]
    Other,
}

impl Class {
    /// Number of variants.
    pub const COUNT: usize = 5;

    /// All variants, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] =
        [Self::Tcp, Self::TcpSyn, Self::Udp, Self::Tunnel, Self::Other];

    /// Returns the class of an IP protocol number, of the TCP flags (byte 13 of the header) and of
    /// whether the packet is known as a UDP tunnel's.
    #[inline(always)]
    pub const fn new(protocol: u8, tcp_flags: u8, tunnel: bool) -> Self {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        match protocol {
            6 if tcp_flags & (SYN | ACK) == SYN => Self::TcpSyn,
            6 => Self::Tcp,
            17 | 136 if tunnel => Self::Tunnel,
            17 | 136 => Self::Udp,
            _ => Self::Other,
        }
    }

    /// Returns the place of the variant's counter.
    pub const fn index(self) -> usize {
        match self {
            Self::Tcp => 0,
            Self::TcpSyn => 1,
            Self::Udp => 2,
            Self::Tunnel => 3,
            Self::Other => 4,
        }
    }

    /// Returns the variant's name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::TcpSyn => "tcp_syn",
            Self::Udp => "udp",
            Self::Tunnel => "tunnel",
            Self::Other => "other",
        }
    }

    /// Returns whether the class has its flows in the table of TCP.
    #[inline(always)]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::TcpSyn)
    }

    /// Returns whether packets of the class may belong to a flow that a socket told of.
    #[inline(always)]
    pub const fn may_be_flow(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp | Self::Tunnel)
    }
}

/// What is known of a local UDP port whose socket is not connected.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum PortRule {
    /// Nothing: a hash that comes back often enough is a flow.
    #[default]
    Learn,
    /// The operator says that flows arrive here (QUIC, media, syslog).
    Flows,
    /// The operator says that requests arrive here (DNS): never looked up, never recorded.
    Requests,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_syn_is_a_connection_request() {
        assert_eq!(Class::new(6, 0x02, false), Class::TcpSyn);
        assert_eq!(Class::new(6, 0xc2, false), Class::TcpSyn); // with ECN bits
        assert_eq!(Class::new(6, 0x12, false), Class::Tcp);
        assert_eq!(Class::new(6, 0x10, false), Class::Tcp);
        assert_eq!(Class::new(17, 0x02, false), Class::Udp);
        assert_eq!(Class::new(17, 0, true), Class::Tunnel);
        assert_eq!(Class::new(6, 0x10, true), Class::Tcp);
        assert_eq!(Class::new(50, 0, true), Class::Other);
        assert!(Class::ALL.iter().enumerate().all(|(n, class)| class.index() == n));
    }
}
