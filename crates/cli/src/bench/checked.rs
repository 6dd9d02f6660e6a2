//! The command line of `bench` as it is meant.
//!
//! Always true: every refusal names the flag, the value and what is allowed.

pub mod compare;
pub mod rr;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use rxsteer_bench::{GenSpec, Permit, SinkSpec, Sizes, Traffic, Until};
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_testbed::{Offloads, Pair, PairSpec};

use super::args::{GenArgs, LinkArgs, ReadArgs, SinkArgs, TrafficArgs};
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
pub(super) fn source(args: &TrafficArgs, to: Option<SocketAddr>) -> Result<GenSpec, UsageError> {
    let sink: IpAddr = if args.ipv6 { Pair::SINK_V6.into() } else { Pair::SINK_V4.into() };
    if let (Some(to), true) = (to, args.ipv6) {
        let message = format!("is for the testbed; the address {} says it", to.ip());
        return Err(refused("--ipv6", message));
    }
    let to = to.unwrap_or(SocketAddr::new(sink, PORT));
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
    let most = GenSpec::MOST_BATCH as u64;
    Ok(GenSpec {
        means,
        rate: number("--rate", args.rate.as_ref(), 0, 1..=1_000_000_000)?,
        until: until(args)?,
        batch: number("--send-batch", args.send_batch.as_ref(), 64, 1..=most)? as usize,
        cpu: cpu("--source-cpu", args.source_cpu.as_ref())?,
        ..GenSpec::new(traffic)
    })
}

fn until(args: &TrafficArgs) -> Result<Until, UsageError> {
    let default = Until::default();
    Ok(Until {
        count: number("--count", args.count.as_ref(), default.count, 1..=u64::MAX)?,
        duration: seconds("--duration", args.duration.as_ref(), default.duration)?,
    })
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
        let LinkArgs { queues, mtu, source_offloads, sink_offloads, rps_cpus, threaded } = args;
        let given = [
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
        let named = named(&args.i_own_this_network)?;
        let Some(to) = &args.to else {
            if !named.is_empty() {
                return Err(refused("--i-own-this-network", "needs --to"));
            }
            let source = source(&args.traffic, None)?;
            return Ok(Self { source, road: Way::Testbed((&args.link).try_into()?) });
        };
        let to = place("--to", to)?;
        if let Some(flag) = Link::given(&args.link) {
            return Err(refused(flag, "is for the testbed, and --to does without"));
        }
        Ok(Self { source: source(&args.traffic, Some(to))?, road: Way::Open(Permit::new(named)) })
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
                until: until(&args.traffic)?,
                listens_outside: true,
                ..read(&args.read, listen)?
            };
            return Ok(Self { sink, testbed: None });
        }
        let source = source(&args.traffic, None)?;
        let listen = SocketAddr::new(source.traffic.to, source.traffic.port);
        let sink = read(&args.read, listen)?;
        Ok(Self { sink, testbed: Some((source, (&args.link).try_into()?)) })
    }
}

/// Returns which flag of the sender was given, if any was.
fn sending(args: &TrafficArgs) -> Option<&'static str> {
    let given = [
        ("--kind", args.kind.is_some()),
        ("--flows", args.flows.is_some()),
        ("--pattern", args.pattern.is_some()),
        ("--size", args.size.is_some()),
        ("--ipv6", args.ipv6),
        ("--rate", args.rate.is_some()),
        ("--means", args.means.is_some()),
        ("--send-batch", args.send_batch.is_some()),
        ("--source-cpu", args.source_cpu.is_some()),
        ("--seed", args.seed.is_some()),
    ];
    given.into_iter().find(|(_, is)| *is).map(|(flag, _)| flag)
}

fn read(args: &ReadArgs, listen: SocketAddr) -> Result<SinkSpec, UsageError> {
    let peers = number("--connect", args.connect.as_ref(), 0, 1..=1_000_000)? as u32;
    let most_threads = SinkSpec::MOST_THREADS as u64;
    let most_batch = SinkSpec::MOST_BATCH as u64;
    let busy_us = number("--busy-poll", args.busy_poll.as_ref(), 0, 0..=1_000_000)?;
    let buffer = number("--receive-buffer", args.receive_buffer.as_ref(), 0, 4096..=1 << 30)?;
    let sink = SinkSpec {
        call: word("--call", args.call.as_ref(), rxsteer_bench::Call::Recvmmsg)?,
        batch: number("--batch", args.batch.as_ref(), 64, 1..=most_batch)? as usize,
        gro: args.gro,
        threads: number("--threads", args.threads.as_ref(), 1, 1..=most_threads)? as usize,
        reuseport: args.reuseport,
        peers: SinkSpec::peers_in_pair(listen.ip(), peers),
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
    if !sink.peers.is_empty() && sink.reuseport {
        return Err(refused("--reuseport", "connected sockets need it not"));
    }
    Ok(sink)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::args::Verb;
    use crate::bench::args::BenchVerb;
    use clap::Parser as _;
    use rxsteer_bench::{Kind, Means, Pattern};

    fn sink(line: &str) -> Result<Sink, UsageError> {
        let words = format!("rxsteer bench sink {line}");
        match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
            Verb::Bench(BenchVerb::Sink(args)) => Sink::try_from(&*args),
            other => panic!("{other:?}"),
        }
    }

    fn source(line: &str) -> Result<Gen, UsageError> {
        let words = format!("rxsteer bench gen {line}");
        match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
            Verb::Bench(BenchVerb::Gen(args)) => Gen::try_from(&*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_typed_is_what_is_sent() {
        let made = source(
            "--kind vxlan --flows 2k --pattern heavy-tail --size 64x3,1400 --rate 150k --means packet \
             --send-batch 8 --source-cpu 1 --seed 9 -c 1M -d 0.25 --queues 2 --mtu 9000 \
             --threaded --rps-cpus 0-1",
        )
        .unwrap();
        let traffic = &made.source.traffic;
        assert_eq!((traffic.kind, traffic.flows, traffic.seed), (Kind::Vxlan, 2000, 9));
        assert_eq!((traffic.pattern, traffic.sizes.cycle().len()), (Pattern::HeavyTail, 4));
        assert_eq!((made.source.rate, made.source.means), (150_000, Some(Means::Packet)));
        assert_eq!((made.source.batch, made.source.cpu), (8, Some(CpuId(1))));
        let until = Until { count: 1_000_000, duration: Duration::from_millis(250) };
        assert_eq!(made.source.until, until);
        let Way::Testbed(link) = made.road else { panic!("{made:?}") };
        assert_eq!((link.spec.queues, link.spec.mtu), (2, 9000));
        assert!(link.threaded && link.spec.sink.gro && !link.spec.source.gro);
        assert_eq!(link.rps_cpus.unwrap().count(), 2);
    }

    #[test]
    fn how_to_read_is_what_was_typed() {
        let made = sink(
            "--call recvmsg --gro --threads 3 --connect 9 --cpus 0,1 --busy-poll 50 \
             --receive-buffer 1M -6",
        )
        .unwrap();
        assert_eq!((made.sink.threads, made.sink.peers.len()), (3, 9));
        assert_eq!(made.sink.cpus, [CpuId(0), CpuId(1)]);
        assert_eq!(made.sink.busy_poll, Duration::from_micros(50));
        assert_eq!(made.sink.receive_buffer, Some(1_000_000));
        assert!(made.sink.listen.is_ipv6() && made.testbed.is_some());
        let open = sink("--listen 127.0.0.1:5000 -d 1").unwrap();
        assert!(open.testbed.is_none() && open.sink.listens_outside);
        assert_eq!(open.sink.until.duration, Duration::from_secs(1));
    }

    fn rr(line: &str) -> Result<rr::Rr, UsageError> {
        let words = format!("rxsteer bench rr {line}");
        match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
            Verb::Bench(BenchVerb::Rr(args)) => rr::Rr::try_from(&*args),
            other => panic!("{other:?}"),
        }
    }

    fn compare(line: &str) -> Result<compare::Compare, UsageError> {
        let words = format!("rxsteer bench compare {line}");
        match Cli::try_parse_from(words.split_whitespace()).unwrap().verb {
            Verb::Bench(BenchVerb::Compare(verb)) => compare::Compare::try_from(&verb),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn comparisons_are_as_they_were_typed() {
        use rxsteer_bench::{Setup, Workload};
        let made = compare("rr --setups rfs,none --repeats 3 --protocol tcp --rps-cpus 0").unwrap();
        assert_eq!(made.spec.setups, [Setup::Rfs, Setup::None]);
        assert_eq!((made.spec.repeats, made.spec.cpus.count()), (3, 1));
        let Workload::Rr(rr, false) = made.spec.workload else { panic!() };
        assert_eq!(rr.until.duration, Duration::from_secs(1));
        let made = compare("sink -d 2 --queues 2").unwrap();
        assert_eq!((made.spec.setups.len(), made.link.queues), (5, 2));
        let Workload::Sink(_, source) = made.spec.workload else { panic!() };
        assert_eq!(source.until.duration, Duration::from_secs(2));
        for (line, flag, allowed) in [
            ("sink --setups xps", "--setups", "flow-limit"),
            ("sink --setups threaded --sink-offloads none", "--setups", "gro"),
            ("sink --repeats 0", "--repeats", "1 to 1000"),
            ("sink --threaded", "--threaded", "--setups"),
            ("sink --listen 127.0.0.1:9", "--listen", "testbed"),
            ("rr --to 127.0.0.1:9", "--to", "testbed"),
        ] {
            let error = compare(line).unwrap_err();
            assert_eq!(error.flag, flag, "{line}");
            assert!(error.message.contains(allowed), "{line}: {error}");
        }
    }

    #[test]
    fn requests_are_as_they_were_typed() {
        use rr::RrWay;
        use rxsteer_bench::{Pace, Protocol};
        let made = rr("--protocol tcp --flows 500 --request 1 --response 100 --client-threads 2 \
             --server-cpus 0,1 --timeout 0.5 -6")
        .unwrap();
        assert_eq!((made.spec.protocol, made.spec.flows), (Protocol::Tcp, 500));
        assert_eq!((made.spec.request_len, made.spec.response_len), (1, 100));
        assert_eq!((made.spec.client_threads, made.spec.server_cpus.len()), (2, 2));
        assert_eq!(made.spec.patience, Duration::from_millis(500));
        assert!(matches!(made.way, RrWay::Testbed { ipv6: true, .. }));
        let open = rr("--open-loop 10k --unconnected").unwrap().spec;
        assert_eq!((open.pace, open.request_len, open.connected), (Pace::Open(10_000), 8, false));
        let serve = rr("--serve 127.0.0.1:9 --i-own-this-network 127.0.0.1").unwrap();
        assert!(matches!(serve.way, RrWay::Serve { .. }));
        for (line, flag, allowed) in [
            ("--protocol sctp", "--protocol", "udp, tcp"),
            ("--flows 50001", "--flows", "1 to 50000"),
            ("--request 0", "--request", "1 to 8192"),
            ("--open-loop 100 --response 7", "--response", "8 to"),
            ("--open-loop 0", "--open-loop", "1 to"),
            ("--to 127.0.0.1:9 -6", "--ipv6", "testbed"),
            ("--to 127.0.0.1:9 --mtu 1500", "--mtu", "testbed"),
            ("--i-own-this-network 127.0.0.1", "--i-own-this-network", "--serve"),
        ] {
            let error = rr(line).unwrap_err();
            assert_eq!(error.flag, flag, "{line}");
            assert!(error.message.contains(allowed), "{line}: {error}");
        }
    }

    #[test]
    fn every_refusal_names_its_flag_and_what_is_allowed() {
        for (line, flag, allowed) in [
            ("--kind icmp", "--kind", "tcp-syn"),
            ("--flows 0", "--flows", "1 to 4194304"),
            ("--flows -1", "--flows", "1 to"),
            ("--pattern x", "--pattern", "heavy-tail"),
            ("--size 9001", "--size", "9000"),
            ("--rate 0", "--rate", "1 to"),
            ("--rate 1.5", "--rate", "k is 1,000"),
            ("--means pigeon", "--means", "gso"),
            ("--send-batch 1025", "--send-batch", "1 to 1024"),
            ("--source-cpu x", "--source-cpu", "0 to"),
            ("-c 0", "--count", "numbers from 1"),
            ("-d 0", "--duration", "0.5"),
            ("-d nan", "--duration", "0.5"),
            ("-d 1e9", "--duration", "86400"),
            ("-d 86401", "--duration", "86400"),
            ("--queues 65", "--queues", "1 to 64"),
            ("--mtu 100", "--mtu", "1280 to"),
            ("--sink-offloads lro", "--sink-offloads", "udp-gso"),
            ("--source-offloads tso", "--source-offloads", "tx-checksum"),
            ("--threaded --sink-offloads none", "--threaded", "--sink-offloads gro"),
            ("--rps-cpus 3-1", "--rps-cpus", "0-3,8"),
            ("--to 192.0.2.1", "--to", "192.0.2.1:9999"),
            ("--to 192.0.2.1:9 --mtu 1500", "--mtu", "--to"),
            ("--to 192.0.2.1:9 -6", "--ipv6", "testbed"),
            ("--i-own-this-network 192.0.2.1", "--i-own-this-network", "--to"),
            ("--to 192.0.2.1:9 --i-own-this-network all", "--i-own-this-network", "192.0.2.1"),
        ] {
            let error = source(line).unwrap_err();
            assert_eq!(error.flag, flag, "{line}");
            assert!(error.message.contains(allowed), "{line}: {error}");
        }
        for (line, flag, allowed) in [
            ("--call read", "--call", "recvmmsg"),
            ("--call recv --gro", "--gro", "recvmsg"),
            ("--batch 0", "--batch", "1 to 1024"),
            ("--threads 257", "--threads", "256"),
            ("--connect 5 --reuseport", "--reuseport", "connected"),
            ("--cpus x", "--cpus", "0-3,8"),
            ("--receive-buffer 1", "--receive-buffer", "4096"),
            ("--listen x", "--listen", "[2001:db8::1]:9999"),
            ("--listen 127.0.0.1:9 --flows 3", "--flows", "--listen"),
            ("--listen 127.0.0.1:9 --connect 3", "--connect", "testbed"),
            ("--listen 127.0.0.1:9 --queues 3", "--queues", "--listen"),
        ] {
            let error = sink(line).unwrap_err();
            assert_eq!(error.flag, flag, "{line}");
            assert!(error.message.contains(allowed), "{line}: {error}");
        }
    }
}
