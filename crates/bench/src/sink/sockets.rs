//! Opening the sockets of the readers, and asking what they dropped.
//!
//! Source: socket(7), udp(7), epoll(7); the columns of `/proc/net/udp`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::linux::fs::MetadataExt as _;
use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::SinkSpec;
use crate::error::During as _;
use crate::{BenchError, sys};

/// How long a reader waits before it looks whether the run is over.
pub(super) const PATIENCE_MS: i64 = 60;

/// The sockets of a reader.
pub(super) struct Group {
    pub(super) sockets: Vec<Arc<UdpSocket>>,
    /// Where there are several, what to wait with.
    pub(super) epoll: Option<Epoll>,
}

/// Opens all sockets and shares them out.
pub(super) fn open(spec: &SinkSpec) -> Result<Vec<Group>, BenchError> {
    make_room(spec.peers.len() + spec.threads)?;
    let threads = spec.threads;
    let mut shares: Vec<Vec<Arc<UdpSocket>>> = vec![Vec::new(); threads];
    if !spec.peers.is_empty() {
        for (index, peer) in spec.peers.iter().enumerate() {
            shares[index % threads].push(Arc::new(one(spec, Some(*peer))?));
        }
    } else if spec.reuseport {
        for share in &mut shares {
            share.push(Arc::new(one(spec, None)?));
        }
    } else {
        let shared = Arc::new(one(spec, None)?);
        shares.iter_mut().for_each(|share| share.push(Arc::clone(&shared)));
    }
    // A thread without a socket has nothing to do.
    shares.into_iter().filter(|share| !share.is_empty()).map(group).collect()
}

fn group(sockets: Vec<Arc<UdpSocket>>) -> Result<Group, BenchError> {
    if sockets.len() < 2 {
        return Ok(Group { sockets, epoll: None });
    }
    let made = || -> io::Result<Epoll> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, socket) in sockets.iter().enumerate() {
            epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        }
        Ok(epoll)
    };
    let epoll = made().during(|| "wait for several sockets".into())?;
    Ok(Group { sockets, epoll: Some(epoll) })
}

pub(super) fn one(spec: &SinkSpec, peer: Option<SocketAddr>) -> Result<UdpSocket, BenchError> {
    let made = || -> io::Result<UdpSocket> {
        let family = if spec.listen.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let fd: OwnedFd = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, sockopt::RxqOvfl, &1)?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::milliseconds(PATIENCE_MS))?;
        // Each connected socket is bound to the same port.
        if peer.is_some() {
            setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        }
        if spec.reuseport {
            setsockopt(&fd, sockopt::ReusePort, &true)?;
        }
        if spec.gro {
            setsockopt(&fd, sockopt::UdpGroSegment, &true)?;
        }
        if let Some(bytes) = spec.receive_buffer {
            buffer(fd.as_fd(), bytes)?;
        }
        if !spec.busy_poll.is_zero() {
            let us = spec.busy_poll.as_micros().try_into().unwrap_or(i32::MAX);
            sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, us)?;
        }
        bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &SockaddrStorage::from(spec.listen))?;
        let socket = UdpSocket::from(fd);
        if let Some(peer) = peer {
            socket.connect(peer)?;
        }
        Ok(socket)
    };
    made().during(|| match peer {
        None => format!("open a UDP socket at {}", spec.listen),
        Some(peer) => format!("open a UDP socket at {} connected to {peer}", spec.listen),
    })
}

/// Sets the receive buffer, beyond the limit of the host where that is allowed.
fn buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // The kernel doubles what it is told, to pay for its own bookkeeping.
    let asked = bytes / 2;
    if setsockopt(&fd, sockopt::RcvBufForce, &asked).is_err() {
        setsockopt(&fd, sockopt::RcvBuf, &asked)?;
    }
    Ok(())
}

/// Raises the number of files that this process may open, as far as it may.
pub(crate) fn make_room(sockets: usize) -> Result<(), BenchError> {
    let needed = sockets as u64 + 64;
    let limit = || getrlimit(Resource::RLIMIT_NOFILE);
    let (soft, hard) = limit().during(|| "ask for the limit of open files".into())?;
    if soft >= needed {
        return Ok(());
    }
    let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed))
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    let now = raised.and_then(|()| limit()).map_or(soft, |(soft, _)| soft);
    if now >= needed {
        return Ok(());
    }
    let s = if sockets == 1 { "" } else { "s" };
    let message = format!(
        "{sockets} socket{s}: this process may open {now} files; {needed} are enough (ulimit -n {needed})"
    );
    Err(BenchError::Options(message))
}

/// Returns how many datagrams the sockets have dropped, merged ones counted one by one.
pub(super) fn drops(groups: &[Group]) -> Result<u64, BenchError> {
    let mut inodes = BTreeSet::new();
    for socket in groups.iter().flat_map(|group| &group.sockets) {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&**socket);
        let data = fs::metadata(format!("/proc/self/fd/{fd}"));
        inodes.insert(data.during(|| "ask for the number of a socket".into())?.st_ino());
    }
    let mut total = 0;
    for table in ["udp", "udp6"] {
        let path = format!("/proc/thread-self/net/{table}");
        // There is no second one without IPv6.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        total += drops_in(&text, &mut inodes);
    }
    if inodes.is_empty() {
        return Ok(total);
    }
    let message = format!("{} sockets are not in /proc/net/udp", inodes.len());
    Err(io::Error::other(message)).during(|| "read the drops of the sockets".into())
}

/// Sums up the drops of the sockets of these inodes and takes those out that were found.
fn drops_in(table: &str, inodes: &mut BTreeSet<u64>) -> u64 {
    let each = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let inode = fields.get(9)?.parse().ok()?;
        if !inodes.remove(&inode) {
            return None;
        }
        fields.get(12)?.parse::<u64>().ok()
    };
    table.lines().filter_map(each).sum()
}

/// Returns how large a datagram a reader must take.
pub(super) fn slot_len(spec: &SinkSpec) -> usize {
    // Merged ones are up to 64 KiB. Of others only the length is asked for, so a jumbo frame will do.
    if spec.gro { 65_536 } else { 9216 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_by_inode() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  123: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 900 2 0000000000000000 7
  124: 0100007F:0036 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 901 2 0000000000000000 5
";
        let mut inodes = BTreeSet::from([901, 5]);
        assert_eq!(drops_in(table, &mut inodes), 5);
        assert_eq!(inodes, BTreeSet::from([5]));
    }
}
