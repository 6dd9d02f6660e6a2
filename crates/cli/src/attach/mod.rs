//! The verbs `attach` and `status`: steering of a real interface, and a look at it.

pub mod args;
pub mod checked;
mod status;

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use rxsteer_kernel::{Attachment, Weight, check_attachment, host_cpus, look_at_interface};

pub use status::run as run_status;

use self::args::AttachArgs;
use self::checked::Asked;
use crate::terminal::Terminal;
use crate::{Exit, interrupt};

/// How often the tables are looked after, and how soon an end is seen.
const TURN: Duration = Duration::from_millis(200);
/// Turns between two looks at the tables.
const TURNS_OF_UPKEEP: u32 = 10;

/// Attaches to an interface until it is told to end.
///
/// # Errors
/// Wrong usage, and the step that failed.
pub fn run(args: &AttachArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let host = host_cpus().context("cannot ask for the CPUs of this host")?;
    let Asked { settings, left_out } = Asked::new(args, &host, read_bounded)?;
    if !left_out.is_empty() {
        terminal.note(format_args!("--cpus: {left_out}"));
    }
    if args.check {
        return check(&settings, terminal);
    }
    for finding in look_at_interface(&settings) {
        if finding.weight > Weight::Fine {
            terminal.note(format_args!("{}: {}", finding.about, finding.text));
        }
    }
    let end = interrupt::watch();
    let mut attachment = Attachment::new(settings)?;
    let settings = attachment.settings();
    let mut out = terminal.results();
    writeln!(
        out,
        "attached to {} in {} mode: {}, CPUs {}, {} flows a table",
        settings.interface,
        attachment.mode(),
        settings.policy.name(),
        settings.cpus.list(),
        settings.table_entries
    )?;
    out.flush()?;
    let is_heard = attachment.hears_close() || settings.policy.name() != "flow-aware";
    if !is_heard {
        terminal
            .note("no cgroup hierarchy of version 2: flows of closed UDP sockets grow old instead");
    }
    let mut turn = 0u32;
    while !end.load(Ordering::Relaxed) && attachment.has_interface() {
        std::thread::sleep(TURN);
        turn = turn.wrapping_add(1);
        if turn.is_multiple_of(TURNS_OF_UPKEEP) {
            attachment.maintain();
        }
    }
    let is_gone = !attachment.has_interface();
    let interface = attachment.settings().interface.clone();
    let counters = attachment.counters()?;
    drop(attachment);
    writeln!(out, "detached; {} packets seen", counters.seen())?;
    out.flush()?;
    anyhow::ensure!(!is_gone, "the interface {interface} is gone from this network namespace");
    Ok(Exit::Fine)
}

/// Reads a settings file of at most 1 MiB.
fn read_bounded(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let most = rxsteer_lab::config::MAX_BYTES as u64;
    let mut text = String::new();
    std::fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(std::io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}

/// Says what an attachment would meet.
fn check(settings: &rxsteer_kernel::Settings, terminal: &Terminal) -> anyhow::Result<Exit> {
    let findings = check_attachment(settings);
    let mut out = terminal.results();
    for finding in &findings {
        let word = match finding.weight {
            Weight::Fine => "fine",
            Weight::Note => "note",
            Weight::Warns => "WARN",
            Weight::Blocks => "NO",
        };
        writeln!(out, "{word:<5} {:<15} {}", finding.about, finding.text)?;
    }
    out.flush()?;
    let worst = findings.iter().map(|finding| finding.weight).max();
    Ok(if worst == Some(Weight::Blocks) { Exit::Error } else { Exit::Fine })
}
