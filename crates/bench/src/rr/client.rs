//! The asking end.
//!
//! Each thread has its flows and one loop: ask what is due, take the answers that came, give up what
//! waited too long.
//!
//! Always true: every request is answered, lost, or skipped, each once; an answer is late or ends one
//! request.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use rxsteer_testbed::{pin_thread, thread_cpu_time};

use super::server::{connect, is_passing};
use super::stream::Stream;
use super::{Latency, Pace, Protocol, RrReport, RrSpec};
use crate::error::During as _;
use crate::threads::{End, join, spawn};
use crate::traffic::FIRST_PORT;
use crate::watch::Progress;
use crate::{BenchError, Watch};

/// Requests that are asked before answers are looked for.
const MOST_AT_ONCE: u32 = 64;

/// How long after the end requests that were due before it are still asked, in ns.
const LATE_NS: u64 = 500_000_000;

/// Most requests of a thread that wait for an answer in an open loop.
const MOST_WAITING: usize = 1 << 20;

/// How often a thread looks for requests to give up.
const LOOK_NS: u64 = 50_000_000;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    due_ns: u64,
    asked_ns: u64,
}

enum Socket {
    Udp { socket: UdpSocket, to: Option<SocketAddr> },
    Tcp(Stream),
}

struct Flow {
    socket: Socket,
    asked: VecDeque<Asked>,
    /// Connection that the server ended.
    is_closed: bool,
}

/// Asks with all threads until a bound is met; `ready` is called before the first request.
pub(super) fn run(
    spec: &RrSpec,
    to: SocketAddr,
    from: Option<IpAddr>,
    watch: &Watch<'_>,
    progress: &Progress,
    ready: &dyn Fn(),
) -> Result<RrReport, BenchError> {
    crate::sink::make_room(2 * spec.flows as usize + spec.client_threads)?;
    let threads = spec.client_threads.min(spec.flows as usize);
    let mut shares: Vec<Vec<Flow>> = (0..threads).map(|_| Vec::new()).collect();
    for index in 0..spec.flows {
        let flow = Flow {
            socket: open(spec, to, from, index).during(|| format!("open a socket to {to}"))?,
            asked: VecDeque::new(),
            is_closed: false,
        };
        shares[index as usize % threads].push(flow);
    }
    ready();
    let start = Instant::now();
    let failed = &AtomicBool::new(false);
    let results: Vec<_> = std::thread::scope(|scope| {
        let end = End(failed);
        let mut askers = Vec::with_capacity(threads);
        for (index, flows) in shares.into_iter().enumerate() {
            let ask = move || {
                let end = End(failed);
                if !spec.client_cpus.is_empty() {
                    let cpu = spec.client_cpus[index % spec.client_cpus.len()];
                    pin_thread(cpu).during(|| format!("run a client thread on CPU {cpu}"))?;
                }
                let asker = Asker::new(spec, flows, (index, threads), start, progress);
                let asker = asker.during(|| "wait for several sockets".into())?;
                let outcome = asker.run(watch, failed)?;
                end.not_yet();
                Ok::<_, BenchError>(outcome)
            };
            askers.push(spawn(scope, threads, ask)?);
        }
        progress.tell(watch, || askers.iter().all(|asker| asker.is_finished()));
        end.not_yet();
        Ok::<_, BenchError>(askers.into_iter().map(join).collect())
    })?;
    let mut report = RrReport {
        transactions: 0,
        lost: 0,
        late: 0,
        skipped: 0,
        refused: 0,
        elapsed: Duration::ZERO,
        latency: Default::default(),
        since_asked: None,
        cpu_time: Duration::ZERO,
    };
    let (mut latency, mut since_asked) = (Latency::default(), Latency::default());
    for result in results {
        let outcome: Outcome = result?;
        report.transactions += outcome.transactions;
        report.lost += outcome.lost;
        report.late += outcome.late;
        report.skipped += outcome.skipped;
        report.refused += outcome.refused;
        report.elapsed = report.elapsed.max(outcome.elapsed);
        report.cpu_time += outcome.cpu_time;
        latency.add(&outcome.latency);
        since_asked.add(&outcome.since_asked);
    }
    report.latency = latency.quantiles();
    report.since_asked = matches!(spec.pace, Pace::Open(_)).then(|| since_asked.quantiles());
    Ok(report)
}

fn open(spec: &RrSpec, to: SocketAddr, from: Option<IpAddr>, index: u32) -> io::Result<Socket> {
    // Outside a pair the kernel chooses, so as not to take the port of another.
    let own = from.map(|from| SocketAddr::new(from, FIRST_PORT + index as u16));
    match spec.protocol {
        Protocol::Tcp => Ok(Socket::Tcp(Stream::new(connect(own, to)?, spec.response_len)?)),
        Protocol::Udp => {
            let any: IpAddr = match to {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind(own.unwrap_or(SocketAddr::new(any, 0)))?;
            socket.set_nonblocking(true)?;
            if spec.connected {
                socket.connect(to)?;
            }
            Ok(Socket::Udp { socket, to: (!spec.connected).then_some(to) })
        }
    }
}

/// Returns the least time of what a client does for a transaction besides its system calls, of several
/// tries, in ns: it looks at the clock, remembers when it asked, and counts.
///
/// # Errors
/// If a socket cannot be opened.
pub(crate) fn bookkeeping(flows: u32) -> io::Result<f64> {
    const TURNS: u32 = 100;
    const TRIES: u32 = 50;
    let (spec, progress) = (RrSpec::default(), Progress::default());
    let flow = |_| -> io::Result<Flow> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let socket = Socket::Udp { socket, to: None };
        Ok(Flow { socket, asked: VecDeque::new(), is_closed: false })
    };
    let all = (0..flows).map(flow).collect::<io::Result<Vec<Flow>>>()?;
    let mut asker = Asker::new(&spec, all, (0, 1), Instant::now(), &progress)?;
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let start = Instant::now();
        for _ in 0..TURNS {
            for index in 0..flows as usize {
                let now = asker.now_ns();
                asker.note(index, now);
                let asked = asker.flows[index].asked.pop_front();
                asker.end(asked);
            }
        }
        let each = start.elapsed().as_nanos() as f64 / f64::from(TURNS * flows.max(1));
        least = least.min(each);
    }
    Ok(least)
}

/// Whether an error says that nobody listens there (udp(7): of an earlier datagram).
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// What a thread measured.
struct Outcome {
    transactions: u64,
    lost: u64,
    late: u64,
    skipped: u64,
    refused: u64,
    elapsed: Duration,
    latency: Latency,
    since_asked: Latency,
    cpu_time: Duration,
}

/// A thread that asks.
struct Asker<'a> {
    spec: &'a RrSpec,
    flows: Vec<Flow>,
    /// Which of how many threads.
    place: (usize, usize),
    start: Instant,
    progress: &'a Progress,
    epoll: Epoll,
    request: Vec<u8>,
    buffer: Vec<u8>,
    next_number: u64,
    /// Flow of the next request in an open loop.
    next_flow: usize,
    waiting: usize,
    outcome: Outcome,
}

impl<'a> Asker<'a> {
    fn new(
        spec: &'a RrSpec,
        flows: Vec<Flow>,
        place: (usize, usize),
        start: Instant,
        progress: &'a Progress,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, flow) in flows.iter().enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
            match &flow.socket {
                Socket::Udp { socket, .. } => epoll.add(socket, event)?,
                Socket::Tcp(stream) => epoll.add(stream.tcp(), event)?,
            }
        }
        Ok(Self {
            spec,
            flows,
            place,
            start,
            progress,
            epoll,
            request: vec![0; spec.request_len],
            buffer: vec![0; 1 << 16],
            next_number: 0,
            next_flow: 0,
            waiting: 0,
            outcome: Outcome {
                transactions: 0,
                lost: 0,
                late: 0,
                skipped: 0,
                refused: 0,
                elapsed: Duration::ZERO,
                latency: Latency::default(),
                since_asked: Latency::default(),
                cpu_time: Duration::ZERO,
            },
        })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(mut self, watch: &Watch<'_>, failed: &AtomicBool) -> Result<Outcome, BenchError> {
        let cpu = thread_cpu_time();
        let end_ns = self.spec.until.duration.as_nanos() as u64;
        let mut events = vec![EpollEvent::empty(); 256];
        let mut look_ns = LOOK_NS;
        let mut is_over = false;
        if self.spec.pace == Pace::Closed {
            let now = self.now_ns();
            for index in 0..self.flows.len() {
                self.ask(index, now).during(|| "ask".into())?;
            }
        }
        loop {
            let now = self.now_ns();
            let until = now.min(end_ns.saturating_sub(1));
            let mut next_due = if is_over { None } else { self.ask_what_is_due(until)? };
            let enough = self.progress.count.load(Ordering::Relaxed) >= self.spec.until.count;
            // What fell due before the end is asked, also by who comes late, but not for ever.
            let is_late = next_due.is_some_and(|due| due <= until) && now < end_ns + LATE_NS;
            if !is_over && (now >= end_ns && !is_late || enough || watch.is_stopped()) {
                is_over = true;
                next_due = None;
                self.skip_what_is_due(until);
                self.outcome.elapsed = self.start.elapsed();
            }
            if is_over && self.waiting == 0 || failed.load(Ordering::Relaxed) {
                break;
            }
            let timeout = match next_due {
                // Too short for a timer of milliseconds: look again at once.
                Some(due) => (due.saturating_sub(self.now_ns()) / 1_000_000).min(50) as u16,
                None => 50,
            };
            let ready = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                ready => ready.during(|| "wait for answers".into())?,
            };
            for event in &events[..ready] {
                let index = event.data() as usize;
                let mut answers = self.take(index).during(|| "take an answer".into())?;
                // In a closed loop there is one at a time; in an open one as many as are asked.
                for _ in 1..MOST_AT_ONCE {
                    if self.spec.pace == Pace::Closed || answers == 0 {
                        break;
                    }
                    answers = self.take(index).during(|| "take an answer".into())?;
                }
                if answers > 0 && self.spec.pace == Pace::Closed && !is_over {
                    let now = self.now_ns();
                    self.ask(index, now).during(|| "ask".into())?;
                }
            }
            let now = self.now_ns();
            if now >= look_ns {
                self.give_up(now, is_over)?;
                look_ns = now + LOOK_NS;
            }
        }
        self.outcome.cpu_time = thread_cpu_time().saturating_sub(cpu);
        Ok(self.outcome)
    }

    /// Asks what is due in an open loop and returns when the next request is.
    ///
    /// Not more than [`MOST_AT_ONCE`], so that answers are taken in between; then the time that is
    /// returned has passed.
    fn ask_what_is_due(&mut self, now: u64) -> Result<Option<u64>, BenchError> {
        let Pace::Open(rate) = self.spec.pace else { return Ok(None) };
        for _ in 0..MOST_AT_ONCE {
            let due = self.next_due(rate);
            if due > now {
                return Ok(Some(due));
            }
            if self.waiting >= MOST_WAITING {
                self.skip_what_is_due(now);
                continue;
            }
            let index = self.next_flow;
            self.next_flow = (index + 1) % self.flows.len();
            self.ask(index, due).during(|| "ask".into())?;
        }
        Ok(Some(self.next_due(rate)))
    }

    /// Returns when the next request falls due: of all, request k at k / rate; this thread has every
    /// so many-th.
    fn next_due(&self, rate: u64) -> u64 {
        let (place, threads) = self.place;
        let k = u128::from(self.next_number) * threads as u128 + place as u128;
        u64::try_from(k * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX)
    }

    /// Counts the requests that are due by `now` and are not asked.
    fn skip_what_is_due(&mut self, now: u64) {
        let Pace::Open(rate) = self.spec.pace else { return };
        let (place, threads) = self.place;
        // The first k that is due later.
        let later = ((u128::from(now) + 1) * u128::from(rate)).div_ceil(1_000_000_000);
        let number = later.saturating_sub(place as u128).div_ceil(threads as u128) as u64;
        self.outcome.skipped += number.saturating_sub(self.next_number);
        self.next_number = self.next_number.max(number);
    }

    /// Notes that a flow asks; `false`: the other end closed it.
    fn note(&mut self, index: usize, due_ns: u64) -> bool {
        let number = self.next_number;
        self.next_number += 1;
        if self.spec.is_numbered() {
            self.request[..RrSpec::NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
        }
        let asked_ns = self.now_ns();
        let flow = &mut self.flows[index];
        if flow.is_closed {
            self.outcome.lost += 1;
            return false;
        }
        flow.asked.push_back(Asked { number, due_ns, asked_ns });
        self.waiting += 1;
        true
    }

    /// Asks a request that was due at this time.
    fn ask(&mut self, index: usize, due_ns: u64) -> io::Result<()> {
        if !self.note(index, due_ns) {
            return Ok(());
        }
        match &mut self.flows[index].socket {
            Socket::Tcp(stream) => {
                stream.send(&self.request)?;
                stream.ask_for_room(&self.epoll, index as u64)
            }
            Socket::Udp { socket, to } => {
                let sent = match to {
                    None => socket.send(&self.request),
                    Some(to) => socket.send_to(&self.request, *to),
                };
                match sent {
                    // A datagram that was not taken is lost as one that was dropped later is.
                    Err(error) if is_passing(&error) => {
                        self.outcome.refused += u64::from(is_refusal(&error));
                        Ok(())
                    }
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
                    sent => sent.map(drop),
                }
            }
        }
    }

    /// Takes what came on a flow and returns how many requests were answered by it.
    fn take(&mut self, index: usize) -> io::Result<usize> {
        let flow = &mut self.flows[index];
        match &mut flow.socket {
            Socket::Tcp(stream) => {
                stream.flush()?;
                stream.ask_for_room(&self.epoll, index as u64)?;
                let Some(messages) = stream.receive(&mut self.buffer)? else {
                    self.close(index);
                    return Ok(0);
                };
                let mut answered = 0;
                for _ in 0..messages {
                    let first = self.flows[index].asked.pop_front();
                    answered += usize::from(self.end(first));
                }
                Ok(answered)
            }
            Socket::Udp { socket, .. } => {
                let len = match socket.recv(&mut self.buffer) {
                    Err(error) if is_passing(&error) => {
                        self.outcome.refused += u64::from(is_refusal(&error));
                        return Ok(0);
                    }
                    len => len?,
                };
                let number = self.buffer.get(..RrSpec::NUMBER_LEN.min(len));
                let number = number.and_then(|b| b.try_into().ok()).map(u64::from_be_bytes);
                let place = match number {
                    Some(number) if self.spec.is_numbered() => {
                        flow.asked.iter().position(|asked| asked.number == number)
                    }
                    _ => (!flow.asked.is_empty()).then_some(0),
                };
                let ended = place.and_then(|place| flow.asked.remove(place));
                Ok(usize::from(self.end(ended)))
            }
        }
    }

    /// Records the end of a request; whether there was one.
    fn end(&mut self, asked: Option<Asked>) -> bool {
        let Some(asked) = asked else {
            self.outcome.late += 1;
            return false;
        };
        let now = self.now_ns();
        self.waiting -= 1;
        self.outcome.transactions += 1;
        self.outcome.latency.record(now.saturating_sub(asked.due_ns));
        self.outcome.since_asked.record(now.saturating_sub(asked.asked_ns));
        self.progress.count.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The server has ended a connection: what was asked on it is lost.
    fn close(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        flow.is_closed = true;
        let lost = flow.asked.len();
        flow.asked.clear();
        if let Socket::Tcp(stream) = &flow.socket {
            let _ = self.epoll.delete(stream.tcp());
        }
        self.waiting -= lost;
        self.outcome.lost += lost as u64;
        self.progress.lost.fetch_add(lost as u64, Ordering::Relaxed);
    }

    /// Gives up what waited too long; a flow of a closed loop asks again.
    fn give_up(&mut self, now: u64, is_over: bool) -> Result<(), BenchError> {
        let patience = self.spec.patience.as_nanos() as u64;
        for index in 0..self.flows.len() {
            let flow = &mut self.flows[index];
            // A connection loses nothing; it may only be slow.
            if matches!(flow.socket, Socket::Tcp(_)) && !is_over {
                continue;
            }
            let before = flow.asked.len();
            flow.asked.retain(|asked| now.saturating_sub(asked.asked_ns) < patience);
            let lost = before - flow.asked.len();
            self.waiting -= lost;
            self.outcome.lost += lost as u64;
            self.progress.lost.fetch_add(lost as u64, Ordering::Relaxed);
            if lost > 0 && self.spec.pace == Pace::Closed && !is_over {
                self.ask(index, now).during(|| "ask".into())?;
            }
        }
        Ok(())
    }
}
