//! What the counts say about the traffic and the host that a reader should know.

use std::collections::{BTreeMap, BTreeSet};

use rxsteer_core::{CpuId, CpuSet};

use super::flows::Flow;
use super::front::Front;
use crate::host::Host;
use crate::report::{CpuReport, Evidence, Finding, FindingCode, PolicyReport, Report, Severity};
use crate::rss::{Rss, Spreading};
use crate::verdict::percent;

/// Fewest packets from which shares are taken seriously.
const ENOUGH_PACKETS: u64 = 64;

/// Share of the packets above which one flow decides the load.
const NEARLY_ALL: f64 = 0.9;

/// Busy share from which a CPU has no time left that counts.
const FULL: f64 = 0.9;

/// Returns the findings, problems first.
pub(super) fn find(front: &Front, host: &Host, report: &Report) -> Vec<Finding> {
    let mut findings = Vec::new();
    if report.input.received == 0 {
        findings.push(empty(report));
    }
    input(front, report, &mut findings);
    placement(host, report, &mut findings);
    if report.input.received > 0 {
        traffic(front, report, &mut findings);
        for policy in &report.policies {
            one_policy(policy, report, &mut findings);
        }
    }
    findings.sort_by_key(|finding| (finding.severity, finding.code));
    findings
}

fn finding(
    code: FindingCode,
    severity: Severity,
    text: String,
    evidence: &[(&str, f64, &str)],
) -> Finding {
    let evidence = evidence.iter().map(|(name, n, unit)| Evidence::new(name, *n, unit)).collect();
    Finding { code, severity, text, evidence }
}

fn empty(report: &Report) -> Finding {
    let input = &report.input;
    let text = if input.packets_read == 0 {
        "The capture has no packets.".to_owned()
    } else {
        let skipped: Vec<String> = input
            .skipped
            .named()
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, n)| format!("{name} {n}"))
            .collect();
        format!(
            "None of the {} packets was received by the local side (sent {}, skipped: {}).",
            input.packets_read,
            input.sent,
            if skipped.is_empty() { "none".into() } else { skipped.join(", ") }
        )
    };
    finding(
        FindingCode::Empty,
        Severity::Problem,
        text,
        &[("packets_read", input.packets_read as f64, "packets")],
    )
}

fn input(front: &Front, report: &Report, findings: &mut Vec<Finding>) {
    let input = &report.input;
    if front.local().is_some_and(|local| local.nobody()) {
        findings.push(finding(
            FindingCode::NoLocalAddress,
            Severity::Note,
            "No address stands out as the local one (a router, or a mirror port?): every packet \
             counts as received. Name the local addresses if that is wrong."
                .into(),
            &[("explained", report.consumers.local.explained.unwrap_or(0.0), "share")],
        ));
    }
    if input.time_went_back > 0 {
        findings.push(finding(
            FindingCode::TimeWentBack,
            Severity::Note,
            format!(
                "{} packets are older than one before them; they count as of the later time.",
                input.time_went_back
            ),
            &[("packets", input.time_went_back as f64, "packets")],
        ));
    }
    let damaged = input
        .notes
        .iter()
        .filter(|note| ["truncated", "lost", "damaged"].contains(&note.code.as_str()));
    for note in damaged {
        findings.push(finding(
            FindingCode::CaptureIncomplete,
            Severity::Note,
            format!("{}: {}", note.file, note.text),
            &[],
        ));
    }
    let unused: Vec<String> = front.sockets.unused_rules().map(|rule| rule.to_string()).collect();
    if !unused.is_empty() && report.input.received > 0 {
        findings.push(finding(
            FindingCode::WithoutEffect,
            Severity::Problem,
            format!(
                "No packet met consumer rule {} (counted from 1; the first rule that matches has \
                 the socket).",
                unused.join(", ")
            ),
            &[("rules", unused.len() as f64, "rules")],
        ));
    }
    if front.late_events > 0 {
        findings.push(finding(
            FindingCode::WithoutEffect,
            Severity::Problem,
            format!(
                "Events behind the last packet, at {:.3} s, change nothing: {}.",
                front.span_ns() as f64 / 1e9,
                front.late_events
            ),
            &[("events", front.late_events as f64, "events")],
        ));
    }
    let forgotten = report.flows.forgotten + report.consumers.evicted;
    if forgotten > 0 {
        findings.push(finding(
            FindingCode::LimitReached,
            Severity::Note,
            format!(
                "{} flows and {} sockets were forgotten, since more than {} flows or {} sockets \
                 were active; a flow that came back counts as a new one.",
                report.flows.forgotten,
                report.consumers.evicted,
                report.flows.limit,
                report.consumers.limit
            ),
            &[("forgotten", forgotten as f64, "flows")],
        ));
    }
}

fn placement(host: &Host, report: &Report, findings: &mut Vec<Finding>) {
    let serving = host.cpus.serving();
    let by_key = host.rss.spreading == Spreading::Toeplitz;
    if host.queues.len() > 1 && by_key && host.rss.key == Rss::DEFAULT_KEY {
        findings.push(finding(
            FindingCode::AssumedRssKey,
            Severity::Note,
            "Queues are chosen by the hash key that many drivers start with. Many others draw one \
             at random: give the output of `ethtool -x DEV` to see which queue a flow really meets."
                .into(),
            &[("queues", host.queues.len() as f64, "queues")],
        ));
    }
    if serving.count() == 1 {
        findings.push(finding(
            FindingCode::OneCpu,
            Severity::Limit,
            "One CPU serves: steering has no effect.".into(),
            &[("serving", 1.0, "cpus")],
        ));
    }
    let irqs: BTreeSet<CpuId> = host.queues.iter().map(|q| q.irq_cpu).collect();
    if host.queues.len() > 1 && irqs.len() == 1 && serving.count() > 1 {
        findings.push(finding(
            FindingCode::AllIrqsOnOneCpu,
            Severity::Problem,
            format!("All {} queues interrupt CPU {}.", host.queues.len(), host.queues[0].irq_cpu),
            &[("queues", host.queues.len() as f64, "queues")],
        ));
    }
    let irq_set: CpuSet = irqs.iter().copied().collect();
    if serving.count() > 1 && serving.is_subset(&irq_set) {
        findings.push(finding(
            FindingCode::RssReachesAll,
            Severity::Note,
            format!("RSS already reaches all {} CPUs.", serving.count()),
            &[
                ("queues", host.queues.len() as f64, "queues"),
                ("serving", serving.count() as f64, "cpus"),
            ],
        ));
    }
    for (number, queue) in host.queues.iter().enumerate() {
        if queue.rps == CpuSet::from_iter([queue.irq_cpu]) && serving.count() > 1 {
            findings.push(finding(
                FindingCode::IrqCpuIsRpsCpu,
                Severity::Problem,
                format!(
                    "rx-{number}: the RPS mask names only CPU {}, which takes the interrupts as \
                     well, so RPS does nothing but cost.",
                    queue.irq_cpu
                ),
                &[("queue", number as f64, "queue")],
            ));
        }
        if let Some(left_out) = &queue.left_out {
            findings.push(finding(
                FindingCode::MaskFiltered,
                Severity::Note,
                format!("rx-{number}: left out of the mask: {left_out}."),
                &[("queue", number as f64, "queue")],
            ));
        }
    }
    for rounded in &host.rounded {
        findings.push(finding(
            FindingCode::SizeRounded,
            Severity::Note,
            format!("{} {} will act as {}.", rounded.name, rounded.asked, rounded.kept),
            &[("asked", rounded.asked as f64, "entries"), ("kept", rounded.kept as f64, "entries")],
        ));
    }
    rfs_off(host, report, findings);
    one_cpu_takes_all(host, report, &serving, findings);
}

fn rfs_off(host: &Host, report: &Report, findings: &mut Vec<Finding>) {
    let without: Vec<String> = host
        .queues
        .iter()
        .enumerate()
        .filter(|(_, q)| q.flow_cnt == 0)
        .map(|(number, _)| format!("rx-{number}"))
        .collect();
    let text = if host.tables.sock_flow_entries == 0 {
        "RFS is off: rps_sock_flow_entries is 0.".to_owned()
    } else if !without.is_empty() {
        format!("RFS is off: {} have rps_flow_cnt 0.", without.join(", "))
    } else {
        return;
    };
    if report.policies.iter().any(|p| p.policy.starts_with("rfs")) {
        findings.push(finding(
            FindingCode::RfsOff,
            Severity::Problem,
            text,
            &[
                ("rps_sock_flow_entries", f64::from(host.tables.sock_flow_entries), "entries"),
                ("queues_without_table", without.len() as f64, "queues"),
            ],
        ));
    }
}

fn one_cpu_takes_all(host: &Host, report: &Report, serving: &CpuSet, findings: &mut Vec<Finding>) {
    let mut taken: BTreeMap<u16, u64> = BTreeMap::new();
    for (queue, counted) in host.queues.iter().zip(&report.host.queues) {
        *taken.entry(queue.irq_cpu.0).or_default() += counted.packets;
    }
    let total: u64 = taken.values().sum();
    let Some((cpu, most)) = taken.into_iter().max_by_key(|(_, n)| *n) else { return };
    let share = most as f64 / total.max(1) as f64;
    if total >= ENOUGH_PACKETS && share >= 0.95 && serving.count() > 1 {
        findings.push(finding(
            FindingCode::OneCpuTakesAll,
            Severity::Problem,
            format!(
                "Without steering 1 of {} CPUs takes {} of the packets: CPU {cpu}.",
                serving.count(),
                percent(share)
            ),
            &[("share", share, "share"), ("cpu", f64::from(cpu), "cpu")],
        ));
    }
}

fn traffic(front: &Front, report: &Report, findings: &mut Vec<Finding>) {
    let flows: Vec<&Flow> = front.flows.all().iter().filter(|f| f.received).collect();
    one_source(&flows, findings);
    unsplittable(&flows, report, findings);
    labels(&flows, findings);
    split_by_fragments(&flows, findings);
}

fn unsplittable(flows: &[&Flow], report: &Report, findings: &mut Vec<Finding>) {
    let share = report.flows.largest_share;
    let several_cpus = !findings.iter().any(|f| f.code == FindingCode::OneCpu);
    let one_source = findings.iter().any(|f| f.code == FindingCode::OneSourceTuple);
    if report.input.received < ENOUGH_PACKETS || share < 0.5 || !several_cpus || one_source {
        return;
    }
    let opaque = flows.iter().max_by_key(|f| f.packets).is_some_and(|f| f.opaque);
    let name = report.flows.largest.clone().unwrap_or_default();
    let severity = if share >= NEARLY_ALL { Severity::Problem } else { Severity::Limit };
    let code = if share >= NEARLY_ALL { FindingCode::Unsplittable } else { FindingCode::LargeFlow };
    findings.push(finding(
        code,
        severity,
        format!(
            "1 flow carries {}, cannot be split without reordering: {name}{}.",
            percent(share),
            if opaque { " (encrypted, so its inner flows cannot be told apart)" } else { "" }
        ),
        &[
            ("largest_flow_share", share, "share"),
            ("largest_flow_packets", report.flows.largest_packets as f64, "packets"),
        ],
    ));
}

/// Ports read by unconnected sockets to which nearly all comes from one address and port.
fn one_source(flows: &[&Flow], findings: &mut Vec<Finding>) {
    let mut ports: BTreeMap<([u8; 16], u16), (u64, u64)> = BTreeMap::new();
    let udp = flows.iter().filter(|f| {
        matches!(f.ident.protocol, 17 | 136) && !f.connected && f.socket != u32::MAX && !f.opaque
    });
    for flow in udp {
        let (all, most) = ports.entry((flow.ident.dst, flow.ident.dst_port)).or_default();
        *all += flow.packets;
        *most = (*most).max(flow.packets);
    }
    let total: u64 = flows.iter().map(|f| f.packets).sum();
    for ((_, port), (all, most)) in ports {
        let share = most as f64 / all as f64;
        let matters = all as f64 >= total as f64 * 0.5;
        if all >= ENOUGH_PACKETS && share >= NEARLY_ALL && matters {
            findings.push(finding(
                FindingCode::OneSourceTuple,
                Severity::Problem,
                format!(
                    "1 source tuple: hash cannot spread the packets to UDP port {port}, of which \
                     {} come from one address and port.",
                    percent(share)
                ),
                &[
                    ("largest_share", share, "share"),
                    ("port", f64::from(port), "port"),
                    ("packets", all as f64, "packets"),
                ],
            ));
        }
    }
}

fn labels(flows: &[&Flow], findings: &mut Vec<Finding>) {
    let hidden: Vec<&&Flow> = flows.iter().filter(|f| f.label_hides_ports).collect();
    let hashes: BTreeSet<u32> = hidden.iter().map(|f| f.hash.0).collect();
    if hidden.len() >= 2 && hashes.len() < hidden.len() {
        findings.push(finding(
            FindingCode::LabelHidesPorts,
            Severity::Limit,
            format!(
                "The label hides ports: {} IPv6 flows have only {} hash{}, since a flow label \
                 takes the place of the ports. A hash that ignores labels would spread them.",
                hidden.len(),
                hashes.len(),
                if hashes.len() == 1 { "" } else { "es" }
            ),
            &[("flows", hidden.len() as f64, "flows"), ("hashes", hashes.len() as f64, "hashes")],
        ));
    }
    let changes: u64 = flows.iter().map(|f| u64::from(f.label_changes)).sum();
    if changes > 0 {
        let moved = flows.iter().filter(|f| f.label_changes > 0).count();
        findings.push(finding(
            FindingCode::FlowMoved,
            Severity::Limit,
            format!(
                "{moved} flow{} moved, {changes} reorder risk{}: the IPv6 flow label changed within \
                 the flow, and the hash with it.",
                plural(moved as u64),
                plural(changes)
            ),
            &[("flows", moved as f64, "flows"), ("label_changes", changes as f64, "changes")],
        ));
    }
}

/// Flows that have whole datagrams and fragments, which hash differently.
fn split_by_fragments(flows: &[&Flow], findings: &mut Vec<Finding>) {
    let ends = |f: &Flow| (f.ident.src, f.ident.dst, f.ident.protocol);
    let fragments: BTreeMap<_, u32> =
        flows.iter().filter(|f| f.ident.fragment).map(|f| (ends(f), f.hash.0)).collect();
    if fragments.is_empty() {
        return;
    }
    let split = flows
        .iter()
        .filter(|f| !f.ident.fragment)
        .filter(|f| fragments.get(&ends(f)).is_some_and(|hash| *hash != f.hash.0))
        .count();
    if split > 0 {
        findings.push(finding(
            FindingCode::SplitFlow,
            Severity::Limit,
            format!(
                "split flow: {split}. Fragments are hashed without ports, so they may be processed \
                 on another CPU than the whole datagrams of their flow."
            ),
            &[("split_flows", split as f64, "flows")],
        ));
    }
}

fn one_policy(policy: &PolicyReport, report: &Report, findings: &mut Vec<Finding>) {
    let name = &policy.policy;
    if policy.reordered > 0 {
        let numbers = |packets: &[u64]| {
            let first: Vec<String> = packets.iter().take(4).map(u64::to_string).collect();
            first.join(", ")
        };
        findings.push(finding(
            FindingCode::Reordered,
            Severity::Problem,
            format!(
                "{name}: {} packet{} of {} flow{} finished after a later packet of the same flow \
                 (overtaken: {}{}; overtaking from packet {} on).",
                policy.reordered,
                plural(policy.reordered),
                policy.reordered_flows,
                plural(policy.reordered_flows),
                numbers(&policy.reordered_packets),
                if policy.reordered > 4 { ", …" } else { "" },
                numbers(&policy.unsafe_packets[..policy.unsafe_packets.len().min(1)])
            ),
            &[("reordered", policy.reordered as f64, "packets")],
        ));
    }
    if policy.wrong_steers > 0 {
        findings.push(finding(
            FindingCode::WrongSteers,
            Severity::Limit,
            format!(
                "{name}: {} packets were steered by the entry of another flow.",
                policy.wrong_steers
            ),
            &[("wrong_steers", policy.wrong_steers as f64, "packets")],
        ));
    }
    let evicted = policy.writes.evictions;
    let too_small = policy.hit_rate.is_some_and(|rate| rate < 0.9)
        && evicted > policy.writes.by_flows / 10
        && policy.table.entries < report.flows.fitting_entries_linux;
    if too_small {
        findings.push(finding(
            FindingCode::TableTooSmall,
            Severity::Limit,
            format!(
                "{name}: the table of {} entries does not fit the {} connected flows that were \
                 active within ten seconds: {} of their packets hit.",
                policy.table.entries,
                report.flows.ten_seconds.max_connected,
                percent(policy.hit_rate.unwrap_or(0.0))
            ),
            &[
                ("entries", policy.table.entries as f64, "entries"),
                ("evictions", evicted as f64, "entries"),
                ("hit_rate", policy.hit_rate.unwrap_or(0.0), "share"),
            ],
        ));
    }
    let lost = policy.drops.receive_buffer + policy.drops.shed;
    if lost > 0
        && let Some(cpu) = starving(policy)
    {
        findings.push(finding(
            FindingCode::ReaderStarved,
            Severity::Problem,
            format!(
                "{name}: {}: on CPU {} packet work runs ahead of the readers, takes {} of the time and \
                 leaves them {}. Move the readers or the interrupts to other CPUs, or let packet work compete with \
                 the readers (echo 1 > /sys/class/net/DEV/threaded).",
                lost_at_socket(policy),
                cpu.cpu,
                percent(cpu.busy * cpu.softirq_ns as f64 / cpu.busy_ns as f64),
                percent(cpu.busy * cpu.reader_ns as f64 / cpu.busy_ns as f64),
            ),
            &[
                ("lost", lost as f64, "packets"),
                ("shed", policy.drops.shed as f64, "packets"),
                ("softirq_ns", cpu.softirq_ns as f64, "ns"),
                ("reader_ns", cpu.reader_ns as f64, "ns"),
            ],
        ));
    } else if lost > 0 {
        findings.push(finding(
            FindingCode::ReaderTooSlow,
            Severity::Problem,
            format!(
                "{name}: {}: the reader is slower than they arrive, and a larger buffer only delays \
                 the loss.",
                lost_at_socket(policy)
            ),
            &[("lost", lost as f64, "packets"), ("shed", policy.drops.shed as f64, "packets")],
        ));
    }
}

/// Says how many packets were lost for want of room in their socket: there, or shed before.
fn lost_at_socket(policy: &PolicyReport) -> String {
    let (full, shed) = (policy.drops.receive_buffer, policy.drops.shed);
    let at_socket =
        format!("{full} packet{} found the receive buffer of their socket full", plural(full));
    let early = format!("{shed} packet{} had to be shed early, for want of room", plural(shed));
    match (full, shed) {
        (_, 0) => at_socket,
        (0, _) => early,
        _ => format!("{at_socket}, and {early}"),
    }
}

/// Returns the busiest of the CPUs that have readers and are full, mostly of packet work ahead of
/// them.
fn starving(policy: &PolicyReport) -> Option<&CpuReport> {
    let starving =
        |cpu: &&CpuReport| cpu.read > 0 && cpu.busy >= FULL && cpu.softirq_ns > 2 * cpu.reader_ns;
    policy.cpus.iter().filter(starving).max_by_key(|cpu| cpu.softirq_ns)
}

fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}
