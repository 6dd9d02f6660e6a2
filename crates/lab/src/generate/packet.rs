//! Whole frames from a list of layers, with lengths and checksums filled in.
//!
//! A frame is written from its payload outwards, so that each header knows what it carries. The next
//! protocol of a header is derived from the layer behind it.
//!
//! Always true: IPv4, UDP, TCP and ICMP checksums are right, except where a layer asks for none;
//! a payload longer than [`MAX_PAYLOAD`] is cut to it, so that no length field overflows.
//! Elsewhere: who sends what and when ([`super::scenario`]).
//! Source: header layouts of IP, UDP and TCP by the `etherparse` crate; RFC 2516 (PPPoE), RFC 2784
//! and 2890 (GRE), RFC 3032 (MPLS), RFC 4302 and 4303 (AH, ESP), RFC 7348 (VXLAN), RFC 8926
//! (Geneve), 3GPP TS 29.281 (GTP-U).

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{
    EtherType, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header,
    SingleVlanHeader, TcpHeader, UdpHeader, VlanId,
};

/// Most bytes of payload that a frame gets; the rest is cut.
pub const MAX_PAYLOAD: usize = 60_000;

/// Headroom for headers; more headers than fit move the bytes once.
const HEADROOM: usize = 256;

/// Next protocol of an IP header that carries bare payload: "for experimentation", RFC 3692.
const PROTO_EXPERIMENT: u8 = 253;

/// Ethertype of a frame that carries bare payload: "local experimental 1", IEEE 802.
const ETHERTYPE_EXPERIMENT: u16 = 0x88b5;

/// An IPv4 header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct V4 {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Identification, the same in all fragments of a datagram.
    pub id: u16,
    /// Where a fragment's bytes start in the datagram, in bytes (a multiple of 8), and whether
    /// more fragments follow.
    pub fragment: Option<(u16, bool)>,
    /// Protocol number, if not that of the next layer.
    pub protocol: Option<u8>,
}

impl V4 {
    /// A header with no fragment and identification 0.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self { src, dst, id: 0, fragment: None, protocol: None }
    }
}

/// An IPv6 header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct V6 {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Next header, if not that of the next layer.
    pub protocol: Option<u8>,
}

impl V6 {
    /// A header with flow label 0.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        Self { src, dst, flow_label: 0, protocol: None }
    }
}

/// TCP flags that the generator sends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpFlags {
    /// Synchronize sequence numbers.
    pub syn: bool,
    /// The acknowledgment number counts.
    pub ack: bool,
    /// Deliver at once.
    pub psh: bool,
    /// No more data from the sender.
    pub fin: bool,
    /// Reset the connection.
    pub rst: bool,
}

/// A TCP header without options.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tcp {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Flags.
    pub flags: TcpFlags,
}

/// One header of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layer {
    /// Ethernet II, from the first to the second of two documentation MAC addresses
    /// (RFC 9542), or back.
    Ethernet {
        /// From the server to the client.
        back: bool,
    },
    /// A VLAN tag.
    Vlan {
        /// Tag protocol: 0x8100 (customer) or 0x88a8 (service).
        tpid: u16,
        /// VLAN id, 12 bits.
        vid: u16,
    },
    /// A PPPoE session header with a two-byte PPP protocol field.
    Pppoe {
        /// Session id.
        session: u16,
    },
    /// One MPLS label, bottom of stack unless another label follows.
    Mpls {
        /// Label, 20 bits.
        label: u32,
    },
    /// IPv4.
    V4(V4),
    /// IPv6.
    V6(V6),
    /// IPv6 hop-by-hop options, 8 bytes of padding.
    HopByHop,
    /// IPv6 destination options, 8 bytes of padding.
    DestinationOptions,
    /// IPv6 fragment header.
    Fragment6 {
        /// Where the bytes start in the datagram, a multiple of 8.
        offset: u16,
        /// More fragments follow.
        more: bool,
        /// Identification.
        id: u32,
        /// Next header of the datagram.
        protocol: u8,
    },
    /// GRE version 0.
    Gre {
        /// Key field, if present.
        key: Option<u32>,
    },
    /// UDP.
    Udp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
        /// Write the checksum; over IPv4 a checksum of 0 means none.
        checksum: bool,
    },
    /// TCP.
    Tcp(Tcp),
    /// ICMP echo request.
    Echo {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// ICMPv6 echo request.
    Echo6 {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// VXLAN, behind UDP.
    Vxlan {
        /// Network identifier, 24 bits.
        vni: u32,
    },
    /// Geneve without options, behind UDP.
    Geneve {
        /// Network identifier, 24 bits.
        vni: u32,
    },
    /// GTP-U with an IP packet inside, behind UDP.
    Gtp {
        /// Tunnel endpoint id.
        teid: u32,
    },
    /// ESP; what follows stands for encrypted bytes.
    Esp {
        /// Security parameters index.
        spi: u32,
        /// Sequence number.
        seq: u32,
    },
    /// AH with a 96-bit check value of zeros.
    Ah {
        /// Security parameters index.
        spi: u32,
        /// Sequence number.
        seq: u32,
    },
    /// A UDP payload that starts as a WireGuard data message (type 4).
    WireGuard {
        /// Receiver index.
        receiver: u32,
        /// Message counter.
        counter: u64,
    },
}

/// Appends to `out` (which it clears) the frame of these layers around `payload`.
pub fn build(layers: &[Layer], payload: &[u8], out: &mut Vec<u8>) {
    let payload = payload.get(..MAX_PAYLOAD).unwrap_or(payload);
    let mut frame = Backwards::new(out, payload);
    for (index, layer) in layers.iter().enumerate().rev() {
        let before = layers.get(..index).unwrap_or_default();
        let next = layers.get(index + 1);
        frame.layer(layer, before, next);
    }
    frame.finish();
}

/// Returns the frame of these layers around `payload`.
///
/// # Examples
/// ```
/// use rxsteer_lab::generate::{Layer, V4, packet};
/// let v4 = V4::new([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
/// let frame = packet(
///     &[
///         Layer::Ethernet { back: false },
///         Layer::Vlan { tpid: 0x8100, vid: 7 },
///         Layer::V4(v4),
///         Layer::Udp { src: 40_000, dst: 53, checksum: true },
///     ],
///     b"hello",
/// );
/// assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
/// ```
pub fn packet(layers: &[Layer], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    build(layers, payload, &mut out);
    out
}

/// A buffer that grows towards its front.
struct Backwards<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Backwards<'a> {
    fn new(bytes: &'a mut Vec<u8>, payload: &[u8]) -> Self {
        bytes.clear();
        bytes.resize(HEADROOM, 0);
        bytes.extend_from_slice(payload);
        Self { bytes, start: HEADROOM }
    }

    fn content(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    fn prepend(&mut self, header: &[u8]) {
        if header.len() > self.start {
            let more = HEADROOM + header.len();
            self.bytes.splice(0..0, std::iter::repeat_n(0, more));
            self.start += more;
        }
        self.start -= header.len();
        let place = self.start..self.start + header.len();
        self.bytes[place].copy_from_slice(header);
    }

    fn finish(self) {
        self.bytes.drain(..self.start);
    }

    fn layer(&mut self, layer: &Layer, before: &[Layer], next: Option<&Layer>) {
        match *layer {
            Layer::Ethernet { back } => self.ethernet(back, next),
            Layer::Vlan { tpid: _, vid } => {
                let header = SingleVlanHeader {
                    vlan_id: VlanId::try_new(vid & 0x0fff).expect("12 bits are left"),
                    ether_type: EtherType(ethertype(next)),
                    ..SingleVlanHeader::default()
                };
                self.prepend(&header.to_bytes());
            }
            Layer::Pppoe { session } => {
                let len = (self.content().len() + 2) as u16;
                let ppp: u16 = match next {
                    Some(Layer::V4(_)) => 0x0021,
                    Some(Layer::V6(_)) => 0x0057,
                    Some(Layer::Mpls { .. }) => 0x0281,
                    _ => 0xc021, // LCP
                };
                self.prepend(&ppp.to_be_bytes());
                self.prepend(&len.to_be_bytes());
                self.prepend(&session.to_be_bytes());
                self.prepend(&[0x11, 0]); // version 1, type 1, code 0: session data
            }
            Layer::Mpls { label } => {
                let bottom = !matches!(next, Some(Layer::Mpls { .. }));
                let word = (label & 0x000f_ffff) << 12 | u32::from(bottom) << 8 | 64;
                self.prepend(&word.to_be_bytes());
            }
            Layer::V4(v4) => {
                let mut header = v4_header(&v4, self.content().len(), next);
                header.header_checksum = header.calc_header_checksum();
                self.prepend(&header.to_bytes());
            }
            Layer::V6(v6) => {
                let header = Ipv6Header {
                    flow_label: Ipv6FlowLabel::try_new(v6.flow_label & 0x000f_ffff)
                        .expect("20 bits are left"),
                    payload_length: self.content().len() as u16,
                    next_header: IpNumber(v6.protocol.unwrap_or_else(|| ip_number(next))),
                    hop_limit: 64,
                    source: v6.src.octets(),
                    destination: v6.dst.octets(),
                    ..Ipv6Header::default()
                };
                self.prepend(&header.to_bytes());
            }
            Layer::HopByHop | Layer::DestinationOptions => {
                // Length 0 means 8 bytes; PadN of 4 data bytes (RFC 8200, section 4.2).
                self.prepend(&[ip_number(next), 0, 1, 4, 0, 0, 0, 0]);
            }
            Layer::Fragment6 { offset, more, id, protocol } => {
                self.prepend(&id.to_be_bytes());
                self.prepend(&((offset & 0xfff8) | u16::from(more)).to_be_bytes());
                self.prepend(&[protocol, 0]);
            }
            Layer::Gre { key } => {
                if let Some(key) = key {
                    self.prepend(&key.to_be_bytes());
                }
                let flags: u16 = if key.is_some() { 0x2000 } else { 0 };
                let inner = match next {
                    Some(Layer::Ethernet { .. }) => 0x6558, // transparent Ethernet bridging
                    _ => ethertype(next),
                };
                self.prepend(&inner.to_be_bytes());
                self.prepend(&flags.to_be_bytes());
            }
            Layer::Udp { src, dst, checksum } => self.udp(src, dst, checksum, before),
            Layer::Tcp(tcp) => self.tcp(&tcp, before),
            Layer::Echo { id, seq } => {
                let echo = etherparse::IcmpEchoHeader { id, seq };
                let kind = etherparse::Icmpv4Type::EchoRequest(echo);
                let header = etherparse::Icmpv4Header::with_checksum(kind, self.content());
                self.prepend(&header.to_bytes());
            }
            Layer::Echo6 { id, seq } => self.echo6(id, seq, before),
            Layer::Vxlan { vni } => {
                self.prepend(&(vni << 8).to_be_bytes());
                self.prepend(&[0x08, 0, 0, 0]); // the VNI is valid
            }
            Layer::Geneve { vni } => {
                let inner = match next {
                    Some(Layer::Ethernet { .. }) => 0x6558,
                    _ => ethertype(next),
                };
                self.prepend(&(vni << 8).to_be_bytes());
                self.prepend(&inner.to_be_bytes());
                self.prepend(&[0, 0]); // version 0, no options
            }
            Layer::Gtp { teid } => {
                let len = self.content().len() as u16;
                self.prepend(&teid.to_be_bytes());
                self.prepend(&len.to_be_bytes());
                self.prepend(&[0x30, 0xff]); // version 1, GTP, no options; G-PDU
            }
            Layer::Esp { spi, seq } => {
                self.prepend(&seq.to_be_bytes());
                self.prepend(&spi.to_be_bytes());
            }
            Layer::Ah { spi, seq } => {
                self.prepend(&[0; 12]);
                self.prepend(&seq.to_be_bytes());
                self.prepend(&spi.to_be_bytes());
                // 24 bytes are six words, less two (RFC 4302, section 2.2).
                self.prepend(&[ip_number(next), 4, 0, 0]);
            }
            Layer::WireGuard { receiver, counter } => {
                self.prepend(&counter.to_le_bytes());
                self.prepend(&receiver.to_le_bytes());
                self.prepend(&[4, 0, 0, 0]);
            }
        }
    }

    fn ethernet(&mut self, back: bool, next: Option<&Layer>) {
        let client = [0x00, 0x00, 0x5e, 0x00, 0x53, 0x01];
        let server = [0x00, 0x00, 0x5e, 0x00, 0x53, 0x02];
        let header = Ethernet2Header {
            source: if back { server } else { client },
            destination: if back { client } else { server },
            ether_type: EtherType(ethertype(next)),
        };
        self.prepend(&header.to_bytes());
    }

    fn udp(&mut self, src: u16, dst: u16, checksum: bool, before: &[Layer]) {
        let mut header = UdpHeader {
            source_port: src,
            destination_port: dst,
            length: (self.content().len() + UdpHeader::LEN) as u16,
            checksum: 0,
        };
        let payload = self.content();
        header.checksum = match ip_before(before) {
            Some(Ip::V4(ip)) if checksum => header
                .calc_checksum_ipv4_raw(ip.src.octets(), ip.dst.octets(), payload)
                .expect("the payload is shorter than 64 KiB"),
            Some(Ip::V6(ip)) if checksum => header
                .calc_checksum_ipv6_raw(ip.src.octets(), ip.dst.octets(), payload)
                .expect("the payload is shorter than 64 KiB"),
            _ => 0,
        };
        self.prepend(&header.to_bytes());
    }

    fn tcp(&mut self, tcp: &Tcp, before: &[Layer]) {
        let mut header = TcpHeader::new(tcp.src, tcp.dst, tcp.seq, 64_240);
        header.acknowledgment_number = tcp.ack;
        header.syn = tcp.flags.syn;
        header.ack = tcp.flags.ack;
        header.psh = tcp.flags.psh;
        header.fin = tcp.flags.fin;
        header.rst = tcp.flags.rst;
        let payload = self.content();
        header.checksum = match ip_before(before) {
            Some(Ip::V4(ip)) => header
                .calc_checksum_ipv4_raw(ip.src.octets(), ip.dst.octets(), payload)
                .expect("the payload is shorter than 64 KiB"),
            Some(Ip::V6(ip)) => header
                .calc_checksum_ipv6_raw(ip.src.octets(), ip.dst.octets(), payload)
                .expect("the payload is shorter than 64 KiB"),
            None => 0,
        };
        self.prepend(&header.to_bytes());
    }

    fn echo6(&mut self, id: u16, seq: u16, before: &[Layer]) {
        let (src, dst) = match ip_before(before) {
            Some(Ip::V6(ip)) => (ip.src.octets(), ip.dst.octets()),
            _ => ([0; 16], [0; 16]),
        };
        let echo = etherparse::IcmpEchoHeader { id, seq };
        let header = etherparse::Icmpv6Type::EchoRequest(echo)
            .to_header(src, dst, self.content())
            .expect("the payload is shorter than 64 KiB");
        self.prepend(&header.to_bytes());
    }
}

enum Ip {
    V4(V4),
    V6(V6),
}

/// Returns the IP header nearest before a layer: the one whose addresses its checksum covers.
fn ip_before(before: &[Layer]) -> Option<Ip> {
    before.iter().rev().find_map(|layer| match layer {
        Layer::V4(v4) => Some(Ip::V4(*v4)),
        Layer::V6(v6) => Some(Ip::V6(*v6)),
        _ => None,
    })
}

fn v4_header(v4: &V4, payload_len: usize, next: Option<&Layer>) -> Ipv4Header {
    let (offset, more) = v4.fragment.unwrap_or((0, false));
    Ipv4Header {
        total_len: (payload_len + Ipv4Header::MIN_LEN) as u16,
        identification: v4.id,
        dont_fragment: v4.fragment.is_none(),
        more_fragments: more,
        fragment_offset: IpFragOffset::try_new(offset >> 3).expect("13 bits are left"),
        time_to_live: 64,
        protocol: IpNumber(v4.protocol.unwrap_or_else(|| ip_number(next))),
        source: v4.src.octets(),
        destination: v4.dst.octets(),
        ..Ipv4Header::default()
    }
}

/// Returns the ethertype that announces a layer.
fn ethertype(layer: Option<&Layer>) -> u16 {
    match layer {
        Some(Layer::V4(_)) => 0x0800,
        Some(Layer::V6(_)) => 0x86dd,
        Some(Layer::Vlan { tpid, .. }) => *tpid,
        Some(Layer::Pppoe { .. }) => 0x8864,
        Some(Layer::Mpls { .. }) => 0x8847,
        _ => ETHERTYPE_EXPERIMENT,
    }
}

/// Returns the IP protocol number that announces a layer.
fn ip_number(layer: Option<&Layer>) -> u8 {
    match layer {
        Some(Layer::V4(_)) => 4,
        Some(Layer::V6(_)) => 41,
        Some(Layer::HopByHop) => 0,
        Some(Layer::DestinationOptions) => 60,
        Some(Layer::Fragment6 { .. }) => 44,
        Some(Layer::Gre { .. }) => 47,
        Some(Layer::Udp { .. }) => 17,
        Some(Layer::Tcp(_)) => 6,
        Some(Layer::Echo { .. }) => 1,
        Some(Layer::Echo6 { .. }) => 58,
        Some(Layer::Esp { .. }) => 50,
        Some(Layer::Ah { .. }) => 51,
        Some(Layer::Mpls { .. }) => 137,
        _ => PROTO_EXPERIMENT,
    }
}
