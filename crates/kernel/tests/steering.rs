//! Real packets, real sockets, a real link: what steering does to them. Needs root; without it each
//! test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{
    Rig, assert_sums, connected, disconnect, incoming_cpu, only, receiver, rig, sender, settled,
    tcp_extended, until,
};
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_kernel::{AttachError, AttachedMode, Attachment, Counters, LivePolicy, Mode, Settings};
use rxsteer_testbed::{Pair, TestbedError, pin_thread, snmp_now};

/// Returns how often hearing sockets wrote to the tables.
fn writes(counters: &Counters) -> u64 {
    let wrote = ["refreshed", "moved", "inserted", "evicted", "cleared"];
    let named = Recorded::NAMES.iter().zip(counters.records);
    named.filter(|(name, _)| wrote.contains(name)).map(|(_, count)| count).sum()
}

/// Says that nobody reads any more.
const ENDED: u64 = u64::MAX;

/// Tells the sender when the reader ends, also by a failed assertion.
struct End<'a>(&'a AtomicU64);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(ENDED, Ordering::Release);
    }
}

/// Sends numbered packets over one flow, never more than a few at once, to a reader that moves
/// from CPU to CPU; returns how many packets of each stay came in by the CPU of the reader.
fn follow(rig: &Rig, v6: bool, stays: usize, packets: u64) -> Vec<u64> {
    // Few enough for the receive buffer, in which each packet counts as a page.
    const WINDOW: u64 = 24;
    let (receiver, sender) = connected(&rig.pair, v6);
    let read = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let read = &read;
        scope.spawn(move || {
            for number in 0..packets * stays as u64 {
                while number >= read.load(Ordering::Acquire).saturating_add(WINDOW) {
                    std::thread::yield_now();
                }
                if read.load(Ordering::Acquire) == ENDED {
                    return;
                }
                sender.send(&number.to_be_bytes()).unwrap();
            }
        });
        let reader = scope.spawn(move || {
            let _end = End(read);
            let mut expected = 0;
            let mut arrived = Vec::new();
            for stay in 0..stays {
                let cpu = rig.cpus[stay % rig.cpus.len()];
                pin_thread(cpu).unwrap();
                let mut at_home = 0;
                for _ in 0..packets {
                    let mut bytes = [0; 8];
                    assert_eq!(receiver.recv(&mut bytes).unwrap(), 8);
                    let number = u64::from_be_bytes(bytes);
                    assert_eq!(number, expected, "stay {stay}: lost or overtaken");
                    at_home += u64::from(incoming_cpu(&receiver) == cpu);
                    expected += 1;
                    read.store(expected, Ordering::Release);
                }
                arrived.push(at_home);
            }
            arrived
        });
        reader.join().unwrap()
    })
}

#[test]
fn a_flow_follows_its_reader_from_cpu_to_cpu_and_stays_in_order() {
    let test = "a_flow_follows_its_reader_from_cpu_to_cpu_and_stays_in_order";
    let Some(rig) = rig(test, 2, |_| {}) else { return };
    let (stays, packets) = (10, 20_000);
    let at_home = follow(&rig, false, stays, packets);
    for (stay, count) in at_home.iter().enumerate() {
        // The rest was on its way, or held, when the reader moved.
        assert!(*count > packets / 2, "stay {stay}: {at_home:?}");
    }
    let counters = settled(&rig);
    assert_sums(&counters);
    assert_eq!(counters.class(Class::Udp), stays as u64 * packets, "{counters:?}");
    assert!(counters.reason(Reason::Hit) > counters.seen() * 9 / 10, "{counters:?}");
    assert!(counters.records[Recorded::Moved.index()] >= stays as u64 - 1, "{counters:?}");
}

#[test]
fn a_flow_of_ipv6_follows_its_reader_too() {
    let Some(rig) = rig("a_flow_of_ipv6_follows_its_reader_too", 2, |_| {}) else { return };
    let at_home = follow(&rig, true, 4, 3000);
    assert!(at_home.iter().all(|count| *count > 1500), "{at_home:?}");
    assert_sums(&settled(&rig));
}

#[test]
fn a_flow_follows_its_reader_in_skb_mode_too() {
    let test = "a_flow_follows_its_reader_in_skb_mode_too";
    let Some(rig) = rig(test, 2, |settings| settings.mode = Mode::Skb) else { return };
    assert_eq!(rig.attachment.mode(), AttachedMode::Skb);
    let at_home = follow(&rig, false, 4, 3000);
    assert!(at_home.iter().all(|count| *count > 1500), "{at_home:?}");
    assert_sums(&settled(&rig));
}

#[test]
fn tagged_packets_are_delivered_and_steered_as_flows_of_their_sockets() {
    let test = "tagged_packets_are_delivered_and_steered_as_flows_of_their_sockets";
    let Some(rig) = rig(test, 1, |_| {}) else { return };
    let ends = [(&rig.pair.source, Pair::SOURCE_DEVICE, 1), (&rig.pair.sink, Pair::SINK_DEVICE, 2)];
    let address = |host| IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, host));
    for (namespace, lower, host) in ends {
        match namespace.add_vlan("tag", lower, 7, false) {
            Err(error @ TestbedError::NoKind { .. }) => {
                eprintln!("skipped {test}: {error}");
                return;
            }
            made => made.unwrap(),
        }
        namespace.add_address("tag", address(host), 24).unwrap();
    }
    let receiver = receiver(&rig.pair, address(2));
    let sender = sender(&rig.pair, address(1), receiver.local_addr().unwrap());
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    for _ in 0..20 {
        sender.send(b"x").unwrap();
        receiver.recv(&mut [0; 8]).unwrap();
    }
    let counters = settled(&rig);
    let udp = counters.packets[Class::Udp.index()];
    let found = udp[Reason::Hit.index()] + udp[Reason::Held.index()];
    assert_eq!((found, udp[Reason::Miss.index()]), (19, 1), "{counters:?}");
}

#[test]
fn a_tcp_stream_follows_its_reader_and_no_segment_overtakes_another() {
    let test = "a_tcp_stream_follows_its_reader_and_no_segment_overtakes_another";
    let Some(rig) = rig(test, 2, |_| {}) else { return };
    // A window that fits in every queue on the way: nothing is lost, so nothing is sent again.
    rig.pair.sink.set_sysctl("net.ipv4.tcp_rmem", "4096 65536 131072").unwrap();
    let bind = || TcpListener::bind((Pair::SINK_V4, 0)).unwrap();
    let listener = rig.pair.sink.run(bind).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = rig.pair.source.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let (stays, bytes) = (8, 3_000_000);
    std::thread::scope(|scope| {
        scope.spawn(move || client.write_all(&vec![7; stays * bytes]).unwrap());
        let cpus = &rig.cpus;
        scope.spawn(move || {
            let mut buffer = vec![0; 20_000];
            for stay in 0..stays {
                pin_thread(cpus[stay % cpus.len()]).unwrap();
                for _ in 0..bytes / buffer.len() {
                    server.read_exact(&mut buffer).unwrap();
                    assert!(buffer.iter().all(|byte| *byte == 7));
                }
            }
        });
    });
    let counters = settled(&rig);
    assert_sums(&counters);
    let hits = counters.packets[Class::Tcp.index()][Reason::Hit.index()];
    assert!(hits > counters.class(Class::Tcp) * 9 / 10, "{counters:?}");
    let moved = counters.records[Recorded::Moved.index()];
    assert!(moved >= stays as u64 - 1, "{counters:?}");
    // What the sender sends again in doubt (a tail loss probe) fills no gap and counts here as nothing.
    let out_of_order = rig.pair.sink.run(|| tcp_extended("TCPOFOQueue")).unwrap();
    assert_eq!(out_of_order, 0, "{counters:?}");
}

#[test]
fn a_flood_of_strangers_writes_nothing_and_takes_no_hit_away() {
    let test = "a_flood_of_strangers_writes_nothing_and_takes_no_hit_away";
    let Some(rig) = rig(test, 1, |settings| settings.table_entries = 8) else { return };
    let (known, to_known) = connected(&rig.pair, false);
    let strangers = receiver(&rig.pair, Pair::SINK_V4.into());
    let mut bytes = [0; 8];
    // The first packet makes the flow known, by its being read.
    to_known.send(b"first").unwrap();
    known.recv(&mut bytes).unwrap();
    let before = settled(&rig);
    assert_eq!(rig.attachment.flows(), [0, 1]);

    let from = || sender(&rig.pair, Pair::SOURCE_V4.into(), strangers.local_addr().unwrap());
    let (sources, each) = (400, 25);
    for _ in 0..sources {
        let source = from();
        for _ in 0..each {
            source.send(b"stranger").unwrap();
            strangers.recv(&mut bytes).unwrap();
        }
        to_known.send(b"more").unwrap();
        known.recv(&mut bytes).unwrap();
    }
    let after = settled(&rig);
    assert_eq!(after.seen() - before.seen(), sources * each + sources);
    // Held: found, and not yet moved to where its reader now runs.
    let found = |counters: &Counters| counters.reason(Reason::Hit) + counters.reason(Reason::Held);
    let known = found(&after) - found(&before);
    assert!((sources..sources + sources * each / 10).contains(&known), "{after:?}");
    // The first makes the port known, by being read; by that the others find its one reader.
    let by_port = after.reason(Reason::Port) - before.reason(Reason::Port);
    let held = after.reason(Reason::Held) - before.reason(Reason::Held);
    assert_eq!(after.reason(Reason::Miss) - before.reason(Reason::Miss), 1);
    assert!(by_port + held >= sources * each - 1, "{after:?}");
    assert_eq!((rig.attachment.flows(), rig.attachment.ports()), ([0, 1], 1));
    let refreshed = |counters: &Counters| counters.records[Recorded::Refreshed.index()];
    let moved = |counters: &Counters| counters.records[Recorded::Moved.index()];
    // The known flow's own reader may move, and confirms it in a new epoch.
    let own = refreshed(&after) + moved(&after) - refreshed(&before) - moved(&before);
    assert_eq!(writes(&after) - writes(&before), own + 1, "the port, once");
    assert_sums(&after);
}

#[test]
fn a_udp_flow_is_withdrawn_when_its_socket_has_no_peer_another_peer_or_is_closed() {
    let test = "a_udp_flow_is_withdrawn_when_its_socket_has_no_peer_another_peer_or_is_closed";
    let Some(rig) = rig(test, 1, |_| {}) else { return };
    for v6 in [false, true] {
        let (socket, peer) = connected(&rig.pair, v6);
        let other = connected(&rig.pair, v6);
        let mut bytes = [0; 8];
        for (from, to) in [(&peer, &socket), (&other.1, &other.0)] {
            from.send(b"x").unwrap();
            to.recv(&mut bytes).unwrap();
        }
        assert_eq!(rig.attachment.flows(), [0, 2]);

        // Without a peer: its next word tells.
        disconnect(&socket);
        socket.set_nonblocking(true).unwrap();
        socket.recv(&mut bytes).unwrap_err();
        assert_eq!(rig.attachment.flows(), [0, 1], "the other flow stays");

        // With a peer again, and then with another one.
        // Its port is a new one, so the peer may refuse what it sends; that it sends is heard.
        socket.connect(peer.local_addr().unwrap()).unwrap();
        let _ = socket.send(b"x");
        assert_eq!(rig.attachment.flows(), [0, 2]);
        socket.connect(other.1.local_addr().unwrap()).unwrap();
        let _ = socket.send(b"x");
        assert_eq!(rig.attachment.flows(), [0, 2], "the new flow in place of the old one");

        if rig.attachment.hears_close() {
            drop(socket);
            drop(other);
            until(|| rig.attachment.flows(), |flows| *flows == [0, 0]);
        } else {
            eprintln!("{test}: no cgroup hierarchy of version 2, so no close is heard");
            return;
        }
    }
}

#[test]
fn a_tcp_flow_is_known_while_its_connection_lives() {
    let Some(rig) = rig("a_tcp_flow_is_known_while_its_connection_lives", 1, |_| {}) else {
        return;
    };
    let ends: [(IpAddr, IpAddr); 2] = [
        (Pair::SOURCE_V4.into(), Pair::SINK_V4.into()),
        (Pair::SOURCE_V6.into(), Pair::SINK_V6.into()),
    ];
    for (_, to) in ends {
        let listener = rig.pair.sink.run(|| TcpListener::bind((to, 0)).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = rig.pair.source.run(|| TcpStream::connect(address).unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let before = settled(&rig);
        client.write_all(b"question").unwrap();
        let mut bytes = [0; 8];
        server.read_exact(&mut bytes).unwrap();
        server.write_all(b"answer..").unwrap();
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(rig.attachment.flows(), [1, 0]);
        for _ in 0..100 {
            client.write_all(b"question").unwrap();
            server.read_exact(&mut bytes).unwrap();
        }
        let after = settled(&rig);
        assert!(after.reason(Reason::Hit) >= before.reason(Reason::Hit) + 100, "{after:?}");
        drop((client, server, listener));
        until(|| rig.attachment.flows(), |flows| *flows == [0, 0]);
    }
    assert_sums(&settled(&rig));
}

#[test]
fn what_is_not_delivered_is_dropped_by_name() {
    let Some(rig) = rig("what_is_not_delivered_is_dropped_by_name", 1, |settings| {
        settings.queue_packets = 16;
    }) else {
        return;
    };
    let socket = receiver(&rig.pair, Pair::SINK_V4.into());
    let source = sender(&rig.pair, Pair::SOURCE_V4.into(), socket.local_addr().unwrap());
    let device = || rig.pair.sink.device(Pair::SINK_DEVICE).unwrap().counters;
    let peer = || rig.pair.source.device(Pair::SOURCE_DEVICE).unwrap().counters;
    let (device_before, peer_before) = (device(), peer());
    let before = rig.pair.sink.run(snmp_now).unwrap().unwrap();
    // Nobody reads: the socket's buffer fills up, and so may the queue of 16.
    let sent = 20_000;
    for _ in 0..sent {
        source.send(&[0; 100]).unwrap();
    }
    let counters = settled(&rig);
    let counted = rig.pair.sink.run(snmp_now).unwrap().unwrap().since(&before);
    assert_sums(&counters);
    let on_the_link = (device().rx_dropped - device_before.rx_dropped)
        + (peer().tx_dropped - peer_before.tx_dropped);
    assert_eq!(counters.class(Class::Udp) + on_the_link, sent, "{counters:?}");
    socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 128];
    let mut delivered = 0;
    while socket.recv(&mut bytes).is_ok() {
        delivered += 1;
    }
    let full = counted.get("Udp.RcvbufErrors");
    let lost: u64 = counters.cpus.iter().map(|(_, cpu)| cpu.lost()).sum();
    assert!(delivered > 0 && full + lost > 0, "{delivered} delivered, {full} and {lost} lost");
    let shed = counters.reason(Reason::Shed);
    assert_eq!(sent, delivered + full + lost + on_the_link + shed, "{counters:?}");
}

#[test]
fn an_interface_that_is_taken_is_refused_by_name() {
    let Some(rig) = rig("an_interface_that_is_taken_is_refused_by_name", 1, |_| {}) else { return };
    let settings = || Settings::new(Pair::SINK_DEVICE, only(rig.cpus[0]));
    let said = rig.pair.sink.run(|| Attachment::new(settings()).err()).unwrap().unwrap();
    let AttachError::Occupied { on, .. } = said else { panic!("{said}") };
    assert_eq!((on.interface.as_str(), on.program.as_str()), ("rx0", "rxsteer_steer"));
    let gone = Settings { interface: "no-such".into(), ..settings() };
    let said = rig.pair.sink.run(|| Attachment::new(gone).err()).unwrap().unwrap();
    assert_eq!(said.to_string(), "there is no interface no-such in this network namespace");
}

#[test]
fn policies_without_flows_spread_or_leave_packets_alone() {
    for (policy, reason) in [(LivePolicy::Rps, Reason::Miss), (LivePolicy::None, Reason::Local)] {
        let test = "policies_without_flows_spread_or_leave_packets_alone";
        let Some(rig) = rig(test, 1, |settings| settings.policy = policy) else { return };
        let (receiver, sender) = connected(&rig.pair, false);
        for _ in 0..50 {
            sender.send(b"x").unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
        }
        let counters = settled(&rig);
        assert_eq!(counters.packets[Class::Udp.index()][reason.index()], 50, "{counters:?}");
        assert_eq!((rig.attachment.flows(), writes(&counters)), ([0, 0], 0));
        assert_sums(&counters);
    }
}
