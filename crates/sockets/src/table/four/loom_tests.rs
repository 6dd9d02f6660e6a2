//! All interleavings of small histories, under Loom.

use loom::sync::Arc;
use loom::thread;

use super::*;

fn filed(flow: u16, order: u64) -> FiledSocket {
    FiledSocket {
        tuple: Tuple { local: 1, remote: 2, local_port: 53, remote_port: flow },
        order,
        socket: SocketId { index: order as u32, generation: 0 },
        device: 0,
        flags: 0,
    }
}

fn table() -> (Arc<Four>, TupleHash, Records) {
    (Arc::new(Four::new(1)), TupleHash::new((1, 2)), Records::default())
}

fn lookup(four: &Four, hash: TupleHash, flow: u16) -> Option<u32> {
    let tuple = filed(flow, 0).tuple;
    four.lookup(hash.of(&tuple), &tuple, DeviceId(1)).map(|hit| hit.socket.index)
}

#[test]
fn a_record_that_is_reused_gives_no_socket_of_another_connection() {
    loom::model(|| {
        let (four, hash, mut records) = table();
        let first = four.insert(&mut records, &filed(1, 10), hash);
        let reader = {
            let four = Arc::clone(&four);
            thread::spawn(move || (lookup(&four, hash, 1), lookup(&four, hash, 2)))
        };
        four.remove(&mut records, &filed(1, 10), first, hash);
        let second = four.insert(&mut records, &filed(2, 20), hash);
        assert_eq!(first, second, "the record is used again");
        let (one, two) = reader.join().unwrap();
        assert!(matches!(one, None | Some(10)), "{one:?}");
        assert!(matches!(two, None | Some(20)), "{two:?}");
    });
}

#[test]
fn while_a_twin_leaves_the_other_is_found() {
    loom::model(|| {
        let (four, hash, mut records) = table();
        four.insert(&mut records, &filed(1, 10), hash);
        let late = four.insert(&mut records, &filed(1, 20), hash);
        let reader = {
            let four = Arc::clone(&four);
            thread::spawn(move || lookup(&four, hash, 1))
        };
        four.remove(&mut records, &filed(1, 20), late, hash);
        let found = reader.join().unwrap();
        assert!(matches!(found, Some(10 | 20)), "{found:?}");
    });
}
