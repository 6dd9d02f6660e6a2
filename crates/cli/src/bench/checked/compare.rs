//! `bench compare` as it is meant.

use std::time::Duration;

use rxsteer_bench::{
    CompareSpec, GenSpec, MixedSpec, OverloadSpec, Pattern, Setup, SinkSpec, Sizes, Traffic,
    Workload,
};
use rxsteer_core::CpuSet;
use rxsteer_testbed::{Pair, PairSpec, allowed_cpus};

use super::rr::{Rr, RrWay};
use super::{Link, PORT, Sink, cpu, number, refused, word};
use crate::args::checked::UsageError;
use crate::bench::args::{CompareArgs, CompareVerb, FloodArgs, RrArgs};

/// Length of a run where none is given.
const RUN: Duration = Duration::from_secs(1);

/// What `bench compare` does.
#[derive(Clone, Debug)]
pub struct Compare {
    /// What is compared.
    pub spec: CompareSpec,
    /// The link.
    pub link: PairSpec,
}

impl TryFrom<&CompareVerb> for Compare {
    type Error = UsageError;

    fn try_from(verb: &CompareVerb) -> Result<Self, UsageError> {
        let (args, link, workload) = match verb {
            CompareVerb::Sink { compare, overload, sink } => {
                if sink.listen.is_some() {
                    return Err(refused("--listen", "a comparison needs its testbed"));
                }
                let (reads, testbed) =
                    (Sink::try_from(&**sink)?, sink.traffic.until.duration.is_none());
                let Some((mut source, link)) = reads.testbed else {
                    return Err(refused("--listen", "a comparison needs its testbed"));
                };
                if testbed {
                    source.until.duration = RUN;
                }
                let workload = if overload.is_empty() {
                    Workload::Sink(reads.sink, source)
                } else {
                    let multiples = multiples(overload)?;
                    Workload::Overload(OverloadSpec { sink: reads.sink, source, multiples })
                };
                (compare, link, workload)
            }
            CompareVerb::Rr { compare, rr } => {
                let (requests, link, ipv6) = requests(rr)?;
                (compare, link, Workload::Rr(requests, ipv6))
            }
            CompareVerb::Mixed { compare, flood, rr } => {
                let (requests, link, ipv6) = requests(rr)?;
                let (flood, readers) = flooding(flood, ipv6)?;
                (compare, link, Workload::Mixed(MixedSpec { requests, ipv6, flood, readers }))
            }
        };
        if link.threaded {
            return Err(refused("--threaded", "is one of the set-ups: --setups none,threaded"));
        }
        let Link { spec: link, rps_cpus, .. } = link;
        let spec = spec(args, rps_cpus.map(|cpus| *cpus), workload)?;
        if spec.setups.contains(&Setup::Threaded) && !link.sink.gro {
            let message = "threaded needs --sink-offloads gro, without which a veth device does \
                           not poll";
            return Err(refused("--setups", message));
        }
        if spec.setups.contains(&Setup::Rxsteer) && link.source.tx_checksum {
            let message = "behind rxsteer, checksums that a veth device leaves out are missing, and \
                           all would be lost: --source-offloads without tx-checksum";
            return Err(refused("--setups", message));
        }
        Ok(Self { spec, link })
    }
}

/// Returns the requests, their link, and whether they go by IPv6.
fn requests(rr: &RrArgs) -> Result<(rxsteer_bench::RrSpec, Link, bool), UsageError> {
    let mut asked = Rr::try_from(rr)?;
    let RrWay::Testbed { link, ipv6 } = asked.way else {
        let flag = if rr.to.is_some() { "--to" } else { "--serve" };
        return Err(refused(flag, "a comparison needs its testbed"));
    };
    if rr.asking.until.duration.is_none() {
        asked.spec.until.duration = RUN;
    }
    Ok((asked.spec, link, ipv6))
}

/// Returns a flood and who reads it.
fn flooding(args: &FloodArgs, ipv6: bool) -> Result<(GenSpec, SinkSpec), UsageError> {
    const USUAL: u64 = 1_000_000;
    let rate = match args.flood.as_deref() {
        Some("max") => 0,
        _ => number("--flood", args.flood.as_ref(), USUAL, 1..=1_000_000_000)?,
    };
    let to = if ipv6 { Pair::SINK_V6.into() } else { Pair::SINK_V4.into() };
    let traffic = Traffic {
        pattern: Pattern::Random,
        sizes: word("--flood-size", args.flood_size.as_ref(), Sizes::fixed(20))?,
        ..Traffic::new(to, PORT)
    };
    let flood = GenSpec {
        rate,
        cpu: cpu("--flood-cpu", args.flood_cpu.as_ref())?,
        // What a poll finds of a busy link.
        batch: 256,
        ..GenSpec::new(traffic)
    };
    let reader = cpu("--flood-reader-cpu", args.flood_reader_cpu.as_ref())?;
    let cpus = reader.into_iter().collect();
    Ok((flood, SinkSpec { cpus, ..SinkSpec::new((to, PORT).into()) }))
}

fn multiples(texts: &[String]) -> Result<Vec<f64>, UsageError> {
    let one = |text: &String| {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let value = text.parse::<f64>().ok().filter(|_| plain);
        value.filter(|times| *times > 0.0 && *times <= OverloadSpec::MOST).ok_or_else(|| {
            let most = OverloadSpec::MOST;
            refused("--overload", format!("`{text}`: allowed are numbers above 0, up to {most}"))
        })
    };
    texts.iter().map(one).collect()
}

fn spec(
    args: &CompareArgs,
    cpus: Option<CpuSet>,
    workload: Workload,
) -> Result<CompareSpec, UsageError> {
    let mut setups = Vec::new();
    for name in &args.setups {
        if name == "all" {
            setups.extend(Setup::ALL);
        } else {
            setups.push(word("--setups", Some(name), Setup::None)?);
        }
    }
    if setups.is_empty() {
        setups.extend(Setup::ALL);
    }
    let most = u64::from(CompareSpec::MOST_REPEATS);
    let cpus = match cpus {
        Some(cpus) => cpus,
        None => allowed_cpus().map_err(|error| refused("--rps-cpus", error))?,
    };
    Ok(CompareSpec {
        setups,
        repeats: number("--repeats", args.repeats.as_ref(), 5, 1..=most)? as u32,
        cpus,
        workload,
    })
}
