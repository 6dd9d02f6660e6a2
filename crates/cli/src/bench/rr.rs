//! `bench rr`.

use std::io::{self, Write};

use rxsteer_bench::{
    Pace, Quantiles, RrPairReport, RrReport, RrSpec, ServerReport, Watch, ask, ask_in, serve,
};
use serde_json::{Value, json};

use super::args::FormArgs;
use super::checked::rr::{Rr, RrWay};
use super::output::{Form, Output};
use super::{cpus, pair, seconds, tell, testbed};
use crate::render::numbers::{count, grouped, plural, time};
use crate::terminal::Terminal;
use crate::{Exit, interrupt};

/// Asks, answers, or both.
pub(super) fn run(asked: &Rr, form: FormArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let stop = interrupt::watch();
    let watch = Watch { stop: &stop, on_second: &|second| tell(terminal, "transactions", second) };
    let output = Output::new("rr", form);
    let spec = &asked.spec;
    let (client, pair_report, server, settings) = match &asked.way {
        RrWay::Testbed { link, ipv6 } => {
            let testbed = testbed(terminal)?;
            let (pair, settings) = pair(&testbed, link)?;
            let report = ask_in(&pair, spec, *ipv6, &watch)?;
            (Some(report.client.clone()), Some(report), None, settings)
        }
        RrWay::Ask { to, permit } => {
            (Some(ask(spec, *to, permit, &watch)?), None, None, Vec::new())
        }
        RrWay::Serve { at, permit } => {
            (None, None, Some(serve(spec, *at, permit, &watch)?), Vec::new())
        }
    };
    let server = server.or(pair_report.as_ref().map(|report| report.server));
    if let Form::Json { .. } = output.form {
        let result = json!({
            "asked": asked_json(spec),
            "client": client.as_ref().map(client_json),
            "server": server,
            "cpus": pair_report.as_ref().map(|report| &report.cpus),
        });
        output.json(terminal, &settings, result)?;
        return exit(client.as_ref());
    }
    let mut out = terminal.results();
    output.head(&mut out, &settings)?;
    traffic(&mut out, spec)?;
    if let Some(client) = &client {
        asking(&mut out, client)?;
    }
    if let Some(server) = &server {
        answering(&mut out, server, pair_report.as_ref())?;
    }
    if let (Some(report), Some(client)) = (&pair_report, &client) {
        cpus(&mut out, &report.cpus, client.elapsed)?;
    }
    out.flush()?;
    exit(client.as_ref())
}

/// Asking without any answer measures nothing.
fn exit(client: Option<&RrReport>) -> anyhow::Result<Exit> {
    match client {
        Some(RrReport { transactions: 0, refused: 1.., .. }) => {
            anyhow::bail!("nobody answered: connection refused")
        }
        Some(RrReport { transactions: 0, lost: lost @ 1.., .. }) => {
            anyhow::bail!("nobody answered: {} lost", plural(*lost, "request"))
        }
        _ => Ok(Exit::Fine),
    }
}

pub(super) fn traffic(out: &mut dyn Write, spec: &RrSpec) -> io::Result<()> {
    let connected = if spec.connected { "connected" } else { "unconnected" };
    let pace = match spec.pace {
        Pace::Closed => "closed loop".to_owned(),
        Pace::Open(rate) => format!("open loop, {} requests/s", grouped(rate)),
    };
    writeln!(
        out,
        "traffic   {}, {}, {connected}, {} there and {} back, {pace}",
        spec.protocol,
        plural(u64::from(spec.flows), "flow"),
        plural(spec.request_len as u64, "byte"),
        plural(spec.response_len as u64, "byte"),
    )
}

fn asking(out: &mut dyn Write, report: &RrReport) -> io::Result<()> {
    write!(
        out,
        "answers   {} in {}: {} transactions/s",
        grouped(report.transactions),
        seconds(report.elapsed),
        count(report.rate() as u64),
    )?;
    for (number, what) in [
        (report.lost, "lost"),
        (report.refused, "times connection refused"),
        (report.late, "too late"),
        (report.skipped, "not asked in time"),
    ] {
        if number > 0 {
            write!(out, ", {} {what}", grouped(number))?;
        }
    }
    writeln!(out)?;
    writeln!(
        out,
        "latency       mean      50 %      90 %      95 %      99 %    99.9 %       max"
    )?;
    match &report.since_asked {
        None => quantiles(out, "", &report.latency),
        Some(since_asked) => {
            quantiles(out, "  since it was due, so that waiting to ask counts", &report.latency)?;
            quantiles(out, "  since it was asked", since_asked)
        }
    }
}

fn quantiles(out: &mut dyn Write, what: &str, q: &Quantiles) -> io::Result<()> {
    let times = [q.mean_ns, q.p50_ns, q.p90_ns, q.p95_ns, q.p99_ns, q.p999_ns, q.max_ns];
    write!(out, "        ")?;
    for ns in times {
        let text = if q.count == 0 { "-".into() } else { time(ns as f64) };
        write!(out, " {text:>9}")?;
    }
    writeln!(out, "{what}")
}

fn answering(
    out: &mut dyn Write,
    server: &ServerReport,
    pair: Option<&RrPairReport>,
) -> io::Result<()> {
    write!(out, "server    {} answered", grouped(server.answered))?;
    if let Some(pair) = pair {
        write!(out, ", {} of CPU each", time(pair.server_ns()))?;
    }
    for (number, what) in [
        (server.refused, "refused: not named by --i-own-this-network"),
        (server.failed, "that the kernel did not take"),
    ] {
        if number > 0 {
            write!(out, ", {} {what}", grouped(number))?;
        }
    }
    writeln!(out)
}

fn client_json(report: &RrReport) -> Value {
    let mut value = json!(report);
    value["transactions_per_second"] = json!(report.rate());
    value
}

fn asked_json(spec: &RrSpec) -> Value {
    let rate = if let Pace::Open(rate) = spec.pace { Some(rate) } else { None };
    json!({
        "protocol": spec.protocol,
        "connected": spec.connected,
        "flows": spec.flows,
        "request_len": spec.request_len,
        "response_len": spec.response_len,
        "open_loop_rate": rate,
        "count": spec.until.count,
        "duration_ns": spec.until.duration.as_nanos() as u64,
        "timeout_ns": spec.patience.as_nanos() as u64,
        "client_threads": spec.client_threads,
        "server_threads": spec.server_threads,
        "client_cpus": spec.client_cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
        "server_cpus": spec.server_cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
    })
}
