use super::*;
use crate::consumer::Scenario;

const DATA: Heard = Heard { tcp_flags: ACK, data: true, tunnelled: false };
const BARE: Heard = Heard { tcp_flags: ACK, data: false, tunnelled: false };
const NEW: (u32, u32) = (u32::MAX, 0);

fn flags(tcp_flags: u8) -> Heard {
    Heard { tcp_flags, data: false, tunnelled: false }
}

fn sockets(rules: &str, workers: u32, limit: usize) -> Sockets {
    let host = Host::simple(4, 1).unwrap();
    let rules = Scenario::from_toml("t", rules, &host).unwrap().consumers;
    Sockets::new(&host, rules, workers, limit, 0)
}

fn tuple(tcp: bool, local_port: u16, peer: u8, remote_port: u16) -> Tuple {
    let mut remote = [0; 16];
    remote[0] = peer;
    Tuple { local: [9; 16], remote, local_port, remote_port, kind: AddrKind::V4, tcp }
}

#[test]
fn a_syn_alone_is_no_connection_and_the_packet_after_it_is() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    let flow = tuple(true, 80, 1, 40_000);
    assert_eq!(all.received(&flow, flags(SYN), NEW, &mut notes), None);
    assert_eq!(all.sent(&flow, flags(SYN | ACK), NEW, &mut notes), None);
    assert!(notes.is_empty());
    let found = all.received(&flow, BARE, NEW, &mut notes).unwrap();
    assert!(found.connected && !found.closes);
    assert!(matches!(
        notes[..],
        [Note::Open(Opened { tcp: true, tcp_table: true, connected: true, .. })]
    ));
    assert_eq!((all.counts.syns, all.counts.syns_followed), (1, 1));
}

#[test]
fn a_flood_of_syns_answered_with_cookies_opens_nothing() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    for n in 0..200_000u32 {
        let mut flow = tuple(true, 80, 1, n as u16);
        flow.remote[1..3].copy_from_slice(&((n >> 8) as u16).to_be_bytes());
        all.received(&flow, flags(SYN), NEW, &mut notes);
        all.sent(&flow, flags(SYN | ACK), NEW, &mut notes);
    }
    assert!(notes.is_empty());
    assert_eq!((all.counts.tcp, all.counts.syns), (0, 200_000));
}

#[test]
fn a_connection_seen_in_the_middle_needs_both_ways() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    let other = tuple(true, 80, 2, 1);
    all.sent(&other, DATA, NEW, &mut notes); // the capture has sent packets
    let flow = tuple(true, 80, 1, 40_000);
    assert_eq!(all.received(&flow, DATA, NEW, &mut notes), None);
    assert_eq!(all.received(&flow, DATA, NEW, &mut notes), None);
    assert!(all.sent(&flow, BARE, NEW, &mut notes).is_some());
    assert!(all.received(&flow, DATA, NEW, &mut notes).is_some());
    assert_eq!(all.counts.tcp, 1);
}

#[test]
fn in_a_capture_of_one_way_the_second_data_makes_the_connection_and_a_fin_ends_it() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    let flow = tuple(true, 80, 1, 40_000);
    assert_eq!(all.received(&flow, DATA, NEW, &mut notes), None);
    assert!(all.received(&flow, DATA, NEW, &mut notes).is_some());
    assert!(all.received(&flow, flags(FIN | ACK), NEW, &mut notes).unwrap().closes);
}

#[test]
fn fin_both_ways_or_rst_closes_and_the_place_is_used_again() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    let open = |all: &mut Sockets, notes: &mut Vec<Note>, port| {
        let flow = tuple(true, 80, 1, port);
        all.received(&flow, flags(SYN), NEW, notes);
        all.sent(&flow, flags(SYN | ACK), NEW, notes);
        (flow, all.received(&flow, DATA, NEW, notes).unwrap())
    };
    let (flow, first) = open(&mut all, &mut notes, 1);
    assert!(!all.received(&flow, flags(FIN | ACK), NEW, &mut notes).unwrap().closes);
    assert!(all.sent(&flow, flags(FIN | ACK), NEW, &mut notes).unwrap().closes);
    all.close(first.socket, &mut notes);
    assert_eq!(all.received(&flow, BARE, (first.socket, first.socket_use), &mut notes), None);

    let (flow, second) = open(&mut all, &mut notes, 2);
    assert_eq!(second.socket, first.socket);
    assert_ne!(second.socket_use, first.socket_use);
    assert!(all.received(&flow, flags(RST), NEW, &mut notes).unwrap().closes);
}

#[test]
fn a_udp_client_is_connected_and_a_server_is_not() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    // The local side asks: connected once the answer is there.
    let client = tuple(false, 50_000, 1, 53);
    assert!(!all.sent(&client, DATA, NEW, &mut notes).unwrap().connected);
    assert!(all.received(&client, DATA, NEW, &mut notes).unwrap().connected);
    // A server with one client so far: the lower port is the server's.
    let server = tuple(false, 53, 1, 50_000);
    all.received(&server, DATA, NEW, &mut notes);
    all.sent(&server, DATA, NEW, &mut notes);
    assert!(!all.received(&server, DATA, NEW, &mut notes).unwrap().connected);
    assert_eq!((all.counts.udp_connected, all.counts.udp_unconnected), (1, 1));
}

#[test]
fn a_second_peer_disconnects_a_udp_socket() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    let first = tuple(false, 50_000, 1, 53);
    all.sent(&first, DATA, NEW, &mut notes);
    let found = all.received(&first, DATA, NEW, &mut notes).unwrap();
    notes.clear();
    let second = tuple(false, 50_000, 2, 53);
    let other = all.received(&second, DATA, NEW, &mut notes).unwrap();
    assert_eq!((other.socket, other.connected), (found.socket, false));
    assert_eq!(notes, [Note::Disconnect { socket: found.socket }]);
    notes.clear();
    let hint = (found.socket, found.socket_use);
    assert!(!all.received(&first, DATA, hint, &mut notes).unwrap().connected);
    assert!(notes.is_empty());
}

#[test]
fn readers_are_spread_in_turn_and_groups_by_hash() {
    let mut all = sockets("", 1, 100);
    let mut notes = Vec::new();
    for port in 1..=6 {
        all.received(&tuple(false, port, 1, 9), DATA, NEW, &mut notes);
    }
    let cpus = |notes: &[Note]| -> Vec<u16> {
        notes
            .iter()
            .filter_map(|n| match n {
                Note::Open(opened) => Some(opened.cpu.0),
                _ => None,
            })
            .collect()
    };
    assert_eq!(cpus(&notes), [1, 2, 3, 0, 1, 2], "CPU 0 takes the interrupts");

    let mut all = sockets("", 4, 100);
    let mut notes = Vec::new();
    for peer in 0..200 {
        all.received(&tuple(false, 53, peer, 999), DATA, NEW, &mut notes);
    }
    let mut groups = cpus(&notes);
    groups.sort_unstable();
    assert_eq!(groups, [0, 1, 2, 3], "one socket for each member, each on its CPU");
}

#[test]
fn a_declared_port_carries_flows_unless_its_socket_has_a_peer_or_a_rule_says_requests() {
    let rules = "[[consumer]]\nlocal = \":53\"\nconnected = false\nport = \"requests\"\n\
                 [[consumer]]\nlocal = \":444\"\nconnected = true\n";
    let all = sockets(rules, 1, 100);
    let mut all = all.with_flow_ports("53,443-444".parse().unwrap());
    let mut notes = Vec::new();
    let mut rule =
        |port| all.received(&tuple(false, port, 1, 9), DATA, NEW, &mut notes).unwrap().port_rule;
    let expected = [PortRule::Requests, PortRule::Flows, PortRule::Learn, PortRule::Learn];
    assert_eq!([53, 443, 444, 445].map(&mut rule), expected);
}

#[test]
fn a_rule_says_connected_cpus_and_work_and_a_migration_moves_its_threads() {
    let rule = "[[consumer]]\nprotocol = \"udp\"\nlocal = \":443\"\nconnected = true\n\
                cpus = \"1,3\"\nwork_ns = 7\nport = \"flows\"\n";
    let mut all = sockets(rule, 1, 100);
    let mut notes = Vec::new();
    for peer in 1..=3 {
        let found = all.received(&tuple(false, 443, peer, 9), DATA, NEW, &mut notes).unwrap();
        assert_eq!((found.connected, found.port_rule), (true, PortRule::Flows));
    }
    let opened: Vec<(u16, u32)> = notes
        .iter()
        .filter_map(|n| match n {
            Note::Open(opened) => Some((opened.cpu.0, opened.work_ns)),
            _ => None,
        })
        .collect();
    assert_eq!(opened, [(1, 7), (3, 7), (1, 7)]);
    notes.clear();
    all.migrate(0, &[CpuId(2)], &mut notes);
    assert_eq!(notes.len(), 3);
    assert!(notes.iter().all(|n| matches!(n, Note::Place { cpu: CpuId(2), .. })));
    assert_eq!(all.counts.by_rule, 3);
}

#[test]
fn at_the_limit_the_socket_idle_longest_makes_room() {
    let mut all = sockets("", 1, 3);
    let mut notes = Vec::new();
    let hear = |all: &mut Sockets, port, notes: &mut Vec<Note>| {
        all.received(&tuple(false, port, 1, 9), DATA, NEW, notes).unwrap().socket
    };
    for port in 1..=3 {
        hear(&mut all, port, &mut notes);
    }
    hear(&mut all, 4, &mut notes); // takes the place of port 1
    hear(&mut all, 2, &mut notes); // marks port 2
    notes.clear();
    hear(&mut all, 5, &mut notes); // so port 3 has to go
    assert!(matches!(notes[0], Note::Close { socket: 2 }), "{notes:?}");
    assert_eq!((all.counts.evicted, all.counts.open, all.counts.closed), (2, 3, 0));
    assert_eq!(all.index.len(), 3);
}
