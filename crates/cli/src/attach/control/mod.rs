//! The control socket of an attachment: how other commands talk to the process that holds it.
//!
//! One socket an attachment, `/run/rxsteer/NAMESPACE-INDEX.sock`: the number of the network namespace
//! and of the interface in it, which keep when an interface gets another name. One connection, one
//! question and one answer, each a line of JSON.
//!
//! A path and not an abstract name, although that would end with its process by itself: an abstract
//! name has no owner and no mode, so that any user could take it first, or ask for a detach; and a
//! container with its own mounts cannot be shown one. What a killed process leaves behind refuses
//! connections, and the next attachment takes it away.
//!
//! Always true: a socket is listening before it has its name, mode 0600, in a directory that others
//! cannot look into; names appear and are taken away under one lock.
//! Elsewhere: what the questions do ([`super::service`]).
//! Source: unix(7).

mod client;
mod hand_over;
mod server;

use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(super) use client::{Answerless, ask, ask_for_attachment, on_this_namespace};
pub(super) use hand_over::give;
pub(super) use server::{Listener, answer_all, say};

/// Version of the questions and answers.
pub(super) const VERSION: u32 = 1;
/// Longest line of either side.
const MOST_BYTES: u64 = 64 * 1024;

/// What may be asked.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verb {
    /// What only the process knows.
    About,
    /// To end.
    Detach,
    /// To read the settings again.
    Reload,
    /// To let the asking process go on with the attachment ([`hand_over`]).
    HandOver,
}

/// A question.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Question {
    /// [`VERSION`].
    pub(super) version: u32,
    /// What is asked.
    pub(super) verb: Verb,
}

/// An answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// To [`Verb::About`].
    About(Box<About>),
    /// It is done; what there is to say.
    Done(String),
    /// It is not done; why.
    Refused(String),
    /// To [`Verb::HandOver`]: what the descriptors beside it are.
    HandOver(String),
}

/// What only the process knows.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct About {
    /// Number of the process.
    pub(super) pid: u32,
    /// Version of its command.
    pub(super) version: String,
    /// Name of the interface.
    pub(super) interface: String,
    /// How long it has been attached, in seconds.
    pub(super) uptime_s: u64,
    /// File of settings.
    pub(super) config: Option<PathBuf>,
    /// Where metrics are served.
    pub(super) metrics: Option<String>,
    /// How often the settings were read again and taken.
    pub(super) reloads: u64,
    /// How often they were read again and were wrong.
    pub(super) reloads_failed: u64,
    /// What was wrong the last time; `None` if it went well.
    pub(super) reload_error: Option<String>,
    /// Settings by their keys, as they would be typed.
    pub(super) settings: Vec<(String, String)>,
}

/// Where the sockets are.
const DIR: &str = "/run/rxsteer";

/// Returns the number of the network namespace of the calling thread.
fn namespace() -> std::io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.st_ino())
}

/// Returns the socket of an interface of the network namespace of the calling thread.
fn path_in(dir: &Path, namespace: u64, index: u32) -> PathBuf {
    dir.join(format!("{namespace}-{index}.sock"))
}

/// Returns the namespace and the interface of a socket's name.
fn parts(path: &Path) -> Option<(u64, u32)> {
    if path.extension()? != "sock" {
        return None;
    }
    let (namespace, index) = path.file_stem()?.to_str()?.split_once('-')?;
    Some((namespace.parse().ok()?, index.parse().ok()?))
}
