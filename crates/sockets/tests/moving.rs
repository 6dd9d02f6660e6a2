//! Look-ups on some threads while others move sockets: each packet reaches the old owner or the
//! new one, never nobody and never a third.
//!
//! Bounded by time, since what two cores interleave cannot be foreseen.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rxsteer_core::CpuId;
use rxsteer_sockets::{
    Cast, Config, DeviceId, Family, Namespace, Owner, Packet, Profile, SocketId, SocketOption,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const RUN: Duration = Duration::from_millis(700);

fn packet(src_port: u16) -> Packet<'static> {
    Packet {
        src: CLIENT,
        src_port,
        dst: SERVER,
        dst_port: 53,
        device: DeviceId(1),
        cpu: CpuId(0),
        cast: Cast::Unicast,
        from_this_host: true,
        payload: &[],
    }
}

fn socket(ns: &Namespace, local: IpAddr, option: SocketOption) -> SocketId {
    let socket = ns.open(Family::V4, Owner(0)).unwrap();
    ns.set(socket, option).unwrap();
    ns.bind(socket, local, 53).unwrap();
    socket
}

/// Runs `write` over and over on one thread and `read` on another; returns how often each ran.
fn race(write: impl Fn() + Send, read: impl Fn() + Send) -> (u64, u64) {
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut reads = 0;
            while !stop.load(Ordering::Relaxed) {
                read();
                reads += 1;
            }
            reads
        });
        let start = Instant::now();
        let mut writes = 0;
        while start.elapsed() < RUN && !reader.is_finished() {
            write();
            writes += 1;
        }
        stop.store(true, Ordering::Relaxed);
        (writes, reader.join().expect("the reader found every packet's owner"))
    })
}

#[test]
fn a_socket_that_connects_and_disconnects_is_found_at_every_instant() {
    for profile in [Profile::Rxsteer, Profile::Linux] {
        for local in [ANY, SERVER] {
            let ns = Namespace::new(&Config { profile, ..Config::default() });
            // A third that would get the packet if the first were missed.
            let third = ns.open(Family::V6, Owner(0)).unwrap();
            ns.set(third, SocketOption::ReuseAddr(true)).unwrap();
            ns.bind(third, "::".parse().unwrap(), 53).unwrap();
            let moving = socket(&ns, local, SocketOption::ReuseAddr(true));
            let (writes, reads) = race(
                || {
                    ns.connect(moving, CLIENT, 7000, SERVER).unwrap();
                    ns.disconnect(moving).unwrap();
                },
                || assert_eq!(ns.lookup(&packet(7000)).map(|found| found.socket), Some(moving)),
            );
            assert!(writes > 10 && reads > 10, "{writes} moves, {reads} look-ups");
        }
    }
}

#[test]
fn a_connection_handed_from_socket_to_socket_is_never_unowned() {
    let ns = Namespace::new(&Config::default());
    let listener = socket(&ns, ANY, SocketOption::ReusePort(true));
    let connect = || {
        let socket = socket(&ns, SERVER, SocketOption::ReusePort(true));
        ns.connect(socket, CLIENT, 7000, SERVER).unwrap();
        socket
    };
    let current = AtomicU64::new(0);
    let number = |id: SocketId| u64::from(id.generation) << 32 | u64::from(id.index);
    current.store(number(connect()), Ordering::SeqCst);
    let (writes, reads) = race(
        || {
            let old = current.load(Ordering::SeqCst);
            current.store(number(connect()), Ordering::SeqCst);
            let old = SocketId { index: old as u32, generation: (old >> 32) as u32 };
            ns.close(old).unwrap();
        },
        || {
            let found = ns.lookup(&packet(7000)).map(|found| found.socket);
            // Between bind and connect the next owner takes what comes to its address.
            assert!(found.is_some_and(|found| found != listener), "{found:?}");
        },
    );
    assert!(writes > 10 && reads > 10, "{writes} hand-overs, {reads} look-ups");
}

#[test]
fn no_packet_reaches_a_socket_of_another_connection_while_tables_grow_and_records_are_reused() {
    let flows: u16 = if rxsteer_sockets::HASH4 { 3000 } else { 60 };
    let ns = Namespace::new(&Config { connected_capacity: 1, ..Config::default() });
    let listener = socket(&ns, ANY, SocketOption::ReusePort(true));
    // By place of a socket: its generation and the port of its only connection.
    let owners: Vec<AtomicU64> = (0..=usize::from(flows)).map(|_| AtomicU64::new(0)).collect();
    let open: Vec<AtomicU64> = (0..flows).map(|_| AtomicU64::new(0)).collect();
    let round = AtomicU64::new(0);
    let (writes, reads) = race(
        || {
            // Fills up and empties in an order that jumps about.
            let round = round.fetch_add(1, Ordering::Relaxed);
            let flow = (round * 7919 % u64::from(flows)) as u16;
            let slot = &open[usize::from(flow)];
            match slot.load(Ordering::Relaxed) {
                0 => {
                    let id = socket(&ns, SERVER, SocketOption::ReusePort(true));
                    let owner = u64::from(id.generation) << 32 | u64::from(flow) << 1 | 1;
                    owners[id.index as usize].store(owner, Ordering::SeqCst);
                    ns.connect(id, CLIENT, 1000 + flow, SERVER).unwrap();
                    let id = u64::from(id.generation) << 32 | u64::from(id.index);
                    slot.store(id | 1 << 63, Ordering::Relaxed);
                }
                id => {
                    let generation = (id >> 32) as u32 & (u32::MAX >> 1);
                    ns.close(SocketId { index: id as u32, generation }).unwrap();
                    slot.store(0, Ordering::Relaxed);
                }
            }
        },
        || {
            let flow = (round.load(Ordering::Relaxed) * 104_729 % u64::from(flows)) as u16;
            let found = ns.lookup(&packet(1000 + flow)).expect("the listener takes all");
            if !found.connected {
                return; // the listener, or one between its bind and its connect
            }
            assert_ne!(found.socket, listener);
            let owner = owners[found.socket.index as usize].load(Ordering::SeqCst);
            if (owner >> 32) as u32 == found.socket.generation {
                assert_eq!((owner as u32 >> 1) as u16, flow, "{found:?}");
            }
        },
    );
    assert!(writes > 10 && reads > 10, "{writes} changes, {reads} look-ups");
}
