use super::*;
use crate::table::{
    Bucket, DevFlow, DevFlows, Epoch, FlowTable, OrderTable, Recorded, RepeatFilter, SlotIndex,
    SockTable,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Four CPUs whose backlogs the test sets.
struct Fixed {
    online: [bool; 4],
    head: [u32; 4],
    tail: [u32; 4],
    beside: Option<CpuId>,
    leaves: Option<CpuId>,
}

impl Fixed {
    const IDLE: Self =
        Self { online: [true; 4], head: [0; 4], tail: [0; 4], beside: None, leaves: None };
}

impl Host for Fixed {
    fn is_online(&self, cpu: CpuId) -> bool {
        self.online.get(cpu.index()).copied().unwrap_or(false)
    }
    fn head(&self, cpu: CpuId) -> u32 {
        self.head[cpu.index()]
    }
    fn tail(&self, cpu: CpuId) -> u32 {
        self.tail[cpu.index()]
    }
    fn beside(&self, _: CpuId) -> Option<CpuId> {
        self.beside
    }
    fn takes_flows(&self, cpu: CpuId) -> bool {
        self.is_online(cpu) && self.leaves != Some(cpu)
    }
}

type Owned = Steering<Vec<Bucket>, Vec<AtomicU32>>;

fn words(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn buckets(count: usize) -> Vec<Bucket> {
    (0..count).map(|_| Bucket::empty()).collect()
}

fn policy(kind: PolicyKind) -> Owned {
    let identity = !matches!(kind, PolicyKind::Rfs2010 | PolicyKind::RfsClear);
    let sock = || SockTable::new(words(1024), 4, identity).unwrap();
    let flows = || FlowTable::new(buckets(64)).unwrap();
    let tables = match kind {
        PolicyKind::None | PolicyKind::Rps => Tables::None,
        PolicyKind::RfsSplit => Tables::Split(sock(), sock()),
        PolicyKind::FlowAware => {
            Tables::Flows(flows(), flows(), RepeatFilter::new(words(64)).unwrap())
        }
        _ => Tables::Shared(sock()),
    };
    let rules = match kind {
        PolicyKind::Rfs2010 => LinuxRules::first(false),
        PolicyKind::RfsClear => LinuxRules::first(true),
        _ => LinuxRules::of(KernelVersion::NEWEST),
    };
    Steering::new(kind, rules, Aware::default(), tables)
}

fn slots(policy: &Owned, count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(policy.fresh_slot())).collect()
}

const MAP: [CpuId; 2] = [CpuId(2), CpuId(3)];
/// In the map of two the first half of all hashes is CPU 2's, so this one's home is CPU 2.
const HASH: FlowHash = FlowHash(0x1234_5678);

fn packet(class: Class) -> Packet {
    Packet { hash: HASH, class, rule: PortRule::Learn, arrived_on: CpuId(0), refused: false }
}

fn flow(class: Class) -> SocketFlow {
    SocketFlow::new(HASH, class)
}

#[test]
fn without_policy_mask_or_hash_a_packet_stays_where_it_was_taken() {
    let host = Fixed::IDLE;
    for kind in PolicyKind::ALL {
        let policy = policy(kind);
        let storage = slots(&policy, 8);
        let bare = Queue { map: &[], slots: &[] };
        let decision = policy.steer(&bare, &packet(Class::Udp), &host, Epoch(0));
        assert_eq!((decision.cpu, decision.reason), (CpuId(0), Reason::Local), "{kind}");
        let queue = Queue { map: &MAP, slots: &storage };
        let unhashed = Packet { hash: FlowHash::NONE, ..packet(Class::Other) };
        let decision = policy.steer(&queue, &unhashed, &host, Epoch(0));
        assert_eq!((decision.cpu, decision.reason), (CpuId(0), Reason::Local), "{kind}");
    }
}

#[test]
fn the_mask_is_a_packed_list_scaled_by_the_high_bits_and_has_no_second_choice() {
    let policy = policy(PolicyKind::Rps);
    let mut host = Fixed::IDLE;
    let map = [CpuId(0), CpuId(2), CpuId(3)];
    let queue = Queue { map: &map, slots: &[] };
    // Source: spec, table of `scale(h, 3)`.
    for (hash, cpu) in [(1, 0), (0x51cc_c178, 0), (0x8000_0000, 2), (0xffff_ffff, 3)] {
        let packet = Packet { hash: FlowHash(hash), ..packet(Class::Udp) };
        let decision = policy.steer(&queue, &packet, &host, Epoch(0));
        assert_eq!((decision.cpu, decision.reason), (CpuId(cpu), Reason::NoFlow));
    }
    host.online[2] = false;
    let packet = Packet { hash: FlowHash(0x8000_0000), arrived_on: CpuId(1), ..packet(Class::Udp) };
    let decision = policy.steer(&queue, &packet, &host, Epoch(0));
    assert_eq!((decision.cpu, decision.reason), (CpuId(1), Reason::Local));
}

/// One row of the decision table of spec section 3: the answer and the slot after it.
fn rfs(slot: DevFlow, host: &Fixed, next: u16, map: &[CpuId]) -> (Decision, DevFlow) {
    let policy = policy(PolicyKind::Rfs);
    policy.record(&mut flow(Class::Tcp), HASH, CpuId(next), Epoch(0));
    let storage = slots(&policy, 8);
    let view = DevFlows::new(&storage, SlotIndex::Mix);
    view.store(view.slot(HASH), slot);
    let queue = Queue { map, slots: &storage };
    let decision = policy.steer(&queue, &packet(Class::Tcp), host, Epoch(0));
    (decision, view.load(view.slot(HASH)))
}

#[test]
fn rfs_follows_the_reader_when_the_old_cpu_has_passed_the_last_packet() {
    let slot = |cpu: Option<u16>, last_qtail| DevFlow { cpu: cpu.map(CpuId), last_qtail };
    let mut host = Fixed::IDLE;
    host.head = [5, 10, 20, 30];
    host.tail = [5, 12, 22, 32];
    // An empty slot takes the reader's CPU, with the head as position.
    let (decision, after) = rfs(slot(None, 0), &host, 1, &MAP);
    assert_eq!((decision.cpu, decision.reason, decision.moved), (CpuId(1), Reason::Hit, false));
    assert_eq!(after, slot(Some(1), 10));
    // The same CPU: nothing changes.
    let (decision, after) = rfs(slot(Some(1), 12), &host, 1, &MAP);
    assert_eq!((decision.cpu, decision.reason, after), (CpuId(1), Reason::Hit, slot(Some(1), 12)));
    // Not drained: held. Drained: moved.
    let (decision, after) = rfs(slot(Some(2), 21), &host, 1, &MAP);
    assert_eq!((decision.cpu, decision.reason, after), (CpuId(2), Reason::Held, slot(Some(2), 21)));
    let (decision, after) = rfs(slot(Some(2), 20), &host, 1, &MAP);
    assert_eq!((decision.cpu, decision.reason, decision.moved), (CpuId(1), Reason::Hit, true));
    assert_eq!(after, slot(Some(1), 10));
    // The old CPU is offline: moved at once.
    host.online[2] = false;
    let (decision, _) = rfs(slot(Some(2), 21), &host, 1, &MAP);
    assert_eq!((decision.cpu, decision.moved), (CpuId(1), true));
    // The reader's CPU is offline: stays while not drained; then the slot moves and RPS decides.
    let (decision, _) = rfs(slot(Some(3), 31), &host, 2, &MAP[1..]);
    assert_eq!((decision.cpu, decision.reason), (CpuId(3), Reason::Held));
    let (decision, after) = rfs(slot(Some(3), 30), &host, 2, &MAP[1..]);
    assert_eq!((decision.cpu, decision.reason), (CpuId(3), Reason::Miss));
    assert_eq!((decision.probe, after.cpu), (Probe::Offline, Some(CpuId(2))));
    let (decision, _) = rfs(slot(None, 0), &host, 2, &[]);
    assert_eq!((decision.cpu, decision.reason), (CpuId(0), Reason::Local));
}

// Source: spec section 3, "Counter wrap".
#[test]
fn positions_are_compared_by_their_distance() {
    assert!(!has_passed(0xffff_ffff, 1));
    assert!(has_passed(1, 0xffff_ffff));
    assert!(has_passed(7, 7));
    assert!(!has_passed(0x8000_0000, 0));
}

#[test]
fn an_entry_of_another_flow_is_a_miss_with_identity_and_steers_wrongly_without() {
    let other = FlowHash(HASH.0 ^ 0x4000_0000);
    let host = Fixed::IDLE;
    for (kind, cpu, reason) in [
        (PolicyKind::Rfs2010, 1, Reason::Hit),
        (PolicyKind::RfsClear, 1, Reason::Hit),
        (PolicyKind::Rfs, 2, Reason::Miss),
        (PolicyKind::RfsSplit, 2, Reason::Miss),
        (PolicyKind::FlowAware, 2, Reason::Miss),
    ] {
        let policy = policy(kind);
        policy.record(&mut SocketFlow::new(other, Class::Udp), other, CpuId(1), Epoch(0));
        let storage = slots(&policy, 8);
        let queue = Queue { map: &MAP, slots: &storage };
        let decision = policy.steer(&queue, &packet(Class::Udp), &host, Epoch(0));
        assert_eq!((decision.cpu, decision.reason), (CpuId(cpu), reason), "{kind}");
    }
}

#[test]
fn an_unconnected_socket_clears_its_slot_under_rfs_clear_unless_it_is_a_tunnels() {
    let policy = policy(PolicyKind::RfsClear);
    let storage = slots(&policy, 8);
    let queue = Queue { map: &MAP, slots: &storage };
    let steer = || policy.steer(&queue, &packet(Class::Udp), &Fixed::IDLE, Epoch(0)).reason;
    let hear =
        |class| policy.received_unconnected(HASH, class, PortRule::Learn, CpuId(3), Epoch(0));
    policy.record(&mut flow(Class::Tcp), HASH, CpuId(1), Epoch(0));
    assert_eq!(steer(), Reason::Hit);
    assert_eq!(hear(Class::Tunnel), Recorded::NotAFlow);
    assert_eq!(steer(), Reason::Hit);
    assert_eq!(hear(Class::Udp), Recorded::Cleared);
    assert_eq!(steer(), Reason::Miss);
    assert_eq!(hear(Class::Udp), Recorded::Unchanged);
}

#[test]
fn tables_are_shared_split_or_for_tcp_alone() {
    let steer = |kind, tells: Class, asks: Class| {
        let policy = policy(kind);
        let storage = slots(&policy, 8);
        let queue = Queue { map: &MAP, slots: &storage };
        policy.record(&mut flow(tells), HASH, CpuId(1), Epoch(0));
        policy.steer(&queue, &packet(asks), &Fixed::IDLE, Epoch(0)).reason
    };
    use Class::{Tcp, Udp};
    assert_eq!(steer(PolicyKind::Rfs, Tcp, Udp), Reason::Hit);
    assert_eq!(steer(PolicyKind::RfsSplit, Tcp, Udp), Reason::Miss);
    assert_eq!(steer(PolicyKind::RfsSplit, Udp, Udp), Reason::Hit);
    assert_eq!(steer(PolicyKind::RfsTcp, Udp, Udp), Reason::NoFlow);
    assert_eq!(steer(PolicyKind::RfsTcp, Udp, Tcp), Reason::Miss);
    assert_eq!(steer(PolicyKind::RfsTcp, Tcp, Tcp), Reason::Hit);
    assert_eq!(steer(PolicyKind::FlowAware, Tcp, Udp), Reason::Miss);
    assert_eq!(steer(PolicyKind::FlowAware, Udp, Class::Tunnel), Reason::Hit);
}

#[test]
fn close_wipes_blindly_in_linux_and_exactly_in_ours() {
    // Both flows have one place in Linux's table of 1,024 words.
    let (mine, other) = (HASH, FlowHash(HASH.0 ^ 0x4000_0000));
    for kind in [PolicyKind::Rfs, PolicyKind::FlowAware] {
        let policy = policy(kind);
        let storage = slots(&policy, 8);
        let queue = Queue { map: &MAP, slots: &storage };
        let mut a = SocketFlow::new(mine, Class::Udp);
        let mut b = SocketFlow::new(other, Class::Udp);
        policy.record(&mut a, mine, CpuId(1), Epoch(0));
        policy.record(&mut b, other, CpuId(1), Epoch(0));
        policy.close(&mut a);
        let theirs = Packet { hash: other, ..packet(Class::Udp) };
        let decision = policy.steer(&queue, &theirs, &Fixed::IDLE, Epoch(0));
        let expected = if kind == PolicyKind::Rfs { Probe::Empty } else { Probe::Hit };
        assert_eq!(decision.probe, expected, "{kind}");
    }
}

#[test]
fn disconnect_withdraws_nothing_in_linux_and_its_own_flow_in_ours() {
    for (kind, expected) in [(PolicyKind::Rfs, Probe::Hit), (PolicyKind::FlowAware, Probe::Empty)] {
        let policy = policy(kind);
        let storage = slots(&policy, 8);
        let queue = Queue { map: &MAP, slots: &storage };
        let mut socket = flow(Class::Udp);
        policy.record(&mut socket, HASH, CpuId(1), Epoch(0));
        policy.disconnect(&mut socket);
        assert!(socket.hash().is_none());
        // A send after the disconnect has no hash to record, and a close has none to delete.
        assert_eq!(policy.record(&mut socket, FlowHash(0), CpuId(1), Epoch(0)), Recorded::NotAFlow);
        policy.close(&mut socket);
        let decision = policy.steer(&queue, &packet(Class::Udp), &Fixed::IDLE, Epoch(0));
        assert_eq!(decision.probe, expected, "{kind}");
    }
}

#[test]
fn flow_aware_waits_for_the_backlog_and_writes_nothing_while_a_flow_stays() {
    let policy = policy(PolicyKind::FlowAware);
    let storage = slots(&policy, 8);
    let queue = Queue { map: &MAP, slots: &storage };
    let mut host = Fixed::IDLE;
    host.tail[2] = 3; // packets of the flow from before its socket spoke, on its home CPU 2
    let mut socket = flow(Class::Udp);
    policy.record(&mut socket, HASH, CpuId(1), Epoch(0));
    let steer = |host: &mut Fixed| {
        let decision = policy.steer(&queue, &packet(Class::Udp), host, Epoch(0));
        host.tail[decision.cpu.index()] += 1;
        policy.enqueued(&queue, HASH, &decision, host.tail[decision.cpu.index()]);
        (decision.cpu.0, decision.reason, decision.moved)
    };
    assert_eq!(steer(&mut host), (2, Reason::Held, false)); // position 4
    host.tail[2] = 9; // strangers
    host.head[2] = 3;
    assert_eq!(steer(&mut host), (2, Reason::Held, false)); // position 10
    host.head[2] = 9;
    assert_eq!(steer(&mut host), (2, Reason::Held, false)); // position 11
    host.tail[2] = 50;
    host.head[2] = 11;
    assert_eq!(steer(&mut host), (1, Reason::Hit, true));
    assert!(storage.iter().all(|slot| slot.load(Ordering::Relaxed) == OrderTable::FREE));
    for _ in 0..100 {
        assert_eq!(steer(&mut host), (1, Reason::Hit, false));
    }
    assert!(storage.iter().all(|slot| slot.load(Ordering::Relaxed) == OrderTable::FREE));
    // An old position must not be believed in the next move: the reader goes on to CPU 3.
    policy.record(&mut socket, HASH, CpuId(3), Epoch(0));
    let steer = |host: &mut Fixed| {
        let decision = policy.steer(&queue, &packet(Class::Udp), host, Epoch(0));
        host.tail[decision.cpu.index()] += 1;
        policy.enqueued(&queue, HASH, &decision, host.tail[decision.cpu.index()]);
        (decision.cpu.0, decision.reason, decision.moved)
    };
    assert_eq!(steer(&mut host), (1, Reason::Held, false));
    host.head[1] = host.tail[1];
    assert_eq!(steer(&mut host), (3, Reason::Hit, true));
}

#[test]
fn flow_aware_rehomes_the_flows_of_an_offline_cpu_at_the_next_packet_and_brings_them_back() {
    let policy = policy(PolicyKind::FlowAware);
    let storage = slots(&policy, 8);
    let queue = Queue { map: &MAP, slots: &storage };
    let mut host = Fixed::IDLE;
    policy.record(&mut flow(Class::Tcp), HASH, CpuId(1), Epoch(0));
    let steer = |host: &Fixed| {
        let decision = policy.steer(&queue, &packet(Class::Tcp), host, Epoch(0));
        (decision.cpu.0, decision.reason, decision.probe)
    };
    assert_eq!(steer(&host), (1, Reason::Hit, Probe::Hit));
    host.online[1] = false;
    host.tail[1] = 4;
    assert_eq!(steer(&host), (2, Reason::Miss, Probe::Offline));
    // Back online with packets of the flow on CPU 2: they are waited for.
    host.online[1] = true;
    host.tail[2] = 1;
    assert_eq!(steer(&host), (2, Reason::Held, Probe::Hit));
    host.head[2] = 1;
    assert_eq!(steer(&host).0, 1);
}

#[test]
fn flow_aware_waits_for_what_a_cpu_on_its_way_out_still_holds() {
    let policy = policy(PolicyKind::FlowAware);
    let storage = slots(&policy, 8);
    let queue = Queue { map: &MAP, slots: &storage };
    let mut host = Fixed::IDLE;
    policy.record(&mut flow(Class::Tcp), HASH, CpuId(1), Epoch(0));
    let steer = |host: &mut Fixed| {
        let decision = policy.steer(&queue, &packet(Class::Tcp), host, Epoch(0));
        host.tail[decision.cpu.index()] += 1;
        policy.enqueued(&queue, HASH, &decision, host.tail[decision.cpu.index()]);
        (decision.cpu.0, decision.reason)
    };
    assert_eq!(steer(&mut host), (1, Reason::Hit));
    host.leaves = Some(CpuId(1));
    assert_eq!(steer(&mut host), (1, Reason::Held)); // position 2
    host.head[1] = 1;
    assert_eq!(steer(&mut host), (1, Reason::Held)); // position 3
    host.head[1] = 3;
    assert_eq!(steer(&mut host), (2, Reason::Miss)); // by hash
    host.leaves = None;
    host.head[2] = 1;
    assert_eq!(steer(&mut host), (1, Reason::Hit));
}

#[test]
fn flow_aware_never_asks_for_connection_requests_and_ports_of_requests() {
    let policy = policy(PolicyKind::FlowAware);
    let storage = slots(&policy, 8);
    let queue = Queue { map: &MAP, slots: &storage };
    policy.record(&mut flow(Class::Tcp), HASH, CpuId(1), Epoch(0));
    policy.record(&mut flow(Class::Udp), HASH, CpuId(1), Epoch(0));
    let requests = Packet { rule: PortRule::Requests, ..packet(Class::Udp) };
    for packet in [packet(Class::TcpSyn), packet(Class::Other), requests] {
        let decision = policy.steer(&queue, &packet, &Fixed::IDLE, Epoch(0));
        assert_eq!((decision.reason, decision.probe), (Reason::NoFlow, Probe::NotAsked));
        assert_eq!(decision.cpu, CpuId(2));
    }
}

#[test]
fn flow_aware_learns_hashes_that_come_back_and_no_others() {
    let policy = policy(PolicyKind::FlowAware);
    let hear = |hash, rule| {
        policy.received_unconnected(FlowHash(hash), Class::Udp, rule, CpuId(1), Epoch(0)).wrote()
    };
    let learnt = (0..8).map(|_| hear(0xabcd_0000, PortRule::Learn)).collect::<Vec<_>>();
    assert_eq!(learnt, [false, false, false, false, false, false, false, true]);
    assert_eq!([hear(77 << 8, PortRule::Flows), hear(77 << 8, PortRule::Flows)], [false, true]);
    assert!((0..100).all(|_| !hear(0x1111_0000, PortRule::Requests)));
    let mut state = 5u32;
    let written = (0..100_000).filter(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        hear(state | 1, PortRule::Learn)
    });
    assert_eq!(written.count(), 0);
}

#[test]
fn a_socket_holds_one_entry_and_one_that_is_fed_many_hashes_holds_none() {
    let policy = policy(PolicyKind::FlowAware);
    let Tables::Flows(_, udp, _) = policy.tables() else { panic!() };
    let mut socket = SocketFlow::new(FlowHash(1), Class::Udp);
    let told: Vec<_> =
        (1..=100).map(|n| policy.record(&mut socket, FlowHash(n), CpuId(1), Epoch(3))).collect();
    assert!(told[..9].iter().all(|told| told.wrote()));
    assert!(told[9..].iter().all(|told| *told == Recorded::Muted));
    assert_eq!(udp.count(), 0);
    // It is heard again in the next epoch, and a fragment's second hash takes turns.
    policy.record(&mut socket, FlowHash(1000), CpuId(1), Epoch(4));
    policy.record(&mut socket, FlowHash(1001), CpuId(1), Epoch(4));
    assert_eq!(udp.count(), 1);
    assert!(udp.lookup(FlowHash(1001), Epoch(4)).entry().is_some());
}

#[test]
fn overload_sheds_goes_beside_and_spills() {
    let policy = policy(PolicyKind::FlowAware);
    let storage = slots(&policy, 8);
    let queue = Queue { map: &MAP, slots: &storage };
    let refused = Packet { refused: true, ..packet(Class::Udp) };
    let decision = policy.steer(&queue, &refused, &Fixed::IDLE, Epoch(0));
    assert_eq!(decision.reason, Reason::Shed);

    policy.record(&mut flow(Class::Tcp), HASH, CpuId(0), Epoch(0));
    let mut host = Fixed { beside: Some(CpuId(1)), ..Fixed::IDLE };
    let decision = policy.steer(&queue, &packet(Class::Tcp), &host, Epoch(0));
    assert_eq!((decision.cpu, decision.reason), (CpuId(1), Reason::Beside));
    host.tail[1] = 1;
    host.beside = None;
    let decision = policy.steer(&queue, &packet(Class::Tcp), &host, Epoch(0));
    assert_eq!((decision.cpu, decision.reason), (CpuId(1), Reason::Held));

    // Hashes of CPU 2 whose second choice is CPU 3, while CPU 2 is deep in backlog.
    let mut host = Fixed::IDLE;
    let spill = |host: &Fixed| {
        (1..1000u32)
            .map(|n| Packet { hash: FlowHash(n * 0x0010_0001), ..packet(Class::TcpSyn) })
            .map(|packet| policy.steer(&queue, &packet, host, Epoch(0)))
            .filter(|decision| decision.reason == Reason::Spilled)
            .inspect(|decision| assert_eq!(decision.cpu, CpuId(3)))
            .count()
    };
    host.tail[2] = 128;
    assert_eq!(spill(&host), 0);
    host.tail[2] = 129;
    assert!((200..800).contains(&spill(&host)), "{}", spill(&host));
    host.tail[3] = 129;
    assert_eq!(spill(&host), 0);
}

#[test]
fn versions_differ_as_the_history_says() {
    let rules = |text: &str| LinuxRules::of(text.parse().unwrap());
    assert!(!rules("2.6.35").identity && rules("2.6.35").clear_at_close);
    assert!(rules("4.1").identity && !rules("4.1").clear_at_close);
    assert!(!rules("4.9").established_only && rules("4.11").established_only);
    assert!(!rules("6.15").clear_at_close && rules("6.16").clear_at_close);
    assert_eq!(rules("6.17").index, SlotIndex::LowBits);
    assert_eq!(rules("6.18.44-fc").index, SlotIndex::Mix);
    for bad in ["", "6", "x.y", "2.6.34", "2.4.1", "-1.2"] {
        assert!(bad.parse::<KernelVersion>().is_err(), "{bad}");
    }
}

#[test]
fn every_reason_class_and_policy_has_its_own_place_and_name() {
    assert!(Reason::ALL.iter().enumerate().all(|(n, reason)| reason.index() == n));
    assert!(Probe::ALL.iter().enumerate().all(|(n, probe)| probe.index() == n));
    for kind in PolicyKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    assert_eq!("rfs2010".parse::<PolicyKind>(), Err(UnknownPolicy));
}
