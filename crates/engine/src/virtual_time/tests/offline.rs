//! CPUs that come and go.

use super::*;

/// openshift/cluster-node-tuning-operator#518: a CPU goes offline with packets queued.
#[test]
fn packets_of_a_cpu_that_goes_offline_are_taken_over_in_order_and_none_is_lost() {
    for mode in Mode::ALL {
        let costs = Costs { protocol_udp: 1_000_000, ..costs() };
        let mut host = host(&Settings { mode, ..Settings::default() }, &costs);
        let mut script = Script::to(2).read_on(2);
        for n in 1..=20 {
            host.arrive(parcel(n), QueueId(0), 0, &mut script);
        }
        host.advance(500_000, &mut script);
        script.to.insert(0, 3);
        let tail = host.cpus().tail(CpuId(2));
        let taken_over = host.offline(CpuId(2), 500_000, &mut script).unwrap();
        assert_eq!(tail, 20);
        assert_eq!(taken_over, 19, "all but the one in work, which is done");
        assert_eq!(host.cpus().head(CpuId(2)), tail, "the head moved by each of them");
        host.drain(&mut script);
        assert!(host.is_idle());
        assert_eq!(script.count("read"), 20);
        assert!(script.delivered[&0].is_sorted(), "{:?}", script.delivered);
        assert!(!host.cpus().is_online(CpuId(2)));
        assert!(!script.cpus("read").contains(&2), "its reader went to another CPU");
        host.online(CpuId(2));
        assert!(host.cpus().is_online(CpuId(2)));
        script.to.insert(0, 2);
        host.arrive(parcel(21), QueueId(0), 1_000_000_000, &mut script);
        host.drain(&mut script);
        assert_eq!(script.cpus("processed").last(), Some(&2), "{mode:?}");
        assert_eq!(script.cpus("read").last(), Some(&2), "{mode:?}");
    }
}

#[test]
fn the_last_online_cpu_stays_and_a_cpu_that_does_not_exist_is_refused() {
    let topology =
        Topology { cpus: CpuStates::all(2), cache_numbers: vec![0; 2], irq_cpus: vec![CpuId(0)] };
    let mut host = VirtualTime::new(&topology, &Settings::default(), &costs());
    let mut script = Script::new();
    assert_eq!(host.offline(CpuId(7), 0, &mut script), None);
    assert_eq!(host.offline(CpuId(0), 0, &mut script), Some(0));
    assert_eq!(host.offline(CpuId(0), 0, &mut script), None);
    assert_eq!(host.offline(CpuId(1), 0, &mut script), None);
    assert_eq!(host.cpus().online().list().to_string(), "1");
    host.arrive(parcel(1), QueueId(0), 0, &mut script);
    host.drain(&mut script);
    assert_eq!(script.cpus("processed"), [1], "its queue's interrupts moved");
}

#[test]
fn a_reader_in_its_turn_goes_on_elsewhere_when_its_cpu_is_gone() {
    let mut host = host(&Settings::default(), &costs());
    let mut script = Script { work_ns: 10_000, ..Script::new().read_on(1) };
    for n in 1..=5 {
        host.arrive(parcel(n), QueueId(0), 0, &mut script);
    }
    host.advance(15_000, &mut script);
    assert_eq!(script.cpus("read"), [1, 1]);
    host.offline(CpuId(1), 15_000, &mut script);
    host.drain(&mut script);
    assert_eq!(script.cpus("read"), [1, 1, 0, 0, 0]);
    assert_eq!(load(&host, 1).reader_ns, 20_000, "its turn ended there");
    assert!(host.is_idle());
}

#[test]
fn what_waits_in_a_ring_is_polled_by_the_heir() {
    for mode in Mode::ALL {
        let costs = Costs { take: 1000, ..costs() };
        let mut host = host(&Settings { mode, ..Settings::default() }, &costs);
        let mut script = Script::new();
        for n in 1..=100 {
            host.arrive(parcel(n), QueueId(0), 0, &mut script);
        }
        host.advance(10_000, &mut script);
        let before = script.count("finished");
        assert!(before > 0 && before < 20);
        host.offline(CpuId(0), 10_000, &mut script);
        host.drain(&mut script);
        assert_eq!(script.count("finished"), 100, "{mode:?}");
        assert!(script.delivered[&0].is_sorted());
        assert!(load(&host, 1).processed >= 80);
        assert!(host.is_idle());
    }
}
