//! Whole Ethernet frames, one after the other.
//!
//! For each size there is a template, built by the lab's generator; a packet is a copy of it with
//! another source written in.

use std::net::IpAddr;

use rxsteer_lab::generate::{Layer, Tcp, TcpFlags, V4, V6, packet};
use rxsteer_testbed::Pair;

use super::patch::{Checksum, Places};
use super::{Flow, Flows, Kind, Traffic};
use crate::BenchError;

/// Network identifier of VXLAN packets.
const VNI: u32 = 42;
/// UDP port of VXLAN.
const VXLAN_PORT: u16 = 4789;
const ETHERNET_LEN: usize = 14;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const VXLAN_LEN: usize = 8;

/// Random sources of IPv4: 198.18.0.0 to 198.18.255.255, but for the first.
const V4_ADDRESSES: u32 = (1 << 16) - 1;
/// Random sources of IPv6: the low 31 bits, without those of the receiver.
const V6_ADDRESSES: u32 = (1 << 31) - 1;

/// The two ends of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Link {
    /// Ethernet address of the sender.
    pub(crate) source: [u8; 6],
    /// Ethernet address of the receiver.
    pub(crate) sink: [u8; 6],
}

/// A frame, and where its source is.
#[derive(Clone, Debug)]
struct Template {
    bytes: Vec<u8>,
    inner: Places,
    /// The outer source of a tunnel, whose port depends on the inner flow.
    outer_port: Option<usize>,
}

/// Frames without end.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    /// For each size of the cycle the frames of a packet: one, or two fragments.
    cycle: Vec<Vec<Template>>,
    /// Which of the cycle, and which frame of it, is next.
    next: (usize, usize),
    flows: Flows,
    flow: Flow,
    first: IpAddr,
    id: u16,
}

impl Frames {
    /// Prepares the frames of this traffic.
    ///
    /// # Errors
    /// [`BenchError::Options`] for a kind that this IP version does not have here.
    pub(crate) fn new(traffic: &Traffic, link: &Link) -> Result<Self, BenchError> {
        let (first, addresses): (IpAddr, _) = match traffic.to {
            IpAddr::V4(_) => (Pair::SOURCE_V4.into(), V4_ADDRESSES),
            IpAddr::V6(_) => (Pair::SOURCE_V6.into(), V6_ADDRESSES),
        };
        let cycle: Result<Vec<_>, _> = traffic
            .sizes
            .cycle()
            .iter()
            .map(|size| templates(traffic, first, usize::from(*size), link))
            .collect();
        let flows = Flows::new(traffic.pattern, traffic.flows, addresses, traffic.seed);
        let flow = Flow::of_set(0);
        Ok(Self { cycle: cycle?, next: (0, 0), flows, flow, first, id: 0 })
    }

    /// Returns the bytes of the longest frame.
    pub(crate) fn longest(&self) -> usize {
        self.cycle.iter().flatten().map(|template| template.bytes.len()).max().unwrap_or(0)
    }

    /// Returns where the source is in the first frame.
    pub(crate) fn places(&self) -> Places {
        self.cycle[0][0].inner
    }

    /// Writes the next frame into a buffer that holds the longest, and returns its length.
    pub(crate) fn write(&mut self, slot: &mut [u8]) -> usize {
        let (size, part) = self.next;
        let parts = &self.cycle[size];
        if part == 0 {
            self.flow = self.flows.next();
            self.id = self.id.wrapping_add(1);
        }
        let template = &parts[part];
        self.next = if part + 1 < parts.len() {
            (size, part + 1)
        } else {
            ((size + 1) % self.cycle.len(), 0)
        };
        let frame = &mut slot[..template.bytes.len()];
        frame.copy_from_slice(&template.bytes);
        let address = low_bytes(self.first, self.flow.address);
        template.inner.write(frame, address, self.flow.port);
        template.inner.write_id(frame, self.id);
        if let Some(place) = template.outer_port {
            // RFC 7348, section 5: from the dynamic ports, by a hash of the inner flow.
            let port = 49_152 + (self.flow.port ^ self.flow.address as u16) % 16_384;
            frame[place..place + 2].copy_from_slice(&port.to_be_bytes());
        }
        template.bytes.len()
    }
}

/// Returns the low four bytes of the address that is `offset` after the first.
fn low_bytes(first: IpAddr, offset: u32) -> [u8; 4] {
    let low = match first {
        IpAddr::V4(first) => first.to_bits(),
        IpAddr::V6(first) => first.to_bits() as u32,
    };
    low.wrapping_add(offset).to_be_bytes()
}

fn templates(
    traffic: &Traffic,
    from: IpAddr,
    size: usize,
    link: &Link,
) -> Result<Vec<Template>, BenchError> {
    let payload = vec![0; size];
    let port = traffic.port;
    let ip = |from, to| match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Layer::V4(V4::new(from, to)),
        (IpAddr::V6(from), IpAddr::V6(to)) => Layer::V6(V6::new(from, to)),
        _ => unreachable!("the source is chosen by the version of the destination"),
    };
    let ethernet = Layer::Ethernet { back: false };
    let udp = Layer::Udp { src: super::FIRST_PORT, dst: port, checksum: true };
    let made = match traffic.kind {
        Kind::Udp => {
            let bytes = packet(&[ethernet, ip(from, traffic.to), udp], &payload);
            vec![Template { inner: places(ETHERNET_LEN, from, true), bytes, outer_port: None }]
        }
        Kind::TcpSyn => {
            let flags = TcpFlags { syn: true, ..TcpFlags::default() };
            let tcp = Tcp { src: super::FIRST_PORT, dst: port, seq: 1, ack: 0, flags };
            let bytes = packet(&[ethernet, ip(from, traffic.to), Layer::Tcp(tcp)], &payload);
            vec![Template { inner: places(ETHERNET_LEN, from, false), bytes, outer_port: None }]
        }
        Kind::Vxlan => {
            let outer = Layer::Udp { src: 0, dst: VXLAN_PORT, checksum: from.is_ipv6() };
            if from.is_ipv6() {
                let message = "vxlan is sent over IPv4 only";
                return Err(BenchError::Options(message.into()));
            }
            let tunnel = Layer::Vxlan { vni: VNI };
            let layers = [
                ethernet,
                ip(from, traffic.to),
                outer,
                tunnel,
                ethernet,
                ip(from, traffic.to),
                udp,
            ];
            let bytes = packet(&layers, &payload);
            let outer_port = ETHERNET_LEN + V4_LEN;
            let inner = outer_port + UDP_LEN + VXLAN_LEN + ETHERNET_LEN;
            vec![Template { inner: places(inner, from, true), bytes, outer_port: Some(outer_port) }]
        }
        Kind::Fragments => fragments(traffic, from, &payload)?,
    };
    Ok(made.into_iter().map(|template| addressed(template, link)).collect())
}

/// A datagram in two: the first ends at the last multiple of eight before the middle, and has the
/// UDP header.
fn fragments(traffic: &Traffic, from: IpAddr, payload: &[u8]) -> Result<Vec<Template>, BenchError> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (from, traffic.to) else {
        return Err(BenchError::Options("fragments are sent over IPv4 only".into()));
    };
    if payload.len() < 16 {
        let message = format!("fragments of {} bytes: at least 16 are needed", payload.len());
        return Err(BenchError::Options(message));
    }
    let udp = Layer::Udp { src: super::FIRST_PORT, dst: traffic.port, checksum: true };
    let whole =
        packet(&[Layer::Ethernet { back: false }, Layer::V4(V4::new(src, dst)), udp], payload);
    let datagram = &whole[ETHERNET_LEN + V4_LEN..];
    let middle = (datagram.len() / 2) & !7;
    let part = |start: usize, bytes: &[u8], more| {
        let fragment = Some((start as u16, more));
        let header = V4 { fragment, protocol: Some(17), ..V4::new(src, dst) };
        packet(&[Layer::Ethernet { back: false }, Layer::V4(header)], bytes)
    };
    let all = places(ETHERNET_LEN, from, true);
    let id = Some(ETHERNET_LEN + 4);
    let first = Places { id, ..all };
    let second = Places { id, port: None, checksum: None, ..all };
    Ok(vec![
        Template { bytes: part(0, &datagram[..middle], true), inner: first, outer_port: None },
        Template {
            bytes: part(middle, &datagram[middle..], false),
            inner: second,
            outer_port: None,
        },
    ])
}

/// Returns where the source is, of an IP header that starts at `ip` and UDP or TCP behind it.
fn places(ip: usize, from: IpAddr, is_udp: bool) -> Places {
    let (ip_len, address, ip_checksum) = match from {
        IpAddr::V4(_) => (V4_LEN, ip + 12, Some(ip + 10)),
        IpAddr::V6(_) => (V6_LEN, ip + 8 + 12, None),
    };
    let transport = ip + ip_len;
    let at = transport + if is_udp { 6 } else { 16 };
    Places {
        address,
        ip_checksum,
        port: Some(transport),
        checksum: Some(Checksum { at, is_udp }),
        id: None,
    }
}

fn addressed(mut template: Template, link: &Link) -> Template {
    template.bytes[..6].copy_from_slice(&link.sink);
    template.bytes[6..12].copy_from_slice(&link.source);
    template
}

/// Returns whether an address can be a source of these frames.
#[cfg(test)]
fn is_source(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let first = Pair::SOURCE_V4;
            (0..V4_ADDRESSES).contains(&address.to_bits().wrapping_sub(first.to_bits()))
        }
        IpAddr::V6(address) => {
            let first = Pair::SOURCE_V6;
            let offset = address.to_bits().wrapping_sub(first.to_bits());
            offset < u128::from(V6_ADDRESSES)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, Sizes};
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    const LINK: Link = Link { source: [2, 0, 0, 0, 0, 1], sink: [2, 0, 0, 0, 0, 2] };

    fn frames(traffic: &Traffic, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Frames::new(traffic, &LINK).unwrap();
        let mut slot = vec![0xff; frames.longest()];
        (0..count)
            .map(|_| {
                let len = frames.write(&mut slot);
                slot[..len].to_vec()
            })
            .collect()
    }

    fn traffic(v6: bool, kind: Kind, pattern: Pattern, sizes: &str) -> Traffic {
        let to: IpAddr = if v6 { Pair::SINK_V6.into() } else { Pair::SINK_V4.into() };
        let sizes: Sizes = sizes.parse().unwrap();
        Traffic { kind, pattern, sizes, flows: 60_000, ..Traffic::new(to, 9) }
    }

    /// Reads a frame with another crate and checks every checksum; returns source and port.
    fn check(frame: &[u8]) -> (IpAddr, u16) {
        assert_eq!((&frame[..6], &frame[6..12]), (&LINK.sink[..], &LINK.source[..]));
        check_ip(&frame[ETHERNET_LEN - 2..])
    }

    fn check_ip(from_ethertype: &[u8]) -> (IpAddr, u16) {
        let ethertype = u16::from_be_bytes([from_ethertype[0], from_ethertype[1]]).into();
        let sliced = SlicedPacket::from_ether_type(ethertype, &from_ethertype[2..]).unwrap();
        let (source, v4, v6) = match sliced.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                (IpAddr::from(header.source), Some(header), None)
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header().to_header();
                (IpAddr::from(header.source), None, Some(header))
            }
            other => panic!("{other:?}"),
        };
        match sliced.transport.unwrap() {
            TransportSlice::Udp(udp) => {
                let header = udp.to_header();
                let sum = match (&v4, &v6) {
                    (Some(ip), _) => header.calc_checksum_ipv4(ip, udp.payload()),
                    (_, Some(ip)) => header.calc_checksum_ipv6(ip, udp.payload()),
                    _ => unreachable!(),
                };
                assert_eq!(header.checksum, sum.unwrap());
                (source, header.source_port)
            }
            TransportSlice::Tcp(tcp) => {
                let header = tcp.to_header();
                assert!(header.syn && !header.ack);
                let sum = match (&v4, &v6) {
                    (Some(ip), _) => header.calc_checksum_ipv4(ip, tcp.payload()),
                    (_, Some(ip)) => header.calc_checksum_ipv6(ip, tcp.payload()),
                    _ => unreachable!(),
                };
                assert_eq!(header.checksum, sum.unwrap());
                (source, header.source_port)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_frame_is_right_whatever_its_source() {
        for v6 in [false, true] {
            for kind in [Kind::Udp, Kind::TcpSyn] {
                let made = frames(&traffic(v6, kind, Pattern::Random, "20,0,1400"), 30_000);
                let mut sources: Vec<_> = made.iter().map(|frame| check(frame)).collect();
                assert!(sources.iter().all(|(source, _)| is_source(*source)));
                sources.sort();
                sources.dedup();
                assert!(sources.len() > 29_900, "{}", sources.len());
                let lens: Vec<_> = made.iter().take(4).map(|frame| frame.len()).collect();
                assert_eq!([lens[1], lens[2], lens[3]], [lens[0] - 20, lens[0] + 1380, lens[0]]);
            }
        }
    }

    #[test]
    fn flows_of_a_set_come_in_turn_from_two_addresses() {
        let made = frames(&traffic(false, Kind::Udp, Pattern::InTurn, "20"), 60_000);
        let sources: Vec<_> = made.iter().map(|frame| check(frame)).collect();
        assert_eq!(sources[0], (Pair::SOURCE_V4.into(), 10_000));
        assert_eq!(sources[49_999], (Pair::SOURCE_V4.into(), 59_999));
        assert_eq!(sources[50_000], ("198.18.0.2".parse().unwrap(), 10_000));
    }

    #[test]
    fn tunnelled_packets_are_right_inside_and_outside() {
        let made = frames(&traffic(false, Kind::Vxlan, Pattern::Random, "20"), 1000);
        let mut outer_ports = Vec::new();
        for frame in &made {
            let outer = SlicedPacket::from_ethernet(frame).unwrap();
            let Some(TransportSlice::Udp(udp)) = outer.transport else { panic!() };
            assert_eq!((udp.destination_port(), udp.checksum()), (4789, 0));
            assert!(udp.source_port() >= 49_152);
            outer_ports.push(udp.source_port());
            assert_eq!(&udp.payload()[..8], &[8, 0, 0, 0, 0, 0, 42, 0]);
            check_ip(&udp.payload()[8 + 12..]);
        }
        outer_ports.sort_unstable();
        outer_ports.dedup();
        assert!(outer_ports.len() > 900, "{}", outer_ports.len());
    }

    #[test]
    fn two_fragments_make_a_datagram() {
        for size in ["16", "100", "1401"] {
            let made = frames(&traffic(false, Kind::Fragments, Pattern::Random, size), 200);
            for pair in made.chunks(2) {
                let parts: Vec<_> = pair
                    .iter()
                    .map(|frame| {
                        let header = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap().0;
                        assert_eq!(header.header_checksum, header.calc_header_checksum());
                        header
                    })
                    .collect();
                assert_eq!(parts[0].identification, parts[1].identification);
                assert_eq!(parts[0].source, parts[1].source);
                assert!(parts[0].more_fragments && !parts[1].more_fragments);
                let first = &pair[0][34..];
                assert_eq!(parts[1].fragment_offset.byte_offset(), first.len() as u16);
                // Put together they are one datagram with a right checksum.
                let bytes = [first, &pair[1][34..]].concat();
                let (udp, payload) = etherparse::UdpHeader::from_slice(&bytes).unwrap();
                assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&parts[0], payload).unwrap());
            }
        }
        let short = traffic(false, Kind::Fragments, Pattern::Random, "15");
        assert!(Frames::new(&short, &LINK).is_err());
        assert!(
            Frames::new(&traffic(true, Kind::Fragments, Pattern::InTurn, "99"), &LINK).is_err()
        );
    }
}
