//! What reading a datagram costs: the datagrams are all there before the first is read.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_core::CpuId;
use rxsteer_testbed::{Pair, thread_cpu_time};

use super::{Cost, difference, on};
use crate::error::During as _;
use crate::{BenchError, GenSpec, Means, Road, Sizes, Traffic, Until, Watch, generate, sys};

const PORT: u16 = 9997;

/// Datagrams of one measurement.
const COUNT: u64 = 2000;

/// Measurements, of which the least counts.
const TRIES: u32 = 7;

/// Datagrams with one `recvmmsg`.
const BATCH: usize = 64;

const SMALL: u16 = 20;
const LARGE: u16 = 1400;

pub(super) fn measure(
    pair: &Pair,
    cpu: CpuId,
    other: Option<CpuId>,
    stop: &AtomicBool,
) -> Result<Vec<Cost>, BenchError> {
    let least = |size, read, batch| least(pair, size, cpu, read, batch, stop);
    let single = least(SMALL, cpu, 1)?;
    let batch = least(SMALL, cpu, BATCH)?;
    let large = least(LARGE, cpu, 1)?;
    let more = batch * BATCH as f64 - single;
    let kib = f64::from(LARGE - SMALL) / 1024.0;
    let mut costs = vec![
        Cost {
            name: "read",
            ns: difference(single, 0.0),
            how: "recv of 20 bytes, on the CPU that \
            processed them",
        },
        Cost {
            name: "read_next",
            ns: difference(more / (BATCH - 1) as f64, 0.0),
            how: "one more of 64 with recvmmsg",
        },
        Cost {
            name: "copy_per_kib",
            ns: difference(large / kib, single / kib),
            how: "recv of 1,400 bytes against 20",
        },
    ];
    if let Some(other) = other {
        let crossed = least(SMALL, other, 1)?;
        let shares = super::shares_cache(cpu, other);
        costs.push(Cost {
            name: if shares { "read_near" } else { "read_far" },
            ns: difference(crossed, single),
            how: "the same on another CPU than the one that processed them",
        });
    }
    Ok(costs)
}

/// Returns the least CPU time of reading one, of several tries, in ns.
fn least(
    pair: &Pair,
    size: u16,
    processed: CpuId,
    read: CpuId,
    batch: usize,
    stop: &AtomicBool,
) -> Result<f64, BenchError> {
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        least = least.min(once(pair, size, processed, read, batch, stop)?);
    }
    Ok(least)
}

fn once(
    pair: &Pair,
    size: u16,
    processed: CpuId,
    reader: CpuId,
    batch: usize,
    stop: &AtomicBool,
) -> Result<f64, BenchError> {
    let at = SocketAddr::new(Pair::SINK_V4.into(), PORT);
    let socket = pair.sink.run(|| UdpSocket::bind(at))?.during(|| format!("read at {at}"))?;
    let room = nix::sys::socket::sockopt::RcvBufForce;
    nix::sys::socket::setsockopt(&socket, room, &(64 << 20)).during(|| "make room".into())?;
    // What is sent from a CPU by a packet socket is processed there, in the same call.
    let traffic = Traffic { sizes: Sizes::fixed(size), ..Traffic::new(at.ip(), PORT) };
    let watch = Watch { stop, on_second: &|_| {} };
    let until = Until { count: COUNT, duration: Duration::from_secs(10) };
    let source = GenSpec {
        means: Some(Means::Packet),
        until,
        cpu: Some(processed),
        ..GenSpec::new(traffic)
    };
    generate(&source, Road::Pair(pair), &watch)?;
    // Also between these two: what was stopped halfway is no measurement.
    super::go_on(stop)?;
    on(reader, || {
        socket.set_nonblocking(true).during(|| "read without waiting".into())?;
        let mut slots = sys::Batch::new(batch, 2048).during(|| "make buffers".into())?;
        let mut bytes = [0; 2048];
        let mut count = 0u64;
        let start = thread_cpu_time();
        loop {
            let got = if batch == 1 {
                socket.recv(&mut bytes).map(|_| 1)
            } else {
                slots.receive(socket.as_fd(), batch, libc::MSG_DONTWAIT)
            };
            match got {
                Ok(got) => count += got as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).during(|| "read".into()),
            }
        }
        let time = thread_cpu_time().saturating_sub(start);
        if count == 0 {
            let nothing = io::Error::other("nothing arrived");
            return Err(nothing).during(|| format!("read what was sent to {at}"));
        }
        Ok(time.as_nanos() as f64 / count as f64)
    })
}
