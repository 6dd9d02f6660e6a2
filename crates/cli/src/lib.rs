//! The `rxsteer` command: arguments, verbs, and how results are shown.
//!
//! What a replay does is in `rxsteer-lab`; here is only how it is asked for and printed. It is a
//! library so that the man pages can be made from the same description of the arguments.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod args;
#[cfg(target_os = "linux")]
pub mod attach;
#[cfg(target_os = "linux")]
pub mod bench;
pub mod flows;
mod interrupt;
pub mod lab;
pub mod render;
pub mod replay;
pub mod sample;
pub mod terminal;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::checked::{Flows, Replay, UsageError};
use args::{Cli, Verb};
use terminal::Terminal;

/// How the command ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// All went well.
    Fine = 0,
    /// An error.
    Error = 1,
    /// Wrong usage, or a capture that ends early where that was not to be.
    Usage = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Runs the command with these arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to the standard output; a closed pipe is nobody's error.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Fine };
        }
    };
    let terminal = Terminal::new(&cli.global);
    match dispatch(&cli, &terminal) {
        Ok(exit) => exit,
        Err(error) if is_closed_pipe(&error) => Exit::Fine,
        Err(error) => {
            terminal.error(in_one_line(&error));
            if is_usage(&error) { Exit::Usage } else { Exit::Error }
        }
    }
}

fn dispatch(cli: &Cli, terminal: &Terminal) -> anyhow::Result<Exit> {
    match &cli.verb {
        Verb::Replay(args) => replay::run(&Replay::try_from(&**args)?, terminal),
        Verb::Flows(args) => flows::run(&Flows::try_from(args)?, terminal),
        Verb::Lab(verb) => lab::run(verb, terminal),
        #[cfg(target_os = "linux")]
        Verb::Bench(verb) => bench::run(verb, terminal),
        #[cfg(target_os = "linux")]
        Verb::Attach(args) => attach::run(args, terminal),
        #[cfg(target_os = "linux")]
        Verb::Detach(args) => attach::run_detach(args, terminal),
        #[cfg(target_os = "linux")]
        Verb::Status(args) => attach::run_status(args, terminal),
        #[cfg(target_os = "linux")]
        Verb::Reload(args) => attach::run_reload(args, terminal),
        #[cfg(target_os = "linux")]
        Verb::CheckConfig(args) => attach::run_check_config(args, terminal),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "rxsteer", &mut script);
            io::stdout().write_all(&script)?;
            Ok(Exit::Fine)
        }
    }
}

/// Returns whether an error is of how the command was used.
fn is_usage(error: &anyhow::Error) -> bool {
    #[cfg(target_os = "linux")]
    if error.is::<attach::checked::Wrong>() {
        return true;
    }
    error.is::<UsageError>()
}

/// Returns an error and its causes, except those that it tells of itself.
fn in_one_line(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut text, cause| {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
        text
    })
}

/// Returns whether the reader of the output went away, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    })
}
