//! A few threads on a backlog and on a reader's list, in every order that their operations can have.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p rxsteer-engine --release --test loom`
//!
//! A lost signal shows as a deadlock: the owner sleeps for ever. The queues inside are locked ones
//! here, so what is checked is the protocol around them: places, positions, marks, signals, closing.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Mutex, Notify};
use loom::thread;

use rxsteer_engine::backlog::{Backlog, Refused};
use rxsteer_engine::ready::{Mark, Ready};

/// A backlog, its owner's bell, and how often it rang.
struct Cpu {
    backlog: Backlog<u32>,
    bell: Notify,
    signals: AtomicUsize,
}

impl Cpu {
    fn new(max: u32) -> Arc<Self> {
        Arc::new(Self {
            backlog: Backlog::new(max),
            bell: Notify::new(),
            signals: AtomicUsize::new(0),
        })
    }

    /// Puts a packet in and signals if told to; returns its position.
    fn put(&self, packet: u32) -> Result<u32, Refused<u32>> {
        let enqueued = self.backlog.enqueue(packet)?;
        if enqueued.signal {
            self.signals.fetch_add(1, Ordering::AcqRel);
            self.bell.notify();
        }
        Ok(enqueued.tail)
    }

    /// Sleeps, polls until complete, and so on until `count` packets came; returns them.
    fn serve(&self, count: usize) -> Vec<u32> {
        let mut all = Vec::new();
        while all.len() < count {
            self.bell.wait();
            self.poll(&mut all);
        }
        all
    }

    fn poll(&self, all: &mut Vec<u32>) {
        loop {
            let taken = self.backlog.take(64, all);
            self.backlog.finish(taken as u32);
            if self.backlog.complete() {
                return;
            }
        }
    }
}

/// Explores with at most three preemptions, which is what bugs of this kind need.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(3, model);
}

fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn spawn<T: 'static>(
    cpu: &Arc<Cpu>,
    run: impl FnOnce(&Cpu) -> T + 'static,
) -> thread::JoinHandle<T> {
    let cpu = Arc::clone(cpu);
    thread::spawn(move || run(&cpu))
}

#[test]
fn an_owner_that_sleeps_is_signalled_and_two_producers_keep_their_order() {
    explore_within(2, || {
        let cpu = Cpu::new(8);
        let one = spawn(&cpu, |cpu| (cpu.put(1).unwrap(), cpu.put(2).unwrap()));
        let other = spawn(&cpu, |cpu| cpu.put(11).unwrap());
        let all = cpu.serve(3);
        let place = |packet| all.iter().position(|p| *p == packet).unwrap() as u32;
        let (first, second) = one.join().unwrap();
        let third = other.join().unwrap();
        assert!(place(1) < place(2), "{all:?}");
        // Never early: a position is at least the place of its packet.
        for (packet, tail) in [(1, first), (2, second), (11, third)] {
            assert!(tail > place(packet) && tail <= 3, "{packet} at {tail} in {all:?}");
        }
        assert_eq!((cpu.backlog.head(), cpu.backlog.tail()), (3, 3));
        let signals = cpu.signals.load(Ordering::Acquire);
        assert!((1..=3).contains(&signals), "{signals} signals");
    });
}

#[test]
fn while_the_owner_sleeps_a_batch_of_two_producers_is_one_signal() {
    explore(|| {
        let cpu = Cpu::new(8);
        let one = spawn(&cpu, |cpu| cpu.put(1).unwrap());
        cpu.put(2).unwrap();
        cpu.put(3).unwrap();
        one.join().unwrap();
        assert_eq!(cpu.signals.load(Ordering::Acquire), 1);
        assert_eq!(cpu.serve(3).len(), 3);
        // And after it has completed, one more.
        cpu.put(4).unwrap();
        cpu.put(5).unwrap();
        assert_eq!(cpu.signals.load(Ordering::Acquire), 2);
        assert_eq!(cpu.serve(2), [4, 5]);
    });
}

#[test]
fn nobody_gets_a_place_beyond_the_limit_and_every_packet_is_taken_or_refused() {
    explore(|| {
        let cpu = Cpu::new(0); // room for one
        let one = spawn(&cpu, |cpu| u32::from(cpu.put(1).is_ok()));
        let other = spawn(&cpu, |cpu| u32::from(cpu.put(2).is_ok()));
        let mut all = Vec::new();
        let waiting = cpu.backlog.waiting();
        assert!(waiting <= 1, "{waiting} wait");
        cpu.poll(&mut all);
        let admitted = one.join().unwrap() + other.join().unwrap();
        cpu.poll(&mut all);
        assert_eq!(all.len() as u32, admitted);
        assert_eq!(cpu.backlog.dropped(), u64::from(2 - admitted));
        assert_eq!((cpu.backlog.head(), cpu.backlog.tail()), (admitted, admitted));
    });
}

#[test]
fn a_limit_is_not_hit_by_a_producer_that_looked_away() {
    // One packet at a time is in, each put in after the one before was finished: none is refused.
    explore(|| {
        let cpu = Cpu::new(0);
        let producer = spawn(&cpu, |cpu| cpu.put(1).unwrap());
        assert_eq!(cpu.serve(1), [1]);
        producer.join().unwrap();
        let producer = spawn(&cpu, |cpu| cpu.put(2).unwrap());
        assert_eq!(cpu.serve(1), [2]);
        producer.join().unwrap();
        assert_eq!(cpu.backlog.dropped(), 0);
    });
}

#[test]
fn a_position_that_the_head_has_passed_belongs_to_a_finished_packet() {
    explore(|| {
        let cpu = Cpu::new(8);
        let delivered = Arc::new(AtomicUsize::new(0));
        let other = spawn(&cpu, |cpu| cpu.put(1).unwrap());
        let steering = {
            let (cpu, delivered) = (Arc::clone(&cpu), Arc::clone(&delivered));
            thread::spawn(move || {
                let tail = cpu.put(2).unwrap();
                if cpu.backlog.head() >= tail {
                    let delivered = delivered.load(Ordering::Relaxed);
                    assert_eq!(delivered & 2, 2, "moved while its packet was in work");
                }
            })
        };
        let mut out = Vec::new();
        for _ in 0..2 {
            let taken = cpu.backlog.take(64, &mut out);
            for packet in out.drain(..) {
                delivered.fetch_add(packet as usize, Ordering::Relaxed);
            }
            cpu.backlog.finish(taken as u32);
        }
        other.join().unwrap();
        steering.join().unwrap();
    });
}

#[test]
fn what_has_a_place_when_the_cpu_goes_offline_is_drained_and_the_rest_is_given_back() {
    explore(|| {
        let cpu = Cpu::new(8);
        let one = spawn(&cpu, |cpu| match cpu.put(1) {
            Ok(_) => 1,
            Err(Refused::Closed(1)) => 0,
            Err(other) => panic!("{other:?}"),
        });
        let other = spawn(&cpu, |cpu| u32::from(cpu.put(2).is_ok()));
        let mut out = Vec::new();
        cpu.backlog.close();
        cpu.backlog.drain(&mut out);
        assert_eq!(cpu.backlog.waiting(), 0);
        // Nothing comes in behind the drain.
        let admitted = one.join().unwrap() + other.join().unwrap();
        assert_eq!(out.len() as u32, admitted);
        assert_eq!((cpu.backlog.head(), cpu.backlog.tail()), (admitted, admitted));
        // Open again, it works as before, with a signal that may have come too late for the drain.
        cpu.backlog.open();
        cpu.poll(&mut out);
        cpu.put(3).unwrap();
        cpu.bell.wait();
        cpu.poll(&mut out);
        assert_eq!(out.last(), Some(&3));
    });
}

/// Two producers queue datagrams to a socket while its reader reads: afterwards nothing waits
/// in a socket that is in no list, and no socket is in the list twice.
#[test]
fn a_socket_with_something_to_read_is_in_the_list_once() {
    loom::model(|| {
        let ready = Arc::new(Ready::new());
        let socket = Arc::new((Mark::new(), Mutex::new(0)));
        let queue = |ready: &Ready<()>, socket: &(Mark, Mutex<u32>)| {
            *socket.1.lock().unwrap() += 1;
            ready.note(&socket.0, || ());
        };
        let producers = [0, 1].map(|_| {
            let (ready, socket) = (Arc::clone(&ready), Arc::clone(&socket));
            thread::spawn(move || queue(&ready, &socket))
        });
        let turn = || {
            let Some(()) = ready.take() else { return 0 };
            let read = std::mem::take(&mut *socket.1.lock().unwrap());
            ready.leave(&socket.0, || (), || *socket.1.lock().unwrap() > 0);
            read
        };
        let mut read = turn();
        for producer in producers {
            producer.join().unwrap();
        }
        while !ready.is_empty() {
            read += turn();
        }
        assert_eq!(read, 2);
        queue(&ready, &socket);
        assert!(ready.take().is_some() && ready.take().is_none());
    });
}
