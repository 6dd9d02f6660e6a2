//! Tshark's truth: addresses, ports, protocols, fragments, tags and tunnels, column by column.

use std::net::{Ipv4Addr, Ipv6Addr};

use rxsteer_core::dissect::{
    AddrKind, Detail, Dissected, IpDetail, Layer, Mode, Observer, Options, PortRule, UdpTunnel,
    dissect_observed,
};
use rxsteer_lab::capture::Packet;

use super::Mismatch;
use super::rules::{Case, Rule};
use super::table::Row;

/// Compares one packet; notes which rules explained a difference.
pub(crate) fn check(
    row: &Row<'_>,
    packet: &Packet<'_>,
    mismatches: &mut Vec<Mismatch>,
    rules: &mut Vec<&'static Rule>,
) {
    let mut seen = Seen { bytes: packet.data, ..Seen::default() };
    let mut stop = None;
    let start = packet.link.start(packet.data);
    if let Ok((start, _)) = start {
        let mut out = Dissected::EMPTY;
        stop = dissect_observed(packet.data, start, &OPTIONS, &mut out, &mut seen).err();
    }
    let case = Case { row, seen: &seen, stop, has_network: start.is_ok() };
    let mut compare = |column: &'static str, ours: &str| {
        let theirs = row.get(column);
        if ours == theirs {
            return;
        }
        match Rule::find(&case, column, ours, theirs) {
            Some(rule) => rules.push(rule),
            None => mismatches.push(Mismatch::new(column, ours, theirs)),
        }
    };
    compare("vlan", &list(&seen.vlans));
    compare("vlan_in", &list(&seen.inner_vlans));
    compare("tunnel", &list(&seen.tunnels));
    compare("icmp", seen.icmp.as_deref().unwrap_or("-"));
    let nothing = || [const { String::new() }; 8].map(|_| String::from("-"));
    for (columns, ip) in [(OUTER, seen.ips.first()), (INNER, seen.ips.last())] {
        for (column, ours) in columns.into_iter().zip(ip.map_or_else(nothing, Ip::fields)) {
            compare(column, &ours);
        }
    }
}

const OUTER: [&str; 8] =
    ["o_src", "o_dst", "o_proto", "o_sport", "o_dport", "o_frag", "o_mf", "o_label"];
const INNER: [&str; 8] =
    ["i_src", "i_dst", "i_proto", "i_sport", "i_dport", "i_frag", "i_mf", "i_label"];

/// As tshark with its defaults: it goes on behind first fragments and knows fewer ports.
const OPTIONS: Options = {
    let mut options = Options::new(Mode::Inner);
    options.walk_first_fragment = true;
    options.ports[0] = PortRule { port: 8472, tunnel: UdpTunnel::None };
    options
};

/// What the dissector reported of a packet, in the words of the table.
#[derive(Default)]
pub(crate) struct Seen<'a> {
    bytes: &'a [u8],
    pub(crate) layers: Vec<Layer>,
    vlans: Vec<String>,
    inner_vlans: Vec<String>,
    tunnels: Vec<String>,
    pub(crate) ips: Vec<Ip>,
    icmp: Option<String>,
    /// The last header was an IP header, so that an IP header now is directly in it.
    direct: bool,
}

/// An IP header.
#[derive(Default)]
pub(crate) struct Ip {
    detail: IpDetail,
    pub(crate) ports: Option<(u16, u16)>,
    fragment: Option<(u16, bool)>,
    /// Last address of an IPv4 source route.
    pub(crate) route_end: Option<String>,
}

impl Ip {
    fn fields(&self) -> [String; 8] {
        let address = |bytes: [u8; 16]| match self.detail.addr_kind {
            AddrKind::V6 => Ipv6Addr::from(bytes).to_string(),
            _ => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).to_string(),
        };
        let v6 = self.detail.addr_kind == AddrKind::V6;
        [
            address(self.detail.src),
            address(self.detail.dst),
            self.detail.protocol.to_string(),
            self.ports.map_or("-".into(), |ports| ports.0.to_string()),
            self.ports.map_or("-".into(), |ports| ports.1.to_string()),
            self.fragment.map_or("-".into(), |fragment| fragment.0.to_string()),
            self.fragment.map_or("-".into(), |fragment| u8::from(fragment.1).to_string()),
            if v6 { format!("{:05x}", self.detail.label) } else { "-".into() },
        ]
    }
}

impl Observer for Seen<'_> {
    fn layer(&mut self, layer: Layer, offset: usize, detail: Detail) {
        match detail {
            Detail::Ip(detail) => {
                let v4 = detail.addr_kind == AddrKind::V4;
                let fragment = v4.then_some((detail.fragment_offset, detail.more_fragments));
                let route_end = if v4 { route_end(self.bytes, offset) } else { None };
                self.ips.push(Ip { detail, ports: None, fragment, route_end });
            }
            Detail::Vlan { tci, .. } => {
                let text = format!("{}:{}:{}", tci & 0xfff, tci >> 13, tci >> 12 & 1);
                if self.ips.is_empty() {
                    self.vlans.push(text)
                } else {
                    self.inner_vlans.push(text)
                }
            }
            Detail::Next(next) => {
                if let Some(ip) = self.ips.last_mut() {
                    ip.detail.protocol = next;
                }
            }
            Detail::Fragment { next, offset, more, .. } => {
                if let Some(ip) = self.ips.last_mut() {
                    ip.detail.protocol = next;
                    ip.fragment = Some((offset, more));
                }
            }
            Detail::Ports { src, dst } => {
                if let Some(ip) = self.ips.last_mut()
                    && ip.ports.is_none()
                {
                    ip.ports = Some((src, dst));
                }
            }
            Detail::Icmp { kind, code, id } => {
                let id = id.map_or("-".into(), |id| id.to_string());
                self.icmp = Some(format!("{kind}:{code}:{id}"));
            }
            _ => {}
        }
        self.layers.push(layer);
        self.tunnel(layer, detail);
    }
}

impl Seen<'_> {
    /// Notes an encapsulation under tshark's name for it, with its number.
    fn tunnel(&mut self, layer: Layer, detail: Detail) {
        let number = if let Detail::Id(id) = detail { Some(id) } else { None };
        let named = |name: &str, key: &str| match number {
            Some(number) => format!("{name}/{key}={number}"),
            None => name.into(),
        };
        let text = match layer {
            Layer::Ipv4 | Layer::Ipv6 if self.direct => {
                let digit = |kind| if kind == AddrKind::V4 { '4' } else { '6' };
                let [.., outer, inner] = self.ips.as_slice() else { return };
                format!("{}in{}", digit(inner.detail.addr_kind), digit(outer.detail.addr_kind))
            }
            Layer::Pppoe => named("pppoes", "id"),
            Layer::Mpls => named("mpls", "label"),
            Layer::PwControl => "pwethcw".into(),
            Layer::Hsr => "hsr".into(),
            Layer::Ah => named("ah", "spi"),
            Layer::Esp => named("esp", "spi"),
            Layer::IpComp => "ipcomp".into(),
            Layer::Gre => named("gre", "key"),
            Layer::Pptp => "gre".into(),
            Layer::Erspan => named("erspan", "id"),
            Layer::EtherIp => "etherip".into(),
            Layer::Vxlan => named("vxlan", "vni"),
            Layer::Geneve => named("geneve", "vni"),
            Layer::GtpU => named("gtp", "teid"),
            Layer::L2tp => named("l2tp", "id"),
            Layer::L2tpV3 => "l2tp".into(),
            Layer::WireGuard => "wg".into(),
            Layer::UdpEncap => "udpencap".into(),
            Layer::Teredo => "teredo".into(),
            Layer::Lisp => "lisp-data".into(),
            Layer::Capwap => "capwap.data".into(),
            Layer::Ayiya => "ayiya".into(),
            Layer::Nsh => "nsh".into(),
            Layer::Macsec => "macsec".into(),
            Layer::Pbb => "ieee8021ah".into(),
            Layer::Trill => "trill".into(),
            _ => String::new(),
        };
        // IP, or something between two IP headers that does not make it a tunnel of its own.
        self.direct = match layer {
            Layer::Ipv4 | Layer::Ipv6 => true,
            Layer::HopByHop
            | Layer::Routing
            | Layer::DestOptions
            | Layer::FragmentHeader
            | Layer::Shim6 => self.direct,
            // Tshark has AH among the extension headers of IPv6, but not behind IPv4.
            Layer::Ah => {
                self.direct && self.ips.last().is_some_and(|ip| ip.detail.addr_kind == AddrKind::V6)
            }
            _ => false,
        };
        if !text.is_empty() {
            self.tunnels.push(text);
        }
    }
}

/// Returns the last address of the source route in the IPv4 header at `offset` (RFC 791, options
/// 131 and 137).
fn route_end(bytes: &[u8], offset: usize) -> Option<String> {
    let header = bytes.get(offset..)?;
    let size = usize::from(header.first()? & 15) * 4;
    let mut options = header.get(20..size)?;
    loop {
        match *options.first()? {
            0 => return None,
            1 => options = &options[1..],
            kind => {
                let option = options.get(..usize::from(*options.get(1)?))?;
                if option.len() < 2 {
                    return None;
                }
                if matches!(kind, 131 | 137) {
                    let last: [u8; 4] = *option.get(3..)?.last_chunk()?;
                    return Some(Ipv4Addr::from(last).to_string());
                }
                options = &options[option.len()..];
            }
        }
    }
}

/// Returns the entries of a list column.
fn list(entries: &[String]) -> String {
    if entries.is_empty() { "-".into() } else { entries.join(",") }
}
