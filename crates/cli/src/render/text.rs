//! A report for people: what was modelled, the answer, the comparison, the findings.
//!
//! Always true: at most [`WIDTH`] columns, as long as names of files and devices are short; colours
//! only add to what the text says.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use rxsteer_core::CpuSet;
use rxsteer_lab::report::{FlowReport, PolicyReport, Report, Severity, SweepCurve, WorkerShare};
use tabled::builder::Builder;
use tabled::settings::object::{Columns, Object as _, Rows};
use tabled::settings::{Alignment, Padding, Style as Borders};

use super::metrics::{self, Tone};
use super::numbers::{bytes, count, grouped, percent, plural, time};

/// Columns that the text keeps to.
pub const WIDTH: usize = 100;

const HEADING: Style = Style::new().bold();
const CHOSEN: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default();
const FAINT: Style = Style::new().dimmed();

/// Readers of ports that are listed unless all are wanted.
const MOST_READERS: usize = 16;

/// CPUs in one line of bars.
const CPUS_A_LINE: usize = 64;

/// Writes the report.
///
/// # Errors
/// What the writer says.
pub fn write<W: Write>(out: &mut W, report: &Report, verbose: bool) -> io::Result<()> {
    modelled(out, report)?;
    if report.input.received == 0 {
        return findings(out, report);
    }
    answer(out, report)?;
    comparison(out, report, verbose)?;
    cpus(out, report)?;
    sweeps(out, &report.sweeps)?;
    flows(out, report)?;
    readers(out, &report.consumers.workers, verbose)?;
    findings(out, report)
}

fn heading<W: Write>(out: &mut W, text: &str) -> io::Result<()> {
    writeln!(out, "\n{HEADING}{text}{HEADING:#}")
}

/// Writes text broken into lines, the first after `first`, the others below its beginning.
pub(super) fn wrapped<W: Write>(out: &mut W, first: &str, text: &str) -> io::Result<()> {
    let rest = " ".repeat(first.chars().count());
    let options = textwrap::Options::new(WIDTH)
        .initial_indent(first)
        .subsequent_indent(&rest)
        .break_words(false);
    writeln!(out, "{}", textwrap::fill(text, options))
}

fn modelled<W: Write>(out: &mut W, report: &Report) -> io::Result<()> {
    let input = &report.input;
    // A name may hold what a terminal takes for a command.
    let files = input.files.join(", ").replace(char::is_control, "?");
    writeln!(out, "{HEADING}What was replayed{HEADING:#}")?;
    let mut text = format!(
        "{files}: {} in {}; {} received by the host and replayed, {} sent by it",
        plural(input.packets_read, "packet"),
        time(input.span_ns as f64),
        grouped(input.received),
        grouped(input.sent),
    );
    if input.skipped.total() > 0 {
        let skipped: Vec<_> = input.skipped.named().into_iter().filter(|(_, n)| *n > 0).collect();
        let skipped: Vec<_> = skipped
            .iter()
            .map(|(name, n)| format!("{} {}", grouped(*n), name.replace('_', " ")))
            .collect();
        text.push_str(&format!("; not replayed: {}", skipped.join(", ")));
    }
    wrapped(out, "  traffic    ", &(text + "."))?;
    let classes: Vec<_> = input.classes.named().into_iter().filter(|(_, n)| *n > 0).collect();
    if !classes.is_empty() {
        let classes: Vec<_> = classes
            .iter()
            .map(|(name, n)| {
                let share = percent(*n as f64 / input.received.max(1) as f64);
                format!("{} {share}", name.replace('_', "-"))
            })
            .collect();
        wrapped(out, "             ", &format!("Received: {}.", classes.join(", ")))?;
    }
    let stopped: Vec<_> = input
        .dissect_errors
        .0
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(cause, n)| format!("{} {cause}", grouped(*n)))
        .collect();
    if !stopped.is_empty() {
        let text = format!("Reading of headers stopped early: {}.", stopped.join(", "));
        wrapped(out, "             ", &text)?;
    }
    if input.unhashable > 0 {
        let text = format!("Without a flow hash: {}.", plural(input.unhashable, "packet"));
        wrapped(out, "             ", &text)?;
    }
    let host = &report.host;
    let queues: Vec<_> = host
        .queues
        .iter()
        .take(4)
        .map(|q| {
            let rps = if q.rps_cpus.is_empty() { "none" } else { &q.rps_cpus };
            format!("rx-{}: IRQ on CPU {}, RPS CPUs {rps}", q.queue, q.irq_cpu)
        })
        .collect();
    let more = host.queues.len().saturating_sub(4);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let cpus = CpuSet::from_list(&host.online).map_or(0, |set| set.count() as u64);
    let text = format!(
        "{}: {} ({}) in {}, {}. {}{more}. Flow tables of {} entries (flow-aware: {}).",
        host.source,
        plural(cpus, "CPU"),
        host.online,
        plural(host.caches.len() as u64, "cache group"),
        plural(host.queues.len() as u64, "receive queue"),
        queues.join("; "),
        grouped(host.rps_sock_flow_entries),
        grouped(host.flow_entries),
    );
    wrapped(out, "  host       ", &text)?;
    let found = &report.consumers;
    let text = format!(
        "Local side {}{}. {}, {} connected and {} unconnected UDP sockets.",
        match found.local.how.as_str() {
            "given" => "as given",
            "directions" => "by the directions in the capture",
            "inferred" => "inferred",
            _ => "unknown, every packet counts as received",
        },
        if found.local.addresses.is_empty() {
            String::new()
        } else {
            format!(": {}", found.local.addresses.join(", "))
        },
        plural(found.tcp_connections, "TCP connection"),
        grouped(found.udp_connected),
        grouped(found.udp_unconnected),
    );
    wrapped(out, "  sockets    ", &text)?;
    let settings = &report.settings;
    if found.udp_unconnected > 0 {
        let text = format!(
            "Unconnected UDP ports are taken to have {} each, where no rule says otherwise.",
            plural(u64::from(settings.workers), "reader")
        );
        wrapped(out, "             ", &text)?;
    }
    let text = format!(
        "Flow hash: fields of mode {}, seed {}. Policy rfs: Linux {}. Times are those of a model: \
         believe the ratios between policies before the numbers.",
        settings.mode, settings.seed, settings.kernel,
    );
    wrapped(out, "  model      ", &text)
}

fn answer<W: Write>(out: &mut W, report: &Report) -> io::Result<()> {
    let verdict = &report.verdict;
    heading(out, "Answer")?;
    let text = textwrap::fill(&verdict.summary, textwrap::Options::new(WIDTH - 2));
    for line in text.lines() {
        writeln!(out, "  {CHOSEN}{line}{CHOSEN:#}")?;
    }
    for (label, lines) in
        [("buys", &verdict.buys), ("costs", &verdict.costs), ("unless", &verdict.unless)]
    {
        for (index, line) in lines.iter().enumerate() {
            let first = if index == 0 { label } else { "" };
            wrapped(out, &format!("  {first:<8} "), line)?;
        }
    }
    if !verdict.settings.is_empty() {
        heading(out, "Settings")?;
        for setting in &verdict.settings {
            writeln!(out, "  {}", setting.line)?;
            for line in textwrap::wrap(&setting.why, WIDTH - 6) {
                writeln!(out, "    {FAINT}# {line}{FAINT:#}")?;
            }
        }
    }
    if !verdict.others.is_empty() {
        heading(out, "Why not the others")?;
        for other in &verdict.others {
            wrapped(out, &format!("  {:<11}", other.policy), &other.text)?;
        }
    }
    Ok(())
}

fn comparison<W: Write>(out: &mut W, report: &Report, verbose: bool) -> io::Result<()> {
    let policies = &report.policies;
    if policies.is_empty() {
        return Ok(());
    }
    heading(out, "Comparison")?;
    let mut builder = Builder::default();
    let names = policies.iter().map(|policy| {
        let style = if policy.policy == report.verdict.policy { CHOSEN } else { HEADING };
        format!("{style}{}{style:#}", policy.policy)
    });
    builder.push_record(std::iter::once(String::new()).chain(names));
    for section in metrics::sections(policies, verbose) {
        builder.push_record([format!("{FAINT}{}{FAINT:#}", section.title)]);
        for row in section.rows {
            let cells = row.cells.into_iter().map(|cell| match cell.tone {
                Tone::Plain => cell.text,
                Tone::Bad => format!("{BAD}{}{BAD:#}", cell.text),
                Tone::Faint => format!("{FAINT}{}{FAINT:#}", cell.text),
            });
            builder.push_record(std::iter::once(format!("  {}", row.label)).chain(cells));
        }
    }
    let mut table = builder.build();
    table.with(Borders::empty()).with(Padding::new(0, 0, 0, 0));
    table.modify(Columns::new(1..), Alignment::right());
    table.modify(Columns::new(1..).intersect(Rows::new(..)), Padding::new(1, 0, 0, 0));
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Writes one line of bars a policy: a bar a CPU, as high as its busy share.
fn cpus<W: Write>(out: &mut W, report: &Report) -> io::Result<()> {
    let Some(first) = report.policies.first() else { return Ok(()) };
    let online = |policy: &PolicyReport| -> Vec<f64> {
        policy.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.share).collect()
    };
    let ids: Vec<_> = first.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.cpu).collect();
    let (Some(low), Some(high)) = (ids.first(), ids.last()) else { return Ok(()) };
    heading(out, "Packets processed by each CPU")?;
    let scale = report
        .policies
        .iter()
        .flat_map(|policy| policy.cpus.iter().map(|cpu| cpu.share))
        .fold(0.0, f64::max);
    for policy in &report.policies {
        let shares = online(policy);
        for (index, line) in shares.chunks(CPUS_A_LINE).enumerate() {
            let bars: String = line.iter().map(|share| bar(*share, scale)).collect();
            if index > 0 {
                writeln!(out, "  {:<11}{bars}", "")?;
                continue;
            }
            let largest = shares.iter().copied().fold(0.0, f64::max);
            let style = if policy.policy == report.verdict.policy { CHOSEN } else { Style::new() };
            writeln!(
                out,
                "  {style}{:<11}{style:#}{bars}  largest share {}, max / mean {:.2}",
                policy.policy,
                percent(largest),
                policy.max_over_mean
            )?;
        }
    }
    writeln!(
        out,
        "  {FAINT}CPU {low} to {high} from left to right; a full bar is {}{FAINT:#}",
        percent(scale)
    )
}

/// Returns a bar of eight heights; nothing for 0.
fn bar(value: f64, scale: f64) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if value <= 0.0 || scale <= 0.0 {
        return '·';
    }
    let step = (value / scale * 8.0).ceil() as usize;
    BARS[step.clamp(1, 8) - 1]
}

fn sweeps<W: Write>(out: &mut W, sweeps: &[SweepCurve]) -> io::Result<()> {
    let Some(first) = sweeps.first() else { return Ok(()) };
    heading(out, &format!("Hit rate against {}", first.parameter))?;
    let mut builder = Builder::default();
    let names = sweeps.iter().map(|curve| curve.policy.clone());
    builder.push_record(std::iter::once(String::new()).chain(names));
    for (index, point) in first.points.iter().enumerate() {
        let cells = sweeps.iter().map(|curve| {
            let rate = curve.points.get(index).and_then(|point| point.hit_rate);
            rate.map_or_else(|| "-".into(), percent)
        });
        builder.push_record(std::iter::once(format!("  {}", grouped(point.value))).chain(cells));
    }
    let mut table = builder.build();
    table.with(Borders::empty()).with(Padding::new(0, 0, 0, 0));
    table.modify(Columns::new(1..), Alignment::right());
    table.modify(Columns::new(1..), Padding::new(2, 0, 0, 0));
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Says which table fits; RFS steers flows of connected sockets only.
pub(super) fn fitting(flows: &FlowReport) -> String {
    if flows.ten_seconds.max_connected == 0 {
        return "No flow of a connected socket was active, so RFS needs no table.".into();
    }
    format!(
        "A table that fits: {} entries in Linux, {} for flow-aware.",
        grouped(flows.fitting_entries_linux),
        grouped(flows.fitting_entries),
    )
}

fn flows<W: Write>(out: &mut W, report: &Report) -> io::Result<()> {
    let flows = &report.flows;
    heading(out, "Flows and table size")?;
    let text = format!(
        "{}; the largest has {} of the packets{}.",
        plural(flows.seen, "flow"),
        percent(flows.largest_share),
        flows.largest.as_ref().map_or_else(String::new, |name| format!(" ({name})")),
    );
    wrapped(out, "  ", &text)?;
    let (one, ten) = (&flows.one_second, &flows.ten_seconds);
    let text = format!(
        "Active at a time, at most: {} within 1 s ({} with a connected socket), {} within 10 s \
         ({}){}.",
        plural(one.max_flows, "flow"),
        grouped(one.max_connected),
        grouped(ten.max_flows),
        grouped(ten.max_connected),
        if one.exact && ten.exact { "" } else { "; upper bounds" },
    );
    wrapped(out, "  ", &text)?;
    wrapped(out, "  ", &fitting(flows))?;
    if let Some(largest) = report.policies.iter().max_by_key(|p| p.table.bytes)
        && largest.table.bytes > 0
    {
        let text = format!(
            "Tables as modelled: at most {} entries, {} ({}).",
            count(largest.table.entries),
            bytes(largest.table.bytes),
            largest.policy
        );
        wrapped(out, "  ", &text)?;
    }
    Ok(())
}

/// Writes how the packets of a port with several readers fall on them.
fn readers<W: Write>(out: &mut W, workers: &[WorkerShare], all: bool) -> io::Result<()> {
    let several = |worker: &&WorkerShare| {
        all || workers.iter().filter(|other| other.port == worker.port).count() > 1
    };
    let shown: Vec<_> = workers.iter().filter(several).collect();
    if shown.is_empty() {
        return Ok(());
    }
    heading(out, "Readers of unconnected UDP ports")?;
    let mut builder = Builder::default();
    builder.push_record(
        ["  port", "reader", "CPU", "packets", "by hash", "in turn", "at random", "by CPU"]
            .map(ToOwned::to_owned),
    );
    let most = if all { usize::MAX } else { MOST_READERS };
    for worker in shown.iter().take(most) {
        builder.push_record([
            format!("  {}", worker.port),
            worker.worker.to_string(),
            worker.cpu.to_string(),
            count(worker.by_hash),
            percent(worker.share),
            percent(worker.round_robin),
            percent(worker.random),
            percent(worker.by_cpu),
        ]);
    }
    let mut table = builder.build();
    table.with(Borders::empty()).with(Padding::new(0, 0, 0, 0));
    table.modify(Columns::new(1..), Alignment::right());
    table.modify(Columns::new(1..), Padding::new(2, 0, 0, 0));
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    if shown.len() > most {
        writeln!(out, "  {FAINT}and {} more; -v shows them{FAINT:#}", shown.len() - most)?;
    }
    let text = "Only by hash does a flow keep its reader, and so its order.";
    writeln!(out, "  {FAINT}{text}{FAINT:#}")
}

fn findings<W: Write>(out: &mut W, report: &Report) -> io::Result<()> {
    if !report.findings.is_empty() {
        heading(out, "Findings")?;
    }
    for finding in &report.findings {
        let (style, mark) = match finding.severity {
            Severity::Problem => (BAD, "!"),
            Severity::Limit => (HEADING, "*"),
            Severity::Note => (FAINT, "-"),
        };
        let options = textwrap::Options::new(WIDTH - 4).break_words(false);
        for (index, line) in textwrap::wrap(&finding.text, options).into_iter().enumerate() {
            if index == 0 {
                writeln!(out, "  {style}{mark}{style:#} {line}")?;
            } else {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(())
}
