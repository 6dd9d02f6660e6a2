//! Every interleaving of a few threads: `RUSTFLAGS="--cfg loom" cargo test -p rxsteer-sockets --lib
//! --release model_check`. A lost wake-up shows as a deadlock.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::thread;

use super::*;

type Queue = ReceiveQueue<Simulated>;

fn queue(bytes: u32) -> Arc<Queue> {
    Arc::new(ReceiveQueue::new(&Arc::default(), Limits::bytes(bytes)))
}

fn datagram(name: u64) -> Datagram<Simulated> {
    let peer = SocketAddr::from(([192, 0, 2, 1], 1));
    let datagram = Datagram::new(peer, peer.ip(), Simulated::new(1));
    Datagram { timestamp_ns: name, true_size: 10, ..datagram }
}

/// Explores with at most three preemptions, which is what bugs of this kind need.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_reader_that_sleeps_is_woken() {
    explore(|| {
        let queue = queue(1 << 20);
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.push(datagram(1)).unwrap();
                queue.push(datagram(2)).unwrap();
            })
        };
        let read = block_on(async {
            let first = queue.recv().await.unwrap().timestamp_ns;
            (first, queue.recv().await.unwrap().timestamp_ns)
        });
        assert_eq!(read, (1, 2));
        producer.join().unwrap();
        assert_eq!(queue.credit().in_use(), InUse::default());
    });
}

#[test]
fn a_reader_that_gives_up_takes_no_wake_up_along() {
    explore(|| {
        let queue = queue(1 << 20);
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(datagram(7)).unwrap())
        };
        let quitter = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut recv = pin!(queue.recv());
                let mut cx = Context::from_waker(Waker::noop());
                if let Poll::Ready(Ok(datagram)) = recv.as_mut().poll(&mut cx) {
                    queue.push(datagram).unwrap();
                }
            })
        };
        assert_eq!(block_on(queue.recv()).unwrap().timestamp_ns, 7);
        producer.join().unwrap();
        quitter.join().unwrap();
    });
}

#[test]
fn a_burst_for_two_readers_reaches_both() {
    explore(|| {
        let queue = queue(1 << 20);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || block_on(queue.recv()).unwrap().timestamp_ns)
        };
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let burst = queue.push_burst(&mut vec![datagram(1), datagram(2)]);
                assert_eq!(burst.admitted, 2);
            })
        };
        let one = block_on(queue.recv()).unwrap().timestamp_ns;
        assert_eq!(one + other.join().unwrap(), 3);
        producer.join().unwrap();
    });
}

#[test]
fn producers_never_pass_the_limit_and_credit_returns_to_zero() {
    explore(|| {
        let queue = queue(10); // room for one
        let producers: Vec<_> = (0..2)
            .map(|name| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || u64::from(queue.push(datagram(name)).is_ok()))
            })
            .collect();
        let mut read = 0;
        for _ in 0..2 {
            let in_use = queue.credit().in_use();
            assert!(in_use.bytes <= 10 && in_use.packets <= 1, "{in_use:?}");
            read += u64::from(queue.try_recv().is_ok());
        }
        let admitted: u64 = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
        while queue.try_recv().is_ok() {
            read += 1;
        }
        assert_eq!(read, admitted);
        assert_eq!(queue.credit().drops(), 2 - admitted);
        assert_eq!(queue.credit().in_use(), InUse::default());
    });
}

#[test]
fn closing_races_with_a_push_and_a_sleeper() {
    explore(|| {
        let queue = queue(1 << 20);
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match queue.push(datagram(1)) {
                Ok(()) => 1,
                Err(PushError::Closed(_)) => 0,
                Err(other) => panic!("{other:?}"),
            })
        };
        let closer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.close())
        };
        let mut read = 0;
        while block_on(queue.recv()).is_ok() {
            read += 1;
        }
        assert_eq!(read, producer.join().unwrap());
        closer.join().unwrap();
    });
}
