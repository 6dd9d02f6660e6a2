//! Ports that are used again, and packets in a tunnel. Needs root; without it each test says so and
//! ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use common::{
    Rig, assert_sums, connected, disconnect, incoming_cpu, receiver, rig, sender, settled_of, until,
};
use rxsteer_core::steer::{Class, Reason};
use rxsteer_testbed::{Pair, TestbedError, VxlanSpec, pin_thread};

#[test]
fn a_port_that_is_used_again_follows_its_new_reader_and_not_the_old_one() {
    let test = "a_port_that_is_used_again_follows_its_new_reader_and_not_the_old_one";
    let Some(Rig { attachment, pair, cpus }) = rig(test, 2, |_| {}) else { return };
    let (old, peer) = connected(&pair, false);
    let (own, other) = (old.local_addr().unwrap(), peer.local_addr().unwrap());
    let exchange = |socket: &UdpSocket| {
        for _ in 0..50 {
            peer.send(b"x").unwrap();
            socket.recv(&mut [0; 8]).unwrap();
        }
        settled_of(&attachment);
    };
    pin_thread(cpus[0]).unwrap();
    exchange(&old);
    assert_eq!((attachment.flows(), incoming_cpu(&old)), ([0, 1], cpus[0]));
    // The peer goes, and the socket with it: the flow is withdrawn though its addresses stay in use.
    disconnect(&old);
    old.set_nonblocking(true).unwrap();
    old.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(attachment.flows(), [0, 0]);
    drop(old);

    let new = pair.sink.run(|| UdpSocket::bind(own).unwrap()).unwrap();
    new.set_read_timeout(Some(common::WAIT)).unwrap();
    new.connect(other).unwrap();
    let before = settled_of(&attachment);
    pin_thread(cpus[1]).unwrap();
    exchange(&new);
    assert_eq!((attachment.flows(), incoming_cpu(&new)), ([0, 1], cpus[1]));
    let after = settled_of(&attachment);
    assert!(
        after.reason(Reason::Miss) > before.reason(Reason::Miss),
        "the first is of no known flow"
    );
    assert_sums(&after);
    if attachment.hears_close() {
        drop(new);
        until(|| attachment.flows(), |flows| *flows == [0, 0]);
    }
}

#[test]
fn packets_in_a_tunnel_are_delivered_in_order_by_one_cpu_of_their_outer_flow() {
    let test = "packets_in_a_tunnel_are_delivered_in_order_by_one_cpu_of_their_outer_flow";
    let Some(Rig { attachment, pair, .. }) = rig(test, 1, |_| {}) else { return };
    let outer = [IpAddr::V4(Pair::SOURCE_V4), IpAddr::V4(Pair::SINK_V4)];
    let address = |host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
    let ends = [(&pair.source, outer[0], outer[1], 1), (&pair.sink, outer[1], outer[0], 2)];
    for (namespace, local, remote, host) in ends {
        let spec = VxlanSpec { name: "vx".into(), vni: 9, port: 4789, local, remote };
        match namespace.add_vxlan(&spec) {
            Err(error @ TestbedError::NoKind { .. }) => {
                eprintln!("skipped {test}: {error}");
                return;
            }
            made => made.unwrap(),
        }
        namespace.add_address("vx", address(host), 24).unwrap();
    }
    for (namespace, there, host) in [(&pair.source, &pair.sink, 2), (&pair.sink, &pair.source, 1)] {
        let mac = there.device("vx").unwrap().mac;
        namespace.add_neighbour("vx", address(host), mac).unwrap();
    }
    let socket = receiver(&pair, address(2));
    let source = sender(&pair, address(1), socket.local_addr().unwrap());
    let before = settled_of(&attachment);
    let packets = 2000u64;
    for number in 0..packets {
        source.send(&number.to_be_bytes()).unwrap();
        let mut bytes = [0; 8];
        socket.recv(&mut bytes).unwrap();
        assert_eq!(u64::from_be_bytes(bytes), number);
    }
    let after = settled_of(&attachment);
    // The device may say something of its own accord, by the same tunnel.
    let seen = after.class(Class::Udp) - before.class(Class::Udp);
    assert!((packets..packets + 20).contains(&seen), "{after:?}");
    let taken = |counters: &rxsteer_kernel::Counters| -> Vec<u64> {
        counters.cpus.iter().map(|(_, cpu)| cpu.taken).collect()
    };
    let busiest = taken(&after).iter().zip(taken(&before)).map(|(now, was)| now - was).max();
    assert!(busiest.is_some_and(|count| count >= packets), "{after:?}");
    assert_sums(&after);
}
