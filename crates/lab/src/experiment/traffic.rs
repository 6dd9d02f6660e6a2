//! Who sends what: the kinds of traffic of an experiment, made into senders of packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rxsteer_core::CpuId;
use toml::Spanned;

use super::file::TrafficFile;
use super::plan::Limits;
use crate::config::{ConfigError, Source};
use crate::consumer::parse_duration_ns;
use crate::generate::{
    Crowd, CrowdKind, EPOCH_NS, Flow, Layer, Payload, Rng, Scenario, Tcp, TcpConversation,
    TcpFlags, Tunnel, Tunnelled, Turns, UdpConversation, Uniform, packet, uniform_client,
};
use crate::replay::{Clients, RoundTrips};

/// The host of every experiment.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

/// Its IPv6 address.
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);

/// Packets that a TCP request and its response make on the host's side, about: one with the
/// request, one to two that acknowledge.
const PACKETS_PER_TCP_REQUEST: u64 = 3;

/// A checked sender, or a set of equal ones.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) kind: Kind,
    pub(super) flows: u64,
    /// Packets or requests per second, of all flows together.
    pub(super) per_second: u64,
    pub(super) port: u16,
    pub(super) bytes: u32,
    pub(super) response_bytes: u32,
    pub(super) start_ns: u64,
    pub(super) stop_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Datagrams from random sources, never answered.
    UdpFlood,
    /// Queries of clients that come once.
    Dns,
    /// SYNs that are answered by cookies.
    SynFlood,
    /// Connections that speak once, between start and stop, and stay.
    IdleTcp,
    /// Connections with requests and responses.
    Tcp,
    /// UDP conversations with requests and responses.
    Udp,
    /// The same with QUIC's headers; clients change their port after so many requests.
    Quic { migrate_after: u32 },
    /// One-way flows inside a tunnel.
    Tunnel(Tunnel),
    /// One-way flows, in turn or at random.
    Stream {
        tcp: bool,
        at_random: bool,
        burst: u32,
        burst_gap_ns: u32,
        one_client: bool,
        flow_label: Option<u32>,
    },
    /// Request and response, each request after the response before it was read.
    RoundTrips { tcp: bool, round_trip_ns: u64, window: u32, clients: Option<Clients> },
}

/// Keys beyond `kind`, `name`, `start` and `stop` that a kind takes.
const KINDS: [(&str, &[&str]); 10] = [
    ("udp-flood", &["per_second", "port", "bytes"]),
    ("dns", &["per_second", "port"]),
    ("syn-flood", &["per_second", "port"]),
    ("idle-tcp", &["flows", "port"]),
    ("tcp", &["flows", "per_second", "port", "bytes", "response_bytes"]),
    ("udp", &["flows", "per_second", "port", "bytes", "response_bytes"]),
    ("quic", &["flows", "per_second", "port", "bytes", "response_bytes", "migrate_after"]),
    ("tunnel", &["flows", "per_second", "bytes", "tunnel", "entropy"]),
    (
        "stream",
        &[
            "flows",
            "per_second",
            "port",
            "bytes",
            "protocol",
            "at_random",
            "burst",
            "burst_gap_ns",
            "one_client",
            "flow_label",
        ],
    ),
    (
        "round-trips",
        &[
            "flows",
            "per_second",
            "port",
            "bytes",
            "protocol",
            "round_trip",
            "window",
            "client_cpu",
            "client_work_ns",
        ],
    ),
];

/// Work of a client on a response, its next request included, unless the file says otherwise, in ns.
const DEFAULT_CLIENT_WORK_NS: u32 = 1000;

/// What traffic of all experiments may not exceed.
const MOST_FLOWS: u64 = 1 << 22;
const MOST_PER_SECOND: u64 = 100_000_000;

pub(super) fn check(
    source: Source<'_>,
    given: &Spanned<TrafficFile>,
    duration_ns: u64,
) -> Result<Traffic, ConfigError> {
    let file = given.get_ref();
    let word = file.kind.get_ref().as_str();
    let Some((_, keys)) = KINDS.iter().find(|(name, _)| *name == word) else {
        let names = KINDS.map(|(name, _)| name).join(", ");
        return Err(source.refuse(&file.kind, format!("`{word}`: allowed are {names}")));
    };
    foreign_keys(source, file, word, keys)?;
    let kind = kind(source, file, word)?;
    let number =
        |value: &Option<Spanned<u64>>, name: &str, most: u64, otherwise: Option<u64>| match (
            value, otherwise,
        ) {
            (Some(n), _) if (1..=most).contains(n.get_ref()) => Ok(*n.get_ref()),
            (Some(n), _) => {
                Err(source.refuse(n, format!("{}: allowed are 1 to {most}", n.get_ref())))
            }
            (None, Some(n)) => Ok(n),
            (None, None) => {
                Err(source.refuse(&file.kind, format!("traffic of kind `{word}` needs `{name}`")))
            }
        };
    let default_of = |key: &str, otherwise| (!keys.contains(&key)).then_some(otherwise);
    let flows = number(&file.flows, "flows", MOST_FLOWS, default_of("flows", 1))?;
    let per_second = number(
        &file.per_second,
        "per_second",
        MOST_PER_SECOND,
        match kind {
            // The rate of the link; it need not be the limit.
            Kind::RoundTrips { .. } => Some(0),
            _ => default_of("per_second", 0),
        },
    )?;
    let bytes = |value: &Option<Spanned<u32>>, otherwise: u32| match value {
        Some(n) if *n.get_ref() <= 9000 => Ok(*n.get_ref()),
        Some(n) => Err(source.refuse(n, format!("{}: allowed are 0 to 9000", n.get_ref()))),
        None => Ok(otherwise),
    };
    let time = |value: &Option<Spanned<String>>, otherwise: u64| match value {
        None => Ok(otherwise),
        Some(text) => match parse_duration_ns(text.get_ref()) {
            Ok(ns) if ns <= duration_ns => Ok(ns),
            Ok(_) => Err(source.refuse(text, "is after the end of the experiment")),
            Err(error) => Err(source.refuse(text, error.to_string())),
        },
    };
    let start_ns = time(&file.start, 0)?;
    let stop_ns = time(&file.stop, duration_ns)?;
    if stop_ns <= start_ns {
        let at = file.stop.as_ref().or(file.start.as_ref());
        let message = "stops before it starts";
        return Err(
            at.map_or_else(|| source.refuse(&file.kind, message), |at| source.refuse(at, message))
        );
    }
    let port = match &file.port {
        Some(port) if *port.get_ref() == 0 => {
            return Err(source.refuse(port, "0: allowed are 1 to 65535"));
        }
        Some(port) => *port.get_ref(),
        None if keys.contains(&"port") => {
            let message = format!("traffic of kind `{word}` needs `port`");
            return Err(source.refuse(&file.kind, message));
        }
        None => 0,
    };
    Ok(Traffic {
        kind,
        flows,
        per_second,
        port,
        bytes: bytes(&file.bytes, 64)?,
        response_bytes: bytes(&file.response_bytes, 64)?,
        start_ns,
        stop_ns,
    })
}

/// Refuses keys that say nothing about traffic of this kind.
fn foreign_keys(
    source: Source<'_>,
    file: &TrafficFile,
    word: &str,
    keys: &[&str],
) -> Result<(), ConfigError> {
    fn start<T>(value: &Option<Spanned<T>>) -> Option<usize> {
        value.as_ref().map(|value| value.span().start)
    }
    let given = [
        ("flows", start(&file.flows)),
        ("per_second", start(&file.per_second)),
        ("port", start(&file.port)),
        ("bytes", start(&file.bytes)),
        ("response_bytes", start(&file.response_bytes)),
        ("protocol", start(&file.protocol)),
        ("migrate_after", start(&file.migrate_after)),
        ("tunnel", start(&file.tunnel)),
        ("entropy", start(&file.entropy)),
        ("at_random", start(&file.at_random)),
        ("round_trip", start(&file.round_trip)),
        ("window", start(&file.window)),
        ("burst", start(&file.burst)),
        ("one_client", start(&file.one_client)),
        ("flow_label", start(&file.flow_label)),
        ("burst_gap_ns", start(&file.burst_gap_ns)),
        ("client_cpu", start(&file.client_cpu)),
        ("client_work_ns", start(&file.client_work_ns)),
    ];
    let foreign = given.iter().find(|(key, at)| at.is_some() && !keys.contains(key));
    match foreign {
        Some((key, Some(at))) => {
            let allowed = keys.join(", ");
            let message =
                format!("`{key}` says nothing of traffic of kind `{word}`, which takes {allowed}");
            Err(ConfigError::at(source, *at, message))
        }
        _ => Ok(()),
    }
}

fn kind(source: Source<'_>, file: &TrafficFile, word: &str) -> Result<Kind, ConfigError> {
    let tcp = match &file.protocol {
        None => false,
        Some(text) => match text.get_ref().as_str() {
            "tcp" => true,
            "udp" => false,
            other => return Err(source.refuse(text, format!("`{other}`: allowed are tcp, udp"))),
        },
    };
    Ok(match word {
        "udp-flood" => Kind::UdpFlood,
        "dns" => Kind::Dns,
        "syn-flood" => Kind::SynFlood,
        "idle-tcp" => Kind::IdleTcp,
        "tcp" => Kind::Tcp,
        "udp" => Kind::Udp,
        "quic" => {
            Kind::Quic { migrate_after: file.migrate_after.as_ref().map_or(0, |n| *n.get_ref()) }
        }
        "tunnel" => Kind::Tunnel(tunnel(source, file)?),
        "stream" => Kind::Stream {
            tcp,
            at_random: file.at_random.as_ref().is_some_and(|b| *b.get_ref()),
            burst: at_most(source, &file.burst, 1, 1 << 20, 1)?,
            burst_gap_ns: at_most(source, &file.burst_gap_ns, 0, 1_000_000, 0)?,
            one_client: file.one_client.as_ref().is_some_and(|b| *b.get_ref()),
            flow_label: match &file.flow_label {
                None => None,
                label => Some(at_most(source, label, 0, 0xf_ffff, 0)?),
            },
        },
        _ => {
            let round_trip_ns = match &file.round_trip {
                None => 100_000,
                Some(text) => match parse_duration_ns(text.get_ref()) {
                    // Below, the network would be quicker than any step of the host.
                    Ok(ns) if (1000..=60_000_000_000).contains(&ns) => ns,
                    Ok(_) => return Err(source.refuse(text, "allowed are 1us to 1m")),
                    Err(error) => return Err(source.refuse(text, error.to_string())),
                },
            };
            let window = at_most(source, &file.window, 1, 4096, 1)?;
            let clients = clients(source, file)?;
            Kind::RoundTrips { tcp, round_trip_ns, window, clients }
        }
    })
}

/// Reads who asks, if that is somebody on the host itself.
fn clients(source: Source<'_>, file: &TrafficFile) -> Result<Option<Clients>, ConfigError> {
    let work_ns = at_most(source, &file.client_work_ns, 1, 1_000_000_000, DEFAULT_CLIENT_WORK_NS)?;
    let Some(cpu) = &file.client_cpu else {
        return match &file.client_work_ns {
            Some(given) => {
                Err(source.refuse(given, "is of clients on the host: needs `client_cpu`"))
            }
            None => Ok(None),
        };
    };
    if let Some(given) = &file.round_trip {
        let message = "between clients on the host and the host there is no network";
        return Err(source.refuse(given, message));
    }
    if let Some(given) = &file.per_second {
        return Err(source.refuse(given, "there is no link to clients on the host"));
    }
    Ok(Some(Clients { cpu: CpuId(*cpu.get_ref()), work_ns }))
}

fn at_most(
    source: Source<'_>,
    given: &Option<Spanned<u32>>,
    least: u32,
    most: u32,
    otherwise: u32,
) -> Result<u32, ConfigError> {
    match given {
        None => Ok(otherwise),
        Some(n) if (least..=most).contains(n.get_ref()) => Ok(*n.get_ref()),
        Some(n) => Err(source.refuse(n, format!("{}: allowed are {least} to {most}", n.get_ref()))),
    }
}

fn tunnel(source: Source<'_>, file: &TrafficFile) -> Result<Tunnel, ConfigError> {
    let entropy = file.entropy.as_ref().is_none_or(|b| *b.get_ref());
    let Some(name) = &file.tunnel else {
        return Err(source.refuse(&file.kind, "traffic of kind `tunnel` needs `tunnel`"));
    };
    let tunnel = match name.get_ref().as_str() {
        "vxlan" => Tunnel::Vxlan { entropy },
        "geneve" => Tunnel::Geneve { entropy },
        "gre" => Tunnel::Gre,
        "esp" => Tunnel::Esp,
        "wireguard" => Tunnel::WireGuard,
        other => {
            let allowed = "allowed are vxlan, geneve, gre, esp, wireguard";
            return Err(source.refuse(name, format!("`{other}`: {allowed}")));
        }
    };
    if let Some(given) = &file.entropy
        && matches!(tunnel, Tunnel::Gre | Tunnel::Esp | Tunnel::WireGuard)
    {
        return Err(source.refuse(given, "only vxlan and geneve have a source port to tell flows"));
    }
    Ok(tunnel)
}

impl Traffic {
    fn span_ns(&self) -> u64 {
        self.stop_ns - self.start_ns
    }

    /// Returns the packets that it will be, about.
    pub(super) fn packets(&self) -> u64 {
        let sent = u128::from(self.per_second) * u128::from(self.span_ns()) / 1_000_000_000;
        let sent = u64::try_from(sent).unwrap_or(u64::MAX);
        match self.kind {
            Kind::UdpFlood | Kind::Tunnel(_) | Kind::Stream { .. } => sent,
            Kind::Dns | Kind::SynFlood | Kind::Udp | Kind::Quic { .. } => sent.saturating_mul(2),
            Kind::Tcp => sent.saturating_mul(PACKETS_PER_TCP_REQUEST + 2),
            Kind::IdleTcp => self.flows.saturating_mul(8),
            // Bounded by the host, which is taken to do 5 M requests per second at most.
            Kind::RoundTrips { clients: Some(_), .. } => self.span_ns() / 100,
            Kind::RoundTrips { round_trip_ns, window, .. } => {
                let by_network =
                    u128::from(self.flows) * u128::from(window) * u128::from(self.span_ns())
                        / u128::from(round_trip_ns);
                let by_host = u128::from(self.span_ns()) / 200;
                u64::try_from(by_network.min(by_host)).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the bytes of memory that its senders take, about.
    pub(super) fn bytes(&self) -> u64 {
        let each = match self.kind {
            Kind::IdleTcp | Kind::Tcp => 700,
            Kind::Udp | Kind::Quic { .. } => 600,
            Kind::RoundTrips { .. } => 128,
            _ => return 1024,
        };
        self.flows * each
    }

    fn server(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(SERVER), self.port)
    }

    /// Adds its senders to a scenario; `number` keeps the clients of different traffic apart.
    pub(super) fn add_to(&self, scenario: &mut Scenario, number: u64, seed: u64) {
        let start_ns = EPOCH_NS + self.start_ns;
        let requests = self.requests();
        let gap_ns = 1_000_000_000 / self.per_second.max(1);
        match self.kind {
            Kind::UdpFlood | Kind::Dns | Kind::SynFlood => {
                let kind = match self.kind {
                    Kind::Dns => CrowdKind::Dns,
                    Kind::SynFlood => CrowdKind::SynFlood,
                    _ => CrowdKind::UdpFlood { bytes: self.bytes as u16 },
                };
                let crowd = Crowd::new(self.server(), kind, start_ns);
                scenario.add(Crowd { requests, gap_ns, ..crowd });
            }
            Kind::Stream { tcp, at_random, burst, burst_gap_ns, one_client, flow_label } => {
                scenario.add(Uniform {
                    flows: self.flows,
                    packets_per_flow: requests.div_ceil(self.flows),
                    server: match flow_label {
                        Some(_) => SocketAddr::new(IpAddr::V6(SERVER6), self.port),
                        None => self.server(),
                    },
                    flow_label: flow_label.unwrap_or(0),
                    first_client: number * 7_340_033,
                    one_client,
                    tcp,
                    payload_bytes: self.bytes as u16,
                    start_ns,
                    gap_ns,
                    burst: burst.into(),
                    burst_gap_ns: burst_gap_ns.into(),
                    turns: if at_random { Turns::Random } else { Turns::RoundRobin },
                    ..Uniform::default()
                });
            }
            Kind::Tunnel(tunnel) => {
                scenario.add(Tunnelled {
                    flows: self.flows,
                    packets: requests,
                    payload_bytes: self.bytes as u16,
                    start_ns,
                    gap_ns,
                    ..Tunnelled::new(tunnel)
                });
            }
            Kind::IdleTcp | Kind::Tcp | Kind::Udp | Kind::Quic { .. } => {
                self.conversations(scenario, Rng::new(seed, 1 << 32 | number), number);
            }
            // Driven by what the host reads, not by frames.
            Kind::RoundTrips { .. } => {}
        }
    }

    /// Returns its round trips, if it is of that kind.
    pub(super) fn round_trips(&self, number: u64) -> Option<RoundTrips> {
        let Kind::RoundTrips { tcp, round_trip_ns, window, clients } = self.kind else {
            return None;
        };
        let frame = |flow: u64| {
            let client = uniform_client(flow + number * 7_340_033);
            let (src, dst) = (client.port(), self.port);
            let transport = if tcp {
                let flags = TcpFlags { ack: true, psh: true, ..TcpFlags::default() };
                Layer::Tcp(Tcp { src, dst, seq: 1, ack: 1, flags })
            } else {
                Layer::Udp { src, dst, checksum: true }
            };
            let ip = Flow::new(client, self.server()).ip(false, 1);
            let payload = vec![0; (self.bytes as usize).max(1)];
            packet(&[Layer::Ethernet { back: false }, ip, transport], &payload)
        };
        Some(RoundTrips {
            frames: (0..self.flows).map(frame).collect(),
            round_trip_ns,
            window,
            clients,
            link_gap_ns: 1_000_000_000u64.checked_div(self.per_second).unwrap_or(0),
        })
    }

    /// Returns the CPU of its clients, if they are on the host.
    pub(super) const fn client_cpu(&self) -> Option<CpuId> {
        match self.kind {
            Kind::RoundTrips { clients: Some(Clients { cpu, .. }), .. } => Some(cpu),
            _ => None,
        }
    }

    fn requests(&self) -> u64 {
        let sent = u128::from(self.per_second) * u128::from(self.span_ns()) / 1_000_000_000;
        u64::try_from(sent).unwrap_or(u64::MAX).max(1)
    }

    fn conversations(&self, scenario: &mut Scenario, mut rng: Rng, number: u64) {
        // Time between two requests of one flow; flows start anywhere within the first.
        let gap_ns = match self.kind {
            Kind::IdleTcp => self.span_ns(),
            _ => (u128::from(self.flows) * 1_000_000_000 / u128::from(self.per_second.max(1)))
                .try_into()
                .unwrap_or(u64::MAX),
        }
        .clamp(2, 1 << 40);
        let per_flow = (self.requests() / self.flows).clamp(1, u64::from(u32::MAX)) as u32;
        for flow in 0..self.flows {
            let start_ns = EPOCH_NS + self.start_ns + rng.below(gap_ns.min(self.span_ns()));
            // Clients of different traffic have different ports: 2^22 apart.
            let client = uniform_client(flow + number * 7_340_033);
            let flow = Flow::new(client, self.server());
            match self.kind {
                Kind::IdleTcp | Kind::Tcp => {
                    let idle = self.kind == Kind::IdleTcp;
                    let conversation = TcpConversation::new(flow, start_ns);
                    scenario.add(TcpConversation {
                        requests: if idle { 1 } else { per_flow },
                        request_bytes: self.bytes,
                        response_bytes: self.response_bytes,
                        gap_ns,
                        close: false,
                        ..conversation
                    });
                }
                _ => {
                    let (payload, migrate_after) = match self.kind {
                        Kind::Quic { migrate_after } => (Payload::Quic, migrate_after),
                        _ => (Payload::Zeros, 0),
                    };
                    let conversation = UdpConversation::new(flow, start_ns);
                    scenario.add(UdpConversation {
                        requests: per_flow,
                        request_bytes: self.bytes,
                        response_bytes: self.response_bytes,
                        gap_ns,
                        payload,
                        migrate_after,
                        ..conversation
                    });
                }
            }
        }
    }
}

/// Refuses traffic whose packets or senders are more than a run may have.
pub(super) fn check_size(
    source: Source<'_>,
    given: &Spanned<TrafficFile>,
    traffic: &Traffic,
) -> Result<(), ConfigError> {
    let packets = traffic.packets();
    if packets > Limits::MOST_PACKETS {
        let message = format!(
            "about {packets} packets in one run: allowed are {}; make it shorter or slower",
            Limits::MOST_PACKETS
        );
        return Err(source.refuse(given, message));
    }
    Ok(())
}
