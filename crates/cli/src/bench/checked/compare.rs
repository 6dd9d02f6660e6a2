//! `bench compare` as it is meant.

use std::time::Duration;

use rxsteer_bench::{CompareSpec, Setup, Workload};
use rxsteer_core::CpuSet;
use rxsteer_testbed::{PairSpec, allowed_cpus};

use super::rr::{Rr, RrWay};
use super::{Link, Sink, number, refused, word};
use crate::args::checked::UsageError;
use crate::bench::args::{CompareArgs, CompareVerb};

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
            CompareVerb::Sink { compare, sink } => {
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
                (compare, link, Workload::Sink(reads.sink, source))
            }
            CompareVerb::Rr { compare, rr } => {
                let mut asked = Rr::try_from(&**rr)?;
                let RrWay::Testbed { link, ipv6 } = asked.way else {
                    return Err(refused("--to", "a comparison needs its testbed"));
                };
                if rr.asking.until.duration.is_none() {
                    asked.spec.until.duration = RUN;
                }
                (compare, link, Workload::Rr(asked.spec, ipv6))
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
        Ok(Self { spec, link })
    }
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
