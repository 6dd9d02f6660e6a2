//! Why a testbed cannot be made or used.

use std::io;

use nix::errno::Errno;

use crate::MissingPrivileges;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// This process may not make a testbed.
    #[error(transparent)]
    Privilege(#[from] MissingPrivileges),
    /// The kernel refused a step.
    #[error("cannot {doing}: {source}{}", limit_hint(source))]
    Step {
        /// The step, with the names of what it was about: `create the veth pair a and b`.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A device did not take an offload setting, or took it back since another depends on it.
    #[error("{device}: {offload} is {}, though it was set {}", on_off(!wanted), on_off(*wanted))]
    Offload {
        /// Name of the device.
        device: String,
        /// The kernel's name of the offload.
        offload: &'static str,
        /// What it was set to.
        wanted: bool,
    },
    /// There is no such device.
    #[error("namespace {namespace} has no device {device}")]
    NoDevice {
        /// Name of the namespace.
        namespace: String,
        /// Name of the device.
        device: String,
    },
    /// The running kernel cannot make devices of this kind.
    #[error("this kernel has no {kind} devices ({option})")]
    NoKind {
        /// Kind of device.
        kind: &'static str,
        /// The option with which the kernel would have to be built.
        option: &'static str,
    },
    /// A line of a journal of changed settings cannot be undone.
    #[error(
        "journal {file}, line {line}: {message}; put that setting back by hand if it needs it, and \
         remove the file"
    )]
    Journal {
        /// Path of the journal.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

/// Returns which limit an error is about, in parentheses, or nothing; for the end of a message.
pub fn limit_hint(error: &io::Error) -> &'static str {
    if error.raw_os_error() == Some(Errno::EMFILE as i32) { " (ulimit -n)" } else { "" }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Adds to an error what was being done.
pub(crate) trait During<T> {
    fn during(self, doing: impl FnOnce() -> String) -> Result<T, TestbedError>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, doing: impl FnOnce() -> String) -> Result<T, TestbedError> {
        self.map_err(|source| TestbedError::Step { doing: doing(), source: source.into() })
    }
}
