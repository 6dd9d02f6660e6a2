//! Connected sockets that nobody sends to: they only stand in the tables of the kernel.
//!
//! A process may have so many open files, and a root without `CAP_SYS_RESOURCE` cannot raise the hard
//! limit. The limit is of a table of files, though, and a thread may have one of its own; so there are
//! as many threads as it takes.
//!
//! Source: clone(2), `CLONE_FILES`; getrlimit(2), `RLIMIT_NOFILE`.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit};

use super::{SinkSpec, sockets};
use crate::BenchError;
use crate::error::During as _;

/// Files that a thread has besides: what it took over from the process.
const BESIDES: usize = 128;

/// Sockets that are open until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Idle {
    holders: Vec<Holder>,
}

#[derive(Debug)]
struct Holder {
    /// The thread ends when this is gone.
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Idle {
    /// Opens one for each peer in the namespace of this thread.
    pub(super) fn open(spec: &SinkSpec, peers: &[SocketAddr]) -> Result<Self, BenchError> {
        if peers.is_empty() {
            return Ok(Self::default());
        }
        // As many as a table takes, if the limit can be raised so far.
        let _ = sockets::make_room(peers.len() + BESIDES);
        let limit = getrlimit(Resource::RLIMIT_NOFILE);
        let (soft, _) = limit.during(|| "ask for the limit of open files".into())?;
        let each = usize::try_from(soft).unwrap_or(usize::MAX).saturating_sub(BESIDES).max(1);
        let mut idle = Self::default();
        for share in peers.chunks(each) {
            idle.holders.push(Holder::start(spec.clone(), share.to_vec())?);
        }
        Ok(idle)
    }
}

impl Holder {
    fn start(spec: SinkSpec, peers: Vec<SocketAddr>) -> Result<Self, BenchError> {
        let (until, wait) = channel();
        let (tell, told) = channel();
        // It begins in the namespace of this thread.
        let thread = std::thread::spawn(move || {
            let open = || -> Result<_, BenchError> {
                unshare(CloneFlags::CLONE_FILES).during(|| "have files of its own".into())?;
                peers.iter().map(|peer| sockets::one(&spec, Some(*peer))).collect()
            };
            let (result, sockets): (_, Vec<_>) = match open() {
                Ok(sockets) => (Ok(()), sockets),
                Err(error) => (Err(error), Vec::new()),
            };
            // Who asked waits for it; without it, nobody is there any more.
            if tell.send(result).is_ok() {
                let _ = wait.recv();
            }
            drop(sockets);
        });
        let holder = Self { until: Some(until), thread: Some(thread) };
        match told.recv() {
            Ok(result) => result.map(|()| holder),
            Err(_) => Err(BenchError::Options("a thread that opens sockets ended early".into())),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.until.take();
        if let Some(thread) = self.thread.take() {
            // A panic there was told by the thread itself.
            let _ = thread.join();
        }
    }
}
