//! `bench rr` as it is meant.

use std::net::SocketAddr;
use std::time::Duration;

use rxsteer_bench::{Pace, Permit, Protocol, RrSpec};

use super::{Link, cpus, destination, named, number, place, refused, seconds, word};
use crate::args::checked::UsageError;
use crate::bench::args::{AskingArgs, RrArgs, ThreadArgs};

/// What `bench rr` does.
#[derive(Clone, Debug)]
pub struct Rr {
    /// How to ask and answer.
    pub spec: RrSpec,
    /// Over what.
    pub way: RrWay,
}

/// Which ends are here.
#[derive(Clone, Debug)]
pub enum RrWay {
    /// Both, in a testbed.
    Testbed {
        /// The link between them.
        link: Link,
        /// By IPv6.
        ipv6: bool,
    },
    /// The asking end.
    Ask {
        /// Whom.
        to: SocketAddr,
        /// Whom it may.
        permit: Permit,
    },
    /// The answering end.
    Serve {
        /// Where.
        at: SocketAddr,
        /// Whom it may answer.
        permit: Permit,
    },
}

impl TryFrom<&RrArgs> for Rr {
    type Error = UsageError;

    fn try_from(args: &RrArgs) -> Result<Self, UsageError> {
        let permit = Permit::new(named(&args.permit.i_own_this_network)?);
        let elsewhere = args.to.as_ref().or(args.serve.as_ref());
        if elsewhere.is_some() {
            if let Some(flag) = Link::given(&args.link) {
                return Err(refused(flag, "is for the testbed, and --to and --serve do without"));
            }
        } else if !args.permit.i_own_this_network.is_empty() {
            return Err(refused("--i-own-this-network", "needs --to or --serve"));
        }
        let way = match (&args.to, &args.serve) {
            (Some(to), _) => RrWay::Ask { to: destination("--to", to)?, permit },
            (None, Some(at)) => RrWay::Serve { at: place("--serve", at)?, permit },
            (None, None) => RrWay::Testbed { link: (&args.link).try_into()?, ipv6: args.link.ipv6 },
        };
        Ok(Self { spec: spec(&args.asking, &args.threads)?, way })
    }
}

fn spec(args: &AskingArgs, on: &ThreadArgs) -> Result<RrSpec, UsageError> {
    let protocol = word("--protocol", args.protocol.as_ref(), Protocol::Udp)?;
    let rate = number("--open-loop", args.open_loop.as_ref(), 0, 1..=1_000_000_000)?;
    let pace = if args.open_loop.is_some() { Pace::Open(rate) } else { Pace::Closed };
    // Room for the number that tells requests apart.
    let usual = match (pace, protocol) {
        (Pace::Open(_), Protocol::Udp) => RrSpec::NUMBER_LEN as u64,
        _ => 1,
    };
    let largest = RrSpec::LARGEST as u64;
    let threads = RrSpec::MOST_THREADS as u64;
    let flows = u64::from(RrSpec::MOST_FLOWS);
    let list = |flag, text: &Option<String>| -> Result<Vec<_>, UsageError> {
        Ok(cpus(flag, text.as_ref())?.map_or(Vec::new(), |set| set.iter().collect()))
    };
    let least = if args.open_loop.is_some() && protocol == Protocol::Udp { usual } else { 1 };
    Ok(RrSpec {
        protocol,
        connected: !args.unconnected,
        flows: number("--flows", args.flows.as_ref(), 1, 1..=flows)? as u32,
        request_len: number("--request", args.request.as_ref(), usual, least..=largest)? as usize,
        response_len: number("--response", args.response.as_ref(), usual, least..=largest)?
            as usize,
        pace,
        until: (&args.until).try_into()?,
        patience: seconds("--timeout", args.timeout.as_ref(), Duration::from_secs(1))?,
        client_threads: number("--client-threads", on.client_threads.as_ref(), 1, 1..=threads)?
            as usize,
        server_threads: number("--server-threads", on.server_threads.as_ref(), 1, 1..=threads)?
            as usize,
        client_cpus: list("--client-cpus", &on.client_cpus)?,
        server_cpus: list("--server-cpus", &on.server_cpus)?,
        delay: None,
    })
}
