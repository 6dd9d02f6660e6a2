//! Requests and answers over many flows, and the word of each consumer where it ran when.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use rxsteer_core::CpuId;
use rxsteer_testbed::{Pair, pin_thread};

use crate::common::{WAIT, connected, incoming_cpu, receiver, sender};

/// One end of a flow.
pub(crate) enum End {
    Udp(UdpSocket),
    /// Without a peer, and who asks there.
    Open(UdpSocket, SocketAddr),
    Tcp(TcpStream),
}

impl End {
    fn send(&mut self, number: u64) {
        match self {
            Self::Udp(socket) => assert_eq!(socket.send(&number.to_be_bytes()).unwrap(), 8),
            Self::Open(socket, peer) => {
                assert_eq!(socket.send_to(&number.to_be_bytes(), *peer).unwrap(), 8);
            }
            Self::Tcp(stream) => stream.write_all(&number.to_be_bytes()).unwrap(),
        }
    }

    fn receive(&mut self) -> u64 {
        let mut bytes = [0; 8];
        match self {
            Self::Udp(socket) => assert_eq!(socket.recv(&mut bytes).unwrap(), 8),
            Self::Open(socket, peer) => {
                assert_eq!(socket.recv_from(&mut bytes).unwrap(), (8, *peer));
            }
            Self::Tcp(stream) => stream.read_exact(&mut bytes).unwrap(),
        }
        u64::from_be_bytes(bytes)
    }

    fn local(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) | Self::Open(socket, _) => socket.local_addr().unwrap(),
            Self::Tcp(stream) => stream.local_addr().unwrap(),
        }
    }

    fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

/// That a consumer used its socket on a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) ns: u64,
    pub(crate) cpu: CpuId,
}

/// What the consumer of a flow said.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) tcp: bool,
    /// Whether its socket has a peer.
    pub(crate) connected: bool,
    pub(crate) local: u16,
    pub(crate) remote: u16,
    /// Each read and each send, in order of time.
    pub(crate) words: Vec<Word>,
    /// Of each datagram that was read, the CPU that put it into the socket's queue.
    pub(crate) incoming: Vec<CpuId>,
}

/// What a serving thread does about its CPU.
#[derive(Clone, Copy)]
pub(crate) enum Stay {
    /// Goes to the next CPU after so many rounds.
    Moves(u64),
    /// Stays on the n-th CPU.
    On(usize),
    /// Wherever the scheduler puts it.
    Anywhere,
}

/// A thread that serves flows, and one that asks.
pub(crate) struct Group {
    pub(crate) flows: Vec<(End, End)>,
    pub(crate) stay: Stay,
}

/// Makes UDP flows with both ends connected: server, client.
pub(crate) fn udp(pair: &Pair, v6: bool, count: usize) -> Vec<(End, End)> {
    let flow = |_| {
        let (server, client) = connected(pair, v6);
        client.set_read_timeout(Some(WAIT)).unwrap();
        (End::Udp(server), End::Udp(client))
    };
    (0..count).map(flow).collect()
}

/// First of the ports of [`open`].
const OPEN: u16 = 30_000;
/// Those ports.
pub(crate) const OPEN_PORTS: &str = "30000-30099";

/// Makes UDP flows whose serving ends have no peer, each on a port of its own: server, client.
pub(crate) fn open(pair: &Pair, count: u16) -> Vec<(End, End)> {
    let flow = |n| {
        let bind = || UdpSocket::bind((Pair::SINK_V4, OPEN + n)).unwrap();
        let server = pair.sink.run(bind).unwrap();
        server.set_read_timeout(Some(WAIT)).unwrap();
        let client = sender(pair, Pair::SOURCE_V4.into(), server.local_addr().unwrap());
        client.set_read_timeout(Some(WAIT)).unwrap();
        let peer = client.local_addr().unwrap();
        (End::Open(server, peer), End::Udp(client))
    };
    (0..count).map(flow).collect()
}

/// Makes TCP connections: server, client.
pub(crate) fn tcp(pair: &Pair, count: usize) -> Vec<(End, End)> {
    let listener = pair.sink.run(|| TcpListener::bind((Pair::SINK_V4, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let flow = |_| {
        let client = pair.source.run(|| TcpStream::connect(address).unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        for stream in [&server, &client] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(WAIT)).unwrap();
        }
        (End::Tcp(server), End::Tcp(client))
    };
    (0..count).map(flow).collect()
}

/// Asks over all flows of all groups, and beside them from `strangers` that ask a socket without a
/// peer once each, in one of eight rounds; returns what the consumers of the flows said.
pub(crate) fn run(
    pair: &Pair,
    groups: Vec<Group>,
    cpus: &[CpuId],
    rounds: u64,
    strangers: &UdpSocket,
) -> Vec<Consumer> {
    std::thread::scope(|scope| {
        let mut serving = Vec::new();
        for Group { flows, stay } in groups {
            let (servers, mut clients): (Vec<_>, Vec<_>) = flows.into_iter().unzip();
            serving.push(scope.spawn(move || serve(servers, &plan(stay, cpus), rounds)));
            scope.spawn(move || ask(&mut clients, rounds));
        }
        scope.spawn(move || {
            let to = strangers.local_addr().unwrap();
            for number in 0..rounds / 8 {
                let stranger = sender(pair, Pair::SOURCE_V4.into(), to);
                stranger.set_read_timeout(Some(WAIT)).unwrap();
                stranger.send(&number.to_be_bytes()).unwrap();
                let mut bytes = [0; 8];
                let (_, from) = strangers.recv_from(&mut bytes).unwrap();
                strangers.send_to(&bytes, from).unwrap();
                stranger.recv(&mut bytes).unwrap();
                assert_eq!(u64::from_be_bytes(bytes), number);
            }
        });
        serving.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns a socket that strangers may ask.
pub(crate) fn for_strangers(pair: &Pair) -> UdpSocket {
    receiver(pair, Pair::SINK_V4.into())
}

/// Where a thread is to be in a round; `None`: where it is.
type Plan<'a> = Box<dyn Fn(u64) -> Option<CpuId> + Send + 'a>;

fn plan<'a>(stay: Stay, cpus: &'a [CpuId]) -> Plan<'a> {
    Box::new(move |round| match stay {
        Stay::Moves(every) if round.is_multiple_of(every) => {
            Some(cpus[(round / every) as usize % cpus.len()])
        }
        Stay::On(index) if round == 0 => Some(cpus[index % cpus.len()]),
        Stay::Moves(_) | Stay::On(_) | Stay::Anywhere => None,
    })
}

/// Asks over all flows at once, waits for all answers, and so on.
fn ask(clients: &mut [End], rounds: u64) {
    for number in 0..rounds {
        for client in &mut *clients {
            client.send(number);
        }
        for client in &mut *clients {
            assert_eq!(client.receive(), number);
        }
    }
}

fn serve(mut servers: Vec<End>, plan: &Plan<'_>, rounds: u64) -> Vec<Consumer> {
    let consumer = |end: &End| {
        let remote = match end {
            End::Udp(socket) => socket.peer_addr().unwrap(),
            End::Open(_, peer) => *peer,
            End::Tcp(stream) => stream.peer_addr().unwrap(),
        };
        Consumer {
            tcp: end.is_tcp(),
            connected: !matches!(end, End::Open(..)),
            local: end.local().port(),
            remote: remote.port(),
            words: Vec::new(),
            incoming: Vec::new(),
        }
    };
    let mut consumers: Vec<_> = servers.iter().map(consumer).collect();
    for round in 0..rounds {
        if let Some(cpu) = plan(round) {
            pin_thread(cpu).unwrap();
        }
        for (server, consumer) in servers.iter_mut().zip(&mut consumers) {
            let number = server.receive();
            assert_eq!(number, round);
            consumer.words.push(word());
            // Of a socket without a peer the kernel does not keep it.
            if let End::Udp(socket) = server {
                consumer.incoming.push(incoming_cpu(socket));
            }
            server.send(number);
            consumer.words.push(word());
        }
    }
    consumers
}

/// Says where the calling thread is, and when.
fn word() -> Word {
    // SAFETY: no conditions.
    let cpu = unsafe { libc::sched_getcpu() };
    let ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    Word { ns, cpu: CpuId(u16::try_from(cpu).unwrap()) }
}
