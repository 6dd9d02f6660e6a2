//! What a look-up reads, counted: for experiments on how its cost grows with the sockets of a port.
//!
//! Source: the steps of `lookup`, taken once more and counted; a count says more than a time on a
//! machine that does other things too.

use crate::{Packet, Stage, Walk};

use super::publish::Published;
use super::tuple::Tuple;

impl Published {
    /// Counts what the look-up of a unicast packet reads.
    pub(crate) fn walk(&self, packet: &Packet<'_>) -> Walk {
        let tuple = Tuple::of(packet);
        let mut walk = Walk::default();
        #[cfg(feature = "hash4")]
        if self.four.may_hold(tuple.local, tuple.local_port) {
            self.four.walk(self.hash.of(&tuple), &tuple, &mut walk);
        }
        let found = self.lookup(packet).map(|found| found.stage);
        if matches!(found, Some(Stage::FourTuple | Stage::EarlyDemux)) {
            return walk;
        }
        let lists = self.lists.pin();
        for (address, stage) in [(tuple.local, Stage::Address), (0, Stage::Wildcard)] {
            walk.lists += 1;
            let Some(list) = lists.get(&(address, tuple.local_port)) else { continue };
            walk.candidates += list.iter().count() as u32;
            if found == Some(stage) {
                break;
            }
        }
        walk
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rxsteer_core::CpuId;

    use crate::{Cast, Config, DeviceId, Family, KernelRelease, Namespace, Owner, Packet, Profile};

    const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

    fn to(src_port: u16) -> Packet<'static> {
        Packet {
            src: CLIENT,
            src_port,
            dst: SERVER,
            dst_port: 4433,
            device: DeviceId(1),
            cpu: CpuId(0),
            cast: Cast::Unicast,
            from_this_host: true,
            payload: &[],
        }
    }

    fn connected(profile: Profile, count: u16) -> Namespace {
        let ns = Namespace::new(&Config { profile, ..Config::default() });
        for number in 0..count {
            let socket = ns.open(Family::V4, Owner(0)).unwrap();
            ns.set(socket, crate::SocketOption::ReusePort(true)).unwrap();
            ns.bind(socket, SERVER, 4433).unwrap();
            ns.connect(socket, CLIENT, 10_000 + number, SERVER).unwrap();
        }
        ns
    }

    #[cfg(feature = "hash4")]
    #[test]
    fn by_4_tuple_a_look_up_reads_one_record_whatever_the_number_of_sockets() {
        for count in [1, 1000] {
            let ns = connected(Profile::Rxsteer, count);
            let walk = ns.walk(&to(10_000));
            assert_eq!((walk.records, walk.lists, walk.candidates), (1, 0, 0), "{count}: {walk:?}");
        }
    }

    #[test]
    fn without_the_4_tuple_table_it_looks_at_every_socket_of_the_address() {
        for count in [1, 1000] {
            let ns = connected(Profile::LinuxOf(KernelRelease(6, 12, 0)), count);
            let walk = ns.walk(&to(10_000));
            let all = u32::from(count);
            assert_eq!((walk.buckets, walk.lists, walk.candidates), (0, 1, all), "{walk:?}");
        }
    }

    #[test]
    fn a_packet_that_nobody_gets_is_looked_for_in_both_lists() {
        let ns = connected(Profile::Rxsteer, 0);
        let walk = ns.walk(&to(9));
        assert_eq!((walk.records, walk.lists, walk.candidates), (0, 2, 0));
    }
}
