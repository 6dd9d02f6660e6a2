//! An attachment goes from process to process while packets flow. Needs root; without it each test says
//! so and ends.
//!
//! The other processes are this test itself, started again. One takes the descriptors of another by
//! pidfd_getfd(2), as good as a message with `SCM_RIGHTS` and without its socket.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::load::{Load, WINDOW};
use common::{Rig, assert_sums, connected, pair, receiver, rig, sender, settled_of, until};
use rxsteer_core::steer::{Class, Reason};
use rxsteer_kernel::{AttachError, Attachment, Handover, Settings, programs_on_interfaces, status};
use rxsteer_testbed::{Pair, allowed_cpus};

const ROLE: &str = "RXSTEER_TEST_ROLE";

fn settings(table_entries: u32) -> Settings {
    Settings { table_entries, ..Settings::new(Pair::SINK_DEVICE, allowed_cpus().unwrap()) }
}

/// Not a test by itself: the part of a process that holds an attachment, of its own or taken over.
/// It says what another needs to take over from it.
#[test]
fn holder_of_an_attachment() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let held = if role == "first" {
        Attachment::new(settings(1 << 12)).unwrap()
    } else {
        let mut lines = role.lines();
        let mut numbers = lines.next().unwrap().split(' ').map(|word| word.parse().unwrap());
        let process = open_process(numbers.next().unwrap());
        let fds = numbers.map(|fd| fd_of(&process, fd)).collect();
        let text = lines.map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        let taken = Attachment::from_handover(Handover { text, fds }, settings(1 << 15));
        let (held, change) = taken.unwrap();
        assert_eq!((change.copied[1], change.may_overtake), (1, Some(0)), "{change:?}");
        held
    };
    let handover = held.handover().unwrap();
    let fds: Vec<String> = handover.fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    println!("holding {} {}", std::process::id(), fds.join(" "));
    print!("{}", String::from_utf8(handover.text.clone()).unwrap());
    println!("end");
    std::thread::sleep(Duration::from_secs(60));
}

fn open_process(id: RawFd) -> OwnedFd {
    // SAFETY: numbers only; the descriptor is ours alone.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn fd_of(process: &OwnedFd, number: RawFd) -> OwnedFd {
    // SAFETY: numbers only; the descriptor is ours alone.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// A process that is ended with the test.
struct Holder {
    child: Child,
    /// What another process needs to take over.
    says: String,
}

impl Holder {
    fn new(pair: &Pair, role: &str) -> Self {
        let start = || {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "holder_of_an_attachment", "--nocapture", "--test-threads=1"])
                .env(ROLE, role)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut child = pair.sink.run(start).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines = lines.skip_while(|line| !line.contains("holding "));
        let says: Vec<String> = lines.take_while(|line| line != "end").collect();
        let says = says.join("\n");
        let says = says.split_once("holding ").map_or("", |(_, says)| says).to_owned();
        assert!(!says.is_empty(), "the holder says that it holds");
        Self { child, says }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap(); // SIGKILL
        self.child.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn another_process_goes_on_without_a_gap_when_the_first_is_killed() {
    let test = "another_process_goes_on_without_a_gap_when_the_first_is_killed";
    let Some(pair) = pair(test) else { return };
    let cpus: Vec<_> = allowed_cpus().unwrap().iter().collect();
    let mut first = Holder::new(&pair, "first");
    let load = Load { pair: &pair, cpus: &cpus, stay: 1000, flows: 1 };
    let ((second, seen), outcome) = load.during(|progress| {
        progress.wait_for(2500);
        let second = Holder::new(&pair, &first.says);
        progress.wait_for(1000);
        first.kill();
        progress.wait_for(2500);
        let seen = pair.sink.run(|| status().unwrap()).unwrap();
        (second, seen)
    });
    assert_eq!((outcome.read, outcome.out_of_order), (outcome.sent, 0), "{outcome:?}");
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].table_entries, seen[0].flows), (1 << 15, [0, 1]));
    let seen = pair.sink.run(|| status().unwrap()).unwrap();
    let counters = &seen[0].counters;
    // Those of the first process are in it: no packet went by uncounted.
    assert_eq!(counters.class(Class::Udp), outcome.sent, "{counters:?}");
    assert!(counters.reason(Reason::Miss) <= WINDOW, "{counters:?}");
    assert_sums(counters);

    drop(second);
    let there = || pair.sink.run(|| programs_on_interfaces().unwrap()).unwrap();
    until(there, Vec::is_empty);
}

#[test]
fn an_attachment_is_taken_over_handed_back_and_refused_to_who_does_not_fit() {
    let test = "an_attachment_is_taken_over_handed_back_and_refused_to_who_does_not_fit";
    let Some(Rig { mut attachment, pair, .. }) = rig(test, 1, |_| {}) else { return };
    let (receiver, sender) = connected(&pair, false);
    let exchange = |count: u64| {
        for _ in 0..count {
            sender.send(b"x").unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
        }
    };
    exchange(10);
    let take = |handover, settings| {
        pair.sink.run(|| Attachment::from_handover(handover, settings)).unwrap()
    };
    let own = attachment.settings().clone();

    // In another namespace, with a descriptor missing, for another interface.
    let elsewhere = Attachment::from_handover(attachment.handover().unwrap(), own.clone());
    assert!(matches!(elsewhere.err(), Some(AttachError::Handover(_))));
    let mut short = attachment.handover().unwrap();
    short.fds.pop();
    assert!(matches!(take(short, own.clone()).err(), Some(AttachError::Handover(_))));
    let other = Settings { interface: "lo".into(), ..own.clone() };
    let said = take(attachment.handover().unwrap(), other).err();
    assert!(matches!(said, Some(AttachError::Fixed(_))));
    exchange(10);

    // Taken over, and given up: the first goes on.
    let (second, change) = take(attachment.handover().unwrap(), own.clone()).unwrap();
    assert_eq!(change.may_overtake, Some(0));
    exchange(10);
    drop(second);
    exchange(10);
    attachment.retake().unwrap();
    exchange(10);
    let counters = settled_of(&attachment);
    assert_eq!(counters.class(Class::Udp), 50, "{counters:?}");
    assert_eq!(counters.reason(Reason::Miss), 1, "{counters:?}");
    assert_sums(&counters);

    // Of a version that counts differently: no gap, but from the beginning.
    let mut foreign = attachment.handover().unwrap();
    let text = String::from_utf8(foreign.text).unwrap();
    foreign.text = text.replace("layout ", "layout other-").into_bytes();
    let (third, change) = take(foreign, own).unwrap();
    assert_eq!(change.may_overtake, None);
    drop(attachment);
    exchange(10);
    let counters = settled_of(&third);
    assert_eq!(counters.class(Class::Udp), 10, "{counters:?}");
    drop(third);
    assert!(pair.sink.run(|| programs_on_interfaces().unwrap()).unwrap().is_empty());
}

/// The port of a reader and a socket without room, under a flood that goes on meanwhile.
#[test]
fn what_is_known_of_ports_and_of_full_sockets_goes_on() {
    let test = "what_is_known_of_ports_and_of_full_sockets_goes_on";
    let Some(Rig { attachment, pair, .. }) = rig(test, 1, |_| {}) else { return };
    let unconnected = || {
        let socket = receiver(&pair, Pair::SINK_V4.into());
        let to = socket.local_addr().unwrap();
        (socket, sender(&pair, Pair::SOURCE_V4.into(), to))
    };
    let (served, to_served) = unconnected();
    let by_port = |attachment: &Attachment| settled_of(attachment).reason(Reason::Port);
    let exchange = || {
        to_served.send(b"x").unwrap();
        served.recv(&mut [0; 8]).unwrap();
    };
    until(|| (exchange(), by_port(&attachment)).1, |count| *count > 0);
    let (before, own) = (settled_of(&attachment), attachment.settings().clone());
    let handover = attachment.handover().unwrap();
    let take = || Attachment::from_handover(handover, own).unwrap().0;
    let second = pair.sink.run(take).unwrap();
    drop(attachment);
    assert_eq!(second.ports(), 1);
    // Its reader has not said a word since.
    to_served.send(b"x").unwrap();
    let after =
        until(|| settled_of(&second), |after| after.class(Class::Udp) > before.class(Class::Udp));
    assert_eq!(after.reason(Reason::Port), before.reason(Reason::Port) + 1, "{after:?}");
    served.recv(&mut [0; 8]).unwrap();

    let (_full, to_full) = unconnected();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                to_full.send(&[0; 20]).unwrap();
            }
        });
        let sheds = |attachment: &Attachment| {
            let shed = || attachment.counters().unwrap().reason(Reason::Shed);
            let before = shed();
            until(shed, |count| *count > before + 100);
        };
        sheds(&second);
        let (handover, own) = (second.handover().unwrap(), second.settings().clone());
        let take = || Attachment::from_handover(handover, own).unwrap().0;
        let third = pair.sink.run(take).unwrap();
        drop(second);
        sheds(&third);
        exchange();
        is_over.store(true, Ordering::Release);
        assert_sums(&settled_of(&third));
    });
}
