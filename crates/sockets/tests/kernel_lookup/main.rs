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

mod host;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, sockopt};
use rustix::thread::{CpuSet, sched_setaffinity};
use rxsteer_core::CpuId;
use rxsteer_sockets::{
    Cast, Config, DeviceId, Family, Namespace, Owner, Packet, Profile, SocketError, SocketId,
    SocketOption,
};

use host::{Host, PEER_PORTS, V4, V6, bind_device, unfit};

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
/// Ports of the sockets under test.
const PORTS: [u16; 2] = [9000, 9001];

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

impl Tally {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.connected += other.connected;
        self.packets += other.packets;
        self.received += other.received;
        self.other_hash += other.other_hash;
    }
}

struct Run<'a> {
    seed: u64,
    /// Mostly dual-stack wildcards with `SO_REUSEPORT` on one port: large groups.
    groups: bool,
    /// Mostly sharers by `SO_REUSEADDR` on one port.
    crowd: bool,
    random: Random,
    host: &'a Host,
    tables: Vec<Namespace>,
    pairs: Vec<Pair>,
    made: usize,
    log: Vec<String>,
    tally: Tally,
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
            let cpu = self.random.of(&self.host.cpus);
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
        let cpu = self.random.of(&self.host.cpus);
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
        let cpu = self.random.of(&self.host.cpus);
        let (src, sender) = &self.host.senders[self.random.below(self.host.senders.len())];
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
        self.host.sentinel.send(&name).unwrap();
        let mut buffer = [0; 8];
        self.host.sentinel.recv(&mut buffer).expect("the sentinel's datagram");
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

fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Reads `N` or `N..M`.
fn seeds(text: &str) -> Vec<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("RXSTEER_SEED is N or N..M");
    match text.split_once("..") {
        Some((first, end)) => (number(first)..number(end)).collect(),
        None => vec![number(text)],
    }
}

/// Plays a seed in a namespace of its own; `None`: it has not the rights.
fn play(seed: u64) -> Option<Tally> {
    let host = Host::enter()?;
    let config = |key| Config { profile: Profile::Linux, key, ..Config::default() };
    let mut run = Run {
        seed,
        groups: seed.is_multiple_of(3),
        crowd: seed % 6 == 1,
        random: Random::new(seed),
        host: &host,
        tables: (0..KEYS).map(|key| Namespace::new(&config((key, !key)))).collect(),
        pairs: Vec::new(),
        made: 0,
        log: Vec::new(),
        tally: Tally::default(),
    };
    for _ in 0..STEPS {
        run.step();
    }
    Some(run.tally)
}

/// Plays a seed on a thread of its own, which alone changes its namespace and CPU and takes them
/// along. A difference must come back under the salt of another namespace: unrelated addresses share
/// a slot of the kernel's table now and then, which then keeps the order that sockets had before.
fn play_aside(seed: u64) -> Option<Tally> {
    let aside = || std::thread::spawn(move || play(seed)).join();
    aside().unwrap_or_else(|_| {
        let again = aside().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        println!("seed {seed}: the difference above did not come back: a shared slot");
        again
    })
}

#[test]
fn the_running_kernel_delivers_to_the_same_sockets() {
    if let Some(why) = unfit() {
        return println!("skipped: {why}");
    }
    let given = std::env::var("RXSTEER_SEED").ok().map(|text| seeds(&text));
    let usual = given.is_none();
    let begin = Instant::now();
    let mut tally = Tally::default();
    let mut played = Vec::new();
    for seed in given.unwrap_or_else(|| SEEDS.into()) {
        let Some(seen) = play_aside(seed) else { return };
        tally.add(&seen);
        played.push(seed);
        if usual && begin.elapsed() > AT_MOST {
            // A busy machine: what was compared was equal, but may be too little to judge the mix.
            return println!("time is up after seeds {played:?}: {tally:?}");
        }
    }
    println!("seeds {played:?} in {:?}: {tally:?}", begin.elapsed());
    if !usual {
        return; // a few seeds may not have all of the mix
    }
    assert!(tally.packets > 100 && tally.received > 50, "{tally:?}");
    assert!(tally.other_hash > 5 && tally.refused > 5 && tally.connected > 5, "{tally:?}");
}
