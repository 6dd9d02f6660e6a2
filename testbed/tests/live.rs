//! The testbed in the running kernel. Needs root; without it each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use common::testbed;
use rxsteer_testbed::{
    Offloads, Pair, PairSpec, TestbedError, VethEnd, VethSpec, VxlanSpec, snmp_now,
};

const WAIT: Duration = Duration::from_secs(5);

/// Sends one datagram to `to` and returns whose address it came from; `None` if none came.
fn datagram(pair: &Pair, from: IpAddr, to: IpAddr) -> Option<IpAddr> {
    let receiver = pair.sink.run(|| UdpSocket::bind((to, 0)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(WAIT)).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let sender = pair.source.run(|| UdpSocket::bind((from, 0)).unwrap()).unwrap();
    sender.send_to(b"here", SocketAddr::new(to, port)).unwrap();
    let mut bytes = [0; 8];
    let (len, from) = receiver.recv_from(&mut bytes).ok()?;
    assert_eq!(&bytes[..len], b"here");
    Some(from.ip())
}

fn named(names: &[String]) -> BTreeSet<String> {
    let entries = fs::read_dir("/run/netns").unwrap();
    let all = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    all.filter(|name| names.contains(name)).collect()
}

#[test]
fn a_pair_is_as_asked_and_leaves_nothing() {
    let Some(testbed) = testbed("a_pair_is_as_asked_and_leaves_nothing") else { return };
    let source = Offloads { gso: true, ..Offloads::NONE };
    let spec = PairSpec { queues: 2, mtu: 1400, source, sink: Offloads::ALL };
    let pair = Pair::new(&testbed, &spec).unwrap();
    let names = [pair.source.name(), pair.sink.name()];
    assert_eq!(named(&names).len(), 2);

    let device = pair.sink.device(Pair::SINK_DEVICE).unwrap();
    assert_eq!((device.mtu, device.rx_queues, device.tx_queues), (1400, 2, 2));
    assert_ne!(device.mac, [0; 6]);
    assert_eq!(pair.source.offloads(Pair::SOURCE_DEVICE).unwrap(), source);
    assert_eq!(pair.sink.offloads(Pair::SINK_DEVICE).unwrap(), Offloads::ALL);

    let v4 = datagram(&pair, Pair::SOURCE_V4.into(), Pair::SINK_V4.into());
    assert_eq!(v4, Some(Pair::SOURCE_V4.into()));
    let v6 = datagram(&pair, Pair::SOURCE_V6.into(), Pair::SINK_V6.into());
    assert_eq!(v6, Some(Pair::SOURCE_V6.into()));

    // Two sysfs files of it, seen from inside; the host sees neither its devices nor these files.
    pair.sink.write_sys(Pair::SINK_DEVICE, "queues/rx-1/rps_cpus", "1").unwrap();
    let mask = pair.sink.read_sys(Pair::SINK_DEVICE, "queues/rx-1/rps_cpus").unwrap();
    assert_eq!(mask.trim_start_matches(['0', ',']), "1");
    let mask = pair.sink.read_sys(Pair::SINK_DEVICE, "queues/rx-0/rps_cpus").unwrap();
    assert_eq!(mask.trim_start_matches(['0', ',']), "");
    assert!(!Path::new("/sys/class/net").join(Pair::SINK_DEVICE).exists());

    drop(pair);
    assert_eq!(named(&names), BTreeSet::new());
}

#[test]
fn the_sender_sends_nothing_of_its_own_accord() {
    let Some(testbed) = testbed("the_sender_sends_nothing_of_its_own_accord") else { return };
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    // Longer than the kernel waits before it tells of an address or asks for a router.
    std::thread::sleep(Duration::from_millis(1200));
    let device = pair.sink.device(Pair::SINK_DEVICE).unwrap();
    assert_eq!((device.counters.rx_packets, device.counters.tx_packets), (0, 0));
    let before = pair.sink.run(snmp_now).unwrap().unwrap();
    for _ in 0..3 {
        datagram(&pair, Pair::SOURCE_V4.into(), Pair::SINK_V4.into()).unwrap();
    }
    let counted = pair.sink.run(snmp_now).unwrap().unwrap().since(&before);
    assert_eq!(counted.get("Udp.InDatagrams"), 3);
    assert_eq!(counted.get("Ip.InReceives"), 3);
    assert_eq!(counted.get("Udp.InCsumErrors"), 0);
}

#[test]
fn a_panic_leaves_nothing() {
    let Some(testbed) = testbed("a_panic_leaves_nothing") else { return };
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    let names = [pair.source.name(), pair.sink.name()];
    let thread = std::thread::spawn(move || {
        let _pair = pair;
        panic!("on purpose: the pair must go");
    });
    assert!(thread.join().is_err());
    assert_eq!(named(&names), BTreeSet::new());
}

#[test]
fn tagged_packets_arrive() {
    let Some(testbed) = testbed("tagged_packets_arrive") else { return };
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    let ends = [(&pair.source, Pair::SOURCE_DEVICE, 1), (&pair.sink, Pair::SINK_DEVICE, 2)];
    let tagged = |host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
    let doubly = |host| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, host));
    for (namespace, lower, host) in ends {
        match namespace.add_vlan("tag", lower, 7, false) {
            Err(error @ TestbedError::NoKind { .. }) => {
                let said = "this kernel has no VLAN devices (CONFIG_VLAN_8021Q)";
                assert_eq!(error.to_string(), said);
                eprintln!("skipped tagged_packets_arrive: {error}");
                return;
            }
            made => made.unwrap(),
        }
        namespace.add_address("tag", tagged(host), 24).unwrap();
        namespace.add_vlan("service", lower, 8, true).unwrap();
        namespace.add_vlan("double", "service", 9, false).unwrap();
        namespace.add_address("double", doubly(u16::from(host)), 64).unwrap();
    }
    assert_eq!(datagram(&pair, tagged(1), tagged(2)), Some(tagged(1)));
    assert_eq!(datagram(&pair, doubly(1), doubly(2)), Some(doubly(1)));
}

#[test]
fn tunnelled_packets_arrive() {
    let Some(testbed) = testbed("tunnelled_packets_arrive") else { return };
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    let outer = [IpAddr::V4(Pair::SOURCE_V4), IpAddr::V4(Pair::SINK_V4)];
    let inside = |host| IpAddr::V4(Ipv4Addr::new(203, 0, 113, host));
    let ends = [(&pair.source, outer[0], outer[1], 1), (&pair.sink, outer[1], outer[0], 2)];
    for (namespace, local, remote, host) in ends {
        let tunnel = VxlanSpec { name: "vx".into(), vni: 42, port: 4789, local, remote };
        match namespace.add_vxlan(&tunnel) {
            Err(error @ TestbedError::NoKind { .. }) => {
                eprintln!("skipped tunnelled_packets_arrive: {error}");
                return;
            }
            made => made.unwrap(),
        }
        namespace.add_address("vx", inside(host), 24).unwrap();
    }
    assert_eq!(datagram(&pair, inside(1), inside(2)), Some(inside(1)));
    let counters = pair.sink.device("vx").unwrap().counters;
    assert!(counters.rx_packets >= 1, "{counters:?}");
}

#[test]
fn routes_lead_through_a_third_namespace() {
    let Some(testbed) = testbed("routes_lead_through_a_third_namespace") else { return };
    let [left, middle, right] = [(); 3].map(|()| testbed.namespace().unwrap());
    let spec = |here: &str, there: &str| VethSpec {
        here: VethEnd::new(here),
        there: VethEnd::new(there),
        mtu: 1500,
    };
    left.add_veth(&middle, &spec("out", "west")).unwrap();
    right.add_veth(&middle, &spec("out", "east")).unwrap();
    let address = |net, host| IpAddr::V4(Ipv4Addr::new(198, 18, net, host));
    left.add_address("out", address(1, 1), 24).unwrap();
    middle.add_address("west", address(1, 2), 24).unwrap();
    middle.add_address("east", address(2, 2), 24).unwrap();
    right.add_address("out", address(2, 1), 24).unwrap();
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    left.add_route("out", any, 0, Some(address(1, 2))).unwrap();
    right.add_route("out", any, 0, Some(address(2, 2))).unwrap();
    middle.set_sysctl("net.ipv4.ip_forward", "1").unwrap();

    let receiver = right.run(|| UdpSocket::bind((address(2, 1), 0)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(WAIT)).unwrap();
    let to = receiver.local_addr().unwrap();
    let sender = left.run(|| UdpSocket::bind((address(1, 1), 0)).unwrap()).unwrap();
    sender.send_to(b"far", to).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(receiver.recv_from(&mut bytes).unwrap().1, sender.local_addr().unwrap());
}

#[test]
fn what_cannot_be_made_is_named() {
    let Some(testbed) = testbed("what_cannot_be_made_is_named") else { return };
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    let said = |error: TestbedError| error.to_string();
    let device = Pair::SOURCE_DEVICE;
    assert_eq!(
        said(pair.source.device("no-such").unwrap_err()),
        format!("namespace {} has no device no-such", pair.source.name())
    );
    let twice = pair.source.add_address(device, Pair::SOURCE_V4.into(), 15).unwrap_err();
    assert!(said(twice).starts_with("cannot give tx0 the address 198.18.0.1/15: File exists"));
    let huge = pair.source.set_mtu(device, 70_000).unwrap_err();
    assert!(said(huge).starts_with("cannot set the MTU of tx0 to 70000: "));
    let sysctl = pair.source.set_sysctl("net.no.such", "1").unwrap_err();
    assert!(said(sysctl).starts_with("cannot write 1 to /proc/sys/net/no/such: "));
    // Segmenting in the device needs its checksums.
    let lonely = Offloads { tso: true, ..Offloads::NONE };
    assert_eq!(
        said(pair.source.set_offloads(device, lonely).unwrap_err()),
        "tx0: tx-tcp-segmentation is off, though it was set on"
    );
    pair.source.remove_device(device).unwrap();
    assert!(pair.sink.device(Pair::SINK_DEVICE).is_err());
}
