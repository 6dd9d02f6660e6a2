//! Where the profile `Rxsteer` departs from Linux: each fault, and what we do instead.
//!
//! See `docs/sockets.md` for the reasons.

use std::net::IpAddr;

use rxsteer_core::CpuId;

use crate::{
    Cast, Config, DeviceId, Family, Namespace, Owner, Packet, Profile, SocketId, SocketOption,
    SourceFilter, Stage,
};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

struct Host {
    ns: Namespace,
}

impl Host {
    fn new(profile: Profile) -> Self {
        Self { ns: Namespace::new(&Config { profile, key: (5, 6), ..Config::default() }) }
    }

    fn socket(&self, local: &str, port: u16, options: &[SocketOption]) -> SocketId {
        let local = address(local);
        let family = if local.is_ipv4() { Family::V4 } else { Family::V6 };
        let socket = self.ns.open(family, Owner(0)).unwrap();
        for option in options {
            self.ns.set(socket, option.clone()).unwrap();
        }
        self.ns.bind(socket, local, port).unwrap();
        socket
    }

    fn connect(&self, socket: SocketId, to: &str, port: u16) {
        let source = if address(to).to_canonical().is_ipv4() { "192.0.2.1" } else { "2001:db8::1" };
        self.ns.connect(socket, address(to), port, address(source)).unwrap();
    }

    /// Returns who receives a packet from a device.
    fn packet(&self, src: &str, src_port: u16, dst: &str) -> Vec<SocketId> {
        let (src, dst) = (address(src), address(dst));
        let cast = if dst.is_multicast() { Cast::Multicast } else { Cast::Unicast };
        let packet = Packet {
            src,
            src_port,
            dst,
            dst_port: 53,
            device: DeviceId(1),
            cpu: CpuId(0),
            cast,
            from_this_host: false,
            payload: &[],
        };
        let mut receivers = Vec::new();
        self.ns.deliver(&packet, |found| receivers.push(found.socket));
        receivers
    }
}

const REUSEPORT: [SocketOption; 1] = [SocketOption::ReusePort(true)];
const REUSEADDR: [SocketOption; 1] = [SocketOption::ReuseAddr(true)];

/// `stale_hash4`. Linux leaves a socket that reconnects under its first 4-tuple, so that another one
/// with the same remote end is found in its stead.
#[test]
fn a_socket_that_reconnects_is_filed_under_its_new_4_tuple() {
    if !crate::HASH4 {
        println!("skipped: this build has no table of 4-tuples");
        return;
    }
    for (profile, stage) in [(Profile::Rxsteer, Stage::FourTuple), (Profile::Linux, Stage::Address)]
    {
        let host = Host::new(profile);
        let moving = host.socket("192.0.2.1", 53, &[]);
        host.connect(moving, "198.51.100.1", 7000);
        host.connect(moving, "198.51.100.2", 7000);
        let packet = Packet {
            src: address("198.51.100.2"),
            src_port: 7000,
            dst: address("192.0.2.1"),
            dst_port: 53,
            device: DeviceId(1),
            cpu: CpuId(0),
            cast: Cast::Unicast,
            from_this_host: true,
            payload: &[],
        };
        let found = host.ns.lookup(&packet).unwrap();
        assert_eq!((found.socket, found.stage), (moving, stage), "{profile:?}");
    }
}

/// `stale_hash4`, the other half: of two sockets with one 4-tuple the one that connected last gets
/// its packets, also when it had been connected there before.
#[test]
fn of_two_with_one_4_tuple_the_last_to_connect_is_found_also_after_a_disconnect() {
    if !crate::HASH4 {
        println!("skipped: this build has no table of 4-tuples");
        return;
    }
    for (profile, back_is_found) in [(Profile::Rxsteer, true), (Profile::Linux, false)] {
        let host = Host::new(profile);
        // Bound first, so that under Linux it is not the head that early demultiplexing looks at.
        let back = host.socket("192.0.2.1", 53, &REUSEADDR);
        let other = host.socket("192.0.2.1", 53, &REUSEADDR);
        host.socket("192.0.2.1", 53, &REUSEADDR);
        host.connect(back, "198.51.100.1", 7000);
        host.connect(other, "198.51.100.1", 7000);
        assert_eq!(host.packet("198.51.100.1", 7000, "192.0.2.1"), [other], "{profile:?}");
        host.ns.disconnect(back).unwrap();
        host.connect(back, "198.51.100.1", 7000);
        let expected = if back_is_found { back } else { other };
        assert_eq!(host.packet("198.51.100.1", 7000, "192.0.2.1"), [expected], "{profile:?}");
    }
}

/// `stale_remote6`. Under Linux a disconnected IPv6 socket goes on refusing all but its last peer.
#[test]
fn a_disconnected_ipv6_socket_hears_everyone_again() {
    for (profile, hears) in [(Profile::Rxsteer, true), (Profile::Linux, false)] {
        let host = Host::new(profile);
        let socket = host.socket("2001:db8::1", 53, &[]);
        host.connect(socket, "2001:db8:1::1", 7000);
        host.ns.disconnect(socket).unwrap();
        let got = host.packet("2001:db8:1::2", 7000, "2001:db8::1");
        assert_eq!(got == [socket], hears, "{profile:?}: {got:?}");
    }
}

/// `placeholder4`. Under Linux a connected IPv6 socket answers for 127.0.0.6.
#[test]
fn a_connected_ipv6_socket_has_no_ipv4_address() {
    for (profile, answers) in [(Profile::Rxsteer, false), (Profile::Linux, true)] {
        let host = Host::new(profile);
        let socket = host.socket("::", 53, &[]);
        host.connect(socket, "2001:db8:1::1", 7000);
        let got = host.packet("198.51.100.1", 7000, "127.0.0.6");
        assert_eq!(got == [socket], answers, "{profile:?}: {got:?}");
    }
}

/// `placeholder4`. Under Linux a socket that a connect gave an IPv6 address may go on to an IPv4
/// remote, whose packets it then never gets; a mapped address leads to no IPv6 remote at all.
#[test]
fn a_connection_to_the_other_family_is_refused_after_a_first_one() {
    use crate::SocketError::{FamilyNotSupported, NetworkUnreachable};
    for (profile, goes_on) in
        [(Profile::Rxsteer, Err(NetworkUnreachable)), (Profile::Linux, Ok(()))]
    {
        let host = Host::new(profile);
        let (mapped, v6) = (address("::ffff:198.51.100.1"), address("2001:db8:1::1"));
        let source = address("::ffff:192.0.2.1");
        let socket = host.socket("::", 53, &[]);
        host.connect(socket, "2001:db8:1::1", 7000);
        assert_eq!(host.ns.connect(socket, mapped, 7000, source), goes_on, "{profile:?}");
        assert_eq!(host.packet("198.51.100.1", 7000, "192.0.2.1"), []);
        let socket = host.socket("::ffff:192.0.2.1", 54, &[]);
        let refused = host.ns.connect(socket, v6, 7000, address("2001:db8::1"));
        assert_eq!(refused, Err(FamilyNotSupported), "{profile:?}");
    }
}

/// `left_group`. Under Linux a member that connects and disconnects stands alone at the head of the
/// list and takes all packets; its old group gets none.
#[test]
fn a_member_that_connected_is_back_in_its_group_after_a_disconnect() {
    for (profile, shares) in [(Profile::Rxsteer, 4), (Profile::Linux, 1)] {
        let host = Host::new(profile);
        let group: Vec<_> = (0..4).map(|_| host.socket("0.0.0.0", 53, &REUSEPORT)).collect();
        host.connect(group[1], "198.51.100.1", 7000);
        host.ns.disconnect(group[1]).unwrap();
        let mut reached: Vec<_> = (0..200)
            .map(|port| host.packet("198.51.100.2", 10_000 + port, "192.0.2.1")[0])
            .collect();
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), shares, "{profile:?}");
        if profile == Profile::Linux {
            assert_eq!(reached, [group[1]]);
        }
    }
}

/// `left_group`. Under Linux a member bound to a device leaves its group and founds none.
#[test]
fn members_bound_to_a_device_later_form_the_group_of_that_device() {
    for (profile, shares) in [(Profile::Rxsteer, 2), (Profile::Linux, 1)] {
        let host = Host::new(profile);
        let group: Vec<_> = (0..2).map(|_| host.socket("0.0.0.0", 53, &REUSEPORT)).collect();
        for member in &group {
            host.ns.set(*member, SocketOption::Device(Some(DeviceId(1)))).unwrap();
        }
        let mut reached: Vec<_> = (0..100)
            .map(|port| host.packet("198.51.100.2", 10_000 + port, "192.0.2.1")[0])
            .collect();
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), shares, "{profile:?}");
    }
}

/// Early demultiplexing. Under Linux packets from a device and packets of the host itself can reach
/// different sockets of one 4-tuple: the head of the list, and the last to connect.
#[test]
fn the_way_a_packet_came_does_not_choose_among_twins() {
    if !crate::HASH4 {
        println!("skipped: this build has no table of 4-tuples");
        return;
    }
    for (profile, last_connected) in [(Profile::Rxsteer, true), (Profile::Linux, false)] {
        let host = Host::new(profile);
        let first = host.socket("192.0.2.1", 53, &REUSEADDR);
        let second = host.socket("192.0.2.1", 53, &REUSEADDR);
        host.connect(second, "198.51.100.1", 7000);
        host.connect(first, "198.51.100.1", 7000);
        let expected = if last_connected { first } else { second };
        assert_eq!(host.packet("198.51.100.1", 7000, "192.0.2.1"), [expected], "{profile:?}");
    }
}

/// Early demultiplexing. Under Linux the only taker of a multicast group hands its packets to its
/// reuseport group, even to members that did not join.
#[test]
fn a_multicast_goes_to_who_joined_and_not_to_its_reuseport_group() {
    for (profile, all_to_joined) in [(Profile::Rxsteer, true), (Profile::Linux, false)] {
        let host = Host::new(profile);
        let quiet = [SocketOption::ReusePort(true), SocketOption::MulticastAll(false)];
        let joined = host.socket("0.0.0.0", 53, &quiet);
        let group = address("239.1.1.1");
        let join = SocketOption::Join(group, DeviceId(1), SourceFilter::ANY);
        host.ns.set(joined, join).unwrap();
        host.socket("0.0.0.0", 53, &quiet);
        let all = (0..100)
            .all(|port| host.packet("198.51.100.2", 10_000 + port, "239.1.1.1") == [joined]);
        assert_eq!(all, all_to_joined, "{profile:?}");
    }
}
