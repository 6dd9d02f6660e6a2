//! The sockets of a namespace, each with its receive queue and its reader.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use rxsteer_core::steer::SocketFlow;
use rxsteer_core::{CpuId, FlowKey};
use rxsteer_sockets::queue::{BufferPool, Limits, QueueContext, ReceiveQueue};
use rxsteer_sockets::{
    Config, Family, FlowEvents, Namespace, Owner, SocketError, SocketId, SocketOption, UdpCounters,
};

use super::message::Message;
use super::plane::Plane;
use super::shedding::Shedding;
use crate::ReaderId;
use crate::overload::shed::Counts;
use crate::overload::{Key, ShedSettings};
use crate::ready::{Mark, Ready};

/// How a socket is opened.
#[derive(Clone, Copy, Debug)]
pub struct SocketSettings {
    /// Its address and port.
    pub local: SocketAddr,
    /// The remote end, if it is connected.
    pub remote: Option<SocketAddr>,
    /// Who reads it.
    pub reader: ReaderId,
    /// Room of its receive queue.
    pub limits: Limits,
    /// Whether it takes merged datagrams as one message (`UDP_GRO`); if not, they are cut up again.
    pub gro: bool,
    /// Whether it shares its address with others that say so too (`SO_REUSEPORT`).
    pub reuse_port: bool,
}

impl SocketSettings {
    /// A socket of the first reader, not connected, with the default room, without merging.
    pub fn bound(local: SocketAddr) -> Self {
        Self {
            local,
            remote: None,
            reader: ReaderId(0),
            limits: Limits::default(),
            gro: false,
            reuse_port: false,
        }
    }
}

/// Why a socket was not opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpenError {
    /// What the namespace says.
    Socket(SocketError),
    /// There is no such reader.
    NoReader(ReaderId),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => error.fmt(f),
            Self::NoReader(reader) => write!(f, "there is no reader {}", reader.0),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<SocketError> for OpenError {
    fn from(error: SocketError) -> Self {
        Self::Socket(error)
    }
}

/// An open socket.
#[derive(Debug)]
pub struct Socket {
    id: SocketId,
    local: SocketAddr,
    pub(super) queue: ReceiveQueue<Message>,
    pub(super) reader: ReaderId,
    pub(super) gro: bool,
    /// Whether its reader has it in its list.
    pub(super) mark: Mark,
    connected: AtomicBool,
    flow: Mutex<SocketFlow>,
}

impl Socket {
    /// Returns its id in the namespace.
    pub const fn id(&self) -> SocketId {
        self.id
    }

    /// Returns the address and port that it was opened with; port 0 took a free one.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns its receive queue.
    pub const fn queue(&self) -> &ReceiveQueue<Message> {
        &self.queue
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Locks what steering knows of its flow.
    pub(super) fn flow(&self) -> MutexGuard<'_, SocketFlow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_datagrams(&self) -> bool {
        self.queue.credit().in_use().packets > 0
    }
}

/// A reader: the sockets that wait for it, and the CPU on which it ran last.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) ready: Ready<Arc<Socket>>,
    cpu: AtomicU16,
}

impl Reader {
    pub(super) fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Ordering::Relaxed))
    }

    pub(super) fn runs_on(&self, cpu: CpuId) {
        if self.cpu() != cpu {
            self.cpu.store(cpu.0, Ordering::Relaxed);
        }
    }
}

/// The sockets of a namespace, their receive queues and their readers.
pub struct Sockets {
    namespace: Namespace,
    context: Arc<QueueContext<Message>>,
    pub(super) pool: BufferPool,
    table: Arc<Table>,
    readers: Box<[Reader]>,
    pub(super) shedding: Option<Shedding>,
}

/// What look-ups of sockets by id need, and who hears of their flows.
#[derive(Debug)]
struct Table {
    sockets: papaya::HashMap<SocketId, Arc<Socket>, RandomState>,
    plane: Arc<Plane>,
}

impl FlowEvents for Table {
    fn connected(&self, socket: SocketId, _flow: &FlowKey) {
        if let Some(socket) = self.sockets.pin().get(&socket) {
            socket.connected.store(true, Ordering::Release);
        }
    }

    fn withdrawn(&self, socket: SocketId, _flow: &FlowKey) {
        if let Some(socket) = self.sockets.pin().get(&socket) {
            socket.connected.store(false, Ordering::Release);
            self.plane.steering.disconnect(&mut socket.flow());
        }
    }
}

impl Sockets {
    /// Makes a namespace without sockets; readers are numbered in the order of the CPUs on which
    /// they start. Copies of multicast packets take their buffers from `pool`. `config` is used but
    /// for its events, which go to the plane.
    pub fn new(config: Config, plane: &Arc<Plane>, readers: &[CpuId], pool: BufferPool) -> Self {
        let table = Table { sockets: papaya::HashMap::default(), plane: Arc::clone(plane) };
        let table = Arc::new(table);
        let events: Arc<dyn FlowEvents> = Arc::<Table>::clone(&table);
        let reader = |cpu: &CpuId| Reader { ready: Ready::new(), cpu: AtomicU16::new(cpu.0) };
        Self {
            namespace: Namespace::new(&Config { events: Some(events), ..config }),
            context: Arc::default(),
            pool,
            table,
            readers: readers.iter().map(reader).collect(),
            shedding: None,
        }
    }

    /// Sheds early what a socket has no room for, in fair shares; `key` is drawn at random.
    #[must_use]
    pub fn shedding(self, settings: ShedSettings, key: Key) -> Self {
        Self { shedding: Some(Shedding::new(settings, key)), ..self }
    }

    /// Returns what shedding did; `None`: nothing is shed.
    pub fn shed_counts(&self) -> Option<Counts> {
        self.shedding.as_ref().map(Shedding::counts)
    }

    /// Opens a socket.
    ///
    /// # Errors
    /// What bind and connect refuse, and a reader that does not exist.
    pub fn open(&self, settings: &SocketSettings) -> Result<Arc<Socket>, OpenError> {
        if self.readers.len() <= settings.reader.0 as usize {
            return Err(OpenError::NoReader(settings.reader));
        }
        let SocketSettings { local, remote, .. } = *settings;
        let family = if local.is_ipv4() { Family::V4 } else { Family::V6 };
        let id = self.namespace.open(family, Owner(0))?;
        let socket = Arc::new(Socket {
            id,
            local,
            queue: ReceiveQueue::new(&self.context, settings.limits),
            reader: settings.reader,
            gro: settings.gro,
            mark: Mark::new(),
            connected: AtomicBool::new(false),
            flow: Mutex::default(),
        });
        // Before a look-up can find it.
        self.table.sockets.pin().insert(id, Arc::clone(&socket));
        let opened = self
            .namespace
            .set(id, SocketOption::ReusePort(settings.reuse_port))
            .and_then(|()| self.namespace.bind(id, local.ip(), local.port()))
            .and_then(|_| match remote {
                Some(to) => self.namespace.connect(id, to.ip(), to.port(), local.ip()),
                None => Ok(()),
            });
        if let Err(error) = opened {
            self.close(&socket)?;
            return Err(error.into());
        }
        Ok(socket)
    }

    /// Closes a socket. What waits in its queue can still be read.
    ///
    /// # Errors
    /// If it was closed before.
    pub fn close(&self, socket: &Socket) -> Result<(), SocketError> {
        self.namespace.close(socket.id)?;
        self.table.sockets.pin().remove(&socket.id);
        socket.queue.close();
        Ok(())
    }

    /// Returns the namespace, for connecting and other operations on sockets.
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the counters of the namespace, which count messages.
    pub fn counters(&self) -> &UdpCounters {
        self.context.counters()
    }

    /// Returns the steering that hears of its flows.
    pub fn plane(&self) -> &Arc<Plane> {
        &self.table.plane
    }

    /// Calls `with` for an open socket.
    pub(super) fn with<R>(&self, id: SocketId, with: impl FnOnce(&Arc<Socket>) -> R) -> Option<R> {
        self.table.sockets.pin().get(&id).map(with)
    }

    #[inline]
    pub(super) fn reader(&self, id: ReaderId) -> &Reader {
        &self.readers[id.0 as usize]
    }

    /// Notes that a socket has something to read.
    pub(super) fn note_ready(&self, socket: &Arc<Socket>) {
        self.reader(socket.reader).ready.note(&socket.mark, || Arc::clone(socket));
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("open", &self.namespace.open_sockets())
            .field("readers", &self.readers.len())
            .finish_non_exhaustive()
    }
}
