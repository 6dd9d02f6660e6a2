//! Handing an attachment to another process: descriptors beside the lines.
//!
//! | the one that asks | the one that holds |
//! | --- | --- |
//! | the question `hand-over` | |
//! | | the answer, with the descriptors |
//! | takes over, then says `done` | waits for that, and uses nothing of the attachment meanwhile |
//! | | a last answer, and ends |
//!
//! Source: unix(7), "SCM_RIGHTS".

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rxsteer_kernel::Handover;

use super::{Answer, MOST_BYTES, Question, VERSION, Verb};

/// Descriptors that one message may have; the kernel's own bound.
const MOST_FDS: usize = 253;
/// How long the other side may take to take over.
const MOST_TIME: Duration = Duration::from_secs(60);
/// How often the side that waits shows that it lives.
const TURN: Duration = Duration::from_millis(500);
/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives an attachment to the process at the other end and waits until it has taken over; `alive` is
/// called from time to time meanwhile.
pub(in crate::attach) fn give(
    stream: &UnixStream,
    handover: &Handover,
    mut alive: impl FnMut(),
) -> io::Result<()> {
    let text = String::from_utf8_lossy(&handover.text).into_owned();
    let mut line = serde_json::to_vec(&Answer::HandOver(text))?;
    line.push(b'\n');
    let fds: Vec<BorrowedFd<'_>> = handover.fds.iter().map(OwnedFd::as_fd).collect();
    send(stream, &line, &fds)?;
    stream.set_read_timeout(Some(TURN))?;
    let end = Instant::now() + MOST_TIME;
    let mut said = Vec::new();
    while !said.ends_with(b"\n") {
        alive();
        match receive(stream, &mut said, &mut Vec::new()) {
            Ok(0) => return Err(io::Error::other("the other process went away")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {}
            Err(error) => return Err(error),
        }
    }
    if said == b"done\n" { Ok(()) } else { Err(io::Error::other("the other process gave up")) }
}

/// An attachment that was given, before it is taken over.
pub(in crate::attach) struct Given {
    stream: UnixStream,
    /// What to take over.
    pub(in crate::attach) handover: Handover,
}

/// Asks for an attachment; `Err` within has why it is refused.
pub(super) fn ask_for(mut stream: UnixStream) -> io::Result<Result<Given, String>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(&Question { version: VERSION, verb: Verb::HandOver })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let (mut said, mut fds) = (Vec::new(), Vec::new());
    while !said.ends_with(b"\n") {
        if receive(&stream, &mut said, &mut fds)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(match serde_json::from_slice(&said)? {
        Answer::HandOver(text) => {
            Ok(Given { stream, handover: Handover { text: text.into_bytes(), fds } })
        }
        Answer::Refused(why) => Err(why),
        other => Err(format!("an answer to something else: {other:?}")),
    })
}

impl Given {
    /// Separates what is taken over from the way to say so.
    pub(in crate::attach) fn split(self) -> (Handover, Taken) {
        (self.handover, Taken { stream: self.stream })
    }
}

/// The way to say that an attachment is taken over. When dropped before, the other process goes on.
pub(in crate::attach) struct Taken {
    stream: UnixStream,
}

impl Taken {
    /// Says that it is done, and returns what the other process says last.
    pub(in crate::attach) fn done(mut self) -> io::Result<Answer> {
        self.stream.write_all(b"done\n")?;
        let mut said = Vec::new();
        while !said.ends_with(b"\n") {
            if receive(&self.stream, &mut said, &mut Vec::new())? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let answer = serde_json::from_slice(&said)?;
        // It ends now, and frees what it had besides, such as a port.
        while receive(&self.stream, &mut Vec::new(), &mut Vec::new()).is_ok_and(|len| len > 0) {}
        Ok(answer)
    }
}

fn send(mut stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("more descriptors than a message may have"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(bytes.get(sent..).unwrap_or_default())
}

/// Receives a piece of a line and the descriptors beside it; 0 at the end.
fn receive(stream: &UnixStream, bytes: &mut Vec<u8>, fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut piece = [0; 4096];
    let got =
        recvmsg(stream, &mut [IoSliceMut::new(&mut piece)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(these) = message {
            fds.extend(these);
        }
    }
    if bytes.len() + got.bytes > MOST_BYTES as usize {
        return Err(io::Error::other("a line that does not end"));
    }
    bytes.extend_from_slice(&piece[..got.bytes]);
    Ok(got.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _};

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn given() -> (Handover, File) {
        // It has no path, so tests that run at the same time cannot meet in it.
        let mut file = File::from(memfd_create(c"given", MFdFlags::empty()).unwrap());
        file.write_all(b"the same file").unwrap();
        let fds = vec![file.try_clone().unwrap().into(), file.try_clone().unwrap().into()];
        (Handover { text: b"key value\n".to_vec(), fds }, file)
    }

    #[test]
    fn the_other_side_gets_the_text_and_the_same_files() {
        let (here, there) = UnixStream::pair().unwrap();
        let (handover, _file) = given();
        let holder = std::thread::spawn(move || {
            let mut question = [0; 64];
            let len = (&here).read(&mut question).unwrap();
            let question: Question = serde_json::from_slice(&question[..len]).unwrap();
            assert_eq!(question.verb, Verb::HandOver);
            give(&here, &handover, || {}).unwrap();
            (&here).write_all(b"{\"done\":\"last words\"}\n").unwrap();
        });
        let (handover, taken) =
            ask_for(there).unwrap().unwrap_or_else(|why| panic!("{why}")).split();
        assert_eq!((handover.text.as_slice(), handover.fds.len()), (&b"key value\n"[..], 2));
        for fd in handover.fds {
            let mut file = File::from(fd);
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "the same file");
        }
        assert_eq!(taken.done().unwrap(), Answer::Done("last words".into()));
        holder.join().unwrap();
    }

    #[test]
    fn who_goes_away_before_it_is_done_has_not_taken_over() {
        for last in [&b""[..], b"no\n"] {
            let (here, there) = UnixStream::pair().unwrap();
            let (handover, _file) = given();
            (&there).write_all(last).unwrap();
            drop(there);
            assert!(give(&here, &handover, || {}).is_err(), "{last:?}");
        }
    }
}
