//! Backlogs of other CPUs: their limit, their signals, and the head that moves by polls.

use super::*;

/// The default limit of 1000 takes packets 1 to 1001 and drops 1002, with the CPU stopped.
#[test]
fn a_backlog_holds_one_packet_more_than_its_limit() {
    for (limit, fits) in [(1000, 1001), (0, 1)] {
        let limits = Limits { max_backlog: limit, ring: 4096, ..Limits::default() };
        // CPU 1 is busy with one endless piece of work, so nothing is finished.
        let costs = Costs { protocol_udp: 4_000_000_000, ..costs() };
        let mut host = host(&Settings { limits, ..Settings::default() }, &costs);
        let mut script = Script::to(1);
        for n in 1..=fits + 1 {
            host.arrive(parcel(n), QueueId(0), 0, &mut script);
        }
        host.advance(3_000_000_000, &mut script);
        assert_eq!(script.count("queued"), fits, "limit {limit}");
        assert_eq!(script.log.last().map(|l| (l.0, l.1)), Some(("backlog", fits + 1)));
        let dropped: Vec<u64> = host.loads().map(|l| l.2.dropped).collect();
        assert_eq!(dropped, [0, 1, 0, 0], "the target's counter");
        assert_eq!(load(&host, 1).max_backlog as u64, fits);
    }
}

#[test]
fn one_signal_serves_a_burst_and_one_more_the_next() {
    let mut host = host(&Settings::default(), &costs());
    let mut script = Script::to(1);
    for n in 1..=10 {
        host.arrive(parcel(n), QueueId(0), 0, &mut script);
    }
    host.advance(1_000_000, &mut script);
    assert_eq!(load(&host, 0).signals, 1);
    assert_eq!(load(&host, 0).busy_ns(), 100 + 10 * 10 + 1000);
    assert_eq!(load(&host, 1).busy_ns(), 5 + 10 * 50);
    let first = script.times("processed")[0];
    assert_eq!(first, 100 + 10 * 10 + 1000 + 5 + 50, "it begins with the signal");
    for n in 11..=20 {
        host.arrive(parcel(n), QueueId(0), 1_000_000, &mut script);
    }
    host.drain(&mut script);
    assert_eq!(load(&host, 0).signals, 2);
}

/// A CPU that works takes signals between two pieces, but none that is still being sent.
#[test]
fn a_busy_cpu_takes_no_signal_before_it_is_sent() {
    let mut host = VirtualTime::new(&topology(2), &Settings::default(), &costs());
    let mut script = Script::to(1);
    for n in 1..=10 {
        host.arrive(Parcel { queue: QueueId(1), ..parcel(n) }, QueueId(1), 0, &mut script);
    }
    host.arrive(parcel(11), QueueId(0), 0, &mut script);
    host.drain(&mut script);
    // CPU 0 marked the backlog at 110, before CPU 1 put its own packets there, and who finds the mark
    // leaves the start to the signal: all of them wait until it is sent.
    let signal = 100 + 10 + 1000;
    assert_eq!(script.times("processed").first(), Some(&(signal + 5 + 50)));
    assert_eq!(script.times("processed").last(), Some(&(signal + 5 + 11 * 50)));
}

/// Two steering CPUs and one target in one burst: the mark is the target's.
#[test]
fn two_cpus_that_steer_to_one_send_one_signal_in_all() {
    let mut host = VirtualTime::new(&topology(2), &Settings::default(), &costs());
    let mut script = Script::to(3);
    for n in 1..=20 {
        let queue = QueueId((n % 2) as u16);
        host.arrive(Parcel { queue, ..parcel(n) }, queue, 0, &mut script);
    }
    host.drain(&mut script);
    assert_eq!(load(&host, 0).signals + load(&host, 1).signals, 1);
    assert_eq!(load(&host, 3).processed, 20);
}

/// 1000 queued packets, quota 64: the head moves 64 at a time and is exact at the end.
#[test]
fn the_head_moves_by_polls_and_is_exact_at_the_end() {
    let mut host = host(&Settings::default(), &Costs { take: 0, ..costs() });
    let mut script = Script::to(1);
    for n in 1..=1000 {
        host.arrive(parcel(n), QueueId(0), 0, &mut script);
    }
    let mut heads = Vec::new();
    while let Some(next) = host.next_event_ns() {
        host.advance(next, &mut script);
        heads.push(host.cpus().head(CpuId(1)));
    }
    heads.dedup();
    let expected: Vec<u32> = (0..=15).map(|n| n * 64).chain([1000]).collect();
    assert_eq!(heads, expected);
    assert_eq!(host.cpus().tail(CpuId(1)), 1000);
    assert!(host.is_idle());
}

#[test]
fn a_packet_for_its_own_backlog_needs_no_signal() {
    let mut host = host(&Settings::default(), &costs());
    let mut script = Script::to(0);
    for n in 1..=3 {
        host.arrive(parcel(n), QueueId(0), 0, &mut script);
    }
    host.drain(&mut script);
    assert_eq!(load(&host, 0).signals, 0);
    assert_eq!(load(&host, 0).busy_ns(), 100 + 3 * 10 + 3 * 50);
    assert_eq!(script.count("finished"), 3);
}

#[test]
fn a_flow_that_crowds_a_backlog_is_limited_and_a_small_one_beside_it_is_not() {
    for (flow_limit_buckets, limited) in [(0, false), (4096, true)] {
        let costs = Costs { take: 100, protocol_udp: 1000, interrupt: 0, ..costs() };
        let mut host = host(&Settings { flow_limit_buckets, ..Settings::default() }, &costs);
        let mut script = Script::to(1);
        script.to.insert(1, 1);
        // Flow 1 has every 20th packet of five times what CPU 1 can do.
        for n in 1..=40_000 {
            let flow = u32::from(n % 20 == 0);
            host.arrive(Parcel { flow, ..parcel(n) }, QueueId(0), n * 200, &mut script);
        }
        host.drain(&mut script);
        let lost = |flow: u64| {
            let lost = script.log.iter().filter(|l| l.0 == "backlog" || l.0 == "flow limit");
            lost.filter(|l| u64::from(l.1 % 20 == 0) == flow).count()
        };
        assert_eq!(script.count("flow limit") > 0, limited);
        if limited {
            assert_eq!(lost(1), 0, "the small flow");
        } else {
            assert!(lost(1) > 1000, "without the limit it loses as all do: {}", lost(1));
        }
        assert!(lost(0) > 20_000);
    }
}
