use std::collections::BTreeMap;
use std::sync::Arc;

use rxsteer_core::QueueId;
use rxsteer_core::steer::PolicyKind;
use rxsteer_sockets::queue::{Datagram, Limits};
use rxsteer_sockets::{Config, Event};

use super::super::testing::*;
use super::super::{
    Consume, Message, PlaneSettings, Socket, SocketSettings, Sockets, Turn, UdpStages,
};
use super::*;
use crate::overload::GovernorSettings;
use crate::overload::shed::Counts;
use crate::udp::Tally;
use crate::virtual_time::VirtualTime;
use crate::{Costs, Settings};

/// Datagrams read of each flow.
type Read = BTreeMap<u32, u64>;

/// Works for 1.5 µs on each message.
#[derive(Debug, Default)]
struct Busy(Read);

impl Consume for Busy {
    fn consume(&mut self, _: Turn, _: &Socket, message: Datagram<Message>) -> u64 {
        for datagram in message.payload.datagrams() {
            *self.0.entry(number_of(datagram).0).or_default() += 1;
        }
        1_500
    }
}

const MS: u64 = 1_000_000;

/// A client of 20,000 packets/s for 150 ms and, in the last 30 ms, a flood of 2 M packets/s from
/// other flows to the same socket, whose reader is on the CPU that takes the packets.
///
/// Returns what the client sent, what was read, and the counts.
fn flooded(shed: Option<ShedSettings>) -> (u64, Read, Tally, Option<Counts>) {
    let plane = plane(PlaneSettings { policy: PolicyKind::None, ..PlaneSettings::default() });
    let config = Config { key: (1, 2), ..Config::default() };
    let mut sockets = Sockets::new(config, &plane, &[CpuId(0)], pool());
    if let Some(settings) = shed {
        sockets = sockets.shedding(settings, Key { k0: 5, k1: 6 });
    }
    let sockets = Arc::new(sockets);
    let limits = Limits::bytes(65_536);
    sockets.open(&SocketSettings { limits, ..SocketSettings::bound(here(53)) }).unwrap();
    let mut stages = UdpStages::new(&sockets, Busy::default());
    let govern = Some(GovernorSettings::default());
    let settings = Settings { govern, ..Settings::default() };
    let mut host = VirtualTime::new(&topology(1, &[0]), &settings, &Costs::default());
    let pool = pool();
    let (mut sent, mut any) = (0, 1u32);
    for tick in 0..300_000u64 {
        // A tick is half a microsecond.
        let now_ns = tick * 500;
        if tick % 100 == 0 {
            sent += 1;
            let frame = numbered(&pool, 1, 53, tick as u32, 20);
            host.arrive(frame, QueueId(0), now_ns, &mut stages);
        }
        if now_ns >= 120 * MS {
            any = any.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Of 22,500 prefixes.
            let flow = (1 + (any >> 8) % 150) << 16 | ((any >> 16) % 150) << 8 | any >> 24;
            let frame = numbered(&pool, flow, 53, tick as u32, 20);
            host.arrive(frame, QueueId(0), now_ns, &mut stages);
        }
    }
    host.drain(&mut stages);
    let tally = stages.tally().clone();
    assert_eq!(tally.decisions(), tally.dropped() + tally.all_ended() + tally.queued);
    assert_eq!(tally.queued, tally.read);
    (sent, stages.into_consumer().0, tally, sockets.shed_counts())
}

#[test]
fn a_client_of_a_real_socket_loses_nothing_in_a_flood_that_is_shed_by_its_credit() {
    let (sent, read, tally, counts) = flooded(Some(ShedSettings::default()));
    assert_eq!((read[&1], tally.ring), (sent, 0), "{tally:?}");
    let counts = counts.unwrap();
    assert_eq!(counts.shed_total(), tally.shed);
    assert!(tally.shed > 10_000, "{}", tally.shed);
    // What is let in fits, but for the first moments.
    assert!(tally.ended(Event::BufferFull) < 200, "{tally:?}");
    // Whoever was let in reached the socket and gave its ticket back.
    assert_eq!((counts.lost, counts.late, counts.healed), (0, 0, 0));
    assert!(counts.reached > 1000 && counts.reached <= counts.admitted, "{counts:?}");
}

#[test]
fn without_shedding_the_same_client_loses_most() {
    let (sent, read, tally, counts) = flooded(None);
    assert!(counts.is_none());
    // 30 of the 150 ms are of the flood.
    assert!(sent - read[&1] > sent / 10, "{} of {sent}", read[&1]);
    assert_eq!(tally.shed, 0);
}
