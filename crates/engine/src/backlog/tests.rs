//! The rules of the specification, on both kinds of backlog.

use std::thread;

use super::*;

/// Runs a check on both kinds; `start` is where the counters start.
fn both(max: u32, start: u32, check: impl Fn(&mut dyn CpuQueue<Packet = u32>)) {
    check(&mut LocalBacklog::new(max).counting_from(start));
    check(&mut &Backlog::new(max).counting_from(start));
}

fn take(queue: &mut dyn CpuQueue<Packet = u32>, max: usize) -> Vec<u32> {
    let mut out = Vec::new();
    assert_eq!(queue.take(max, &mut out), out.len());
    out
}

#[test]
fn with_the_default_limit_1001_packets_fit_and_the_next_is_refused_and_counted() {
    both(1000, 0, |queue| {
        for n in 1..=1001 {
            assert_eq!(queue.enqueue(n), Ok(Enqueued { tail: n, signal: n == 1 }), "{n}");
        }
        assert_eq!(queue.enqueue(1002), Err(Refused::Full(1002)));
        assert_eq!((queue.dropped(), queue.waiting(), queue.tail()), (1, 1001, 1001));
    });
}

#[test]
fn with_limit_0_one_packet_fits() {
    both(0, 0, |queue| {
        assert!(queue.enqueue(1).is_ok());
        assert_eq!(queue.enqueue(2), Err(Refused::Full(2)));
        assert_eq!(take(queue, 64), [1]);
        queue.finish(1);
        assert!(queue.enqueue(3).is_ok());
        assert_eq!(queue.dropped(), 1);
    });
}

#[test]
fn a_packet_in_work_has_its_place_until_it_is_finished() {
    both(1, 0, |queue| {
        assert!(queue.enqueue(1).is_ok() && queue.enqueue(2).is_ok());
        assert_eq!(take(queue, 64), [1, 2]);
        assert_eq!((queue.head(), queue.waiting()), (0, 2));
        assert_eq!(queue.enqueue(3), Err(Refused::Full(3)));
        queue.finish(1);
        assert_eq!((queue.head(), queue.waiting()), (1, 1));
        assert!(queue.enqueue(3).is_ok());
    });
}

#[test]
fn a_burst_to_an_idle_cpu_needs_one_signal_and_the_next_one_after_it_drained_one_more() {
    both(1000, 0, |queue| {
        let burst = |queue: &mut dyn CpuQueue<Packet = u32>| -> usize {
            (0..100).map(|n| usize::from(queue.enqueue(n).unwrap().signal)).sum()
        };
        assert_eq!(burst(queue), 1);
        // Polled in part: the owner has not completed, so it needs no further signal.
        assert_eq!(take(queue, 64).len(), 64);
        queue.finish(64);
        assert_eq!(burst(queue), 0);
        assert!(!queue.complete(), "136 packets wait");
        assert_eq!(burst(queue), 0);
        assert_eq!(take(queue, 1000).len(), 236);
        queue.finish(236);
        assert!(queue.complete());
        assert_eq!(burst(queue), 1);
    });
}

#[test]
fn a_packet_that_comes_between_the_last_poll_and_the_completion_is_polled() {
    both(1000, 0, |queue| {
        assert!(queue.enqueue(1).unwrap().signal);
        assert_eq!(take(queue, 64), [1]);
        queue.finish(1);
        assert!(!queue.enqueue(2).unwrap().signal);
        assert!(!queue.complete());
        assert_eq!(take(queue, 64), [2]);
        queue.finish(1);
        assert!(queue.complete());
    });
}

#[test]
fn a_thousand_packets_are_polled_in_quotas_of_64_and_the_head_is_exact_at_the_end() {
    both(1000, 0, |queue| {
        for n in 0..1000 {
            assert!(queue.enqueue(n).is_ok());
        }
        let mut all = Vec::new();
        for poll in 1..=16 {
            let polled = take(queue, 64);
            assert_eq!(polled.len(), if poll == 16 { 40 } else { 64 });
            assert_eq!(queue.head(), 64 * (poll - 1));
            queue.finish(polled.len() as u32);
            all.extend(polled);
        }
        assert_eq!((queue.head(), queue.waiting()), (1000, 0));
        assert!(all.into_iter().eq(0..1000));
    });
}

#[test]
fn the_counters_wrap() {
    both(3, u32::MAX - 1, |queue| {
        let tails: Vec<_> = (0..4).map(|n| queue.enqueue(n).unwrap().tail).collect();
        assert_eq!(tails, [u32::MAX, 0, 1, 2]);
        assert_eq!((queue.waiting(), queue.enqueue(9)), (4, Err(Refused::Full(9))));
        assert_eq!(take(queue, 3), [0, 1, 2]);
        queue.finish(3);
        assert_eq!((queue.head(), queue.waiting()), (1, 1));
        // A carry of the tail must not reach the marks beside it.
        assert!(!queue.enqueue(4).unwrap().signal);
        assert_eq!(take(queue, 64), [3, 4]);
        queue.finish(2);
        assert!(queue.complete() && queue.enqueue(5).unwrap().signal);
    });
}

#[test]
fn a_cpu_that_goes_offline_hands_over_what_it_has_in_order_and_its_head_moves_by_that() {
    both(1000, 7, |queue| {
        for n in 0..10 {
            assert!(queue.enqueue(n).is_ok());
        }
        assert_eq!(take(queue, 4), [0, 1, 2, 3]);
        queue.finish(4);
        queue.close();
        assert_eq!(queue.enqueue(10), Err(Refused::Closed(10)));
        let mut left = Vec::new();
        assert_eq!(queue.drain(&mut left), 6);
        assert_eq!(left, [4, 5, 6, 7, 8, 9]);
        assert_eq!((queue.head(), queue.waiting(), queue.dropped()), (17, 0, 0));

        queue.open();
        // It polls on its own, so nobody signals it until it has completed.
        assert!(!queue.enqueue(11).unwrap().signal);
        assert!(!queue.complete());
        assert_eq!(take(queue, 64), [11]);
        queue.finish(1);
        assert!(queue.complete() && queue.enqueue(12).unwrap().signal);
    });
}

#[test]
#[should_panic(expected = "a backlog of 1048577 packets")]
fn a_backlog_that_would_take_all_memory_is_refused() {
    Backlog::<u32>::new(Backlog::<u32>::MOST_PACKETS + 1);
}

/// Threads put in as fast as they can while the owner takes out and now and then goes offline.
#[test]
fn threads_lose_and_double_nothing_keep_their_order_and_never_wait_for_a_signal_that_is_not_sent() {
    const PRODUCERS: u32 = 3;
    const EACH: u32 = 20_000;
    let backlog = &Backlog::new(30);
    let owner = thread::current();
    let (signals, full) = thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let owner = owner.clone();
                scope.spawn(move || {
                    let (mut signals, mut full) = (0u64, 0u64);
                    let mut last = 0u32;
                    for n in 0..EACH {
                        let mut packet = producer << 24 | n;
                        loop {
                            match backlog.enqueue(packet) {
                                Ok(enqueued) => {
                                    assert!((enqueued.tail.wrapping_sub(last) as i32) > 0);
                                    last = enqueued.tail;
                                    if enqueued.signal {
                                        signals += 1;
                                        owner.unpark();
                                    }
                                    break;
                                }
                                Err(Refused::Full(back)) => {
                                    full += 1;
                                    packet = back;
                                }
                                Err(Refused::Closed(back)) => packet = back,
                            }
                            thread::yield_now();
                        }
                    }
                    (signals, full)
                })
            })
            .collect();

        let mut next = [0u32; PRODUCERS as usize];
        let (mut left, mut polls, mut out) = (PRODUCERS * EACH, 0u32, Vec::new());
        let mut arrive = |out: &mut Vec<u32>| {
            for packet in out.drain(..) {
                let producer = (packet >> 24) as usize;
                assert_eq!(packet & 0xff_ffff, next[producer], "of producer {producer}");
                next[producer] += 1;
                left -= 1;
            }
            left
        };
        loop {
            polls += 1;
            let left = if polls % 1000 == 0 {
                backlog.close();
                backlog.drain(&mut out);
                assert_eq!(backlog.waiting(), 0);
                let left = arrive(&mut out);
                backlog.open();
                left
            } else {
                let count = backlog.take(16, &mut out);
                assert!(backlog.waiting() <= 31);
                let left = arrive(&mut out);
                backlog.finish(count as u32);
                left
            };
            if left == 0 {
                break;
            }
            // No time-out: a signal that is lost hangs the test.
            if backlog.complete() {
                thread::park();
            }
        }
        let sums = producers.into_iter().map(|p| p.join().unwrap());
        sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    assert_eq!((backlog.head(), backlog.tail()), (PRODUCERS * EACH, PRODUCERS * EACH));
    assert_eq!(backlog.dropped(), full);
    assert!((1..=u64::from(PRODUCERS * EACH)).contains(&signals), "{signals} signals");
}
