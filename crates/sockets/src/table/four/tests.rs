use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn filed(flow: u16, order: u64, device: u32) -> FiledSocket {
    FiledSocket {
        tuple: Tuple {
            local: 0xffff_c000_0201,
            remote: 0xffff_c633_6401,
            local_port: 53,
            remote_port: flow,
        },
        order,
        socket: SocketId { index: order as u32, generation: 7 },
        device,
        flags: 0,
    }
}

/// Few buckets and a hash without quality: buckets overflow and halves of hashes coincide.
fn table() -> (Four, TupleHash, Records) {
    (Four::new(1), TupleHash::new((1, 2)), Records::default())
}

proptest! {
    #[test]
    fn the_table_is_a_map_from_4_tuple_to_sockets_by_order(
        ops in vec((any::<bool>(), 0..40_u16, 0..3_u32), 1..400),
    ) {
        let (four, hash, mut records) = table();
        // By flow: what was filed, the highest order first.
        let mut map = BTreeMap::<u16, Vec<(FiledSocket, u32)>>::new();
        for (order, (insert, flow, device)) in ops.into_iter().enumerate() {
            let sockets = map.entry(flow).or_default();
            if insert || sockets.is_empty() {
                // Now and then one that was filed long ago comes back to its place.
                let order = if order % 5 == 0 { order as u64 / 2 } else { order as u64 };
                let new = filed(flow, order * 2 + u64::from(device == 1), device);
                if sockets.iter().any(|(old, _)| old.order == new.order) {
                    continue;
                }
                let record = four.insert(&mut records, &new, hash);
                let at = sockets.partition_point(|(old, _)| old.order > new.order);
                sockets.insert(at, (new, record));
            } else {
                let (_, record) = sockets.remove(order % sockets.len());
                four.remove(&mut records, record, hash);
            }
            for (flow, sockets) in &map {
                let tuple = filed(*flow, 0, 0).tuple;
                for device in 1..3 {
                    let mut seen = Vec::new();
                    four.each(hash.of(&tuple), &tuple, DeviceId(device), |hit| {
                        seen.push(hit.socket.index);
                        true
                    });
                    let fit = |d: u32| d == 0 || d == device;
                    let fitting = sockets.iter().filter(|(socket, _)| fit(socket.device));
                    let expected: Vec<_> = fitting.map(|(socket, _)| socket.socket.index).collect();
                    prop_assert_eq!(seen, expected);
                }
            }
            let total: usize = map.values().map(Vec::len).sum();
            prop_assert_eq!(four.may_hold(0xffff_c000_0201, 53), total != 0);
        }
    }
}

#[test]
fn thousands_are_found_and_overflow_counts_go_back_to_nothing() {
    let (four, hash, mut records) = table();
    let all: Vec<_> = (0..5000)
        .map(|flow| {
            let socket = filed(flow, u64::from(flow), 0);
            (socket, four.insert(&mut records, &socket, hash))
        })
        .collect();
    let passed: u64 =
        four.buckets().iter().map(|bucket| bucket.overflow.load(Ordering::Relaxed)).sum();
    assert!(passed < 500, "{passed} of 5000 passed a full bucket by");
    for (socket, _) in &all {
        let hit = four.lookup(hash.of(&socket.tuple), &socket.tuple, DeviceId(1));
        assert_eq!(hit.map(|hit| hit.socket), Some(socket.socket));
    }
    for (_, record) in &all {
        four.remove(&mut records, *record, hash);
    }
    for bucket in four.buckets() {
        assert_eq!(bucket.overflow.load(Ordering::Relaxed), 0);
        assert!(bucket.words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
    assert!(!four.may_hold(0xffff_c000_0201, 53));
}
