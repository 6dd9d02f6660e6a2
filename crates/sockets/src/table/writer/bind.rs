//! Binding, and its undoing: the lists of the port and of the address.

use std::net::IpAddr;

use crate::{Family, SocketError, SocketId};

use super::Writer;
use crate::table::publish::{Published, Touched};
use crate::table::tuple::is_v4;

impl Writer {
    pub(crate) fn bind(
        &mut self,
        published: &Published,
        id: SocketId,
        address: IpAddr,
        port: u16,
    ) -> Result<u16, SocketError> {
        let i = self.index(id)?;
        let sock = self.sock_mut(i);
        if sock.port != 0 {
            return Err(SocketError::Invalid);
        }
        let address = match (sock.family, address) {
            (Family::V4, IpAddr::V4(address)) => u128::from(address.to_bits()),
            (Family::V6, IpAddr::V6(address)) => address.to_bits(),
            (Family::V4, IpAddr::V6(_)) => return Err(SocketError::FamilyNotSupported),
            (Family::V6, IpAddr::V4(_)) => return Err(SocketError::Invalid),
        };
        let mapped = sock.family == Family::V6 && is_v4(address);
        if mapped && sock.options.v6only {
            return Err(SocketError::Invalid);
        }
        let before = (sock.options.v6only, sock.address_named, sock.port_named, sock.bound);
        match sock.family {
            Family::V4 => sock.local4 = address as u32,
            Family::V6 => {
                sock.local6 = address;
                sock.local4 = if mapped { address as u32 } else { 0 };
                // An address of its own leaves no room for IPv4.
                sock.options.v6only |= address != 0 && !mapped;
            }
        }
        sock.address_named = address != 0;
        sock.port_named = port != 0;
        sock.bound = address;
        let mut touched = Touched::new(published);
        match self.take_port(i, port, &mut touched) {
            Ok(port) => {
                touched.publish(self);
                Ok(port)
            }
            Err(error) => {
                let sock = self.sock_mut(i);
                (sock.options.v6only, sock.address_named, sock.port_named, sock.bound) = before;
                (sock.local4, sock.local6) = (0, 0);
                Err(error)
            }
        }
    }

    pub(super) fn take_port(
        &mut self,
        i: u32,
        port: u16,
        touched: &mut Touched<'_>,
    ) -> Result<u16, SocketError> {
        // Out of its slot for a moment, so that it can be compared with the others.
        let sock = self.slots[i as usize].sock.take().expect("the caller looked it up");
        let port = match port {
            0 => self.automatic_port(&sock),
            _ if self.conflicts(&sock, port) => Err(SocketError::AddressInUse),
            _ => Ok(port),
        };
        self.slots[i as usize].sock = Some(sock);
        let port = port?;
        self.sock_mut(i).port = port;
        if self.sock(i).reuseport
            && let Err(error) = self.join_at_bind(i, touched)
        {
            self.sock_mut(i).port = 0;
            return Err(error);
        }
        let sock = self.sock(i);
        let to_tail = sock.reuseport && sock.family == Family::V6;
        let rank = if to_tail { self.tail_rank() } else { self.head_rank() };
        let sock = self.sock_mut(i);
        (sock.port_rank, sock.rank) = (rank, rank);
        let (address, reuseaddr) = (sock.list_address(), sock.reuseaddr);
        sock.listed_at = address;
        self.ports.entry(port).or_default().insert(rank, i, reuseaddr);
        self.addresses.entry((address, port)).or_default().insert(rank, i, reuseaddr);
        self.free_ports.set(port, false);
        self.link_key(i);
        touched.socket(i);
        Ok(port)
    }

    /// Takes a socket off all lists; it has no port any more.
    pub(super) fn unhash(&mut self, i: u32, touched: &mut Touched<'_>) {
        self.leave_group(i, touched);
        self.unlink_key(i);
        let sock = self.sock_mut(i);
        let (port, rank, port_rank) = (sock.port, sock.rank, sock.port_rank);
        let address = sock.listed_at;
        sock.port = 0;
        sock.filed = None;
        if port == 0 {
            return;
        }
        if let Some(chain) = self.ports.get_mut(&port) {
            chain.remove(port_rank);
            if chain.all.is_empty() {
                self.ports.remove(&port);
                self.free_ports.set(port, true);
            }
        }
        self.off_address((address, port), rank);
    }

    /// Takes a rank off the list of an address and port.
    pub(super) fn off_address(&mut self, list: (u128, u16), rank: i64) {
        if let Some(chain) = self.addresses.get_mut(&list) {
            chain.remove(rank);
            if chain.all.is_empty() {
                self.addresses.remove(&list);
            }
        }
    }
}
