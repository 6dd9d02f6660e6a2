//! Numbered packets of several flows that flow while something else is done, and a reader that counts
//! what is missing and what was overtaken.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rxsteer_core::CpuId;
use rxsteer_testbed::{Pair, pin_thread};

use super::{WAIT, connected, receiver, sender};

/// Packets on their way at once, of all flows: fewer than the ring of a veth device holds, 256, and than
/// wait where packets of no known flow take their second choice, 128.
pub(crate) const WINDOW: u64 = 120;
/// Bytes of a receive buffer in which each of them has several pages.
const BUFFER_BYTES: libc::c_int = 8 << 20;

/// What flows.
pub(crate) struct Load<'a> {
    pub(crate) pair: &'a Pair,
    /// CPUs that the reader moves over, from one to the next.
    pub(crate) cpus: &'a [CpuId],
    /// Packets that it reads on each.
    pub(crate) stay: u64,
    /// One flow of a connected socket for 1, else so many senders to one that is not connected.
    pub(crate) flows: usize,
}

/// How far it is.
pub(crate) struct Progress {
    read: AtomicU64,
    has_ended: AtomicBool,
}

/// What came of it.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    pub(crate) read: u64,
    /// Packets whose number is not the next of their flow.
    pub(crate) out_of_order: u64,
}

impl Progress {
    /// Returns how many packets were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// Waits until so many more packets were read.
    pub(crate) fn wait_for(&self, packets: u64) {
        let (target, end) = (self.read() + packets, Instant::now() + 3 * WAIT);
        while self.read() < target {
            assert!(Instant::now() < end, "packets do not flow: {} of {target}", self.read());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Load<'_> {
    /// Lets packets flow while `act` runs; every packet that is sent is then waited for.
    pub(crate) fn during<T>(&self, act: impl FnOnce(&Progress) -> T) -> (T, Outcome) {
        let (receiver, senders) = self.sockets();
        receiver.set_read_timeout(Some(WAIT)).unwrap();
        enlarge(&receiver);
        let progress = Progress { read: AtomicU64::new(0), has_ended: AtomicBool::new(false) };
        let sent = AtomicU64::new(u64::MAX);
        std::thread::scope(|scope| {
            let (progress, sent) = (&progress, &sent);
            scope.spawn(move || sent.store(send(&senders, progress), Ordering::Release));
            let reader = scope.spawn(move || self.read(&receiver, progress, sent));
            let end = End(&progress.has_ended);
            let done = act(progress);
            drop(end);
            (done, reader.join().unwrap())
        })
    }

    fn sockets(&self) -> (UdpSocket, Vec<UdpSocket>) {
        if self.flows == 1 {
            let (receiver, sender) = connected(self.pair, false);
            return (receiver, vec![sender]);
        }
        let receiver = receiver(self.pair, IpAddr::V4(Pair::SINK_V4));
        let address = receiver.local_addr().unwrap();
        let sender = |_| sender(self.pair, IpAddr::V4(Pair::SOURCE_V4), address);
        let senders = (0..self.flows).map(sender).collect();
        (receiver, senders)
    }

    fn read(&self, receiver: &UdpSocket, progress: &Progress, sent: &AtomicU64) -> Outcome {
        let mut outcome = Outcome::default();
        let mut next = vec![0; self.flows];
        loop {
            if outcome.read.is_multiple_of(self.stay) {
                let stays = outcome.read / self.stay;
                pin_thread(self.cpus[stays as usize % self.cpus.len()]).unwrap();
            }
            outcome.sent = sent.load(Ordering::Acquire);
            if outcome.read == outcome.sent {
                return outcome;
            }
            let mut bytes = [0; 16];
            if receiver.recv(&mut bytes).is_err() {
                // What is not there by now is lost.
                progress.has_ended.store(true, Ordering::Release);
                outcome.sent = sent.load(Ordering::Acquire);
                if outcome.sent == u64::MAX {
                    continue;
                }
                return outcome;
            }
            let flow = u64::from_be_bytes(bytes[..8].try_into().unwrap()) as usize;
            let number = u64::from_be_bytes(bytes[8..].try_into().unwrap());
            outcome.out_of_order += u64::from(number != next[flow]);
            next[flow] = number + 1;
            outcome.read += 1;
            progress.read.store(outcome.read, Ordering::Release);
        }
    }
}

/// Lets a socket hold more than others may.
fn enlarge(socket: &UdpSocket) {
    let bytes = BUFFER_BYTES;
    // SAFETY: reads that many bytes of memory of ours.
    let said = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    assert_eq!(said, 0, "{}", std::io::Error::last_os_error());
}

/// Sends in turns over all flows until the end; returns how many packets.
fn send(senders: &[UdpSocket], progress: &Progress) -> u64 {
    for sent in 0.. {
        // A port of which nobody has read yet is spread by hash, and goes to its reader at once with the
        // first read: what waits then may be overtaken. So the first ones go one by one.
        let window = if sent < 64 { 1 } else { WINDOW };
        while sent >= progress.read() + window {
            if progress.has_ended.load(Ordering::Acquire) {
                return sent;
            }
            // Not a spin: readers and threads of the kernel want this CPU.
            std::thread::sleep(Duration::from_micros(50));
        }
        if progress.has_ended.load(Ordering::Acquire) {
            return sent;
        }
        let (flow, number) = (sent % senders.len() as u64, sent / senders.len() as u64);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&flow.to_be_bytes());
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        senders[flow as usize].send(&bytes).unwrap();
    }
    unreachable!("the numbers do not end")
}

/// Ends the load, also by a failed assertion.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
