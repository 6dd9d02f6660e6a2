//! Packets a second through the whole path on one core, and beside `smoltcp`.
//!
//! A burst of 64 frames is put in the ring, polled, and read; then the next. One thread does all of
//! it, so this is work per packet, without waiting and without wake-ups.
//!
//! `path`: dissect, hash, steer (to the own backlog), poll, check, merge or not, look up, queue,
//! read. `steer`: the same with steering that has nothing to decide, from none to full. `sockets`:
//! the frames spread over sockets of different ports, here and in `smoltcp`.
//!
//! `cargo bench -p rxsteer-engine --bench path`
//!
//! With `COUNT=CASE` and `BURSTS=N` it runs one case once for so many bursts, for a tool that counts
//! instructions: what a packet takes is the difference between two numbers of bursts.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use etherparse::PacketBuilder;
use rxsteer_core::steer::PolicyKind;
use rxsteer_core::{CpuId, QueueId};
use rxsteer_engine::threads::Single;
use rxsteer_engine::udp::{
    Frame, Message, Plane, PlaneSettings, Socket, SocketSettings, Sockets, Turn, UdpStages,
};
use rxsteer_engine::{ReaderId, Settings};
use rxsteer_sockets::Config;
use rxsteer_sockets::queue::{BufferPool, Datagram, Limits};

const BURST: usize = 64;
const HERE: [u8; 4] = [192, 0, 2, 1];
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FIRST_PORT: u16 = 2000;

/// Frames of 64 bytes with the checksum of Ethernet left out: 18 bytes of payload.
fn frames(flows: usize, ports: usize, count: usize) -> Vec<Vec<u8>> {
    let frame = |n: usize| {
        // A random port, so that nothing can foresee which socket comes next.
        let random = (n as u32).wrapping_mul(2_654_435_761) >> 8;
        let port = FIRST_PORT + (random as usize % ports) as u16;
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], OWN_MAC)
            .ipv4([198, 51, 100, 1], HERE, 64)
            .udp(10_000 + (n % flows) as u16, port);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0xa5; 18]).expect("a vector takes it");
        frame
    };
    (0..count).map(frame).collect()
}

/// The engine on one core, with frames to be sent again and again.
struct Engine<C> {
    host: Single<Frame, UdpStages<C>>,
    pool: BufferPool,
    frames: Vec<Vec<u8>>,
    next: usize,
    batch: u32,
}

/// What the readers have in common with the other stack's: the bytes are copied out.
#[derive(Default)]
struct Copy {
    buffer: Vec<u8>,
}

impl rxsteer_engine::udp::Consume for Copy {
    fn consume(&mut self, _: Turn, _: &Socket, message: Datagram<Message>) -> u64 {
        self.buffer.resize(1 << 16, 0);
        let len = message.payload.copy_to(&mut self.buffer);
        black_box(&self.buffer[..len]);
        0
    }
}

struct Case {
    policy: PolicyKind,
    mask: bool,
    gro: bool,
    batch: u32,
    flows: usize,
    ports: usize,
}

impl Case {
    const PLAIN: Self = Self {
        policy: PolicyKind::FlowAware,
        mask: true,
        gro: false,
        batch: 64,
        flows: 64,
        ports: 1,
    };

    fn engine(&self) -> Engine<Copy> {
        let mask = if self.mask { vec![CpuId(0)] } else { Vec::new() };
        let settings =
            PlaneSettings { policy: self.policy, masks: vec![mask], ..PlaneSettings::default() };
        let plane = Arc::new(Plane::new(&settings));
        let pool = BufferPool::new(1 << 24, 1 << 20);
        let sockets = Sockets::new(Config::default(), &plane, &[CpuId(0)], pool.clone());
        for port in 0..self.ports as u16 {
            let local = SocketAddr::from((HERE, FIRST_PORT + port));
            let limits = Limits::bytes(1 << 24);
            let socket = SocketSettings { gro: self.gro, limits, ..SocketSettings::bound(local) };
            sockets.open(&socket).expect("the port is free");
        }
        let stages = UdpStages::new(&Arc::new(sockets), Copy::default());
        let settings = Settings { gro: self.gro, ..Settings::default() };
        let host = Single::new(&settings, 1, stages).expect("one queue is possible");
        let frames = frames(self.flows, self.ports, BURST * 32);
        Engine { host, pool, frames, next: 0, batch: self.batch }
    }
}

impl<C: rxsteer_engine::udp::Consume> Engine<C> {
    fn burst(&mut self) {
        for frame in &self.frames[self.next..self.next + BURST] {
            let frame = Frame::new(self.pool.copy(frame).expect("it is given back"), 0);
            assert!(self.host.send(QueueId(0), frame).is_ok());
        }
        self.next = (self.next + BURST) % self.frames.len();
        while self.host.poll() {}
        let mut packets = 0;
        loop {
            let read = self.host.read(ReaderId(0), self.batch);
            packets += read.packets as usize;
            if !read.more {
                break;
            }
        }
        assert_eq!(packets, BURST);
    }
}

/// The other stack: the same frames from a device in memory.
mod other {
    use super::{BURST, FIRST_PORT, HERE, OWN_MAC, frames};
    use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
    use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
    use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};
    use smoltcp::time::Instant;
    use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address};
    use std::hint::black_box;

    /// Gives the frames of a burst, by reference, and swallows what is sent.
    struct Memory {
        frames: Vec<Vec<u8>>,
        next: usize,
        left: usize,
    }

    struct Taken<'f>(&'f [u8]);
    struct Swallow;

    impl RxToken for Taken<'_> {
        fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
            f(self.0)
        }
    }

    impl TxToken for Swallow {
        fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
            f(&mut vec![0; len])
        }
    }

    impl Device for Memory {
        type RxToken<'f> = Taken<'f>;
        type TxToken<'f> = Swallow;

        fn receive(&mut self, _: Instant) -> Option<(Taken<'_>, Swallow)> {
            self.left = self.left.checked_sub(1)?;
            let at = self.next;
            self.next = (self.next + 1) % self.frames.len();
            Some((Taken(&self.frames[at]), Swallow))
        }

        fn transmit(&mut self, _: Instant) -> Option<Swallow> {
            Some(Swallow)
        }

        fn capabilities(&self) -> DeviceCapabilities {
            let mut capabilities = DeviceCapabilities::default();
            capabilities.medium = Medium::Ethernet;
            capabilities.max_transmission_unit = 1514;
            capabilities
        }
    }

    pub(super) struct Stack {
        device: Memory,
        interface: Interface,
        sockets: SocketSet<'static>,
        handles: Vec<SocketHandle>,
        buffer: Vec<u8>,
    }

    impl Stack {
        pub(super) fn new(ports: usize) -> Self {
            let frames = frames(BURST, ports, BURST * 32);
            let mut device = Memory { frames, next: 0, left: 0 };
            let config = Config::new(EthernetAddress(OWN_MAC).into());
            let mut interface = Interface::new(config, &mut device, Instant::ZERO);
            interface.update_ip_addrs(|addresses| {
                let own = Ipv4Address::from(HERE);
                addresses.push(IpCidr::new(own.into(), 24)).expect("there is room");
            });
            let mut sockets = SocketSet::new(Vec::new());
            let handles = (0..ports as u16).map(|port| {
                let buffer =
                    || PacketBuffer::new(vec![PacketMetadata::EMPTY; BURST], vec![0; 4096]);
                let mut socket = Socket::new(buffer(), buffer());
                socket.bind(FIRST_PORT + port).expect("the port is free");
                sockets.add(socket)
            });
            let handles = handles.collect();
            Self { device, interface, sockets, handles, buffer: vec![0; 1 << 16] }
        }

        pub(super) fn burst(&mut self) {
            let first = self.device.next;
            self.device.left = BURST;
            self.interface.poll(Instant::ZERO, &mut self.device, &mut self.sockets);
            // The sockets that got something, as their frames say.
            let mut packets = 0;
            for frame in &self.device.frames[first..first + BURST] {
                let port = u16::from_be_bytes([frame[36], frame[37]]);
                let handle = self.handles[usize::from(port - FIRST_PORT)];
                let socket = self.sockets.get_mut::<Socket<'_>>(handle);
                let (len, _) = socket.recv_slice(&mut self.buffer).expect("it has a datagram");
                black_box(&self.buffer[..len]);
                packets += 1;
            }
            assert_eq!(packets, BURST);
        }
    }
}

type Burst = Box<dyn FnMut()>;

/// All cases by name, and how to make the burst of each.
fn cases() -> Vec<(String, Box<dyn Fn() -> Burst>)> {
    let mut all: Vec<(String, Box<dyn Fn() -> Burst>)> = Vec::new();
    let mut add = |name: String, case: Case| {
        let make = move || -> Burst {
            let mut engine = case.engine();
            Box::new(move || engine.burst())
        };
        all.push((name, Box::new(make)));
    };
    for (name, gro) in [("off", false), ("on", true)] {
        for batch in [1, 64] {
            for flows in [64, 1] {
                let id = format!("path/gro_{name}/batch_{batch}/flows_{flows}");
                add(id, Case { gro, batch, flows, ..Case::PLAIN });
            }
        }
    }
    for (name, policy, mask) in [
        ("none", PolicyKind::None, false),
        ("rps/no_mask", PolicyKind::Rps, false),
        ("rps/own_cpu", PolicyKind::Rps, true),
        ("flow-aware/no_mask", PolicyKind::FlowAware, false),
        ("flow-aware/own_cpu", PolicyKind::FlowAware, true),
    ] {
        add(format!("steer/{name}"), Case { policy, mask, ..Case::PLAIN });
    }
    for ports in [1, 100, 1000] {
        add(format!("sockets/engine/{ports}"), Case { ports, ..Case::PLAIN });
        let unsteered = Case { policy: PolicyKind::None, mask: false, ports, ..Case::PLAIN };
        add(format!("sockets/engine_unsteered/{ports}"), unsteered);
    }
    for ports in [1, 100, 1000] {
        let make = move || -> Burst {
            let mut stack = other::Stack::new(ports);
            Box::new(move || stack.burst())
        };
        all.push((format!("sockets/smoltcp/{ports}"), Box::new(make)));
    }
    all
}

/// CPU time of this thread: on a crowded machine the time of day measures the others.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a time that has passed")
}

fn main() {
    if let Ok(wanted) = std::env::var("COUNT") {
        let bursts = std::env::var("BURSTS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
        let case = cases().into_iter().find(|(name, _)| *name == wanted);
        let (_, make) = case.unwrap_or_else(|| panic!("no case {wanted}"));
        let mut burst = make();
        return (0..bursts).for_each(|_: u32| burst());
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .sample_size(20)
        .configure_from_args();
    for (name, make) in cases() {
        let mut burst = make();
        let mut group = criterion.benchmark_group("one_core");
        group.throughput(Throughput::Elements(BURST as u64));
        group.bench_function(name, |b| {
            b.iter_custom(|times| {
                let begin = cpu_time();
                (0..times).for_each(|_| burst());
                cpu_time() - begin
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
