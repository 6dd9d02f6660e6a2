//! `detach`: a clean end, asked for from outside.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rxsteer_kernel::{Holder, OnInterface, holders, programs_on_interfaces};

use super::args::DetachArgs;
use super::control::{Answer, Answerless, Verb, ask, on_this_namespace};
use crate::Exit;
use crate::terminal::Terminal;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the kernel may take to let go afterwards.
const MOST_WAIT: Duration = Duration::from_secs(5);

/// Ends attachments and waits until they are gone.
///
/// # Errors
/// If something is still attached in the end, or is not ours.
pub fn run(args: &DetachArgs, terminal: &Terminal) -> anyhow::Result<Exit> {
    let there = programs_on_interfaces().context("cannot ask for the XDP programs")?;
    let mut out = terminal.results();
    let mut exit = Exit::Fine;
    let ours: Vec<OnInterface> = match &args.interface {
        None => {
            // The names of programs are not told to all; that one of ours holds it, its socket tells.
            let sockets = on_this_namespace();
            let ours = |on: &OnInterface| {
                on.is_ours() || on.program.is_empty() && sockets.contains(&on.index)
            };
            there.into_iter().filter(ours).collect()
        }
        Some(name) => match there.into_iter().find(|on| on.interface == *name) {
            Some(on) if on.is_ours() || on.program.is_empty() => vec![on],
            Some(on) => anyhow::bail!(
                "the XDP program of {name} is not of rxsteer: {} (number {}); it is left alone",
                on.program,
                on.id
            ),
            None => Vec::new(),
        },
    };
    if ours.is_empty() {
        let on = args.interface.as_ref().map(|name| format!(" to {name}")).unwrap_or_default();
        writeln!(out, "nothing is attached{on} in this network namespace: nothing to do")?;
    }
    for on in ours {
        match detach(&on, terminal) {
            Ok(said) => writeln!(out, "{} detached{said}", on.interface)?,
            Err(error) => {
                terminal.error(format_args!("{error:#}"));
                exit = Exit::Error;
            }
        }
    }
    out.flush()?;
    Ok(exit)
}

/// Has one attachment ended, and returns what there is to say of it.
fn detach(on: &OnInterface, terminal: &Terminal) -> anyhow::Result<String> {
    let mut said = String::new();
    match ask(on.index, Verb::Detach, PATIENCE) {
        Ok(Answer::Done(seen)) => said = format!("; {seen}"),
        Ok(other) => anyhow::bail!("{}: refused: {other:?}", on.interface),
        Err(why) => {
            let held = holders(on.id);
            if let Answerless::Failed(error) = why {
                terminal.note(format_args!(
                    "{}: its process does not answer ({error}): sending SIGTERM",
                    on.interface
                ));
            }
            terminate(on, &held)?;
        }
    }
    let start = Instant::now();
    while is_there(on)? {
        if start.elapsed() > MOST_WAIT {
            let held = holders(on.id);
            let pids: Vec<String> = held.iter().map(|holder| holder.pid.to_string()).collect();
            anyhow::bail!(
                "{} is still attached, held by {}: `kill -9 {}` detaches it at once",
                on.interface,
                list(&held),
                pids.join(" ")
            );
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(said)
}

fn terminate(on: &OnInterface, held: &[Holder]) -> anyhow::Result<()> {
    if held.is_empty() && is_there(on)? {
        anyhow::bail!(
            "{}: no process can be seen that holds program {}; it may be in another container, or this \
             process may not look into others",
            on.interface,
            on.id
        );
    }
    for holder in held {
        let pid = i32::try_from(holder.pid).context("a process with such a number")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)
            .with_context(|| format!("{}: cannot end {holder}", on.interface))?;
    }
    Ok(())
}

fn is_there(on: &OnInterface) -> anyhow::Result<bool> {
    let there = programs_on_interfaces().context("cannot ask for the XDP programs")?;
    Ok(there.iter().any(|this| this.id == on.id))
}

fn list(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "nobody that can be seen".to_owned();
    }
    holders.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
