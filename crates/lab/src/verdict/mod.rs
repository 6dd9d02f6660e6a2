//! The verdict: which policy, which settings, what it buys and costs, and when to leave it off.
//!
//! | question, in this order | answer if yes |
//! | --- | --- |
//! | was nothing received? | there is nothing to judge |
//! | does one CPU serve? | leave it off: there is nowhere to steer to |
//! | do several queues interrupt one CPU? | fix that first: steering costs more than moving them |
//! | does one flow, or one source of a port, carry nearly all? | fix that first: no hash can split it |
//! | are there no times, or fewer than 64 packets and not idle? | there is nothing to judge |
//! | do the queues reach every CPU already? | leave it off, unless another policy clearly carries more |
//! | is the busiest CPU less than half busy without steering, and nothing lost? | leave it off |
//! | otherwise | the simplest policy that carries within 15 % of the best |
//!
//! What a policy carries is the share of packets it delivered times how many times the load it would
//! take until its busiest CPU is full (one over that CPU's busy share). Policies that no kernel
//! offers are compared and never recommended.
//!
//! Always true: every statement has its figure in `evidence` or in its own text; settings are in
//! the kernel's notation.
//! Elsewhere: the counts (`crate::replay`); the findings they are weighed with.

mod settings;

use rxsteer_core::CpuSet;

use crate::host::Host;
use crate::report::{
    Evidence, FindingCode, PolicyRemark, PolicyReport, Report, Verdict, VerdictCode,
};

/// A policy must carry this much more than a simpler one to be preferred.
const CLEARLY: f64 = 1.15;

/// Busy share of the busiest CPU below which nothing needs to be done.
const IDLE_ENOUGH: f64 = 0.5;

/// Share of lost packets that is taken for none.
const NEGLIGIBLE_LOSS: f64 = 0.0005;

/// Busy share from which a CPU has no room that counts.
const NEARLY_FULL: f64 = 0.9;

/// Share of the packets above which one reader decides the load.
const NEARLY_ALL: f64 = 0.9;

/// The policies that can be set, the simplest first.
const SETTABLE: [&str; 4] = ["none", "rps", "rfs", "flow-aware"];

/// Packets below which nothing is recommended that costs something.
const ENOUGH_PACKETS: u64 = 64;

/// The verdict on no data.
pub(crate) fn nothing() -> Verdict {
    Verdict {
        code: VerdictCode::NoData,
        policy: "none".into(),
        summary: "No packet was received, so there is nothing to judge.".into(),
        buys: Vec::new(),
        costs: Vec::new(),
        unless: Vec::new(),
        others: Vec::new(),
        settings: Vec::new(),
        evidence: Vec::new(),
    }
}

/// Judges a report whose counts and findings are complete.
pub(crate) fn judge(host: &Host, report: &Report) -> Verdict {
    let mut verdict = answer(host, report);
    verdict.unless.extend(means_left_out(host, report));
    verdict
}

/// Says how to replay the means against overload, where readers starve and no host switched them.
fn means_left_out(host: &Host, report: &Report) -> Option<String> {
    let starved = report.findings.iter().any(|f| f.code == FindingCode::ReaderStarved);
    (starved && host.overload.is_none()).then(|| {
        "Readers starve: what flow-aware has against that (fair shares, the governor, placing beside \
         the reader) is replayed only where a table [overload] in the host file switches it on."
            .into()
    })
}

fn answer(host: &Host, report: &Report) -> Verdict {
    if report.input.received == 0 {
        return nothing();
    }
    let serving = host.cpus.serving();
    if serving.count() == 1 {
        let summary = "Leave it off: one CPU serves, so there is nowhere to steer to.";
        return off(host, report, summary.into());
    }
    let has = |code| report.findings.iter().find(|f| f.code == code);
    if let Some(finding) = has(FindingCode::AllIrqsOnOneCpu) {
        let mut verdict = fix_first(
            report,
            format!(
                "Fix first: {} Spread the interrupts over CPUs (smp_affinity) before you steer.",
                finding.text
            ),
        );
        if let Some(best) = best(report) {
            verdict.settings = settings::steering(host, report, best);
            verdict.unless.push(format!(
                "If the interrupts cannot be moved, use {} with the settings below.",
                best.policy
            ));
        }
        return verdict;
    }
    for code in [FindingCode::Unsplittable, FindingCode::OneSourceTuple] {
        if let Some(finding) = has(code) {
            return fix_first(report, format!("Fix first: {}", finding.text));
        }
    }
    choose(host, report, &serving)
}

fn choose(host: &Host, report: &Report, serving: &CpuSet) -> Verdict {
    let Some(best) = best(report) else {
        let mut verdict = nothing();
        verdict.summary =
            "None of the policies that can be set (none, rps, rfs, flow-aware) was replayed."
                .into();
        return verdict;
    };
    let timeless = report.input.span_ns == 0;
    let idle = policy(report, "none").is_some_and(|none| none.max_busy < IDLE_ENOUGH);
    if report.input.received < ENOUGH_PACKETS && (timeless || !idle) {
        let mut verdict = nothing();
        verdict.summary = format!(
            "Too few packets to judge by: {} received; {ENOUGH_PACKETS} are the least, and ten \
             seconds of a busy time say more.",
            report.input.received
        );
        return verdict;
    }
    if timeless {
        let mut verdict = nothing();
        verdict.summary = format!(
            "The {} packets received have no times that differ, so how busy CPUs would be cannot be \
             told, and there is nothing to judge.",
            report.input.received
        );
        return verdict;
    }
    let none = policy(report, "none");
    let reaches_all = report.findings.iter().any(|f| f.code == FindingCode::RssReachesAll);
    if let Some(none) = none {
        if reaches_all && best.policy == "none" {
            let summary = format!(
                "Leave it off: RPS is not advised, since RSS already reaches all {} CPUs; steering \
                 only adds hops between them.",
                serving.count()
            );
            return with_rate(off(host, report, summary), report, none);
        }
        if best.policy == "none" {
            let summary = format!(
                "Leave it off: no policy carries clearly more; the busiest CPU is {} busy{} \
                 without steering.",
                percent(none.max_busy),
                if loss(none) > NEGLIGIBLE_LOSS {
                    format!(" and {} of the packets are lost", percent(loss(none)))
                } else {
                    String::new()
                }
            );
            return with_rate(off(host, report, summary), report, none);
        }
        if none.max_busy < IDLE_ENOUGH && loss(none) <= NEGLIGIBLE_LOSS {
            let summary = format!(
                "Leave it off at this load: without steering the busiest CPU is {} busy and {} \
                 packets are lost.",
                percent(none.max_busy),
                if none.drops.total() == 0 { "no".into() } else { none.drops.total().to_string() },
            );
            let mut verdict = with_rate(off(host, report, summary), report, none);
            verdict.unless.push(format!(
                "Under more load use {}: it carries {:.1} times as much before its busiest CPU is \
                 full.",
                best.policy,
                headroom(best) / headroom(none)
            ));
            return verdict;
        }
    }
    steer(host, report, best, none)
}

fn steer(
    host: &Host,
    report: &Report,
    best: &PolicyReport,
    none: Option<&PolicyReport>,
) -> Verdict {
    let code = match best.policy.as_str() {
        "rps" => VerdictCode::UseRps,
        "rfs" => VerdictCode::UseRfs,
        _ => VerdictCode::UseFlowAware,
    };
    let mut verdict = Verdict {
        code,
        policy: best.policy.clone(),
        summary: format!("Use {}.", best.policy),
        ..nothing()
    };
    if let Some(none) = none {
        let gains = gains(best, none);
        if !gains.is_empty() {
            verdict.summary = format!("Use {}: {}.", best.policy, gains.join(", and "));
        }
        verdict.buys = buys(best, none);
        verdict.costs = costs(best, none);
    }
    let linux = simplest(report, &["rps", "rfs"]);
    match (code, linux) {
        (VerdictCode::UseFlowAware, Some(linux)) => {
            verdict.settings = settings::steering(host, report, linux);
            verdict.unless.push(format!(
                "flow-aware is no setting of the kernel: `rxsteer attach DEV` brings it, but leads packets of \
                 unconnected UDP sockets by their port, unless --flow-ports names it. Without it use {} with \
                 the settings below; it carries {:.2} times as much as with no steering.",
                linux.policy,
                none.map_or(1.0, |none| carries(linux) / carries(none).max(1e-6)),
            ));
        }
        _ => verdict.settings = settings::steering(host, report, best),
    }
    verdict.unless.extend(one_reader(best));
    verdict.unless.extend(settings::remarks(host, linux.unwrap_or(best)));
    verdict.others = others(report, best);
    verdict.evidence = evidence(report, best, none);
    verdict
}

/// What is better under `best`, in words that differ where the figures do.
fn gains(best: &PolicyReport, none: &PolicyReport) -> Vec<String> {
    let mut gains = Vec::new();
    let (new, old) = (percent(best.max_busy), percent(none.max_busy));
    if new != old {
        gains.push(format!("its busiest CPU is {new} busy instead of {old}"));
    }
    let (new, old) = (best.latency.p50_ns, none.latency.p50_ns);
    if loss(best) > 0.0 || loss(none) > 0.0 {
        let (new, old) = (percent(loss(best)), percent(loss(none)));
        gains.push(format!("{new} of the packets are lost instead of {old}"));
    } else if new < old {
        let (new, old) = (time(new), time(old));
        gains.push(format!("half of the packets are through within {new} instead of {old}"));
    }
    gains
}

/// Says that the CPU of one reader is the limit, which no policy moves.
fn one_reader(policy: &PolicyReport) -> Option<String> {
    let busiest = policy.cpus.iter().max_by(|a, b| a.busy.total_cmp(&b.busy))?;
    let share = busiest.read as f64 / policy.read.max(1) as f64;
    (busiest.busy >= NEARLY_FULL && share >= NEARLY_ALL).then(|| {
        format!(
            "CPU {} reads {} of the packets and is {} busy under {}: no policy moves the work of \
             the reader. More readers would share it (SO_REUSEPORT); --workers and the consumers \
             file replay that.",
            busiest.cpu,
            percent(share),
            percent(busiest.busy),
            policy.policy
        )
    })
}

/// The policies that can be set and were replayed, the simplest first.
fn settable(report: &Report) -> impl Iterator<Item = &PolicyReport> {
    SETTABLE.iter().filter_map(|name| policy(report, name))
}

fn policy<'a>(report: &'a Report, name: &str) -> Option<&'a PolicyReport> {
    report.policies.iter().find(|p| p.policy == name)
}

/// The simplest policy that carries within 15 % of the best, and reorders no more than it.
fn best(report: &Report) -> Option<&PolicyReport> {
    simplest(report, &SETTABLE)
}

fn simplest<'a>(report: &'a Report, among: &[&str]) -> Option<&'a PolicyReport> {
    let candidates: Vec<&PolicyReport> =
        settable(report).filter(|p| among.contains(&p.policy.as_str())).collect();
    let carries_more = |a: &PolicyReport, b: &PolicyReport| {
        if (loss(a) - loss(b)).abs() > NEGLIGIBLE_LOSS {
            loss(a) < loss(b)
        } else {
            headroom(a) > headroom(b)
        }
    };
    let top = candidates.iter().copied().reduce(|a, b| if carries_more(b, a) { b } else { a })?;
    candidates.into_iter().find(|p| {
        // Where even the best loses packets, a simpler policy may lose a little more.
        let loses_no_more = loss(p) <= loss(top) + NEGLIGIBLE_LOSS;
        (loses_no_more || loss(top) > NEGLIGIBLE_LOSS) && carries(p) * CLEARLY >= carries(top)
    })
}

/// The load that a policy carries, as a multiple of the load offered.
fn carries(policy: &PolicyReport) -> f64 {
    (1.0 - loss(policy)) * headroom(policy)
}

fn loss(policy: &PolicyReport) -> f64 {
    policy.drops.total() as f64 / policy.received.max(1) as f64
}

/// How many times the load the busiest CPU would take.
fn headroom(policy: &PolicyReport) -> f64 {
    1.0 / policy.max_busy.max(1e-6)
}

fn rate(report: &Report) -> Option<f64> {
    let seconds = report.input.span_ns as f64 / 1e9;
    (seconds > 0.0).then(|| report.input.received as f64 / seconds)
}

fn off(host: &Host, report: &Report, summary: String) -> Verdict {
    let none = policy(report, "none");
    let mut verdict = Verdict {
        code: VerdictCode::LeaveItOff,
        summary,
        settings: settings::off(host),
        ..nothing()
    };
    if let Some(none) = none {
        verdict.buys = vec![format!(
            "No packet waits for another CPU: {:.2} hand-offs and {:.0} ns of CPU time per packet.",
            none.handoffs_per_packet, none.cpu_ns_per_packet
        )];
        verdict.others = others(report, none);
        verdict.evidence = evidence(report, none, Some(none));
    }
    verdict
}

/// Says at which rate the busiest CPU would be full.
fn with_rate(mut verdict: Verdict, report: &Report, none: &PolicyReport) -> Verdict {
    if let Some(rate) = rate(report).filter(|_| none.max_busy > 0.0) {
        verdict.unless.push(format!(
            "The capture has {rate:.0} packets/s; at about {:.0} packets/s of the same mix the \
             busiest CPU would be full.",
            rate * headroom(none)
        ));
    }
    verdict.unless.extend(one_reader(none));
    verdict
}

fn fix_first(report: &Report, summary: String) -> Verdict {
    let shown = best(report).or(report.policies.first());
    Verdict {
        code: VerdictCode::FixFirst,
        summary,
        others: shown.map_or(Vec::new(), |p| others(report, p)),
        evidence: shown.map_or(Vec::new(), |p| evidence(report, p, policy(report, "none"))),
        ..nothing()
    }
}

fn buys(best: &PolicyReport, none: &PolicyReport) -> Vec<String> {
    let mut buys = Vec::new();
    let room = headroom(best) / headroom(none);
    if room >= 1.05 {
        buys.push(format!("Room for {room:.1} times the packets before the busiest CPU is full."));
    }
    if none.drops.total() > best.drops.total() {
        buys.push(format!(
            "{} of {} lost packets are no longer lost.",
            none.drops.total() - best.drops.total(),
            none.drops.total()
        ));
    }
    let (new, old) = (best.latency, none.latency);
    if new.p99_ns < old.p99_ns {
        buys.push(format!(
            "99 % of the packets are through within {} instead of {}.",
            time(new.p99_ns),
            time(old.p99_ns)
        ));
    }
    let (new, old) = (on_consumer(best), on_consumer(none));
    if let (Some(new), Some(old)) = (new, old)
        && new > old + 0.01
    {
        buys.push(format!(
            "{} of the packets are processed on the CPU of their reader instead of {}.",
            percent(new),
            percent(old)
        ));
    }
    buys
}

fn costs(best: &PolicyReport, none: &PolicyReport) -> Vec<String> {
    let mut costs = vec![format!(
        "{:.2} hand-offs to another CPU per packet, with {} signals.",
        best.handoffs_per_packet, best.signals
    )];
    let more = best.cpu_ns_per_packet - none.cpu_ns_per_packet;
    costs.push(format!(
        "{:.0} ns of CPU time per packet {} without steering ({:.0} instead of {:.0}).",
        more.abs(),
        if more >= 0.0 { "more than" } else { "less than" },
        best.cpu_ns_per_packet,
        none.cpu_ns_per_packet
    ));
    if best.table.bytes > 0 {
        costs.push(format!("{} bytes of tables.", best.table.bytes));
    }
    if best.latency.p50_ns > none.latency.p50_ns {
        costs.push(format!(
            "Half of the packets take {} or more instead of {}.",
            time(best.latency.p50_ns),
            time(none.latency.p50_ns)
        ));
    }
    if best.reordered > 0 {
        costs.push(format!("{} packets were reordered within their flow.", best.reordered));
    }
    costs
}

fn others(report: &Report, chosen: &PolicyReport) -> Vec<PolicyRemark> {
    let rest = report.policies.iter().filter(|p| p.policy != chosen.policy);
    rest.map(|p| {
        let mut text = format!(
            "carries {:.2} times as much as {}, {} lost, {:.0} ns of CPU time and {:.2} hand-offs \
             per packet",
            carries(p) / carries(chosen).max(1e-6),
            chosen.policy,
            percent(loss(p)),
            p.cpu_ns_per_packet,
            p.handoffs_per_packet
        );
        if p.wrong_steers > 0 {
            text.push_str(&format!(", {} packets steered by another flow's entry", p.wrong_steers));
        }
        if p.reordered > 0 {
            text.push_str(&format!(", {} reordered", p.reordered));
        }
        if !SETTABLE.contains(&p.policy.as_str()) {
            text.push_str("; no kernel of today offers it");
        } else if p.policy == "flow-aware" {
            text.push_str(
                "; as `rxsteer attach DEV`, where unconnected UDP sockets are served by port, or by flow on \
                 --flow-ports",
            );
        }
        PolicyRemark { policy: p.policy.clone(), text }
    })
    .collect()
}

fn evidence(report: &Report, chosen: &PolicyReport, none: Option<&PolicyReport>) -> Vec<Evidence> {
    let mut evidence = vec![
        Evidence::new("received", report.input.received as f64, "packets"),
        Evidence::new("max_busy", chosen.max_busy, "share"),
        Evidence::new("loss", loss(chosen), "share"),
        Evidence::new("cpu_per_packet", chosen.cpu_ns_per_packet, "ns"),
        Evidence::new("handoffs_per_packet", chosen.handoffs_per_packet, "per packet"),
        Evidence::new("latency_p99", chosen.latency.p99_ns as f64, "ns"),
        Evidence::new("reordered", chosen.reordered as f64, "packets"),
        Evidence::new(
            "connected_flows_in_ten_seconds",
            report.flows.ten_seconds.max_connected as f64,
            "flows",
        ),
    ];
    if let Some(rate) = rate(report) {
        evidence.push(Evidence::new("rate", rate, "packets per second"));
    }
    if let Some(hit_rate) = chosen.hit_rate {
        evidence.push(Evidence::new("hit_rate", hit_rate, "share"));
    }
    if let Some(none) = none.filter(|n| n.policy != chosen.policy) {
        evidence.push(Evidence::new("max_busy_without", none.max_busy, "share"));
        evidence.push(Evidence::new("loss_without", loss(none), "share"));
        evidence.push(Evidence::new("cpu_per_packet_without", none.cpu_ns_per_packet, "ns"));
        evidence.push(Evidence::new("latency_p99_without", none.latency.p99_ns as f64, "ns"));
        evidence.push(Evidence::new("room", headroom(chosen) / headroom(none), "factor"));
    }
    evidence
}

fn on_consumer(policy: &PolicyReport) -> Option<f64> {
    let d = &policy.distances;
    let all = d.same_cpu + d.same_cache + d.elsewhere;
    (all > 0).then(|| d.same_cpu as f64 / all as f64)
}

/// A share in per cent, with a decimal place where it is small.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 10.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// A time in the unit that gives it one to three digits before the point.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}
