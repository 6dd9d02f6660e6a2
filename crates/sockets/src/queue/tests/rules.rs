//! The rules of the spec, "UDP receive queue and its accounting", one by one.

use super::*;
use crate::{Event, IpVersion, Profile, UdpCounters, UdpSnapshot};

fn is_full(result: Result<(), PushError<Simulated>>) -> bool {
    matches!(result, Err(PushError::BufferFull))
}

#[test]
fn a_buffer_of_one_byte_takes_one_datagram() {
    let context = context();
    let queue = queue(&context, 1);
    queue.push(sized(1, 5000)).unwrap();
    assert!(is_full(queue.push(sized(2, 1))));
    assert_eq!(queue.try_recv().unwrap().timestamp_ns, 1);
    queue.push(sized(3, 5000)).unwrap();
}

#[test]
fn a_huge_limit_is_strict_even_when_empty() {
    let context = context();
    let below = queue(&context, (i32::MAX / 2) as u32);
    below.push(sized(1, u32::MAX)).unwrap();
    let above = queue(&context, (i32::MAX / 2) as u32 + 1);
    assert!(is_full(above.push(sized(1, u32::MAX))));
    above.push(sized(2, 1 << 30)).unwrap(); // just the limit
}

#[test]
fn exactly_k_fit_and_a_read_makes_room_at_once() {
    let context = context();
    let queue = queue(&context, 800);
    for name in 0..8 {
        queue.push(sized(name, 100)).unwrap();
    }
    assert!(is_full(queue.push(sized(8, 1)))); // strictly greater: 801
    queue.try_recv().unwrap();
    queue.push(sized(9, 100)).unwrap();
    assert!(is_full(queue.push(sized(10, 1))));
}

#[test]
fn released_by_quarters_the_deficit_is_held_back_as_in_linux() {
    let context = context();
    let queue = ReceiveQueue::with_release(&context, Limits::bytes(800), Profile::Linux);
    for name in 0..8 {
        queue.push(sized(name, 100)).unwrap();
    }
    queue.try_recv().unwrap();
    assert_eq!(queue.credit().in_use().bytes, 800); // 100 read, below 200
    assert!(is_full(queue.push(sized(8, 100))));
    queue.try_recv().unwrap();
    assert_eq!(queue.credit().in_use().bytes, 600); // a quarter was read
    queue.push(sized(9, 100)).unwrap();
    for _ in 0..5 {
        queue.try_recv().unwrap();
    }
    // 2..=6 read, of which 2..=5 were released.
    assert_eq!(queue.credit().in_use().bytes, 300);
    queue.try_recv().unwrap(); // a quarter again
    assert_eq!(queue.credit().in_use(), InUse { bytes: 100, packets: 1 });
    queue.try_recv().unwrap();
    assert_eq!(queue.credit().in_use(), InUse::default());
}

#[test]
fn a_release_by_quarters_takes_over_what_has_arrived() {
    let context = context();
    let queue = ReceiveQueue::with_release(&context, Limits::bytes(800), Release::Quarter);
    let push = |names: std::ops::Range<u64>| names.for_each(|n| queue.push(sized(n, 100)).unwrap());
    push(0..3);
    queue.try_recv().unwrap();
    push(3..5);
    queue.try_recv().unwrap(); // releases a quarter; 2 is the last of the first three
    queue.try_recv().unwrap();
    // The reader's queue is not empty, for it has 3 and 4 by now: 2 is held back.
    assert_eq!(queue.credit().in_use(), InUse { bytes: 300, packets: 3 });
}

#[test]
fn small_payloads_of_huge_true_size_hit_the_limit() {
    let context = Arc::default();
    let queue = ReceiveQueue::new(&context, Limits::bytes(10_000));
    let peer = SocketAddr::from(([192, 0, 2, 1], 1));
    let mut taken = 0;
    loop {
        let mut datagram = Datagram::new(peer, peer.ip(), &[0u8][..]);
        datagram.true_size = 4352;
        match queue.push(datagram) {
            Ok(()) => taken += 1,
            Err(_) => break,
        }
    }
    assert_eq!(taken, 2); // 8704; a third would make 13,056

    // What is not set is what the payload holds, used or not.
    let pool = BufferPool::new(1 << 20, 0);
    let buffer = Datagram::new(peer, peer.ip(), pool.copy(&[0; 257]).unwrap());
    assert_eq!(buffer.true_size, 2048 + Datagram::<Buffer>::OVERHEAD);
    let mut bytes = Vec::with_capacity(1000);
    bytes.push(0);
    let vec = Datagram::new(peer, peer.ip(), bytes);
    assert!(vec.true_size >= 1000 + Datagram::<Vec<u8>>::OVERHEAD);
}

#[test]
fn datagrams_are_limited_too_and_no_size_is_free() {
    let context = context();
    let queue = ReceiveQueue::new(&context, Limits { bytes: 1 << 20, packets: 3 });
    for name in 0..3 {
        queue.push(sized(name, 0)).unwrap();
    }
    assert!(is_full(queue.push(sized(3, 0))));
    assert_eq!(queue.credit().in_use(), InUse { bytes: 3, packets: 3 });
    queue.set_limits(Limits { bytes: 1 << 20, packets: 0 });
    assert_eq!(names(queue.try_recv_batch(9).unwrap()), [0, 1, 2]);
    queue.push(sized(4, 9)).unwrap(); // empty: takes one all the same
    assert!(is_full(queue.push(sized(5, 9))));
}

#[test]
fn credit_tells_room_as_the_queue_does() {
    let context = context();
    let queue = queue(&context, 250);
    for size in [100, 100, 51, 50, 1] {
        let room = queue.credit().has_room(size);
        assert_eq!(room, queue.push(sized(0, size)).is_ok(), "{size}");
    }
    assert_eq!(queue.credit().in_use(), InUse { bytes: 250, packets: 3 });
    assert_eq!((queue.credit().drops(), queue.credit().limits()), (2, Limits::bytes(250)));
}

#[test]
fn memory_refused_in_a_burst_concerns_only_those_it_is_refused_to() {
    let account = Arc::new(MemoryAccount::with_limit(6));
    let context = Arc::new(QueueContext::default().with_memory(Arc::clone(&account)));
    let queue = queue(&context, 1 << 20);
    let page = PAGE_BYTES as u32;
    let mut burst: Vec<_> =
        (0..8).map(|name| sized(name, if name == 2 { 5 * page } else { page })).collect();
    // 2 pages; 5 more would make 7; four of one page make 6; one more would make 7.
    let result = queue.push_burst(&mut burst);
    assert_eq!(result, Burst { admitted: 6, no_memory: 2, ..Burst::default() });
    assert!(burst.is_empty());
    let read: Vec<_> = queue
        .try_recv_batch(8)
        .unwrap()
        .map(|datagram| (datagram.timestamp_ns, datagram.drops_before()))
        .collect();
    assert_eq!(read, [(0, 0), (1, 0), (3, 1), (4, 1), (5, 1), (6, 1)]);
    let expected =
        UdpSnapshot { in_datagrams: 6, in_errors: 2, mem_errors: 2, ..UdpSnapshot::default() };
    assert_eq!(queue.counters(), expected);
    assert_eq!(context.counters().snapshot(IpVersion::V4), expected);
    assert_eq!(account.drawn(), 0);
}

/// The steps of a measurement on Linux 6.18, with fewer pages: the limits were set for a moment, one
/// socket filled up to `min`, a second that was empty took one datagram and no more, and so did each
/// of 80 others; with `max` as low as `min` they took none.
#[test]
fn above_min_a_socket_that_holds_little_draws_and_above_max_nobody() {
    let page = PAGE_BYTES as u32;
    for (max, others) in [(40, true), (10, false)] {
        let limits = MemoryLimits { min: 10, pressure: 20, max, socket_bytes: PAGE_BYTES };
        let account = Arc::new(MemoryAccount::with_limits(limits));
        let context = Arc::new(QueueContext::default().with_memory(Arc::clone(&account)));
        let first = queue(&context, 1 << 20);
        let taken = (0..20).filter(|name| first.push(sized(*name, page)).is_ok()).count();
        assert_eq!(taken, 10, "max {max}");
        let queues: Vec<_> = (0..8).map(|_| queue(&context, 1 << 20)).collect();
        for other in &queues {
            let taken = (0..5).filter(|name| other.push(sized(*name, page)).is_ok()).count();
            assert_eq!(taken, usize::from(others), "max {max}");
        }
        assert_eq!(account.drawn(), if others { 18 } else { 10 });
        assert!(!account.is_pressed());
        if others {
            // Up to `max`, and not one page more, however little a socket holds.
            let more: Vec<_> = (0..40).map(|_| queue(&context, 1 << 20)).collect();
            let taken = more.iter().filter(|other| other.push(sized(0, page)).is_ok()).count();
            assert_eq!((taken, account.drawn(), account.is_pressed()), (22, 40, true));
        }
        drop((first, queues));
        account.set_limits(MemoryLimits::hard(0));
        let refused = queue(&context, 1 << 20).push(sized(0, 1));
        assert!(matches!(refused, Err(PushError::NoMemory)));
    }
}

#[test]
fn memory_is_drawn_in_pages_and_given_back_when_drained_or_dropped() {
    let account = Arc::new(MemoryAccount::with_limit(3));
    let context = Arc::new(QueueContext::default().with_memory(Arc::clone(&account)));
    let one = queue(&context, 1 << 20);
    let other = queue(&context, 1 << 20);
    one.push(sized(0, 1)).unwrap();
    one.push(sized(1, 4095)).unwrap();
    assert_eq!(account.drawn(), 1); // one page holds both
    one.push(sized(2, 1)).unwrap();
    other.push(sized(3, 1)).unwrap();
    assert_eq!(account.drawn(), 3);
    let refused = other.push(sized(4, 4096));
    assert!(matches!(refused, Err(PushError::NoMemory)));
    assert_eq!(names(one.try_recv_batch(3).unwrap()), [0, 1, 2]);
    assert_eq!(account.drawn(), 1);
    drop(other);
    assert_eq!(account.drawn(), 0);
}

#[test]
fn drops_are_stamped_on_what_comes_after() {
    let context = context();
    let queue = queue(&context, 200);
    queue.push(sized(0, 100)).unwrap();
    queue.push(sized(1, 100)).unwrap();
    for name in 2..5 {
        assert!(is_full(queue.push(sized(name, 100))));
    }
    assert_eq!(queue.try_recv().unwrap().drops_before(), 0);
    queue.count_refused(IpVersion::V4);
    queue.push(sized(5, 100)).unwrap();
    assert_eq!(queue.try_recv().unwrap().drops_before(), 0);
    assert_eq!(queue.try_recv().unwrap().drops_before(), 4);
}

#[test]
fn a_burst_is_one_operation_and_a_batch_is_another() {
    let context = context();
    let queue = queue(&context, 100 * 100);
    let mut burst: Vec<_> = (0..110).map(|name| sized(name, 100)).collect();
    let result = queue.push_burst(&mut burst);
    assert_eq!(result, Burst { admitted: 100, buffer_full: 10, ..Burst::default() });
    let mut burst = vec![sized(0, 1), over_ipv6(sized(0, 1))];
    let result = queue.push_burst(&mut burst); // full already: not even the lock is taken
    assert_eq!(result, Burst { buffer_full: 2, ..Burst::default() });
    // Cuts inside and at the borders of the segments (4, then 32 each).
    let mut read = Vec::new();
    for max in [0, 1, 3, 32, 33, 2, 100] {
        let batch = queue.try_recv_batch(max).unwrap();
        assert_eq!(batch.len(), max.min(100 - read.len()));
        assert_eq!(batch.true_size(), 100 * batch.len() as u64);
        assert_eq!(batch.iter().count(), batch.len());
        read.extend(names(batch));
    }
    assert_eq!(read, (0..100).collect::<Vec<_>>());
    assert_eq!(queue.try_recv_batch(1).unwrap_err(), RecvError::Empty);
    assert_eq!(context.counters().event(IpVersion::V6, Event::BufferFull), 1);
}

#[test]
fn a_batch_dropped_half_read_counts_as_delivered() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let _ = queue.push_burst(&mut (0..50).map(|name| sized(name, 1)).collect());
    let mut batch = queue.try_recv_batch(40).unwrap();
    assert_eq!(batch.next().unwrap().timestamp_ns, 0);
    drop(batch);
    assert_eq!(queue.try_recv().unwrap().timestamp_ns, 40);
    assert_eq!(queue.counters().in_datagrams, 41);
}

#[test]
fn a_bad_checksum_is_admitted_and_refused_at_the_read() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    queue.push(deferred(sized(0, 10), true)).unwrap();
    assert_eq!((queue.credit().drops(), queue.counters()), (0, UdpSnapshot::default()));
    assert_eq!(queue.try_recv().unwrap_err(), RecvError::Empty);
    let expected = UdpSnapshot { in_errors: 1, in_csum_errors: 1, ..UdpSnapshot::default() };
    assert_eq!((queue.credit().drops(), queue.counters()), (1, expected));
    assert_eq!(queue.credit().in_use(), InUse::default());

    // Readiness throws the bad ones away, and counts them once.
    for (name, bad) in [(1, true), (2, true), (3, false), (4, true)] {
        queue.push(over_ipv6(deferred(sized(name, 10), bad))).unwrap();
    }
    assert!(queue.is_readable() && queue.is_readable());
    assert_eq!(queue.peek(|front| front.timestamp_ns).unwrap(), 3);
    assert_eq!(queue.counters().in_csum_errors, 3);
    assert_eq!(queue.try_recv().unwrap().timestamp_ns, 3);
    assert!(!queue.is_readable());
    assert_eq!(queue.counters().in_csum_errors, 4);

    // In a batch: those that are good, in order; one that is all bad is passed over.
    for name in 5..50 {
        queue.push(deferred(sized(name, 10), name % 3 != 0 || name < 30)).unwrap();
    }
    assert_eq!(names(queue.try_recv_batch(10).unwrap()), [30, 33]); // 25 to 34 taken
    assert_eq!(names(queue.try_recv_batch(99).unwrap()), [36, 39, 42, 45, 48]);
    assert_eq!(queue.credit().in_use(), InUse::default());
    let v4 = context.counters().snapshot(IpVersion::V4);
    assert_eq!((v4.in_datagrams, v4.in_csum_errors), (7, 1 + 45 - 7));
    let v6 = context.counters().snapshot(IpVersion::V6);
    assert_eq!((v6.in_datagrams, v6.in_csum_errors, v6.in_errors), (1, 3, 3));
}

#[test]
fn real_bytes_are_verified_when_read() {
    use crate::datagram::{Addresses, Rules, Udp};
    let addresses = Addresses::V4 { src: [192, 0, 2, 1].into(), dst: [198, 51, 100, 53].into() };
    // The datagram summed up by hand in the tests of `datagram`, "abcd", with a hundred zeros behind:
    // they add to no word, but to the length, which is twice in the sum: 1e37 - 2 * 100 = 1d6f.
    let mut wire = vec![0x30, 0x39, 0, 0x35, 0, 112, 0x1d, 0x6f, b'a', b'b', b'c', b'd'];
    wire.resize(112, 0);
    let udp = Udp::parse(&wire, IpVersion::V4).unwrap();
    let checksum = udp.defer(&addresses, Rules::default()).unwrap();
    assert!(matches!(checksum, Checksum::Deferred(_)));
    let context = Arc::default();
    let queue = ReceiveQueue::new(&context, Limits::default());
    let mut other = udp.payload.to_vec();
    other[50] = 1;
    for payload in [udp.payload.to_vec(), other, udp.payload[1..].to_vec()] {
        let peer = SocketAddr::from(([192, 0, 2, 1], udp.src_port));
        let datagram = Datagram::new(peer, [198, 51, 100, 53].into(), payload);
        queue.push(Datagram { checksum, ..datagram }).unwrap();
    }
    let read = queue.try_recv().unwrap();
    assert_eq!((&read.payload[..], read.checksum), (udp.payload, Checksum::Verified));
    assert_eq!(queue.try_recv().unwrap_err(), RecvError::Empty);
    assert_eq!(queue.counters().in_csum_errors, 2);
}

#[test]
fn peeking_leaves_and_copying_out_reports_truncation() {
    let context = Arc::default();
    let queue = ReceiveQueue::new(&context, Limits::default());
    let peer = "[2001:db8::1]:53".parse().unwrap();
    let local = "2001:db8::2".parse().unwrap();
    for (at, payload) in [&b"hello"[..], b"", b"!"].into_iter().enumerate() {
        let mut datagram = Datagram::new(peer, local, payload.to_vec());
        datagram.timestamp_ns = 7 + at as u64;
        datagram.segment_len = 2;
        queue.push(datagram).unwrap();
    }
    let mut buffer = [0; 4];
    let peeked = queue.peek_into(&mut buffer).unwrap();
    assert_eq!((peeked.copied, peeked.len, peeked.is_truncated()), (4, 5, true));
    assert_eq!(queue.counters().in_datagrams, 0);
    let read = queue.try_recv_into(&mut buffer).unwrap();
    assert_eq!((read, &buffer), (peeked, b"hell"));
    assert_eq!((read.peer, read.local, read.timestamp_ns, read.segment_len), (peer, local, 7, 2));
    // An empty datagram is a datagram.
    let empty = queue.try_recv_into(&mut buffer).unwrap();
    assert_eq!((empty.copied, empty.len, empty.is_truncated()), (0, 0, false));
    assert_eq!(queue.try_recv_into(&mut buffer).unwrap().copied, 1);
    assert_eq!(queue.try_recv_into(&mut buffer), Err(RecvError::Empty));
    assert_eq!(queue.counters().in_datagrams, 3);
}

#[test]
fn a_closed_queue_gives_new_datagrams_back_and_old_ones_out() {
    let context = context();
    let queue = queue(&context, 250);
    queue.push(sized(0, 200)).unwrap();
    queue.close();
    // Also when it is full: the port may have a new owner with room.
    match queue.push(sized(1, 100)) {
        Err(PushError::Closed(datagram)) => assert_eq!(datagram.timestamp_ns, 1),
        other => panic!("{other:?}"),
    }
    let mut burst = vec![sized(2, 1), sized(3, 1)];
    assert_eq!(queue.push_burst(&mut burst), Burst { closed: true, ..Burst::default() });
    assert_eq!(burst.len(), 2);
    assert_eq!(queue.try_recv().unwrap().timestamp_ns, 0);
    assert_eq!(queue.try_recv().unwrap_err(), RecvError::Closed);
    let delivered = UdpSnapshot { in_datagrams: 1, ..UdpSnapshot::default() };
    assert_eq!(queue.counters(), delivered);
}

#[test]
fn what_a_purged_or_dropped_queue_held_is_counted() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let _ = queue.push_burst(&mut (0..10).map(|name| sized(name, 1)).collect());
    queue.try_recv().unwrap(); // nine are on the readers' side now
    queue.push(over_ipv6(sized(10, 1))).unwrap();
    assert_eq!(queue.purge(), 10);
    assert_eq!(queue.credit().in_use(), InUse::default());
    queue.push(sized(11, 1)).unwrap();
    drop(queue);
    assert_eq!(context.counters().event(IpVersion::V4, Event::Discarded), 10);
    assert_eq!(context.counters().event(IpVersion::V6, Event::Discarded), 1);
}

#[test]
fn idle_queues_hold_no_room_and_no_buffers() {
    let pool = BufferPool::new(1 << 20, 1 << 16);
    let context = Arc::default();
    let queues: Vec<_> =
        (0..1000).map(|_| ReceiveQueue::new(&context, Limits::default())).collect();
    let peer = SocketAddr::from(([192, 0, 2, 1], 1));
    for queue in &queues {
        for _ in 0..10 {
            queue.push(Datagram::new(peer, peer.ip(), pool.copy(b"data").unwrap())).unwrap();
        }
        assert_eq!(pool.lent_bytes(), 2560);
        assert_eq!(queue.try_recv_batch(10).unwrap().len(), 10);
    }
    assert_eq!(pool.lent_bytes(), 0);
    // The two segments (4 and 32) that one queue after the other used are back in the pool.
    assert_eq!(context.kept_segments(), 2);
    let bytes = size_of::<ReceiveQueue<Buffer>>();
    println!("{bytes} bytes for an idle queue");
    assert!(bytes <= 320, "{bytes}");
}

#[test]
fn a_long_queue_is_dropped_without_deep_recursion() {
    let context = context();
    let queue = ReceiveQueue::new(&context, Limits::bytes(u32::MAX / 4));
    for name in 0..1_000_000 {
        queue.push(sized(name, 1)).unwrap();
    }
    let batch = queue.try_recv_batch(500_000).unwrap();
    drop(batch);
    drop(queue);
    let kept = context.kept_segments();
    assert!(kept <= 2048, "the pool keeps a bounded number of segments, not {kept}");
}

#[test]
fn the_buffer_pool_is_bounded_and_lends_all_sizes() {
    let pool = BufferPool::new(65_536 + 256, 0);
    assert!(pool.lend(65_537).is_none());
    let largest = pool.lend(65_536).unwrap();
    let smallest = pool.lend(0).unwrap();
    assert_eq!((largest.len(), smallest.len()), (65_536, 0));
    assert!(pool.lend(1).is_none()); // the limit
    drop(smallest);
    let mut buffer = pool.copy(&[7; 256]).unwrap();
    buffer.truncate(300);
    assert_eq!((&buffer[..], buffer.capacity()), (&[7; 256][..], 256));
    buffer.truncate(3);
    assert_eq!(&buffer[..], &[7; 3]);
    drop((largest, buffer));
    assert_eq!(pool.lent_bytes(), 0);
}

#[test]
fn field_report_vector_5017_a_third_is_dropped_and_every_drop_has_one_reason() {
    // 90,000 datagrams a second into a reader of 60,000 a second, a buffer for one second; a quiet
    // socket beside it. In virtual milliseconds, for ten seconds.
    let counters = Arc::new(UdpCounters::new());
    let context = Arc::new(QueueContext::new(Arc::clone(&counters)));
    let busy = queue(&context, 60_000 * 500);
    let quiet = queue(&context, 60_000 * 500);
    let (mut sent, mut dropped_after_full, mut sent_after_full) = (0, 0, 0);
    for ms in 0..10_000 {
        let mut burst: Vec<_> = (0..90).map(|at| sized(ms * 90 + at, 500)).collect();
        sent += 90;
        let result = busy.push_burst(&mut burst);
        if ms >= 2_000 {
            // The buffer fills by 30 each ms: full after 2 s.
            sent_after_full += 90;
            dropped_after_full += result.buffer_full;
        }
        assert_eq!(busy.try_recv_batch(60).unwrap().len(), 60);
        if ms % 100 == 0 {
            sent += 1;
            quiet.push(sized(ms, 500)).unwrap();
            assert_eq!(quiet.try_recv().unwrap().timestamp_ns, ms);
        }
    }
    assert_eq!((quiet.counters().in_datagrams, quiet.credit().drops()), (100, 0));
    let share = dropped_after_full as f64 / sent_after_full as f64;
    assert!((share - 1.0 / 3.0).abs() < 0.001, "{share}");
    let udp = counters.snapshot(IpVersion::V4);
    let waiting = busy.credit().in_use().packets;
    assert_eq!(udp.in_datagrams + udp.rcvbuf_errors + waiting, sent);
    assert_eq!(udp.in_errors, udp.rcvbuf_errors); // no other cause
    assert_eq!(busy.counters().rcvbuf_errors, busy.credit().drops());
}

/// With the offset of the next peek after each step, as `SO_PEEK_OFF` moves it; what the kernel does
/// with good datagrams is compared in `tests/kernel_queue.rs`.
#[test]
fn a_peek_at_an_offset_drops_the_bad_one_that_it_meets_and_reads_move_the_offset_back() {
    let context = Arc::new(QueueContext::default());
    let queue = ReceiveQueue::new(&context, Limits::default());
    let peer = SocketAddr::from(([192, 0, 2, 1], 4433));
    let bytes =
        |text: &str| Datagram::new(peer, [198, 51, 100, 7].into(), text.as_bytes().to_vec());
    queue.set_peek_offset(Some(4));
    let mut bad = bytes("bad");
    bad.checksum = Checksum::Deferred(1);
    let mut burst = vec![bytes("abc"), bad, bytes("defgh"), bytes("ij")];
    assert_eq!(queue.push_burst(&mut burst).admitted, 4);
    let mut buffer = [0; 3];
    // 3 bytes before it, so the offset is in the bad one; without that in the next.
    let peeked = queue.peek_into(&mut buffer).unwrap();
    assert_eq!((peeked.from, peeked.copied, &buffer), (1, 3, b"efg"));
    assert!(peeked.is_truncated(), "h was cut off");
    assert_eq!((queue.peek_offset(), queue.credit().drops()), (Some(7), 1));
    let peeked = queue.peek_into(&mut buffer).unwrap();
    assert_eq!((peeked.from, peeked.copied, peeked.is_truncated()), (4, 1, false));
    assert_eq!(queue.peek_offset(), Some(8));
    let peeked = queue.peek_into(&mut buffer).unwrap();
    assert_eq!((peeked.from, &buffer[..peeked.copied]), (0, &b"ij"[..]));
    assert_eq!(queue.peek_into(&mut buffer), Err(RecvError::Empty), "all were peeked at");
    // A read of one, a read that cuts, and one of a batch.
    assert_eq!(queue.try_recv().unwrap().payload, b"abc");
    assert_eq!(queue.peek_offset(), Some(7));
    assert!(queue.try_recv_into(&mut buffer).unwrap().is_truncated());
    assert_eq!(queue.peek_offset(), Some(4), "by what was copied");
    assert_eq!(queue.try_recv_batch(9).unwrap().count(), 1);
    assert_eq!(queue.peek_offset(), Some(2));
    queue.set_peek_offset(None);
    queue.close();
    assert_eq!(queue.peek_into(&mut buffer), Err(RecvError::Closed));
    assert_eq!(queue.credit().in_use(), InUse::default());
}
