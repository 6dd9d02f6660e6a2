//! The receive queue beside a socket of the running kernel: the same datagrams, reads and limits, and
//! after each step the same bytes waiting, the same drops and the same datagram read.
//!
//! Over loopback, on a port that the kernel chooses. Wrong checksums need a raw socket, and so
//! `CAP_NET_RAW`; the rest needs no rights. Prints why if it skips.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use rxsteer_sockets::datagram::{Addresses, Checksum, Rules, Udp};
use rxsteer_sockets::queue::{
    Datagram, Limits, MemoryLimits, QueueContext, ReceiveQueue, RecvError, Simulated,
};
use rxsteer_sockets::{IpVersion, Profile};

/// Payload sizes, each with its own true size: of one slab size, of two, of several pages.
const SIZES: [usize; 7] = [8, 100, 200, 1000, 3000, 8000, 20_000];
const SEEDS: u64 = 8;
const STEPS: usize = 250;
const AT_MOST: Duration = Duration::from_secs(10);

/// A kernel socket that is sent to and read from.
struct Kernel {
    receiver: UdpSocket,
    sender: UdpSocket,
    local: SocketAddr,
}

/// What `/proc/net/udp` shows of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Seen {
    waiting: u64,
    drops: u64,
}

impl Kernel {
    fn new() -> std::io::Result<Self> {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let local = receiver.local_addr()?;
        Ok(Self { receiver, sender: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, local })
    }

    fn seen(&self) -> Option<Seen> {
        let table = fs::read_to_string("/proc/net/udp").ok()?;
        let end = format!(":{:04X}", self.local.port());
        table.lines().find_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            if !fields.get(1)?.ends_with(&end) {
                return None;
            }
            let (_, waiting) = fields.get(4)?.split_once(':')?;
            let waiting = u64::from_str_radix(waiting, 16).ok()?;
            Some(Seen { waiting, drops: fields.last()?.parse().ok()? })
        })
    }

    /// Looks until the socket is in the table: sockets that come and go beside it can hide it from one
    /// reading.
    fn look(&self) -> Seen {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(seen) = self.seen() {
                return seen;
            }
            assert!(Instant::now() < deadline, "the socket left /proc/net/udp");
        }
    }

    /// Sends, and waits until the kernel has queued or dropped the datagram.
    fn send(&self, name: u64, len: usize) -> Seen {
        let mut bytes = vec![0; len];
        bytes[..8].copy_from_slice(&name.to_be_bytes());
        self.after(|| {
            self.sender.send_to(&bytes, self.local).unwrap();
        })
    }

    /// Sends somehow, and waits until the kernel has queued or dropped the datagram.
    fn after(&self, send: impl FnOnce()) -> Seen {
        let before = self.look();
        send();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let now = self.look();
            if now != before {
                return now;
            }
            assert!(Instant::now() < deadline, "neither queued nor dropped");
            std::thread::yield_now();
        }
    }

    fn read(&self, flags: RecvFlags) -> Option<u64> {
        let mut buffer = [0; 8]; // the rest is cut off, as a datagram socket does
        match rustix::net::recv(&self.receiver, &mut buffer, flags | RecvFlags::DONTWAIT) {
            Ok(_) => Some(u64::from_be_bytes(buffer)),
            Err(rustix::io::Errno::AGAIN) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn recv(&self) -> Option<u64> {
        self.read(RecvFlags::empty())
    }

    fn peek(&self) -> Option<u64> {
        self.read(RecvFlags::PEEK)
    }

    /// Asks `poll(2)`, which looks at checksums only for a socket in blocking mode, as this one is.
    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.receiver, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    /// Sets the buffer and returns what the kernel made of it.
    fn set_buffer(&self, bytes: usize) -> u32 {
        sockopt::set_socket_recv_buffer_size(&self.receiver, bytes).unwrap();
        sockopt::socket_recv_buffer_size(&self.receiver).unwrap() as u32
    }
}

/// Why this host cannot judge, if so.
fn unfit() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let major: u32 = release.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    if major < 5 {
        return Some(format!("kernel {} is older than the rules (4.12)", release.trim()));
    }
    match Kernel::new() {
        Err(error) => Some(format!("no loopback: {error}")),
        Ok(kernel) if kernel.seen().is_none() => {
            Some("/proc/net/udp does not show the socket".into())
        }
        Ok(_) => None,
    }
}

/// A small generator, the same on every machine (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

#[test]
fn the_running_kernel_admits_and_drops_the_same() {
    if let Some(why) = unfit() {
        println!("skipped: {why}");
        return;
    }
    // What the kernel charges for each size, seen on an empty socket: independent of ours.
    let charged: BTreeMap<usize, u32> = SIZES
        .into_iter()
        .map(|len| (len, Kernel::new().unwrap().send(0, len).waiting as u32))
        .collect();
    println!("true sizes: {charged:?}");
    let begin = Instant::now();
    let (mut steps, mut drops, mut held_back) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kernel = Kernel::new().unwrap();
        let context = Arc::new(QueueContext::default());
        let limit = kernel.set_buffer(1 + random.below(20_000));
        let queue = ReceiveQueue::with_release(&context, Limits::bytes(limit), Profile::Linux);
        let exact = ReceiveQueue::new(&context, Limits::bytes(limit));
        // What the kernel shows: without what was read but not released yet.
        let mut waiting = 0;
        for step in 0..STEPS {
            if begin.elapsed() > AT_MOST {
                println!("time is up at seed {seed}, step {step}");
                return;
            }
            let name = step as u64;
            // Phases in which the queue fills, and in which it drains.
            let sends = if (step / 25) % 2 == 0 { 8 } else { 4 };
            let at = format!("seed {seed}, step {step}, limit {:?}", queue.credit().limits());
            match random.below(12) {
                0 => assert_eq!(kernel.peek(), queue.peek(|front| front.timestamp_ns).ok(), "{at}"),
                1 if random.below(8) == 0 => {
                    let limit = Limits::bytes(kernel.set_buffer(1 + random.below(20_000)));
                    queue.set_limits(limit);
                    exact.set_limits(limit);
                }
                dice if dice <= sends => {
                    let len = SIZES[random.below(SIZES.len())];
                    let payload = Simulated::new(len as u32);
                    let mut datagram =
                        Datagram::new(kernel.local, Ipv4Addr::LOCALHOST.into(), payload);
                    datagram.true_size = charged[&len];
                    datagram.timestamp_ns = name;
                    let seen = kernel.send(name, len);
                    let admitted = queue.push(datagram.clone()).is_ok();
                    waiting += if admitted { u64::from(charged[&len]) } else { 0 };
                    let ours = Seen { waiting, drops: queue.credit().drops() };
                    assert_eq!(seen, ours, "{at}, {len} bytes");
                    held_back += u32::from(exact.push(datagram).is_ok() && !admitted);
                }
                _ => {
                    let read = queue.try_recv();
                    waiting -= read.as_ref().map_or(0, |datagram| u64::from(datagram.true_size));
                    let read = read.map(|datagram| datagram.timestamp_ns);
                    assert_eq!(kernel.recv().ok_or(RecvError::Empty), read, "{at}");
                    assert_eq!(kernel.look().waiting, waiting, "{at}");
                    let _ = exact.try_recv();
                }
            }
            steps += 1;
        }
        // Drain both: all that waited is the same, and nothing is left.
        while let Some(name) = kernel.recv() {
            assert_eq!(queue.try_recv().map(|datagram| datagram.timestamp_ns), Ok(name));
        }
        assert_eq!(queue.try_recv().unwrap_err(), RecvError::Empty);
        let seen = kernel.look();
        assert_eq!(seen, Seen { waiting: 0, drops: queue.credit().drops() });
        drops += seen.drops;
    }
    println!("{steps} steps, {drops} drops, {held_back} sends that only the exact queue admitted");
    assert!(drops > 100, "the histories must fill the buffer");
}

/// Sets or asks for `SO_PEEK_OFF`, for which there is no safe call.
mod peek_offset {
    use std::os::fd::AsRawFd;

    use super::UdpSocket;

    pub(super) fn set(socket: &UdpSocket, offset: i32) {
        // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel reads the four
        // bytes of `offset` during the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEEK_OFF,
                (&raw const offset).cast(),
                size_of::<i32>() as libc::socklen_t,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    pub(super) fn get(socket: &UdpSocket) -> i32 {
        let (mut offset, mut len) = (0_i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: as above; the kernel writes at most `len` bytes to `offset` during the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEEK_OFF,
                (&raw mut offset).cast(),
                &raw mut len,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        offset
    }
}

#[test]
fn the_running_kernel_peeks_at_the_same_offsets() {
    if let Some(why) = unfit() {
        return println!("skipped: {why}");
    }
    let begin = Instant::now();
    let (mut within, mut beyond, mut empty) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kernel = Kernel::new().unwrap();
        kernel.receiver.set_nonblocking(true).unwrap();
        let context = Arc::new(QueueContext::default());
        let queue = ReceiveQueue::with_release(&context, Limits::default(), Profile::Linux);
        let mut log = Vec::new();
        for step in 0..STEPS {
            if begin.elapsed() > AT_MOST {
                return println!("time is up at seed {seed}, step {step}");
            }
            let room = [0, 1, 3, 10, 40][random.below(5)];
            let (mut theirs, mut ours) = (vec![0; room], vec![0; room]);
            let peeks = match random.below(10) {
                0 => {
                    let offset = random.below(40) as i32 - 5;
                    log.push(format!("offset {offset}"));
                    peek_offset::set(&kernel.receiver, offset);
                    queue.set_peek_offset(u32::try_from(offset).ok());
                    continue;
                }
                1..=3 => {
                    let len = [0, 0, 1, 5, 20][random.below(5)];
                    log.push(format!("send {len}"));
                    let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                    kernel.after(|| {
                        kernel.sender.send_to(&bytes, kernel.local).unwrap();
                    });
                    let peer = kernel.sender.local_addr().unwrap();
                    queue.push(Datagram::new(peer, Ipv4Addr::LOCALHOST.into(), bytes)).unwrap();
                    continue;
                }
                dice => dice < 9,
            };
            log.push(format!("{} {room}", if peeks { "peek" } else { "read" }));
            let at = format!("seed {seed}, after {log:?}");
            let (theirs_len, ours_read) = if peeks {
                (kernel.receiver.peek(&mut theirs), queue.peek_into(&mut ours))
            } else {
                (kernel.receiver.recv(&mut theirs), queue.try_recv_into(&mut ours))
            };
            let theirs_len = match theirs_len {
                Ok(len) => Some(len),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
                Err(error) => panic!("{at}: {error}"),
            };
            assert_eq!(theirs_len, ours_read.ok().map(|read| read.copied), "{at}");
            assert_eq!(theirs, ours, "{at}");
            let offset = u32::try_from(peek_offset::get(&kernel.receiver)).ok();
            assert_eq!(offset, queue.peek_offset(), "{at}");
            if peeks && offset.is_some() {
                within += u32::from(ours_read.is_ok_and(|read| read.from > 0));
                beyond += u32::from(ours_read.is_err());
                empty += u32::from(ours_read.is_ok_and(|read| read.len == 0));
            }
        }
    }
    println!("{within} peeks within a datagram, {beyond} beyond all, {empty} at an empty one");
    assert!(within > 50 && beyond > 20 && empty > 20, "{within} {beyond} {empty}");
}

/// The limits that the kernel computed at boot, unless somebody changed them since.
#[test]
fn the_running_kernel_computes_the_same_memory_limits() {
    let text = fs::read_to_string("/proc/sys/net/ipv4/udp_mem").unwrap_or_default();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let &[min, pressure, max] = numbers.as_slice() else {
        return println!("skipped: no /proc/sys/net/ipv4/udp_mem");
    };
    let ours = MemoryLimits::of_free_pages(pressure * 8 + 7);
    if (min, max) != (ours.min, ours.max) && max != min * 2 {
        return println!("skipped: the limits {text:?} were set by hand");
    }
    assert_eq!((min, pressure, max), (ours.min, ours.pressure, ours.max));
}

/// A datagram from port 9 to this port over loopback, its checksum right, wrong or absent.
fn segment(name: u64, port: u16, payload_len: u16, checksum: Sent) -> Vec<u8> {
    let length = 8 + payload_len;
    let mut bytes = [&[0, 9][..], &port.to_be_bytes(), &length.to_be_bytes(), &[0, 0]].concat();
    bytes.extend(name.to_be_bytes());
    bytes.resize(length.into(), 0);
    if checksum != Sent::Absent {
        // Word after word, an odd last byte as the upper half of one (RFC 1071).
        let pseudo = [0x7f00, 1, 0x7f00, 1, 17, u32::from(length)];
        let word =
            |word: &[u8]| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| (*low).into());
        let mut sum: u32 = bytes.chunks(2).map(word).chain(pseudo).sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let right = if sum == 0xffff { 0xffff } else { !sum as u16 };
        let sent = if checksum == Sent::Wrong { right ^ 0x0100 } else { right };
        bytes[6..8].copy_from_slice(&sent.to_be_bytes());
    }
    bytes
}

/// `InCsumErrors` of `Udp` in `/proc/net/snmp`.
fn checksum_errors() -> u64 {
    let counters = fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = counters.lines().filter(|line| line.starts_with("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sent {
    Right,
    Wrong,
    Absent,
}

#[test]
fn the_running_kernel_finds_wrong_checksums_at_the_same_step() {
    let raw =
        rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(rustix::net::ipproto::UDP));
    let raw = match (raw, unfit()) {
        (Ok(raw), None) => raw,
        (Err(error), _) => return println!("skipped: no raw socket: {error}"),
        (_, Some(why)) => return println!("skipped: {why}"),
    };
    let begin = Instant::now();
    let (mut found_at_arrival, mut found_at_reads, mut found_at_polls) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kernel = Kernel::new().unwrap();
        let context = Arc::new(QueueContext::default());
        let queue = ReceiveQueue::with_release(&context, Limits::default(), Profile::Linux);
        let mut waiting: u64 = 0;
        for step in 0..STEPS {
            if begin.elapsed() > AT_MOST {
                return println!("time is up at seed {seed}, step {step}");
            }
            let name = step as u64;
            let at = format!("seed {seed}, step {step}");
            let drops = queue.credit().drops();
            match random.below(10) {
                0 => {
                    assert_eq!(kernel.is_readable(), queue.is_readable(), "{at}");
                    found_at_polls += queue.credit().drops() - drops;
                }
                1 => {
                    let peeked = queue.peek(|front| front.timestamp_ns).ok();
                    assert_eq!(kernel.peek(), peeked, "{at}");
                }
                2..=5 => {
                    let read = queue.try_recv().map(|datagram| datagram.timestamp_ns);
                    assert_eq!(kernel.recv(), read.ok(), "{at}");
                    found_at_reads += queue.credit().drops() - drops;
                }
                _ => {
                    let sent =
                        [Sent::Right, Sent::Wrong, Sent::Wrong, Sent::Absent][random.below(4)];
                    let payload_len = [8, 67, 68, 69, 70, 500][random.below(6)];
                    let bytes = segment(name, kernel.local.port(), payload_len, sent);
                    let send = || {
                        rustix::net::sendto(&raw, &bytes, SendFlags::empty(), &kernel.local)
                            .unwrap();
                    };
                    let addresses =
                        Addresses::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::LOCALHOST };
                    let udp = Udp::parse(&bytes, IpVersion::V4).unwrap();
                    let Ok(checksum) = udp.defer(&addresses, Rules::default()) else {
                        // Refused at arrival, before a socket is looked for: no drop of the socket.
                        let (before, seen) = (checksum_errors(), kernel.look());
                        send();
                        let deadline = Instant::now() + Duration::from_secs(5);
                        while checksum_errors() == before {
                            assert!(Instant::now() < deadline, "{at}: {payload_len} not refused");
                        }
                        assert_eq!(kernel.look(), seen, "{at}");
                        found_at_arrival += 1;
                        continue;
                    };
                    let seen = kernel.after(send);
                    assert_eq!(checksum == Checksum::Absent, sent == Sent::Absent);
                    let mut datagram = Datagram::new(
                        kernel.local,
                        Ipv4Addr::LOCALHOST.into(),
                        udp.payload.to_vec(),
                    );
                    datagram.checksum = checksum;
                    datagram.timestamp_ns = name;
                    datagram.true_size = (seen.waiting - waiting) as u32;
                    queue.push(datagram).unwrap();
                }
            }
            let seen = kernel.look();
            assert_eq!(seen.drops, queue.credit().drops(), "{at}");
            waiting = seen.waiting;
        }
        let left = std::iter::from_fn(|| queue.try_recv().ok()).count();
        assert_eq!(std::iter::from_fn(|| kernel.recv()).count(), left, "seed {seed}");
    }
    println!(
        "wrong checksums found: {found_at_arrival} at arrival, {found_at_reads} by reads, \
         {found_at_polls} by polls"
    );
    assert!(found_at_arrival > 100 && found_at_reads > 100 && found_at_polls > 10);
}
