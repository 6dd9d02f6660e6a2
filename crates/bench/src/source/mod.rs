//! Sending packets: how many, how fast, by which means.
//!
//! A means takes a number of packets at a time; the bucket says how many are due. Raw frames go by a
//! packet socket; datagrams go by UDP sockets, one for each flow.
//!
//! Always true: what is reported as sent was taken by the kernel; what it refused is counted apart.

mod capture;
pub(crate) mod live;
mod outlet;
pub(crate) mod packet;
mod pair;
mod report;
mod socket;

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use rxsteer_core::CpuId;
use rxsteer_testbed::{Pair, pin_thread, thread_cpu_time};
use serde::Serialize;

pub use capture::{
    CapturePace, CaptureReport, CaptureSpec, Ended, Rewritten, Unsent, send_capture,
};
pub use pair::{GenPairReport, generate_in};
pub use report::GenReport;
pub(crate) use report::{as_ns, per, rate};

use crate::error::During as _;
use crate::rate::Bucket;
use crate::threads::{join, spawn};
use crate::traffic::{Frames, Link};
use crate::watch::Progress;
use crate::words::words;
use crate::{BenchError, Permit, Traffic, Until, Watch};

/// How packets are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// Frames of an XDP program that the kernel runs again and again and that redirects each.
    Live,
    /// Frames by a packet socket, many with one `sendmmsg`, past the queueing discipline.
    Packet,
    /// Datagrams by UDP sockets, many with one `sendmmsg`.
    Mmsg,
    /// Datagrams by UDP sockets, many with one `send` that the kernel cuts (UDP GSO).
    Gso,
    /// Datagrams by UDP sockets, each with its `send`.
    Send,
}

words!(Means: "live" Means::Live, "packet" Means::Packet, "mmsg" Means::Mmsg, "gso" Means::Gso, "send" Means::Send);

/// What to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GenSpec {
    /// The packets.
    pub traffic: Traffic,
    /// How to send them; `None` for the fastest that can.
    pub means: Option<Means>,
    /// Packets a second; 0 for as many as possible.
    pub rate: u64,
    /// When to end.
    pub until: Until,
    /// Packets with one system call, where the means can; 1 to [`Self::MOST_BATCH`].
    pub batch: usize,
    /// CPU of the sender.
    pub cpu: Option<CpuId>,
}

impl GenSpec {
    /// Most packets with one system call.
    pub const MOST_BATCH: usize = 1024;

    /// Sends this traffic as fast as possible, 64 packets at once, within the usual bounds.
    pub fn new(traffic: Traffic) -> Self {
        let until = Until::default();
        Self { traffic, means: None, rate: 0, until, batch: 64, cpu: None }
    }
}

/// Where packets go.
#[derive(Clone, Copy, Debug)]
pub enum Road<'a> {
    /// From the sender of a pair to its receiver.
    Pair(&'a Pair),
    /// Over the network of this process, to an address that was named.
    Open(&'a Permit),
}

/// The device of a pair's sender.
#[derive(Clone, Copy, Debug)]
struct Device {
    index: u32,
    link: Link,
    /// Whether the other end polls, without which it takes no frame that is redirected to this one.
    peer_polls: bool,
}

/// What a means did with some packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Sent {
    /// Packets that the kernel took.
    packets: u64,
    /// Their bytes: of frames, or of payload where the kernel makes the headers.
    bytes: u64,
    /// Times that the kernel had no room.
    refusals: u64,
    /// Packets that the device refused, and counted as dropped.
    returned: u64,
}

/// A way to send.
trait Sender {
    /// Sends up to `most` packets, as many as it can with one system call.
    fn send(&mut self, most: usize) -> io::Result<Sent>;

    /// Returns how many packets it takes with one call, if that is not what was asked for.
    fn at_once(&self) -> Option<usize> {
        None
    }

    /// Says what it is.
    fn means(&self) -> Means;

    /// Says what it is, in words.
    fn describe(&self) -> String;
}

/// Sends packets until a bound is met.
///
/// # Errors
/// [`BenchError::NotOurs`] for an address that is neither the receiver of the pair nor named;
/// [`BenchError::CannotSend`], [`BenchError::Options`]; [`BenchError::Step`] if the kernel refuses.
pub fn generate(
    spec: &GenSpec,
    road: Road<'_>,
    watch: &Watch<'_>,
) -> Result<GenReport, BenchError> {
    check(spec)?;
    match road {
        Road::Pair(pair) => {
            let sinks = [Pair::SINK_V4.into(), Pair::SINK_V6.into()];
            if !sinks.contains(&spec.traffic.to) {
                return Err(BenchError::NotOurs(spec.traffic.to));
            }
            let link = Link { source: pair.source_device.mac, sink: pair.sink_device.mac };
            let polls = pair.sink.offloads(Pair::SINK_DEVICE)?.gro;
            let device = Device { index: pair.source_device.index, link, peer_polls: polls };
            pair.source.run(|| run(spec, Some(device), watch))?
        }
        Road::Open(permit) => {
            permit.check(spec.traffic.to)?;
            run(spec, None, watch)
        }
    }
}

fn check(spec: &GenSpec) -> Result<(), BenchError> {
    let refuse = |message: String| Err(BenchError::Options(message));
    if !(1..=GenSpec::MOST_BATCH).contains(&spec.batch) {
        return refuse(format!("batch {}: allowed are 1 to {}", spec.batch, GenSpec::MOST_BATCH));
    }
    if spec.traffic.flows == 0 || spec.traffic.flows > crate::traffic::MOST_FLOWS {
        let most = crate::traffic::MOST_FLOWS;
        return refuse(format!("{} flows: allowed are 1 to {most}", spec.traffic.flows));
    }
    if spec.until.duration > Until::LONGEST {
        return refuse(format!("{:?}: allowed is at most a day", spec.until.duration));
    }
    Ok(())
}

/// Sends in the namespace of the calling thread.
fn run(spec: &GenSpec, device: Option<Device>, watch: &Watch<'_>) -> Result<GenReport, BenchError> {
    in_thread(spec.cpu, watch, |progress| {
        let mut means = means(spec, device)?;
        pump(spec, &mut *means, watch, progress)
    })
}

/// Runs a sender in a thread of its own, on this CPU, and tells the watcher how it goes.
fn in_thread<T: Send>(
    cpu: Option<CpuId>,
    watch: &Watch<'_>,
    send: impl FnOnce(&Progress) -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let send = || {
            if let Some(cpu) = cpu {
                pin_thread(cpu).during(|| format!("run the sender on CPU {cpu}"))?;
            }
            send(&progress)
        };
        let sender = spawn(scope, 1, send)?;
        progress.tell(watch, || sender.is_finished());
        join(sender)
    })
}

fn means(spec: &GenSpec, device: Option<Device>) -> Result<Box<dyn Sender>, BenchError> {
    let is_steady = spec.rate == 0 && spec.traffic.sizes.only().is_some();
    let means = match (spec.means, &device) {
        (Some(means), _) => means,
        (None, Some(device))
            if is_steady && device.peer_polls && live::hindrance(&spec.traffic).is_none() =>
        {
            // A kernel that does not do it has another way.
            match live::LiveFrames::open(spec, device.index, &device.link) {
                Ok(live) => return Ok(Box::new(live)),
                Err(_) => Means::Packet,
            }
        }
        (None, Some(_)) => Means::Packet,
        // Merged datagrams cannot be paced one by one.
        (None, None) if is_steady => Means::Gso,
        (None, None) => Means::Mmsg,
    };
    let in_pair = device.is_some();
    Ok(match (means, device) {
        (Means::Live, Some(Device { peer_polls: false, .. })) => {
            return Err(BenchError::PeerDoesNotPoll {
                device: Pair::SOURCE_DEVICE.into(),
                peer: Pair::SINK_DEVICE.into(),
            });
        }
        (Means::Live, Some(Device { index, link, .. })) => {
            Box::new(live::LiveFrames::open(spec, index, &link)?)
        }
        (Means::Packet, Some(Device { index, link, .. })) => {
            let frames = Frames::new(&spec.traffic, &link)?;
            Box::new(packet::PacketSocket::open(index, frames, spec.batch)?)
        }
        (Means::Live | Means::Packet, None) => {
            return Err(BenchError::CannotSend {
                means: if means == Means::Live { "live" } else { "packet" },
                what: "outside the testbed".into(),
                why: "frames of our own making stay in it; use mmsg, gso or send",
            });
        }
        (Means::Mmsg, _) => Box::new(socket::Mmsg::open(spec, in_pair)?),
        (Means::Gso, _) => Box::new(socket::Merged::open(spec, in_pair)?),
        (Means::Send, _) => Box::new(socket::Single::open(spec, in_pair)?),
    })
}

/// Sends what is due until a bound is met.
fn pump(
    spec: &GenSpec,
    means: &mut dyn Sender,
    watch: &Watch<'_>,
    progress: &Progress,
) -> Result<GenReport, BenchError> {
    use std::sync::atomic::Ordering::Relaxed;
    // Timers are let to be late by 50 µs otherwise, as long as twenty packets at a modest rate.
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut bucket = Bucket::new(spec.rate, spec.batch as u64);
    let mut total = Sent::default();
    let at_once = means.at_once().unwrap_or(spec.batch) as u64;
    let cpu = thread_cpu_time();
    let start = Instant::now();
    loop {
        let now = start.elapsed();
        let left = spec.until.count.saturating_sub(total.packets);
        if left == 0 || now >= spec.until.duration || watch.is_stopped() {
            break;
        }
        let due = bucket.take(ns(now), left.min(at_once));
        if due == 0 {
            let next = Duration::from_nanos(bucket.next_ns()).min(spec.until.duration);
            wait_until(start, next);
            continue;
        }
        let sent = means.send(due as usize).during(|| "send".into())?;
        bucket.give_back(due.saturating_sub(sent.packets));
        total.packets += sent.packets;
        total.bytes += sent.bytes;
        total.refusals += sent.refusals;
        total.returned += sent.returned;
        progress.count.store(total.packets, Relaxed);
    }
    Ok(GenReport {
        by: means.means(),
        means: means.describe(),
        sent: total.packets,
        bytes: total.bytes,
        refusals: total.refusals,
        returned: total.returned,
        behind: bucket.lost(),
        elapsed: start.elapsed(),
        cpu: thread_cpu_time().saturating_sub(cpu),
    })
}

/// Sleeps, but for the last stretch, in which a sleep would end too late.
fn wait_until(start: Instant, then: Duration) {
    const STRETCH: Duration = Duration::from_micros(60);
    // Looks up now and then, so that a run can be stopped.
    const NAP: Duration = Duration::from_millis(100);
    let left = then.saturating_sub(start.elapsed());
    if left > NAP {
        std::thread::sleep(NAP);
        return;
    }
    if left > STRETCH {
        std::thread::sleep(left - STRETCH);
    }
    while start.elapsed() < then {
        std::hint::spin_loop();
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the kernel said that it has no room just now.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

impl fmt::Display for GenSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic { kind, flows, pattern, sizes, to, port, .. } = &self.traffic;
        write!(f, "{kind} of {sizes} bytes to {to} port {port}, ")?;
        match pattern {
            crate::Pattern::Random => f.write_str("random sources"),
            _ => write!(f, "{flows} flows {pattern}"),
        }
    }
}
