//! Ports that were declared for flows: each peer of a socket that is not connected goes to the CPU of the
//! thread that answers it. Needs root; without it each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use aya::programs::{SchedClassifier, TcAttachType};
use common::{Rig, assert_sums, connected, rig, sender, settled_of, sharing, until};
use nix::sys::socket::{SockaddrLike as _, SockaddrStorage};
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_core::{CpuId, PortSet};
use rxsteer_kernel::{Answers, Attachment, Counters, Settings, status};
use rxsteer_testbed::{Pair, TestbedError, pin_thread};

const FLOWS: u16 = 4433;
const OTHER: u16 = 5353;
const PEERS: usize = 16;

/// First of the ports of clients.
const CLIENTS: u16 = 20_000;

fn declared(settings: &mut Settings) {
    settings.flow_ports = FLOWS.to_string().parse().unwrap();
    known_hash(settings);
}

/// With it and known ports it does not depend on chance which peers meet in a word of the filter.
fn known_hash(settings: &mut Settings) {
    settings.hasher = Some(SoftHasher { k0: 20_101, k1: 7 });
}

fn taken(counters: &Counters, cpu: CpuId) -> u64 {
    counters.cpus.iter().find(|(this, _)| *this == cpu).map_or(0, |(_, of)| of.taken)
}

fn udp(counters: &Counters, reason: Reason) -> u64 {
    counters.packets[Class::Udp.index()][reason.index()]
}

/// A thread that answers each packet of its socket, on a CPU that it is told.
struct Worker {
    socket: UdpSocket,
    cpu: AtomicU16,
    /// The CPU on which it is.
    on: AtomicU16,
    is_over: AtomicBool,
    /// By peer: the number that comes next.
    next: Mutex<BTreeMap<SocketAddr, u64>>,
    overtaken: AtomicU64,
}

impl Worker {
    fn new(pair: &Pair, address: SocketAddr, cpu: CpuId) -> Self {
        let socket = sharing(pair, address);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (cpu, on) = (AtomicU16::new(cpu.0), AtomicU16::new(u16::MAX));
        let is_over = AtomicBool::new(false);
        let (next, overtaken) = (Mutex::default(), AtomicU64::new(0));
        Self { socket, cpu, on, is_over, next, overtaken }
    }

    fn run(&self) {
        let mut bytes = [0; 8];
        while !self.is_over.load(Ordering::Acquire) {
            let cpu = self.cpu.load(Ordering::Acquire);
            if self.on.load(Ordering::Acquire) != cpu {
                pin_thread(CpuId(cpu)).unwrap();
                self.on.store(cpu, Ordering::Release);
            }
            let Ok((_, peer)) = self.socket.recv_from(&mut bytes) else { continue };
            let number = u64::from_be_bytes(bytes);
            let mut next = self.next.lock().unwrap();
            let next = next.entry(peer).or_default();
            if number != *next {
                self.overtaken.fetch_add(1, Ordering::AcqRel);
            }
            *next = number + 1;
            // By both calls.
            if number % 2 == 0 {
                self.socket.send_to(&bytes, peer).unwrap();
            } else {
                send_message(&self.socket, &bytes, peer);
            }
        }
    }

    fn peers(&self) -> u64 {
        self.next.lock().unwrap().len() as u64
    }
}

/// Sends by sendmsg(2).
fn send_message(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    let address = SockaddrStorage::from(to);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: plain integers and pointers, for which zeroes are values.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = address.as_ptr().cast_mut().cast();
    message.msg_namelen = address.len();
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    // SAFETY: the address and the bytes outlive the call, which only reads them.
    let said = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    assert_eq!(said, bytes.len() as isize, "{}", std::io::Error::last_os_error());
}

/// Clients, and how many packets each has sent.
struct Peers {
    senders: Vec<UdpSocket>,
    sent: Vec<u64>,
}

impl Peers {
    fn new(pair: &Pair, from: IpAddr, to: SocketAddr, count: usize) -> Self {
        Self::from_port(pair, SocketAddr::new(from, CLIENTS), to, count)
    }

    /// The first from that port, the others from the ports after it.
    fn from_port(pair: &Pair, from: SocketAddr, to: SocketAddr, count: usize) -> Self {
        let make = |place| {
            let port = from.port() + place as u16;
            let sender = pair.source.run(|| UdpSocket::bind((from.ip(), port)).unwrap()).unwrap();
            sender.connect(to).unwrap();
            sender.set_read_timeout(Some(common::WAIT)).unwrap();
            sender
        };
        Self { senders: (0..count).map(make).collect(), sent: vec![0; count] }
    }

    /// Each sends so many packets at once, and waits for as many answers.
    fn burst(&mut self, packets: u64) {
        for _ in 0..packets {
            for (sender, sent) in self.senders.iter().zip(&mut self.sent) {
                sender.send(&sent.to_be_bytes()).unwrap();
                *sent += 1;
            }
        }
        for sender in &self.senders {
            (0..packets).for_each(|_| {
                assert_eq!(sender.recv(&mut [0; 16]).unwrap(), 8);
            });
        }
    }

    fn rounds(&mut self, count: u64) {
        (0..count).for_each(|_| self.burst(1));
    }

    /// Lets packets flow until those of all peers go where their workers are.
    fn arrive(&mut self, attachment: &Attachment) {
        let count = self.senders.len() as u64;
        for _ in 0..1000 {
            let before = settled_of(attachment);
            self.burst(1);
            let after = settled_of(attachment);
            if udp(&after, Reason::Hit) - udp(&before, Reason::Hit) == count {
                return;
            }
        }
        panic!("never all of them: {:?}", attachment.counters());
    }

    fn sent(&self) -> u64 {
        self.sent.iter().sum()
    }
}

/// Ends workers, also when a test fails.
struct End<'a>(&'a [Worker; 2]);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|worker| worker.is_over.store(true, Ordering::Release));
    }
}

/// Runs two workers of one port while `act` runs; none of them may see a packet overtaken.
fn with_workers<T>(rig: &Rig, address: SocketAddr, act: impl FnOnce(&Rig, &[Worker; 2]) -> T) -> T {
    let workers = [0, 1].map(|n| Worker::new(&rig.pair, address, rig.cpus[n]));
    let done = std::thread::scope(|scope| {
        for worker in &workers {
            scope.spawn(|| worker.run());
        }
        let _end = End(&workers);
        act(rig, &workers)
    });
    for worker in &workers {
        assert_eq!(worker.overtaken.load(Ordering::Acquire), 0);
    }
    done
}

/// Every packet from now on is processed where its peer's worker is: counted, none excepted.
fn assert_at_home(rig: &Rig, workers: &[Worker; 2], peers: &mut Peers, rounds: u64) {
    for worker in workers {
        let places = || (worker.on.load(Ordering::Acquire), worker.cpu.load(Ordering::Acquire));
        until(places, |(on, told)| on == told);
    }
    // Each peer has an answer from where its worker is now.
    peers.rounds(1);
    peers.arrive(&rig.attachment);
    let before = settled_of(&rig.attachment);
    peers.rounds(rounds);
    let after = settled_of(&rig.attachment);
    for worker in workers {
        let cpu = CpuId(worker.cpu.load(Ordering::Acquire));
        let at_home = taken(&after, cpu) - taken(&before, cpu);
        assert_eq!(at_home, rounds * worker.peers(), "CPU {cpu}: {before:?} {after:?}");
    }
    let hits = udp(&after, Reason::Hit) - udp(&before, Reason::Hit);
    assert_eq!(hits, rounds * peers.senders.len() as u64, "{after:?}");
    assert_sums(&after);
}

/// Every answer that was heard is one of those, and each has one result.
fn assert_answers(answers: &Answers, heard: u64, flows: u64) {
    assert_eq!(answers.results().iter().map(|(_, count)| count).sum::<u64>(), answers.heard);
    let once = (answers.heard, answers.strange, answers.entered, answers.late());
    // The first answer is to a stranger, the second makes it a flow.
    assert_eq!(once, (heard, flows, flows, 0), "{answers:?}");
}

/// Two workers, each on its CPU, then with their CPUs swapped.
fn group(rig: &Rig, from: IpAddr, to: IpAddr) {
    let to = SocketAddr::new(to, FLOWS);
    let earlier = rig.attachment.counters().unwrap().answers;
    with_workers(rig, to, |rig, workers| {
        let mut peers = Peers::new(&rig.pair, from, to, PEERS);
        assert_at_home(rig, workers, &mut peers, 50);
        assert!(workers.iter().all(|worker| worker.peers() > 0), "one worker has all peers");
        for (worker, cpu) in workers.iter().zip([rig.cpus[1], rig.cpus[0]]) {
            worker.cpu.store(cpu.0, Ordering::Release);
        }
        assert_at_home(rig, workers, &mut peers, 50);
        let counters = rig.attachment.counters().unwrap();
        let heard = counters.answers.heard - earlier.heard;
        let answers = Answers {
            heard,
            known: counters.answers.known - earlier.known,
            entered: counters.answers.entered - earlier.entered,
            strange: counters.answers.strange - earlier.strange,
            full: counters.answers.full - earlier.full,
            unread: counters.answers.unread - earlier.unread,
        };
        assert_answers(&answers, peers.sent(), PEERS as u64);
    });
}

#[test]
fn the_packets_of_each_peer_go_to_the_worker_of_the_group_that_answers_it() {
    let test = "the_packets_of_each_peer_go_to_the_worker_of_the_group_that_answers_it";
    let Some(rig) = rig(test, 2, declared) else { return };
    group(&rig, Pair::SOURCE_V4.into(), Pair::SINK_V4.into());
    assert_eq!(rig.attachment.flows(), [0, PEERS]);
    group(&rig, Pair::SOURCE_V6.into(), Pair::SINK_V6.into());
    // Nobody takes entries out at a close: they grow old.
    assert_eq!(rig.attachment.flows(), [0, 2 * PEERS]);
    let ends = [(&rig.pair.source, Pair::SOURCE_DEVICE, 1), (&rig.pair.sink, Pair::SINK_DEVICE, 2)];
    let address = |host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
    for (namespace, lower, host) in ends {
        match namespace.add_vlan("tag", lower, 7, false) {
            Err(error @ TestbedError::NoKind { .. }) => {
                eprintln!("skipped the tagged part of {test}: {error}");
                return;
            }
            made => made.unwrap(),
        }
        namespace.add_address("tag", address(host), 24).unwrap();
    }
    for (namespace, there, host) in
        [(&rig.pair.source, &rig.pair.sink, 2), (&rig.pair.sink, &rig.pair.source, 1)]
    {
        let mac = there.device("tag").unwrap().mac;
        namespace.add_neighbour("tag", address(host), mac).unwrap();
    }
    group(&rig, address(1), address(2));
    assert_eq!(rig.attachment.flows(), [0, 3 * PEERS]);
}

#[test]
fn a_worker_that_moves_takes_its_peers_along_and_no_packet_is_overtaken() {
    let test = "a_worker_that_moves_takes_its_peers_along_and_no_packet_is_overtaken";
    let Some(rig) = rig(test, 2, declared) else { return };
    let to = SocketAddr::new(Pair::SINK_V4.into(), FLOWS);
    with_workers(&rig, to, |rig, workers| {
        let mut peers = Peers::new(&rig.pair, Pair::SOURCE_V4.into(), to, 8);
        for stay in 0..12 {
            // Eight peers with eight packets each: fewer than the ring of the device holds.
            (0..40).for_each(|_| peers.burst(8));
            // Apart, both there, apart the other way round, both here.
            let worker = &workers[stay % 2];
            let old = worker.cpu.load(Ordering::Acquire);
            let other = if old == rig.cpus[0].0 { rig.cpus[1] } else { rig.cpus[0] };
            worker.cpu.store(other.0, Ordering::Release);
        }
        let counters = settled_of(&rig.attachment);
        assert!(counters.records[Recorded::Moved.index()] >= 12, "{counters:?}");
        for (worker, cpu) in workers.iter().zip([rig.cpus[1], rig.cpus[0]]) {
            worker.cpu.store(cpu.0, Ordering::Release);
        }
        assert_at_home(rig, workers, &mut peers, 20);
    });
}

#[test]
fn a_port_that_was_not_declared_writes_nothing_and_neither_does_what_cannot_be_read() {
    let test = "a_port_that_was_not_declared_writes_nothing_and_neither_does_what_cannot_be_read";
    let Some(rig) = rig(test, 2, |settings| {
        declared(settings);
        settings.ports = false;
    }) else {
        return;
    };
    let to = SocketAddr::new(Pair::SINK_V4.into(), OTHER);
    with_workers(&rig, to, |rig, _| {
        Peers::new(&rig.pair, Pair::SOURCE_V4.into(), to, 4).rounds(20);
    });
    let counters = settled_of(&rig.attachment);
    assert_eq!(counters.answers, Answers::default());
    assert_eq!((counters.records, rig.attachment.flows()), ([0; Recorded::COUNT], [0, 0]));

    // An answer in two fragments, of which only the first has ports, and those not in its hash.
    let server = sharing(&rig.pair, SocketAddr::new(Pair::SINK_V4.into(), FLOWS));
    let client = sender(&rig.pair, Pair::SOURCE_V4.into(), server.local_addr().unwrap());
    for _ in 0..3 {
        server.send_to(&[7; 2000], client.local_addr().unwrap()).unwrap();
        assert_eq!(client.recv(&mut [0; 2048]).unwrap(), 2000);
    }
    let counters = settled_of(&rig.attachment);
    assert_eq!(counters.answers, Answers { heard: 6, unread: 6, ..Answers::default() });
    assert_eq!((counters.records, rig.attachment.flows()), ([0; Recorded::COUNT], [0, 0]));

    // A socket with a peer says itself what its flow is.
    let (one, other) = connected(&rig.pair, false);
    one.send(b"x").unwrap();
    server.connect(client.local_addr().unwrap()).unwrap();
    for _ in 0..3 {
        server.send(b"x").unwrap();
    }
    drop(other);
    let counters = settled_of(&rig.attachment);
    assert_eq!((counters.answers.heard, rig.attachment.flows()), (6, [0, 2]));
    assert_sums(&counters);
}

#[test]
fn a_flood_of_clients_that_come_once_or_twice_displaces_no_flow() {
    let test = "a_flood_of_clients_that_come_once_or_twice_displaces_no_flow";
    let Some(rig) = rig(test, 2, |settings| {
        declared(settings);
        // One bucket.
        settings.table_entries = 8;
    }) else {
        return;
    };
    let to = SocketAddr::new(Pair::SINK_V4.into(), FLOWS);
    let from = IpAddr::V4(Pair::SOURCE_V4);
    with_workers(&rig, to, |rig, _| {
        let mut flows = Peers::new(&rig.pair, from, to, 4);
        flows.rounds(3);
        flows.arrive(&rig.attachment);
        let begin = settled_of(&rig.attachment);
        let (before, mut strangers) = (flows.sent(), 0);
        let mut next = SocketAddr::new(from, CLIENTS + 100);
        let mut flood = |rig: &Rig, clients: usize, packets: u64, flows: &mut Peers| {
            Peers::from_port(&rig.pair, next, to, clients).rounds(packets);
            next.set_port(next.port() + clients as u16);
            strangers += clients as u64 * packets;
            flows.rounds(1);
        };
        (0..40).for_each(|_| flood(rig, 50, 1, &mut flows));
        let counters = settled_of(&rig.attachment);
        assert_eq!(rig.attachment.flows(), [0, 4]);
        assert_eq!((counters.answers.entered, counters.answers.strange), (4, 2004));
        // Four come in for which there is room; those after them displace nobody.
        (0..4).for_each(|_| flood(rig, 16, 2, &mut flows));
        let counters = settled_of(&rig.attachment);
        assert_eq!(rig.attachment.flows(), [0, 8]);
        let answers = counters.answers;
        assert_eq!((answers.entered, answers.full, answers.late()), (8, 60, 0), "{answers:?}");
        assert_eq!(counters.records[Recorded::Evicted(rxsteer_core::FlowHash::NONE).index()], 0);
        let hits = udp(&counters, Reason::Hit) - udp(&begin, Reason::Hit);
        // A client that got in was answered for the last time.
        assert_eq!(hits, flows.sent() - before, "{counters:?}");
        let seen = counters.class(Class::Udp) - begin.class(Class::Udp);
        assert_eq!(seen, flows.sent() - before + strangers, "{counters:?}");
        assert_sums(&counters);
    });
}

/// Returns how many programs see what the interface sends.
fn on_the_way_out(pair: &Pair) -> usize {
    let ask = || SchedClassifier::query_tcx(Pair::SINK_DEVICE, TcAttachType::Egress);
    pair.sink.run(ask).unwrap().unwrap().1.len()
}

#[test]
fn ports_are_declared_and_taken_back_while_packets_flow_and_another_process_goes_on_with_them() {
    let test = "ports_are_declared_and_taken_back_while_packets_flow_and_another_process_goes_on_with_them";
    let Some(mut rig) = rig(test, 2, |settings| {
        known_hash(settings);
        settings.ports = false;
    }) else {
        return;
    };
    let to = SocketAddr::new(Pair::SINK_V4.into(), FLOWS);
    let workers = [0, 1].map(|n| Worker::new(&rig.pair, to, rig.cpus[n]));
    let mut peers = Peers::new(&rig.pair, Pair::SOURCE_V4.into(), to, PEERS);
    std::thread::scope(|scope| {
        for worker in &workers {
            scope.spawn(|| worker.run());
        }
        let _end = End(&workers);
        let plain = rig.attachment.settings().clone();
        let change = |rig: &mut Rig, settings: Settings| {
            let Rig { attachment, pair, .. } = rig;
            let change = pair.sink.run(|| attachment.change(settings)).unwrap().unwrap();
            assert_eq!(change.may_overtake, Some(0));
        };
        peers.rounds(20);
        assert_eq!((on_the_way_out(&rig.pair), rig.attachment.flows()), (0, [0, 0]));

        let mut with = plain.clone();
        declared(&mut with);
        change(&mut rig, with.clone());
        assert_eq!(on_the_way_out(&rig.pair), 1);
        assert_at_home(&rig, &workers, &mut peers, 10);
        let shown = rig.pair.sink.run(status).unwrap().unwrap();
        assert_eq!(shown[0].flow_ports, with.flow_ports);
        let heard = settled_of(&rig.attachment).answers.heard;
        assert_eq!(shown[0].counters.answers.heard, heard);

        // Tables of another size take the flows along, and go on to hear.
        with.table_entries = 1024;
        change(&mut rig, with.clone());
        assert_eq!((on_the_way_out(&rig.pair), rig.attachment.flows()), (1, [0, PEERS]));
        let misses = udp(&settled_of(&rig.attachment), Reason::Miss);
        assert_at_home(&rig, &workers, &mut peers, 10);
        assert_eq!(udp(&settled_of(&rig.attachment), Reason::Miss), misses);

        // Another process: for a moment both hear.
        let handover = rig.attachment.handover().unwrap();
        let told = with.clone();
        let next = rig.pair.sink.run(|| Attachment::from_handover(handover, told)).unwrap();
        let old = std::mem::replace(&mut rig.attachment, next.unwrap().0);
        assert_eq!(on_the_way_out(&rig.pair), 2);
        assert_at_home(&rig, &workers, &mut peers, 10);
        drop(old);
        assert_eq!(on_the_way_out(&rig.pair), 1);
        assert_at_home(&rig, &workers, &mut peers, 10);

        // Another port: the flows are there until they grow old, but nobody confirms them.
        with.flow_ports = OTHER.to_string().parse().unwrap();
        change(&mut rig, with);
        let before = settled_of(&rig.attachment).answers;
        peers.rounds(5);
        assert_eq!(settled_of(&rig.attachment).answers, before);

        change(&mut rig, plain);
        assert_eq!(on_the_way_out(&rig.pair), 0);
        peers.rounds(5);
        let shown = rig.pair.sink.run(status).unwrap().unwrap();
        assert_eq!(shown[0].flow_ports, PortSet::EMPTY);
        assert_sums(&settled_of(&rig.attachment));
    });
    assert!(workers.iter().all(|worker| worker.overtaken.load(Ordering::Acquire) == 0));
    let Rig { attachment, pair, .. } = rig;
    drop(attachment);
    assert_eq!(on_the_way_out(&pair), 0);
}
