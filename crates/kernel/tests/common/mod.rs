//! What the live tests of steering share: a link, an attachment to its receiving end, sockets.
#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and may fail")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use rxsteer_core::steer::Reason;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_kernel::{Attachment, Counters, Settings, missing_capabilities};
use rxsteer_testbed::{Pair, PairSpec, Testbed, TestbedError, allowed_cpus};

pub(crate) mod load;

/// How long a test waits for what must come.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// A link whose receiving end is steered.
pub(crate) struct Rig {
    pub(crate) attachment: Attachment,
    pub(crate) pair: Pair,
    pub(crate) cpus: Vec<CpuId>,
}

/// Returns a link; `None`, and says why, where this process may not have one.
pub(crate) fn pair(test: &str) -> Option<Pair> {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        Err(TestbedError::Privilege(missing)) => {
            eprintln!("skipped {test}: {missing}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let missing = missing_capabilities();
    if !missing.is_empty() {
        eprintln!("skipped {test}: this process lacks {missing:?}");
        return None;
    }
    Some(Pair::new(&testbed, &PairSpec::default()).unwrap())
}

/// Returns a steered link with at least `cpus` CPUs; `None`, and says why, where there is none.
pub(crate) fn rig(
    test: &str,
    cpus: usize,
    change: impl FnOnce(&mut Settings) + Send,
) -> Option<Rig> {
    let pair = pair(test)?;
    let allowed = allowed_cpus().unwrap();
    let list: Vec<CpuId> = allowed.iter().collect();
    if list.len() < cpus {
        eprintln!("skipped {test}: needs {cpus} CPUs, this process may use {}", list.len());
        return None;
    }
    let mut settings = Settings::new(Pair::SINK_DEVICE, allowed);
    change(&mut settings);
    let attachment = pair.sink.run(|| Attachment::new(settings)).unwrap().unwrap();
    Some(Rig { attachment, pair, cpus: list })
}

/// Returns a set of one CPU.
pub(crate) fn only(cpu: CpuId) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    set.insert(cpu);
    set
}

/// Makes a UDP socket in the receiver's namespace that nobody is connected to.
pub(crate) fn receiver(pair: &Pair, address: IpAddr) -> UdpSocket {
    let socket = pair.sink.run(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    socket
}

/// Makes a UDP socket in the sender's namespace, connected to `to`.
pub(crate) fn sender(pair: &Pair, from: IpAddr, to: SocketAddr) -> UdpSocket {
    let socket = pair.source.run(|| UdpSocket::bind((from, 0)).unwrap()).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// Makes two UDP sockets that are connected to each other: receiver, sender.
pub(crate) fn connected(pair: &Pair, v6: bool) -> (UdpSocket, UdpSocket) {
    let (from, to) = if v6 {
        (IpAddr::V6(Pair::SOURCE_V6), IpAddr::V6(Pair::SINK_V6))
    } else {
        (IpAddr::V4(Pair::SOURCE_V4), IpAddr::V4(Pair::SINK_V4))
    };
    let receiver = receiver(pair, to);
    let sender = sender(pair, from, receiver.local_addr().unwrap());
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    (receiver, sender)
}

/// Returns the CPU that put the last packet into a socket's receive queue, as the kernel says it.
pub(crate) fn incoming_cpu(socket: &UdpSocket) -> CpuId {
    let mut cpu: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: writes at most `len` bytes into memory of ours.
    let said = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut cpu).cast(),
            &raw mut len,
        )
    };
    assert_eq!(said, 0, "{}", std::io::Error::last_os_error());
    CpuId(u16::try_from(cpu).unwrap())
}

/// Takes the peer away from a UDP socket.
pub(crate) fn disconnect(socket: &UdpSocket) {
    let nobody =
        libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: an address of that length, which outlives the call.
    let said = unsafe {
        libc::connect(socket.as_raw_fd(), &raw const nobody, size_of_val(&nobody) as u32)
    };
    assert_eq!(said, 0, "{}", std::io::Error::last_os_error());
}

/// Waits until something is so; fails with what it was last if that never comes.
pub(crate) fn until<T: std::fmt::Debug>(
    mut look: impl FnMut() -> T,
    is_so: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + WAIT;
    loop {
        let seen = look();
        if is_so(&seen) {
            return seen;
        }
        assert!(Instant::now() < end, "it stays {seen:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every packet has one reason, and what was sent to a CPU is there, or is lost by name.
pub(crate) fn assert_sums(counters: &Counters) {
    let steered: u64 = Reason::ALL
        .into_iter()
        .filter(|reason| !matches!(reason, Reason::Local | Reason::Shed))
        .map(|reason| counters.reason(reason))
        .sum();
    let taken: u64 = counters.cpus.iter().map(|(_, cpu)| cpu.taken).sum();
    let lost: u64 = counters.cpus.iter().map(|(_, cpu)| cpu.lost_full + cpu.lost_refused).sum();
    assert_eq!(steered, taken + lost, "{counters:?}");
    let arrived: u64 = counters.arrived.iter().map(|(_, count)| count).sum();
    assert_eq!(arrived, counters.seen(), "{counters:?}");
}

/// Waits until no packet is on its way, and returns what was counted.
pub(crate) fn settled(rig: &Rig) -> Counters {
    settled_of(&rig.attachment)
}

/// The same, without a rig.
pub(crate) fn settled_of(attachment: &Attachment) -> Counters {
    until(
        || attachment.counters().unwrap(),
        |counters| counters.cpus.iter().all(|(_, cpu)| cpu.waiting() == 0),
    )
}

/// Returns a counter of TCP that is not in the standard's tables, of the calling thread's namespace.
pub(crate) fn tcp_extended(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|this| this == name).unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

/// Makes a UDP socket in the receiver's namespace that shares its port with others of its kind.
pub(crate) fn sharing(pair: &Pair, address: SocketAddr) -> UdpSocket {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
    };
    let make = || {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let made = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
        setsockopt(&made, sockopt::ReusePort, &true).unwrap();
        bind(made.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
        UdpSocket::from(made)
    };
    let socket = pair.sink.run(make).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    socket
}
