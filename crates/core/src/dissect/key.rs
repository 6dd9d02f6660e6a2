//! The key of a flow, its direction-free form and the bytes that are hashed.
//!
//! Always true: two packets are in one flow of the kernel if and only if their keys, read in
//! kernel mode, have equal [`canonical`](FlowKey::canonical) forms.
//! Elsewhere: how a key is read ([`super::dissect`]); hash functions ([`crate::hash`]).
//! Source: the flow keys of Linux 6.18, of which the layout of the hashed bytes is part.

/// Kind of the addresses in a [`FlowKey`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum AddrKind {
    /// No addresses: neither IP nor TIPC.
    #[default]
    None = 0,
    /// TIPC: the first four bytes of the source.
    Tipc = 1,
    /// IPv4: the first four bytes of each address.
    V4 = 4,
    /// IPv6.
    V6 = 6,
}

/// The fields that identify a flow, as they stand in the packet (source and destination not
/// sorted). Fields that the packet does not have, or that the mode does not use, are 0.
///
/// 64 bytes without padding, aligned to 8.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, align(8))]
pub struct FlowKey {
    /// Source address, network order, left-aligned.
    pub src: [u8; 16],
    /// Destination address, network order, left-aligned.
    pub dst: [u8; 16],
    /// Source port, or the high half of an IPsec SPI.
    pub src_port: u16,
    /// Destination port, or the low half of an IPsec SPI.
    pub dst_port: u16,
    /// GRE key or PPTP call id; in inner mode a session that cannot be looked into.
    pub key_id: u32,
    /// IPv6 flow label (20 bits).
    pub flow_label: u32,
    /// Identifier (low 12 bits) and priority (high 3 bits) of the VLAN tag in the key. The
    /// drop-eligible bit is not part of it.
    pub vlan_tci: u16,
    /// Its tag protocol (0x8100, 0x88a8), 0 if there is no tag.
    pub vlan_tpid: u16,
    /// Ethertype behind that tag.
    pub vlan_inner_type: u16,
    /// Ethertype of the innermost network layer reached.
    pub ethertype: u16,
    /// IP protocol number, behind IPv6 extension headers.
    pub protocol: u8,
    /// Which kind of addresses the key has.
    pub addr_kind: AddrKind,
    /// Always 0.
    pub zero: [u8; 2],
    /// Bytes of an outer header that Linux hashes along with inner addresses.
    ///
    /// Linux writes the addresses of each header over those before and hashes four bytes more than
    /// the last ones take. Behind an IPv6 header these are bytes 8 to 11 of its source for an
    /// inner IPv4 packet; for TIPC they are the bytes after its own four. 0 in inner mode.
    pub residue: u32,
    /// Always 0.
    pub zero_end: u32,
}

const _: () = assert!(size_of::<FlowKey>() == 64);

/// Most bytes that [`FlowKey::kernel_bytes`] writes.
pub const KERNEL_BYTES: usize = 72;

impl FlowKey {
    /// The key with nothing in it.
    pub const EMPTY: Self = Self {
        src: [0; 16],
        dst: [0; 16],
        src_port: 0,
        dst_port: 0,
        key_id: 0,
        flow_label: 0,
        vlan_tci: 0,
        vlan_tpid: 0,
        vlan_inner_type: 0,
        ethertype: 0,
        protocol: 0,
        addr_kind: AddrKind::None,
        zero: [0; 2],
        residue: 0,
        zero_end: 0,
    };

    /// Returns whether Linux marks the hash of this key as a layer-4 hash: there are ports, or an
    /// SPI in their place, that are not both 0, or there is a flow label.
    #[inline]
    pub const fn is_l4(&self) -> bool {
        self.src_port != 0 || self.dst_port != 0 || self.flow_label != 0
    }

    /// Returns the ports as one number, the source in the high half; the SPI of ESP and AH.
    #[inline]
    pub const fn ports(&self) -> u32 {
        (self.src_port as u32) << 16 | self.dst_port as u32
    }

    /// Returns the key with the two addresses in order and, apart from that, the two ports in
    /// order: both directions of a flow have the same.
    ///
    /// As in Linux the sorts do not know of each other, so `A:1 -> B:2` and `A:2 -> B:1` become
    /// one. IPv4 addresses and ports compare as little-endian numbers, IPv6 addresses bytewise;
    /// TIPC and keys without addresses stay as they are.
    #[inline]
    pub fn canonical(&self) -> Self {
        let mut key = *self;
        let swap = match key.addr_kind {
            AddrKind::V4 => v4_word(&key.dst) < v4_word(&key.src),
            AddrKind::V6 => u128::from_be_bytes(key.dst) < u128::from_be_bytes(key.src),
            AddrKind::None | AddrKind::Tipc => return key,
        };
        if swap {
            core::mem::swap(&mut key.src, &mut key.dst);
        }
        if key.dst_port.swap_bytes() < key.src_port.swap_bytes() {
            core::mem::swap(&mut key.src_port, &mut key.dst_port);
        }
        key
    }

    /// Returns the key of the packets in the other direction.
    #[inline]
    pub fn reversed(&self) -> Self {
        let mut key = *self;
        core::mem::swap(&mut key.src, &mut key.dst);
        core::mem::swap(&mut key.src_port, &mut key.dst_port);
        key
    }

    /// Writes the bytes that Linux hashes for this key, and returns how many.
    ///
    /// Call it on the [`canonical`](Self::canonical) form of a key that was read in kernel mode.
    /// The bytes are those of a little-endian machine: ethertype and protocol, flow label, outer
    /// tag, inner tag (always 0), key id, ports, ICMP (always 0), then the addresses in use and
    /// the four bytes behind them (see [`residue`](Self::residue)).
    pub fn kernel_bytes(&self, out: &mut [u8; KERNEL_BYTES]) -> usize {
        *out = [0; KERNEL_BYTES];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(0, &self.ethertype.to_be_bytes());
        put(2, &[self.protocol]);
        put(4, &self.flow_label.to_le_bytes());
        if self.vlan_tpid != 0 {
            put(8, &self.vlan_tci.to_le_bytes());
            put(10, &self.vlan_tpid.to_be_bytes());
            put(12, &self.vlan_inner_type.to_be_bytes());
        }
        put(24, &self.key_id.to_be_bytes());
        put(28, &self.src_port.to_be_bytes());
        put(30, &self.dst_port.to_be_bytes());
        match self.addr_kind {
            AddrKind::None => 40,
            AddrKind::Tipc => {
                put(36, &self.src[..4]);
                put(40, &self.residue.to_be_bytes());
                44
            }
            AddrKind::V4 => {
                put(36, &self.src[..4]);
                put(40, &self.dst[..4]);
                put(44, &self.residue.to_be_bytes());
                48
            }
            AddrKind::V6 => {
                put(36, &self.src);
                put(52, &self.dst);
                72
            }
        }
    }
}

/// Returns an IPv4 address as Linux compares it on a little-endian machine.
#[inline(always)]
fn v4_word(address: &[u8; 16]) -> u32 {
    let [a, b, c, d, ..] = *address;
    u32::from_le_bytes([a, b, c, d])
}
