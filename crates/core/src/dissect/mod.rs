//! Dissector: from the bytes of a frame to the key of its flow.

use crate::Bytes;

/// Kind of the addresses in a [`FlowKey`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum AddrKind {
    /// No addresses: neither IP nor TIPC.
    #[default]
    None = 0,
    /// IPv4: the first four bytes of each address.
    V4 = 4,
    /// IPv6.
    V6 = 6,
    /// TIPC: the first four bytes of the source.
    Tipc = 1,
}

/// The fields that identify a flow, as they stand in the packet (source and destination not
/// sorted). Fields that the packet does not have, or that the mode does not use, are 0.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct FlowKey {
    /// Source address, network order, left-aligned.
    pub src: [u8; 16],
    /// Destination address, network order, left-aligned.
    pub dst: [u8; 16],
    /// Source port, or the high half of an IPsec SPI.
    pub src_port: u16,
    /// Destination port, or the low half of an IPsec SPI.
    pub dst_port: u16,
    /// GRE key or PPTP call id.
    pub key_id: u32,
    /// IPv6 flow label (20 bits).
    pub flow_label: u32,
    /// Tag control information of the VLAN tag that takes part in the hash.
    pub vlan_tci: u16,
    /// Its tag protocol (0x8100, 0x88a8), 0 if there is no tag.
    pub vlan_tpid: u16,
    /// Ethertype behind that tag.
    pub vlan_inner_type: u16,
    /// Ethertype of the innermost network layer reached.
    pub ethertype: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Which kind of addresses the key has.
    pub addr_kind: AddrKind,
    /// Padding, always 0.
    pub zero: [u8; 2],
}

/// Where the first header of the captured bytes is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// An Ethernet header at offset 0.
    Ethernet,
    /// The network header of this ethertype at this offset (no Ethernet header).
    Network {
        /// Ethertype of the header, such as 0x0800.
        ethertype: u16,
        /// Where it starts.
        offset: u16,
    },
}

/// What to read of a frame.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// The flow keys that Linux uses for its software hash.
    #[default]
    Kernel,
    /// The innermost readable flow.
    Inner,
}

/// What was read of a frame.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Dissected {
    /// The key of the flow.
    pub key: FlowKey,
}

/// Why a frame could not be dissected to its end. Small and `Copy`: eBPF returns and counts it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DissectError {
    /// The frame ends inside the header that starts at this byte of the frame.
    Truncated(u16),
}

/// Reads the flow of a frame into `out`.
///
/// # Errors
/// The reason and position of the stop; what was read before it stays in `out`, as in Linux.
#[inline(always)]
pub fn dissect<B: Bytes + ?Sized>(
    frame: &B,
    start: Start,
    mode: Mode,
    out: &mut Dissected,
) -> Result<(), DissectError> {
    let _ = (frame, start, mode, out);
    Err(DissectError::Truncated(0))
}
