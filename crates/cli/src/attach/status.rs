//! What is attached, for people and as JSON.

use std::io::{self, Write};

use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_kernel::{Status, missing_capabilities, status};
use serde_json::{Map, Value, json};

use super::args::StatusArgs;
use crate::Exit;
use crate::render::numbers::{count, percent};
use crate::terminal::Terminal;

/// Version of the JSON form.
const SCHEMA_VERSION: u32 = 1;

/// Shows what is attached.
///
/// # Errors
/// What the kernel refused, and the output.
pub fn run(args: &StatusArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        anyhow::bail!("cannot see what is attached: this process lacks {}", names.join(", "));
    }
    let all = status()?;
    if args.json {
        let mut out = terminal.data();
        serde_json::to_writer(&mut out, &to_json(&all))?;
        writeln!(out)?;
        out.flush()?;
        return Ok(Exit::Fine);
    }
    let mut out = terminal.results();
    if all.is_empty() {
        writeln!(out, "nothing is attached in this network namespace")?;
    }
    for one in &all {
        text(one, &mut out)?;
    }
    out.flush()?;
    Ok(Exit::Fine)
}

fn text(status: &Status, out: &mut impl Write) -> io::Result<()> {
    let Status { on, counters, .. } = status;
    let cpus: Vec<String> = status.cpus.iter().map(ToString::to_string).collect();
    writeln!(
        out,
        "{}  {} mode, program {}, CPUs {}",
        on.interface,
        on.mode,
        on.id,
        cpus.join(",")
    )?;
    let [tcp, udp] = status.flows;
    writeln!(
        out,
        "  flows    {} of TCP, {} of UDP; room for {} each",
        count(tcp as u64),
        count(udp as u64),
        count(u64::from(status.table_entries))
    )?;
    let rate = counters.hit_rate().map_or("-".to_owned(), percent);
    writeln!(out, "  packets  {}, hit rate {rate}", count(counters.seen()))?;
    for reason in Reason::ALL {
        let packets = counters.reason(reason);
        if packets > 0 {
            writeln!(out, "    {:<8} {:>12}", reason.name(), count(packets))?;
        }
    }
    writeln!(out, "  CPU  {:>12} {:>12} {:>9} {:>9}", "came in", "processed", "waiting", "lost")?;
    for (cpu, of_cpu) in &counters.cpus {
        let came = counters.arrived.iter().find(|(this, _)| this == cpu).map_or(0, |(_, n)| *n);
        writeln!(
            out,
            "  {:>3}  {:>12} {:>12} {:>9} {:>9}",
            cpu.to_string(),
            count(came),
            count(of_cpu.taken),
            count(of_cpu.waiting()),
            count(of_cpu.lost())
        )?;
    }
    Ok(())
}

fn to_json(all: &[Status]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "attached": all.iter().map(one_to_json).collect::<Vec<_>>(),
    })
}

fn one_to_json(status: &Status) -> Value {
    let Status { on, counters, .. } = status;
    let reasons = |packets: &dyn Fn(Reason) -> u64| -> Map<String, Value> {
        let named = Reason::ALL.into_iter();
        named.map(|reason| (reason.name().to_owned(), packets(reason).into())).collect()
    };
    let classes: Map<String, Value> = Class::ALL
        .into_iter()
        .map(|class| {
            let packets = |reason: Reason| counters.packets[class.index()][reason.index()];
            (class.name().to_owned(), reasons(&packets).into())
        })
        .collect();
    let records: Map<String, Value> = Recorded::NAMES
        .iter()
        .zip(counters.records)
        .map(|(name, count)| ((*name).to_owned(), count.into()))
        .collect();
    let came = |cpu| counters.arrived.iter().find(|(this, _)| *this == cpu).map_or(0, |(_, n)| *n);
    let cpus: Vec<Value> = counters
        .cpus
        .iter()
        .map(|(cpu, of_cpu)| {
            json!({
                "cpu": cpu.0,
                "came_in": came(*cpu),
                "sent": of_cpu.sent,
                "taken": of_cpu.taken,
                "done": of_cpu.done,
                "waiting": of_cpu.waiting(),
                "lost_queue_full": of_cpu.lost_full,
                "lost_refused": of_cpu.lost_refused,
                "lost_no_memory": of_cpu.lost_memory,
            })
        })
        .collect();
    json!({
        "interface": on.interface,
        "mode": on.mode.to_string(),
        "program_id": on.id,
        "cpus": status.cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
        "table_entries": status.table_entries,
        "spill_above_packets": status.aware.spill_above_packets,
        "flows": { "tcp": status.flows[0], "udp": status.flows[1] },
        "packets": counters.seen(),
        "hit_rate": counters.hit_rate(),
        "reasons": reasons(&|reason| counters.reason(reason)),
        "classes": classes,
        "records": records,
        "by_cpu": cpus,
    })
}
