//! UDP sockets that are not connected: their port leads packets to its reader. Needs root; without it
//! each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Rig, assert_sums, disconnect, receiver, rig, sender, settled, sharing, until};
use rxsteer_core::CpuId;
use rxsteer_core::steer::Reason;
use rxsteer_kernel::Counters;
use rxsteer_testbed::{Pair, pin_thread};

/// Makes senders that no socket at the other end is connected to.
fn strangers(rig: &Rig, from: IpAddr, to: SocketAddr, count: usize) -> Vec<UdpSocket> {
    (0..count).map(|_| sender(&rig.pair, from, to)).collect()
}

fn taken(counters: &Counters, cpu: CpuId) -> u64 {
    counters.cpus.iter().find(|(this, _)| *this == cpu).map_or(0, |(_, of)| of.taken)
}

/// Sends and reads a packet of each sender, `rounds` times; each carries its sender and a number, and
/// none may be lost or overtaken. Returns how many came.
fn exchange(receiver: &UdpSocket, senders: &[UdpSocket], rounds: u32, numbers: &mut [u32]) -> u64 {
    let mut bytes = [0; 8];
    for _ in 0..rounds {
        for (index, sender) in senders.iter().enumerate() {
            let word = (index as u64) << 32 | u64::from(numbers[index]);
            sender.send(&word.to_be_bytes()).unwrap();
            numbers[index] += 1;
        }
        let mut expected: Vec<u32> = numbers.iter().map(|next| next - 1).collect();
        for _ in senders {
            assert_eq!(receiver.recv_from(&mut bytes).unwrap().0, 8);
            let word = u64::from_be_bytes(bytes);
            let (index, number) = ((word >> 32) as usize, word as u32);
            assert_eq!(number, expected[index], "sender {index}");
            expected[index] = u32::MAX;
        }
    }
    u64::from(rounds) * senders.len() as u64
}

/// A reader moves from CPU to CPU, and the packets of all strangers follow it.
fn follow(rig: &Rig, to: IpAddr, from: IpAddr, any: bool) {
    const STRANGERS: usize = 12;
    let unspecified: IpAddr = if any && to.is_ipv6() {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let socket = receiver(&rig.pair, if any { unspecified } else { to });
    let to = SocketAddr::new(to, socket.local_addr().unwrap().port());
    let senders = strangers(rig, from, to, STRANGERS);
    let mut numbers = [0; STRANGERS];
    let mut sent = 0;
    let first = settled(rig);
    for stay in 0..4 {
        let cpu = rig.cpus[stay % rig.cpus.len()];
        pin_thread(cpu).unwrap();
        // The first are read where they came in, and tell where the reader is.
        sent += exchange(&socket, &senders, 5, &mut numbers);
        let before = settled(rig);
        let count = exchange(&socket, &senders, 100, &mut numbers);
        sent += count;
        let after = settled(rig);
        let at_home = taken(&after, cpu) - taken(&before, cpu);
        assert!(at_home > count * 9 / 10, "stay {stay}: {at_home} of {count}: {after:?}");
        assert_eq!(rig.attachment.ports(), 1 + usize::from(any && to.is_ipv6()));
    }
    let counters = settled(rig);
    assert_sums(&counters);
    let by_port = counters.reason(Reason::Port) - first.reason(Reason::Port);
    assert!(by_port > sent * 9 / 10, "{by_port} of {sent}: {counters:?}");
    assert_eq!(rig.attachment.flows(), [0, 0], "strangers are no flows");
}

#[test]
fn the_packets_of_a_port_follow_its_one_reader_in_order() {
    let test = "the_packets_of_a_port_follow_its_one_reader_in_order";
    let Some(rig) = rig(test, 2, |_| {}) else { return };
    for any in [false, true] {
        follow(&rig, Pair::SINK_V4.into(), Pair::SOURCE_V4.into(), any);
        follow(&rig, Pair::SINK_V6.into(), Pair::SOURCE_V6.into(), any);
        if !rig.attachment.hears_close() {
            eprintln!("{test}: no cgroup hierarchy of version 2, so no close is heard");
            return;
        }
        until(|| rig.attachment.ports(), |ports| *ports == 0);
    }
}

#[test]
fn a_socket_of_ipv6_leads_the_packets_of_ipv4_that_it_takes() {
    let test = "a_socket_of_ipv6_leads_the_packets_of_ipv4_that_it_takes";
    let Some(rig) = rig(test, 2, |_| {}) else { return };
    let socket = receiver(&rig.pair, std::net::Ipv6Addr::UNSPECIFIED.into());
    let to = SocketAddr::new(Pair::SINK_V4.into(), socket.local_addr().unwrap().port());
    let senders = strangers(&rig, Pair::SOURCE_V4.into(), to, 8);
    pin_thread(rig.cpus[1]).unwrap();
    let count = exchange(&socket, &senders, 50, &mut [0; 8]);
    let counters = settled(&rig);
    assert!(counters.reason(Reason::Port) > count * 9 / 10, "{counters:?}");
    assert!(taken(&counters, rig.cpus[1]) > count * 9 / 10, "{counters:?}");
    assert_sums(&counters);
}

#[test]
fn sockets_of_one_port_and_two_addresses_have_their_own_readers() {
    let test = "sockets_of_one_port_and_two_addresses_have_their_own_readers";
    let Some(rig) = rig(test, 2, |_| {}) else { return };
    let second = IpAddr::V4(Ipv4Addr::new(198, 19, 255, 200));
    rig.pair.sink.add_address(Pair::SINK_DEVICE, second, 32).unwrap();
    let mac = rig.pair.sink_device.mac;
    rig.pair.source.add_neighbour(Pair::SOURCE_DEVICE, second, mac).unwrap();
    let one = receiver(&rig.pair, Pair::SINK_V4.into());
    let port = one.local_addr().unwrap().port();
    let other = rig.pair.sink.run(|| UdpSocket::bind((second, port)).unwrap()).unwrap();
    other.set_read_timeout(Some(common::WAIT)).unwrap();
    for (socket, cpu) in [(&one, rig.cpus[0]), (&other, rig.cpus[1])] {
        pin_thread(cpu).unwrap();
        let senders = strangers(&rig, Pair::SOURCE_V4.into(), socket.local_addr().unwrap(), 6);
        exchange(socket, &senders, 3, &mut [0; 6]);
        let before = settled(&rig);
        let count = exchange(socket, &senders, 50, &mut [3; 6]);
        let after = settled(&rig);
        assert_eq!(taken(&after, cpu) - taken(&before, cpu), count, "{after:?}");
        assert_eq!(after.reason(Reason::Port) - before.reason(Reason::Port), count, "{after:?}");
    }
    assert_eq!(rig.attachment.ports(), 2);
}

#[test]
fn a_port_with_readers_on_several_cpus_is_spread_by_hash() {
    let test = "a_port_with_readers_on_several_cpus_is_spread_by_hash";
    let Some(rig) = rig(test, 2, |_| {}) else { return };
    let one = sharing(&rig.pair, SocketAddr::new(Pair::SINK_V4.into(), 0));
    let to = one.local_addr().unwrap();
    let two = sharing(&rig.pair, to);
    let senders = strangers(&rig, Pair::SOURCE_V4.into(), to, 64);
    let is_over = AtomicBool::new(false);
    let round = |count: usize| {
        for _ in 0..count {
            for sender in &senders {
                sender.send(b"x").unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    let (before, after) = std::thread::scope(|scope| {
        for (socket, cpu) in [(&one, rig.cpus[0]), (&two, rig.cpus[1])] {
            let is_over = &is_over;
            socket.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
            scope.spawn(move || {
                pin_thread(cpu).unwrap();
                while !is_over.load(Ordering::Acquire) {
                    let _ = socket.recv_from(&mut [0; 8]);
                }
            });
        }
        round(20);
        let before = settled(&rig);
        round(50);
        let after = settled(&rig);
        is_over.store(true, Ordering::Release);
        (before, after)
    });
    let since = |reason| after.reason(reason) - before.reason(reason);
    assert_eq!(since(Reason::Port), 0, "{after:?}");
    assert_eq!(since(Reason::Miss) + since(Reason::Spilled), 50 * 64, "{after:?}");
    // 64 flows, by hash: on each of two CPUs with certainty, but for one in 2^63.
    assert!(
        rig.cpus[..2].iter().all(|cpu| taken(&after, *cpu) > taken(&before, *cpu)),
        "{after:?}"
    );
    assert_sums(&after);
}

#[test]
fn a_socket_that_is_disconnected_leads_by_its_port_again() {
    let test = "a_socket_that_is_disconnected_leads_by_its_port_again";
    let Some(rig) = rig(test, 1, |_| {}) else { return };
    let socket = receiver(&rig.pair, Ipv4Addr::UNSPECIFIED.into());
    let to = SocketAddr::new(Pair::SINK_V4.into(), socket.local_addr().unwrap().port());
    let senders = strangers(&rig, Pair::SOURCE_V4.into(), to, 2);
    let mut numbers = [0; 2];
    exchange(&socket, &senders, 3, &mut numbers);
    assert_eq!((rig.attachment.flows(), rig.attachment.ports()), ([0, 0], 1));
    socket.connect(senders[0].local_addr().unwrap()).unwrap();
    exchange(&socket, &senders[..1], 3, &mut numbers[..1]);
    assert_eq!((rig.attachment.flows(), rig.attachment.ports()), ([0, 1], 0));
    disconnect(&socket);
    // A socket keeps the address that it was connected from, but may lose its port.
    let to = SocketAddr::new(Pair::SINK_V4.into(), socket.local_addr().unwrap().port());
    if to.port() == 0 {
        eprintln!("{test}: this kernel takes the port away with the peer");
        return;
    }
    let senders = strangers(&rig, Pair::SOURCE_V4.into(), to, 2);
    exchange(&socket, &senders, 3, &mut [0; 2]);
    assert_eq!((rig.attachment.flows(), rig.attachment.ports()), ([0, 0], 1));
}
