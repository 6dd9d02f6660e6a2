//! The side that holds the attachment.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::{Answer, DIR, MOST_BYTES, Question, VERSION, Verb, namespace, parts, path_in};

/// How long the other side may take to say its line, or to take ours.
const PATIENCE: Duration = Duration::from_secs(2);

/// A socket that has its name until this is dropped.
#[derive(Debug)]
pub(in crate::attach) struct Listener {
    path: PathBuf,
    /// Device and number of the file, so that no successor's is taken away.
    identity: (u64, u64),
}

impl Listener {
    /// Listens for an interface of the network namespace of the calling thread, and takes away what
    /// killed processes left.
    ///
    /// # Errors
    /// If the directory or the socket cannot be made.
    pub(in crate::attach) fn new(index: u32) -> io::Result<(Self, UnixListener)> {
        Self::in_dir(Path::new(DIR), namespace()?, index)
    }

    fn in_dir(dir: &Path, namespace: u64, index: u32) -> io::Result<(Self, UnixListener)> {
        DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
        let _lock = lock(dir)?;
        reap(dir);
        let path = path_in(dir, namespace, index);
        let early = dir.join(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&early);
        let listener = UnixListener::bind(&early)?;
        fs::set_permissions(&early, Permissions::from_mode(0o600))?;
        let about = fs::metadata(&early)?;
        // Takes the place of the one that hands over to us, if there is one.
        fs::rename(&early, &path)?;
        Ok((Self { path, identity: (about.st_dev(), about.st_ino()) }, listener))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let dir = self.path.parent().unwrap_or(Path::new(DIR));
        let _lock = lock(dir);
        let is_ours = fs::metadata(&self.path)
            .is_ok_and(|about| (about.st_dev(), about.st_ino()) == self.identity);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Waits for the other processes that make and take away names.
fn lock(dir: &Path) -> io::Result<Flock<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(dir.join("lock"))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

/// Takes away the sockets on which nobody listens any more.
fn reap(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_half_made = path.extension().is_some_and(|ending| ending == "new");
        if is_half_made || (parts(&path).is_some() && is_dead(&path)) {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_dead(path: &Path) -> bool {
    let refused = UnixStream::connect(path).map_err(|error| error.kind());
    refused.is_err_and(|kind| kind == io::ErrorKind::ConnectionRefused)
}

/// Answers each connection by what `answer` says, one after the other; returns after a detach, or when
/// `answer` has nobody left to ask. Who asks for a hand-over is given to `hand_over`, with all that
/// follows.
pub(in crate::attach) fn answer_all(
    listener: &UnixListener,
    mut answer: impl FnMut(Verb) -> Option<Answer>,
    mut hand_over: impl FnMut(UnixStream),
) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors or memory: others may give some back.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let mut is_last = false;
        let said = match question(&stream) {
            Ok(Question { version: VERSION, verb: Verb::HandOver }) => {
                hand_over(stream);
                continue;
            }
            Ok(question) if question.version == VERSION => match answer(question.verb) {
                Some(answer) => {
                    is_last = question.verb == Verb::Detach && matches!(answer, Answer::Done(_));
                    answer
                }
                None => return,
            },
            Ok(question) => Answer::Refused(format!(
                "asked in version {} of the control protocol, and this process speaks {VERSION}",
                question.version
            )),
            Err(error) => Answer::Refused(format!("no question: {error}")),
        };
        // Who does not wait for the answer does without.
        let _ = say(&stream, &said);
        if is_last {
            return;
        }
    }
}

fn question(stream: &UnixStream) -> io::Result<Question> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_BYTES)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Says an answer.
pub(in crate::attach) fn say(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::super::client::ask_at;
    use super::*;

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("rxsteer-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_the_owner_may_ask_and_the_dead_are_taken_away() {
        let dir = dir("owner");
        let (dead, listener) = Listener::in_dir(&dir, 7, 1).unwrap();
        drop(listener);
        std::mem::forget(dead); // as a killed process does
        let (live, _listener) = Listener::in_dir(&dir, 7, 2).unwrap();
        assert_eq!(names(&dir), ["7-2.sock", "lock"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&live.path)), (0o700, 0o600));
        drop(live);
        assert_eq!(names(&dir), ["lock"]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_successor_keeps_its_name_when_the_former_one_ends() {
        let dir = dir("successor");
        let (former, _first) = Listener::in_dir(&dir, 7, 1).unwrap();
        let (_now, _second) = Listener::in_dir(&dir, 7, 1).unwrap();
        drop(former);
        assert_eq!(names(&dir), ["7-1.sock", "lock"]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_question_is_answered_and_nonsense_is_refused() {
        let dir = dir("answer");
        let (held, listener) = Listener::in_dir(&dir, 7, 1).unwrap();
        let server = std::thread::spawn(move || {
            let answer = |verb| match verb {
                Verb::About => Some(Answer::Done("me".into())),
                _ => None,
            };
            answer_all(&listener, answer, |_| {});
        });
        let patience = Duration::from_secs(10);
        let said = ask_at(&held.path, Verb::About, patience).unwrap();
        assert_eq!(said, Answer::Done("me".into()));
        let mut rude = UnixStream::connect(&held.path).unwrap();
        rude.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        let mut answer = String::new();
        rude.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"refused\":\"no question: "), "{answer}");
        let mut later = UnixStream::connect(&held.path).unwrap();
        later.write_all(b"{\"version\":99,\"verb\":\"about\"}\n").unwrap();
        let mut answer = String::new();
        later.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("version 99"), "{answer}");
        // Nobody left to ask: the connection ends without an answer.
        assert!(ask_at(&held.path, Verb::Detach, patience).is_err());
        server.join().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
