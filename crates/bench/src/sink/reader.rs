//! The loop of one reader.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::EpollEvent;
use rxsteer_core::CpuId;
use rxsteer_testbed::{pin_thread, thread_cpu_time};
use serde::Serialize;

use super::sockets::{Group, PATIENCE_MS, slot_len};
use super::work::Work;
use super::{Call, SinkSpec};
use crate::error::During as _;
use crate::source::as_ns;
use crate::watch::Progress;
use crate::{BenchError, sys};

/// What a reader got.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Reader {
    /// Its CPU, if it was bound to one.
    pub cpu: Option<u16>,
    /// Its sockets.
    pub sockets: usize,
    /// Datagrams.
    pub received: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Messages, each of one datagram or of several that the kernel merged.
    pub messages: u64,
    /// System calls that brought something.
    pub calls: u64,
    /// Drops of its sockets as told with the datagrams (`SO_RXQ_OVFL`); those after the last datagram
    /// are not among them. 0 with `recv`, and of no meaning where readers share a socket.
    pub told_drops: u64,
    /// CPU time.
    #[serde(rename = "cpu_ns", serialize_with = "as_ns")]
    pub cpu_time: Duration,
}

/// When the first and the last datagram were read.
pub(super) type Span = Option<(Instant, Instant)>;

/// Reads until the run is over and then nothing came for a while.
pub(super) fn read(
    group: &Group,
    spec: &SinkSpec,
    (cpu, work): (Option<CpuId>, Work),
    progress: &Progress,
    over: &AtomicBool,
) -> Result<(Reader, Span), BenchError> {
    if let Some(cpu) = cpu {
        pin_thread(cpu).during(|| format!("run a reader on CPU {cpu}"))?;
    }
    let count = if spec.call == Call::Recvmmsg { spec.batch } else { 1 };
    let mut state = State {
        spec,
        batch: sys::Batch::new(count, slot_len(spec)).during(|| "make buffers".into())?,
        bytes: vec![0; slot_len(spec)],
        told: vec![0; group.sockets.len()],
        reader: Reader {
            cpu: cpu.map(|cpu| cpu.0),
            sockets: group.sockets.len(),
            ..Reader::default()
        },
        span: None,
        work,
        worked_on: 0,
        progress,
    };
    let start = thread_cpu_time();
    let result = match (spec.call, &group.epoll) {
        (Call::IoUring, _) => {
            let sockets = group.sockets.iter().map(|socket| socket.as_fd()).collect();
            // With fewer it would stop and be asked anew all the time.
            let buffers = spec.batch.max(8).next_power_of_two() as u16;
            let ring = sys::Uring::open(sockets, buffers, slot_len(spec));
            match ring {
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Err(error),
                ring => state.ring(ring.map_err(BenchError::NoIoUring)?, over),
            }
        }
        (_, None) => state.one(&group.sockets[0], over),
        (_, Some(epoll)) => state.several(epoll, group, over),
    };
    result.during(|| "read a UDP socket".into())?;
    state.reader.cpu_time = thread_cpu_time().saturating_sub(start);
    state.reader.told_drops = state.told.iter().copied().map(u64::from).sum();
    Ok((state.reader, state.span))
}

struct State<'a> {
    spec: &'a SinkSpec,
    batch: sys::Batch,
    bytes: Vec<u8>,
    /// The last drop count told by each socket.
    told: Vec<u32>,
    reader: Reader,
    span: Span,
    work: Work,
    /// Datagrams that were worked on.
    worked_on: u64,
    progress: &'a Progress,
}

impl State<'_> {
    fn one(&mut self, socket: &UdpSocket, over: &AtomicBool) -> io::Result<()> {
        loop {
            let was_over = over.load(Ordering::Relaxed);
            let found = self.take(socket, 0, false)?;
            if self.is_end(found, was_over) {
                return Ok(());
            }
        }
    }

    fn several(
        &mut self,
        epoll: &nix::sys::epoll::Epoll,
        group: &Group,
        over: &AtomicBool,
    ) -> io::Result<()> {
        let mut events = vec![EpollEvent::empty(); 256];
        loop {
            let was_over = over.load(Ordering::Relaxed);
            let ready = match epoll.wait(&mut events, PATIENCE_MS as u16) {
                Err(Errno::EINTR) => continue,
                ready => ready?,
            };
            if self.is_end(ready > 0, was_over) {
                return Ok(());
            }
            for event in &events[..ready] {
                let index = event.data() as usize;
                // Once each: what is left makes it ready again.
                self.take(&group.sockets[index], index, true)?;
            }
        }
    }

    fn ring(&mut self, mut ring: sys::Uring<'_>, over: &AtomicBool) -> io::Result<()> {
        let patience = Duration::from_millis(PATIENCE_MS as u64);
        loop {
            let was_over = over.load(Ordering::Relaxed);
            let mut received = 0;
            let messages = ring.receive(patience, |message| {
                let sys::Message { socket, len, segment_len, overflow } = message;
                received += self.one_message(socket, len, segment_len, overflow);
            })?;
            if let Some(messages @ 1..) = messages {
                self.progress.count.fetch_add(received, Ordering::Relaxed);
                self.one_call(messages);
            }
            if self.is_end(messages.is_some(), was_over) {
                return Ok(());
            }
        }
    }

    /// Returns whether to end, after a look that found something or nothing.
    ///
    /// What the own source sent is read to the last; others may send for ever.
    fn is_end(&self, found: bool, was_over: bool) -> bool {
        was_over && (!found || self.spec.listens_outside)
    }

    /// Reads once; whether anything was there.
    fn take(&mut self, socket: &UdpSocket, index: usize, at_once: bool) -> io::Result<bool> {
        let result = match self.spec.call {
            Call::Recv => socket.recv(&mut self.bytes).map(|len| {
                self.reader.received += 1;
                self.reader.bytes += len as u64;
                self.progress.count.fetch_add(1, Ordering::Relaxed);
                1
            }),
            Call::Recvmsg => self.batch.receive_one(socket.as_fd()).map(|()| 1),
            Call::Recvmmsg => {
                let flags = if at_once { libc::MSG_DONTWAIT } else { libc::MSG_WAITFORONE };
                self.batch.receive(socket.as_fd(), self.spec.batch, flags)
            }
            Call::IoUring => unreachable!("a ring reads by itself"),
        };
        let messages = match result {
            Ok(messages) => messages,
            Err(error) if is_nothing(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.spec.call != Call::Recv {
            self.count(messages, index);
        }
        self.one_call(messages);
        Ok(messages > 0)
    }

    /// Notes a system call that brought so many messages.
    fn one_call(&mut self, messages: usize) {
        self.reader.messages += messages as u64;
        self.reader.calls += 1;
        let now = Instant::now();
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        self.work.on(self.reader.received - self.worked_on);
        self.worked_on = self.reader.received;
    }

    fn count(&mut self, messages: usize, index: usize) {
        let mut received = 0;
        for message in 0..messages {
            let (len, segment) = (self.batch.len(message), self.batch.segment_len(message));
            received += self.one_message(index, len, segment, self.batch.overflow(message));
        }
        self.progress.count.fetch_add(received, Ordering::Relaxed);
    }

    /// Notes a message, and returns how many datagrams it is of.
    fn one_message(
        &mut self,
        socket: usize,
        len: usize,
        segment_len: Option<usize>,
        overflow: Option<u32>,
    ) -> u64 {
        let received = match segment_len {
            Some(segment) if segment > 0 => len.div_ceil(segment).max(1) as u64,
            _ => 1,
        };
        self.reader.received += received;
        self.reader.bytes += len as u64;
        if let Some(drops) = overflow {
            self.told[socket] = drops;
        }
        received
    }
}

/// Whether a read only found nothing, or the error of another datagram (ICMP).
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SinkSpec, Until, Watch, receive};

    /// Has the kernel refuse io_uring to the calling thread and those that it starts, as the filters of
    /// containers do.
    fn refuse_io_uring() {
        use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
        let step = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut steps = [
            // The number of the system call comes first (seccomp(2)).
            step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
            step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
            step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        nix::sys::prctl::set_no_new_privs().unwrap();
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program and its steps live for the call, in which the kernel copies them.
        let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_filter_that_refuses_io_uring_is_a_clear_error() {
        let stop = AtomicBool::new(false);
        let until = Until { count: 1, duration: Duration::from_secs(20) };
        let spec = SinkSpec {
            call: Call::IoUring,
            until,
            listens_outside: true,
            ..SinkSpec::new("127.0.0.1:0".parse().unwrap())
        };
        let refused = std::thread::scope(|scope| {
            let run = || {
                refuse_io_uring();
                receive(&spec, &Watch { stop: &stop, on_second: &|_| {} })
            };
            scope.spawn(run).join().unwrap().unwrap_err()
        });
        assert!(matches!(refused, BenchError::NoIoUring(_)), "{refused}");
        let said = refused.to_string();
        assert!(said.contains("Operation not permitted") && said.contains("seccomp"), "{said}");
    }
}
