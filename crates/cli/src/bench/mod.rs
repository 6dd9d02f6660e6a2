//! The verb `bench`: real packets through the running kernel.

pub mod args;
mod calibrate;
mod capture;
pub mod checked;
mod compare;
mod gen_sink;
mod output;
mod restore;
mod rr;

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context as _;
use rxsteer_bench::{CpuUse, Second};
use rxsteer_kernel::host_cpus;
use rxsteer_testbed::{Change, Pair, Place, Testbed};

use self::args::BenchVerb;
use self::checked::Link;
use self::checked::cpu_flags::{check_cpus, cpu_flags};
use crate::Exit;
use crate::render::numbers::{count, grouped, percent};
use crate::terminal::Terminal;

/// Version of the JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// Runs a verb of `bench`.
///
/// # Errors
/// Wrong usage, a missing privilege, what the kernel refused, and the output.
pub fn run(verb: &BenchVerb, terminal: &Terminal) -> anyhow::Result<Exit> {
    let named = cpu_flags(verb);
    if !named.is_empty() {
        check_cpus(&named, &host_cpus().context("cannot ask for the CPUs of this host")?)?;
    }
    match verb {
        BenchVerb::Gen(args) if !args.capture.capture.is_empty() => {
            capture::run(&(&**args).try_into()?, args.form, terminal)
        }
        BenchVerb::Gen(args) => gen_sink::generate(&(&**args).try_into()?, args.form, terminal),
        BenchVerb::Sink(args) => gen_sink::receive(&(&**args).try_into()?, args.form, terminal),
        BenchVerb::Rr(args) => rr::run(&(&**args).try_into()?, args.form, terminal),
        BenchVerb::Compare(verb) => compare::run(&verb.try_into()?, verb.form(), terminal),
        BenchVerb::Calibrate(args) => calibrate::run(args, terminal),
        BenchVerb::Restore(args) => restore::run(args.form, terminal),
    }
}

/// Makes a testbed and tells what was left behind by others.
fn testbed(terminal: &Terminal) -> anyhow::Result<Testbed> {
    let testbed = Testbed::new()?;
    let reaped = testbed.reaped();
    for name in &reaped.namespaces {
        terminal.note(format_args!("removed namespace {name}, whose process has ended"));
    }
    for (name, why) in &reaped.namespaces_left {
        terminal.note(format_args!("left namespace {name}, whose process has ended: {why}"));
    }
    for change in &reaped.settings.back {
        terminal.note(format_args!("put {} back into {}", change.old, change.path));
    }
    for left in &reaped.settings.left {
        terminal.note(left);
    }
    Ok(testbed)
}

/// Makes the link, and the settings of its receiving end, which are returned.
fn pair(testbed: &Testbed, link: &Link) -> anyhow::Result<(Pair, Vec<Change>)> {
    let pair = Pair::new(testbed, &link.spec)?;
    let mut changes = Vec::new();
    let mut set = |file: &str, new: String| -> anyhow::Result<()> {
        let old = pair.sink.read_sys(Pair::SINK_DEVICE, file)?;
        pair.sink.write_sys(Pair::SINK_DEVICE, file, &new)?;
        changes.push(Change {
            place: Place::from(&pair.sink),
            path: format!("/sys/class/net/{}/{file}", Pair::SINK_DEVICE),
            old,
            new,
        });
        Ok(())
    };
    if let Some(cpus) = &link.rps_cpus {
        let ids = cpus.last().map_or(1, |last| u32::from(last.0) + 1);
        for queue in 0..link.spec.queues {
            set(&format!("queues/rx-{queue}/rps_cpus"), cpus.mask(ids).to_string())?;
        }
    }
    if link.threaded {
        set("threaded", "1".into())?;
    }
    Ok((pair, changes))
}

/// Tells how a run goes.
fn tell(terminal: &Terminal, what: &str, second: &Second) {
    let lost =
        if second.lost > 0 { format!(", {} lost", grouped(second.lost)) } else { String::new() };
    terminal.line(format_args!(
        "{:>5.1} s: {} {what}/s, {} in all{lost}",
        second.elapsed.as_secs_f64(),
        count(second.count),
        grouped(second.total)
    ));
}

/// Returns a time in seconds for people.
fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

/// Writes how each CPU spent its time.
fn cpus(out: &mut dyn Write, cpus: &[CpuUse], elapsed: Duration) -> io::Result<()> {
    writeln!(out, "CPU           busy  softirq  processed    dropped  squeezed  signals")?;
    for cpu in cpus {
        // Times are read in steps of a clock tick, so a busy one may seem busier than that.
        let share = |ns: u64| percent((ns as f64 / elapsed.as_nanos().max(1) as f64).min(1.0));
        writeln!(
            out,
            "{:>3}      {:>9} {:>8} {:>10} {:>10} {:>9} {:>8}",
            cpu.cpu,
            share(cpu.busy_ns),
            share(cpu.softirq_ns),
            count(u64::from(cpu.processed)),
            count(u64::from(cpu.dropped)),
            count(u64::from(cpu.time_squeeze)),
            count(u64::from(cpu.received_rps)),
        )?;
    }
    Ok(())
}
