//! Which socket gets a packet: look-ups at growing numbers of sockets, beside peers and floors.
//!
//! ```text
//! cargo bench -p rxsteer-sockets --bench lookup
//! ```
//! `lookup/connected/N` has N connected sockets on one address and port and takes packets for them
//! in a random order, in bursts of 32. `two_tables` is the same without the 4-tuple table: sockets
//! that reconnected under Linux's rules are found by scoring only. `papaya` and `hashbrown` are maps
//! of 4-tuples to a number: what a caller would have without any of the rules. `loop` does nothing.
//! Bytes of a socket are the growth of this process.
#![expect(clippy::print_stdout, reason = "a bench that prints what it measures")]

use std::collections::HashMap;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rxsteer_core::CpuId;
use rxsteer_sockets::{
    Cast, Config, DeviceId, Family, Namespace, Owner, Packet, Profile, SocketId, SocketOption,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const BURST: usize = 32;

/// Returns the memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// Returns the remote end of a connection: 1,024 ports of as many addresses as need be.
fn remote(number: u32) -> (IpAddr, u16) {
    let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + number / 1024));
    (address, 10_000 + (number % 1024) as u16)
}

fn packet((src, src_port): (IpAddr, u16)) -> Packet<'static> {
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

fn open(ns: &Namespace, local: IpAddr) -> SocketId {
    let socket = ns.open(Family::V4, Owner(0)).expect("below the limit");
    ns.set(socket, SocketOption::ReusePort(true)).expect("an open socket");
    ns.bind(socket, local, 4433).expect("a shared port");
    socket
}

fn connect(ns: &Namespace, socket: SocketId, number: u32) {
    let (to, port) = remote(number);
    ns.connect(socket, to, port, SERVER).expect("an open socket");
}

fn connected(count: u32, profile: Profile) -> Namespace {
    let ns = Namespace::new(&Config { profile, key: (1, 2), ..Config::default() });
    open(&ns, ANY);
    for number in 0..count {
        let socket = open(&ns, SERVER);
        if profile == Profile::Linux {
            // The first connection is where it stays filed.
            connect(&ns, socket, u32::MAX >> 8);
        }
        connect(&ns, socket, number);
    }
    ns
}

/// Packets of `count` connections in an order that no prefetcher foresees.
fn packets(count: u32) -> Vec<Packet<'static>> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) as u32) % count
    };
    (0..(1 << 16)).map(|_| packet(remote(next()))).collect()
}

fn bursts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    group.throughput(Throughput::Elements(BURST as u64)).measurement_time(Duration::from_secs(2));
    group.warm_up_time(Duration::from_millis(500)).sample_size(20);
    for count in [1, 10, 1000, 100_000, 1_000_000] {
        let packets = packets(count);
        let mut at = 0;
        let mut burst = move || {
            at = (at + BURST) % packets.len();
            at
        };
        let all = self::packets(count);
        let name = |form: &str| BenchmarkId::new(form, count);
        let mut found = [None; BURST];

        group.bench_function(name("loop"), |bench| {
            bench.iter(|| all[burst()..][..BURST].iter().map(|p| p.src_port as u64).sum::<u64>());
        });
        let before = resident();
        let ns = connected(count, Profile::Rxsteer);
        let bytes = resident().saturating_sub(before);
        if count >= 100_000 {
            println!("{count} connected sockets: {} bytes each", bytes / count as usize);
        }
        group.bench_function(name("connected"), |bench| {
            bench.iter(|| {
                ns.lookup_burst(black_box(&all[burst()..][..BURST]), &mut found);
                black_box(found[BURST - 1])
            });
        });
        group.bench_function(name("connected_one_by_one"), |bench| {
            bench.iter(|| {
                all[burst()..][..BURST].iter().filter_map(|p| ns.lookup(p)).map(black_box).count()
            });
        });
        assert!(all.iter().all(|p| ns.lookup(p).is_some_and(|found| found.connected)));
        drop(ns);
        if count <= 1000 {
            let ns = connected(count, Profile::Linux);
            group.bench_function(name("two_tables"), |bench| {
                bench.iter(|| {
                    ns.lookup_burst(black_box(&all[burst()..][..BURST]), &mut found);
                    black_box(found[BURST - 1])
                });
            });
        }

        let key = |p: &Packet<'_>| (p.src, p.src_port, p.dst, p.dst_port);
        let ends = (0..count).map(|number| (key(&packet(remote(number))), number));
        let map: HashMap<_, _, foldhash::fast::RandomState> = ends.clone().collect();
        group.bench_function(name("hashbrown"), |bench| {
            bench.iter(|| {
                all[burst()..][..BURST].iter().map(|p| u64::from(map[&key(p)])).sum::<u64>()
            });
        });
        drop(map);
        let map: papaya::HashMap<_, _, foldhash::fast::RandomState> = ends.collect();
        group.bench_function(name("papaya"), |bench| {
            bench.iter(|| {
                let map = map.pin();
                let sum = |p: &Packet<'_>| map.get(&key(p)).map_or(0, |n| u64::from(*n));
                all[burst()..][..BURST].iter().map(sum).sum::<u64>()
            });
        });
    }
    group.finish();
}

/// A packet for an unconnected socket: alone, beside others, and while others come and go.
fn unconnected(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("unconnected");
    group.measurement_time(Duration::from_secs(2)).sample_size(20);
    let one = packet(remote(5));
    let plain = |local| {
        let ns = Namespace::new(&Config::default());
        let socket = ns.open(Family::V4, Owner(0)).expect("below the limit");
        ns.bind(socket, local, 4433).expect("a free port");
        ns
    };
    for (name, local) in [("address", SERVER), ("wildcard", ANY)] {
        let ns = plain(local);
        group.bench_function(name, |bench| bench.iter(|| ns.lookup(black_box(&one))));
    }
    let ns = Namespace::new(&Config::default());
    for _ in 0..8 {
        open(&ns, ANY);
    }
    group.bench_function("group_of_8", |bench| bench.iter(|| ns.lookup(black_box(&one))));
    let ns = connected(1000, Profile::Rxsteer);
    let stranger = packet(remote(5000));
    let name = "beside_1000_connected";
    group.bench_function(name, |bench| bench.iter(|| ns.lookup(black_box(&stranger))));

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let socket = open(&ns, SERVER);
                connect(&ns, socket, 9000);
                ns.close(socket).expect("an open socket");
            }
        });
        let name = "while_others_bind_connect_and_close";
        group.bench_function(name, |bench| bench.iter(|| ns.lookup(black_box(&stranger))));
        stop.store(true, Ordering::Relaxed);
    });
    group.finish();
}

/// One socket more among many: opened, bound, connected and closed.
fn operations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("operations");
    group.measurement_time(Duration::from_secs(2)).sample_size(20);
    for count in [0, 100_000] {
        let ns = connected(count, Profile::Rxsteer);
        let name = BenchmarkId::new("bind_connect_close_beside", count);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let socket = open(&ns, SERVER);
                connect(&ns, socket, count + 1);
                ns.close(socket).expect("an open socket");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bursts, unconnected, operations);
criterion_main!(benches);
