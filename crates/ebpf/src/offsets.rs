//! Where the running kernel keeps what the programs read of its structures, in bytes from the
//! start of each. The loader takes the places from the kernel's BTF.

/// Places in `struct sock`, and where said in others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Offsets {
    /// `skc_family`, 16 bits.
    pub family: u32,
    /// `skc_state`, 8 bits.
    pub state: u32,
    /// `skc_daddr`: address of the peer, IPv4.
    pub peer_v4: u32,
    /// `skc_rcv_saddr`: own address, IPv4.
    pub own_v4: u32,
    /// `skc_dport`: port of the peer, network order.
    pub peer_port: u32,
    /// `skc_num`: own port, host order.
    pub own_port: u32,
    /// `skc_v6_daddr`: address of the peer, IPv6.
    pub peer_v6: u32,
    /// `skc_v6_rcv_saddr`: own address, IPv6.
    pub own_v6: u32,
    /// `sk_protocol`, 16 bits.
    pub protocol: u32,
    /// `skc_net`: pointer to the network namespace.
    pub namespace: u32,
    /// `ns.inum` of `struct net`, 32 bits.
    pub namespace_number: u32,
    /// `skc_bound_dev_if`: number of the device that the socket is bound to, 32 bits.
    pub bound_device: u32,
    /// Byte with the bit `skc_ipv6only`.
    pub v6_only: u32,
    /// That bit in its byte, as a mask.
    pub v6_only_mask: u32,
    /// `sk_backlog.rmem_alloc`: memory in use by the receive queue, 32 bits.
    pub queued_bytes: u32,
    /// `sk_rcvbuf`: most of that, 32 bits.
    pub buffer_bytes: u32,
    /// `sk_reuseport_cb`: pointer to the group of sockets that share the port.
    pub group: u32,
    /// `num_socks` of `struct sock_reuseport`, 16 bits.
    pub group_size: u32,
    /// `truesize` of `struct sk_buff`, 32 bits.
    pub true_size: u32,
    /// `protocol` of `struct sk_buff`: the ethertype, network order, 16 bits.
    pub ethertype: u32,
}

impl Offsets {
    /// Number of words.
    pub const WORDS: usize = 20;

    /// Returns the places as they stand in the global.
    pub const fn to_words(self) -> [u32; Self::WORDS] {
        [
            self.family,
            self.state,
            self.peer_v4,
            self.own_v4,
            self.peer_port,
            self.own_port,
            self.peer_v6,
            self.own_v6,
            self.protocol,
            self.namespace,
            self.namespace_number,
            self.bound_device,
            self.v6_only,
            self.v6_only_mask,
            self.queued_bytes,
            self.buffer_bytes,
            self.group,
            self.group_size,
            self.true_size,
            self.ethertype,
        ]
    }
}

/// Places of the fields in [`Offsets::to_words`].
pub mod place {
    /// See [`Offsets`](super::Offsets).
    pub const FAMILY: usize = 0;
    /// See [`Offsets`](super::Offsets).
    pub const STATE: usize = 1;
    /// See [`Offsets`](super::Offsets).
    pub const PEER_V4: usize = 2;
    /// See [`Offsets`](super::Offsets).
    pub const OWN_V4: usize = 3;
    /// See [`Offsets`](super::Offsets).
    pub const PEER_PORT: usize = 4;
    /// See [`Offsets`](super::Offsets).
    pub const OWN_PORT: usize = 5;
    /// See [`Offsets`](super::Offsets).
    pub const PEER_V6: usize = 6;
    /// See [`Offsets`](super::Offsets).
    pub const OWN_V6: usize = 7;
    /// See [`Offsets`](super::Offsets).
    pub const PROTOCOL: usize = 8;
    /// See [`Offsets`](super::Offsets).
    pub const NAMESPACE: usize = 9;
    /// See [`Offsets`](super::Offsets).
    pub const NAMESPACE_NUMBER: usize = 10;
    /// See [`Offsets`](super::Offsets).
    pub const BOUND_DEVICE: usize = 11;
    /// See [`Offsets`](super::Offsets).
    pub const V6_ONLY: usize = 12;
    /// See [`Offsets`](super::Offsets).
    pub const V6_ONLY_MASK: usize = 13;
    /// See [`Offsets`](super::Offsets).
    pub const QUEUED_BYTES: usize = 14;
    /// See [`Offsets`](super::Offsets).
    pub const BUFFER_BYTES: usize = 15;
    /// See [`Offsets`](super::Offsets).
    pub const GROUP: usize = 16;
    /// See [`Offsets`](super::Offsets).
    pub const GROUP_SIZE: usize = 17;
    /// See [`Offsets`](super::Offsets).
    pub const TRUE_SIZE: usize = 18;
    /// See [`Offsets`](super::Offsets).
    pub const ETHERTYPE: usize = 19;
}
