//! The side that holds the attachment.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{mem, thread};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Answer, DIR, MOST_BYTES, Question, VERSION, Verb, namespace, parts, path_in};

/// How long the other side may take to say its line, or to take ours.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that are heard at a time.
const MOST_CLIENTS: usize = 128;
/// How long a connection is kept at least, also if others need its place.
const GRACE: Duration = Duration::from_millis(50);
/// How long to rest when the kernel is out of something.
const TURN: Duration = Duration::from_millis(100);

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

/// Answers the connections by what `answer` says, one after the other as they have said their line;
/// returns after a detach, or when `answer` has nobody left to ask. Who asks for a hand-over is given to
/// `hand_over`, with all that follows.
///
/// A connection that says nothing keeps nobody waiting: it is closed after two seconds, or earlier if there
/// are so many that others need its place.
pub(in crate::attach) fn answer_all(
    listener: &UnixListener,
    mut answer: impl FnMut(Verb) -> Option<Answer>,
    mut hand_over: impl FnMut(UnixStream),
) {
    // That can only fail for a descriptor that is none.
    let _ = listener.set_nonblocking(true);
    // The first has waited longest.
    let mut clients: VecDeque<Client> = VecDeque::new();
    loop {
        wait(listener, &clients);
        for mut client in mem::take(&mut clients) {
            let said = match client.question() {
                None => {
                    clients.push_back(client);
                    continue;
                }
                Some(Ok(Question { version: VERSION, verb: Verb::HandOver })) => {
                    if let Ok(stream) = client.into_stream() {
                        hand_over(stream);
                    }
                    continue;
                }
                Some(Ok(question)) if question.version == VERSION => {
                    let Some(said) = answer(question.verb) else { return };
                    if question.verb == Verb::Detach && matches!(said, Answer::Done(_)) {
                        let _ = client.into_stream().and_then(|stream| say(&stream, &said));
                        return;
                    }
                    said
                }
                Some(Ok(question)) => Answer::Refused(format!(
                    "asked in version {} of the control protocol, and this process speaks {VERSION}",
                    question.version
                )),
                Some(Err(error)) => Answer::Refused(format!("no question: {error}")),
            };
            // Who does not wait for the answer does without.
            let _ = client.into_stream().and_then(|stream| say(&stream, &said));
        }
        take_in(listener, &mut clients);
    }
}

/// A connection that has not said all of its line.
struct Client {
    stream: UnixStream,
    said: Vec<u8>,
    since: Instant,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, said: Vec::new(), since: Instant::now() })
    }

    /// Reads what there is; `None` if that is no line yet and there is time left.
    fn question(&mut self) -> Option<io::Result<Question>> {
        let mut piece = [0; 1024];
        while !self.said.contains(&b'\n') && self.said.len() < MOST_BYTES as usize {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => self.said.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_late = self.since.elapsed() >= PATIENCE;
                    return is_late.then(|| Err(io::Error::other("nothing was said in time")));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let line = self.said.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Some(serde_json::from_slice(line).map_err(io::Error::from))
    }

    /// Returns the stream, which waits again.
    fn into_stream(self) -> io::Result<UnixStream> {
        self.stream.set_nonblocking(false)?;
        Ok(self.stream)
    }
}

/// Waits until something can be read, someone can be let in, or the time of the first is over.
fn wait(listener: &UnixListener, clients: &VecDeque<Client>) {
    let first = clients.front().map(|client| client.since.elapsed());
    // While it is full and nobody has to go, the others wait where they are.
    let is_closed = clients.len() >= MOST_CLIENTS && first.is_some_and(|waited| waited < GRACE);
    let most = if is_closed { GRACE } else { PATIENCE };
    let timeout = first.map_or(PollTimeout::NONE, |waited| {
        // Rounded up, so that the time is over when it ends.
        let left = most.saturating_sub(waited) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
    });
    let streams = clients.iter().map(|client| client.stream.as_fd());
    let heard = streams.chain((!is_closed).then(|| listener.as_fd()));
    let mut heard: Vec<PollFd<'_>> = heard.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    if poll(&mut heard, timeout).is_err_and(|errno| errno != Errno::EINTR) {
        // Out of memory: others may give some back.
        thread::sleep(TURN);
    }
}

/// Lets in those that wait. If there are too many, those that have said nothing for longest have to go.
fn take_in(listener: &UnixListener, clients: &mut VecDeque<Client>) {
    // Whoever is younger may still be about to say its line.
    let idle = clients.iter().take_while(|client| client.since.elapsed() >= GRACE).count();
    for _ in 0..MOST_CLIENTS.saturating_sub(clients.len()) + idle {
        match listener.accept() {
            Ok((stream, _)) => {
                if clients.len() >= MOST_CLIENTS
                    && let Some(first) = clients.pop_front()
                {
                    let why =
                        Answer::Refused("others needed the place of who says nothing".to_owned());
                    let _ = say(&first.stream, &why);
                }
                clients.extend(Client::new(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // Out of descriptors or memory: others may give some back.
                thread::sleep(TURN);
                return;
            }
        }
    }
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
        mem::forget(dead); // as a killed process does
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
        let server = thread::spawn(move || {
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
    #[test]
    fn those_who_say_nothing_keep_nobody_from_an_answer_and_are_sent_away() {
        let dir = dir("idle");
        let (held, listener) = Listener::in_dir(&dir, 7, 1).unwrap();
        let server = thread::spawn(move || {
            answer_all(&listener, |_| Some(Answer::Done("me".into())), |_| {});
        });
        let idle: Vec<UnixStream> = (0..4 * MOST_CLIENTS)
            .map(|n| {
                let mut stream = UnixStream::connect(&held.path).unwrap();
                // Some begin a line and do not end it.
                stream.write_all(if n % 2 == 0 { b"" } else { b"{" }).unwrap();
                stream
            })
            .collect();
        let patience = Duration::from_secs(60);
        let said = ask_at(&held.path, Verb::About, patience).unwrap();
        assert_eq!(said, Answer::Done("me".into()));
        for mut stream in idle {
            let mut answer = Vec::new();
            // What was said and not read makes the end of a connection an error.
            let ended = stream.read_to_end(&mut answer).map_err(|error| error.kind());
            assert!(matches!(ended, Ok(_) | Err(io::ErrorKind::ConnectionReset)), "{ended:?}");
            assert!(answer.is_empty() || answer.starts_with(b"{\"refused\":"), "{answer:?}");
        }
        ask_at(&held.path, Verb::Detach, patience).unwrap();
        server.join().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
