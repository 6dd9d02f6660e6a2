//! Many producers and readers at once, bounded in time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::{IpVersion, UdpSnapshot};

const PRODUCERS: u64 = 4;
const FOR: Duration = Duration::from_millis(300);

/// Runs producers against readers; checks order, that nothing is lost or doubled, and the sums.
fn run(readers: usize, release: Release, account: Option<Arc<MemoryAccount>>) {
    let context = QueueContext::default();
    let context = Arc::new(match &account {
        Some(account) => context.with_memory(Arc::clone(account)),
        None => context,
    });
    let queue = ReceiveQueue::with_release(&context, Limits::bytes(100 * 200), release);
    let (admitted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + FOR;
    let read: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..readers)
            .map(|which| {
                let queue = &queue;
                scope.spawn(move || {
                    let mut read = Vec::new();
                    loop {
                        let taken = if which % 2 == 0 {
                            queue
                                .recv_batch_timeout(16, None)
                                .map(|batch| read.extend(names(batch)))
                        } else {
                            queue.recv_timeout(None).map(|one| read.push(one.timestamp_ns))
                        };
                        if taken.is_err() {
                            return read;
                        }
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (queue, admitted, refused) = (&queue, &admitted, &refused);
                scope.spawn(move || {
                    let mut next = producer << 32;
                    let mut burst = Vec::new();
                    while Instant::now() < end {
                        for _ in 0..8 {
                            burst.push(sized(next, 100));
                            next += 1;
                        }
                        let result = if producer % 2 == 0 {
                            queue.push_burst(&mut burst)
                        } else {
                            let pushed = burst.drain(..).filter(|d| queue.push(d.clone()).is_ok());
                            let admitted = pushed.count() as u64;
                            Burst { admitted, buffer_full: 8 - admitted, ..Burst::default() }
                        };
                        admitted.fetch_add(result.admitted, Ordering::Relaxed);
                        refused.fetch_add(result.buffer_full + result.no_memory, Ordering::Relaxed);
                        if next % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        queue.close();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });

    let mut all: Vec<u64> = Vec::new();
    for read in &read {
        let mut last: HashMap<u64, u64> = HashMap::new();
        for name in read {
            let before = last.insert(name >> 32, *name);
            assert!(before.is_none_or(|before| before < *name), "order of a producer");
        }
        all.extend(read);
    }
    let count = all.len() as u64;
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, count, "doubled");
    let (admitted, refused) = (admitted.into_inner(), refused.into_inner());
    assert!(admitted > 0);
    assert_eq!(count, admitted, "lost");
    assert_eq!(queue.credit().in_use(), InUse::default());
    let counters = context.counters().snapshot(IpVersion::V4);
    assert_eq!(counters, queue.counters());
    assert_eq!((counters.in_datagrams, counters.in_errors), (admitted, refused));
    assert_eq!(queue.credit().drops(), refused);
    if let Some(account) = account {
        assert_eq!(account.drawn(), 0);
    }
}

#[test]
fn four_producers_one_reader() {
    run(1, Release::Exact, None);
}

#[test]
fn four_producers_three_readers() {
    run(3, Release::Quarter, None);
}

#[test]
fn four_producers_two_readers_and_little_memory() {
    run(2, Release::Exact, Some(Arc::new(MemoryAccount::with_limit(3))));
}

#[test]
fn a_queue_closed_under_producers_hands_back_or_has_admitted() {
    for _ in 0..50 {
        let context = context();
        let queue = queue(&context, 1 << 20);
        let (admitted, back) = std::thread::scope(|scope| {
            let producer = scope.spawn(|| {
                let (mut admitted, mut back) = (0, 0);
                for name in 0..200 {
                    match queue.push(sized(name, 10)) {
                        Ok(()) => admitted += 1,
                        Err(PushError::Closed(_)) => back += 1,
                        Err(other) => panic!("{other:?}"),
                    }
                }
                (admitted, back)
            });
            std::thread::yield_now();
            queue.close();
            producer.join().unwrap()
        });
        assert_eq!(admitted + back, 200);
        assert_eq!(queue.purge(), admitted);
        assert_eq!(queue.counters(), UdpSnapshot::default());
    }
}
