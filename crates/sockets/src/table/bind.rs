//! Binding: who excludes whom, and which port is free.
//!
//! Sockets of a port are met from the head of its list, and the first that is met decides alone.
//! A socket with `SO_REUSEADDR` meets only those without, which have a list of their own, so a
//! crowd of sharers costs nothing. Automatic ports come from a bit map: the first port without any
//! socket after a random one, in at most 1,024 words; only if there is none are used ports tried.
//!
//! Source: spec of the receive path, "Bind".

use crate::SocketError;

use super::ranked::Ranked;
use super::sock::{Sock, addresses_overlap};
use super::writer::Writer;

/// Most sockets of a port that are all gone through for a conflict; with more, only those of the
/// address and of the wildcard are.
const MOST_ON_PORT: usize = 10;

/// Sockets of a port, or of an address and port, from head to tail.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) all: Ranked,
    /// Those without `SO_REUSEADDR`.
    strict: Ranked,
}

impl Chain {
    pub(super) fn insert(&mut self, rank: i64, i: u32, reuseaddr: bool) {
        self.all.insert(rank, i);
        if !reuseaddr {
            self.strict.insert(rank, i);
        }
    }

    pub(super) fn remove(&mut self, rank: i64) {
        self.all.remove(rank);
        self.strict.remove(rank);
    }

    pub(super) fn set_reuseaddr(&mut self, rank: i64, i: u32, reuseaddr: bool) {
        if reuseaddr {
            self.strict.remove(rank);
        } else {
            self.strict.insert(rank, i);
        }
    }

    /// Those that a socket meets unless devices or addresses keep them apart.
    fn met_by(&self, sock: &Sock) -> impl Iterator<Item = u32> {
        let map = if sock.reuseaddr { &self.strict } else { &self.all };
        map.iter()
    }
}

/// Ports that have no socket, as a bit map.
#[derive(Debug)]
pub(super) struct FreePorts {
    words: Box<[u64; 1024]>,
}

impl FreePorts {
    pub(super) fn new() -> Self {
        Self { words: Box::new([u64::MAX; 1024]) }
    }

    pub(super) fn set(&mut self, port: u16, free: bool) {
        let word = &mut self.words[usize::from(port >> 6)];
        let bit = 1 << (port & 63);
        if free { *word |= bit } else { *word &= !bit }
    }

    /// Returns the first free port from `start` on, round the range `low..=high`.
    fn next(&self, low: u16, high: u16, start: u16) -> Option<u16> {
        self.first_in(start, high).or_else(|| self.first_in(low, start))
    }

    fn first_in(&self, low: u16, high: u16) -> Option<u16> {
        let (first, last) = (usize::from(low >> 6), usize::from(high >> 6));
        for at in first..=last {
            let mut word = self.words[at];
            if at == first {
                word &= u64::MAX << (low & 63);
            }
            if at == last {
                word &= u64::MAX >> (63 - (high & 63));
            }
            if word != 0 {
                return Some((at as u32 * 64 + word.trailing_zeros()) as u16);
            }
        }
        None
    }
}

impl Writer {
    /// Returns whether a port is refused to a socket that names it.
    pub(super) fn conflicts(&self, sock: &Sock, port: u16) -> bool {
        let Some(on_port) = self.ports.get(&port) else { return false };
        let address = sock.list_address();
        if on_port.all.len() > MOST_ON_PORT && address != 0 {
            return [address, 0].iter().any(|address| {
                let chain = self.addresses.get(&(*address, port));
                chain.is_some_and(|chain| self.first_met_refuses(sock, chain))
            });
        }
        self.first_met_refuses(sock, on_port)
    }

    /// Returns an automatic port for a socket.
    pub(super) fn automatic_port(&mut self, sock: &Sock) -> Result<u16, SocketError> {
        let (low, high) = sock.options.ports.unwrap_or(self.port_range);
        let count = u64::from(high - low) + 1;
        let start = low + (self.random() % count) as u16;
        if let Some(port) = self.free_ports.next(low, high, start) {
            return Ok(port);
        }
        let round = (start..=high).chain(low..start);
        round
            .into_iter()
            .find(|port| self.may_share_port(sock, *port))
            .ok_or(SocketError::AddressInUse)
    }

    /// Returns whether a socket gets on with all of a port. Unlike for a named port all are asked
    /// and not only the first that is met: the user did not say that this one is to be shared.
    fn may_share_port(&self, sock: &Sock, port: u16) -> bool {
        self.ports.get(&port).is_none_or(|chain| {
            chain.met_by(sock).all(|other| {
                let other = self.sock(other);
                !meet(sock, other) || may_share(sock, other)
            })
        })
    }

    fn first_met_refuses(&self, sock: &Sock, chain: &Chain) -> bool {
        let mut others = chain.met_by(sock).map(|other| self.sock(other));
        others.find(|other| meet(sock, other)).is_some_and(|met| !may_share(sock, met))
    }
}

fn meet(a: &Sock, b: &Sock) -> bool {
    let devices_differ = a.device != 0 && b.device != 0 && a.device != b.device;
    let both_share = a.reuseaddr && b.reuseaddr;
    !both_share && !devices_differ && addresses_overlap(a, b)
}

fn may_share(a: &Sock, b: &Sock) -> bool {
    a.reuseport && b.reuseport && a.owner == b.owner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_free_port_is_found_from_any_start() {
        let mut ports = FreePorts::new();
        for port in 0..=u16::MAX {
            ports.set(port, false);
        }
        for free in [1, 63, 64, 32_768, 40_000, 60_999, 65_535] {
            ports.set(free, true);
            for start in [1, 62, 64, 128, 39_999, 40_001, 65_534] {
                assert_eq!(ports.next(1, u16::MAX, start), Some(free), "from {start}");
            }
            ports.set(free, false);
            assert_eq!(ports.next(1, u16::MAX, 500), None);
        }
    }

    #[test]
    fn ports_outside_the_range_are_not_taken() {
        let ports = FreePorts::new();
        assert_eq!(ports.next(100, 100, 100), Some(100));
        let mut ports = FreePorts::new();
        ports.set(100, false);
        assert_eq!(ports.next(100, 100, 100), None);
    }
}
