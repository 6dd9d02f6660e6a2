//! One line a packet: what is read of it, for people who want to see why a packet goes where it
//! goes.
//!
//! Always true: every packet gets a line, with a hash or the reason why it has none; memory is
//! bounded: after [`MOST_FLOWS`] flows, further ones get no number.
//! Elsewhere: reading headers ([`mod@rxsteer_core::dissect`]); hashing ([`rxsteer_core::hash`]).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::HashMap;
use rxsteer_core::dissect::{
    AddrKind, Control, Detail, DissectError, Dissected, Layer, Mode, Observer, Options, Tunnel,
    dissect_observed,
};
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::Class;
use rxsteer_core::{FlowHash, FlowKey};
use rxsteer_sockets::datagram::{Checksum, IpFault, PacketFault, Rules, check_packet};
use serde::{Serialize, Serializer};

use crate::capture::{LinkError, Packet};
use crate::replay::Reader;

/// Most flows that get a number.
pub const MOST_FLOWS: usize = 1 << 20;

/// Gives each packet its line.
#[derive(Debug)]
pub struct Lister {
    options: Options,
    hasher: SoftHasher,
    verify: bool,
    reader: Reader,
    flows: HashMap<FlowKey, u64, foldhash::fast::FixedState>,
    unnumbered: bool,
    packets: u64,
    first_ns: Option<u64>,
    layers: Layers,
}

/// One header of a packet and what it says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct LayerText {
    layer: Layer,
    detail: Detail,
}

#[derive(Debug, Default)]
struct Layers(Vec<LayerText>);

impl Observer for Layers {
    fn layer(&mut self, layer: Layer, _: usize, detail: Detail) {
        self.0.push(LayerText { layer, detail });
    }
}

/// What is read of one packet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Number in the order read, from 1.
    pub number: u64,
    /// Time since the first packet in ns; negative if the capture's time went back.
    pub time_ns: i64,
    /// Index of the file.
    pub file: u16,
    /// Bytes on the wire.
    pub orig_len: u32,
    /// Bytes captured.
    pub cap_len: u32,
    /// Headers, outermost first.
    pub layers: Vec<String>,
    /// Fields of the flow, as they stand in the packet; `None` if there is no flow.
    pub key: Option<Key>,
    /// Class of traffic: `tcp`, `tcp_syn`, `udp`, `tunnel`, `other`.
    pub class: &'static str,
    /// Flow hash as eight hex digits, in kernel mode the same for both directions; `None` if there
    /// is none.
    #[serde(serialize_with = "hex")]
    pub hash: Option<u32>,
    /// Number of the flow by order of appearance, from 1, the same for both directions.
    pub flow: Option<u64>,
    /// State of a fragment: `first`, `middle`, `last`; `None` for a whole datagram.
    pub fragment: Option<&'static str>,
    /// Innermost encapsulation; `None` for none.
    pub tunnel: Option<&'static str>,
    /// Kind of control traffic; `None` for none.
    pub control: Option<&'static str>,
    /// What a check of the outermost IP header and of UDP says: `ok`, `absent` (UDP over IPv4
    /// without a checksum), `header ok` (the rest is not UDP or a fragment), `bad: ` and the fault,
    /// `not checked: ` and why; `None` if none was asked for or there is no IP header.
    pub checksum: Option<String>,
    /// Why reading stopped, or why there is no flow; `None` if all was read.
    pub reason: Option<String>,
}

/// Fields of a flow key that are in use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Key {
    /// Source address.
    pub src: Option<IpAddr>,
    /// Destination address.
    pub dst: Option<IpAddr>,
    /// Source port, or the high half of an SPI.
    pub src_port: u16,
    /// Destination port, or the low half of an SPI.
    pub dst_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Ethertype of the network header.
    pub ethertype: u16,
    /// Identifier of the VLAN tag in the key; `None` without one.
    pub vlan: Option<u16>,
    /// IPv6 flow label that takes the place of the ports; 0 for none.
    pub flow_label: u32,
    /// GRE key, call id or session; 0 for none.
    pub key_id: u32,
}

impl Key {
    fn new(key: &FlowKey) -> Self {
        let [a, b, c, d, ..] = key.src;
        let [e, f, g, h, ..] = key.dst;
        let (src, dst) = match key.addr_kind {
            AddrKind::V4 => (
                Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
                Some(IpAddr::V4(Ipv4Addr::new(e, f, g, h))),
            ),
            AddrKind::V6 => (
                Some(IpAddr::V6(Ipv6Addr::from(key.src))),
                Some(IpAddr::V6(Ipv6Addr::from(key.dst))),
            ),
            AddrKind::None | AddrKind::Tipc => (None, None),
        };
        Self {
            src,
            dst,
            src_port: key.src_port,
            dst_port: key.dst_port,
            protocol: key.protocol,
            ethertype: key.ethertype,
            vlan: (key.vlan_tpid != 0).then_some(key.vlan_tci & 0x0fff),
            flow_label: key.flow_label,
            key_id: key.key_id,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16| match address {
            _ if self.src_port == 0 && self.dst_port == 0 => write!(f, "{address}"),
            IpAddr::V4(address) => write!(f, "{address}:{port}"),
            IpAddr::V6(address) => write!(f, "[{address}]:{port}"),
        };
        match (self.src, self.dst) {
            (Some(src), Some(dst)) if matches!(self.protocol, 50 | 51) => {
                let spi = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
                write!(f, "{src} > {dst} spi {spi:#010x}")?;
            }
            (Some(src), Some(dst)) => {
                end(f, src, self.src_port)?;
                f.write_str(" > ")?;
                end(f, dst, self.dst_port)?;
            }
            _ => write!(f, "ethertype {:#06x}", self.ethertype)?,
        }
        if self.flow_label != 0 {
            write!(f, " label {:#07x}", self.flow_label)?;
        }
        if self.key_id != 0 {
            write!(f, " id {:#x}", self.key_id)?;
        }
        if let Some(vlan) = self.vlan {
            write!(f, " vlan {vlan}")?;
        }
        Ok(())
    }
}

impl Lister {
    /// A lister that reads headers with these options and hashes with this key.
    pub fn new(options: Options, hasher: SoftHasher) -> Self {
        Self {
            options,
            hasher,
            verify: false,
            reader: Reader::new(options),
            flows: HashMap::default(),
            unnumbered: false,
            packets: 0,
            first_ns: None,
            layers: Layers::default(),
        }
    }

    /// Has each line say whether lengths and checksums are right.
    pub fn verify(mut self) -> Self {
        self.verify = true;
        self
    }

    /// Returns whether there were more than [`MOST_FLOWS`] flows.
    pub fn ran_out_of_numbers(&self) -> bool {
        self.unnumbered
    }

    /// Returns the line of the next packet.
    pub fn line(&mut self, packet: &Packet<'_>) -> Line {
        self.packets += 1;
        let first_ns = *self.first_ns.get_or_insert(packet.ts_ns);
        let mut line = Line {
            number: self.packets,
            time_ns: packet.ts_ns.wrapping_sub(first_ns) as i64,
            file: packet.source,
            orig_len: packet.orig_len,
            cap_len: packet.cap_len,
            layers: Vec::new(),
            key: None,
            class: Class::Other.name(),
            hash: None,
            flow: None,
            fragment: None,
            tunnel: None,
            control: None,
            checksum: None,
            reason: None,
        };
        let (start, _) = match packet.link.start(packet.data) {
            Ok(start) => start,
            Err(error) => {
                line.reason = Some(link_reason(&error));
                return line;
            }
        };
        let mut found = Dissected::EMPTY;
        self.layers.0.clear();
        let result =
            dissect_observed(packet.data, start, &self.options, &mut found, &mut self.layers);
        line.layers = self.layers.0.iter().map(ToString::to_string).collect();
        if let Ok(frame) = self.reader.read(packet, line.number) {
            line.class = frame.class.name();
        }
        if self.verify && found.ip_headers > 0 {
            line.checksum = Some(verified(packet, usize::from(found.outer_offset)));
        }
        self.fill(&mut line, &found, result.err());
        line
    }

    fn fill(&mut self, line: &mut Line, found: &Dissected, error: Option<DissectError>) {
        line.fragment = found.is_fragment().then(|| found.fragment.name());
        line.tunnel = (found.tunnel != Tunnel::None).then(|| found.tunnel.name());
        line.control = (found.control != Control::None).then(|| found.control.name());
        line.reason = error.map(|error| error.to_string());
        if !found.has_key() {
            line.reason.get_or_insert_with(|| "no header that can be hashed".into());
            return;
        }
        line.key = Some(Key::new(&found.key));
        let hash = match self.options.mode {
            Mode::Kernel => self.hasher.hash_symmetric(&found.key),
            Mode::Inner => self.hasher.hash_key(&found.key),
        };
        line.hash = (hash != FlowHash::NONE).then_some(hash.0);
        let next = self.flows.len() as u64 + 1;
        let key = found.key.canonical();
        if let Some(number) = self.flows.get(&key) {
            line.flow = Some(*number);
        } else if self.flows.len() < MOST_FLOWS {
            self.flows.insert(key, next);
            line.flow = Some(next);
        } else {
            self.unnumbered = true;
        }
    }
}

/// Checks a packet from its outermost IP header on.
fn verified(packet: &Packet<'_>, network_offset: usize) -> String {
    if packet.cap_len < packet.orig_len {
        return "not checked: cut by the capture".into();
    }
    let bytes = packet.data.get(network_offset..).unwrap_or_default();
    match check_packet(bytes, Rules::default()) {
        Ok(checked) if checked.checksum == Checksum::Absent => "absent".into(),
        Ok(_) => "ok".into(),
        Err(PacketFault::Ip(IpFault::NotUdp | IpFault::Fragment)) => "header ok".into(),
        Err(PacketFault::Ip(IpFault::Routed)) => "not checked: source routed".into(),
        Err(fault) => format!("bad: {fault}"),
    }
}

fn link_reason(error: &LinkError) -> String {
    error.to_string()
}

fn hex<S: Serializer>(hash: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match hash {
        Some(hash) => serializer.collect_str(&format_args!("{hash:08x}")),
        None => serializer.serialize_none(),
    }
}

impl fmt::Display for LayerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layer.name())?;
        match self.detail {
            Detail::Vlan { tci, .. } => write!(f, "({})", tci & 0x0fff),
            Detail::Id(id) => write!(f, "({id})"),
            Detail::Number(number) => write!(f, "({number:#x})"),
            Detail::Icmp { kind, .. } => write!(f, "({kind})"),
            Detail::None
            | Detail::Ip(_)
            | Detail::Next(_)
            | Detail::Fragment { .. }
            | Detail::Ports { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
