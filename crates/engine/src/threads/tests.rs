//! Real threads: sums, order, and the same deliveries as in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rxsteer_core::steer::{Aware, Host as _, PolicyKind, Reason};
use rxsteer_core::{CpuId, QueueId};
use rxsteer_sockets::Event;
use rxsteer_sockets::queue::{BufferPool, Datagram, Limits};

use super::seat::Seat;
use super::world::{Bell, Queued, World};
use super::*;
use crate::backlog::Backlog;
use crate::overload::GovernorSettings;
use crate::udp::testing::*;
use crate::udp::{Consume, Frame, Message, PlaneSettings, Socket, SocketSettings, Tally, Turn};
use crate::udp::{Sockets, UdpStages};
use crate::virtual_time::VirtualTime;
use crate::{Costs, Mode, ReaderId, Settings};

/// What was read, by socket and flow: the numbers in the order of reading.
type Delivered = BTreeMap<(u16, u32), Vec<u32>>;

#[derive(Debug, Default)]
struct Keep(Delivered);

impl Consume for Keep {
    fn consume(&mut self, _: Turn, socket: &Socket, message: Datagram<Message>) -> u64 {
        for datagram in message.payload.datagrams() {
            let (flow, number) = number_of(datagram);
            self.0.entry((socket.local().port(), flow)).or_default().push(number);
        }
        0
    }
}

type Stages = UdpStages<Keep>;

fn stages(sockets: &Arc<Sockets>) -> Stages {
    UdpStages::new(sockets, Keep::default()).watching_order()
}

fn setup(cpus: u16, irq_cpus: &[u16], readers: &[u16], settings: Settings) -> Setup {
    Setup {
        topology: topology(cpus, irq_cpus),
        settings,
        readers: readers.iter().copied().map(CpuId).collect(),
        pin: true,
    }
}

/// Adds up what all threads counted and read.
fn sum(stages: impl IntoIterator<Item = Stages>) -> (Tally, Delivered) {
    let (mut tally, mut delivered) = (Tally::new(), Delivered::new());
    for stages in stages {
        tally.add(stages.tally());
        for (key, numbers) in stages.into_consumer().0 {
            delivered.entry(key).or_default().extend(numbers);
        }
    }
    (tally, delivered)
}

fn all_stages<R>(finished: Finished<R, Stages>) -> (Tally, Delivered) {
    sum(finished.cpus.into_iter().map(|cpu| cpu.stages).chain(finished.readers))
}

/// Checks that each packet that was sent ended once. Nothing waits any more.
fn check_sums(tally: &Tally, sent: u64) {
    assert_eq!(tally.decisions(), sent, "{tally:?}");
    assert_eq!(
        tally.decisions() + tally.copies,
        tally.dropped() + tally.all_ended() + tally.queued,
        "{tally:?}"
    );
    assert_eq!(tally.queued, tally.read, "{tally:?}");
}

fn numbers(delivered: &Delivered) -> usize {
    delivered.values().map(Vec::len).sum()
}

fn in_order(delivered: &Delivered) -> bool {
    delivered.values().flat_map(|numbers| numbers.windows(2)).all(|pair| pair[0] < pair[1])
}

/// Sends a frame, again and again while its ring is full; returns how often that was.
fn send_surely(host: &Host<Frame, Stages>, queue: QueueId, mut frame: Frame) -> u64 {
    let mut refused = 0;
    while let Err(back) = host.send(queue, frame) {
        frame = back;
        refused += 1;
        std::thread::yield_now();
    }
    refused
}

/// A mix of traffic: which flow sends on which port, how much, and by which queue.
fn workload(pool: &BufferPool) -> Vec<(QueueId, Frame)> {
    let mut random = 12_345u32;
    let mut next = [0; 24];
    (0..6000)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Flow 0 sends as much as all others, in runs.
            let flow = if random >> 31 == 0 { 0 } else { (random >> 8) % 24 };
            let len = if random >> 4 & 7 == 0 { 40 } else { 200 };
            let number = next[flow as usize];
            next[flow as usize] += 1;
            let frame = numbered(pool, flow, 1000 + (flow % 6) as u16, number, len);
            (QueueId((flow % 2) as u16), frame)
        })
        .collect()
}

/// Sockets for [`workload`]: port 1000 to 1004 with room without end; 1005 does not exist. The
/// first two merge; the flows of 1002 are connected.
fn open_all(sockets: &Sockets) {
    for port in 1000..1005 {
        let gro = port < 1002;
        let settings = SocketSettings { gro, ..roomy(port, u32::from(port % 2)) };
        sockets.open(&settings).unwrap();
    }
    for flow in [2, 8, 14, 20] {
        let settings = SocketSettings { reuse_port: true, ..roomy(1100, 0) };
        let local = here(1002);
        let connected = SocketSettings { local, remote: Some(peer(flow)), ..settings };
        // The unconnected one does not share its address, so connect from a port of their own.
        let socket = sockets.open(&SocketSettings { local: here(0), ..connected });
        assert!(socket.is_ok());
    }
}

fn plane_settings(policy: PolicyKind) -> PlaneSettings {
    let mask: Vec<_> = (0..4).map(CpuId).collect();
    // Spilling moves packets of flows that are not known yet, on purpose.
    let aware = Aware { spill_above_packets: u32::MAX, ..Default::default() };
    PlaneSettings { policy, aware, masks: vec![mask; 2], ..Default::default() }
}

/// Rings and backlogs that hold the whole workload.
fn roomy_settings() -> Settings {
    let limits = crate::Limits { ring: 8192, max_backlog: 8192, ..Default::default() };
    Settings { limits, ..Default::default() }
}

fn on_threads(policy: PolicyKind, settings: Settings) -> (Tally, Delivered) {
    let sockets = sockets(&plane(plane_settings(policy)), &[2, 3]);
    open_all(&sockets);
    let pool = pool();
    let finished = run(
        &setup(4, &[0, 1], &[2, 3], settings),
        || stages(&sockets),
        |host| {
            for (queue, frame) in workload(&pool) {
                assert!(host.send(queue, frame).is_ok());
            }
        },
    );
    all_stages(finished.unwrap())
}

fn in_virtual_time(policy: PolicyKind, settings: Settings) -> (Tally, Delivered) {
    let sockets = sockets(&plane(plane_settings(policy)), &[2, 3]);
    open_all(&sockets);
    let pool = pool();
    let mut stages = stages(&sockets);
    let mut host = VirtualTime::new(&topology(4, &[0, 1]), &settings, &Costs::default());
    for (n, (queue, frame)) in workload(&pool).into_iter().enumerate() {
        host.arrive(frame, queue, 300 * n as u64, &mut stages);
    }
    host.drain(&mut stages);
    sum([stages])
}

#[test]
fn both_executors_deliver_the_same_packets_to_the_same_sockets_in_the_same_order_per_flow() {
    let modes = [
        Settings::default(),
        Settings { gro: false, read_batch: 64, ..Settings::default() },
        Settings { mode: Mode::Threaded, read_batch: 64, ..Settings::default() },
        Settings { mode: Mode::Ksoftirqd, gro_flush_ns: 20_000, ..Settings::default() },
    ];
    for policy in [PolicyKind::None, PolicyKind::Rps, PolicyKind::Rfs, PolicyKind::FlowAware] {
        for mode in modes {
            let settings = Settings { limits: roomy_settings().limits, ..mode };
            let (threads, on_threads) = on_threads(policy, settings);
            let (virtual_time, in_virtual_time) = in_virtual_time(policy, settings);
            for (executor, tally) in [("threads", &threads), ("virtual time", &virtual_time)] {
                check_sums(tally, 6000);
                assert_eq!(tally.dropped(), 0, "{policy} {executor}: nothing may be lost here");
                assert_eq!(tally.reordered, 0, "{policy} {executor} {settings:?}");
            }
            assert_eq!(threads.ended, virtual_time.ended);
            assert!(threads.ended(Event::NoPort) > 100);
            assert!(in_order(&in_virtual_time));
            assert_eq!(on_threads, in_virtual_time, "{policy} {settings:?}");
        }
    }
}

#[test]
fn merging_makes_fewer_trains_of_the_same_packets() {
    let alone = |gro: bool| {
        let sockets = sockets(&plane(plane_settings(PolicyKind::Rps)), &[0, 0]);
        open_all(&sockets);
        let pool = pool();
        let settings = Settings { gro, ..roomy_settings() };
        let mut host = Single::new(&settings, 2, stages(&sockets)).unwrap();
        for (queue, frame) in workload(&pool) {
            assert!(host.send(queue, frame).is_ok());
        }
        assert!(host.poll());
        while host.poll() {}
        for reader in [0, 1] {
            while host.read(ReaderId(reader), 64).more {}
        }
        assert_eq!(host.counts().taken, 6000);
        sum([host.into_stages()])
    };
    let (merged, with) = alone(true);
    let (single, without) = alone(false);
    check_sums(&merged, 6000);
    check_sums(&single, 6000);
    assert_eq!(with, without);
    assert_eq!((single.trains, single.messages), (6000, single.read));
    // Half of the packets are of one flow, and the other flows are few.
    assert!(merged.trains < 3000, "{} trains", merged.trains);
    assert!(merged.messages < merged.read);
}

/// How often a flooded host is disturbed at least.
const DISTURBED: usize = 100;

/// Two senders flood a host whose rings, backlogs and sockets are small, while `disturb` does
/// something to it again and again; returns what came of it.
fn flood(
    policy: PolicyKind,
    settings: Settings,
    small: bool,
    disturb: impl Fn(&Host<Frame, Stages>, &Sockets, usize) + Sync,
) -> (Tally, Delivered) {
    let sockets = sockets(&plane(plane_settings(policy)), &[2, 3]);
    let limits = Limits::bytes(if small { 20_000 } else { u32::MAX });
    for flow in 0..16u32 {
        let port = 1000 + flow as u16;
        let remote = Some(peer(flow));
        let settings = SocketSettings { remote, limits, ..roomy(port, flow % 2) };
        sockets.open(&settings).unwrap();
    }
    let pool = pool();
    let times = AtomicUsize::new(0);
    let setup = setup(4, &[0, 1], &[2, 3], settings);
    let finished = run(
        &setup,
        || stages(&sockets),
        |host| {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let senders = [0, 1].map(|queue| {
                    let (pool, host, times) = (&pool, &host, &times);
                    scope.spawn(move || {
                        let (mut accepted, mut refused) = (0u64, 0u64);
                        let mut number = 0;
                        while number < 2000 || times.load(Ordering::Acquire) < DISTURBED {
                            for _ in 0..32 {
                                let flow = (number * 2 + queue) % 16;
                                let port = 1000 + flow as u16;
                                let frame = numbered(pool, flow, port, number, 64);
                                if small {
                                    match host.send(QueueId(queue as u16), frame) {
                                        Ok(()) => accepted += 1,
                                        Err(_) => refused += 1,
                                    }
                                } else {
                                    // Not more than the backlogs hold.
                                    while (0..4).map(|cpu| host.waiting(CpuId(cpu))).sum::<u32>()
                                        > 4000
                                    {
                                        std::thread::yield_now();
                                    }
                                    refused += send_surely(host, QueueId(queue as u16), frame);
                                    accepted += 1;
                                }
                                number += 1;
                            }
                        }
                        (accepted, refused)
                    })
                });
                let (host, sockets, over, times) = (&host, &sockets, &over, &times);
                let disturb = &disturb;
                let disturber = scope.spawn(move || {
                    while !over.load(Ordering::Acquire) {
                        disturb(host, sockets, times.load(Ordering::Relaxed));
                        times.fetch_add(1, Ordering::Release);
                        std::thread::sleep(Duration::from_micros(500));
                    }
                });
                let counts = senders.map(|sender| sender.join().unwrap());
                over.store(true, Ordering::Release);
                disturber.join().unwrap();
                (counts[0].0 + counts[1].0, counts[0].1 + counts[1].1)
            })
        },
    );
    let finished = finished.unwrap();
    let (accepted, refused) = finished.result;
    assert_eq!(finished.ring_dropped.iter().sum::<u64>(), refused);
    let backlog_dropped: u64 = finished.cpus.iter().map(|cpu| cpu.backlog_dropped).sum();
    let taken: u64 = finished.cpus.iter().map(|cpu| cpu.counts.taken).sum();
    let processed: u64 = finished.cpus.iter().map(|cpu| cpu.counts.processed).sum();
    let (tally, delivered) = all_stages(finished);
    assert_eq!(taken, accepted);
    assert_eq!(processed, tally.all_ended() + tally.queued);
    assert_eq!(backlog_dropped, tally.backlog);
    check_sums(&tally, accepted);
    assert_eq!(numbers(&delivered) as u64, tally.read);
    // The stages' own watch against what the readers kept: a reader has each flow to itself.
    assert_eq!(tally.reordered == 0, in_order(&delivered));
    assert!(tally.read > 0, "{tally:?}");
    (tally, delivered)
}

/// Backlogs that hold all that is under way while senders keep to the limit of [`flood`].
fn steady_settings(mode: Mode) -> Settings {
    let limits = crate::Limits { ring: 256, max_backlog: 8192, ..Default::default() };
    Settings { mode, limits, ..Default::default() }
}

fn small_settings(mode: Mode) -> Settings {
    let limits = crate::Limits { ring: 64, max_backlog: 30, ..Default::default() };
    Settings { mode, limits, flow_limit_buckets: 4096, ..Default::default() }
}

#[test]
fn under_a_flood_every_packet_ends_once_and_flows_keep_their_order() {
    for mode in Mode::ALL {
        for policy in [PolicyKind::None, PolicyKind::Rps, PolicyKind::FlowAware] {
            let settings = Settings { read_batch: 8, ..small_settings(mode) };
            let (tally, ..) = flood(policy, settings, true, |_, _, _| ());
            assert_eq!(tally.reordered, 0, "{mode:?} {policy}");
        }
    }
}

/// Readers change their CPU all the time: flows follow them, and none is reordered.
#[test]
fn flows_that_follow_moving_readers_keep_their_order() {
    let move_readers = |host: &Host<Frame, Stages>, _: &Sockets, times: usize| {
        host.move_reader(ReaderId((times % 2) as u32), CpuId((times / 2 % 4) as u16));
    };
    for (small, settings) in
        [(true, small_settings(Mode::Inline)), (false, steady_settings(Mode::Inline))]
    {
        let (tally, _) = flood(PolicyKind::FlowAware, settings, small, move_readers);
        assert!(tally.moved > 0, "{tally:?}");
        assert_eq!(tally.reordered, 0, "{tally:?}");
    }
}

#[test]
fn a_cpu_that_leaves_and_comes_back_loses_nothing_and_reorders_nothing() {
    let plug = |host: &Host<Frame, Stages>, _: &Sockets, times: usize| {
        let cpu = CpuId((times / 2 % 4) as u16);
        if times.is_multiple_of(2) {
            assert!(host.offline(cpu).is_some());
            assert!(!host.is_online(cpu) && host.waiting(cpu) == 0);
        } else {
            assert!(host.online(cpu));
        }
    };
    // The CPU of a hash in the mask may be the one that is offline: then packets stay where they
    // are taken, and that moves with the queue, so `rps` may reorder, which is counted.
    for mode in Mode::ALL {
        let settings = steady_settings(mode);
        let (tally, delivered) = flood(PolicyKind::FlowAware, settings, false, plug);
        assert_eq!((tally.dropped(), tally.all_ended()), (0, 0), "nothing is lost");
        assert_eq!(numbers(&delivered) as u64, tally.decisions());
        let (tally, ..) =
            flood(PolicyKind::Rps, Settings { mode, ..small_settings(mode) }, true, plug);
        assert_eq!(tally.offline, 0, "CPUs leave between runs, so nobody is on the way to one");
    }
}

#[test]
fn masks_that_change_reorder_what_goes_by_hash_and_that_is_counted() {
    let masks = |_: &Host<Frame, Stages>, sockets: &Sockets, times: usize| {
        let mask: Vec<_> = (0..4).map(CpuId).filter(|cpu| cpu.index() != times % 4).collect();
        (0..2).for_each(|queue| sockets.plane().set_mask(QueueId(queue), &mask));
    };
    for (small, settings) in
        [(true, small_settings(Mode::Inline)), (false, steady_settings(Mode::Inline))]
    {
        // Sums, and the two ways to see the order, are checked inside.
        let (tally, ..) = flood(PolicyKind::Rps, settings, small, masks);
        assert!(tally.reason(Reason::NoFlow) + tally.reason(Reason::Miss) > 0);
    }
}

#[test]
fn the_last_cpu_stays_and_a_cpu_is_plugged_once() {
    let sockets = sockets(&plane(plane_settings(PolicyKind::Rps)), &[0]);
    let finished = run(
        &setup(2, &[0, 1], &[0], roomy_settings()),
        || stages(&sockets),
        |host| {
            assert_eq!(host.offline(CpuId(0)), Some(0));
            assert_eq!(host.offline(CpuId(0)), None);
            assert_eq!(host.offline(CpuId(1)), None);
            assert_eq!(host.offline(CpuId(7)), None);
            assert!(!host.online(CpuId(1)) && !host.online(CpuId(7)));
            assert!(host.online(CpuId(0)) && !host.online(CpuId(0)));
        },
    );
    assert_eq!(finished.unwrap().cpus.len(), 2);
}

/// Many bursts, each waited for: a wake-up that is lost leaves one of them waiting for ever.
#[test]
fn no_wake_up_is_lost_between_bursts() {
    let sockets = sockets(&plane(plane_settings(PolicyKind::Rps)), &[2, 3]);
    open_all(&sockets);
    let pool = pool();
    let settings = Settings { gro_flush_ns: 1000, ..roomy_settings() };
    let finished = run(
        &setup(4, &[0, 1], &[2, 3], settings),
        || stages(&sockets),
        |host| {
            for number in 0..2000 {
                let flow = number % 5;
                let frame = numbered(&pool, flow, 1000 + flow as u16, number, 64);
                assert!(host.send(QueueId((number % 2) as u16), frame).is_ok());
                if number % 3 == 0 {
                    host.settle();
                }
            }
        },
    );
    let (tally, _) = all_stages(finished.unwrap());
    check_sums(&tally, 2000);
    assert_eq!(tally.read, 2000);
}

#[test]
fn a_host_that_cannot_be_is_refused() {
    let refused = |setup: &Setup| {
        let sockets = sockets(&plane(PlaneSettings::default()), &[0]);
        run(setup, || stages(&sockets), |_| ()).unwrap_err()
    };
    let good = setup(2, &[0], &[0], Settings::default());
    let mut bad = good.clone();
    bad.topology.irq_cpus = vec![CpuId(0); 64];
    assert_eq!(refused(&bad), SetupError::TooManyQueues(64));
    let mut bad = good.clone();
    bad.topology.irq_cpus = vec![CpuId(0), CpuId(2)];
    assert_eq!(refused(&bad), SetupError::QueueOffline(QueueId(1)));
    let mut bad = good.clone();
    bad.readers = vec![CpuId(9)];
    assert_eq!(refused(&bad), SetupError::NoReaderCpu(ReaderId(0)));
    let mut bad = good.clone();
    bad.topology.cpus.online = rxsteer_core::CpuSet::EMPTY;
    assert_eq!(refused(&bad), SetupError::NoCpu);
    let mut bad = good.clone();
    bad.settings.limits.max_backlog = Backlog::<()>::MOST_PACKETS + 1;
    assert_eq!(refused(&bad), SetupError::TooLong(1_048_577));
    let mut bad = good.clone();
    bad.settings.govern = Some(GovernorSettings::default());
    assert_eq!(refused(&bad), SetupError::Governed);
    // Nothing else was wrong.
    run(&good, || stages(&sockets(&plane(PlaneSettings::default()), &[0])), |_| ()).unwrap();
}

#[test]
#[should_panic(expected = "on purpose")]
fn a_thread_that_panics_does_not_leave_the_caller_waiting() {
    #[derive(Debug)]
    struct Fails;
    impl Consume for Fails {
        fn consume(&mut self, _: Turn, _: &Socket, _: Datagram<Message>) -> u64 {
            panic!("on purpose")
        }
    }
    let sockets = sockets(&plane(plane_settings(PolicyKind::Rps)), &[2, 3]);
    open_all(&sockets);
    let pool = pool();
    let stages = || UdpStages::new(&sockets, Fails);
    let _ = run(&setup(4, &[0, 1], &[2, 3], roomy_settings()), stages, |host| {
        assert!(host.send(QueueId(0), numbered(&pool, 0, 1000, 0, 64)).is_ok());
    });
}

/// Others move head and tail while a decision asks: a head that is read after more came and went
/// must not pass for four thousand million packets, which would spill and refuse.
#[test]
fn a_backlog_seen_from_outside_is_never_deeper_than_it_can_be() {
    const MOST: u32 = 7;
    let limits = crate::Limits { max_backlog: MOST, ..crate::Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    let world = World::new(&topology(1, &[0]), &settings, &[]);
    let backlog = &world.cpus[0].backlog;
    let ending = AtomicBool::new(false);
    let deepest = std::thread::scope(|scope| {
        let deepest = scope.spawn(|| {
            let mut deepest = 0;
            while !ending.load(Ordering::Relaxed) {
                deepest = deepest.max(world.waiting(CpuId(0)));
            }
            deepest
        });
        for packet in 0..300_000 {
            let queued = Queued::new(packet, CpuId(0), QueueId(0));
            assert!(backlog.enqueue(queued).is_ok());
            assert!(backlog.take_one().is_some());
            backlog.finish(1);
        }
        ending.store(true, Ordering::Relaxed);
        deepest.join().unwrap()
    });
    assert!(deepest <= MOST + 1, "{deepest}");
}

/// A CPU by hand whose queue's mask is that CPU alone, with a connected socket that it reads.
fn by_hand() -> (World<Frame>, Seat<Frame, Stages>, Arc<Sockets>) {
    let settings = Settings { gro: false, ..Settings::default() };
    let plane =
        plane(PlaneSettings { masks: vec![vec![CpuId(0)]], ..plane_settings(PolicyKind::Rps) });
    let sockets = sockets(&plane, &[0]);
    sockets.open(&roomy(1000, 0)).unwrap();
    let world = World::new(&topology(2, &[0]), &settings, &[]);
    let mut seat = Seat::new(CpuId(0), &settings, 1, stages(&sockets));
    seat.add_queue(QueueId(0));
    (world, seat, sockets)
}

/// Puts a frame of flow 1 in the ring and interrupts.
fn receive(world: &World<Frame>, number: u32) {
    assert!(world.rings[0].frames.enqueue(numbered(&pool(), 1, 1000, number, 64)).is_ok());
    world.cpus[0].bell.ring(Bell::queue(QueueId(0)));
}

#[test]
fn a_packet_that_stays_on_a_cpu_without_backlog_is_processed_in_the_poll_that_took_it() {
    let (world, mut seat, _sockets) = by_hand();
    receive(&world, 0);
    seat.run(&world);
    let counts = seat.cpu.counts();
    assert_eq!((counts.polls, counts.processed, world.cpus[0].backlog.tail()), (1, 1, 0));
    // What was decided is counted as it is on any way.
    assert_eq!(seat.stages.tally().reason(Reason::NoFlow), 1, "{:?}", seat.stages.tally());
}

#[test]
fn a_packet_that_stays_does_not_overtake_what_waits_on_the_backlog() {
    let (world, mut seat, _sockets) = by_hand();
    // Another CPU put it there, and its signal is still on the way.
    let first = Queued::new(numbered(&pool(), 1, 1000, 0, 64), CpuId(1), QueueId(0));
    assert!(world.cpus[0].backlog.enqueue(first).unwrap().signal);
    receive(&world, 1);
    seat.run(&world);
    assert_eq!((seat.cpu.counts().processed, world.cpus[0].backlog.waiting()), (0, 2));
    world.cpus[0].bell.ring(Bell::FIRST);
    seat.run(&world);
    assert_eq!(crate::Stages::read(&mut seat.stages, ReaderId(0), CpuId(0), 0, 64).packets, 2);
    let (tally, delivered) = sum([seat.stages]);
    assert_eq!((tally.queued, tally.reordered), (2, 0));
    assert_eq!(delivered.into_values().collect::<Vec<_>>(), [[0, 1]]);
}
