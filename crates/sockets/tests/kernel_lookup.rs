//! The socket tables beside the running kernel: the same random sockets and packets, the same
//! refusals, local addresses and receivers.
//!
//! Runs in a network namespace of its own, over loopback, so it needs `CAP_SYS_ADMIN` and
//! `CAP_NET_ADMIN`. `RXSTEER_SEED=N` or `RXSTEER_SEED=N..M` plays these seeds in place of the usual
//! ones, however long that takes. Prints why if it skips.
//!
//! Always true: where the kernel's secret hash chooses, the receiver is compared with what the
//! tables answer under many keys, and must be one of those.
//! Taken from the kernel: automatic ports, selected source addresses, and whether a receiver took on
//! the CPU of its packet.

#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, reason = "seeds and skips are told")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, sockopt,
};
use rustix::thread::{CpuSet, UnshareFlags, sched_getaffinity, sched_setaffinity};
use rxsteer_core::CpuId;
use rxsteer_sockets::{
    Cast, Config, DeviceId, Family, HASH4, Namespace, Owner, Packet, Profile, SocketError,
    SocketId, SocketOption,
};
use socket2::SockRef;

const SEEDS: [u64; 8] = [3, 1, 6, 20, 14, 2, 4, 9];
const STEPS: usize = 300;
const AT_MOST: Duration = Duration::from_secs(3);
/// Tables under different keys. That none of them picks a certain one of 14 members happens once in
/// 10^4 sets of that size, of 6 once in 10^10.
const KEYS: u64 = 128;
const MOST_SOCKETS: usize = 14;
/// As many of a crowd are on one port, few of them in groups: bind looks for conflicts in another
/// way there.
const MOST_IN_CROWD: usize = 36;
/// The first release whose rules these are.
const RELEASE: (u32, u32) = (6, 18);

/// Ports of the sockets under test, of the peers that send to them, and of the sentinel.
const PORTS: [u16; 2] = [9000, 9001];
const PEER_PORTS: [u16; 2] = [7001, 7002];
const SENTINEL_PORT: u16 = 7999;

const V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(10, 77, 0, 1),
    Ipv4Addr::new(10, 77, 0, 2),
    Ipv4Addr::new(127, 0, 0, 6), // stands in for "no IPv4 address" in connected IPv6 sockets
];
const V6: [Ipv6Addr; 3] = [
    Ipv6Addr::LOCALHOST,
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2),
];

/// The only device, on which all packets come in.
const LO: DeviceId = DeviceId(1);

/// A small generator, the same on every machine (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
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

fn errno(error: SocketError) -> Errno {
    match error {
        SocketError::AddressInUse => Errno::ADDRINUSE,
        SocketError::AddressNotAvailable => Errno::ADDRNOTAVAIL,
        SocketError::FamilyNotSupported => Errno::AFNOSUPPORT,
        SocketError::Closed => Errno::BADF,
        SocketError::Invalid => Errno::INVAL,
        SocketError::NetworkUnreachable => Errno::NETUNREACH,
        SocketError::NoBuffers => Errno::NOBUFS,
        SocketError::NoDevice => Errno::NODEV,
        SocketError::NotConnected => Errno::NOTCONN,
    }
}

/// A socket of the kernel and the one of the tables; ids are the same in all of these.
struct Pair {
    name: usize,
    family: Family,
    kernel: OwnedFd,
    ours: SocketId,
}

impl Pair {
    fn kernel_local(&self) -> (IpAddr, u16) {
        let local = SocketAddr::try_from(rustix::net::getsockname(&self.kernel).unwrap()).unwrap();
        (local.ip(), local.port())
    }
}

/// What a run saw, so that it can be told from one that tested nothing.
#[derive(Debug, Default)]
struct Tally {
    operations: u32,
    refused: u32,
    connected: u32,
    packets: u32,
    received: u32,
    /// The kernel's hash chose another member than the first key.
    other_hash: u32,
}

struct Run<'a> {
    seed: u64,
    /// Mostly dual-stack wildcards with `SO_REUSEPORT` on one port: large groups.
    groups: bool,
    /// Mostly sharers by `SO_REUSEADDR` on one port.
    crowd: bool,
    random: Random,
    senders: &'a [(SocketAddr, UdpSocket)],
    sentinel: &'a UdpSocket,
    cpus: &'a [u16],
    tables: Vec<Namespace>,
    pairs: Vec<Pair>,
    made: usize,
    log: Vec<String>,
    tally: &'a mut Tally,
}

impl Run<'_> {
    fn step(&mut self) {
        let some = self.pairs.len();
        let most = if self.crowd { MOST_IN_CROWD } else { MOST_SOCKETS };
        match self.random.below(20) {
            0..=4 if some < most => self.new_socket(),
            5..=6 if some > 0 => {
                let at = self.random.below(some);
                self.connect(at);
            }
            7 if some > 0 => {
                let at = self.random.below(some);
                self.disconnect(at);
            }
            8 if some > 4 => {
                let pair = self.pairs.swap_remove(self.random.below(some));
                self.log.push(format!("close {}", pair.name));
                for table in &self.tables {
                    table.close(pair.ours).unwrap();
                }
            }
            9 if some > 0 => {
                let at = self.random.below(some);
                self.set(at);
            }
            _ => self.packet(),
        }
    }

    /// Compares an answer of every table with the kernel's.
    fn compare<T: PartialEq + std::fmt::Debug>(
        &self,
        kernel: &T,
        what: &str,
        ask: impl Fn(&Namespace) -> T,
    ) {
        for table in &self.tables {
            let ours = ask(table);
            assert!(ours == *kernel, "{}: {what}: kernel {kernel:?}, ours {ours:?}", self.at());
        }
    }

    fn at(&self) -> String {
        format!("seed {}, step {}, after:\n{}\n", self.seed, self.log.len(), self.log.join("\n"))
    }

    fn address(&mut self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.random.of(&V4).into(),
            Family::V6 if self.random.one_in(3) => self.random.of(&V4).to_ipv6_mapped().into(),
            Family::V6 => self.random.of(&V6).into(),
        }
    }

    fn new_socket(&mut self) {
        let family = match self.groups {
            true => Family::V6,
            false => self.random.of(&[Family::V4, Family::V6]),
        };
        let domain = if family == Family::V4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let kernel = rustix::net::socket_with(
            domain,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let mut options = Vec::new();
        if self.random.one_in(3) || self.crowd && !self.random.one_in(6) {
            sockopt::set_socket_reuseaddr(&kernel, true).unwrap();
            options.push(SocketOption::ReuseAddr(true));
        }
        if self.groups || self.random.one_in(3) == self.crowd {
            sockopt::set_socket_reuseport(&kernel, true).unwrap();
            options.push(SocketOption::ReusePort(true));
        }
        if family == Family::V6 {
            // The default of the namespace may be either.
            let v6only = self.random.one_in(if self.groups { 12 } else { 3 });
            sockopt::set_ipv6_v6only(&kernel, v6only).unwrap();
            options.push(SocketOption::V6Only(v6only));
        }
        if self.random.one_in(6) {
            let cpu = self.random.of(self.cpus);
            sockopt::set_socket_incoming_cpu(&kernel, cpu.into()).unwrap();
            options.push(SocketOption::IncomingCpu(Some(CpuId(cpu))));
        }
        if self.random.one_in(8) {
            bind_device(&kernel, true).unwrap();
            options.push(SocketOption::Device(Some(LO)));
        }
        let ids: BTreeSet<_> =
            self.tables.iter().map(|table| table.open(family, Owner(0)).unwrap()).collect();
        assert_eq!(ids.len(), 1, "ids differ with the key");
        let ours = *ids.first().unwrap();
        for table in &self.tables {
            for option in &options {
                table.set(ours, option.clone()).unwrap();
            }
        }
        self.made += 1;
        let pair = Pair { name: self.made, family, kernel, ours };
        self.log.push(format!("socket {} {family:?} {options:?}", pair.name));
        let binds = !self.random.one_in(8);
        let address = match family {
            _ if self.random.one_in(3) == self.groups => self.address(family),
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let port = if self.groups || self.crowd { PORTS[0] } else { self.random.of(&PORTS) };
        let mut kept = true;
        if binds {
            kept = self.bind(&pair, address, port);
        }
        if kept {
            self.pairs.push(pair);
            if self.random.one_in(4) {
                self.connect(self.pairs.len() - 1);
            }
        } else {
            for table in &self.tables {
                table.close(ours).unwrap();
            }
        }
    }

    fn bind(&mut self, pair: &Pair, address: IpAddr, port: u16) -> bool {
        self.log.push(format!("bind {} to {address} {port}", pair.name));
        let kernel = rustix::net::bind(&pair.kernel, &SocketAddr::new(address, port));
        self.compare(&kernel, "bind", |table| {
            table.bind(pair.ours, address, port).map(|_| ()).map_err(errno)
        });
        self.tally.operations += 1;
        self.log.push(format!("  {kernel:?}"));
        self.tally.refused += u32::from(kernel.is_err());
        kernel.is_ok()
    }

    fn connect(&mut self, at: usize) {
        let family = self.pairs[at].family;
        // Now and then an address of the other family, which an IPv4 socket refuses.
        let of = if self.random.one_in(30) { Family::V6 } else { family };
        let address = self.address(of);
        let port = self.random.of(&PEER_PORTS);
        let pair = &self.pairs[at];
        self.log.push(format!("connect {} to {address} {port}", pair.name));
        let kernel = rustix::net::connect(&pair.kernel, &SocketAddr::new(address, port));
        let local = pair.kernel_local();
        for table in &self.tables {
            let ours = table.local(pair.ours).unwrap();
            if ours.1 == 0 {
                // The port is the kernel's choice, even if it refuses the connect.
                table.set(pair.ours, SocketOption::PortRange(local.1, local.1)).unwrap();
                if kernel.is_err() {
                    table.bind(pair.ours, any(family), 0).unwrap();
                }
            }
        }
        self.compare(&kernel, "connect", |table| {
            table.connect(pair.ours, address, port, local.0).map_err(errno)
        });
        self.log.push(format!("  {kernel:?}, at {local:?}"));
        self.compare_local(at);
        self.tally.operations += 1;
        self.tally.connected += u32::from(kernel.is_ok());
        self.tally.refused += u32::from(kernel.is_err());
    }

    fn disconnect(&mut self, at: usize) {
        let pair = &self.pairs[at];
        self.log.push(format!("disconnect {}", pair.name));
        let kernel = rustix::net::connect_unspec(&pair.kernel);
        self.compare(&kernel, "disconnect", |table| table.disconnect(pair.ours).map_err(errno));
        self.compare_local(at);
        self.tally.operations += 1;
    }

    fn compare_local(&self, at: usize) {
        let pair = &self.pairs[at];
        self.compare(&pair.kernel_local(), "local address", |table| {
            table.local(pair.ours).unwrap()
        });
    }

    fn set(&mut self, at: usize) {
        let on = self.random.one_in(2);
        let which = self.random.below(5);
        let cpu = self.random.of(self.cpus);
        let pair = &self.pairs[at];
        let (kernel, option) = match which {
            0 => (sockopt::set_socket_reuseaddr(&pair.kernel, on), SocketOption::ReuseAddr(on)),
            1 => (sockopt::set_socket_reuseport(&pair.kernel, on), SocketOption::ReusePort(on)),
            2 => (bind_device(&pair.kernel, on), SocketOption::Device(on.then_some(LO))),
            3 => (
                sockopt::set_socket_incoming_cpu(&pair.kernel, u32::MAX),
                SocketOption::IncomingCpu(None),
            ),
            _ => (
                sockopt::set_socket_incoming_cpu(&pair.kernel, cpu.into()),
                SocketOption::IncomingCpu(Some(CpuId(cpu))),
            ),
        };
        self.log.push(format!("set {} {option:?}", pair.name));
        self.compare(&kernel, "option", |table| {
            table.set(pair.ours, option.clone()).map_err(errno)
        });
        self.tally.operations += 1;
    }

    fn packet(&mut self) {
        let cpu = self.random.of(self.cpus);
        let (src, sender) = &self.senders[self.random.below(self.senders.len())];
        let dst: IpAddr = match src {
            SocketAddr::V4(_) => self.random.of(&V4).into(),
            SocketAddr::V6(_) => self.random.of(&V6).into(),
        };
        // An automatic port of one of the sockets, or one of the set.
        let mut port = self.random.of(&PORTS);
        if self.random.one_in(4) && !self.pairs.is_empty() {
            port = self.pairs[self.random.below(self.pairs.len())].kernel_local().1;
        }
        if port == 0 {
            return;
        }
        self.log.push(format!("packet {src} to {dst} {port} on CPU {cpu}"));
        let mut set = CpuSet::new();
        set.set(cpu.into());
        sched_setaffinity(None, &set).unwrap();
        let name = (self.log.len() as u64).to_be_bytes();
        sender.send_to(&name, (dst, port)).unwrap();
        // Loopback hands over in order on a CPU: what was sent before the sentinel's is delivered.
        self.sentinel.send(&name).unwrap();
        let mut buffer = [0; 8];
        self.sentinel.recv(&mut buffer).expect("the sentinel's datagram");
        assert_eq!(buffer, name, "the sentinel got another's");

        let mut received = Vec::new();
        for pair in &self.pairs {
            match recv(&pair.kernel, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(_) => {
                    assert_eq!(buffer, name, "{}: an old datagram", self.at());
                    received.push(pair);
                }
                Err(Errno::AGAIN) => {}
                Err(error) => panic!("{}: recv of {}: {error}", self.at(), pair.name),
            }
        }
        let packet = Packet {
            src: src.ip(),
            src_port: src.port(),
            dst,
            dst_port: port,
            device: LO,
            cpu: CpuId(cpu),
            cast: Cast::Unicast,
            from_this_host: true,
            payload: &name,
        };
        let kernel = received.first().map(|pair| pair.ours);
        let mut possible = BTreeSet::new();
        let agreeing = self.tables.iter().find(|table| {
            // The kernel's is a possible one: then the others do not matter.
            let socket = table.lookup(&packet).map(|found| found.socket);
            possible.insert(socket);
            socket == kernel
        });
        let names: Vec<_> = received.iter().map(|pair| pair.name).collect();
        let ours = self.pairs.iter().filter(|pair| possible.contains(&Some(pair.ours)));
        let ours: Vec<_> = ours.map(|pair| pair.name).collect();
        assert!(
            received.len() <= 1 && agreeing.is_some(),
            "{}: received by {names:?}, ours one of {ours:?}",
            self.at()
        );
        self.log.push(format!("  received by {names:?}"));
        self.tally.packets += 1;
        self.tally.received += u32::from(kernel.is_some());
        self.tally.other_hash += u32::from(possible.len() > 1);
        let Some(pair) = received.first() else { return };
        // Whether a socket takes on the packet's CPU is seen on the kernel's.
        let noted = sockopt::socket_incoming_cpu(&pair.kernel).unwrap();
        if noted == u32::from(cpu) {
            for table in &self.tables {
                table.note_cpu(pair.ours, CpuId(cpu));
            }
        }
    }
}

/// Binds a socket to the only device, or lets it go.
fn bind_device(socket: &OwnedFd, on: bool) -> Result<(), Errno> {
    let bound = SockRef::from(socket).bind_device(on.then_some(b"lo"));
    bound.map_err(|error| Errno::from_io_error(&error).expect("an error of the system"))
}

fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Why this host cannot judge, if so.
fn unfit() -> Option<String> {
    if !HASH4 {
        return Some("built without the 4-tuple table that the kernel has".into());
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.trim().split(['.', '-']).map_while(|number| number.parse().ok());
    let release_is = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (release_is < RELEASE)
        .then(|| format!("kernel {} is older than the rules ({RELEASE:?})", release.trim()))
}

/// Reads `N` or `N..M`.
fn seeds(text: &str) -> Vec<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("RXSTEER_SEED is N or N..M");
    match text.split_once("..") {
        Some((first, end)) => (number(first)..number(end)).collect(),
        None => vec![number(text)],
    }
}

fn run_all() {
    if let Some(why) = unfit() {
        return println!("skipped: {why}");
    }
    match enter() {
        Ok(()) => {}
        Err(error @ (Errno::PERM | Errno::ACCESS | Errno::NOSYS)) => {
            return println!("skipped: no network namespace of its own: {error}");
        }
        Err(error) => panic!("cannot set up the network namespace: {error}"),
    }
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<u16> =
        (0..1024).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u16).take(2).collect();
    let addresses = V4.into_iter().map(IpAddr::V4).chain(V6.into_iter().map(IpAddr::V6));
    let senders: Vec<_> = addresses
        .flat_map(|address| PEER_PORTS.map(|port| SocketAddr::new(address, port)))
        .map(|address| (address, UdpSocket::bind(address).unwrap()))
        .collect();
    let sentinel = UdpSocket::bind((Ipv4Addr::LOCALHOST, SENTINEL_PORT)).unwrap();
    sentinel.connect((Ipv4Addr::LOCALHOST, SENTINEL_PORT)).unwrap();
    sentinel.set_read_timeout(Some(Duration::from_secs(2))).unwrap();

    let given = std::env::var("RXSTEER_SEED").ok().map(|text| seeds(&text));
    let usual = given.is_none();
    let begin = Instant::now();
    let mut tally = Tally::default();
    let mut played = Vec::new();
    for seed in given.unwrap_or_else(|| SEEDS.into()) {
        let config = |key| Config { profile: Profile::Linux, key, ..Config::default() };
        let mut run = Run {
            seed,
            groups: seed.is_multiple_of(3),
            crowd: seed % 6 == 1,
            random: Random::new(seed),
            senders: &senders,
            sentinel: &sentinel,
            cpus: &cpus,
            tables: (0..KEYS).map(|key| Namespace::new(&config((key, !key)))).collect(),
            pairs: Vec::new(),
            made: 0,
            log: Vec::new(),
            tally: &mut tally,
        };
        for _ in 0..STEPS {
            run.step();
        }
        played.push(seed);
        if usual && begin.elapsed() > AT_MOST {
            // A busy machine: what was compared was equal, but may be too little to judge the mix.
            return println!("time is up after seeds {played:?}: {tally:?}");
        }
    }
    println!("seeds {played:?} in {:?}, CPUs {cpus:?}: {tally:?}", begin.elapsed());
    if !usual {
        return; // a few seeds may not have all of the mix
    }
    assert!(tally.packets > 100 && tally.received > 50, "{tally:?}");
    assert!(tally.other_hash > 5 && tally.refused > 5 && tally.connected > 5, "{tally:?}");
}

#[test]
fn the_running_kernel_delivers_to_the_same_sockets() {
    // On a thread of its own, which alone changes its namespace and CPU and takes them along.
    let thread = std::thread::spawn(run_all);
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
