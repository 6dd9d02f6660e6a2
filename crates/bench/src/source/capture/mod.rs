//! Packets of a capture, sent with the times at which they were captured.
//!
//! The capture is read while it is sent, so its length does not matter. A packet that is late is sent at
//! once: none is left out for being late, and how late they were is in the report.
//!
//! Always true: each packet that was read was sent or is in [`Unsent`] once.
//! Elsewhere: when a packet is due ([`timeline`]); what is changed in it ([`rewrite`]).

mod rewrite;
mod timeline;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rxsteer_core::CpuId;
use rxsteer_lab::capture::{CaptureError, CaptureNote, CaptureOptions, Captures};
use rxsteer_testbed::{Pair, thread_cpu_time};
use serde::Serialize;

pub use rewrite::{Rewritten, Unsent};

use self::rewrite::Rewriter;
use self::timeline::Timeline;
use super::outlet::Outlet;
use super::{GenReport, GenSpec, Means, Sent, in_thread, ns, pair, wait_until};
use crate::error::During as _;
use crate::traffic::Link;
use crate::watch::Progress;
use crate::{BenchError, Latency, Quantiles, Until, Watch};

/// Packets that are looked at before the clock and the watcher are asked again.
const LOOKED_AT: usize = 256;

/// How fast a capture is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapturePace {
    /// So many times as fast as it was captured.
    Recorded(f64),
    /// Packets a second, whatever the capture says.
    Rate(u64),
    /// As fast as possible.
    Fastest,
}

impl CapturePace {
    /// Slowest and fastest speed.
    pub const ALLOWED_SPEED: std::ops::RangeInclusive<f64> = 1e-3..=1e6;
}

/// A capture to send, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureSpec {
    /// Files, which are merged by time.
    pub files: Vec<PathBuf>,
    /// How fast.
    pub pace: CapturePace,
    /// How often; 0 for until the end of the run.
    pub rounds: u64,
    /// Fills in with zeroes what the capture does not have of a packet; else such packets are not sent.
    pub pads: bool,
    /// When to end, if that comes first.
    pub until: Until,
    /// Most packets with one system call; 1 to [`GenSpec::MOST_BATCH`].
    pub batch: usize,
    /// CPU of the sender.
    pub cpu: Option<CpuId>,
}

impl CaptureSpec {
    /// Sends a capture once as it was captured, within the usual bounds.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            files: vec![file.into()],
            pace: CapturePace::Recorded(1.0),
            rounds: 1,
            pads: false,
            until: Until::default(),
            batch: 64,
            cpu: None,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let refuse = |message: String| Err(BenchError::Options(message));
        if !(1..=GenSpec::MOST_BATCH).contains(&self.batch) {
            return refuse(format!(
                "batch {}: allowed are 1 to {}",
                self.batch,
                GenSpec::MOST_BATCH
            ));
        }
        match self.pace {
            CapturePace::Recorded(speed) if !CapturePace::ALLOWED_SPEED.contains(&speed) => {
                refuse(format!("speed {speed}: allowed are 0.001 to 1000000"))
            }
            CapturePace::Rate(0) => refuse("a rate of 0 packets a second".into()),
            _ => Ok(()),
        }
    }

    fn open(&self) -> Result<Captures, BenchError> {
        for path in &self.files {
            // A pipe may keep the sender waiting for ever, and can be read once only.
            let kind = fs::metadata(path).map(|data| data.file_type());
            if path.as_os_str() == "-" || kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
                let name = path.display();
                let message = format!("{name}: a capture is sent from a file, not from a pipe");
                return Err(BenchError::Options(message));
            }
        }
        Ok(Captures::open(&self.files, &CaptureOptions::default())?)
    }
}

/// What ended the sending of a capture.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// All of it was sent, as often as it should be.
    Complete,
    /// The number of packets.
    Count,
    /// The time.
    Duration,
    /// The watcher.
    Stopped,
    /// All of it was sent, but a file is cut short, so that more may have been meant to be there.
    Truncated,
    /// The capture is damaged or cannot be read on.
    Fault,
}

/// What of a capture was sent, and what became of the rest.
#[derive(Debug, Serialize)]
pub struct CaptureReport {
    /// What was sent.
    pub source: GenReport,
    /// Packets read, over all rounds: those sent and those in `unsent`.
    pub read: u64,
    /// Rounds that were completed.
    pub rounds: u64,
    /// Packets that were not sent.
    pub unsent: Unsent,
    /// What was changed.
    pub rewritten: Rewritten,
    /// How long after they were due packets were handed to the kernel; none where nothing is due.
    pub lateness: Quantiles,
    /// What ended it.
    pub ended: Ended,
    /// Packets that the receiver's device counted.
    pub arrived: u64,
    /// Packets that the sender's device dropped: no room at the other end.
    pub dropped: u64,
    /// What there is to say of the files.
    #[serde(skip)]
    pub notes: Vec<CaptureNote>,
    /// Why the capture could not be read to its end.
    #[serde(skip)]
    pub fault: Option<CaptureError>,
}

/// Sends a capture from one end of a pair to the other, and counts there.
///
/// Nobody reads the packets: what the receiver has no socket for it answers as hosts do, to sources that
/// it mostly has no route to.
///
/// # Errors
/// [`BenchError::Options`]; [`BenchError::Capture`] if a file cannot be opened (one that is damaged
/// further on is [`CaptureReport::fault`]); [`BenchError::Step`] if the kernel refuses.
pub fn send_capture(
    pair: &Pair,
    spec: &CaptureSpec,
    watch: &Watch<'_>,
) -> Result<CaptureReport, BenchError> {
    spec.check()?;
    let captures = spec.open()?;
    let link = Link { source: pair.source_device.mac, sink: pair.sink_device.mac };
    let device = pair.source.device(Pair::SOURCE_DEVICE)?;
    let rewriter = Rewriter::new(link, device.mtu, spec.pads);
    let send = || {
        pair.source.run(|| {
            in_thread(spec.cpu, watch, |progress| {
                let outlet = Outlet::open(device.index, spec.batch, rewriter.longest())?;
                let feed = Feed::new(spec, captures, rewriter);
                pump(spec, feed, outlet, watch, progress)
            })
        })?
    };
    let (mut report, counted) = pair::counted(pair, send, |report| report.source.returned)?;
    (report.arrived, report.dropped) = counted;
    Ok(report)
}

/// Frames of a capture, round after round.
struct Feed<'a> {
    spec: &'a CaptureSpec,
    captures: Captures,
    rewriter: Rewriter,
    timeline: Timeline,
    read: u64,
    rounds: u64,
    /// Whether this round had a packet that can be sent.
    is_fruitful: bool,
    /// The next frame.
    frame: Vec<u8>,
    notes: Vec<CaptureNote>,
}

/// What a capture has next.
enum Next {
    /// A frame, due at this time.
    Frame(u64),
    /// A packet that is not sent.
    Skipped,
    /// No more.
    End,
}

impl<'a> Feed<'a> {
    fn new(spec: &'a CaptureSpec, captures: Captures, rewriter: Rewriter) -> Self {
        Self {
            spec,
            captures,
            rewriter,
            timeline: Timeline::new(spec.pace),
            read: 0,
            rounds: 0,
            is_fruitful: false,
            frame: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn next(&mut self) -> Result<Next, BenchError> {
        if let Some(packet) = self.captures.next_packet()? {
            self.read += 1;
            if !self.rewriter.write(&packet, &mut self.frame) {
                return Ok(Next::Skipped);
            }
            self.is_fruitful = true;
            return Ok(Next::Frame(self.timeline.due(packet.ts_ns)));
        }
        self.rounds += 1;
        // One in which nothing can be sent would come to nothing again.
        if self.rounds == self.spec.rounds || !self.is_fruitful {
            return Ok(Next::End);
        }
        self.notes = self.captures.notes();
        self.captures = self.spec.open()?;
        self.is_fruitful = false;
        self.timeline.next_round();
        Ok(Next::Skipped)
    }

    /// Notes that the round is complete if all of it was read; reads nothing that counts.
    fn end_round(&mut self) {
        self.rounds += u64::from(matches!(self.captures.next_packet(), Ok(None)));
    }

    /// Returns what there is to say of the files, of the round that read most.
    fn notes(self) -> Vec<CaptureNote> {
        if self.notes.is_empty() { self.captures.notes() } else { self.notes }
    }
}

/// Sends each frame when it is due, until a bound is met.
fn pump(
    spec: &CaptureSpec,
    mut feed: Feed<'_>,
    mut outlet: Outlet,
    watch: &Watch<'_>,
    progress: &Progress,
) -> Result<CaptureReport, BenchError> {
    // Timers are let to be late by 50 µs otherwise.
    let _ = nix::sys::prctl::set_timerslack(1);
    let has_times = spec.pace != CapturePace::Fastest;
    let mut total = Sent::default();
    let mut lateness = Latency::default();
    let mut fault = None;
    // When the frame that the feed holds is due, if it holds one.
    let mut next: Option<u64> = None;
    let mut is_over = false;
    let cpu = thread_cpu_time();
    let start = Instant::now();
    let ended = loop {
        let now = start.elapsed();
        if total.packets >= spec.until.count {
            // Whoever asks for whole rounds by the count has them all.
            if !is_over && next.is_none() {
                feed.end_round();
            }
            break Ended::Count;
        }
        if watch.is_stopped() {
            break Ended::Stopped;
        }
        if now >= spec.until.duration {
            break Ended::Duration;
        }
        for _ in 0..LOOKED_AT.max(spec.batch) {
            let wanted = total.packets + (outlet.waiting() as u64) < spec.until.count;
            if is_over || !wanted || !outlet.has_room() {
                break;
            }
            if next.is_none() {
                match feed.next() {
                    Ok(Next::Frame(due)) => next = Some(due),
                    Ok(Next::Skipped) => continue,
                    Ok(Next::End) => is_over = true,
                    Err(BenchError::Capture(error)) => (is_over, fault) = (true, Some(error)),
                    Err(error) => return Err(error),
                }
            }
            let Some(due) = next.filter(|due| *due <= ns(now)) else { break };
            outlet.put(|slot| {
                slot[..feed.frame.len()].copy_from_slice(&feed.frame);
                feed.frame.len()
            });
            if has_times {
                lateness.record(ns(start.elapsed()).saturating_sub(due));
            }
            next = None;
        }
        if outlet.waiting() > 0 {
            let sent = outlet.send(spec.batch).during(|| "send".into())?;
            total.packets += sent.packets;
            total.bytes += sent.bytes;
            total.refusals += sent.refusals;
            total.returned += sent.returned;
            progress.count.store(total.packets, Ordering::Relaxed);
        } else if let Some(due) = next {
            wait_until(start, Duration::from_nanos(due).min(spec.until.duration));
        } else if is_over {
            break if fault.is_some() { Ended::Fault } else { Ended::Complete };
        }
    };
    let elapsed = start.elapsed();
    let (read, rounds) = (feed.read, feed.rounds);
    feed.rewriter.unsent.left = outlet.waiting() as u64 + u64::from(next.is_some());
    let Rewriter { unsent, rewritten, .. } = feed.rewriter;
    let notes = feed.notes();
    let ended = match ended {
        Ended::Complete if notes.iter().any(CaptureNote::is_damage) => Ended::Truncated,
        ended => ended,
    };
    Ok(CaptureReport {
        source: GenReport {
            by: Means::Packet,
            means: outlet.describe(),
            sent: total.packets,
            bytes: total.bytes,
            refusals: total.refusals,
            returned: total.returned,
            behind: 0,
            elapsed,
            cpu: thread_cpu_time().saturating_sub(cpu),
        },
        read,
        rounds,
        unsent,
        rewritten,
        lateness: lateness.quantiles(),
        ended,
        arrived: 0,
        dropped: 0,
        notes,
        fault,
    })
}
