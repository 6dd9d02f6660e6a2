//! The host that is asked: a network namespace with all addresses on `lo`, senders, CPUs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use rustix::thread::{UnshareFlags, sched_getaffinity};
use rxsteer_sockets::HASH4;
use socket2::SockRef;

/// The first release whose rules these are.
const RELEASE: (u32, u32) = (6, 18);

/// Ports of the peers that send to the sockets under test, and of the sentinel.
pub(crate) const PEER_PORTS: [u16; 2] = [7001, 7002];
const SENTINEL_PORT: u16 = 7999;

pub(crate) const V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(10, 77, 0, 1),
    Ipv4Addr::new(10, 77, 0, 2),
    Ipv4Addr::new(127, 0, 0, 6), // stands in for "no IPv4 address" in connected IPv6 sockets
];
pub(crate) const V6: [Ipv6Addr; 3] = [
    Ipv6Addr::LOCALHOST,
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2),
];

/// Who sends, and on which CPUs.
pub(crate) struct Host {
    pub(crate) senders: Vec<(SocketAddr, UdpSocket)>,
    /// Sends to itself: what was sent before its datagram is delivered when that arrives.
    pub(crate) sentinel: UdpSocket,
    pub(crate) cpus: Vec<u16>,
}

impl Host {
    /// Puts this thread into a namespace of its own; `None`: it has not the rights, which is told.
    pub(crate) fn enter() -> Option<Self> {
        match enter() {
            Ok(()) => {}
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::NOSYS)) => {
                println!("skipped: no network namespace of its own: {error}");
                return None;
            }
            Err(error) => panic!("cannot set up the network namespace: {error}"),
        }
        let addresses = V4.into_iter().map(IpAddr::V4).chain(V6.into_iter().map(IpAddr::V6));
        let senders = addresses
            .flat_map(|address| PEER_PORTS.map(|port| SocketAddr::new(address, port)))
            .map(|address| (address, UdpSocket::bind(address).unwrap()))
            .collect();
        let sentinel = UdpSocket::bind((Ipv4Addr::LOCALHOST, SENTINEL_PORT)).unwrap();
        sentinel.connect((Ipv4Addr::LOCALHOST, SENTINEL_PORT)).unwrap();
        sentinel.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        let cpus = (0..1024).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u16);
        Some(Self { senders, sentinel, cpus: cpus.take(2).collect() })
    }
}

/// Sends one request of rtnetlink and reads the kernel's answer to it.
fn request(
    socket: &OwnedFd,
    kind: u16,
    body: &[u8],
    attributes: &[(u16, &[u8])],
) -> Result<(), Errno> {
    const REQUEST_ACK_CREATE: u16 = 0x1 | 0x4 | 0x400;
    let mut tail = body.to_vec();
    for (kind, value) in attributes {
        tail.extend((4 + value.len() as u16).to_ne_bytes());
        tail.extend(kind.to_ne_bytes());
        tail.extend(*value); // lengths are multiples of 4
    }
    let mut message = (16 + tail.len() as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST_ACK_CREATE.to_ne_bytes());
    message.extend([0; 8]); // sequence number and port
    message.extend(tail);
    send(socket, &message, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (_, len) = recv(socket, &mut answer, RecvFlags::empty())?;
    assert!(len >= 20, "short answer of rtnetlink");
    match i32::from_ne_bytes(answer[16..20].try_into().unwrap()) {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(-error)),
    }
}

/// Puts this thread into a network namespace of its own with all the addresses on `lo`.
fn enter() -> Result<(), Errno> {
    const NEW_LINK: u16 = 16;
    const NEW_ADDRESS: u16 = 20;
    const LO: [u8; 4] = 1_i32.to_ne_bytes();
    #[expect(deprecated, reason = "its hazard is shared file tables, which this leaves alone")]
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None, // number 0: rtnetlink
    )?;
    let up = 1_u32.to_ne_bytes();
    request(&socket, NEW_LINK, &[&[0; 4], &LO[..], &up, &up].concat(), &[])?;
    for address in V4.iter().filter(|address| !address.is_loopback()) {
        let octets = address.octets();
        let body = [&[2, 32, 0, 0], &LO[..]].concat();
        request(&socket, NEW_ADDRESS, &body, &[(2, &octets), (1, &octets)])?;
    }
    for address in V6.iter().filter(|address| !address.is_loopback()) {
        let octets = address.octets();
        let no_duplicate_check = 2;
        let body = [&[10, 128, no_duplicate_check, 0], &LO[..]].concat();
        request(&socket, NEW_ADDRESS, &body, &[(2, &octets), (1, &octets)])?;
    }
    Ok(())
}

/// Binds a socket to the only device, or lets it go.
pub(crate) fn bind_device(socket: &OwnedFd, on: bool) -> Result<(), Errno> {
    let bound = SockRef::from(socket).bind_device(on.then_some(b"lo"));
    bound.map_err(|error| Errno::from_io_error(&error).expect("an error of the system"))
}

/// Why this host cannot judge, if so.
pub(crate) fn unfit() -> Option<String> {
    if !HASH4 {
        return Some("built without the 4-tuple table that the kernel has".into());
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.trim().split(['.', '-']).map_while(|number| number.parse().ok());
    let release_is = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (release_is < RELEASE)
        .then(|| format!("kernel {} is older than the rules ({RELEASE:?})", release.trim()))
}
