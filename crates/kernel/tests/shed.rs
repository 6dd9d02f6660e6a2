//! Sockets without room: what they would drop is dropped in XDP, before any work. Needs root; without
//! it each test says so and ends.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Rig, WAIT, assert_sums, connected, receiver, rig, sender, settled, sharing, until};
use rxsteer_core::steer::{Class, Reason};
use rxsteer_kernel::Counters;
use rxsteer_testbed::{Pair, pin_thread, snmp_now};

fn drain(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).unwrap();
    let mut count = 0;
    while socket.recv(&mut [0; 64]).is_ok() {
        count += 1;
    }
    socket.set_nonblocking(false).unwrap();
    count
}

fn shed(rig: &Rig) -> u64 {
    settled(rig).packets[Class::Udp.index()][Reason::Shed.index()]
}

/// A socket that nobody reads is flooded while another one is served; then it is read again.
fn flood(rig: &Rig, full: &UdpSocket, to_full: &UdpSocket, sheds: bool) {
    const MANY: u64 = 10_000;
    let (other, to_other) = {
        let other = receiver(&rig.pair, Ipv4Addr::UNSPECIFIED.into());
        let port = other.local_addr().unwrap().port();
        let to = SocketAddr::new(Pair::SINK_V4.into(), port);
        let to_other = sender(&rig.pair, Pair::SOURCE_V4.into(), to);
        (other, to_other)
    };
    let counted = rig.pair.sink.run(snmp_now).unwrap().unwrap();
    let before = settled(rig);
    let mut bytes = [0; 8];
    let mut sent = 0u64;
    let end = Instant::now() + WAIT;
    loop {
        for _ in 0..100 {
            to_full.send(&[0; 20]).unwrap();
        }
        sent += 100;
        // Bursts, and not a queue that is full all the time: losses are the socket's.
        let now = settled(rig);
        to_other.send(&sent.to_be_bytes()).unwrap();
        other.recv(&mut bytes).unwrap();
        assert_eq!(u64::from_be_bytes(bytes), sent, "another socket loses nothing");
        let early = now.reason(Reason::Shed) - before.reason(Reason::Shed);
        if early >= MANY || !sheds && sent >= 2 * MANY {
            break;
        }
        assert!(Instant::now() < end, "{early} of {sent} shed");
    }
    let after = settled(rig);
    assert_sums(&after);
    let counted = rig.pair.sink.run(snmp_now).unwrap().unwrap().since(&counted);
    let at_socket = counted.get("Udp.RcvbufErrors") + counted.get("Udp6.RcvbufErrors");
    let lost: u64 = after.cpus.iter().map(|(_, cpu)| cpu.lost()).sum();
    let early = after.reason(Reason::Shed) - before.reason(Reason::Shed);
    let delivered = drain(full);
    assert_eq!(sent, delivered + at_socket + lost + early, "{after:?}");
    if !sheds {
        assert_eq!(early, 0, "{after:?}");
    }
    // A reader is there again: so is the room.
    let end = Instant::now() + WAIT;
    full.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    loop {
        to_full.send(&[1; 20]).unwrap();
        if full.recv(&mut bytes).is_ok() {
            break;
        }
        assert!(Instant::now() < end, "packets are let in again");
    }
    full.set_read_timeout(Some(WAIT)).unwrap();
    let before = shed(rig);
    for _ in 0..300 {
        to_full.send(&[2; 20]).unwrap();
        full.recv(&mut bytes).unwrap();
    }
    assert_eq!(shed(rig), before, "whoever reads gets all");
}

fn unconnected(rig: &Rig, to: Ipv4Addr) -> (UdpSocket, UdpSocket) {
    let full = receiver(&rig.pair, to.into());
    let port = full.local_addr().unwrap().port();
    let to = SocketAddr::new(Pair::SINK_V4.into(), port);
    let to_full = sender(&rig.pair, Pair::SOURCE_V4.into(), to);
    (full, to_full)
}

#[test]
fn a_port_without_room_is_shed_for_alone_and_served_again_when_it_is_read() {
    let test = "a_port_without_room_is_shed_for_alone_and_served_again_when_it_is_read";
    let Some(rig) = rig(test, 1, |_| {}) else { return };
    for to in [Ipv4Addr::UNSPECIFIED, Pair::SINK_V4] {
        let (full, to_full) = unconnected(&rig, to);
        flood(&rig, &full, &to_full, true);
    }
}

#[test]
fn a_connected_socket_without_room_is_shed_for_alone() {
    let Some(rig) = rig("a_connected_socket_without_room_is_shed_for_alone", 1, |_| {}) else {
        return;
    };
    for v6 in [false, true] {
        let (full, to_full) = connected(&rig.pair, v6);
        // It must be known as a flow, or its packets would be those of the port.
        to_full.send(b"known").unwrap();
        full.recv(&mut [0; 8]).unwrap();
        flood(&rig, &full, &to_full, true);
    }
}

#[test]
fn nothing_is_shed_when_that_is_off() {
    let Some(rig) = rig("nothing_is_shed_when_that_is_off", 1, |s| s.shed = false) else { return };
    let (full, to_full) = unconnected(&rig, Pair::SINK_V4);
    flood(&rig, &full, &to_full, false);
}

#[test]
fn a_full_socket_of_a_group_takes_nothing_from_the_others() {
    let test = "a_full_socket_of_a_group_takes_nothing_from_the_others";
    let Some(rig) = rig(test, 1, |_| {}) else { return };
    let one = sharing(&rig.pair, SocketAddr::new(Pair::SINK_V4.into(), 0));
    let two = sharing(&rig.pair, one.local_addr().unwrap());
    let from = || sender(&rig.pair, Pair::SOURCE_V4.into(), one.local_addr().unwrap());
    // Which of the two gets a sender's packets is decided by hash.
    let (mut to_one, mut to_two) = (None, None);
    for source in std::iter::repeat_with(from).take(64) {
        source.send(b"who").unwrap();
        let counts = until(|| [drain(&one), drain(&two)], |counts| counts.iter().sum::<u64>() == 1);
        if counts[0] == 1 {
            to_one = Some(source)
        } else {
            to_two = Some(source)
        }
        if to_one.is_some() && to_two.is_some() {
            break;
        }
    }
    let (to_one, to_two) = (to_one.unwrap(), to_two.unwrap());
    for _ in 0..2000 {
        to_one.send(&[0; 20]).unwrap();
    }
    settled(&rig);
    for number in 0..200u64 {
        to_two.send(&number.to_be_bytes()).unwrap();
        let mut bytes = [0; 8];
        two.recv(&mut bytes).unwrap();
        assert_eq!(u64::from_be_bytes(bytes), number);
    }
    assert_eq!(shed(&rig), 0);
}

/// What became of the packets of a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    read: u64,
    shed: u64,
    at_socket: u64,
}

/// Sends what `send` says to a socket that is not connected, and whose reader takes `work` for each
/// packet. It reads until `send` returns, and then what is left.
fn round(rig: &Rig, work: Duration, send: impl FnOnce(&UdpSocket) -> u64 + Send) -> Round {
    let (socket, source) = unconnected(rig, Pair::SINK_V4);
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let counted = rig.pair.sink.run(snmp_now).unwrap().unwrap();
    let before = settled(rig);
    let is_over = AtomicBool::new(false);
    let (sent, mut read) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let _ = pin_thread(*rig.cpus.last().unwrap());
            let mut count = 0;
            while !is_over.load(Ordering::Acquire) {
                if socket.recv(&mut [0; 64]).is_ok() {
                    count += 1;
                    let end = Instant::now() + work;
                    while Instant::now() < end {
                        std::hint::spin_loop();
                    }
                }
            }
            count
        });
        let _ = pin_thread(rig.cpus[0]);
        let sent = send(&source);
        is_over.store(true, Ordering::Release);
        (sent, reader.join().unwrap())
    });
    let after = settled(rig);
    assert_sums(&after);
    read += drain(&socket);
    let counted = rig.pair.sink.run(snmp_now).unwrap().unwrap().since(&counted);
    let at_socket = counted.get("Udp.RcvbufErrors");
    let lost = |counters: &Counters| counters.cpus.iter().map(|(_, cpu)| cpu.lost()).sum::<u64>();
    let lost = lost(&after) - lost(&before);
    let shed = after.reason(Reason::Shed) - before.reason(Reason::Shed);
    assert_eq!(sent, read + at_socket + lost + shed, "{after:?}");
    Round { read, shed, at_socket }
}

/// Rounds with shedding and without, by turns; says what was seen.
fn by_turns(test: &str, one: impl Fn(&Rig) -> Round) -> Option<[Vec<Round>; 2]> {
    let on = rig(test, 2, |_| {})?;
    let off = rig(test, 2, |settings| settings.shed = false)?;
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..5 {
        for (rig, rounds) in [&on, &off].into_iter().zip(&mut rounds) {
            rounds.push(one(rig));
        }
    }
    for (name, rounds) in ["on", "off"].into_iter().zip(&rounds) {
        eprintln!("{name}: {rounds:?}");
    }
    Some(rounds)
}

/// The reader must have read `percent` of what it reads without shedding; said of medians, and only if
/// the rounds without shedding agree: on a machine that is busy otherwise they tell of that alone.
fn assert_reads(test: &str, percent: u64, [on, off]: [&[Round]; 2]) {
    let sorted = |rounds: &[Round]| {
        let mut counts: Vec<u64> = rounds.iter().map(|round| round.read).collect();
        counts.sort_unstable();
        counts
    };
    let (with, without) = (sorted(on), sorted(off));
    let (least, most) = (without[0], without[without.len() - 1]);
    if (most - least) * 100 > most * (100 - percent) {
        eprintln!("{test}: this machine is too busy to compare what was read: {without:?}");
        return;
    }
    let [with, without] = [with, without].map(|counts| counts[counts.len() / 2]);
    assert!(with * 100 >= without * percent, "{with} read with shedding, {without} without");
}

/// Bursts a little larger than the buffer, and a reader that is done long before the next one.
#[test]
fn a_reader_that_catches_up_with_bursts_loses_nothing_by_shedding() {
    let test = "a_reader_that_catches_up_with_bursts_loses_nothing_by_shedding";
    let rounds = by_turns(test, |rig| {
        round(rig, Duration::from_micros(220), |source| {
            for burst in 0..8 {
                if burst > 0 {
                    std::thread::sleep(Duration::from_millis(150));
                }
                for _ in 0..250 {
                    source.send(&[0; 40]).unwrap();
                }
            }
            std::thread::sleep(Duration::from_millis(150));
            8 * 250
        })
    });
    let Some([on, off]) = rounds else { return };
    assert!(on.iter().any(|round| round.at_socket > 0), "the bursts do not fit: {on:?}");
    assert!(on.iter().all(|round| round.shed == 0), "{on:?}");
    assert_reads(test, 95, [&on, &off]);
}

/// Bursts of four buffers, so close that the reader is behind nearly all of the time.
#[test]
fn a_reader_that_bursts_overwhelm_reads_as_much_with_shedding() {
    let test = "a_reader_that_bursts_overwhelm_reads_as_much_with_shedding";
    let rounds = by_turns(test, |rig| {
        round(rig, Duration::from_micros(220), |source| {
            // For a time and not a number: bursts that are shed take the source less of it.
            let end = Instant::now() + Duration::from_millis(1500);
            let mut sent = 0;
            while Instant::now() < end {
                for _ in 0..800 {
                    source.send(&[0; 40]).unwrap();
                }
                sent += 800;
                std::thread::sleep(Duration::from_millis(20));
            }
            sent
        })
    });
    let Some([on, off]) = rounds else { return };
    assert_reads(test, 90, [&on, &off]);
}

/// More than a reader can take, all the time.
#[test]
fn an_overloaded_reader_is_shed_for_and_reads_as_much() {
    let test = "an_overloaded_reader_is_shed_for_and_reads_as_much";
    let rounds = by_turns(test, |rig| {
        round(rig, Duration::from_micros(220), |source| {
            let end = Instant::now() + Duration::from_millis(1500);
            let mut sent = 0;
            while Instant::now() < end {
                for _ in 0..64 {
                    source.send(&[0; 40]).unwrap();
                }
                sent += 64;
            }
            sent
        })
    });
    let Some([on, off]) = rounds else { return };
    assert_reads(test, 90, [&on, &off]);
    // Of a round in which the source was kept waiting nothing may be shed; not of all of them.
    assert!(on.iter().any(|round| round.shed > 0), "{on:?}");
    assert!(off.iter().all(|round| round.shed == 0), "{off:?}");
}

/// A reader that works on each datagram gets more than it can take, on the CPU to which its packets go: they
/// go beside, at least for a trial, and come home when there is little to do.
#[test]
fn packets_go_beside_a_reader_that_cannot_carry_them_and_come_home() {
    let test = "packets_go_beside_a_reader_that_cannot_carry_them_and_come_home";
    let Some(mut rig) = rig(test, 2, |settings| settings.beside = true) else { return };
    let (socket, source) = unconnected(&rig, Pair::SINK_V4);
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let [home, other] = [rig.cpus[0], rig.cpus[1]];
    let [is_over, is_calm] = [const { AtomicBool::new(false) }; 2];
    let is_beside = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_thread(other).unwrap();
            while !is_over.load(Ordering::Acquire) {
                let _ = source.send(&[0; 20]);
                if is_calm.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        scope.spawn(|| {
            pin_thread(home).unwrap();
            while !is_over.load(Ordering::Acquire) {
                if socket.recv(&mut [0; 64]).is_ok() {
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_micros(30) {}
                }
            }
        });
        let mut wait_for = |is_beside: bool| {
            let end = Instant::now() + WAIT;
            loop {
                let before = rig.attachment.counters().unwrap().reason(Reason::Beside);
                std::thread::sleep(Duration::from_millis(120));
                rig.attachment.relieve();
                let after = rig.attachment.counters().unwrap().reason(Reason::Beside);
                if (after > before + 20) == is_beside {
                    return true;
                }
                if Instant::now() > end {
                    return false;
                }
            }
        };
        let went = wait_for(true);
        is_calm.store(true, Ordering::Release);
        let came = went && wait_for(false);
        is_over.store(true, Ordering::Release);
        [went, came]
    });
    let counters = settled(&rig);
    assert_sums(&counters);
    assert_eq!(is_beside, [true; 2], "{counters:?}");
}
