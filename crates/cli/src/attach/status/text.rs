//! What is attached, for people.

use std::io::{self, Write};

use rxsteer_core::steer::Reason;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_kernel::{KernelSteering, Status, Weight};

use super::{Hidden, Rates, Seen, came_in, spread};
use crate::attach::check::word;
use crate::attach::control::About;
use crate::render::numbers::{count, percent, plural};

/// Writes what is told of one interface.
pub(super) fn one(seen: &Seen, rates: Option<&Rates>, out: &mut impl Write) -> io::Result<()> {
    let Status { on, counters, .. } = &seen.status;
    let (interface, mode, id) = (&on.interface, on.mode, on.id);
    writeln!(out, "{interface}  {mode} mode, program {id}, {}", cpus(&seen.status.cpus))?;
    match &seen.about {
        Some(about) => process(about, out)?,
        None => {
            let held: Vec<String> = seen.holders.iter().map(ToString::to_string).collect();
            let held =
                if held.is_empty() { "nobody that can be seen".into() } else { held.join(", ") };
            writeln!(out, "  process  does not answer; held by {held}")?;
        }
    }
    kernel(&seen.kernel, out)?;
    let [tcp, udp] = seen.status.flows;
    writeln!(
        out,
        "  flows    {} of TCP, {} of UDP; room for {} each",
        count(tcp as u64),
        count(udp as u64),
        count(u64::from(seen.status.table_entries))
    )?;
    if !seen.status.flow_ports.is_empty() {
        let results = counters.answers.results().into_iter().filter(|(_, number)| *number > 0);
        let results: Vec<String> =
            results.map(|(name, number)| format!("{} {name}", count(number))).collect();
        let colon = if results.is_empty() { "" } else { ": " };
        writeln!(
            out,
            "  answers  {} from UDP ports {}{colon}{}",
            count(counters.answers.heard),
            seen.status.flow_ports,
            results.join(", ")
        )?;
    }
    write!(out, "  packets  {}{}", count(counters.seen()), hit_rate(counters.hit_rate()))?;
    if let Some(rates) = rates {
        write!(out, "; now {}/s{}", whole(rates.packets), hit_rate(rates.hit_rate))?;
    }
    writeln!(out)?;
    for reason in Reason::ALL {
        let packets = counters.reason(reason);
        if packets > 0 {
            write!(out, "    {:<8} {:>15}", reason.name().replace('_', " "), count(packets))?;
            if let Some(rates) = rates {
                write!(out, " {:>12}/s", whole(rates.reasons[reason.index()]))?;
            }
            writeln!(out)?;
        }
    }
    by_cpu(&seen.status, rates, out)?;
    for finding in seen.findings.iter().filter(|finding| finding.weight > Weight::Fine) {
        writeln!(out, "  {}  {}: {}", word(finding.weight), finding.about, finding.text)?;
    }
    Ok(())
}

/// Returns the CPUs as a list.
fn cpus(cpus: &[CpuId]) -> String {
    let cpus: CpuSet = cpus.iter().copied().collect();
    if cpus.is_empty() {
        return "no CPUs: it only counts".to_owned();
    }
    format!("CPUs {}", cpus.list())
}

/// Returns the share of known flows; nothing if no table was asked, for then there is no such share.
fn hit_rate(rate: Option<f64>) -> String {
    rate.map_or_else(String::new, |rate| format!(", hit rate {}", percent(rate)))
}

/// Writes what is told of an interface whose program cannot be seen.
pub(super) fn hidden(hidden: &Hidden, out: &mut impl Write) -> io::Result<()> {
    let Hidden { on, about } = hidden;
    let (interface, mode, id) = (&on.interface, on.mode, on.id);
    match about {
        Some(about) => {
            writeln!(out, "{interface}  {mode} mode, program {id}; its counters cannot be seen")?;
            process(about, out)
        }
        None => {
            writeln!(out, "{interface}  {mode} mode, program {id}; whose it is cannot be seen")?;
            writeln!(out, "  process  none of rxsteer that answers")
        }
    }
}

fn process(about: &About, out: &mut impl Write) -> io::Result<()> {
    let value = |key: &str| {
        about.settings.iter().find(|(this, _)| this == key).map_or("?", |(_, value)| value.as_str())
    };
    write!(
        out,
        "  process  {}, version {}, attached for {}, policy {}, queues of {} packets",
        about.pid,
        about.version,
        duration(about.uptime_s),
        value("policy"),
        value("qsize")
    )?;
    if let Some(metrics) = &about.metrics {
        write!(out, ", metrics at {metrics}")?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "  settings ports {}, shed {}, beside {}",
        value("ports"),
        value("shed"),
        value("beside")
    )?;
    if let Some(config) = &about.config {
        let (taken, failed) = (about.reloads, about.reloads_failed);
        write!(out, "  config   {}", config.display())?;
        if taken + failed > 0 {
            let times = plural(taken + failed, "time");
            write!(out, ", read again {times}, refused {}", plural(failed, "time"))?;
        }
        writeln!(out)?;
    }
    if let Some(error) = &about.reload_error {
        writeln!(out, "  WARN  the last reload failed: {}", error.replace('\n', "; "))?;
    }
    Ok(())
}

/// The kernel's own settings, beside which ours works.
fn kernel(kernel: &KernelSteering, out: &mut impl Write) -> io::Result<()> {
    let switch = |on: bool| if on { "on" } else { "off" };
    write!(out, "  kernel   ")?;
    if kernel.is_visible {
        let masks: Vec<String> = kernel
            .rps
            .iter()
            .enumerate()
            .filter(|(_, mask)| !mask.is_empty())
            .map(|(queue, mask)| format!("rx-{queue}: {}", mask.list()))
            .collect();
        let rps = if masks.is_empty() { "off".to_owned() } else { masks.join(", ") };
        let queues = kernel.rfs_queue_entries.iter().filter(|entries| **entries > 0).count();
        let rfs = match (kernel.rfs_entries, queues) {
            (0, _) | (_, 0) => "off".to_owned(),
            (entries, queues) => {
                let queues = plural(queues as u64, "queue");
                format!("{} entries, {queues}", count(entries.into()))
            }
        };
        let threaded = kernel.threaded.map_or("not there", switch);
        write!(out, "RPS {rps}; RFS {rfs}; threaded NAPI {threaded}; ")?;
    } else {
        write!(out, "RPS, RFS and threaded NAPI are not told; ")?;
    }
    let limit = if kernel.flow_limit.is_empty() {
        "off".to_owned()
    } else {
        format!("on CPUs {}", kernel.flow_limit.list())
    };
    let lro = kernel.has("rx-lro") || kernel.has("rx-gro-hw");
    writeln!(
        out,
        "flow limit {limit}; receive merging: GRO {}, by the device {}",
        switch(kernel.has("rx-gro")),
        switch(lro)
    )
}

fn by_cpu(status: &Status, rates: Option<&Rates>, out: &mut impl Write) -> io::Result<()> {
    let counters = &status.counters;
    write!(out, "  CPU  {:>15} {:>15} {:>9} {:>9}", "came in", "processed", "waiting", "lost")?;
    if rates.is_some() {
        write!(out, " {:>12} {:>12} {:>9}", "came in/s", "processed/s", "lost/s")?;
    }
    writeln!(out)?;
    for (place, (cpu, of_cpu)) in counters.cpus.iter().enumerate() {
        write!(
            out,
            "  {:>3}  {:>15} {:>15} {:>9} {:>9}",
            cpu.to_string(),
            count(came_in(counters, *cpu)),
            count(of_cpu.taken),
            count(of_cpu.waiting()),
            count(of_cpu.lost())
        )?;
        if let Some([came, processed, lost]) = rates.and_then(|rates| rates.cpus.get(place)) {
            write!(out, " {:>12} {:>12} {:>9}", whole(*came), whole(*processed), whole(*lost))?;
        }
        writeln!(out)?;
    }
    // Those that only take packets from the device.
    let others = counters
        .arrived
        .iter()
        .filter(|(cpu, _)| counters.cpus.iter().all(|(this, _)| this != cpu));
    for (cpu, came) in others {
        writeln!(out, "  {:>3}  {:>15}", cpu.to_string(), count(*came))?;
    }
    let taken = counters.cpus.iter().map(|(_, of_cpu)| of_cpu.taken as f64);
    let now = rates.and_then(|rates| spread(rates.cpus.iter().map(|[_, processed, _]| *processed)));
    if let Some(all) = spread(taken) {
        write!(out, "  spread   the busiest CPU processed {all:.2} times the average")?;
        if let Some(now) = now {
            write!(out, "; now {now:.2}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn whole(rate: f64) -> String {
    count(rate.round() as u64)
}

fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_nothing_of_is_not_shown_as_a_number_or_an_empty_list() {
        assert_eq!(hit_rate(None), "");
        assert_eq!(hit_rate(Some(0.0)), ", hit rate 0.0 %");
        assert_eq!(cpus(&[]), "no CPUs: it only counts");
        assert_eq!(cpus(&[0, 1, 2, 8].map(CpuId)), "CPUs 0-2,8");
    }

    #[test]
    fn times_are_told_by_their_two_largest_units() {
        let told = [0, 59, 61, 3600, 90_061].map(duration);
        assert_eq!(told, ["0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
    }
}
