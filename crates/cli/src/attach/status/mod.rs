//! `status`: what is attached, once or again and again.
//!
//! The counters are read from the kernel's maps, whichever process holds them and whether or not it
//! answers; the process is asked for what only it knows.

mod json;
mod text;

use std::io::{IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rxsteer_core::steer::Reason;
use rxsteer_kernel::{
    Counters, CpuCounters, Finding, Holder, KernelSteering, LivePolicy, OnInterface, Status,
    holders, lists_programs, missing_capabilities, programs_on_interfaces, status,
};

use super::args::StatusArgs;
use super::checked::Wrong;
use super::control::{About, Answer, Verb, ask};
use crate::Exit;
use crate::terminal::Terminal;

/// How long a process may take to tell of itself.
const PATIENCE: Duration = Duration::from_secs(1);
/// Shortest and longest time between two looks, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// An interface that is steered, and all that is told of it.
struct Seen {
    status: Status,
    /// What the process says of itself; `None` if it does not answer.
    about: Option<About>,
    /// Who holds it, where it does not answer.
    holders: Vec<Holder>,
    kernel: KernelSteering,
    findings: Vec<Finding>,
    at: Instant,
}

/// An interface with an XDP program of which the kernel tells this process no more than its number.
struct Hidden {
    on: OnInterface,
    /// What a process of ours says of itself; `None` if none answers.
    about: Option<About>,
}

/// All that a look shows.
struct Look {
    seen: Vec<Seen>,
    hidden: Vec<Hidden>,
}

/// Returns what the process of an interface says of itself, if there is one that answers.
fn about(on: &OnInterface) -> Option<About> {
    match ask(on.index, Verb::About, PATIENCE) {
        Ok(Answer::About(about)) => Some(*about),
        _ => None,
    }
}

impl Seen {
    fn of(status: Status) -> Self {
        let at = Instant::now();
        let about = about(&status.on);
        let holders = if about.is_none() { holders(status.on.id) } else { Vec::new() };
        let kernel = KernelSteering::of(&status.on.interface);
        // Without CPUs in its mask it only counts; what spreads and what follows fight alike.
        let policy = if status.cpus.is_empty() { LivePolicy::None } else { LivePolicy::FlowAware };
        let findings = kernel.fights(policy);
        Self { status, about, holders, kernel, findings, at }
    }

    fn since(&self, earlier: &Self) -> Option<Rates> {
        let is_same = self.status.on.id == earlier.status.on.id;
        let passed = self.at.duration_since(earlier.at).as_secs_f64();
        if !is_same || passed <= 0.0 {
            return None;
        }
        Some(Rates::new(&self.status.counters, &earlier.status.counters, passed))
    }
}

/// What happened in a second, on average of a time.
#[derive(Clone, Debug, PartialEq)]
struct Rates {
    seconds: f64,
    packets: f64,
    reasons: [f64; Reason::COUNT],
    hit_rate: Option<f64>,
    /// By CPU, in the order of the counters: came in, processed, lost.
    cpus: Vec<[f64; 3]>,
}

impl Rates {
    fn new(now: &Counters, before: &Counters, seconds: f64) -> Self {
        let mut passed = now.clone();
        for (class, earlier) in passed.packets.iter_mut().zip(&before.packets) {
            for (packets, earlier) in class.iter_mut().zip(earlier) {
                *packets = packets.saturating_sub(*earlier);
            }
        }
        let per_second = |count: u64| count as f64 / seconds;
        let more = |now: u64, before: u64| per_second(now.saturating_sub(before));
        let cpus = now.cpus.iter().map(|(cpu, of_cpu)| {
            let earlier = before.cpus.iter().find(|(this, _)| this == cpu);
            let earlier = earlier.map_or(CpuCounters::default(), |(_, of_cpu)| *of_cpu);
            [
                more(came_in(now, *cpu), came_in(before, *cpu)),
                more(of_cpu.taken, earlier.taken),
                more(of_cpu.lost(), earlier.lost()),
            ]
        });
        Self {
            seconds,
            packets: per_second(passed.seen()),
            reasons: Reason::ALL.map(|reason| per_second(passed.reason(reason))),
            hit_rate: passed.hit_rate(),
            cpus: cpus.collect(),
        }
    }
}

/// Returns the packets that came in on a CPU.
fn came_in(counters: &Counters, cpu: rxsteer_core::CpuId) -> u64 {
    counters.arrived.iter().find(|(this, _)| *this == cpu).map_or(0, |(_, count)| *count)
}

/// Returns what the busiest of the CPUs has processed over what they have on average: 1 if all have
/// the same, their number if one has all; `None` if they have none.
fn spread(processed: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let (sum, count) = processed.clone().fold((0.0, 0.0), |(sum, n), one| (sum + one, n + 1.0));
    (sum > 0.0).then(|| processed.fold(0.0, f64::max) * count / sum)
}

/// Shows what is attached.
///
/// # Errors
/// What the kernel refused, and the output.
pub fn run(args: &StatusArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let Some(interval) = args.watch else {
        let all = look(args)?;
        show(args, &all, &[], false, terminal)?;
        return Ok(exit(&all, terminal));
    };
    if !INTERVALS.contains(&interval) {
        let said = format!("--watch: {interval} is not from 0.1 to 86400 seconds");
        return Err(Wrong(vec![said]).into());
    }
    let redraw = !args.json && std::io::stdout().is_terminal();
    let mut before = look(args)?;
    let mut left = args.iterations;
    while left != Some(0) {
        thread::sleep(Duration::from_secs_f64(interval));
        let now = look(args)?;
        show(args, &now, &before.seen, redraw, terminal)?;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(exit(&before, terminal))
}

/// Says what could not be seen, if there was something.
fn exit(look: &Look, terminal: &Terminal) -> Exit {
    if look.hidden.is_empty() {
        return Exit::Fine;
    }
    let names: Vec<&str> = look.hidden.iter().map(|hidden| hidden.on.interface.as_str()).collect();
    terminal.error(format_args!(
        "cannot see what is attached to {} and what it counted: the kernel tells that with CAP_SYS_ADMIN \
         only, which this process lacks",
        names.join(", ")
    ));
    Exit::Error
}

fn look(args: &StatusArgs) -> anyhow::Result<Look> {
    let wanted =
        |on: &OnInterface| args.interface.as_ref().is_none_or(|name| on.interface == *name);
    if !lists_programs() {
        // That there are programs, and their numbers, is told to all.
        let there = programs_on_interfaces().context("cannot ask for the XDP programs")?;
        let hidden = there.into_iter().filter(wanted).map(|on| {
            let about = about(&on);
            Hidden { on, about }
        });
        return Ok(Look { seen: Vec::new(), hidden: hidden.collect() });
    }
    let all = status().map_err(|error| {
        let missing: Vec<String> = missing_capabilities().iter().map(ToString::to_string).collect();
        let error = anyhow::Error::from(error);
        if missing.is_empty() {
            error.context("cannot see what is attached")
        } else {
            error.context(format!(
                "cannot see what is attached: this process lacks {}",
                missing.join(", ")
            ))
        }
    })?;
    let seen = all.into_iter().filter(|status| wanted(&status.on)).map(Seen::of).collect();
    Ok(Look { seen, hidden: Vec::new() })
}

fn show(
    args: &StatusArgs,
    look: &Look,
    before: &[Seen],
    redraw: bool,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let Look { seen: now, hidden } = look;
    let rates: Vec<Option<Rates>> = now
        .iter()
        .map(|seen| {
            let earlier =
                before.iter().find(|this| this.status.on.index == seen.status.on.index)?;
            seen.since(earlier)
        })
        .collect();
    if args.json {
        let mut out = terminal.data();
        serde_json::to_writer(&mut out, &json::all(now, &rates, hidden))?;
        writeln!(out)?;
        return out.flush().context("cannot write");
    }
    let mut out = terminal.results();
    if redraw {
        // To the top left, and clear from there (ECMA-48).
        write!(out, "\x1b[H\x1b[2J")?;
    }
    if now.is_empty() && hidden.is_empty() {
        let to = args.interface.as_ref().map(|name| format!(" to {name}")).unwrap_or_default();
        writeln!(out, "nothing is attached{to} in this network namespace")?;
    }
    for (seen, rates) in now.iter().zip(&rates) {
        text::one(seen, rates.as_ref(), &mut out)?;
    }
    for hidden in hidden {
        text::hidden(hidden, &mut out)?;
    }
    if args.watch.is_some() && !redraw {
        writeln!(out)?;
    }
    out.flush().context("cannot write")
}

#[cfg(test)]
mod tests {
    use rxsteer_core::CpuId;
    use rxsteer_core::steer::Class;

    use super::*;

    #[test]
    fn rates_are_of_the_time_between_and_not_of_all() {
        let at = |hits: u64, misses: u64, taken: u64| {
            let mut counters = Counters::default();
            counters.packets[Class::Udp.index()][Reason::Hit.index()] = hits;
            counters.packets[Class::Udp.index()][Reason::Miss.index()] = misses;
            counters.arrived = vec![(CpuId(0), hits + misses)];
            let of_cpu = CpuCounters { taken, ..CpuCounters::default() };
            counters.cpus = vec![(CpuId(0), CpuCounters::default()), (CpuId(1), of_cpu)];
            counters
        };
        let rates = Rates::new(&at(1300, 100, 1350), &at(1000, 0, 1000), 2.0);
        assert_eq!((rates.packets, rates.hit_rate), (200.0, Some(0.75)));
        assert_eq!(rates.reasons[Reason::Hit.index()], 150.0);
        assert_eq!(rates.cpus, [[200.0, 0.0, 0.0], [0.0, 175.0, 0.0]]);
    }

    #[test]
    fn spread_is_one_when_all_do_the_same_and_their_number_when_one_does_all() {
        assert_eq!(spread([5.0, 5.0, 5.0].into_iter()), Some(1.0));
        assert_eq!(spread([0.0, 8.0, 0.0, 0.0].into_iter()), Some(4.0));
        assert_eq!(spread([0.0, 0.0].into_iter()), None);
    }
}
