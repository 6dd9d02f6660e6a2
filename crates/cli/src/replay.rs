//! The verb `replay`.

mod decisions;

use std::fs::File;
use std::io::{Read as _, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use rxsteer_lab::capture::{CaptureOptions, Captures};
use rxsteer_lab::config::MAX_BYTES;
use rxsteer_lab::consumer::Scenario;
use rxsteer_lab::host::Host;
use rxsteer_lab::replay::{Replay, ReplayOptions};
use rxsteer_lab::report::Report;
use rxsteer_lab::rss::Rss;

use self::decisions::Decisions;
use crate::args::Format;
use crate::args::checked::{self, HostChoice, Inputs, UsageError};
use crate::terminal::Terminal;
use crate::{Exit, interrupt, render, sample};

/// CPUs and queues of a host of which nothing was said.
const DEFAULT_HOST: (u32, u32) = (8, 1);

/// Replays, compares, recommends.
///
/// # Errors
/// A file that cannot be read or understood, and the output.
pub fn run(asked: &checked::Replay, terminal: &Terminal) -> anyhow::Result<Exit> {
    let host = host(asked)?;
    let scenario = scenario(asked, &host)?;
    let (mut captures, files) = match &asked.inputs {
        Inputs::Sample => (sample::open()?, vec![sample::NAME.to_owned()]),
        Inputs::Files(files) => (
            Captures::open(files, &CaptureOptions::default())?,
            files.iter().map(|file| file.display().to_string()).collect(),
        ),
    };
    let decisions = asked.decisions.as_deref().map(Decisions::create).transpose()?;
    let mut options = options(asked, scenario);
    options.observer = decisions.as_ref().map(Decisions::observer);
    let replay = Replay::new(host, options)?;
    let mut progress = terminal.progress(captures.total_bytes());
    let interrupted = interrupt::watch();
    let result = replay.run(&mut captures, &files, &mut |so_far| {
        progress.update(so_far.bytes_read, so_far.packets);
        if interrupted.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    drop(progress);
    let report = result?;
    if let Some(decisions) = decisions {
        decisions.finish()?;
    }
    show(&report, asked, terminal)?;
    for note in &report.input.notes {
        if note.code == "damaged" {
            terminal.error(format_args!("{}: {}", note.file, note.text));
        } else {
            terminal.note(format_args!("{}: {}", note.file, note.text));
        }
    }
    let has = |code| report.input.notes.iter().any(|note| note.code == code);
    if has("stopped") || has("damaged") {
        return Ok(Exit::Error);
    }
    let truncated = has("truncated");
    Ok(if asked.strict && truncated { Exit::Usage } else { Exit::Fine })
}

fn options(asked: &checked::Replay, scenario: Scenario) -> ReplayOptions {
    let threads = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1);
    ReplayOptions {
        policies: asked.policies.clone(),
        mode: asked.hash.options.mode,
        ignore_flow_label: asked.hash.options.ignore_flow_label,
        outer_only: asked.hash.options.outer_only,
        wireguard_index: asked.hash.options.wireguard_index,
        vlan: asked.hash.options.vlan,
        seed: asked.hash.seed,
        kernel: asked.kernel,
        drain: asked.drain,
        track_fragments: asked.track_fragments,
        spread_esp: asked.spread_esp,
        local: asked.local.clone(),
        workers: asked.workers,
        flow_ports: asked.flow_ports,
        scenario,
        sweep_table_entries: asked.sweep.iter().map(|entries| u64::from(*entries)).collect(),
        threads: threads.min(asked.policies.len()),
        ..ReplayOptions::default()
    }
}

fn host(asked: &checked::Replay) -> anyhow::Result<Host> {
    let rss = asked.ethtool.as_deref().map(|file| {
        Rss::from_ethtool(&text(file)?).map_err(|error| anyhow::anyhow!("{}: {error}", name(file)))
    });
    let rss = rss.transpose()?;
    // A device's table names its queues, so they need not be said again.
    let named =
        rss.as_ref().and_then(|rss| rss.table.iter().max()).map(|last| u32::from(*last) + 1);
    let mut host = match (&asked.host, &asked.inputs) {
        (HostChoice::File(file), _) => Host::from_toml(&name(file), &text(file)?)?,
        (HostChoice::Default, Inputs::Sample) => Host::from_toml("sample/host.toml", sample::HOST)?,
        (HostChoice::Default, Inputs::Files(_)) => {
            Host::simple(DEFAULT_HOST.0, named.unwrap_or(DEFAULT_HOST.1))?
        }
        (HostChoice::Simple { cpus, queues }, _) => {
            let queues = queues.or(named).unwrap_or(DEFAULT_HOST.1);
            let toml = format!("cpus = \"{}\"\nqueues = {queues}\n", cpus.list());
            let mut host = Host::from_toml("--cpus, --queues", &toml)?;
            host.source = format!(
                "CPUs {}, {queues} queue{}",
                cpus.list(),
                if queues == 1 { "" } else { "s" }
            );
            host
        }
    };
    if let Some(rss) = rss {
        host.rss = rss;
    }
    if let Some(mask) = &asked.rps_cpus {
        host.set_masks(mask)
            .map_err(|error| UsageError { flag: "--rps-cpus", message: error.to_string() })?;
    }
    let mut tables = host.tables;
    if let Some(entries) = asked.table_entries {
        tables.sock_flow_entries = entries;
        tables.flow_entries = entries.max(8);
    }
    if asked.flow_cnt.is_some() {
        tables.flow_cnt = asked.flow_cnt;
    }
    if tables != host.tables {
        host.set_tables(tables);
    }
    Ok(host)
}

fn scenario(asked: &checked::Replay, host: &Host) -> anyhow::Result<Scenario> {
    Ok(match (&asked.consumers, &asked.inputs) {
        (Some(file), _) => Scenario::from_toml(&name(file), &text(file)?, host)?,
        (None, Inputs::Sample) => {
            Scenario::from_toml("sample/consumers.toml", sample::CONSUMERS, host)?
        }
        (None, Inputs::Files(_)) => Scenario::default(),
    })
}

fn name(file: &Path) -> String {
    file.display().to_string()
}

/// Reads a small text file; a longer one than any configuration may have is cut, and refused by
/// its reader.
pub(crate) fn text(file: &Path) -> anyhow::Result<String> {
    let what = || format!("{}: cannot read", file.display());
    let mut bytes = Vec::new();
    let opened = File::open(file).with_context(what)?;
    opened.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(what)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{}: at byte {at}: not UTF-8 text", file.display())
    })
}

fn show(report: &Report, asked: &checked::Replay, terminal: &Terminal) -> anyhow::Result<()> {
    if asked.html.as_ref().is_some_and(|file| file.as_os_str() == "-") {
        let mut out = terminal.data();
        render::html::write(&mut out, report)?;
        out.flush()?;
        return Ok(());
    }
    match asked.form {
        Format::Text => {
            let mut out = terminal.results();
            render::text::write(&mut out, report, terminal.is_verbose())?;
            out.flush()?;
        }
        Format::Json => {
            let mut out = terminal.data();
            render::json(&mut out, report, asked.pretty)?;
            out.flush()?;
        }
        Format::Csv => {
            let mut out = terminal.data();
            render::csv::write(&mut out, report)?;
            out.flush()?;
        }
    }
    // Last, so that a page that cannot be written does not take the answer with it.
    if let Some(file) = &asked.html {
        let mut page = Vec::new();
        render::html::write(&mut page, report)?;
        std::fs::write(file, page).with_context(|| format!("{}: cannot write", file.display()))?;
    }
    Ok(())
}
