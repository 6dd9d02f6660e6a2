//! What processing a packet costs: the same frames are let through to one station more each time.
//!
//! Live frames are sent and processed on one CPU, in one call, so its time is that of all stations up to
//! the last. The stations: the device's receive ring (an XDP program drops there); the
//! packet as the stack has it (dropped by IP, for another host); the UDP socket (full); and the same by
//! way of RPS to the own CPU.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rxsteer_core::{CpuId, CpuSet};
use rxsteer_lab::host::Host;
use rxsteer_testbed::{Pair, pin_thread, thread_cpu_time};

use super::{Cost, difference};
use crate::error::During as _;
use crate::source::live::{self, LiveFrames};
use crate::traffic::Link;
use crate::{BenchError, GenSpec, Traffic};

const PORT: u16 = 9996;

/// Frames of one measurement: some milliseconds, in which a busy machine can leave it alone.
const COUNT: usize = 5000;

/// Measurements, of which the least counts.
const TRIES: u32 = 80;

pub(super) fn measure(pair: &Pair, cpu: CpuId, stop: &AtomicBool) -> Result<Vec<Cost>, BenchError> {
    if !pair.sink.offloads(Pair::SINK_DEVICE)?.gro {
        return Err(BenchError::PeerDoesNotPoll {
            device: Pair::SOURCE_DEVICE.into(),
            peer: Pair::SINK_DEVICE.into(),
        });
    }
    let link = Link { source: pair.source_device.mac, sink: pair.sink_device.mac };
    let device = pair.source_device.index;
    let at = SocketAddr::new(Pair::SINK_V4.into(), PORT);
    let full = pair.sink.run(|| UdpSocket::bind(at))?.during(|| format!("listen at {at}"))?;
    let little = nix::sys::socket::sockopt::RcvBuf;
    nix::sys::socket::setsockopt(&full, little, &2048).during(|| "make the room small".into())?;

    let least = |link: &Link| least(pair, cpu, device, link, stop);
    let program = pair.sink.run(|| live::drop_all(Pair::SINK_DEVICE))??;
    let ring = least(&link)?;
    drop(program);
    let stranger = Link { sink: [2, 0, 0, 0, 0, 99], ..link };
    let stack = least(&stranger)?;
    let socket = least(&link)?;
    let mut own = CpuSet::EMPTY;
    own.insert(cpu);
    let mask = own.mask(u32::from(cpu.0) + 1).to_string();
    pair.sink.write_sys(Pair::SINK_DEVICE, "queues/rx-0/rps_cpus", &mask)?;
    let spread = least(&link)?;
    pair.sink.write_sys(Pair::SINK_DEVICE, "queues/rx-0/rps_cpus", "0")?;

    // A kernel that accounts for softirqs apart leaves this work out of the thread's CPU time.
    let is_apart = socket.cpu_time - ring.cpu_time < LEAST_NS;
    let of = |times: Times| if is_apart { times.wall_time } else { times.cpu_time };
    let [ring, stack, socket, spread] = [ring, stack, socket, spread].map(of);
    let default = Host::simple(1, 1).expect("a host of one CPU and queue is allowed").costs;
    // The hash and the choice are too small to be told apart here.
    let known = f64::from(default.hash + default.choose);
    Ok(vec![
        Cost {
            name: "take",
            ns: difference(stack, ring),
            how: "from the ring of a veth device to IP, which drops it",
        },
        Cost {
            name: "protocol_udp",
            ns: difference(socket, stack),
            how: "from IP to a full UDP socket",
        },
        Cost {
            name: "backlog",
            ns: difference(spread - socket, known),
            how: "by RPS to the own CPU, without hash and choice at their defaults",
        },
    ])
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

/// Returns the least time of one frame, of several tries, in ns.
fn least(
    pair: &Pair,
    cpu: CpuId,
    device: u32,
    link: &Link,
    stop: &AtomicBool,
) -> Result<Times, BenchError> {
    let spec = GenSpec { batch: 64, ..GenSpec::new(Traffic::new(Pair::SINK_V4.into(), PORT)) };
    pair.source.run(|| {
        pin_thread(cpu).during(|| format!("measure on CPU {cpu}"))?;
        let mut frames = LiveFrames::open(&spec, device, link)?;
        let (mut cpu_time, mut wall_time) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..TRIES {
            super::go_on(stop)?;
            let before = pair.sink.device(Pair::SINK_DEVICE)?.counters;
            let (start, start_cpu) = (Instant::now(), thread_cpu_time());
            frames.run(COUNT).during(|| "send live frames".into())?;
            let cpu = thread_cpu_time().saturating_sub(start_cpu);
            let wall = start.elapsed();
            let after = pair.sink.device(Pair::SINK_DEVICE)?.counters;
            // Where another thread (ksoftirqd) took the work over, this is not the time of it.
            let taken = after.rx_packets.wrapping_sub(before.rx_packets);
            let refused = after.rx_dropped.wrapping_sub(before.rx_dropped);
            if refused == 0 && taken >= (COUNT as u64) * 98 / 100 {
                cpu_time = cpu_time.min(cpu.as_nanos() as f64 / COUNT as f64);
                wall_time = wall_time.min(wall.as_nanos() as f64 / COUNT as f64);
            }
        }
        Ok(Times { cpu_time, wall_time })
    })?
}
