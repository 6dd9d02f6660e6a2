//! The side that asks.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::hand_over::{Given, ask_for};
use super::{Answer, DIR, MOST_BYTES, Question, VERSION, Verb, namespace, parts, path_in};

/// How long a process may take to let in who wants to take over.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug)]
pub(in crate::attach) enum Answerless {
    /// Nobody listens for this interface.
    NoSocket,
    /// Somebody listens, or did, and did not answer as it should.
    Failed(io::Error),
}

/// Asks the process that holds an interface of the network namespace of the calling thread.
///
/// # Errors
/// [`Answerless`].
pub(in crate::attach) fn ask(
    index: u32,
    verb: Verb,
    patience: Duration,
) -> Result<Answer, Answerless> {
    let namespace = namespace().map_err(Answerless::Failed)?;
    ask_at(&path_in(Path::new(DIR), namespace, index), verb, patience)
}

pub(super) fn ask_at(path: &Path, verb: Verb, patience: Duration) -> Result<Answer, Answerless> {
    let mut stream = connect(path, patience)?;
    let mut talk = || -> io::Result<Answer> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut line = serde_json::to_vec(&Question { version: VERSION, verb })?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new((&stream).take(MOST_BYTES)).read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    };
    talk().map_err(Answerless::Failed)
}

/// Asks the process that holds an interface for its attachment; `Err` within has why it is refused.
///
/// # Errors
/// [`Answerless`].
pub(in crate::attach) fn ask_for_attachment(
    index: u32,
) -> Result<Result<Given, String>, Answerless> {
    let namespace = namespace().map_err(Answerless::Failed)?;
    let stream = connect(&path_in(Path::new(DIR), namespace, index), HAND_OVER_PATIENCE)?;
    ask_for(stream).map_err(Answerless::Failed)
}

/// Connects; a process that lets nobody in is not waited for longer than that.
fn connect(path: &Path, patience: Duration) -> Result<UnixStream, Answerless> {
    let connected = || -> rustix::io::Result<UnixStream> {
        let address = SocketAddrUnix::new(path)?;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket.into())
    };
    connected().map_err(io::Error::from).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Answerless::NoSocket,
        io::ErrorKind::WouldBlock => Answerless::Failed(io::ErrorKind::TimedOut.into()),
        _ => Answerless::Failed(error),
    })
}

/// Returns the interfaces of the network namespace of the calling thread that have a socket, whether
/// or not somebody listens.
pub(in crate::attach) fn on_this_namespace() -> Vec<u32> {
    let Ok(own) = namespace() else { return Vec::new() };
    let entries = std::fs::read_dir(DIR).into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| parts(&entry.path()));
    let mut found: Vec<u32> =
        all.filter(|(namespace, _)| *namespace == own).map(|(_, index)| index).collect();
    found.sort_unstable();
    found
}
