//! Interleavings of small histories, under Loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p rxsteer-sockets --lib table`.

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

/// Explores interleavings with at most two preemptions of a thread that could go on, for at most
/// half a minute.
fn explore(history: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_duration = Some(std::time::Duration::from_secs(30));
    builder.check(history);
}

/// Takes out the socket of flow 1 and files that of flow 2 in the same record, while a reader looks
/// for one of them.
fn reuse(flow: u16, own: u32) {
    explore(move || {
        let (four, hash, mut records) = table();
        let first = four.insert(&mut records, &filed(1, 10), hash);
        let reader = {
            let four = Arc::clone(&four);
            thread::spawn(move || lookup(&four, hash, flow))
        };
        four.remove(&mut records, first, hash);
        let second = four.insert(&mut records, &filed(2, 20), hash);
        assert_eq!(first, second, "the record is used again");
        let found = reader.join().unwrap();
        assert!(found.is_none_or(|found| found == own), "{found:?}");
    });
}

#[test]
fn a_reader_of_a_record_that_is_taken_out_gets_no_socket_of_its_next_connection() {
    reuse(1, 10);
}

#[test]
fn a_reader_of_a_record_that_is_filed_anew_gets_no_socket_of_its_last_connection() {
    reuse(2, 20);
}

#[test]
fn while_a_twin_leaves_the_other_is_found() {
    explore(|| {
        let (four, hash, mut records) = table();
        four.insert(&mut records, &filed(1, 10), hash);
        let late = four.insert(&mut records, &filed(1, 20), hash);
        let reader = {
            let four = Arc::clone(&four);
            thread::spawn(move || lookup(&four, hash, 1))
        };
        four.remove(&mut records, late, hash);
        let found = reader.join().unwrap();
        assert!(matches!(found, Some(10 | 20)), "{found:?}");
    });
}
