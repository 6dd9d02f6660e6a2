//! From the bytes of a captured packet to all that a replay wants to know of it.

use rxsteer_core::FlowKey;
use rxsteer_core::dissect::{
    AddrKind, DissectError, Dissected, Endpoints, Fragment, Mode, Options, Tunnel, dissect,
};
use rxsteer_core::steer::Class;

use crate::capture::{Direction, LinkError, Packet};

/// What identifies a flow for a reader: both ends, whatever Linux puts into the hash.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Ident {
    pub(super) src: [u8; 16],
    pub(super) dst: [u8; 16],
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) kind: u8,
    pub(super) protocol: u8,
    /// Whether it is the flow of the fragments between two addresses.
    pub(super) fragment: bool,
}

impl Ident {
    pub(super) fn words(&self) -> [u64; 5] {
        let half = |bytes: &[u8; 16], at: usize| {
            u64::from_le_bytes(*bytes[at..].first_chunk().expect("16 bytes have two halves"))
        };
        let rest = u64::from(self.src_port) << 32
            | u64::from(self.dst_port) << 48
            | u64::from(self.kind) << 16
            | u64::from(self.protocol) << 8
            | u64::from(self.fragment);
        [half(&self.src, 0), half(&self.src, 8), half(&self.dst, 0), half(&self.dst, 8), rest]
    }

    pub(super) fn addr_kind(&self) -> AddrKind {
        match self.kind {
            4 => AddrKind::V4,
            6 => AddrKind::V6,
            1 => AddrKind::Tipc,
            _ => AddrKind::None,
        }
    }
}

impl std::fmt::Display for Ident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::net::IpAddr;
        let address = |bytes: &[u8; 16]| match self.kind {
            4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]).to_string(),
            6 => format!("[{}]", IpAddr::from(*bytes)),
            _ => "?".into(),
        };
        let protocol = match self.protocol {
            6 => "tcp".into(),
            17 => "udp".into(),
            136 => "udp-lite".into(),
            132 => "sctp".into(),
            50 => "esp".into(),
            51 => "ah".into(),
            47 => "gre".into(),
            1 => "icmp".into(),
            58 => "icmpv6".into(),
            other => format!("protocol {other}"),
        };
        if self.kind == 0 || self.kind == 1 {
            return write!(f, "ethertype {:#06x}", self.dst_port);
        }
        let (src, dst) = (address(&self.src), address(&self.dst));
        if self.fragment {
            return write!(f, "{protocol} {src} > {dst} (fragments)");
        }
        match self.protocol {
            50 | 51 => {
                let spi = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
                write!(f, "{protocol} {src} > {dst} SPI {spi:#x}")
            }
            6 | 17 | 136 | 132 | 33 => {
                write!(f, "{protocol} {src}:{} > {dst}:{}", self.src_port, self.dst_port)
            }
            _ => write!(f, "{protocol} {src} > {dst}"),
        }
    }
}

/// A captured packet, read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(super) ts_ns: u64,
    pub(super) number: u64,
    pub(super) len: u32,
    pub(super) direction: Direction,
    pub(super) queue: Option<u16>,
    /// The key that is hashed.
    pub(super) key: FlowKey,
    pub(super) has_key: bool,
    pub(super) is_random: bool,
    /// Outermost IP header: what RSS hashes, and what tells the direction.
    pub(super) outer: Endpoints,
    pub(super) ident: Ident,
    pub(crate) class: Class,
    pub(super) tcp_flags: u8,
    pub(super) data: bool,
    /// Bytes behind the transport header.
    pub(super) payload_len: u32,
    /// Whether the consumer of the packet can be known: TCP or UDP, with ports.
    pub(super) has_socket: bool,
    pub(super) fragment: Fragment,
    pub(super) fragment_id: u32,
    pub(super) is_fragment: bool,
    pub(super) label: u32,
    /// Whether the label took the place of the ports.
    pub(super) label_hides_ports: bool,
    /// Whether the payload is encrypted, so that it cannot be split further.
    pub(super) opaque: bool,
    pub(super) error: Option<DissectError>,
}

/// Destination ports of tunnels over UDP; the dissector has the last word.
const TUNNEL_PORTS: [u16; 16] = [
    4789, 8472, 4790, 6081, 2152, 1701, 51_820, 4500, 4754, 6635, 6080, 3544, 4341, 5247, 5072,
    3386,
];

const UDP: u8 = 17;
const UDP_LITE: u8 = 136;
const TCP: u8 = 6;

/// Reads frames with the same options, with room for the results.
#[derive(Debug)]
pub(crate) struct Reader {
    options: Options,
    inner: Options,
    first: Dissected,
    second: Dissected,
}

impl Reader {
    pub(crate) fn new(options: Options) -> Self {
        let inner = Options { mode: Mode::Inner, ignore_flow_label: true, ..options };
        Self { options, inner, first: Dissected::default(), second: Dissected::default() }
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// Its link type has no network header that is known.
    #[inline]
    pub(crate) fn read(&mut self, packet: &Packet<'_>, number: u64) -> Result<Frame, LinkError> {
        let (start, _) = packet.link.start(packet.data)?;
        let error = dissect(packet.data, start, &self.options, &mut self.first).err();
        let first = &self.first;
        let kernel = self.options.mode == Mode::Kernel;
        let udp = matches!(first.key.protocol, UDP | UDP_LITE) && first.has_ports();
        let tunnel_port = udp
            && (TUNNEL_PORTS.contains(&first.key.dst_port)
                || TUNNEL_PORTS.contains(&first.key.src_port));
        let label_hides_ports = kernel && first.key.flow_label != 0 && !first.has_ports();
        let mut seen = first;
        let mut tunnel = false;
        if kernel && (label_hides_ports || tunnel_port) {
            let _ = dissect(packet.data, start, &self.inner, &mut self.second);
            tunnel = tunnel_port && self.second.tunnel != Tunnel::None;
            if label_hides_ports || tunnel {
                seen = &self.second;
            }
        }
        let key = &seen.key;
        let protocol = if label_hides_ports { key.protocol } else { first.key.protocol };
        let class = Class::new(protocol, seen.tcp_flags, tunnel);
        let is_fragment = seen.is_fragment();
        let without_ip = matches!(key.addr_kind, AddrKind::None | AddrKind::Tipc);
        let ident = Ident {
            src: key.src,
            dst: key.dst,
            src_port: key.src_port,
            dst_port: if without_ip { key.ethertype } else { key.dst_port },
            kind: key.addr_kind as u8,
            protocol: key.protocol,
            fragment: is_fragment,
        };
        let opaque = seen.tunnel.is_opaque();
        let payload_len = payload(packet, seen);
        Ok(Frame {
            ts_ns: packet.ts_ns,
            number,
            len: packet.orig_len,
            direction: packet.direction,
            queue: packet.queue.map(|q| q.0),
            key: first.key,
            has_key: first.has_key(),
            is_random: first.is_random(),
            outer: first.outer(),
            ident,
            class,
            tcp_flags: seen.tcp_flags,
            data: payload_len > 0,
            payload_len,
            has_socket: matches!(key.protocol, TCP | UDP | UDP_LITE) && seen.has_ports() && !opaque,
            fragment: seen.fragment,
            fragment_id: seen.fragment_id,
            is_fragment,
            label: seen.label,
            label_hides_ports,
            opaque,
            error,
        })
    }
}

/// Returns the bytes behind the transport header, by the length that the IP header states.
///
/// The length of the frame would count the padding of short Ethernet frames.
#[inline]
fn payload(packet: &Packet<'_>, seen: &Dissected) -> u32 {
    let network = usize::from(seen.network_offset);
    let at = |offset: usize| {
        let bytes = packet.data.get(network + offset..)?.first_chunk::<2>()?;
        Some(u32::from(u16::from_be_bytes(*bytes)))
    };
    let stated = match seen.key.addr_kind {
        AddrKind::V4 => at(2),
        AddrKind::V6 => at(4).map(|len| if len == 0 { 0 } else { len + 40 }),
        _ => None,
    };
    let end = match stated {
        Some(len) if len > 0 => network as u32 + len,
        _ => packet.orig_len,
    };
    end.saturating_sub(u32::from(seen.payload_offset))
}
