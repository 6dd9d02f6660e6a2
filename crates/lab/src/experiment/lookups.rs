//! Experiments on finding the socket: what a look-up reads as sockets on one port grow, and who gets
//! the packets of clients that move.
//!
//! What is counted is deterministic: cache lines and candidates read. A rate is made of it by two
//! costs that the file states: of a packet without its look-up, and of one thing that a look-up reads.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;

use rxsteer_core::CpuId;
use rxsteer_sockets::{
    Cast, Config, ConnectionIdRule, DeviceId, Family, KernelRelease, Namespace, Owner, Packet,
    Profile, Selector, SocketError, SocketId, SocketOption,
};
use toml::Spanned;

use super::file::LookupsFile;
use crate::config::{ConfigError, Source};
use crate::generate::Rng;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const PORT: u16 = 443;

/// Most sockets with two tables: a list of candidates is made anew for each that is added.
const MOST_IN_TWO_TABLES: u32 = 10_000;

/// Bytes of memory of a socket, about, its record and its list included.
const SOCKET_BYTES: u64 = 500;

/// Look-ups between two looks at whether to stop.
const BATCH: u64 = 1 << 12;

/// How sockets are found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Variant {
    /// By port, and by address and port: Linux before 6.13.
    TwoTables,
    /// Connected ones by 4-tuple too.
    ThreeTables,
    /// Members of a group by hash of the 4-tuple.
    ByHash,
    /// Members of a group by the connection id of QUIC.
    ByConnectionId,
}

impl Variant {
    pub(super) const ALL: [Self; 4] =
        [Self::TwoTables, Self::ThreeTables, Self::ByHash, Self::ByConnectionId];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::TwoTables => "two-tables",
            Self::ThreeTables => "three-tables",
            Self::ByHash => "by-hash",
            Self::ByConnectionId => "by-connection-id",
        }
    }
}

/// A checked experiment on look-ups.
#[derive(Clone, Debug)]
pub(super) struct Lookups {
    pub(super) variants: Vec<Variant>,
    connected: u32,
    unconnected: u32,
    pub(super) packets: u64,
    to_connected: bool,
    migrate_after: u32,
    packet_ns: f64,
    touch_ns: f64,
}

pub(super) fn check(
    source: Source<'_>,
    file: &LookupsFile,
    names: &Spanned<Vec<Spanned<String>>>,
) -> Result<Lookups, ConfigError> {
    let number = |given: &Option<Spanned<u32>>, least: u32, most: u32, otherwise: u32| match given {
        None => Ok(otherwise),
        Some(n) if (least..=most).contains(n.get_ref()) => Ok(*n.get_ref()),
        Some(n) => Err(source.refuse(n, format!("{}: allowed are {least} to {most}", n.get_ref()))),
    };
    let connected = number(&file.connected, 0, 1 << 21, 0)?;
    let unconnected = number(&file.unconnected, 0, 4096, 1)?;
    let to_connected = match &file.to {
        None => connected > 0,
        Some(text) => match text.get_ref().as_str() {
            "connected" if connected == 0 => {
                return Err(source.refuse(text, "there are no connected sockets"));
            }
            "connected" => true,
            "unconnected" if unconnected == 0 => {
                return Err(source.refuse(text, "there are no unconnected sockets"));
            }
            "unconnected" => false,
            other => {
                let message = format!("`{other}`: allowed are connected, unconnected");
                return Err(source.refuse(text, message));
            }
        },
    };
    let mut variants = Vec::new();
    for name in names.get_ref() {
        let Some(variant) = Variant::ALL.into_iter().find(|v| v.name() == name.get_ref()) else {
            let allowed = Variant::ALL.map(Variant::name).join(", ");
            let message = format!("`{}`: of look-ups: allowed are {allowed}", name.get_ref());
            return Err(source.refuse(name, message));
        };
        let of_group = matches!(variant, Variant::ByHash | Variant::ByConnectionId);
        if of_group && (to_connected || unconnected == 0) {
            return Err(source.refuse(name, "chooses among unconnected sockets"));
        }
        if variant != Variant::TwoTables || connected <= MOST_IN_TWO_TABLES {
            variants.push(variant);
        }
    }
    let cost = |given: &Option<Spanned<f64>>, otherwise: f64| match given {
        None => Ok(otherwise),
        Some(n) if n.get_ref().is_finite() && (0.0..=1e9).contains(n.get_ref()) => Ok(*n.get_ref()),
        Some(n) => Err(source.refuse(n, "allowed are 0 to 1000000000 ns")),
    };
    Ok(Lookups {
        variants,
        connected,
        unconnected,
        packets: u64::from(number(&file.packets, 1, 10_000_000, 10_000)?),
        to_connected,
        migrate_after: number(&file.migrate_after, 0, 1 << 20, 0)?,
        packet_ns: cost(&file.packet_ns, 850.0)?,
        touch_ns: cost(&file.touch_ns, 10.0)?,
    })
}

/// What one variant came to.
pub(super) struct Outcome {
    pub(super) variant: Variant,
    pub(super) adds_up: bool,
    pub(super) measures: BTreeMap<String, f64>,
}

/// The remote end of connection `number`: 1,024 ports of as many addresses as need be.
fn remote(number: u32) -> (IpAddr, u16) {
    let address = IpAddr::V4(Ipv4Addr::from_bits(0xc612_0000 + number / 1024));
    (address, 10_000 + (number % 1024) as u16)
}

impl Lookups {
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.connected + self.unconnected) * SOCKET_BYTES
    }

    /// Runs all variants; `None` if it was stopped.
    pub(super) fn run(
        &self,
        seed: u64,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<Vec<Outcome>>, SocketError> {
        let mut outcomes = Vec::new();
        for variant in &self.variants {
            match self.variant(*variant, seed, progress)? {
                Some(outcome) => outcomes.push(outcome),
                None => return Ok(None),
            }
        }
        Ok(Some(outcomes))
    }

    fn variant(
        &self,
        variant: Variant,
        seed: u64,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<Outcome>, SocketError> {
        let profile = match variant {
            Variant::TwoTables => Profile::LinuxOf(KernelRelease(6, 12, 0)),
            _ => Profile::Rxsteer,
        };
        let ns = Namespace::new(&Config {
            profile,
            key: (seed, seed.rotate_left(32)),
            connected_capacity: self.connected as usize,
            ..Config::default()
        });
        let Some((connected, group)) = self.open(&ns, variant, progress)? else { return Ok(None) };
        let mut rng = Rng::new(seed, 0x6c6f_6f6b);
        let mut counts = Counts::default();
        let members = group.len().max(1) as u64;
        for number in 0..self.packets {
            if number % BATCH == 0 && progress(number).is_break() {
                return Ok(None);
            }
            let clients = if self.to_connected { self.connected } else { 1024 };
            let connection = rng.below(u64::from(clients)) as u32;
            // A client that moved has another port; its connection id stays.
            let moved = self.migrate_after > 0
                && rng.below(u64::from(self.migrate_after) * 2) >= u64::from(self.migrate_after);
            let (src, port) = remote(connection);
            let src_port = match (self.to_connected, moved) {
                (true, _) => port,
                (false, false) => port - 5000,
                (false, true) => port + 20_000,
            };
            let worker = (u64::from(connection) % members) as u8;
            let payload = [0x40, worker, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0];
            let packet = packet(src, src_port, &payload);
            let found = ns.lookup(&packet);
            let walk = ns.walk(&packet);
            counts.touches += u64::from(walk.buckets + walk.records + walk.lists + walk.candidates);
            // The slot of the address says whether there are connected sockets.
            counts.touches += u64::from(variant != Variant::TwoTables);
            counts.candidates += u64::from(walk.candidates);
            let Some(found) = found else {
                counts.nobody += 1;
                continue;
            };
            counts.found += 1;
            if self.to_connected {
                counts.right += u64::from(found.socket == connected[connection as usize]);
                continue;
            }
            counts.right += u64::from(group.contains(&found.socket));
            if moved {
                counts.moved += 1;
                // Whoever got the client's packets before it moved owns the connection.
                let before = self::packet(src, port - 5000, &payload);
                let owner = ns.lookup(&before).map(|found| found.socket);
                counts.kept += u64::from(owner == Some(found.socket));
            }
        }
        Ok(Some(Outcome {
            variant,
            adds_up: counts.found + counts.nobody == self.packets,
            measures: self.measures(&counts),
        }))
    }

    /// Opens the sockets; `None` if it was stopped.
    #[expect(clippy::type_complexity, reason = "both lists, or neither")]
    fn open(
        &self,
        ns: &Namespace,
        variant: Variant,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<(Vec<SocketId>, Vec<SocketId>)>, SocketError> {
        let open = |address| {
            let socket = ns.open(Family::V4, Owner(0))?;
            ns.set(socket, SocketOption::ReusePort(true))?;
            ns.bind(socket, address, PORT)?;
            Ok::<_, SocketError>(socket)
        };
        let group: Vec<SocketId> =
            (0..self.unconnected).map(|_| open(ANY)).collect::<Result<_, _>>()?;
        if let (Variant::ByConnectionId, Some(first)) = (variant, group.first()) {
            let modulo = u8::try_from(group.len()).unwrap_or(0);
            let rule = ConnectionIdRule { id_len: 8, worker_at: 0, modulo };
            ns.select_by(*first, Selector::ConnectionId(rule))?;
        }
        let mut connected = Vec::with_capacity(self.connected as usize);
        for number in 0..self.connected {
            if u64::from(number) % BATCH == 0 && progress(0).is_break() {
                return Ok(None);
            }
            let socket = open(SERVER)?;
            let (address, port) = remote(number);
            ns.connect(socket, address, port, SERVER)?;
            connected.push(socket);
        }
        Ok(Some((connected, group)))
    }

    fn measures(&self, counts: &Counts) -> BTreeMap<String, f64> {
        let packets = self.packets as f64;
        let touches = counts.touches as f64 / packets;
        let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        let all = [
            ("lookups", packets),
            ("found", counts.found as f64),
            ("right_share", share(counts.right, self.packets)),
            ("touches_per_lookup", touches),
            ("candidates_per_lookup", counts.candidates as f64 / packets),
            ("modelled_per_s", 1e9 / (self.packet_ns + touches * self.touch_ns)),
            ("moved_lookups", counts.moved as f64),
            ("owner_kept", share(counts.kept, counts.moved)),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[derive(Default)]
struct Counts {
    touches: u64,
    candidates: u64,
    found: u64,
    nobody: u64,
    right: u64,
    moved: u64,
    kept: u64,
}

fn packet(src: IpAddr, src_port: u16, payload: &[u8]) -> Packet<'_> {
    Packet {
        src,
        src_port,
        dst: SERVER,
        dst_port: PORT,
        device: DeviceId(1),
        cpu: CpuId(0),
        cast: Cast::Unicast,
        // Early demultiplexing is another shortcut, which is not what is asked about here.
        from_this_host: true,
        payload,
    }
}
