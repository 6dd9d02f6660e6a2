//! The two streams of the command: results and messages.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Global;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Yellow.on_default();

/// A progress bar appears after this time.
const PATIENCE: Duration = Duration::from_millis(500);

/// How to talk to the user.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    no_color: bool,
    quiet: bool,
    verbose: u8,
}

impl Terminal {
    /// Takes the options of every verb. Colours also depend on NO_COLOR and on whether the stream
    /// is a terminal.
    pub fn new(global: &Global) -> Self {
        Self { no_color: global.no_color, quiet: global.quiet, verbose: global.verbose }
    }

    /// Returns whether more was asked for.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Returns the standard output; escapes for colours are taken out where they do not belong.
    pub fn results(&self) -> BufWriter<AutoStream<Stdout>> {
        let out = io::stdout();
        let choice = if self.no_color { ColorChoice::Never } else { AutoStream::choice(&out) };
        BufWriter::new(AutoStream::new(out, choice))
    }

    /// Returns the standard output for data, which has no colours.
    pub fn data(&self) -> BufWriter<Stdout> {
        BufWriter::new(io::stdout())
    }

    /// Prints a message, unless asked to be quiet.
    pub fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            self.message(NOTE, "note", text);
        }
    }

    /// Prints a line of a running count to the standard error, unless asked to be quiet.
    pub fn line(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            // There is nobody left to tell if this fails.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Prints an error.
    pub fn error(&self, text: impl std::fmt::Display) {
        self.message(ERROR, "error", text);
    }

    fn message(&self, style: Style, word: &str, text: impl std::fmt::Display) {
        let err = io::stderr();
        let choice = if self.no_color { ColorChoice::Never } else { AutoStream::choice(&err) };
        // There is nobody left to tell if this fails.
        let _ = writeln!(AutoStream::new(err, choice), "{style}{word}{style:#}: {text}");
    }

    /// Returns a progress bar over `total` bytes, if known; hidden where nobody would see it.
    pub fn progress(&self, total: Option<u64>) -> Progress {
        let seen = !self.quiet && io::stderr().is_terminal();
        Progress { started: Instant::now(), total, bar: None, seen }
    }
}

/// A progress bar that waits before it shows itself.
pub struct Progress {
    started: Instant,
    total: Option<u64>,
    bar: Option<ProgressBar>,
    seen: bool,
}

impl Progress {
    /// Tells how many bytes were read and packets seen so far.
    pub fn update(&mut self, bytes: u64, packets: u64) {
        if !self.seen {
            return;
        }
        if self.bar.is_none() && self.started.elapsed() >= PATIENCE {
            let (bar, template) = match self.total {
                Some(total) => (
                    ProgressBar::new(total),
                    "{wide_bar} {percent}% {bytes}/{total_bytes} {msg}, {eta} left",
                ),
                None => (ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} packets", crate::render::numbers::count(packets)));
            bar.set_position(bytes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
