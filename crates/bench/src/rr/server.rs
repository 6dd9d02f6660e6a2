//! The answering end.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};
use rxsteer_testbed::{pin_thread, thread_cpu_time};
use serde::Serialize;

use super::stream::Stream;
use super::{Protocol, RrSpec};
use crate::error::During as _;
use crate::source::as_ns;
use crate::threads::{End, join, spawn};
use crate::watch::Progress;
use crate::{BenchError, Permit};

/// How long a thread waits before it looks whether the run is over, in ms.
const PATIENCE_MS: u16 = 50;

/// What the answering end did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ServerReport {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests from addresses that were not named, which got no answer.
    pub refused: u64,
    /// Answers that the kernel did not take.
    pub failed: u64,
    /// CPU time of the answering threads.
    #[serde(rename = "cpu_ns", serialize_with = "as_ns")]
    pub cpu_time: Duration,
}

/// A socket of a thread.
enum Socket {
    /// Datagrams of anyone, or of one peer.
    Udp(UdpSocket),
    /// A connection.
    Tcp(Stream),
}

/// A thread's sockets and what it waits with. The accepting thread adds to them.
struct Group {
    epoll: Epoll,
    sockets: Mutex<Vec<Socket>>,
}

impl Group {
    fn add(&self, socket: Socket) -> io::Result<()> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let event = EpollEvent::new(EpollFlags::EPOLLIN, sockets.len() as u64);
        match &socket {
            Socket::Udp(socket) => self.epoll.add(socket, event)?,
            Socket::Tcp(stream) => self.epoll.add(stream.tcp(), event)?,
        }
        sockets.push(socket);
        Ok(())
    }
}

/// The answering end, ready to answer.
pub(super) struct Server<'a> {
    spec: &'a RrSpec,
    permit: Option<&'a Permit>,
    groups: Vec<Group>,
    listener: Option<TcpListener>,
}

impl<'a> Server<'a> {
    /// Opens its sockets: for each of the peers a connected one, or one for all.
    pub(super) fn open(
        spec: &'a RrSpec,
        at: SocketAddr,
        peers: &[SocketAddr],
        permit: Option<&'a Permit>,
    ) -> Result<Self, BenchError> {
        crate::sink::make_room(2 * spec.flows as usize + spec.server_threads)?;
        let mut groups = Vec::new();
        for _ in 0..spec.server_threads {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
            let epoll = epoll.during(|| "wait for several sockets".into())?;
            groups.push(Group { epoll, sockets: Mutex::default() });
        }
        let mut server = Self { spec, permit, groups, listener: None };
        let doing = || format!("answer at {at}");
        match spec.protocol {
            Protocol::Tcp => server.listener = Some(listener(at).during(doing)?),
            Protocol::Udp if peers.is_empty() => {
                let shared = udp(at, None).during(doing)?;
                for group in &server.groups {
                    let socket = Socket::Udp(shared.try_clone().during(doing)?);
                    group.add(socket).during(doing)?;
                }
            }
            Protocol::Udp => {
                for (index, peer) in peers.iter().enumerate() {
                    let socket = Socket::Udp(udp(at, Some(*peer)).during(doing)?);
                    server.groups[index % spec.server_threads].add(socket).during(doing)?;
                }
            }
        }
        Ok(server)
    }

    /// Answers while `meanwhile` runs.
    pub(super) fn run<T: Send>(
        &self,
        progress: &Progress,
        over: &AtomicBool,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Result<ServerReport, BenchError>, T), BenchError> {
        std::thread::scope(|scope| {
            // Also where a thread cannot be started, or `meanwhile` panics.
            let end = End(over);
            let count = self.groups.len() + usize::from(self.listener.is_some());
            let mut threads = Vec::with_capacity(count);
            for (index, group) in self.groups.iter().enumerate() {
                let answer = move || self.answer(index, group, progress, over);
                threads.push(spawn(scope, count, answer)?);
            }
            let accept = |listener| spawn(scope, count, move || self.accept(listener, over));
            let acceptor = self.listener.as_ref().map(accept).transpose()?;
            let made = meanwhile();
            drop(end);
            let mut all = ServerReport::default();
            let mut failed = None;
            for thread in threads {
                match join(thread) {
                    Ok(report) => {
                        all.answered += report.answered;
                        all.refused += report.refused;
                        all.failed += report.failed;
                        all.cpu_time += report.cpu_time;
                    }
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }
            if let Some(acceptor) = acceptor {
                match join(acceptor).during(|| "accept connections".into()) {
                    Ok(refused) => all.refused += refused,
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }
            Ok((failed.map_or(Ok(all), Err), made))
        })
    }

    /// Gives each connection to the next thread; returns how many were refused.
    fn accept(&self, listener: &TcpListener, over: &AtomicBool) -> io::Result<u64> {
        let (mut next, mut refused) = (0, 0);
        while !over.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((tcp, peer)) => {
                    if self.permit.is_some_and(|permit| permit.check(peer.ip()).is_err()) {
                        refused += 1;
                        continue;
                    }
                    let stream = Stream::new(tcp, self.spec.request_len)?;
                    self.groups[next % self.groups.len()].add(Socket::Tcp(stream))?;
                    next += 1;
                }
                Err(error) => match error.kind() {
                    // The time-out of the socket: look whether it is over.
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(refused)
    }

    fn answer(
        &self,
        index: usize,
        group: &Group,
        progress: &Progress,
        over: &AtomicBool,
    ) -> Result<ServerReport, BenchError> {
        if !self.spec.server_cpus.is_empty() {
            let cpu = self.spec.server_cpus[index % self.spec.server_cpus.len()];
            pin_thread(cpu).during(|| format!("run a server thread on CPU {cpu}"))?;
        }
        let start = thread_cpu_time();
        let mut report = ServerReport::default();
        let mut buffer = vec![0; RrSpec::LARGEST.max(1 << 16)];
        let mut response = vec![0; self.spec.response_len];
        let mut events = vec![EpollEvent::empty(); 256];
        let mut to_delay = self.spec.delay.map_or(0, |delay| delay.every);
        while !over.load(Ordering::Relaxed) {
            let ready = match group.epoll.wait(&mut events, PATIENCE_MS) {
                Err(Errno::EINTR) => continue,
                ready => ready.during(|| "wait for requests".into())?,
            };
            let mut sockets = group.sockets.lock().unwrap_or_else(PoisonError::into_inner);
            for event in &events[..ready] {
                let place = event.data() as usize;
                let before = report.answered;
                let socket = &mut sockets[place];
                let mut delay = || {
                    let Some(delay) = self.spec.delay else { return };
                    to_delay -= 1;
                    if to_delay == 0 {
                        to_delay = delay.every;
                        std::thread::sleep(delay.time);
                    }
                };
                match socket {
                    Socket::Udp(socket) => {
                        self.udp(socket, &mut buffer, &mut response, &mut report, &mut delay)
                            .during(|| "answer a datagram".into())?;
                    }
                    Socket::Tcp(stream) => {
                        let goes_on =
                            self.tcp(stream, &mut buffer, &response, &mut report, &mut delay)
                                && stream.ask_for_room(&group.epoll, event.data()).is_ok();
                        if !goes_on {
                            // Its place stays, so that the numbers of the others do.
                            let _ = group.epoll.delete(stream.tcp());
                        }
                    }
                }
                progress.count.fetch_add(report.answered - before, Ordering::Relaxed);
            }
        }
        report.cpu_time = thread_cpu_time().saturating_sub(start);
        Ok(report)
    }

    /// Answers one datagram, if one is there.
    fn udp(
        &self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        response: &mut [u8],
        report: &mut ServerReport,
        delay: &mut dyn FnMut(),
    ) -> io::Result<()> {
        let (len, peer) = match socket.recv_from(buffer) {
            Err(error) if is_passing(&error) => return Ok(()),
            got => got?,
        };
        if self.permit.is_some_and(|permit| permit.check(peer.ip()).is_err()) {
            report.refused += 1;
            return Ok(());
        }
        delay();
        // The number of the request, where there is room for one.
        let number = len.min(response.len()).min(RrSpec::NUMBER_LEN);
        response[..number].copy_from_slice(&buffer[..number]);
        match socket.send_to(response, peer) {
            Ok(_) => report.answered += 1,
            Err(_) => report.failed += 1,
        }
        Ok(())
    }

    /// Answers the requests that are complete; whether the connection goes on.
    fn tcp(
        &self,
        stream: &mut Stream,
        buffer: &mut [u8],
        response: &[u8],
        report: &mut ServerReport,
        delay: &mut dyn FnMut(),
    ) -> bool {
        let Ok(Some(requests)) = stream.receive(buffer) else { return false };
        if stream.flush().is_err() {
            return false;
        }
        for _ in 0..requests {
            delay();
            match stream.send(response) {
                Ok(()) => report.answered += 1,
                Err(_) => {
                    report.failed += 1;
                    return false;
                }
            }
        }
        true
    }
}

/// Whether a read only found nothing, or the error of another datagram (ICMP).
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
    )
}

fn udp(at: SocketAddr, peer: Option<SocketAddr>) -> io::Result<UdpSocket> {
    let fd = open(at, SockType::Datagram)?;
    // Each connected socket is bound to the same port.
    setsockopt(&fd, sockopt::ReuseAddr, &peer.is_some())?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    let socket = UdpSocket::from(fd);
    socket.set_nonblocking(true)?;
    if let Some(peer) = peer {
        socket.connect(peer)?;
    }
    Ok(socket)
}

fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let fd = open(at, SockType::Stream)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&fd.as_fd(), Backlog::new(4096).unwrap_or(Backlog::MAXCONN))?;
    let patience = nix::sys::time::TimeVal::new(0, i64::from(PATIENCE_MS) * 1000);
    setsockopt(&fd, sockopt::ReceiveTimeout, &patience)?;
    Ok(TcpListener::from(fd))
}

fn open(at: SocketAddr, kind: SockType) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    Ok(socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?)
}

/// Opens a connection from a source address and port of our own, or of the kernel's choice.
pub(super) fn connect(from: Option<SocketAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let fd = open(to, SockType::Stream)?;
    if let Some(from) = from {
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        // Ends with a reset: the port of a connection that waits for its end (RFC 9293, TIME-WAIT) is
        // not there for the next run.
        setsockopt(&fd, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(from))?;
    }
    nix::sys::socket::connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(fd))
}
