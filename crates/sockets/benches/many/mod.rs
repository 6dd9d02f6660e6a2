//! What the benches of many sockets share: connected sockets on one port, and packets for random ones.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rxsteer_core::CpuId;
use rxsteer_sockets::{Cast, DeviceId, Family, Namespace, Owner, Packet, SocketId, SocketOption};

pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
pub(crate) const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Opens a socket and binds it to the port of all.
pub(crate) fn open(ns: &Namespace, local: IpAddr, share: bool) -> SocketId {
    let socket = ns.open(Family::V4, Owner(0)).expect("below the limit");
    ns.set(socket, SocketOption::ReusePort(share)).expect("an open socket");
    ns.bind(socket, local, 4433).expect("a shared port");
    socket
}

/// Connects a socket to the client of this number.
pub(crate) fn connect(ns: &Namespace, socket: SocketId, number: u32) {
    let (to, port) = remote(number);
    ns.connect(socket, to, port, SERVER).expect("an open socket");
}

/// Returns the remote end of a connection: 1,024 ports of as many addresses as need be.
pub(crate) fn remote(number: u32) -> (IpAddr, u16) {
    let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + number / 1024));
    (address, 10_000 + (number % 1024) as u16)
}

/// Returns a packet from the client of this number.
pub(crate) fn packet(number: u32) -> Packet<'static> {
    let (src, src_port) = remote(number);
    Packet {
        src,
        src_port,
        dst: SERVER,
        dst_port: 4433,
        device: DeviceId(1),
        cpu: CpuId(0),
        cast: Cast::Unicast,
        from_this_host: true,
        payload: &[],
    }
}

/// Clients in an order that no prefetcher foresees, the same in each run.
pub(crate) struct Clients {
    state: u64,
    count: u32,
}

impl Clients {
    /// Among so many.
    pub(crate) fn among(count: u32) -> Self {
        Self { state: 1, count }
    }

    /// Returns a packet from the next one.
    pub(crate) fn packet(&mut self) -> Packet<'static> {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        packet((self.state >> 33) as u32 % self.count)
    }
}

/// Returns the memory of this process in bytes.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// Returns for how long this thread had a CPU. From a file, since Valgrind has no other clock of it
/// that rustix could ask.
pub(crate) fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}
