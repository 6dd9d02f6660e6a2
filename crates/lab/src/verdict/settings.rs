//! The exact values to write, in the kernel's notation.
//!
//! Masks: where the user gave none, the CPUs that serve are divided among the queues so that each
//! queue has its share, in order of the caches, and keeps its IRQ CPU where that is possible. With
//! one queue the IRQ CPU is left out if it is more than half busy under the policy, and more than
//! the others.
//! Sizes: for the largest number of connected flows that were active in ten seconds, so that 95 %
//! of their packets hit; each queue's table has its share of the entries.
//! Source: Documentation/networking/scaling.rst, "RPS configuration" and "RFS configuration".

use rxsteer_core::{CpuId, CpuSet};

use crate::host::{Host, Mask, TableSizes};
use crate::report::{PolicyReport, Report, Setting};

/// Fewest entries that are proposed: scaling.rst calls 32,768 fit for a moderately loaded server;
/// below 4,096 there is nothing to save (16 KiB).
const FEWEST_ENTRIES: u64 = 4096;
const MOST_ENTRIES: u64 = 1 << 29;

const SOCK_FLOW_ENTRIES: &str = "/proc/sys/net/core/rps_sock_flow_entries";

fn rps_cpus_path(queue: usize) -> String {
    format!("/sys/class/net/DEV/queues/rx-{queue}/rps_cpus")
}

fn flow_cnt_path(queue: usize) -> String {
    format!("/sys/class/net/DEV/queues/rx-{queue}/rps_flow_cnt")
}

/// Settings that turn steering off.
pub(super) fn off(host: &Host) -> Vec<Setting> {
    let zero = CpuSet::EMPTY.mask(host.cpus.nr_cpu_ids()).to_string();
    let queues = (0..host.queues.len()).map(|queue| {
        Setting::new(rps_cpus_path(queue), zero.clone(), "no RPS on this queue".into())
    });
    queues.chain([no_rfs()]).collect()
}

/// RFS needs no mask: with tables on, it steers under an empty one as well.
fn no_rfs() -> Setting {
    Setting::new(SOCK_FLOW_ENTRIES.into(), "0".into(), "no RFS (as by default)".into())
}

/// Settings for a policy of the kernel.
pub(super) fn steering(host: &Host, report: &Report, policy: &PolicyReport) -> Vec<Setting> {
    if policy.policy == "none" {
        return off(host);
    }
    let ids = host.cpus.nr_cpu_ids();
    let mut settings = Vec::new();
    let masks = masks(host, policy);
    for (queue, mask) in masks.iter().enumerate() {
        let irq = host.queues[queue].irq_cpu;
        let why = if mask.contains(irq) {
            format!("CPUs {}, its IRQ CPU {irq} among them", mask.list())
        } else {
            format!("CPUs {}; IRQ CPU {irq} is kept for taking packets", mask.list())
        };
        settings.push(Setting::new(rps_cpus_path(queue), mask.mask(ids).to_string(), why));
    }
    if policy.policy == "rps" {
        settings.push(no_rfs());
    } else {
        let entries = entries(report);
        let flows = report.flows.ten_seconds.max_connected;
        settings.push(Setting::new(
            SOCK_FLOW_ENTRIES.into(),
            entries.to_string(),
            format!(
                "{flows} connected flows were active within ten seconds; {} bytes",
                entries * 4
            ),
        ));
        let sizes = TableSizes {
            sock_flow_entries: entries as u32,
            flow_cnt: None,
            ..TableSizes::default()
        };
        let share = sizes.flow_cnt_per_queue(host.queues.len() as u32);
        for queue in 0..host.queues.len() {
            let why = format!("the entries divided by {} queues", host.queues.len());
            settings.push(Setting::new(flow_cnt_path(queue), share.to_string(), why));
        }
    }
    settings
}

fn entries(report: &Report) -> u64 {
    report.flows.fitting_entries_linux.clamp(FEWEST_ENTRIES, MOST_ENTRIES)
}

/// The masks that are proposed, by queue.
fn masks(host: &Host, policy: &PolicyReport) -> Vec<CpuSet> {
    let given = host.queues.iter().all(|q| q.wanted != Mask::Local && q.wanted != Mask::None);
    let single_irq = host.queues.iter().all(|q| q.rps == CpuSet::from_iter([q.irq_cpu]));
    if given && !single_irq {
        return host.queues.iter().map(|q| q.rps).collect();
    }
    let mut shares = divided(host);
    if let [only] = shares.as_mut_slice()
        && irq_cpu_is_hot(host, policy)
        && only.count() > 1
    {
        only.remove(host.queues[0].irq_cpu);
    }
    shares
}

/// Divides the serving CPUs among the queues.
fn divided(host: &Host) -> Vec<CpuSet> {
    let numbers = host.cache_numbers();
    let mut cpus: Vec<CpuId> = host.cpus.serving().iter().collect();
    cpus.sort_by_key(|cpu| (numbers.get(cpu.index()).copied(), cpu.0));
    let mut order: Vec<usize> = (0..host.queues.len()).collect();
    let place = |cpu: CpuId| cpus.iter().position(|c| *c == cpu).unwrap_or(0);
    order.sort_by_key(|queue| (place(host.queues[*queue].irq_cpu), *queue));
    let (count, queues) = (cpus.len(), order.len());
    let mut shares = vec![CpuSet::EMPTY; queues];
    for (rank, queue) in order.into_iter().enumerate() {
        let (from, to) = (rank * count / queues, (rank + 1) * count / queues);
        // More queues than CPUs: each queue has one CPU, several queues the same.
        let to = to.max(from + 1).min(count);
        shares[queue] = cpus[from.min(count - 1)..to].iter().copied().collect();
    }
    shares
}

fn busy(policy: &PolicyReport, cpu: CpuId) -> f64 {
    policy.cpus.iter().find(|c| c.cpu == cpu.0).map_or(0.0, |c| c.busy)
}

/// Returns whether the IRQ CPU of the first queue has no room for more than taking packets.
fn irq_cpu_is_hot(host: &Host, policy: &PolicyReport) -> bool {
    let irq = host.queues[0].irq_cpu;
    let others: Vec<f64> =
        policy.cpus.iter().filter(|c| c.online && c.cpu != irq.0).map(|c| c.busy).collect();
    let mean = others.iter().sum::<f64>() / others.len().max(1) as f64;
    let irq = busy(policy, irq);
    irq > 0.5 && irq > 1.3 * mean
}

/// What else could be set, and when.
pub(super) fn remarks(host: &Host, policy: &PolicyReport) -> Vec<String> {
    let mut remarks = Vec::new();
    let ids = host.cpus.nr_cpu_ids();
    let proposed = masks(host, policy);
    if let [queue] = host.queues.as_slice() {
        let all = host.cpus.serving();
        let mut without = all;
        without.remove(queue.irq_cpu);
        if !without.is_empty() {
            let hot = irq_cpu_is_hot(host, policy);
            let mut remark = format!(
                "rps_cpus {} keeps IRQ CPU {} for taking packets and is right when that CPU is \
                 much busier than the others (under {} it is{}, with {}); {} uses it as well and \
                 is right when it is not.",
                without.mask(ids),
                queue.irq_cpu,
                policy.policy,
                if hot { "" } else { " not" },
                super::percent(busy(policy, queue.irq_cpu)),
                all.mask(ids)
            );
            if hot && proposed[0] == all {
                remark += &format!(
                    " The mask below is the host's own; --rps-cpus {} replays the other.",
                    without.list()
                );
            }
            remarks.push(remark);
        }
    }
    if host.queues.iter().zip(&proposed).any(|(q, mask)| q.rps != *mask) {
        remarks.push(
            "The proposed masks differ from those that were replayed: replay once more with them \
             to see their effect."
                .into(),
        );
    }
    remarks
}
