//! The CPUs that a command line names, against those of the host: before anything is made or sent.

use rxsteer_core::CpuSet;
use rxsteer_core::cpu::CpuStates;

use super::{cpus, refused};
use crate::args::checked::UsageError;
use crate::bench::args::{
    BenchVerb, CompareVerb, FloodArgs, LinkArgs, ReadArgs, RrArgs, SinkArgs, TrafficArgs,
};

/// A flag that names CPUs, with its value.
type Named<'a> = (&'static str, &'a String);

/// Returns the flags of a verb that name CPUs, as far as they were given.
pub fn cpu_flags(verb: &BenchVerb) -> Vec<Named<'_>> {
    let given: Vec<(&'static str, &Option<String>)> = match verb {
        BenchVerb::Gen(args) => [&sending(&args.traffic)[..], &linking(&args.link)].concat(),
        BenchVerb::Sink(args) => receiving(args),
        BenchVerb::Rr(args) => asking(args),
        BenchVerb::Compare(CompareVerb::Sink { sink, .. }) => receiving(sink),
        BenchVerb::Compare(CompareVerb::Rr { rr, .. }) => asking(rr),
        BenchVerb::Compare(CompareVerb::Mixed { rr, flood, .. }) => {
            [&flooding(flood)[..], &asking(rr)].concat()
        }
        BenchVerb::Calibrate(_) | BenchVerb::Restore(_) => Vec::new(),
    };
    given.into_iter().filter_map(|(flag, text)| Some((flag, text.as_ref()?))).collect()
}

fn sending(args: &TrafficArgs) -> [(&'static str, &Option<String>); 1] {
    [("--source-cpu", &args.source_cpu)]
}

fn linking(args: &LinkArgs) -> [(&'static str, &Option<String>); 1] {
    [("--rps-cpus", &args.rps_cpus)]
}

fn reading(args: &ReadArgs) -> [(&'static str, &Option<String>); 1] {
    [("--cpus", &args.cpus)]
}

fn receiving(args: &SinkArgs) -> Vec<(&'static str, &Option<String>)> {
    [reading(&args.read), sending(&args.traffic), linking(&args.link)].concat()
}

fn flooding(args: &FloodArgs) -> [(&'static str, &Option<String>); 2] {
    [("--flood-cpu", &args.flood_cpu), ("--flood-reader-cpu", &args.flood_reader_cpu)]
}

fn asking(args: &RrArgs) -> Vec<(&'static str, &Option<String>)> {
    let own = [
        ("--client-cpus", &args.threads.client_cpus),
        ("--server-cpus", &args.threads.server_cpus),
    ];
    [&own[..], &linking(&args.link)].concat()
}

/// Checks that all of these CPUs exist and run.
///
/// # Errors
/// [`UsageError`] with the flag, and which of them do not. What is no list of CPUs is not looked at.
pub fn check_cpus(named: &[Named<'_>], host: &CpuStates) -> Result<(), UsageError> {
    // To be bound to an isolated CPU is what those are for.
    let host = CpuStates { isolated: CpuSet::EMPTY, ..*host };
    for (flag, text) in named {
        let Ok(Some(wanted)) = cpus(flag, Some(text)) else { continue };
        let usable = host.usable(&wanted);
        if usable.cpus != wanted {
            return Err(refused(flag, format!("`{text}`: {}", usable.dropped)));
        }
    }
    Ok(())
}
