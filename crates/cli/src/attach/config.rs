//! `check-config` and `reload`: the file of settings.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use rxsteer_kernel::{host_cpus, programs_on_interfaces};

use super::args::{CheckConfigArgs, ReloadArgs};
use super::checked::Asked;
use super::control::{Answer, Answerless, Verb, ask};
use super::file::read_bounded;
use super::keys_of;
use crate::Exit;
use crate::terminal::Terminal;

/// Reading the settings again loads the programs anew.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says what is wrong in a file, or what it comes to.
///
/// # Errors
/// If this host's CPUs are not known, or the output is gone.
pub fn run_check_config(args: &CheckConfigArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let host = host_cpus().context("cannot ask for the CPUs of this host")?;
    let asked = match Asked::of_file(&args.file, &host, read_bounded) {
        Ok(asked) => asked,
        Err(wrong) => {
            for line in wrong.0 {
                terminal.error(line);
            }
            return Ok(Exit::Error);
        }
    };
    if !asked.left_out.is_empty() {
        terminal.note(format_args!("cpus: {}", asked.left_out));
    }
    let mut out = terminal.results();
    writeln!(out, "{} may be used; on this host it comes to:", args.file.display())?;
    for (key, value) in keys_of(&asked.settings) {
        if value.is_empty() {
            continue;
        }
        let room = asked.settings.table_room();
        if key == "table-entries" && value != room.to_string() {
            writeln!(out, "  {key:<15} {value}, rounded up to {room}")?;
        } else {
            writeln!(out, "  {key:<15} {value}")?;
        }
    }
    if let Some(address) = asked.metrics {
        writeln!(out, "  {:<15} {address}", "metrics")?;
    }
    out.flush()?;
    Ok(Exit::Fine)
}

/// Has the process of an interface read its file again.
///
/// # Errors
/// If nothing is attached, or the new settings are not in force.
pub fn run_reload(args: &ReloadArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let name = &args.interface;
    let there = programs_on_interfaces().context("cannot ask for the XDP programs")?;
    let Some(on) = there.into_iter().find(|on| on.interface == *name) else {
        anyhow::bail!("nothing is attached to {name} in this network namespace");
    };
    match ask(on.index, Verb::Reload, PATIENCE) {
        Ok(Answer::Done(said)) => {
            let mut out = terminal.results();
            writeln!(out, "{said}")?;
            out.flush()?;
            Ok(Exit::Fine)
        }
        Ok(Answer::Refused(why)) => anyhow::bail!(why),
        Ok(other) => anyhow::bail!("{name}: an answer to something else: {other:?}"),
        Err(Answerless::NoSocket) => {
            anyhow::bail!("{name} is not steered by a process that listens in /run/rxsteer")
        }
        Err(Answerless::Failed(error)) => {
            Err(error).with_context(|| format!("the process of {name} does not answer"))
        }
    }
}
