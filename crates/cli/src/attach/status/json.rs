//! What is attached, as JSON: `docs/json-schema.md`, "rxsteer status".

use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_kernel::{KernelSteering, Status};
use serde_json::{Map, Value, json};

use super::{Hidden, Rates, Seen, came_in, spread};
use crate::attach::check::to_json;
use crate::attach::control::About;

/// Version of the JSON form.
const SCHEMA_VERSION: u32 = 1;

/// Returns one object for all interfaces.
pub(super) fn all(seen: &[Seen], rates: &[Option<Rates>], hidden: &[Hidden]) -> Value {
    let each = seen.iter().zip(rates).map(|(seen, rates)| one(seen, rates.as_ref()));
    let mut object =
        json!({ "schema_version": SCHEMA_VERSION, "attached": each.collect::<Vec<_>>() });
    if !hidden.is_empty() {
        object["hidden"] = hidden.iter().map(of_hidden).collect();
    }
    object
}

fn of_hidden(hidden: &Hidden) -> Value {
    let Hidden { on, about } = hidden;
    json!({
        "interface": on.interface,
        "index": on.index,
        "mode": on.mode.to_string(),
        "program_id": on.id,
        "process": about.as_ref().map(process),
    })
}

fn one(seen: &Seen, rates: Option<&Rates>) -> Value {
    let Status { on, counters, .. } = &seen.status;
    let classes: Map<String, Value> = Class::ALL
        .into_iter()
        .map(|class| {
            let packets = |reason: Reason| counters.packets[class.index()][reason.index()];
            (class.name().to_owned(), by_reason(|reason| packets(reason).into()))
        })
        .collect();
    let records: Map<String, Value> = Recorded::NAMES
        .iter()
        .zip(counters.records)
        .map(|(name, count)| ((*name).to_owned(), count.into()))
        .collect();
    let answers = counters.answers.results().into_iter();
    let answers: Map<String, Value> =
        answers.map(|(name, count)| (name.to_owned(), count.into())).collect();
    let cpus: Vec<Value> = counters
        .cpus
        .iter()
        .map(|(cpu, of_cpu)| {
            json!({
                "cpu": cpu.0,
                "came_in": came_in(counters, *cpu),
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
    let arrived: Map<String, Value> =
        counters.arrived.iter().map(|(cpu, count)| (cpu.to_string(), (*count).into())).collect();
    let mut object = json!({
        "interface": on.interface,
        "index": on.index,
        "mode": on.mode.to_string(),
        "program_id": on.id,
        "cpus": seen.status.cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
        "table_entries": seen.status.table_entries,
        "spill_above_packets": seen.status.aware.spill_above_packets,
        "flows": { "tcp": seen.status.flows[0], "udp": seen.status.flows[1] },
        "packets": counters.seen(),
        "hit_rate": counters.hit_rate(),
        "reasons": by_reason(|reason| counters.reason(reason).into()),
        "classes": classes,
        "records": records,
        "flow_ports": seen.status.flow_ports.to_string(),
        "answers": answers,
        "arrived": arrived,
        "by_cpu": cpus,
        "max_over_mean": spread(counters.cpus.iter().map(|(_, of_cpu)| of_cpu.taken as f64)),
        "process": seen.about.as_ref().map(process),
        "held_by": seen.holders.iter().map(|holder| holder.pid).collect::<Vec<_>>(),
        "kernel": kernel(&seen.kernel),
        "findings": to_json(&seen.findings),
    });
    if let Some(rates) = rates {
        object["rates"] = of_rates(seen, rates);
    }
    object
}

fn by_reason(value: impl Fn(Reason) -> Value) -> Value {
    let named = Reason::ALL.into_iter();
    Value::Object(named.map(|reason| (reason.name().to_owned(), value(reason))).collect())
}

fn of_rates(seen: &Seen, rates: &Rates) -> Value {
    let cpus = seen.status.counters.cpus.iter().zip(&rates.cpus);
    let cpus = cpus.map(|((cpu, _), [came_in, processed, lost])| {
        json!({ "cpu": cpu.0, "came_in": came_in, "processed": processed, "lost": lost })
    });
    json!({
        "seconds": rates.seconds,
        "packets": rates.packets,
        "hit_rate": rates.hit_rate,
        "reasons": by_reason(|reason| rates.reasons[reason.index()].into()),
        "by_cpu": cpus.collect::<Vec<_>>(),
    })
}

fn process(about: &About) -> Value {
    let settings: Map<String, Value> =
        about.settings.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    json!({
        "pid": about.pid,
        "version": about.version,
        "uptime_s": about.uptime_s,
        "config": about.config,
        "metrics": about.metrics,
        "reloads": about.reloads,
        "reloads_failed": about.reloads_failed,
        "reload_error": about.reload_error,
        "settings": settings,
    })
}

fn kernel(kernel: &KernelSteering) -> Value {
    let list = |sets: &[rxsteer_core::CpuSet]| -> Vec<String> {
        sets.iter().map(|set| set.list().to_string()).collect()
    };
    json!({
        "is_visible": kernel.is_visible,
        "release": kernel.release,
        "rps_cpus": list(&kernel.rps),
        "rps_flow_cnt": kernel.rfs_queue_entries,
        "rps_sock_flow_entries": kernel.rfs_entries,
        "xps_cpus": list(&kernel.xps),
        "threaded": kernel.threaded,
        "flow_limit_cpus": kernel.flow_limit.list().to_string(),
        "netdev_max_backlog": kernel.backlog_packets,
        "gro": kernel.has("rx-gro"),
        "lro": kernel.has("rx-lro"),
        "hardware_gro": kernel.has("rx-gro-hw"),
        "merges_in_cpumap": kernel.merges_in_cpumap(),
    })
}
