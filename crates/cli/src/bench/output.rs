//! What every verb of `bench` prints around its result: the host and the settings that it touched.

use std::io::{self, Write};

use rxsteer_bench::HostFacts;
use rxsteer_testbed::Change;
use serde_json::{Value, json};

use super::SCHEMA_VERSION;
use super::args::FormArgs;
use crate::terminal::Terminal;

/// A form of the result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// For people.
    Text,
    /// JSON, on one line or with line breaks.
    Json { pretty: bool },
}

impl From<FormArgs> for Form {
    fn from(args: FormArgs) -> Self {
        if args.json || args.pretty { Self::Json { pretty: args.pretty } } else { Self::Text }
    }
}

/// The frame of an output.
pub(super) struct Output {
    verb: &'static str,
    host: HostFacts,
    pub(super) form: Form,
}

impl Output {
    pub(super) fn new(verb: &'static str, form: FormArgs) -> Self {
        Self { verb, host: HostFacts::read(), form: form.into() }
    }

    /// Writes a result as JSON.
    pub(super) fn json(
        &self,
        terminal: &Terminal,
        settings: &[Change],
        result: Value,
    ) -> io::Result<()> {
        let all = json!({
            "schema_version": SCHEMA_VERSION,
            "generator": concat!("rxsteer ", env!("CARGO_PKG_VERSION")),
            "verb": self.verb,
            "host": self.host,
            "settings": settings,
            "result": result,
        });
        let mut out = terminal.data();
        if self.form == (Form::Json { pretty: true }) {
            serde_json::to_writer_pretty(&mut out, &all)?;
        } else {
            serde_json::to_writer(&mut out, &all)?;
        }
        writeln!(out)?;
        out.flush()
    }

    /// Writes the host and the settings for people.
    pub(super) fn head(&self, out: &mut dyn Write, settings: &[Change]) -> io::Result<()> {
        let HostFacts { kernel, machine, cpu_model, online, caches, siblings, is_virtual } =
            &self.host;
        write!(out, "host      {kernel} {machine}, {cpu_model}, CPUs {online}")?;
        if caches.len() > 1 {
            write!(out, ", caches {}", caches.join(" "))?;
        }
        if !siblings.is_empty() {
            write!(out, ", siblings {}", siblings.join(" "))?;
        }
        writeln!(out, "{}", if *is_virtual { ", virtual" } else { "" })?;
        for change in settings {
            writeln!(out, "setting   {change}")?;
        }
        Ok(())
    }
}
