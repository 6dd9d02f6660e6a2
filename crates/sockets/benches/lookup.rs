//! Which socket gets a packet: look-ups at growing numbers of sockets, beside peers and floors.
//!
//! ```text
//! cargo bench -p rxsteer-sockets --bench lookup
//! ```
//! `lookup/connected/N` has N connected sockets on one address and port and takes packets for them
//! in a random order, in bursts of 32. `two_tables` is the same without the 4-tuple table: sockets
//! that reconnected under Linux's rules are found by scoring only. `papaya` and `hashbrown` are maps
//! of 4-tuples to a number: what a caller would have without any of the rules. All of them make the
//! packets of a burst as they go, so that all sockets are met; `loop` does nothing else.
//! Bytes of a socket are the growth of this process. Times are of the CPU.
#![expect(clippy::print_stdout, reason = "a bench that prints what it measures")]

mod many;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use many::{ANY, Clients, SERVER, connect, cpu_time, open, packet, resident};
use rxsteer_sockets::{Config, Family, Namespace, Owner, Packet, Profile};

const BURST: usize = 32;

/// Measures by CPU time of this thread: other work on the machine disturbs it less than the time that
/// passes.
fn time<T>(bench: &mut Bencher<'_>, mut what: impl FnMut() -> T) {
    bench.iter_custom(|times| {
        let begin = cpu_time();
        (0..times).for_each(|_| drop(black_box(what())));
        cpu_time() - begin
    });
}

fn connected(count: u32, profile: Profile) -> Namespace {
    let ns = Namespace::new(&Config { profile, key: (1, 2), ..Config::default() });
    open(&ns, ANY, true);
    for number in 0..count {
        let socket = open(&ns, SERVER, true);
        if profile == Profile::Linux {
            // The first connection is where it stays filed.
            connect(&ns, socket, u32::MAX >> 8);
        }
        connect(&ns, socket, number);
    }
    ns
}

fn bursts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    group.throughput(Throughput::Elements(BURST as u64)).measurement_time(Duration::from_secs(2));
    group.warm_up_time(Duration::from_millis(500)).sample_size(20);
    for count in [1, 10, 1000, 100_000, 1_000_000] {
        let mut clients = Clients::among(count);
        let mut burst = move || -> [Packet<'static>; BURST] {
            black_box(std::array::from_fn(|_| clients.packet()))
        };
        let name = |form: &str| BenchmarkId::new(form, count);
        let mut found = [None; BURST];

        group.bench_function(name("loop"), |bench| {
            time(bench, &mut burst);
        });
        let before = resident();
        let ns = connected(count, Profile::Rxsteer);
        let bytes = resident().saturating_sub(before);
        if count >= 100_000 {
            println!("{count} connected sockets: {} bytes each", bytes / count as usize);
        }
        group.bench_function(name("connected"), |bench| {
            time(bench, || {
                ns.lookup_burst(&burst(), &mut found);
                black_box(found[BURST - 1])
            });
        });
        group.bench_function(name("connected_one_by_one"), |bench| {
            time(bench, || burst().iter().filter_map(|p| ns.lookup(p)).map(black_box).count());
        });
        assert!(burst().iter().all(|p| ns.lookup(p).is_some_and(|found| found.connected)));
        drop(ns);
        if count <= 1000 {
            let ns = connected(count, Profile::Linux);
            group.bench_function(name("two_tables"), |bench| {
                time(bench, || {
                    ns.lookup_burst(&burst(), &mut found);
                    black_box(found[BURST - 1])
                });
            });
        }

        let key = |p: &Packet<'_>| (p.src, p.src_port, p.dst, p.dst_port);
        let ends = (0..count).map(|number| (key(&packet(number)), number));
        let map: HashMap<_, _, foldhash::fast::RandomState> = ends.clone().collect();
        group.bench_function(name("hashbrown"), |bench| {
            time(bench, || burst().iter().map(|p| u64::from(map[&key(p)])).sum::<u64>());
        });
        drop(map);
        let map: papaya::HashMap<_, _, foldhash::fast::RandomState> = ends.collect();
        group.bench_function(name("papaya"), |bench| {
            time(bench, || {
                let map = map.pin();
                let sum = |p: &Packet<'_>| map.get(&key(p)).map_or(0, |n| u64::from(*n));
                burst().iter().map(sum).sum::<u64>()
            });
        });
    }
    group.finish();
}

/// A packet for an unconnected socket: alone, beside others, and while others come and go.
fn unconnected(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("unconnected");
    group.measurement_time(Duration::from_secs(2)).sample_size(20);
    let one = packet(5);
    let plain = |local| {
        let ns = Namespace::new(&Config::default());
        let socket = ns.open(Family::V4, Owner(0)).expect("below the limit");
        ns.bind(socket, local, 4433).expect("a free port");
        ns
    };
    for (name, local) in [("address", SERVER), ("wildcard", ANY)] {
        let ns = plain(local);
        group.bench_function(name, |bench| time(bench, || ns.lookup(black_box(&one))));
    }
    let ns = Namespace::new(&Config::default());
    for _ in 0..8 {
        open(&ns, ANY, true);
    }
    group.bench_function("group_of_8", |bench| time(bench, || ns.lookup(black_box(&one))));
    let ns = connected(1000, Profile::Rxsteer);
    let stranger = packet(5000);
    let name = "beside_1000_connected";
    group.bench_function(name, |bench| time(bench, || ns.lookup(black_box(&stranger))));

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let socket = open(&ns, SERVER, true);
                connect(&ns, socket, 9000);
                ns.close(socket).expect("an open socket");
            }
        });
        let name = "while_others_bind_connect_and_close";
        group.bench_function(name, |bench| time(bench, || ns.lookup(black_box(&stranger))));
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
            time(bench, || {
                let socket = open(&ns, SERVER, true);
                connect(&ns, socket, count + 1);
                ns.close(socket).expect("an open socket");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bursts, unconnected, operations);
criterion_main!(benches);
