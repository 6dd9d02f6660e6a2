//! Frames, sockets and consumers for the tests of the stages and of the executors.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use etherparse::PacketBuilder;
use rxsteer_core::CpuId;
use rxsteer_core::cpu::CpuStates;
use rxsteer_sockets::Config;
use rxsteer_sockets::queue::{BufferPool, Limits};

use super::*;
use crate::ReaderId;
use crate::virtual_time::Topology;

/// The address of the host.
pub(crate) const HERE: [u8; 4] = [192, 0, 2, 1];

/// Buffers without end.
pub(crate) fn pool() -> BufferPool {
    BufferPool::new(u64::MAX, 1 << 20)
}

/// Returns the remote end of a flow.
pub(crate) fn peer(flow: u32) -> SocketAddr {
    let [_, b, c, d] = flow.to_be_bytes();
    SocketAddr::from(([198, 51 + b, 100 + c, d], 10_000 + (flow % 50_000) as u16))
}

pub(crate) fn here(port: u16) -> SocketAddr {
    SocketAddr::from((HERE, port))
}

/// Makes a frame of a datagram between two ends of one family.
pub(crate) fn bytes(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => panic!("two families"),
    };
    let mut frame = Vec::new();
    builder.udp(from.port(), to.port()).write(&mut frame, payload).unwrap();
    frame
}

/// Makes a frame of flow `flow` to a port of this host; the payload begins with its number.
pub(crate) fn numbered(
    pool: &BufferPool,
    flow: u32,
    port: u16,
    number: u32,
    payload_len: usize,
) -> Frame {
    let mut payload = vec![0xa5; payload_len.max(8)];
    payload[..4].copy_from_slice(&flow.to_be_bytes());
    payload[4..8].copy_from_slice(&number.to_be_bytes());
    let bytes = bytes(peer(flow), here(port), &payload);
    Frame::new(pool.copy(&bytes).unwrap(), u64::from(number))
}

/// Reads flow and number of a payload made by [`numbered`], and checks the rest of it.
pub(crate) fn number_of(payload: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(*payload[at..].first_chunk::<4>().unwrap());
    assert!(payload[8..].iter().all(|byte| *byte == 0xa5));
    (word(0), word(4))
}

/// CPUs that share a cache, and the CPU of each queue.
pub(crate) fn topology(cpus: u16, irq_cpus: &[u16]) -> Topology {
    Topology {
        cpus: CpuStates::all(u32::from(cpus)),
        cache_numbers: vec![0; usize::from(cpus)],
        irq_cpus: irq_cpus.iter().copied().map(CpuId).collect(),
    }
}

pub(crate) fn plane(settings: PlaneSettings) -> Arc<Plane> {
    Arc::new(Plane::new(&settings))
}

/// Sockets with as many readers as CPUs are given.
pub(crate) fn sockets(plane: &Arc<Plane>, readers: &[u16]) -> Arc<Sockets> {
    let readers: Vec<_> = readers.iter().copied().map(CpuId).collect();
    Arc::new(Sockets::new(Config { key: (1, 2), ..Config::default() }, plane, &readers, pool()))
}

/// Settings of a socket that never has too little room.
pub(crate) fn roomy(port: u16, reader: u32) -> SocketSettings {
    SocketSettings {
        reader: ReaderId(reader),
        limits: Limits::bytes(u32::MAX),
        ..SocketSettings::bound(here(port))
    }
}
