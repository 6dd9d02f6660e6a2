//! What applications do besides reading: sending, and learning which socket has something to read.
//!
//! A client and a server, each on its CPU, take turns: while one answers all of its connections, the other
//! waits, so nothing is done at the same time and what is sent is received within the call that sends it.
//! The turn of one of them is a send, the way to the other socket, and a read of what the other CPU sent;
//! what the way and the read take is known by then.
//!
//! Source: epoll(7).

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use rxsteer_core::CpuId;
use rxsteer_testbed::{Pair, pin_thread};

use super::processing::Steps;
use super::{Cost, difference};
use crate::BenchError;
use crate::error::During as _;

/// Connections: as many answers as a server finds at once.
const FLOWS: usize = 64;

/// Turns of each end, of which the median counts: what another CPU does to caches is no noise.
const TURNS: u64 = 1001;

/// What was measured of sending.
pub(super) struct Sending {
    /// Protocol work on a TCP packet.
    pub(super) costs: Vec<Cost>,
    /// What applications spend.
    pub(super) application: Vec<Cost>,
}

pub(super) fn measure(
    pair: &Pair,
    cpus: (CpuId, CpuId),
    steps: &Steps,
    read_ns: u32,
    stop: &AtomicBool,
) -> Result<Sending, BenchError> {
    let udp = udp_ends(pair)?;
    let plain = median(&udp, cpus, false, stop)?;
    let waited = median(&udp, cpus, true, stop)?;
    drop(udp);
    let tcp = median(&tcp_ends(pair)?, cpus, false, stop)?;
    let way = steps.interrupt + steps.take + steps.protocol_udp + f64::from(read_ns);
    let send_udp = plain - way;
    let more = (tcp - plain).max(0.0) / 2.0;
    let client = super::on(cpus.0, || {
        crate::rr::bookkeeping(FLOWS as u32).during(|| "keep a client's books".into())
    })?;
    let cost = |name, ns: f64, how| Cost { name, ns: difference(ns, 0.0), how };
    Ok(Sending {
        costs: vec![cost(
            "protocol_tcp",
            steps.protocol_udp + more,
            "protocol_udp, and half of what an end of TCP connections takes more than one of UDP flows",
        )],
        application: vec![
            cost("send_udp", send_udp, "a turn of one end, without the way and the read"),
            cost("send_tcp", send_udp + more, "the same, and half of what TCP takes more"),
            cost("ready", waited - plain, "being told of a socket by epoll, 64 with a call"),
            cost(
                "client",
                client,
                "what a client of bench rr does for each answer besides: the clock, its books",
            ),
        ],
    })
}

/// An end of a connection.
trait End: std::os::fd::AsFd + Sync {
    fn say(&self) -> io::Result<()>;
    fn hear(&self) -> io::Result<()>;
}

impl End for UdpSocket {
    fn say(&self) -> io::Result<()> {
        self.send(&[1]).map(drop)
    }

    fn hear(&self) -> io::Result<()> {
        self.recv(&mut [0; 64]).map(drop)
    }
}

impl End for TcpStream {
    fn say(&self) -> io::Result<()> {
        (&mut &*self).write_all(&[1])
    }

    fn hear(&self) -> io::Result<()> {
        (&mut &*self).read_exact(&mut [0])
    }
}

/// Returns the median time of one connection in a turn, of both ends in the mean, in ns.
fn median<T: End>(
    ends: &Ends<T>,
    (cpu, other): (CpuId, CpuId),
    waits: bool,
    stop: &AtomicBool,
) -> Result<f64, BenchError> {
    let turn = AtomicU64::new(0);
    let play = |cpu: CpuId, own: Vec<&T>, parity: u64| -> Result<Duration, BenchError> {
        pin_thread(cpu).during(|| format!("measure on CPU {cpu}"))?;
        let play = Play { turn: &turn, parity, stop };
        // One that fails must not let the other wait for ever.
        play.all(&own, waits).inspect_err(|_| turn.store(u64::MAX, Ordering::Release))
    };
    let (here, there): (Vec<&T>, Vec<&T>) = ends.iter().map(|(here, there)| (here, there)).unzip();
    // What the first turn answers.
    here.iter().try_for_each(|end| end.say()).during(|| "send".into())?;
    let (one, two) = std::thread::scope(|scope| {
        let server = scope.spawn(|| play(other, there, 0));
        let client = scope.spawn(|| play(cpu, here, 1));
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (join(server), join(client))
    });
    // All are answered but for the last turn, which is for who comes next.
    let (one, two) = (one?, two?);
    ends.iter().try_for_each(|(_, there)| there.hear()).during(|| "receive".into())?;
    Ok((one + two).as_nanos() as f64 / 2.0 / FLOWS as f64)
}

/// One end of all connections.
struct Play<'a> {
    turn: &'a AtomicU64,
    parity: u64,
    stop: &'a AtomicBool,
}

impl Play<'_> {
    /// Plays all turns of this end and returns the median of their times.
    fn all<T: End>(&self, own: &[&T], waits: bool) -> Result<Duration, BenchError> {
        let epoll = if waits { Some(wait_for(own)?) } else { None };
        let mut times = Vec::new();
        for number in 0..TURNS {
            let mine = 2 * number + self.parity;
            loop {
                match self.turn.load(Ordering::Acquire) {
                    now if now == mine => break,
                    u64::MAX => return Err(BenchError::Stopped("all steps were measured")),
                    _ => std::hint::spin_loop(),
                }
            }
            super::go_on(self.stop)?;
            let start = Instant::now();
            answer(own, epoll.as_ref()).during(|| "send and receive".into())?;
            times.push(start.elapsed());
            self.turn.store(mine + 1, Ordering::Release);
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }
}

/// Answers on every connection.
fn answer<T: End>(own: &[&T], epoll: Option<&Epoll>) -> io::Result<()> {
    let answer = |end: &T| end.hear().and_then(|()| end.say());
    let Some(epoll) = epoll else { return own.iter().try_for_each(|end| answer(end)) };
    let mut events = [EpollEvent::empty(); FLOWS];
    let mut answered = 0;
    while answered < own.len() {
        let ready = epoll.wait(&mut events, 1000u16)?;
        if ready == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for event in &events[..ready] {
            answer(own[event.data() as usize])?;
        }
        answered += ready;
    }
    Ok(())
}

fn wait_for<T: End>(own: &[&T]) -> Result<Epoll, BenchError> {
    let make = || -> io::Result<Epoll> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, end) in own.iter().enumerate() {
            epoll.add(*end, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        }
        Ok(epoll)
    };
    make().during(|| "wait for several sockets".into())
}

type Ends<T> = Vec<(T, T)>;

fn udp_ends(pair: &Pair) -> Result<Ends<UdpSocket>, BenchError> {
    let bind = |at: std::net::Ipv4Addr| UdpSocket::bind(SocketAddr::new(at.into(), 0));
    let make = || -> io::Result<(UdpSocket, UdpSocket)> {
        let here = pair.source.run(|| bind(Pair::SOURCE_V4)).map_err(io::Error::other)??;
        let there = pair.sink.run(|| bind(Pair::SINK_V4)).map_err(io::Error::other)??;
        here.connect(there.local_addr()?)?;
        there.connect(here.local_addr()?)?;
        Ok((here, there))
    };
    (0..FLOWS).map(|_| make().during(|| "open UDP sockets".into())).collect()
}

fn tcp_ends(pair: &Pair) -> Result<Ends<TcpStream>, BenchError> {
    let make = || -> io::Result<Ends<TcpStream>> {
        let at = SocketAddr::new(Pair::SINK_V4.into(), 0);
        let listener = pair.sink.run(|| TcpListener::bind(at)).map_err(io::Error::other)??;
        let to = listener.local_addr()?;
        let connect = |_| {
            let here = pair.source.run(|| TcpStream::connect(to)).map_err(io::Error::other)??;
            let (there, _) = listener.accept()?;
            here.set_nodelay(true)?;
            there.set_nodelay(true)?;
            Ok((here, there))
        };
        (0..FLOWS).map(connect).collect()
    };
    make().during(|| "open TCP connections".into())
}
