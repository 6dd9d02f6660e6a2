//! The command line of `bench` as it is meant.
//!
//! Always true: every refusal names the flag, the value and what is allowed.

pub mod capture;
pub mod compare;
pub mod cpu_flags;
pub mod rr;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use rxsteer_bench::{GenSpec, Permit, SinkSpec, Sizes, Traffic, Until};
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_testbed::{Offloads, Pair, PairSpec};

use super::args::{GenArgs, LinkArgs, ReadArgs, SinkArgs, TrafficArgs, UntilArgs};
use crate::args::checked::UsageError;

/// Port of the receiver in the testbed.
const PORT: u16 = 9999;

fn refused(flag: &'static str, message: impl fmt::Display) -> UsageError {
    UsageError { flag, message: message.to_string() }
}

/// Reads a number in which k, M and G are powers of 1,000.
pub(super) fn number(
    flag: &'static str,
    text: Option<&String>,
    default: u64,
    allowed: RangeInclusive<u64>,
) -> Result<u64, UsageError> {
    let Some(text) = text else { return Ok(default) };
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text.as_str(), 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let value = if is_number { digits.replace('_', "").parse::<u64>().ok() } else { None };
    match value.and_then(|value| value.checked_mul(unit)) {
        Some(value) if allowed.contains(&value) => Ok(value),
        _ => {
            let (low, high) = (allowed.start(), allowed.end());
            let range = if *high == u64::MAX {
                format!("numbers from {low}")
            } else {
                format!("{low} to {high}")
            };
            Err(refused(flag, format!("`{text}`: allowed are {range} (k is 1,000, M 1,000,000)")))
        }
    }
}

/// Reads a time in seconds.
fn seconds(
    flag: &'static str,
    text: Option<&String>,
    default: Duration,
) -> Result<Duration, UsageError> {
    let Some(text) = text else { return Ok(default) };
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = text.parse::<f64>().ok().filter(|_| plain);
    match value.and_then(|value| Duration::try_from_secs_f64(value).ok()) {
        Some(value) if !value.is_zero() && value <= Until::LONGEST => Ok(value),
        _ => {
            let most = Until::LONGEST.as_secs();
            let message = format!("`{text}`: allowed are seconds such as 5 or 0.5, at most {most}");
            Err(refused(flag, message))
        }
    }
}

fn word<T>(flag: &'static str, text: Option<&String>, default: T) -> Result<T, UsageError>
where
    T: FromStr<Err: fmt::Display>,
{
    text.map_or(Ok(default), |text| text.parse().map_err(|error| refused(flag, error)))
}

fn cpu(flag: &'static str, text: Option<&String>) -> Result<Option<CpuId>, UsageError> {
    let Some(text) = text else { return Ok(None) };
    let id = number(flag, Some(text), 0, 0..=u64::from(CpuId::LIMIT) - 1)?;
    Ok(Some(CpuId(id as u16)))
}

fn cpus(flag: &'static str, text: Option<&String>) -> Result<Option<CpuSet>, UsageError> {
    let Some(text) = text else { return Ok(None) };
    let set = CpuSet::from_list(text).map_err(|error| {
        refused(flag, format!("`{text}`: {error}; a list such as 0-3,8 is allowed"))
    })?;
    Ok(Some(set))
}

fn place(flag: &'static str, text: &str) -> Result<SocketAddr, UsageError> {
    text.parse().map_err(|_| {
        let allowed = "an address and a port such as 192.0.2.1:9999 or [2001:db8::1]:9999";
        refused(flag, format!("`{text}`: allowed is {allowed}"))
    })
}

/// Reads whom to send to.
fn destination(flag: &'static str, text: &str) -> Result<SocketAddr, UsageError> {
    let to = place(flag, text)?;
    if to.port() == 0 {
        return Err(refused(flag, format!("`{text}`: port 0 is none that anybody listens at")));
    }
    Ok(to)
}

/// Reads the addresses of those who allow load.
fn named(texts: &[String]) -> Result<Vec<IpAddr>, UsageError> {
    let one = |text: &String| {
        text.parse().map_err(|_| {
            let message = format!("`{text}`: allowed is one address, such as 192.0.2.1");
            refused("--i-own-this-network", message)
        })
    };
    texts.iter().map(one).collect()
}

/// What the packets are, where they go and until when.
pub(super) fn source(args: &TrafficArgs, to: SocketAddr) -> Result<GenSpec, UsageError> {
    let traffic = Traffic {
        kind: word("--kind", args.kind.as_ref(), Default::default())?,
        flows: number("--flows", args.flows.as_ref(), 64, 1..=1 << 22)? as u32,
        pattern: word("--pattern", args.pattern.as_ref(), Default::default())?,
        sizes: word("--size", args.size.as_ref(), Sizes::fixed(20))?,
        seed: number("--seed", args.seed.as_ref(), 1, 0..=u64::MAX)?,
        ..Traffic::new(to.ip(), to.port())
    };
    let means = match &args.means {
        Some(text) => Some(text.parse().map_err(|error| refused("--means", error))?),
        None => None,
    };
    Ok(GenSpec {
        means,
        rate: rate(args)?,
        until: (&args.until).try_into()?,
        batch: send_batch(args)?,
        cpu: cpu("--source-cpu", args.source_cpu.as_ref())?,
        ..GenSpec::new(traffic)
    })
}

fn rate(args: &TrafficArgs) -> Result<u64, UsageError> {
    number("--rate", args.rate.as_ref(), 0, 1..=1_000_000_000)
}

fn send_batch(args: &TrafficArgs) -> Result<usize, UsageError> {
    let most = GenSpec::MOST_BATCH as u64;
    Ok(number("--send-batch", args.send_batch.as_ref(), 64, 1..=most)? as usize)
}

impl TryFrom<&UntilArgs> for Until {
    type Error = UsageError;

    fn try_from(args: &UntilArgs) -> Result<Self, UsageError> {
        let default = Self::default();
        Ok(Self {
            count: number("--count", args.count.as_ref(), default.count, 1..=u64::MAX)?,
            duration: seconds("--duration", args.duration.as_ref(), default.duration)?,
        })
    }
}

/// Returns where the receiver of a testbed listens.
fn receiver(link: &LinkArgs) -> SocketAddr {
    let sink: IpAddr = if link.ipv6 { Pair::SINK_V6.into() } else { Pair::SINK_V4.into() };
    SocketAddr::new(sink, PORT)
}

/// The link of a testbed, and what is set at its receiving end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// The pair.
    pub spec: PairSpec,
    /// CPUs of RPS.
    pub rps_cpus: Option<Box<CpuSet>>,
    /// A thread polls.
    pub threaded: bool,
}

impl TryFrom<&LinkArgs> for Link {
    type Error = UsageError;

    fn try_from(args: &LinkArgs) -> Result<Self, UsageError> {
        let default = PairSpec::default();
        let spec = PairSpec {
            queues: number("--queues", args.queues.as_ref(), 1, 1..=64)? as u32,
            mtu: number("--mtu", args.mtu.as_ref(), u64::from(default.mtu), 1280..=65_535)? as u32,
            source: offloads("--source-offloads", args.source_offloads.as_ref())?,
            // An end that polls, as a network card does.
            sink: match &args.sink_offloads {
                None => Offloads { gro: true, ..Offloads::NONE },
                given => offloads("--sink-offloads", given.as_ref())?,
            },
        };
        if args.threaded && !spec.sink.gro {
            let message = "needs --sink-offloads gro, without which a veth device does not poll";
            return Err(refused("--threaded", message));
        }
        let rps_cpus = cpus("--rps-cpus", args.rps_cpus.as_ref())?.map(Box::new);
        Ok(Self { spec, rps_cpus, threaded: args.threaded })
    }
}

impl Link {
    /// Returns which flag of the testbed was given, if any was.
    fn given(args: &LinkArgs) -> Option<&'static str> {
        let LinkArgs { ipv6, queues, mtu, source_offloads, sink_offloads, rps_cpus, threaded } =
            args;
        let given = [
            ("--ipv6", *ipv6),
            ("--queues", queues.is_some()),
            ("--mtu", mtu.is_some()),
            ("--source-offloads", source_offloads.is_some()),
            ("--sink-offloads", sink_offloads.is_some()),
            ("--rps-cpus", rps_cpus.is_some()),
            ("--threaded", *threaded),
        ];
        given.into_iter().find(|(_, is)| *is).map(|(flag, _)| flag)
    }
}

fn offloads(flag: &'static str, text: Option<&String>) -> Result<Offloads, UsageError> {
    let mut offloads = Offloads::NONE;
    match text.map(String::as_str) {
        None | Some("none") => return Ok(offloads),
        Some("all") => return Ok(Offloads::ALL),
        Some(list) => {
            for word in list.split(',') {
                let place = match word {
                    "tx-checksum" => &mut offloads.tx_checksum,
                    "gro" => &mut offloads.gro,
                    "gso" => &mut offloads.gso,
                    "tso" => &mut offloads.tso,
                    "udp-gso" => &mut offloads.udp_gso,
                    _ => {
                        let allowed = "none, all, or of tx-checksum, gro, gso, tso, udp-gso";
                        return Err(refused(flag, format!("`{word}`: allowed are {allowed}")));
                    }
                };
                *place = true;
            }
        }
    }
    if (offloads.tso || offloads.udp_gso) && !offloads.tx_checksum {
        return Err(refused(flag, "tso and udp-gso need tx-checksum"));
    }
    Ok(offloads)
}

/// What `bench gen` does.
#[derive(Clone, Debug)]
pub struct Gen {
    /// What is sent.
    pub source: GenSpec,
    /// Over what.
    pub road: Way,
}

/// Over what packets go.
#[derive(Clone, Debug)]
pub enum Way {
    /// A testbed.
    Testbed(Link),
    /// The network of the host.
    Open(Permit),
}

impl TryFrom<&GenArgs> for Gen {
    type Error = UsageError;

    fn try_from(args: &GenArgs) -> Result<Self, UsageError> {
        let named = named(&args.permit.i_own_this_network)?;
        let Some(to) = &args.to else {
            if !named.is_empty() {
                return Err(refused("--i-own-this-network", "needs --to"));
            }
            let source = source(&args.traffic, receiver(&args.link))?;
            return Ok(Self { source, road: Way::Testbed((&args.link).try_into()?) });
        };
        let to = destination("--to", to)?;
        if let Some(flag) = Link::given(&args.link) {
            return Err(refused(flag, "is for the testbed, and --to does without"));
        }
        Ok(Self { source: source(&args.traffic, to)?, road: Way::Open(Permit::new(named)) })
    }
}

/// What `bench sink` does.
#[derive(Clone, Debug)]
pub struct Sink {
    /// How to read.
    pub sink: SinkSpec,
    /// What is sent over which link; `None` for what others send.
    pub testbed: Option<(GenSpec, Link)>,
}

impl TryFrom<&SinkArgs> for Sink {
    type Error = UsageError;

    fn try_from(args: &SinkArgs) -> Result<Self, UsageError> {
        if let Some(listen) = &args.listen {
            let listen = place("--listen", listen)?;
            if let Some(flag) = Link::given(&args.link) {
                return Err(refused(flag, "is for the testbed, and --listen does without"));
            }
            if let Some(flag) = sending(&args.traffic) {
                return Err(refused(flag, "is for the sender, and --listen has none of its own"));
            }
            if args.read.connect.is_some() {
                return Err(refused("--connect", "is for the testbed, whose senders are known"));
            }
            let sink = SinkSpec {
                until: (&args.traffic.until).try_into()?,
                listens_outside: true,
                ..read(&args.read, listen)?
            };
            return Ok(Self { sink, testbed: None });
        }
        let source = source(&args.traffic, receiver(&args.link))?;
        let listen = SocketAddr::new(source.traffic.to, source.traffic.port);
        let sink = read(&args.read, listen)?;
        Ok(Self { sink, testbed: Some((source, (&args.link).try_into()?)) })
    }
}

/// Returns which flag of the sender was given, if any was.
fn sending(args: &TrafficArgs) -> Option<&'static str> {
    let given = [
        ("--rate", args.rate.is_some()),
        ("--send-batch", args.send_batch.is_some()),
        ("--source-cpu", args.source_cpu.is_some()),
    ];
    let given = given.into_iter().find(|(_, is)| *is).map(|(flag, _)| flag);
    making(args).or(given)
}

/// Returns which flag was given that says what packets are made, if any was.
fn making(args: &TrafficArgs) -> Option<&'static str> {
    let given = [
        ("--kind", args.kind.is_some()),
        ("--flows", args.flows.is_some()),
        ("--pattern", args.pattern.is_some()),
        ("--size", args.size.is_some()),
        ("--means", args.means.is_some()),
        ("--seed", args.seed.is_some()),
    ];
    given.into_iter().find(|(_, is)| *is).map(|(flag, _)| flag)
}

fn read(args: &ReadArgs, listen: SocketAddr) -> Result<SinkSpec, UsageError> {
    let peers = number("--connect", args.connect.as_ref(), 0, 1..=1_000_000)? as u32;
    let most_threads = SinkSpec::MOST_THREADS as u64;
    let most_batch = SinkSpec::MOST_BATCH as u64;
    let busy_us = number("--busy-poll", args.busy_poll.as_ref(), 0, 0..=1_000_000)?;
    let most_work = SinkSpec::MOST_WORK.as_nanos() as u64;
    let buffer = number("--receive-buffer", args.receive_buffer.as_ref(), 0, 4096..=1 << 30)?;
    let sink = SinkSpec {
        call: word("--call", args.call.as_ref(), rxsteer_bench::Call::Recvmmsg)?,
        batch: number("--batch", args.batch.as_ref(), 64, 1..=most_batch)? as usize,
        gro: args.gro,
        threads: number("--threads", args.threads.as_ref(), 1, 1..=most_threads)? as usize,
        reuseport: args.reuseport,
        peers: SinkSpec::peers_in_pair(listen.ip(), peers),
        work: Duration::from_nanos(number("--work", args.work.as_ref(), 0, 0..=most_work)?),
        cpus: cpus("--cpus", args.cpus.as_ref())?.map_or(Vec::new(), |set| set.iter().collect()),
        busy_poll: Duration::from_micros(busy_us),
        receive_buffer: args.receive_buffer.as_ref().map(|_| buffer as usize),
        ..SinkSpec::new(listen)
    };
    if sink.gro && sink.call == rxsteer_bench::Call::Recv {
        let message = "recv cannot tell how many datagrams were merged; needs --call recvmsg or \
                       recvmmsg";
        return Err(refused("--gro", message));
    }
    if !sink.busy_poll.is_zero() && sink.call == rxsteer_bench::Call::IoUring {
        return Err(refused("--busy-poll", "io-uring does not poll for its sockets"));
    }
    if !sink.peers.is_empty() && sink.reuseport {
        return Err(refused("--reuseport", "connected sockets need it not"));
    }
    Ok(sink)
}

#[cfg(test)]
mod tests;
