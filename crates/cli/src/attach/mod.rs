//! The verbs `attach`, `detach`, `status`, `reload` and `check-config`: steering of a real interface,
//! and dealing with it.

pub mod args;
mod check;
pub mod checked;
mod config;
mod control;
mod detach;
mod file;
mod given;
mod metrics;
mod notify;
mod replace;
mod service;
mod status;

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Context as _;
use rxsteer_kernel::{Attachment, Settings, Weight, host_cpus, look_at_interface};

pub use config::{run_check_config, run_reload};
pub use detach::run as run_detach;
pub use status::run as run_status;

use self::args::AttachArgs;
use self::checked::Asked;
use self::file::read_bounded;
use self::metrics::{Place, Server};
use self::service::{Inbox, Service};
use crate::Exit;
use crate::terminal::Terminal;

/// Attaches to an interface until it is told to end.
///
/// # Errors
/// Wrong usage, and the step that failed.
pub fn run(args: &AttachArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let host = host_cpus().context("cannot ask for the CPUs of this host")?;
    let Asked { settings, left_out, one_cpu, metrics, metrics_place } =
        Asked::new(args, &host, read_bounded)?;
    if !left_out.is_empty() {
        terminal.note(format_args!("--cpus: {left_out}"));
    }
    if !one_cpu.is_empty() {
        terminal.note(format_args!("--cpus: {one_cpu}"));
    }
    if args.check {
        return check::run(&settings, args.json, terminal);
    }
    for finding in look_at_interface(&settings) {
        if finding.weight > Weight::Fine {
            terminal.note(format_args!("{}: {}", finding.about, finding.text));
        }
    }
    // Before anything is attached: who asked for metrics wants to know that there are none. From one
    // that is replaced the address is free only later.
    let early = metrics.filter(|_| !args.replace).map(Server::bind).transpose();
    let early = early.with_context(|| metrics_place.clone())?;
    let inbox = Inbox::new(args.config.is_some())?;
    let (attachment, from) = if args.replace {
        replace::take_over(settings, terminal)?
    } else {
        (Attachment::new(settings)?, String::new())
    };
    let server = match metrics.filter(|_| args.replace).map(Server::bind_in_time) {
        None => early,
        Some(Ok(server)) => Some(server),
        Some(Err(error)) => {
            terminal.error(format_args!(
                "{metrics_place}: {error:#}; steering goes on without metrics"
            ));
            None
        }
    };
    if let Some(server) = &server {
        note_reach(server.address(), terminal);
    }
    let settings = attachment.settings();
    let attached = format!(
        "attached to {} in {} mode: {}, CPUs {}, {} flows a table{from}",
        settings.interface,
        attachment.mode(),
        settings.policy.name(),
        settings.cpus.list(),
        settings.table_room()
    );
    let is_heard = attachment.hears_close() || settings.policy.name() != "flow-aware";
    let place = Place::new(metrics, server, inbox.sender())?;
    let address = place.address();
    // Before it is said: an interface that goes away from now on is one that was attached.
    let service = Service::new(attachment, args, terminal, inbox, place)?;
    let mut out = terminal.results();
    writeln!(out, "{attached}")?;
    if let Some(address) = address {
        writeln!(out, "metrics at http://{address}/metrics")?;
    }
    out.flush()?;
    drop(out);
    if !is_heard {
        terminal
            .note("no cgroup hierarchy of version 2: flows of closed UDP sockets grow old instead");
    }
    service.run()
}

/// Says that others can read the metrics, where they can.
fn note_reach(address: SocketAddr, terminal: &Terminal) {
    if !address.ip().is_loopback() {
        terminal.note(format_args!("metrics: whoever reaches {address} can read the counters"));
    }
}

/// Returns settings by their keys, as they would be typed.
fn keys_of(settings: &Settings) -> Vec<(String, String)> {
    let pairs = [
        ("interface", settings.interface.clone()),
        ("cpus", settings.cpus.list().to_string()),
        ("mode", settings.mode.name().to_owned()),
        ("policy", settings.policy.name().to_owned()),
        ("table-entries", settings.table_entries.to_string()),
        ("qsize", settings.queue_packets.to_string()),
        ("all-namespaces", on_or_off(settings.all_namespaces)),
        ("ports", on_or_off(settings.ports)),
        ("flow-ports", settings.flow_ports.to_string()),
        ("shed", on_or_off(settings.shed)),
        ("beside", on_or_off(settings.beside)),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

fn on_or_off(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}
