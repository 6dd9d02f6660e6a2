//! `bench gen --capture`.

use std::io::{self, Write};

use anyhow::Context as _;
use rxsteer_bench::{
    CapturePace, CaptureReport, CaptureSpec, Ended, Rewritten, Unsent, Watch, send_capture,
};
use serde_json::{Value, json};

use super::args::FormArgs;
use super::checked::capture::Capture;
use super::gen_sink::{arrival, source, source_json};
use super::output::{Form, Output};
use super::{pair, tell, testbed};
use crate::render::numbers::{count, grouped, plural, time};
use crate::terminal::Terminal;
use crate::{Exit, interrupt};

/// Sends a capture.
pub(super) fn run(asked: &Capture, form: FormArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let stop = interrupt::watch();
    let watch = Watch { stop: &stop, on_second: &|second| tell(terminal, "packets", second) };
    let output = Output::new("gen", form);
    let spec = &asked.spec;
    let testbed = testbed(terminal)?;
    let (pair, settings) = pair(&testbed, &asked.link)?;
    let report = send_capture(&pair, spec, &watch)?;
    for note in &report.notes {
        terminal.note(note);
    }
    if let Form::Json { .. } = output.form {
        let result = json!({
            "traffic": traffic_json(spec),
            "source": source_json(&report.source),
            "capture": json!({
                "read": report.read,
                "rounds": report.rounds,
                "unsent": report.unsent,
                "rewritten": report.rewritten,
                "lateness": report.lateness,
                "ended": report.ended,
            }),
            "arrived": report.arrived,
            "dropped": report.dropped,
        });
        output.json(terminal, &settings, result)?;
    } else {
        let mut out = terminal.results();
        output.head(&mut out, &settings)?;
        text(&mut out, spec, &report)?;
        out.flush()?;
    }
    if let Some(fault) = report.fault {
        let read = plural(report.read, "packet");
        return Err(fault).with_context(|| format!("the capture was sent up to here: {read}"));
    }
    anyhow::ensure!(
        report.ended != Ended::Truncated || report.read > 0,
        "the capture is cut short before its first packet"
    );
    let all = report.unsent.total();
    anyhow::ensure!(
        report.source.sent > 0 || all == 0,
        "nothing was sent of {}",
        plural(all, "packet")
    );
    Ok(Exit::Fine)
}

fn text(out: &mut dyn Write, spec: &CaptureSpec, report: &CaptureReport) -> io::Result<()> {
    let files: Vec<String> = spec.files.iter().map(|file| file.display().to_string()).collect();
    write!(out, "traffic   capture {}", files.join(", "))?;
    match spec.pace {
        CapturePace::Recorded(1.0) => write!(out, ", as it was captured")?,
        CapturePace::Recorded(speed) => write!(out, ", {speed} times as fast as captured")?,
        CapturePace::Rate(rate) => write!(out, ", {} packets/s", count(rate))?,
        CapturePace::Fastest => write!(out, ", as fast as possible")?,
    }
    match spec.rounds {
        0 => writeln!(out, ", again and again")?,
        1 => writeln!(out)?,
        rounds => writeln!(out, ", {} times", grouped(rounds))?,
    }
    source(out, &report.source)?;
    let ended = match report.ended {
        Ended::Complete | Ended::Fault => None,
        Ended::Count => Some("--count ended it"),
        Ended::Duration => Some("--duration ended it"),
        Ended::Truncated => Some("cut short"),
        Ended::Stopped => Some("stopped"),
    };
    write!(out, "capture   {} read", plural(report.read, "packet"))?;
    if spec.rounds != 1 {
        write!(out, ", {} to the end", plural(report.rounds, "round"))?;
    }
    writeln!(out, "{}", ended.map_or(String::new(), |what| format!("; {what}")))?;
    let Unsent { truncated, too_long, too_short, no_ethertype, left } = report.unsent;
    for (number, what) in [
        (truncated, "not all in the capture (--pad)"),
        (too_long, "longer than the link takes (--mtu)"),
        (too_short, "without an Ethernet header"),
        (no_ethertype, "of a link type that leads to no ethertype"),
        (left, "read before the end, and not sent"),
    ] {
        if number > 0 {
            writeln!(out, "unsent    {:>13} {what}", grouped(number))?;
        }
    }
    let Rewritten { link_headers, ethernet, destinations, sources, padded } = report.rewritten;
    for (number, what) in [
        (link_headers, "link header replaced by Ethernet's"),
        (ethernet, "Ethernet destination: the receiver's"),
        (destinations, "IP destination: the receiver's"),
        (sources, "IP source of loopback: the sender's"),
        (padded, "filled with zeroes"),
    ] {
        if number > 0 {
            writeln!(out, "rewritten {:>13} {what}", grouped(number))?;
        }
    }
    let late = report.lateness;
    if late.count > 0 {
        let [p50, p99, max] = [late.p50_ns, late.p99_ns, late.max_ns].map(|ns| time(ns as f64));
        writeln!(out, "late      {p50} in the median, {p99} at 99 %, at most {max}")?;
    }
    arrival(out, &report.source, report.arrived, report.dropped)
}

fn traffic_json(spec: &CaptureSpec) -> Value {
    json!({
        "capture": spec.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
        "pace": spec.pace,
        "rounds": spec.rounds,
        "pad": spec.pads,
        "batch": spec.batch,
        "cpu": spec.cpu.map(|cpu| cpu.0),
        "count": spec.until.count,
        "duration_ns": spec.until.duration.as_nanos() as u64,
    })
}
