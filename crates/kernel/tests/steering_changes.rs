//! An attachment that changes while packets flow: none is lost but by name, none overtakes another, and
//! the counters go on. Needs root; without it each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::load::{Load, Outcome, WINDOW};
use common::{
    Rig, assert_sums, connected, only, receiver, rig, sender, settled_of, tcp_extended, until,
};
use rxsteer_core::CpuSet;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_kernel::{
    AttachError, Attachment, Change, Counters, LivePolicy, Mode, Settings, host_cpus,
};
use rxsteer_testbed::{Pair, pin_thread, snmp_now};

/// Changes an attachment, in the namespace of its interface.
fn change(
    attachment: &mut Attachment,
    pair: &Pair,
    to: impl FnOnce(&mut Settings) + Send,
) -> Change {
    let mut settings = attachment.settings().clone();
    to(&mut settings);
    pair.sink.run(|| attachment.change(settings)).unwrap().unwrap()
}

/// All that was sent arrived, in order, and was counted.
fn assert_whole(outcome: &Outcome, counters: &Counters) {
    assert_eq!((outcome.read, outcome.out_of_order), (outcome.sent, 0), "{outcome:?} {counters:?}");
    assert_eq!(counters.class(Class::Udp), outcome.sent, "{counters:?}");
    assert_sums(counters);
}

#[test]
fn tables_change_their_size_while_a_flow_moves_with_its_reader() {
    let test = "tables_change_their_size_while_a_flow_moves_with_its_reader";
    let Some(Rig { mut attachment, pair, cpus }) = rig(test, 2, |_| {}) else { return };
    let sizes = [1 << 17, 512, 1 << 14, 1 << 16];
    let load = Load { pair: &pair, cpus: &cpus, stay: 700, flows: 1 };
    let (changes, outcome) = load.during(|progress| {
        sizes.map(|entries| {
            progress.wait_for(2500);
            let before = attachment.counters().unwrap();
            let change = change(&mut attachment, &pair, |to| to.table_entries = entries);
            let after = attachment.counters().unwrap();
            assert!(after.seen() >= before.seen(), "{before:?} {after:?}");
            progress.wait_for(2500);
            assert_eq!(attachment.flows(), [0, 1]);
            change
        })
    });
    for change in changes {
        assert_eq!(change, Change { copied: [0, 1], may_overtake: Some(0) });
    }
    assert_eq!(attachment.settings().table_entries, 1 << 16);
    let counters = settled_of(&attachment);
    assert_whole(&outcome, &counters);
    // Until the first is read its flow is not known; from then on it is, whatever the size.
    assert!(counters.reason(Reason::Miss) <= WINDOW, "{counters:?}");
}

#[test]
fn every_flow_is_known_after_a_resize_and_withdrawn_by_its_own_socket() {
    let test = "every_flow_is_known_after_a_resize_and_withdrawn_by_its_own_socket";
    let Some(Rig { mut attachment, pair, .. }) = rig(test, 1, |_| {}) else { return };
    let flows: Vec<_> = (0..300).map(|_| connected(&pair, false)).collect();
    let mut bytes = [0; 8];
    let mut each = || {
        for (socket, peer) in &flows {
            peer.send(b"x").unwrap();
            socket.recv(&mut bytes).unwrap();
        }
    };
    each();
    assert_eq!(attachment.flows(), [0, 300]);
    for entries in [1024, 1 << 17] {
        let done = change(&mut attachment, &pair, |to| to.table_entries = entries);
        assert_eq!((done.copied, attachment.flows()), ([0, 300], [0, 300]));
        let before = settled_of(&attachment);
        each();
        let after = settled_of(&attachment);
        let found =
            |counters: &Counters| counters.reason(Reason::Hit) + counters.reason(Reason::Held);
        assert_eq!(found(&after) - found(&before), 300, "{after:?}");
        let inserted = |counters: &Counters| counters.records[Recorded::Inserted.index()];
        assert_eq!(inserted(&after), inserted(&before), "nothing had to be learnt anew");
    }
    if attachment.hears_close() {
        drop(flows);
        until(|| attachment.flows(), |flows| *flows == [0, 0]);
    } else {
        eprintln!("{test}: no cgroup hierarchy of version 2, so no close is heard");
    }
    assert_sums(&settled_of(&attachment));
}

#[test]
fn a_tcp_stream_goes_on_over_changes_and_no_segment_overtakes_another() {
    let test = "a_tcp_stream_goes_on_over_changes_and_no_segment_overtakes_another";
    let Some(Rig { mut attachment, pair, cpus }) = rig(test, 2, |_| {}) else { return };
    // A window that fits in every queue on the way: nothing is lost, so nothing is sent again.
    pair.sink.set_sysctl("net.ipv4.tcp_rmem", "4096 65536 131072").unwrap();
    let bind = || TcpListener::bind((Pair::SINK_V6, 0)).unwrap();
    let listener = pair.sink.run(bind).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = pair.source.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let (read, is_enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_enough.load(Ordering::Relaxed) {
                client.write_all(&[7; 20_000]).unwrap();
            }
            client.shutdown(Shutdown::Write).unwrap();
        });
        scope.spawn(|| {
            let mut buffer = vec![0; 20_000];
            for cpu in cpus.iter().cycle() {
                pin_thread(*cpu).unwrap();
                for _ in 0..50 {
                    let len = server.read(&mut buffer).unwrap();
                    if len == 0 {
                        return;
                    }
                    assert!(buffer[..len].iter().all(|byte| *byte == 7));
                    read.fetch_add(len as u64, Ordering::Relaxed);
                }
            }
        });
        let more = || {
            let before = read.load(Ordering::Relaxed);
            until(|| read.load(Ordering::Relaxed), |read| *read > before + 1_000_000);
        };
        more();
        for (entries, set) in [(512, only(cpus[0])), (1 << 17, attachment.settings().cpus)] {
            let done =
                change(&mut attachment, &pair, |to| (to.table_entries, to.cpus) = (entries, set));
            assert_eq!(done, Change { copied: [1, 0], may_overtake: Some(0) });
            attachment.maintain();
            more();
        }
        is_enough.store(true, Ordering::Relaxed);
    });
    let counters = settled_of(&attachment);
    assert_sums(&counters);
    // What the sender sends again in doubt (a tail loss probe) fills no gap and counts here as nothing.
    let out_of_order = pair.sink.run(|| tcp_extended("TCPOFOQueue")).unwrap();
    assert_eq!(out_of_order, 0, "{counters:?}");
}

#[test]
fn cpus_come_and_go_while_packets_of_flows_and_of_strangers_flow() {
    let test = "cpus_come_and_go_while_packets_of_flows_and_of_strangers_flow";
    for flows in [1, 8] {
        let Some(Rig { mut attachment, pair, cpus }) = rig(test, 2, |_| {}) else { return };
        let all = attachment.settings().cpus;
        let load = Load { pair: &pair, cpus: &cpus, stay: 700, flows };
        let ((), outcome) = load.during(|progress| {
            for set in [only(cpus[0]), all, only(cpus[1]), all] {
                progress.wait_for(2500);
                let done = change(&mut attachment, &pair, |to| to.cpus = set);
                assert_eq!(done, Change { copied: [0; 2], may_overtake: Some(0) });
                // Those that leave rest, and are gone then.
                let (mut turns, end) = (0, Instant::now() + common::WAIT);
                while turns < 10 && Instant::now() < end {
                    attachment.maintain();
                    std::thread::sleep(Duration::from_millis(5));
                    turns += 1;
                }
                let before = attachment.counters().unwrap();
                progress.wait_for(1500);
                let after = attachment.counters().unwrap();
                for (cpu, counters) in &after.cpus {
                    let was = before.cpus.iter().find(|(this, _)| this == cpu);
                    let taken = counters.taken - was.map_or(0, |(_, counters)| counters.taken);
                    assert!(
                        set.contains(*cpu) || taken <= WINDOW,
                        "{cpu:?} takes {taken}: {after:?}"
                    );
                }
            }
        });
        assert_whole(&outcome, &settled_of(&attachment));
    }
}

#[test]
fn the_policy_and_the_length_of_queues_change_while_packets_flow() {
    let test = "the_policy_and_the_length_of_queues_change_while_packets_flow";
    let Some(Rig { mut attachment, pair, cpus }) = rig(test, 2, |_| {}) else { return };
    let load = Load { pair: &pair, cpus: &cpus, stay: 700, flows: 1 };
    let (may_overtake, outcome) = load.during(|progress| {
        let mut may_overtake = 0;
        let mut step = |to: fn(&mut Settings)| {
            progress.wait_for(1500);
            let done = change(&mut attachment, &pair, to);
            may_overtake += done.may_overtake.unwrap();
            progress.wait_for(1500);
        };
        step(|to| to.policy = LivePolicy::Rps);
        step(|to| to.policy = LivePolicy::None);
        step(|to| to.policy = LivePolicy::Rps);
        step(|to| to.policy = LivePolicy::FlowAware);
        step(|to| to.queue_packets = 512);
        step(|to| to.aware.spill_above_packets = 64);
        may_overtake
    });
    let counters = settled_of(&attachment);
    assert_eq!(outcome.read, outcome.sent, "{counters:?}");
    assert!(outcome.out_of_order <= may_overtake, "{outcome:?}, {may_overtake} said");
    assert_eq!(counters.class(Class::Udp), outcome.sent, "{counters:?}");
    assert_sums(&counters);
    for reason in [Reason::Hit, Reason::Miss, Reason::Local] {
        assert!(counters.reason(reason) >= 1500, "{reason:?}: {counters:?}");
    }
}

#[test]
fn what_is_lost_in_a_flood_over_changes_is_lost_by_name() {
    let test = "what_is_lost_in_a_flood_over_changes_is_lost_by_name";
    let Some(Rig { mut attachment, pair, cpus }) = rig(test, 2, |settings| {
        settings.queue_packets = 16;
    }) else {
        return;
    };
    let socket = receiver(&pair, Pair::SINK_V4.into());
    let source = sender(&pair, Pair::SOURCE_V4.into(), socket.local_addr().unwrap());
    let device = || pair.sink.device(Pair::SINK_DEVICE).unwrap().counters;
    let peer = || pair.source.device(Pair::SOURCE_DEVICE).unwrap().counters;
    let (device_before, peer_before) = (device(), peer());
    let before = pair.sink.run(snmp_now).unwrap().unwrap();
    let end = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0u64;
            while !end.load(Ordering::Relaxed) && sent < 3_000_000 {
                source.send(&[0; 100]).unwrap();
                sent += 1;
            }
            sent
        });
        for set in [only(cpus[0]), attachment.settings().cpus] {
            change(&mut attachment, &pair, |to| (to.cpus, to.table_entries) = (set, 2048));
            attachment.maintain();
        }
        change(&mut attachment, &pair, |to| to.queue_packets = 64);
        end.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    let counters = settled_of(&attachment);
    let counted = pair.sink.run(snmp_now).unwrap().unwrap().since(&before);
    assert_sums(&counters);
    let on_the_link = (device().rx_dropped - device_before.rx_dropped)
        + (peer().tx_dropped - peer_before.tx_dropped);
    assert_eq!(counters.class(Class::Udp) + on_the_link, sent, "{counters:?}");
    socket.set_nonblocking(true).unwrap();
    let mut delivered = 0;
    while socket.recv(&mut [0; 128]).is_ok() {
        delivered += 1;
    }
    let full = counted.get("Udp.RcvbufErrors");
    let lost: u64 = counters.cpus.iter().map(|(_, cpu)| cpu.lost()).sum();
    let shed = counters.reason(Reason::Shed);
    assert_eq!(sent, delivered + full + lost + on_the_link + shed, "{counters:?}");
}

#[test]
fn what_cannot_change_is_refused_and_nothing_changes() {
    let test = "what_cannot_change_is_refused_and_nothing_changes";
    let Some(Rig { mut attachment, pair, .. }) = rig(test, 1, |_| {}) else { return };
    let before = attachment.settings().clone();
    let mut said = |to: &dyn Fn(&mut Settings)| {
        let mut settings = before.clone();
        to(&mut settings);
        attachment.change(settings).unwrap_err()
    };
    assert!(matches!(said(&|to| to.interface = "other".into()), AttachError::Fixed(_)));
    assert!(matches!(said(&|to| to.mode = Mode::Skb), AttachError::Fixed(_)));
    assert!(matches!(said(&|to| to.cpus = CpuSet::EMPTY), AttachError::NoCpu));
    assert!(matches!(said(&|to| to.table_entries = 1), AttachError::Setting { .. }));
    assert_eq!(attachment.settings(), &before);
    let (receiver, sender) = connected(&pair, false);
    sender.send(b"x").unwrap();
    receiver.recv(&mut [0; 8]).unwrap();
    assert_eq!(settled_of(&attachment).class(Class::Udp), 1);
}

#[test]
fn a_cpu_that_is_said_to_be_offline_gets_nothing_until_it_is_back() {
    let test = "a_cpu_that_is_said_to_be_offline_gets_nothing_until_it_is_back";
    let Some(Rig { mut attachment, pair, cpus }) = rig(test, 2, |_| {}) else { return };
    let online = host_cpus().unwrap().online;
    let without = online.difference(&only(cpus[1]));
    let load = Load { pair: &pair, cpus: &cpus, stay: 700, flows: 8 };
    let (may_overtake, outcome) = load.during(|progress| {
        let taken = |attachment: &Attachment| {
            let counters = attachment.counters().unwrap();
            let found = counters.cpus.iter().find(|(cpu, _)| *cpu == cpus[1]);
            found.map_or(0, |(_, counters)| counters.taken)
        };
        progress.wait_for(2500);
        assert_eq!(attachment.follow_cpus(&online).unwrap(), None);
        let done = pair.sink.run(|| attachment.follow_cpus(&without)).unwrap().unwrap();
        let may_overtake = done.unwrap().may_overtake.unwrap();
        // It runs in truth, and works off what it has; what was on its way comes as well.
        progress.wait_for(2500);
        let before = taken(&attachment);
        progress.wait_for(2500);
        assert_eq!(taken(&attachment), before);
        assert_eq!(attachment.follow_cpus(&without).unwrap(), None);
        let done = pair.sink.run(|| attachment.follow_cpus(&online)).unwrap().unwrap();
        assert_eq!(done.unwrap().may_overtake, Some(0));
        progress.wait_for(2500);
        assert!(taken(&attachment) > before);
        may_overtake
    });
    let counters = settled_of(&attachment);
    assert_eq!(outcome.read, outcome.sent, "{counters:?}");
    assert!(outcome.out_of_order <= may_overtake, "{outcome:?}, {may_overtake} said");
    assert_eq!(counters.class(Class::Udp), outcome.sent, "{counters:?}");
    assert_sums(&counters);
}

#[test]
fn a_million_packets_follow_their_reader_and_none_overtakes_another() {
    let test = "a_million_packets_follow_their_reader_and_none_overtakes_another";
    let Some(Rig { attachment, pair, cpus }) = rig(test, 2, |_| {}) else { return };
    let load = Load { pair: &pair, cpus: &cpus, stay: 25_000, flows: 1 };
    let (packets, most) = (1_000_000, Duration::from_secs(20));
    let ((), outcome) = load.during(|progress| {
        let end = Instant::now() + most;
        while progress.read() < packets && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    eprintln!("{test}: {} packets, a move after each 25,000 (at most {most:?})", outcome.read);
    let counters = settled_of(&attachment);
    assert_whole(&outcome, &counters);
    let moved = counters.records[Recorded::Moved.index()];
    assert!(moved >= (outcome.read - 1) / 25_000, "{moved} moves, {counters:?}");
}
