//! The scenario of the sample that is built into the command: 16 ms of a busy server.
//!
//! The server has the addresses 192.0.2.10 and 2001:db8::10 and gets some 600,000 packets a second,
//! more than one CPU can carry. Its flow tables are meant to be small against the traffic, so that
//! a short sample shows what minutes show on a large host: idle connections that keep their
//! entries, requests of one-time clients, flows that a socket which is not connected receives.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::flow::{Flow, Path};
use super::{
    Crowd, CrowdKind, EPOCH_NS, NS_PER_US, Payload, Rng, Scenario, TcpConversation, UdpConversation,
};

/// Bytes captured of each frame of the sample: the headers of a TCP segment in VXLAN fit.
pub const SAMPLE_SNAP_LEN: usize = 112;

/// Round trip of the TCP connections.
const RTT_NS: u64 = 60 * NS_PER_US;

/// The scenario is written down as a second of a thousand of these.
const TICK_NS: u64 = 14_000;

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
/// The other end of the tunnels.
const TUNNEL_PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 20);

/// Ports of the sample's server.
pub mod port {
    /// Idle TCP connections.
    pub const IDLE: u16 = 5222;
    /// Busy TCP connections.
    pub const BUSY: u16 = 443;
    /// One connected UDP socket a client.
    pub const CONNECTED_UDP: u16 = 5004;
    /// QUIC: one unconnected socket for all clients.
    pub const QUIC: u16 = 443;
    /// Requests of one-time clients.
    pub const DNS: u16 = 53;
    /// Large datagrams, in fragments.
    pub const FRAGMENTS: u16 = 2049;
    /// The target of the SYN flood.
    pub const FLOODED: u16 = 80;
}

/// Returns the scenario of the sample.
pub fn sample() -> Scenario {
    let mut rng = Rng::new(0x5a4d_504c, 0);
    let mut scenario = Scenario::new(0x5a4d_504c).snap_len(SAMPLE_SNAP_LEN);
    tcp(&mut scenario, &mut rng);
    udp(&mut scenario, &mut rng);
    tunnels_and_tags(&mut scenario, &mut rng);
    crowds(&mut scenario);
    scenario
}

/// A client of its own address and port; one in eight has an IPv6 address.
fn flow(rng: &mut Rng, port: u16) -> Flow {
    let client_port = 32_768 + rng.below(28_232) as u16;
    let host = rng.below(254) as u8 + 1;
    if rng.below(8) == 0 {
        let client = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, u16::from(host));
        let (client, server) = (IpAddr::V6(client), IpAddr::V6(SERVER6));
        let ends = (SocketAddr::new(client, client_port), SocketAddr::new(server, port));
        // Linux labels flows by default (net.ipv6.auto_flowlabels).
        Flow { flow_label: rng.below(1 << 20) as u32, ..Flow::new(ends.0, ends.1) }
    } else {
        let net = if rng.below(2) == 0 { [198, 51, 100] } else { [203, 0, 113] };
        let client = Ipv4Addr::new(net[0], net[1], net[2], host);
        let (client, server) = (IpAddr::V4(client), IpAddr::V4(SERVER));
        Flow::new(SocketAddr::new(client, client_port), SocketAddr::new(server, port))
    }
}

/// A time between two ticks.
fn at(rng: &mut Rng, from: u64, to: u64) -> u64 {
    EPOCH_NS + from * TICK_NS + rng.below((to - from) * TICK_NS)
}

fn tcp(scenario: &mut Scenario, rng: &mut Rng) {
    for _ in 0..400 {
        let conversation = TcpConversation::new(flow(rng, port::IDLE), at(rng, 0, 250));
        scenario.add(TcpConversation {
            requests: 1,
            rtt_ns: RTT_NS,
            response_bytes: 200,
            close: false,
            ..conversation
        });
    }
    for _ in 0..40 {
        let conversation = TcpConversation::new(flow(rng, port::BUSY), at(rng, 100, 300));
        scenario.add(TcpConversation {
            requests: 36,
            rtt_ns: RTT_NS,
            response_bytes: 2500,
            gap_ns: 20 * TICK_NS,
            ..conversation
        });
    }
}

fn udp(scenario: &mut Scenario, rng: &mut Rng) {
    for _ in 0..60 {
        let conversation = UdpConversation::new(flow(rng, port::CONNECTED_UDP), at(rng, 0, 300));
        scenario.add(UdpConversation { requests: 25, gap_ns: 25 * TICK_NS, ..conversation });
    }
    for _ in 0..60 {
        let conversation = UdpConversation::new(flow(rng, port::QUIC), at(rng, 0, 300));
        scenario.add(UdpConversation {
            requests: 20,
            request_bytes: 1200,
            responses: 2,
            response_bytes: 1200,
            gap_ns: 30 * TICK_NS,
            payload: Payload::Quic,
            ..conversation
        });
    }
    for _ in 0..8 {
        let conversation = UdpConversation::new(flow(rng, port::FRAGMENTS), at(rng, 0, 300));
        scenario.add(UdpConversation {
            requests: 12,
            request_bytes: 4000,
            gap_ns: 50 * TICK_NS,
            ..conversation
        });
    }
}

fn tunnels_and_tags(scenario: &mut Scenario, rng: &mut Rng) {
    let (peer, server) = (IpAddr::V4(TUNNEL_PEER), IpAddr::V4(SERVER));
    for inner in 0..16u8 {
        let client = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, inner + 1)), 40_000);
        let behind = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 200)), 8080);
        let path = Path::vxlan(peer, server, 42, rng.bits() as u16);
        let inner_flow = Flow::new(client, behind).over(path);
        let conversation = TcpConversation::new(inner_flow, at(rng, 50, 250));
        scenario.add(TcpConversation { requests: 20, gap_ns: 30 * TICK_NS, ..conversation });
    }
    for tags in [&[5][..], &[100, 5]] {
        for _ in 0..6 {
            let tagged = flow(rng, port::CONNECTED_UDP).over(Path::vlan(tags));
            let conversation = UdpConversation::new(tagged, at(rng, 0, 300));
            scenario.add(UdpConversation { requests: 20, gap_ns: 30 * TICK_NS, ..conversation });
        }
    }
}

fn crowds(scenario: &mut Scenario) {
    let dns = SocketAddr::new(IpAddr::V4(SERVER), port::DNS);
    let flooded = SocketAddr::new(IpAddr::V4(SERVER), port::FLOODED);
    scenario.add(Crowd {
        requests: 1300,
        gap_ns: 700 * TICK_NS / 1000,
        ..Crowd::new(dns, CrowdKind::Dns, EPOCH_NS)
    });
    scenario.add(Crowd {
        requests: 400,
        gap_ns: 500 * TICK_NS / 1000,
        ..Crowd::new(flooded, CrowdKind::SynFlood, EPOCH_NS + 600 * TICK_NS)
    });
}
