//! `replay --decisions FILE`: a line for each decision of each policy, as CSV.
//!
//! Always true: what cannot be written ends as an error, never as a shorter file without a word.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use rxsteer_core::steer::PolicyKind;
use rxsteer_lab::replay::{Chosen, Observer};

/// A file of decisions.
pub(super) struct Decisions {
    path: PathBuf,
    lines: Arc<Mutex<Lines>>,
}

struct Lines {
    writer: csv::Writer<File>,
    written: Result<(), csv::Error>,
}

impl Decisions {
    /// Creates the file.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let create = || -> Result<csv::Writer<File>, csv::Error> {
            let mut writer = csv::Writer::from_writer(File::create(path)?);
            writer.write_record(["packet", "policy", "time_ns", "arrived_on", "cpu", "reason"])?;
            Ok(writer)
        };
        let writer = create().with_context(|| cannot_write(path))?;
        let lines = Arc::new(Mutex::new(Lines { writer, written: Ok(()) }));
        Ok(Self { path: path.to_owned(), lines })
    }

    /// Returns who is to be told of the decisions.
    pub(super) fn observer(&self) -> Observer {
        let lines = Arc::clone(&self.lines);
        Observer::new(move |policy, chosen| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.written.is_ok() {
                lines.written =
                    chosen.iter().try_for_each(|one| write(&mut lines.writer, policy, one));
            }
        })
    }

    /// Writes what is left and tells whether all was written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let written = std::mem::replace(&mut lines.written, Ok(()));
        written.with_context(|| cannot_write(&self.path))?;
        lines.writer.flush().with_context(|| cannot_write(&self.path))
    }
}

fn write<W: io::Write>(
    writer: &mut csv::Writer<W>,
    policy: PolicyKind,
    one: &Chosen,
) -> Result<(), csv::Error> {
    writer.serialize((
        one.number,
        policy.name(),
        one.arrived_ns,
        one.arrived_on.0,
        one.cpu.0,
        one.reason.name(),
    ))
}

fn cannot_write(path: &Path) -> String {
    format!("{}: cannot write", path.display())
}
