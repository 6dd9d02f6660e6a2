//! Operations and their errors, one behaviour each.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rxsteer_core::CpuId;

use crate::{
    Cast, Config, DeviceId, Family, Namespace, Owner, Packet, Profile, SocketError, SocketId,
    SocketOption,
};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn namespace() -> Namespace {
    Namespace::new(&Config::default())
}

fn packet(src: &str, dst: &str, dst_port: u16) -> Packet<'static> {
    Packet {
        src: address(src),
        src_port: 7000,
        dst: address(dst),
        dst_port,
        device: DeviceId(1),
        cpu: CpuId(0),
        cast: Cast::Unicast,
        from_this_host: false,
        payload: &[],
    }
}

fn receiver(ns: &Namespace, packet: &Packet<'_>) -> Option<SocketId> {
    ns.lookup(packet).map(|found| found.socket)
}

#[test]
fn every_error_has_its_cause() -> Result<(), SocketError> {
    let ns = namespace();
    let (v4, v6) = (ns.open(Family::V4, Owner(0))?, ns.open(Family::V6, Owner(0))?);
    let (any4, any6) = (address("0.0.0.0"), address("::"));
    assert_eq!(ns.bind(v4, any6, 1), Err(SocketError::FamilyNotSupported));
    assert_eq!(ns.bind(v6, any4, 1), Err(SocketError::Invalid));
    assert_eq!(ns.set(v4, SocketOption::V6Only(true)), Err(SocketError::Invalid));
    assert_eq!(ns.set(v4, SocketOption::PortRange(9, 8)), Err(SocketError::Invalid));
    assert_eq!(ns.set(v4, SocketOption::PortRange(0, 8)), Err(SocketError::Invalid));
    let no_device = SocketOption::Device(Some(DeviceId(0)));
    assert_eq!(ns.set(v4, no_device), Err(SocketError::NoDevice));
    let leave = SocketOption::Leave(address("239.1.1.1"), DeviceId(1));
    assert_eq!(ns.set(v4, leave), Err(SocketError::AddressNotAvailable));
    assert_eq!(ns.select_by(v4, crate::Selector::Hash), Err(SocketError::Invalid));
    assert_eq!(ns.remote(v4), Err(SocketError::NotConnected));
    let (remote4, remote6) = (address("198.51.100.1"), address("2001:db8:1::1"));
    assert_eq!(ns.connect(v4, remote6, 1, any6), Err(SocketError::FamilyNotSupported));
    assert_eq!(ns.connect(v4, remote4, 0, any4), Err(SocketError::Invalid));
    assert_eq!(ns.connect(v4, any4, 1, any4), Err(SocketError::Invalid));
    assert_eq!(ns.connect(v4, remote4, 1, any4), Err(SocketError::AddressNotAvailable));
    assert_eq!(ns.local(v4)?, (any4, 0), "a refused connect took no port");
    ns.set(v6, SocketOption::V6Only(true))?;
    assert_eq!(ns.bind(v6, address("::ffff:192.0.2.1"), 1), Err(SocketError::Invalid));
    assert_eq!(ns.connect(v6, remote4, 1, any4), Err(SocketError::NetworkUnreachable));
    ns.bind(v6, any6, 53)?;
    assert_eq!(ns.bind(v6, any6, 54), Err(SocketError::Invalid));
    let other = ns.open(Family::V6, Owner(0))?;
    assert_eq!(ns.bind(other, address("2001:db8::1"), 53), Err(SocketError::AddressInUse));
    assert_eq!(ns.local(other)?, (any6, 0), "a refused bind changed nothing");
    ns.close(other)?;
    assert_eq!(ns.close(other), Err(SocketError::Closed));
    assert_eq!(ns.bind(other, any6, 1), Err(SocketError::Closed));
    assert_eq!(ns.local(other), Err(SocketError::Closed));
    let again = ns.open(Family::V6, Owner(0))?;
    assert_eq!(again.index, other.index);
    assert_ne!(again, other, "the id of a closed socket is never that of another");
    Ok(())
}

#[test]
fn one_socket_more_than_the_limit_is_refused() {
    let ns = Namespace::new(&Config { most_sockets: 2, ..Config::default() });
    let first = ns.open(Family::V4, Owner(0)).unwrap();
    ns.open(Family::V4, Owner(0)).unwrap();
    assert_eq!(ns.open(Family::V4, Owner(0)), Err(SocketError::NoBuffers));
    ns.close(first).unwrap();
    assert!(ns.open(Family::V4, Owner(0)).is_ok());
}

#[test]
fn all_28232_automatic_ports_are_given_out_once_and_then_none() {
    let ns = namespace();
    let mut ports = BTreeSet::new();
    let bind = |local: &str| {
        let socket = ns.open(Family::V4, Owner(0)).unwrap();
        ns.bind(socket, address(local), 0)
    };
    for _ in 0..28_232 {
        assert!(ports.insert(bind("192.0.2.1").unwrap()), "a port twice");
    }
    assert_eq!((ports.first(), ports.last()), (Some(&32_768), Some(&60_999)));
    assert_eq!(bind("192.0.2.1"), Err(SocketError::AddressInUse));
    assert_eq!(bind("0.0.0.0"), Err(SocketError::AddressInUse));
    // Another address is free on all of them.
    assert!(bind("192.0.2.2").is_ok());
}

#[test]
fn a_dual_stack_socket_takes_both_families_and_an_ipv4_one_goes_first() -> Result<(), SocketError> {
    let ns = namespace();
    let dual = ns.open(Family::V6, Owner(0))?;
    ns.set(dual, SocketOption::ReuseAddr(true))?;
    ns.bind(dual, address("::"), 53)?;
    let (from4, from6) =
        (packet("198.51.100.1", "192.0.2.1", 53), packet("2001:db8:1::1", "2001:db8::1", 53));
    assert_eq!((receiver(&ns, &from4), receiver(&ns, &from6)), (Some(dual), Some(dual)));
    let v4 = ns.open(Family::V4, Owner(0))?;
    ns.set(v4, SocketOption::ReuseAddr(true))?;
    ns.bind(v4, address("0.0.0.0"), 53)?;
    assert_eq!((receiver(&ns, &from4), receiver(&ns, &from6)), (Some(v4), Some(dual)));
    Ok(())
}

#[test]
fn a_connected_socket_gets_its_wildcard_back_and_loses_a_port_it_did_not_name()
-> Result<(), SocketError> {
    let ns = namespace();
    let (remote, source) = (address("198.51.100.1"), address("192.0.2.1"));
    let named = ns.open(Family::V4, Owner(0))?;
    ns.bind(named, address("0.0.0.0"), 53)?;
    ns.connect(named, remote, 7000, source)?;
    assert_eq!((ns.local(named)?, ns.remote(named)?), ((source, 53), (remote, 7000)));
    ns.disconnect(named)?;
    assert_eq!(ns.local(named)?, (address("0.0.0.0"), 53));
    let automatic = ns.open(Family::V4, Owner(0))?;
    ns.connect(automatic, remote, 7000, source)?;
    assert_ne!(ns.local(automatic)?.1, 0);
    ns.disconnect(automatic)?;
    assert_eq!(ns.local(automatic)?, (address("0.0.0.0"), 0));
    Ok(())
}

#[test]
fn namespaces_with_one_address_and_port_do_not_see_each_other() -> Result<(), SocketError> {
    let (a, b) = (namespace(), namespace());
    let sockets = [&a, &b].map(|ns| {
        let socket = ns.open(Family::V4, Owner(0)).unwrap();
        ns.bind(socket, address("192.0.2.1"), 53).map(|_| socket)
    });
    let packet = packet("198.51.100.1", "192.0.2.1", 53);
    assert_eq!(receiver(&a, &packet), Some(sockets[0]?));
    b.close(sockets[1]?)?;
    assert_eq!((receiver(&a, &packet).is_some(), receiver(&b, &packet)), (true, None));
    Ok(())
}

#[test]
fn a_found_socket_says_that_it_is_a_tunnels_and_connected() -> Result<(), SocketError> {
    let ns = namespace();
    let tunnel = ns.open(Family::V4, Owner(0))?;
    ns.bind(tunnel, address("0.0.0.0"), 4789)?;
    ns.set(tunnel, SocketOption::Encapsulation(true))?;
    let packet = packet("198.51.100.1", "192.0.2.1", 4789);
    let found = ns.lookup(&packet).unwrap();
    assert_eq!((found.encapsulation, found.connected), (true, false));
    ns.connect(tunnel, address("198.51.100.1"), 7000, address("192.0.2.1"))?;
    let found = ns.lookup(&packet).unwrap();
    assert_eq!((found.encapsulation, found.connected), (true, true));
    Ok(())
}

#[test]
fn a_selection_may_refuse_a_packet() -> Result<(), SocketError> {
    let ns = namespace();
    let socket = ns.open(Family::V4, Owner(0))?;
    ns.set(socket, SocketOption::ReusePort(true))?;
    ns.bind(socket, address("192.0.2.1"), 53)?;
    let wild = ns.open(Family::V4, Owner(0))?;
    ns.set(wild, SocketOption::ReusePort(true))?;
    ns.bind(wild, address("0.0.0.0"), 53)?;
    let packet = packet("198.51.100.1", "192.0.2.1", 53);
    assert_eq!(receiver(&ns, &packet), Some(socket));
    let refuse = |_: &Packet<'_>, _| crate::Choice::Refuse;
    ns.select_by(socket, crate::Selector::User(std::sync::Arc::new(refuse)))?;
    assert_eq!(receiver(&ns, &packet), None, "nor does the wildcard get it");
    Ok(())
}

#[test]
fn crowds_of_sharers_bind_without_going_through_each_other() -> Result<(), SocketError> {
    // 20,000 sockets each way; quadratic work would take minutes here.
    for option in [SocketOption::ReuseAddr(true), SocketOption::ReusePort(true)] {
        let ns = namespace();
        for port in 0..20_000 {
            let socket = ns.open(Family::V4, Owner(0))?;
            ns.set(socket, option.clone())?;
            ns.bind(socket, address("192.0.2.1"), 53)?;
            ns.connect(socket, address("198.51.100.1"), 1 + port, address("192.0.2.1"))?;
        }
    }
    Ok(())
}

/// A member of a reuseport group at 192.0.2.1 port 53.
fn member(ns: &Namespace, cpu: Option<u16>) -> SocketId {
    let socket = ns.open(Family::V4, Owner(0)).unwrap();
    ns.set(socket, SocketOption::ReusePort(true)).unwrap();
    ns.set(socket, SocketOption::IncomingCpu(cpu.map(CpuId))).unwrap();
    ns.bind(socket, address("192.0.2.1"), 53).unwrap();
    socket
}

/// Who receives packets of 100 strangers that are processed on a CPU.
fn takers_on(ns: &Namespace, cpu: u16) -> BTreeSet<SocketId> {
    let packet = Packet { cpu: CpuId(cpu), ..packet("198.51.100.9", "192.0.2.1", 53) };
    let packets = (0..100).map(|port| Packet { src_port: 20_000 + port, ..packet });
    packets.filter_map(|packet| receiver(ns, &packet)).collect()
}

/// As Linux 6.18 does it; the same steps were taken there, over loopback, with the same result.
#[test]
fn linux_counts_members_with_a_cpu_and_takes_off_those_it_never_counted() -> Result<(), SocketError>
{
    if !crate::HASH4 {
        println!("skipped: the first packet finds its socket by 4-tuple");
        return Ok(());
    }
    let remote = address("198.51.100.1");
    for (profile, counts_all) in [(Profile::Linux, false), (Profile::Rxsteer, true)] {
        let ns = Namespace::new(&Config { profile, key: (1, 2), ..Config::default() });
        // Connected, and then put into a group by a bind: it takes on a CPU as a member.
        let first = member(&ns, None);
        ns.connect(first, remote, 7000, address("192.0.2.1"))?;
        let plain = member(&ns, None);
        ns.deliver(&packet("198.51.100.1", "192.0.2.1", 53), |found| {
            assert_eq!(found.socket, first);
        });
        ns.close(first)?;
        // One less than none, and one more: the CPU of the next member does not count.
        let on_1 = member(&ns, Some(1));
        let expected = if counts_all { vec![on_1] } else { vec![plain, on_1] };
        assert_eq!(takers_on(&ns, 1), BTreeSet::from_iter(expected), "{profile:?}");
        let on_0 = member(&ns, Some(0));
        assert_eq!(takers_on(&ns, 1), BTreeSet::from([on_1]), "{profile:?}");
        ns.set(on_0, SocketOption::IncomingCpu(None))?;
        let expected = if counts_all { vec![on_1] } else { vec![plain, on_1, on_0] };
        assert_eq!(takers_on(&ns, 1), BTreeSet::from_iter(expected), "{profile:?}");
    }
    Ok(())
}

/// As Linux 6.18 does it; seeds 14 and 20 of `tests/kernel_lookup.rs` have it.
#[test]
fn a_connected_member_that_a_bind_took_in_stays_when_it_connects_again() -> Result<(), SocketError>
{
    if !crate::HASH4 {
        println!("skipped: the rule is that of a kernel with the table of 4-tuples");
        return Ok(());
    }
    let config = Config { profile: Profile::Linux, key: (1, 2), ..Config::default() };
    let ns = Namespace::new(&config);
    let (remote, source) = (address("198.51.100.1"), address("192.0.2.1"));
    let first = member(&ns, None);
    ns.connect(first, remote, 7000, source)?;
    let second = member(&ns, None);
    ns.connect(first, remote, 7001, source)?;
    // The group has had a connected member since: its pick is not final any more.
    let to_first = Packet { src_port: 7001, ..packet("198.51.100.1", "192.0.2.1", 53) };
    assert_eq!(receiver(&ns, &to_first), Some(first));
    ns.disconnect(first)?;
    assert_eq!(takers_on(&ns, 0), BTreeSet::from([first, second]), "both are members");
    Ok(())
}
