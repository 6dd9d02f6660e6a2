//! The receive queue beside a socket of the running kernel: the same datagrams, reads and limits, and
//! after each step the same bytes waiting, the same drops and the same datagram read.
//!
//! Over loopback, on a port that the kernel chooses; needs no rights. Prints why if it skips.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rxsteer_sockets::Profile;
use rxsteer_sockets::queue::{Datagram, Limits, QueueContext, ReceiveQueue, RecvError, Simulated};

/// Payload sizes, each with its own true size: of one slab size, of two, of several pages.
const SIZES: [usize; 7] = [8, 100, 200, 1000, 3000, 8000, 20_000];
const SEEDS: u64 = 12;
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
        receiver.set_nonblocking(true)?;
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

    /// Sends, and waits until the kernel has queued or dropped the datagram.
    fn send(&self, name: u64, len: usize) -> Seen {
        let before = self.seen().unwrap();
        let mut bytes = vec![0; len];
        bytes[..8].copy_from_slice(&name.to_be_bytes());
        self.sender.send_to(&bytes, self.local).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let now = self.seen().unwrap();
            if now != before {
                return now;
            }
            assert!(Instant::now() < deadline, "neither queued nor dropped");
            std::thread::yield_now();
        }
    }

    fn name(result: std::io::Result<usize>, buffer: &[u8; 8]) -> Option<u64> {
        match result {
            Ok(_) => Some(u64::from_be_bytes(*buffer)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn recv(&self) -> Option<u64> {
        let mut buffer = [0; 8]; // the rest is cut off, as a datagram socket does
        Self::name(self.receiver.recv(&mut buffer), &buffer)
    }

    fn peek(&self) -> Option<u64> {
        let mut buffer = [0; 8];
        Self::name(self.receiver.peek(&mut buffer), &buffer)
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
                    assert_eq!(kernel.seen().unwrap().waiting, waiting, "{at}");
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
        let seen = kernel.seen().unwrap();
        assert_eq!(seen, Seen { waiting: 0, drops: queue.credit().drops() });
        drops += seen.drops;
    }
    println!("{steps} steps, {drops} drops, {held_back} sends that only the exact queue admitted");
    assert!(drops > 100, "the histories must fill the buffer");
}
