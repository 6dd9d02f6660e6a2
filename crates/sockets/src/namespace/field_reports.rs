//! Faults that people met, each named for the public thread.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rxsteer_core::CpuId;

use crate::{
    Cast, Choice, Config, ConnectionIdRule, DeviceId, Family, KernelRelease, Mismatch, Namespace,
    Owner, Packet, PickedBy, Profile, Score, Selector, SocketId, SocketOption, Why,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

fn packet(src: IpAddr, src_port: u16, dst_port: u16, payload: &[u8]) -> Packet<'_> {
    Packet {
        src,
        src_port,
        dst: SERVER,
        dst_port,
        device: DeviceId(1),
        cpu: CpuId(0),
        cast: Cast::Unicast,
        from_this_host: false,
        payload,
    }
}

fn receiver(ns: &Namespace, packet: &Packet<'_>) -> Option<SocketId> {
    ns.lookup(packet).map(|found| found.socket)
}

fn socket(ns: &Namespace, local: IpAddr, port: u16, option: SocketOption) -> SocketId {
    let socket = ns.open(Family::V4, Owner(0)).unwrap();
    ns.set(socket, option).unwrap();
    ns.bind(socket, local, port).unwrap();
    socket
}

/// A group of `count` workers on a port, in order.
fn workers(ns: &Namespace, count: usize, port: u16) -> Vec<SocketId> {
    (0..count).map(|_| socket(ns, ANY, port, SocketOption::ReusePort(true))).collect()
}

/// All orders of four things.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for code in 0..256_usize {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
        if (0..4).all(|thing| order.contains(&thing)) {
            orders.push(order);
        }
    }
    assert_eq!(orders.len(), 24);
    orders
}

/// skywind3000/kcp#333: packets of a connected socket in a reuseport group reach its siblings.
#[test]
fn kcp_333_a_connected_socket_beats_the_group_in_any_order_of_creation() {
    let share = [SocketOption::ReusePort(true), SocketOption::ReuseAddr(true)];
    for (profile, order) in
        orders().into_iter().flat_map(|order| [(Profile::Rxsteer, order), (Profile::Linux, order)])
    {
        // Listeners and connected sockets, each bound to the wildcard or to the address.
        for (listen, connected) in [(ANY, SERVER), (ANY, ANY), (SERVER, SERVER), (SERVER, ANY)] {
            for option in &share {
                if !crate::HASH4 && listen == SERVER {
                    // There a group founded after the connect hides it: what hash4 came to mend.
                    continue;
                }
                let ns = Namespace::new(&Config { profile, ..Config::default() });
                let mut made = BTreeMap::new();
                for thing in order {
                    let local = if thing < 2 { listen } else { connected };
                    let id = socket(&ns, local, 7000, option.clone());
                    if thing >= 2 {
                        ns.connect(id, CLIENT, 40_000 + thing as u16 - 2, SERVER).unwrap();
                    }
                    made.insert(thing, id);
                }
                let got = |port| receiver(&ns, &packet(CLIENT, port, 7000, &[]));
                assert_eq!(got(40_000), Some(made[&2]), "{profile:?} {order:?} {option:?}");
                assert_eq!(got(40_001), Some(made[&3]), "{profile:?} {order:?} {option:?}");
                let other = got(40_002);
                let listeners = [Some(made[&0]), Some(made[&1])];
                assert!(listeners.contains(&other), "{profile:?} {order:?} {option:?}: {other:?}");
            }
        }
    }
}

/// The listeners and clients of the report: two of a group on the wildcard, two connected.
fn kcp_333(profile: Profile, option: &SocketOption) -> (Namespace, [SocketId; 4]) {
    let ns = Namespace::new(&Config { profile, key: (7, 8), ..Config::default() });
    let made = [ANY, ANY, SERVER, SERVER].map(|local| socket(&ns, local, 7000, option.clone()));
    for (port, client) in (40_000..).zip(&made[2..]) {
        ns.connect(*client, CLIENT, port, SERVER).unwrap();
    }
    (ns, made)
}

/// skywind3000/kcp#333, and wlanslovenija/tunneldigger#115, which names the release that ended it.
#[test]
fn kcp_333_kernels_before_5_2_17_deliver_by_group_and_the_explanation_says_so() {
    let share = SocketOption::ReusePort(true);
    let fixed = KernelRelease(5, 2, 17);
    // Over many clients, since the hash may hit the right one.
    let astray = |profile| {
        let (ns, made) = kcp_333(profile, &share);
        let mut astray = 0;
        for port in 41_000..41_100 {
            ns.connect(made[2], CLIENT, port, SERVER).unwrap();
            let packet = packet(CLIENT, port, 7000, &[]);
            let explained = ns.explain(&packet);
            assert_eq!(explained.found.first().map(|found| found.socket), receiver(&ns, &packet));
            if receiver(&ns, &packet) == Some(made[2]) {
                continue;
            }
            astray += 1;
            let passed_over = vec![made[2]];
            let why = Why::Group { members: 2, by: PickedBy::Hash, passed_over };
            assert_eq!((receiver(&ns, &packet), explained.why.clone()), (Some(made[3]), why));
            assert!(explained.to_string().contains("kernels before 5.2.17 deliver by group"));
        }
        astray
    };
    // A fair coin of 100: 30 to 70 is 4 standard deviations.
    assert!((30..70).contains(&astray(Profile::LinuxOf(fixed.before()))));
    for profile in [
        Profile::LinuxOf(fixed),
        Profile::LinuxOf(KernelRelease(6, 1, 0)),
        Profile::Linux,
        Profile::Rxsteer,
    ] {
        assert_eq!(astray(profile), 0, "{profile:?}");
    }
}

/// skywind3000/kcp#333: the explanation lists what every socket scores, and a choice among equals that
/// nothing defines is said to be one.
#[test]
fn kcp_333_an_explanation_has_the_score_of_every_socket() {
    let (ns, made) = kcp_333(Profile::Rxsteer, &SocketOption::ReusePort(true));
    let explained = ns.explain(&packet(CLIENT, 40_000, 7000, &[]));
    let score = |socket: SocketId| {
        let judged = explained.sockets.iter().find(|judged| judged.socket == socket).unwrap();
        judged.score.map(Score::total)
    };
    // IPv4 2, remote address and port 4 each.
    assert_eq!(made.map(score), [Ok(2), Ok(2), Ok(10), Err(Mismatch::RemotePort)]);
    let expected = match crate::HASH4 {
        true => Why::FourTuple { twins: vec![] },
        false => Why::Score { ties: vec![] },
    };
    assert_eq!((explained.found[0].socket, explained.why), (made[2], expected));

    // A stranger: the group picks a listener.
    let explained = ns.explain(&packet(CLIENT, 40_002, 7000, &[]));
    let by_hash = Why::Group { members: 2, by: PickedBy::Hash, passed_over: vec![] };
    assert!(made[..2].contains(&explained.found[0].socket));
    assert_eq!(explained.why, by_hash);

    // With address reuse only, the one bound last, which nothing promises.
    let (ns, made) = kcp_333(Profile::Rxsteer, &SocketOption::ReuseAddr(true));
    let explained = ns.explain(&packet(CLIENT, 40_002, 7000, &[]));
    assert_eq!(
        (explained.found[0].socket, &explained.why),
        (made[1], &Why::Score { ties: vec![made[0]] },)
    );
    assert!(explained.to_string().contains("the kernel picks one; not defined"), "{explained}");
}

/// "udp: Add 4-tuple hash for connected sockets", netdev, 2024-11-14: many connected sockets on one
/// port. How long a look-up takes is for the bench; here that each of many is found, and that
/// reconnect, disconnect and close move it.
#[test]
fn netdev_hash4_each_of_many_connected_sockets_on_a_port_is_found() {
    let count = if crate::HASH4 { 20_000 } else { 1000 };
    let ns = Namespace::new(&Config::default());
    let listener = socket(&ns, ANY, 7000, SocketOption::ReusePort(true));
    let sockets: Vec<SocketId> = (0..count)
        .map(|port| {
            // Half of them bound to the wildcard.
            let local = if port % 2 == 0 { ANY } else { SERVER };
            let id = socket(&ns, local, 7000, SocketOption::ReusePort(true));
            ns.connect(id, CLIENT, 10_000 + port, SERVER).unwrap();
            id
        })
        .collect();
    let got = |port: u16| receiver(&ns, &packet(CLIENT, 10_000 + port, 7000, &[]));
    for (port, id) in (0..).zip(&sockets) {
        assert_eq!(got(port), Some(*id), "from port {port}");
    }
    assert_eq!(got(count), Some(listener));
    ns.connect(sockets[7], CLIENT, 10_000 + count, SERVER).unwrap();
    assert_eq!((got(7), got(count)), (Some(listener), Some(sockets[7])));
    ns.close(sockets[7]).unwrap();
    assert_eq!(got(count), Some(listener));
    for id in &sockets[..7] {
        ns.disconnect(*id).unwrap();
    }
    for port in 0..7 {
        // Back among those that take everything: the ones bound to the address come first.
        let id = got(port).unwrap();
        assert!(sockets[..7].iter().skip(1).step_by(2).any(|bound| *bound == id), "{id}");
    }
    for id in &sockets[8..] {
        ns.close(*id).unwrap();
    }
    assert_eq!(ns.open_sockets(), 8);
}

/// MDA2AV/ioxide#205: a client that moved reaches a worker that does not know it.
#[test]
fn ioxide_205_a_client_that_moves_keeps_its_worker() {
    let ns = Namespace::new(&Config { key: (1, 2), ..Config::default() });
    let workers = workers(&ns, 4, 4433);
    // The first byte of an id names the worker, modulo 4.
    let rule = ConnectionIdRule { id_len: 8, worker_at: 0, modulo: 4 };
    ns.select_by(workers[0], Selector::ConnectionId(rule)).unwrap();
    let moved = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
    let short = [0x40, 0xa6, 1, 2, 3, 4, 5, 6, 7, 0xee, 0xee];
    for number in 0..14 {
        let (client, port) = if number < 10 { (CLIENT, 50_000) } else { (moved, 61_000) };
        let got = receiver(&ns, &packet(client, port, 4433, &short));
        assert_eq!(got, Some(workers[2]), "packet {number}: 0xa6 modulo 4 is 2");
    }
    assert_eq!(ns.selector_misses(), 0);

    // The client's own id in its first packets: by hash, the same for all of them.
    let mut initial = vec![0xc3, 0, 0, 0, 1, 8];
    initial.extend([9; 30]);
    let first = receiver(&ns, &packet(CLIENT, 50_001, 4433, &initial));
    assert!(workers.contains(&first.unwrap()));
    initial[0] = 0xd3; // 0-RTT
    assert_eq!(receiver(&ns, &packet(CLIENT, 50_001, 4433, &initial)), first);
    assert_eq!(ns.selector_misses(), 0);

    // No id to go by: also by hash, counted, and never dropped.
    let version_negotiation = [0x80, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let odd: [&[u8]; 4] = [&[], &short[..8], &version_negotiation, b"\x00not QUIC at all"];
    for payload in odd {
        let got = receiver(&ns, &packet(CLIENT, 50_001, 4433, payload));
        assert_eq!(got, first, "{payload:?}");
    }
    assert_eq!(ns.selector_misses(), 4);

    // A worker that does not exist: the same.
    let rule = ConnectionIdRule { modulo: 0, ..rule };
    ns.select_by(workers[0], Selector::ConnectionId(rule)).unwrap();
    assert_eq!(receiver(&ns, &packet(CLIENT, 50_001, 4433, &short)), first);
    assert_eq!(ns.selector_misses(), 5);
}

/// PowerDNS/pdns#13399: all queries of one forwarder on one worker.
#[test]
fn pdns_13399_one_source_reaches_one_worker_and_many_clients_reach_all() {
    let ns = Namespace::new(&Config { key: (3, 4), ..Config::default() });
    let workers = workers(&ns, 8, 53);
    let shares = |packets: &mut dyn Iterator<Item = (IpAddr, u16)>| {
        let mut shares = BTreeMap::<SocketId, usize>::new();
        for (src, port) in packets {
            *shares.entry(receiver(&ns, &packet(src, port, 53, &[])).unwrap()).or_default() += 1;
        }
        assert_eq!(shares.values().sum::<usize>(), 1000);
        shares
    };
    let one = shares(&mut (0..1000).map(|_| (CLIENT, 5353)));
    assert_eq!(one.len(), 1, "a hash cannot spread one 4-tuple");
    let four = shares(&mut (0..1000).map(|number| (CLIENT, 5353 + number % 4)));
    assert!(four.len() <= 4);
    let client = |number: u16| IpAddr::V4(Ipv4Addr::from_bits(0xcb00_7100 + u32::from(number)));
    let clients = (0..1000).map(|number| (client(number % 250), 20_000 + number));
    let many = shares(&mut clients.clone());
    assert_eq!(many.len(), 8);
    // 1000 packets on 8 workers: 125 each, standard deviation 10.5; 200 is 7 of these away.
    assert!(many.values().all(|share| *share < 200), "{many:?}");

    // Round robin serves one source evenly, at the cost of order.
    let turn = AtomicUsize::new(0);
    let round_robin =
        move |_: &Packet<'_>, count| Choice::Member(turn.fetch_add(1, Ordering::Relaxed) % count);
    ns.select_by(workers[0], Selector::User(Arc::new(round_robin))).unwrap();
    let one = shares(&mut (0..1000).map(|_| (CLIENT, 5353)));
    assert!(one.len() == 8 && one.values().all(|share| *share == 125), "{one:?}");

    // By CPU: each worker says on which one it runs.
    for (cpu, worker) in (0..).zip(&workers) {
        ns.set(*worker, SocketOption::IncomingCpu(Some(CpuId(cpu)))).unwrap();
    }
    ns.select_by(workers[0], Selector::Hash).unwrap();
    for (cpu, worker) in (0..).zip(&workers) {
        let packet = Packet { cpu: CpuId(cpu), ..packet(CLIENT, 5353, 53, &[]) };
        assert_eq!(receiver(&ns, &packet), Some(*worker));
    }
}
