//! Datagrams a second through a receive queue, beside channels that carry the same datagrams.
//!
//! `through`: producers on threads of their own, one reader that sleeps when there is nothing;
//! nothing is dropped. `alone`: one thread puts in and takes out, which is the cost of the operations
//! without contention. The channels know no limits in bytes, no counters and no credit.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rxsteer_sockets::queue::{Datagram, Limits, QueueContext, ReceiveQueue, Simulated};

const DATAGRAMS: u64 = 40_000;
const BURST: usize = 64;

type Item = Datagram<Simulated>;

fn datagram() -> Item {
    let peer = SocketAddr::from(([192, 0, 2, 1], 4433));
    Datagram::new(peer, [198, 51, 100, 7].into(), Simulated::new(20))
}

fn used(datagram: Item) {
    black_box(datagram);
}

fn queue() -> ReceiveQueue<Simulated> {
    ReceiveQueue::new(&Arc::new(QueueContext::default()), Limits::bytes(1 << 29))
}

/// Runs `produce(datagrams)` on each producer's thread and `read(datagrams)` here; returns the time
/// until all are read.
fn time(producers: u64, produce: impl Fn(u64) + Sync, read: impl FnOnce(u64)) -> Duration {
    std::thread::scope(|scope| {
        let begin = Instant::now();
        for _ in 0..producers {
            scope.spawn(|| produce(DATAGRAMS / producers));
        }
        read(DATAGRAMS);
        begin.elapsed()
    })
}

fn through(c: &mut Criterion) {
    let mut group = c.benchmark_group("through");
    group.throughput(Throughput::Elements(DATAGRAMS));
    for producers in [1, 4] {
        let id = |name: &str| BenchmarkId::new(name, format!("{producers}_producers"));
        let mut case = |name: &str, run: &dyn Fn() -> Duration| {
            group.bench_function(id(name), |b| {
                b.iter_custom(|times| (0..times).map(|_| run()).sum());
            });
        };
        case("queue/single", &|| {
            let queue = queue();
            let produce = |n| (0..n).for_each(|_| queue.push(datagram()).expect("room"));
            time(producers, produce, |n| {
                for _ in 0..n {
                    used(queue.recv_timeout(None).expect("open"));
                }
            })
        });
        case("queue/batch_64", &|| {
            let queue = queue();
            let produce = |n| (0..n).for_each(|_| queue.push(datagram()).expect("room"));
            time(producers, produce, |n| read_batches(&queue, n))
        });
        case("queue/burst_64_batch_64", &|| {
            let queue = queue();
            let produce = |n| push_bursts(&queue, n);
            time(producers, produce, |n| read_batches(&queue, n))
        });
        case("std_mpsc", &|| {
            let (sender, receiver) = mpsc::channel::<Item>();
            let produce = |n| (0..n).for_each(|_| sender.send(datagram()).expect("open"));
            time(producers, produce, |n| {
                for _ in 0..n {
                    used(receiver.recv().expect("open"));
                }
            })
        });
        case("crossbeam_channel", &|| {
            let (sender, receiver) = crossbeam_channel::unbounded::<Item>();
            let produce = |n| (0..n).for_each(|_| sender.send(datagram()).expect("open"));
            time(producers, produce, |n| {
                for _ in 0..n {
                    used(receiver.recv().expect("open"));
                }
            })
        });
    }
    group.finish();
}

fn push_bursts(queue: &ReceiveQueue<Simulated>, n: u64) {
    let mut burst = Vec::with_capacity(BURST);
    let mut left = n as usize;
    while left > 0 {
        burst.extend((0..BURST.min(left)).map(|_| datagram()));
        left -= burst.len();
        assert_eq!(queue.push_burst(&mut burst).buffer_full, 0);
    }
}

fn read_batches(queue: &ReceiveQueue<Simulated>, n: u64) {
    let mut left = n;
    while left > 0 {
        let batch = queue.recv_batch_timeout(BURST, None).expect("open");
        left -= batch.len() as u64;
        batch.for_each(used);
    }
}

fn alone(c: &mut Criterion) {
    let mut group = c.benchmark_group("alone");
    group.throughput(Throughput::Elements(BURST as u64));
    let queue = queue();
    group.bench_function("queue/one_by_one", |b| {
        b.iter(|| {
            for _ in 0..BURST {
                queue.push(datagram()).expect("room");
                used(queue.try_recv().expect("one waits"));
            }
        });
    });
    group.bench_function("queue/single", |b| {
        b.iter(|| {
            (0..BURST).for_each(|_| queue.push(datagram()).expect("room"));
            (0..BURST).for_each(|_| used(queue.try_recv().expect("one waits")));
        });
    });
    group.bench_function("queue/batch_64", |b| {
        b.iter(|| {
            (0..BURST).for_each(|_| queue.push(datagram()).expect("room"));
            let batch = queue.try_recv_batch(BURST).expect("some wait");
            batch.for_each(used);
        });
    });
    group.bench_function("queue/burst_64_batch_64", |b| {
        b.iter(|| {
            push_bursts(&queue, BURST as u64);
            read_batches(&queue, BURST as u64);
        });
    });
    let (sender, receiver) = mpsc::channel::<Item>();
    group.bench_function("std_mpsc", |b| {
        b.iter(|| {
            (0..BURST).for_each(|_| sender.send(datagram()).expect("open"));
            (0..BURST).for_each(|_| used(receiver.try_recv().expect("one waits")));
        });
    });
    let (sender, receiver) = crossbeam_channel::unbounded::<Item>();
    group.bench_function("crossbeam_channel", |b| {
        b.iter(|| {
            (0..BURST).for_each(|_| sender.send(datagram()).expect("open"));
            (0..BURST).for_each(|_| used(receiver.try_recv().expect("one waits")));
        });
    });
    let full = ReceiveQueue::new(&Arc::new(QueueContext::default()), Limits::bytes(1));
    full.push(datagram()).expect("an empty queue takes one");
    group.bench_function("queue/full", |b| {
        b.iter(|| (0..BURST).for_each(|_| assert!(full.push(datagram()).is_err())));
    });
    group.finish();
}

/// Prints the bytes that an idle socket's queue holds, by what the process holds more after use.
fn idle(_: &mut Criterion) {
    const QUEUES: u64 = 1_000_000;
    let pages = || -> Option<u64> {
        let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
        statm.split(' ').nth(1)?.parse().ok()
    };
    let context = Arc::new(QueueContext::default());
    let before = pages();
    let queues: Vec<_> = (0..QUEUES)
        .map(|_| {
            let queue = ReceiveQueue::new(&context, Limits::default());
            (0..40).for_each(|_| queue.push(datagram()).expect("room"));
            queue.try_recv_batch(40).expect("40 wait").for_each(used);
            queue
        })
        .collect();
    if let (Some(before), Some(after)) = (before, pages()) {
        let bytes = after.saturating_sub(before) * 4096 / QUEUES;
        eprintln!("idle: {bytes} bytes for each of {QUEUES} queues, after 40 datagrams each");
    }
    black_box(queues);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1000));
    targets = idle, alone, through
}
criterion_main!(benches);
