//! What processing a packet costs: the same frames are let through to one station more each time.
//!
//! Frames are sent and processed on one CPU, in one call, so its time is that of all stations up to
//! the last. The stations: the device's receive ring (an XDP program drops there); the packet as the
//! stack has it (dropped by IP, for another host); a port at which nobody listens; the UDP socket; and
//! by way of RPS to the own CPU, and of RFS.
//!
//! Elsewhere: RPS to another CPU ([`signals`](super::signals)).

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_core::{CpuId, CpuSet};
use rxsteer_lab::host::Host;
use rxsteer_testbed::{Pair, Place, Settings, pin_thread, thread_cpu_time};

use super::{Cost, difference};
use crate::error::During as _;
use crate::source::live::{self, LiveFrames};
use crate::source::packet::PacketSocket;
use crate::traffic::{Frames, Link};
use crate::{BenchError, GenSpec, Traffic};

/// Port of the socket that gets the frames.
pub(super) const PORT: u16 = 9996;

/// A port at which nobody listens.
const NOBODY: u16 = 9995;

/// Frames of one measurement: some milliseconds, in which a busy machine can leave it alone.
const COUNT: usize = 5000;

/// Measurements, of which the least counts.
const TRIES: u32 = 60;

/// Frames together, where nothing else is said.
pub(super) const BATCH: usize = 64;

/// Room for all packets of a measurement, in bytes.
const ROOM: usize = 16 << 20;

/// What the steps of a frame take that other measurements build on, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// From IP to a full UDP socket.
    pub(super) full: f64,
    /// A batch: interrupt and start of the poll.
    pub(super) interrupt: f64,
    /// From the ring to IP.
    pub(super) take: f64,
    /// From IP to the queue of a UDP socket.
    pub(super) protocol_udp: f64,
}

pub(super) fn measure(
    pair: &Pair,
    cpu: CpuId,
    stop: &AtomicBool,
) -> Result<(Steps, Vec<Cost>), BenchError> {
    if !pair.sink.offloads(Pair::SINK_DEVICE)?.gro {
        return Err(BenchError::PeerDoesNotPoll {
            device: Pair::SOURCE_DEVICE.into(),
            peer: Pair::SINK_DEVICE.into(),
        });
    }
    let link = Link { source: pair.source_device.mac, sink: pair.sink_device.mac };
    let stranger = Link { sink: [2, 0, 0, 0, 0, 99], ..link };
    let bench = Bench { pair, cpu, stop };
    let full = Station { link, port: PORT, batch: BATCH };
    let program = pair.sink.run(|| live::drop_all(Pair::SINK_DEVICE))??;
    let ring = bench.live(full)?;
    drop(program);
    let stack = bench.live(Station { link: stranger, ..full })?;
    let nobody = bench.live(Station { port: NOBODY, ..full })?;
    let socket = open(pair)?;
    let (socket_full, single) = {
        little_room(&socket)?;
        (bench.live(full)?, bench.live(Station { batch: 1, ..full })?)
    };
    let own = [bench.own(&full, BATCH)?, bench.own(&full, 1)?];
    let [spread, followed] = steered(&bench, full)?;
    // Frames of a packet socket are what applications send: they have memory of their own.
    let dropped = bench.packets(Station { link: stranger, ..full }, None)?;
    much_room(&socket)?;
    let queued = bench.packets(full, Some(&socket))?;

    // A kernel that accounts for softirqs apart leaves this work out of the thread's CPU time.
    let is_apart = socket_full.cpu_time - ring.cpu_time < LEAST_NS;
    let of = |times: Times| if is_apart { times.wall_time } else { times.cpu_time };
    let default = Host::simple(1, 1).expect("a host of one CPU and queue is allowed").costs;
    let each = BATCH as f64 / (BATCH - 1) as f64;
    let interrupt = (of(single) - of(socket_full) - (of(own[1]) - of(own[0]))) * each;
    let steps = Steps {
        full: of(socket_full) - of(stack),
        interrupt,
        take: of(stack) - of(ring),
        protocol_udp: of(queued) - of(dropped),
    };
    // The hash, the choice and the backlog come together: shared out as the defaults are.
    let by_rps = of(spread) - of(socket_full);
    let known = f64::from(default.hash + default.choose + default.backlog);
    let share = |cost: u32| difference(by_rps * f64::from(cost) / known, 0.0);
    let cost = |name, ns, how| Cost { name, ns, how };
    let costs = vec![
        cost(
            "interrupt",
            difference(interrupt, 0.0),
            "a poll for each frame against one for 64, without what sending so takes; a veth device has no \
             interrupt, only the softirq",
        ),
        cost(
            "take",
            difference(steps.take, 0.0),
            "from the ring of a veth device to IP, which drops it",
        ),
        cost(
            "protocol_udp",
            difference(steps.protocol_udp, 0.0),
            "from IP to the queue of a UDP socket",
        ),
        cost(
            "protocol_other",
            difference(of(nobody), of(stack)),
            "from IP to a port at which nobody listens",
        ),
        cost("hash", share(default.hash), "by RPS to the own CPU, shared out as the defaults are"),
        cost("choose", share(default.choose), "the same"),
        cost("backlog", share(default.backlog), "the same"),
        cost("probe", difference(of(followed), of(spread)), "by RFS against RPS, to the own CPU"),
    ];
    Ok((steps, costs))
}

/// Opens the socket that gets the frames.
pub(super) fn open(pair: &Pair) -> Result<UdpSocket, BenchError> {
    let at = SocketAddr::new(Pair::SINK_V4.into(), PORT);
    pair.sink.run(|| UdpSocket::bind(at))?.during(|| format!("listen at {at}"))
}

/// Lets a socket be full at once.
pub(super) fn little_room(socket: &UdpSocket) -> Result<(), BenchError> {
    let little = nix::sys::socket::sockopt::RcvBuf;
    nix::sys::socket::setsockopt(socket, little, &2048).during(|| "make the room small".into())
}

fn much_room(socket: &UdpSocket) -> Result<(), BenchError> {
    let force = nix::sys::socket::sockopt::RcvBufForce;
    nix::sys::socket::setsockopt(socket, force, &ROOM).during(|| "make room".into())?;
    socket.set_nonblocking(true).during(|| "read without waiting".into())
}

/// Sets RPS of the receiving end to these CPUs; none of them: off.
pub(super) fn spread(pair: &Pair, cpus: &CpuSet) -> Result<(), BenchError> {
    let ids = cpus.last().map_or(1, |last| u32::from(last.0) + 1);
    let mask = cpus.mask(ids).to_string();
    Ok(pair.sink.write_sys(Pair::SINK_DEVICE, "queues/rx-0/rps_cpus", &mask)?)
}

/// Measures with RPS to the own CPU, and with RFS besides.
fn steered(bench: &Bench<'_>, station: Station) -> Result<[Times; 2], BenchError> {
    let mut own = CpuSet::EMPTY;
    own.insert(bench.cpu);
    spread(bench.pair, &own)?;
    let by_rps = bench.live(station)?;
    let mut settings = Settings::new()?;
    let entries = "/proc/sys/net/core/rps_sock_flow_entries";
    settings.set(&Place::Host, entries, "32768")?;
    let device = format!("/sys/class/net/{}", Pair::SINK_DEVICE);
    let inside = Place::from(&bench.pair.sink);
    settings.set(&inside, &format!("{device}/queues/rx-0/rps_flow_cnt"), "32768")?;
    let by_rfs = bench.live(station)?;
    settings.put_back()?;
    spread(bench.pair, &CpuSet::EMPTY)?;
    Ok([by_rps, by_rfs])
}

/// Where frames go, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Station {
    pub(super) link: Link,
    pub(super) port: u16,
    pub(super) batch: usize,
}

impl Station {
    pub(super) fn spec(self) -> GenSpec {
        let traffic = Traffic { flows: 1, ..Traffic::new(Pair::SINK_V4.into(), self.port) };
        GenSpec { batch: self.batch, ..GenSpec::new(traffic) }
    }
}

/// Times of one frame, in ns; infinite if no run was whole.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// CPU time of the thread, without what others did meanwhile.
    cpu_time: f64,
    /// Time that passed.
    wall_time: f64,
}

/// Work that no kernel does in less time, in ns: from the ring to a UDP socket.
const LEAST_NS: f64 = 30.0;

struct Bench<'a> {
    pair: &'a Pair,
    cpu: CpuId,
    stop: &'a AtomicBool,
}

impl Bench<'_> {
    /// Returns the least time of a live frame.
    fn live(&self, station: Station) -> Result<Times, BenchError> {
        let device = self.pair.source_device.index;
        self.pair.source.run(|| {
            pin_thread(self.cpu).during(|| format!("measure on CPU {}", self.cpu))?;
            let mut frames = LiveFrames::open(&station.spec(), device, &station.link)?;
            self.least(true, || frames.run(COUNT).during(|| "send live frames".into()))
        })?
    }

    /// Returns the least time of a live frame that its own program drops: of sending alone.
    fn own(&self, station: &Station, batch: usize) -> Result<Times, BenchError> {
        self.pair.source.run(|| {
            pin_thread(self.cpu).during(|| format!("measure on CPU {}", self.cpu))?;
            let spec = Station { batch, ..*station }.spec();
            let mut frames = LiveFrames::dropping(&spec, &station.link)?;
            self.least(false, || frames.run(COUNT).during(|| "run live frames".into()))
        })?
    }

    /// Returns the least time of a frame by a packet socket; a reader's socket is emptied in between.
    fn packets(&self, station: Station, read: Option<&UdpSocket>) -> Result<Times, BenchError> {
        let device = self.pair.source_device.index;
        self.pair.source.run(|| {
            pin_thread(self.cpu).during(|| format!("measure on CPU {}", self.cpu))?;
            let frames = Frames::new(&station.spec().traffic, &station.link)?;
            let mut socket = PacketSocket::open(device, frames, BATCH)?;
            let mut bytes = [0; 64];
            self.least(true, || {
                while read.is_some_and(|read| read.recv(&mut bytes).is_ok()) {}
                let (start, start_cpu) = (Instant::now(), thread_cpu_time());
                socket.run(COUNT).during(|| "send frames".into())?;
                Ok((start.elapsed(), thread_cpu_time().saturating_sub(start_cpu)))
            })
        })?
    }

    /// Returns the least time of a frame of several tries; `counted`: if the device took them all.
    fn least<T: Spent>(
        &self,
        counted: bool,
        mut run: impl FnMut() -> Result<T, BenchError>,
    ) -> Result<Times, BenchError> {
        let pair = self.pair;
        let (mut cpu_time, mut wall_time) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..TRIES {
            super::go_on(self.stop)?;
            let before = pair.sink.device(Pair::SINK_DEVICE)?.counters;
            let (start, start_cpu) = (Instant::now(), thread_cpu_time());
            let spent = run()?;
            let all = (start.elapsed(), thread_cpu_time().saturating_sub(start_cpu));
            let (wall, cpu) = spent.or(all);
            let after = pair.sink.device(Pair::SINK_DEVICE)?.counters;
            // Where another thread (ksoftirqd) took the work over, this is not the time of it.
            let taken = after.rx_packets.wrapping_sub(before.rx_packets);
            let refused = after.rx_dropped.wrapping_sub(before.rx_dropped);
            if !counted || refused == 0 && taken >= (COUNT as u64) * 98 / 100 {
                cpu_time = cpu_time.min(cpu.as_nanos() as f64 / COUNT as f64);
                wall_time = wall_time.min(wall.as_nanos() as f64 / COUNT as f64);
            }
        }
        Ok(Times { cpu_time, wall_time })
    }
}

/// What a run says of the time that it took.
trait Spent {
    /// Returns wall and CPU time of the part that counts; of all, if it says nothing.
    fn or(self, all: (Duration, Duration)) -> (Duration, Duration);
}

impl Spent for () {
    fn or(self, all: (Duration, Duration)) -> (Duration, Duration) {
        all
    }
}

impl Spent for (Duration, Duration) {
    fn or(self, _: (Duration, Duration)) -> (Duration, Duration) {
        self
    }
}
