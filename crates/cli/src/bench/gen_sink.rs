//! `bench gen` and `bench sink`.

use std::io::{self, Write};

use rxsteer_bench::{
    Account, Call, GenReport, GenSpec, Permit, Road, SinkReport, SinkSpec, Watch, generate_in,
    receive_in,
};
use serde_json::{Value, json};

use super::args::FormArgs;
use super::checked::{Gen, Sink, Way};
use super::output::{Form, Output};
use super::{cpus, pair, seconds, tell, testbed};
use crate::render::numbers::{count, grouped, percent, plural, time};
use crate::terminal::Terminal;
use crate::{Exit, interrupt};

/// Sends.
pub(super) fn generate(asked: &Gen, form: FormArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let stop = interrupt::watch();
    let watch = Watch { stop: &stop, on_second: &|second| tell(terminal, "packets", second) };
    let output = Output::new("gen", form);
    let spec = &asked.source;
    let (report, arrived, settings) = match &asked.road {
        Way::Open(permit) => (open(spec, permit, &watch)?, None, Vec::new()),
        Way::Testbed(link) => {
            let testbed = testbed(terminal)?;
            let (pair, settings) = pair(&testbed, link)?;
            let report = generate_in(&pair, spec, &watch)?;
            (report.source, Some((report.arrived, report.dropped)), settings)
        }
    };
    if let Form::Json { .. } = output.form {
        let (arrived, dropped) = arrived.unzip();
        let result = json!({
            "traffic": traffic(spec),
            "source": source_json(&report),
            "arrived": arrived,
            "dropped": dropped,
        });
        output.json(terminal, &settings, result)?;
        return Ok(Exit::Fine);
    }
    let mut out = terminal.results();
    output.head(&mut out, &settings)?;
    writeln!(out, "traffic   {spec}")?;
    source(&mut out, &report)?;
    if let Some((arrived, lost)) = arrived {
        arrival(&mut out, &report, arrived, lost)?;
    }
    out.flush()?;
    Ok(Exit::Fine)
}

fn open(spec: &GenSpec, permit: &Permit, watch: &Watch<'_>) -> anyhow::Result<GenReport> {
    Ok(rxsteer_bench::generate(spec, Road::Open(permit), watch)?)
}

/// Receives, and sends in a testbed.
pub(super) fn receive(asked: &Sink, form: FormArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let stop = interrupt::watch();
    let watch = Watch { stop: &stop, on_second: &|second| tell(terminal, "packets", second) };
    let output = Output::new("sink", form);
    let Some((spec, link)) = &asked.testbed else {
        let report = rxsteer_bench::receive(&asked.sink, &watch)?;
        if let Form::Json { .. } = output.form {
            let result = json!({ "reading": reading(&asked.sink), "sink": sink_json(&report) });
            output.json(terminal, &[], result)?;
        } else {
            let mut out = terminal.results();
            output.head(&mut out, &[])?;
            sink(&mut out, &asked.sink, &report)?;
            writeln!(out, "dropped   {} by the sockets", grouped(report.socket_drops))?;
            cpus(&mut out, &report.cpus, report.elapsed)?;
            out.flush()?;
        }
        return Ok(Exit::Fine);
    };
    let testbed = testbed(terminal)?;
    let (pair, settings) = pair(&testbed, link)?;
    let report = receive_in(&pair, &asked.sink, spec, &watch)?;
    for finding in &report.account.findings {
        terminal.note(&finding.text);
    }
    if let Form::Json { .. } = output.form {
        let result = json!({
            "traffic": traffic(spec),
            "reading": reading(&asked.sink),
            "source": source_json(&report.source),
            "sink": sink_json(&report.sink),
            "account": report.account,
        });
        output.json(terminal, &settings, result)?;
    } else {
        let mut out = terminal.results();
        output.head(&mut out, &settings)?;
        writeln!(out, "traffic   {spec}")?;
        source(&mut out, &report.source)?;
        sink(&mut out, &asked.sink, &report.sink)?;
        account(&mut out, &report.account)?;
        cpus(&mut out, &report.sink.cpus, report.sink.elapsed)?;
        out.flush()?;
    }
    Ok(if report.account.is_complete() { Exit::Fine } else { Exit::Error })
}

/// Writes what the other end counted.
pub(super) fn arrival(
    out: &mut dyn Write,
    report: &GenReport,
    arrived: u64,
    lost: u64,
) -> io::Result<()> {
    write!(out, "arrived   {}", plural(arrived, "packet"))?;
    let dropped = if lost > 0 {
        format!(", {} dropped for want of room", grouped(lost))
    } else {
        String::new()
    };
    let merged = if report.sent > arrived + lost { " (what is merged is one)" } else { "" };
    writeln!(out, ", as the device at the other end counts{merged}{dropped}")
}

pub(super) fn source(out: &mut dyn Write, report: &GenReport) -> io::Result<()> {
    writeln!(out, "source    {}", report.means)?;
    write!(
        out,
        "sent      {} in {}: {} packets/s, {} of CPU a packet",
        plural(report.sent, "packet"),
        seconds(report.elapsed),
        count(report.rate() as u64),
        time(report.ns_per_packet()),
    )?;
    for (number, what) in [
        (report.refusals, "refused for want of room and sent again"),
        (report.behind, "fell due too late to be sent"),
    ] {
        if number > 0 {
            write!(out, ", {} {what}", grouped(number))?;
        }
    }
    writeln!(out)
}

fn sink(out: &mut dyn Write, spec: &SinkSpec, report: &SinkReport) -> io::Result<()> {
    let sockets: usize = report.readers.iter().map(|reader| reader.sockets).sum();
    write!(out, "sink      {}", spec.call)?;
    match spec.call {
        Call::Recvmmsg => write!(out, " of {}", spec.batch)?,
        Call::IoUring => write!(out, ", multishot recvmsg")?,
        Call::Recv | Call::Recvmsg => {}
    }
    let readers = report.readers.len() as u64;
    let kind = match (spec.peers.is_empty(), spec.reuseport) {
        (false, _) => format!("{} connected", plural(sockets as u64, "socket")),
        (true, true) => format!("{} with reuseport", plural(sockets as u64, "socket")),
        (true, false) => "1 socket".into(),
    };
    let gro = if spec.gro { ", merged by GRO" } else { "" };
    writeln!(out, ", {}, {kind}{gro}{}", plural(readers, "thread"), work(spec))?;
    writeln!(
        out,
        "read      {} in {}: {} packets/s, {} of CPU a packet",
        plural(report.received, "packet"),
        seconds(report.receiving),
        count(report.rate() as u64),
        time(report.ns_per_packet()),
    )
}

/// Returns what a reader does besides, after a comma, or nothing.
pub(super) fn work(spec: &SinkSpec) -> String {
    match spec.work.as_nanos() {
        0 => String::new(),
        ns => format!(", {} of work on each datagram", time(ns as f64)),
    }
}

fn account(out: &mut dyn Write, account: &Account) -> io::Result<()> {
    writeln!(out, "account   {:>13} sent", grouped(account.sent))?;
    let share = |number: u64| percent(number as f64 / account.sent.max(1) as f64);
    for (number, what, always) in [
        (account.received, "read", true),
        (account.backlog, "dropped before IP: ring, backlog or flow limit full", false),
        (account.ip, "dropped by IP", false),
        (account.reassembly, "fragments that were not put together", false),
        (account.no_port, "for a port that nobody reads", false),
        (account.checksum, "dropped by the socket: wrong checksum", false),
        (account.socket, "dropped by the socket: its reader was too slow", false),
    ] {
        if always || number > 0 {
            writeln!(out, "          {:>13} {:>7} {what}", grouped(number), share(number))?;
        }
    }
    if account.unexplained != 0 {
        let (less, number) = ("-", account.unexplained.unsigned_abs());
        let sign = if account.unexplained < 0 { less } else { "" };
        let text = format!("{sign}{}", grouped(number));
        writeln!(out, "          {text:>13} {:>7} no counter explains", share(number))?;
    }
    Ok(())
}

fn traffic(spec: &GenSpec) -> Value {
    let traffic = &spec.traffic;
    json!({
        "kind": traffic.kind,
        "flows": traffic.flows,
        "pattern": traffic.pattern,
        "sizes": traffic.sizes.to_string(),
        "to": traffic.to,
        "port": traffic.port,
        "seed": traffic.seed,
        "rate": spec.rate,
        "batch": spec.batch,
        "cpu": spec.cpu.map(|cpu| cpu.0),
        "count": spec.until.count,
        "duration_ns": spec.until.duration.as_nanos() as u64,
    })
}

fn reading(spec: &SinkSpec) -> Value {
    json!({
        "listen": spec.listen,
        "call": spec.call,
        "batch": spec.batch,
        "gro": spec.gro,
        "threads": spec.threads,
        "reuseport": spec.reuseport,
        "connected": spec.peers.len(),
        "work_ns": spec.work.as_nanos() as u64,
        "cpus": spec.cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
        "busy_poll_ns": spec.busy_poll.as_nanos() as u64,
        "receive_buffer": spec.receive_buffer,
    })
}

pub(super) fn source_json(report: &GenReport) -> Value {
    let mut value = json!(report);
    value["packets_per_second"] = json!(report.rate());
    value["ns_per_packet"] = json!(report.ns_per_packet());
    value
}

fn sink_json(report: &SinkReport) -> Value {
    let mut value = json!(report);
    value["packets_per_second"] = json!(report.rate());
    value["ns_per_packet"] = json!(report.ns_per_packet());
    value
}
