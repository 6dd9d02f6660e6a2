//! A network namespace: the sockets of one, and the operations on them.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rxsteer_core::CpuId;

use crate::table::{Published, Writer};
use crate::{
    Config, Explanation, Family, Found, Owner, Packet, Selector, SocketError, SocketId,
    SocketOption, Walk,
};

/// The UDP sockets of a network namespace.
///
/// Operations on sockets take a lock and may run on any thread; look-ups take none, but start again
/// while the port changes.
#[derive(Debug)]
pub struct Namespace {
    published: Published,
    writer: Mutex<Writer>,
}

impl Namespace {
    /// Makes a namespace without sockets.
    pub fn new(config: &Config) -> Self {
        Self { published: Published::new(config), writer: Mutex::new(Writer::new(config)) }
    }

    /// Opens a socket: `socket(AF_INET or AF_INET6, SOCK_DGRAM)`.
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if [`Config::most_sockets`] are open.
    pub fn open(&self, family: Family, owner: Owner) -> Result<SocketId, SocketError> {
        self.writer().open(&self.published, family, owner)
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`SocketError::Closed`]; [`SocketError::Invalid`] for v6-only after bind or on an IPv4
    /// socket, for joining what is no multicast group, and for an empty port range;
    /// [`SocketError::NoDevice`] for device 0; [`SocketError::AddressNotAvailable`] for leaving a
    /// group that was not joined.
    pub fn set(&self, socket: SocketId, option: SocketOption) -> Result<(), SocketError> {
        self.writer().set(&self.published, socket, option)
    }

    /// Says how the socket's reuseport group chooses a member, from now on and for all of them.
    ///
    /// # Errors
    /// [`SocketError::Closed`]; [`SocketError::Invalid`] if the socket is in no group.
    pub fn select_by(&self, socket: SocketId, selector: Selector) -> Result<(), SocketError> {
        self.writer().select_by(&self.published, socket, selector)
    }

    /// Binds a socket to a local address and port; returns the port. Port 0 takes a free one of
    /// the range. That the address is one of the host's is for the caller to see to.
    ///
    /// # Errors
    /// [`SocketError::Closed`]; [`SocketError::Invalid`] if it is bound, or for a mapped address on
    /// a v6-only socket or an IPv4 one on an IPv6 socket; [`SocketError::FamilyNotSupported`] for an
    /// IPv6 address on an IPv4 socket; [`SocketError::AddressInUse`], also
    /// if its reuseport group has 32,768 members.
    pub fn bind(&self, socket: SocketId, address: IpAddr, port: u16) -> Result<u16, SocketError> {
        self.writer().bind(&self.published, socket, address, port)
    }

    /// Connects a socket to a remote address and port, or to another one. An unbound socket is
    /// bound to an automatic port first. If its local address is the wildcard, it becomes `source`:
    /// the address of the host that routing selects for packets to the remote end.
    ///
    /// # Errors
    /// [`SocketError::Closed`]; [`SocketError::Invalid`] for no remote address or port;
    /// [`SocketError::FamilyNotSupported`] for an IPv6 address on an IPv4 socket or one bound to a
    /// mapped address; [`SocketError::NetworkUnreachable`] for an IPv4 address on a v6-only socket or
    /// one bound to an IPv6 address; [`SocketError::AddressNotAvailable`] if `source` is needed and
    /// none, or of the wrong family; [`SocketError::AddressInUse`] if no automatic port is free.
    pub fn connect(
        &self,
        socket: SocketId,
        remote: IpAddr,
        remote_port: u16,
        source: IpAddr,
    ) -> Result<(), SocketError> {
        self.writer().connect(&self.published, socket, remote, remote_port, source)
    }

    /// Undoes a connect (`connect` to `AF_UNSPEC`): the socket gets back the wildcard if bind named
    /// no address, and loses its port if bind named none. As under Linux the device is cleared too.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn disconnect(&self, socket: SocketId) -> Result<(), SocketError> {
        self.writer().disconnect(&self.published, socket)
    }

    /// Closes a socket.
    ///
    /// # Errors
    /// [`SocketError::Closed`] if it was closed before.
    pub fn close(&self, socket: SocketId) -> Result<(), SocketError> {
        self.writer().close(&self.published, socket)
    }

    /// Returns the local address and port of a socket; port 0: it has none.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn local(&self, socket: SocketId) -> Result<(IpAddr, u16), SocketError> {
        let writer = self.writer();
        let sock = writer.get(socket)?;
        Ok((sock.local(), sock.port()))
    }

    /// Returns the remote address and port of a connected socket.
    ///
    /// # Errors
    /// [`SocketError::Closed`], [`SocketError::NotConnected`].
    pub fn remote(&self, socket: SocketId) -> Result<(IpAddr, u16), SocketError> {
        self.writer().get(socket)?.remote_end().ok_or(SocketError::NotConnected)
    }

    /// Returns the number of open sockets.
    pub fn open_sockets(&self) -> usize {
        self.writer().open_sockets()
    }

    /// Returns the socket that gets a unicast packet, or `None`: then port unreachable goes back.
    ///
    /// Takes no lock and writes nothing. A packet of another [`Cast`](crate::Cast) is looked up as
    /// if it were unicast; [`deliver`](Self::deliver) finds all its takers.
    #[inline]
    pub fn lookup(&self, packet: &Packet<'_>) -> Option<Found> {
        self.published.lookup(packet)
    }

    /// Looks up the packets of a burst, each as [`lookup`](Self::lookup) does, with their cache
    /// misses side by side; stops at the end of the shorter slice.
    pub fn lookup_burst(&self, packets: &[Packet<'_>], found: &mut [Option<Found>]) {
        self.published.lookup_burst(packets, found);
    }

    /// Delivers a packet: calls `each` for every socket that gets it, at most once each, and
    /// returns how many these were. A connected socket prefers the packet's CPU from then on.
    pub fn deliver(&self, packet: &Packet<'_>, each: impl FnMut(Found)) -> usize {
        self.published.deliver(packet, true, each)
    }

    /// Calls `each` as [`deliver`](Self::deliver) does, but nobody takes on the packet's CPU.
    pub fn find(&self, packet: &Packet<'_>, each: impl FnMut(Found)) -> usize {
        self.published.deliver(packet, false, each)
    }

    /// Says why a packet goes where it goes: who gets it, what decided, and what every socket of its
    /// port scores or why it does not fit. For people: takes the lock, and goes through the port.
    ///
    /// A group's user selector is asked as in a look-up, so one that counts its calls moves on.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_core::CpuId;
    /// use rxsteer_sockets::{Cast, Config, DeviceId, Family, Namespace, Owner, Packet, Why};
    ///
    /// let namespace = Namespace::new(&Config::default());
    /// let socket = namespace.open(Family::V4, Owner(0))?;
    /// namespace.bind(socket, [192, 0, 2, 1].into(), 53)?;
    /// let packet = Packet {
    ///     src: [198, 51, 100, 1].into(),
    ///     src_port: 7000,
    ///     dst: [192, 0, 2, 1].into(),
    ///     dst_port: 53,
    ///     device: DeviceId(1),
    ///     cpu: CpuId(0),
    ///     cast: Cast::Unicast,
    ///     from_this_host: false,
    ///     payload: &[],
    /// };
    /// let explained = namespace.explain(&packet);
    /// assert_eq!(explained.why, Why::Score { ties: vec![] });
    /// assert_eq!(
    ///     explained.to_string(),
    ///     "198.51.100.1:7000 > 192.0.2.1:53: 0.0, of the highest score\n    \
    ///      0.0  192.0.2.1:53  score 2 = family 2"
    /// );
    /// # Ok::<(), rxsteer_sockets::SocketError>(())
    /// ```
    pub fn explain(&self, packet: &Packet<'_>) -> Explanation {
        self.writer().explain(&self.published, packet)
    }

    /// Counts what [`lookup`](Self::lookup) of a packet reads; early demultiplexing is left out.
    pub fn walk(&self, packet: &Packet<'_>) -> Walk {
        self.published.walk(packet)
    }

    /// Notes that a connected socket received on this CPU: it prefers it from now on, as after
    /// [`deliver`](Self::deliver). Ignores ids that were never given out.
    pub fn note_cpu(&self, socket: SocketId, cpu: CpuId) {
        self.published.stick_to_cpu(socket, cpu);
    }

    /// Returns for how many packets a group's selector could not be applied, so that the hash
    /// decided: an index out of range, a connection id that is none of the server's.
    pub fn selector_misses(&self) -> u64 {
        self.published.selector_misses()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // Operations leave no half-done state behind, so a panic of another thread is its own.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod agree;
#[cfg(all(test, not(loom)))]
mod departures;
#[cfg(all(test, not(loom)))]
mod field_reports;
#[cfg(all(test, not(loom)))]
mod tests;
