//! Messages of fixed length on a TCP connection that does not block.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

/// A connection, what is still to be written, and how much of a message has been read.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: TcpStream,
    out: Vec<u8>,
    have: usize,
    in_len: usize,
    /// Whether its waiter is told when there is room to write.
    asks_for_room: bool,
}

impl Stream {
    /// Takes a connection on which messages of `in_len` bytes come.
    pub(super) fn new(tcp: TcpStream, in_len: usize) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        Ok(Self { tcp, out: Vec::new(), have: 0, in_len, asks_for_room: false })
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Writes a message after those that wait.
    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(message);
        self.flush()
    }

    /// Writes what waits, as far as there is room.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.tcp.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has its waiter told of room to write if, and only if, something waits to be written.
    pub(super) fn ask_for_room(&mut self, epoll: &Epoll, data: u64) -> io::Result<()> {
        let asks = !self.out.is_empty();
        if asks != self.asks_for_room {
            let room = if asks { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            epoll.modify(&self.tcp, &mut EpollEvent::new(EpollFlags::EPOLLIN | room, data))?;
            self.asks_for_room = asks;
        }
        Ok(())
    }

    /// Reads what is there and returns how many messages are complete with it; `None` at the end.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.tcp.read(buffer) {
            Ok(0) => Ok(None),
            Ok(len) => {
                self.have += len;
                let messages = self.have / self.in_len;
                self.have %= self.in_len;
                Ok(Some(messages))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Some(0)),
                io::ErrorKind::ConnectionReset => Ok(None),
                _ => Err(error),
            },
        }
    }
}
