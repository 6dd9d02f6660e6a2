use rxsteer_core::steer::Class;

use super::*;
use crate::replay::frame::Ident;

fn frame(src: u8, dst: u8, ports: (u16, u16)) -> Frame {
    let address = |d| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[192, 0, 2, d]);
        bytes
    };
    let outer = Endpoints {
        src: address(src),
        dst: address(dst),
        src_port: ports.0,
        dst_port: ports.1,
        protocol: 17,
        addr_kind: AddrKind::V4,
        zero: [0; 2],
    };
    Frame {
        ts_ns: 0,
        number: 1,
        len: 64,
        direction: Direction::Unknown,
        queue: None,
        key: Default::default(),
        has_key: true,
        is_random: false,
        outer,
        ident: Ident::default(),
        class: Class::Udp,
        tcp_flags: 0,
        payload_len: 0,
        data: true,
        has_socket: true,
        fragment: Default::default(),
        fragment_id: 0,
        is_fragment: false,
        label: 0,
        label_hides_ports: false,
        opaque: false,
        error: None,
    }
}

fn addresses(local: &Local) -> Vec<String> {
    local.report().addresses
}

#[test]
fn the_address_in_most_packets_is_local() {
    let mut first = Vec::new();
    for client in 10..60 {
        first.push(frame(client, 1, (40_000, 443)));
        first.push(frame(1, client, (443, 40_000)));
    }
    let local = Local::decide(&LocalRule::Infer, &first);
    assert_eq!(addresses(&local), ["192.0.2.1"]);
    assert_eq!(local.way(&first[0]), Way::Received);
    assert_eq!(local.way(&first[1]), Way::Sent);
    assert_eq!(local.way(&frame(8, 9, (1, 2))), Way::NotLocal);
    assert_eq!(local.way(&frame(1, 1, (1, 2))), Way::LocalToLocal);
}

#[test]
fn of_two_ends_the_one_that_receives_more_is_local_then_the_one_with_lower_ports() {
    let one_way = [frame(1, 2, (7, 9)), frame(1, 2, (7, 9))];
    assert_eq!(addresses(&Local::decide(&LocalRule::Infer, &one_way)), ["192.0.2.2"]);
    let both = [frame(1, 2, (53, 50_000)), frame(2, 1, (50_000, 53))];
    assert_eq!(addresses(&Local::decide(&LocalRule::Infer, &both)), ["192.0.2.1"]);
}

#[test]
fn where_no_address_stands_out_every_packet_is_received() {
    let mut first = Vec::new();
    for n in 0..100 {
        first.push(frame(n, 200 - n, (1, 2)));
    }
    let local = Local::decide(&LocalRule::Infer, &first);
    assert!(local.nobody());
    assert!(first.iter().all(|f| local.way(f) == Way::Received));
    assert_eq!(local.report().how, "all");
}

#[test]
fn several_local_addresses_are_found() {
    let mut first = Vec::new();
    for client in 50..90 {
        first.push(frame(client, 1, (9, 443)));
        first.push(frame(client, 2, (9, 443)));
    }
    let local = Local::decide(&LocalRule::Infer, &first);
    assert_eq!(addresses(&local), ["192.0.2.1", "192.0.2.2"]);
}

#[test]
fn what_the_capture_says_of_directions_goes_before_inference() {
    let mut packet = frame(1, 2, (1, 2));
    packet.direction = Direction::Outbound;
    let local = Local::decide(&LocalRule::Infer, &[packet]);
    assert_eq!(local.way(&packet), Way::Sent);
    assert_eq!(local.report().how, "directions");
    let given = LocalRule::Prefixes(vec!["192.0.2.2".parse().unwrap()]);
    assert_eq!(Local::decide(&given, &[packet]).way(&packet), Way::Received);
}

#[test]
fn multicast_from_others_is_received() {
    let mut group = frame(9, 9, (1, 2));
    group.outer.dst[..4].copy_from_slice(&[224, 0, 0, 251]);
    let local = Local::decide(&LocalRule::Infer, &[frame(7, 1, (1, 2)), frame(8, 1, (1, 2))]);
    assert_eq!(local.way(&group), Way::Received);
}
