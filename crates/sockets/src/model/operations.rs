//! What operations do to the lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Model, STAND_IN};
use crate::{Family, SocketError, SocketId, SocketOption};

impl Model {
    /// Sets an option.
    ///
    /// # Errors
    /// [`SocketError::Closed`]; [`SocketError::Invalid`] for v6-only after bind or on IPv4;
    /// [`SocketError::AddressNotAvailable`] for leaving a group that was not joined.
    pub fn set(&mut self, id: SocketId, option: SocketOption) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let sock = &mut self.socks[i];
        match option {
            SocketOption::Device(device) => {
                let old = std::mem::replace(&mut sock.device, device);
                self.rehash(i);
                self.regroup(i, old);
            }
            SocketOption::ReuseAddr(on) => sock.reuseaddr = on,
            SocketOption::ReusePort(on) => sock.reuseport = on,
            SocketOption::IncomingCpu(cpu) => {
                let before = std::mem::replace(&mut sock.cpu, cpu);
                sock.cpu_given = cpu.is_some();
                if let Some(group) = sock.group {
                    self.groups[group].count_cpu(before, cpu);
                }
            }
            other => sock.options.set(other, sock.family, sock.port != 0)?,
        }
        Ok(())
    }

    /// Binds a socket; returns its port.
    ///
    /// # Errors
    /// As the kernel: in use, invalid, family not supported, closed.
    pub fn bind(&mut self, id: SocketId, address: IpAddr, port: u16) -> Result<u16, SocketError> {
        let i = self.index(id)?;
        if self.socks[i].port != 0 {
            return Err(SocketError::Invalid);
        }
        let mut sock = self.socks[i].clone();
        match (sock.family, address) {
            (Family::V4, IpAddr::V4(address)) => {
                sock.local4 = address;
                sock.address_named = !address.is_unspecified();
            }
            (Family::V6, IpAddr::V6(address)) => {
                if let Some(mapped) = address.to_ipv4_mapped() {
                    if sock.options.v6only {
                        return Err(SocketError::Invalid);
                    }
                    sock.local4 = mapped;
                }
                sock.local6 = address;
                sock.address_named = !address.is_unspecified();
            }
            (Family::V4, IpAddr::V6(_)) => return Err(SocketError::FamilyNotSupported),
            (Family::V6, IpAddr::V4(_)) => return Err(SocketError::Invalid),
        }
        if sock.address_named && sock.family == Family::V6 && !sock.is_mapped() {
            sock.options.v6only = true;
        }
        sock.bound = Some(address);
        sock.port_named = port != 0;
        let before = std::mem::replace(&mut self.socks[i], sock);
        match self.take_port(i, port) {
            Ok(port) => Ok(port),
            Err(error) => {
                self.socks[i] = before;
                Err(error)
            }
        }
    }

    fn take_port(&mut self, i: usize, port: u16) -> Result<u16, SocketError> {
        let port = if port == 0 {
            let (low, high) = self.socks[i].options.ports.unwrap_or(self.range);
            (low..=high)
                .find(|port| self.automatic_port_is_free(i, *port))
                .ok_or(SocketError::AddressInUse)?
        } else {
            if self.conflicts(i, port) {
                return Err(SocketError::AddressInUse);
            }
            port
        };
        self.socks[i].port = port;
        if self.socks[i].reuseport {
            self.join_group_at_bind(i);
        }
        let to_tail = self.socks[i].reuseport && self.socks[i].family == Family::V6;
        let address = self.socks[i].list_address();
        for list in [
            self.by_port.entry(port).or_default(),
            self.by_address.entry((address, port)).or_default(),
        ] {
            if to_tail { list.push(i) } else { list.insert(0, i) }
        }
        Ok(port)
    }

    /// Connects a socket; `source` is the local address that routing selects for `to`.
    ///
    /// # Errors
    /// As the kernel.
    pub fn connect(
        &mut self,
        id: SocketId,
        to: IpAddr,
        to_port: u16,
        source: IpAddr,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let to = match (self.socks[i].family, to) {
            (Family::V4, IpAddr::V6(_)) => return Err(SocketError::FamilyNotSupported),
            (Family::V6, IpAddr::V4(to)) => IpAddr::V6(to.to_ipv6_mapped()),
            (_, to) => to,
        };
        if let IpAddr::V6(to) = to {
            // A socket whose local address is of one family reaches no other.
            let sock = &self.socks[i];
            let fixed = !sock.local6.is_unspecified();
            let to_v4 = to.to_ipv4_mapped().is_some();
            let goes_on = to_v4 && self.quirks.placeholder4;
            if to_v4 && sock.options.v6only || fixed && to_v4 != sock.is_mapped() && !goes_on {
                return Err(match to_v4 {
                    true => SocketError::NetworkUnreachable,
                    false => SocketError::FamilyNotSupported,
                });
            }
        }
        if self.socks[i].port == 0 {
            self.take_port(i, 0)?;
        }
        let sock = &mut self.socks[i];
        let mut moved = false;
        sock.remote_port = to_port;
        match to {
            IpAddr::V4(to) => {
                sock.remote4 = to;
                if let (IpAddr::V4(source), true) = (source, sock.local4.is_unspecified()) {
                    sock.local4 = source;
                    moved = true;
                }
            }
            IpAddr::V6(to) => {
                sock.remote6 = to;
                let wildcard = sock.local6.is_unspecified()
                    || sock.local6 == Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
                if let Some(to) = to.to_ipv4_mapped() {
                    sock.remote4 = to;
                    let source = match source {
                        IpAddr::V4(source) => Some(source),
                        IpAddr::V6(source) => source.to_ipv4_mapped(),
                    };
                    if let (Some(source), true) = (source, wildcard) {
                        sock.local4 = source;
                        sock.local6 = source.to_ipv6_mapped();
                        moved = true;
                    }
                } else if let (IpAddr::V6(source), true) = (source, sock.local6.is_unspecified()) {
                    sock.local6 = source;
                    sock.local4 = STAND_IN;
                    moved = true;
                }
            }
        }
        if moved {
            self.rehash(i);
        }
        if let (Some(group), false) = (self.socks[i].home, moved) {
            self.groups[group].had_connected = true;
        }
        self.socks[i].connected = true;
        if self.quirks.three_tables {
            self.file(i);
        }
        self.go_away(i);
        Ok(())
    }

    /// Dissolves the association with the remote end.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn disconnect(&mut self, id: SocketId) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let stale = self.quirks.stale_remote6;
        let sock = &mut self.socks[i];
        sock.connected = false;
        sock.remote4 = Ipv4Addr::UNSPECIFIED;
        sock.remote_port = 0;
        let old_device = sock.device.take();
        if !stale {
            sock.remote6 = Ipv6Addr::UNSPECIFIED;
        }
        if !self.quirks.stale_hash4 {
            self.filed.retain(|(_, s)| *s != i);
        }
        if !self.socks[i].address_named {
            let sock = &mut self.socks[i];
            sock.local4 = Ipv4Addr::UNSPECIFIED;
            sock.local6 = Ipv6Addr::UNSPECIFIED;
            if sock.port_named {
                self.rehash(i);
            }
        }
        if !self.socks[i].port_named {
            self.unhash(i);
        }
        self.regroup(i, old_device);
        self.come_back(i);
        Ok(())
    }

    /// A change of local address or device: list, group and 4-tuple follow.
    fn rehash(&mut self, i: usize) {
        let port = self.socks[i].port;
        if port == 0 {
            return;
        }
        let address = self.socks[i].list_address();
        if self.quirks.left_group {
            self.leave_group(i);
        }
        let here = self.by_address.entry((address, port)).or_default();
        if !here.contains(&i) {
            for list in self.by_address.values_mut() {
                list.retain(|other| *other != i);
            }
            self.by_address.entry((address, port)).or_default().insert(0, i);
        }
        self.refile(i);
    }

    /// A filed socket whose 4-tuple is another by now is filed anew; else it keeps its place.
    fn refile(&mut self, i: usize) {
        let tuple = self.socks[i].tuple();
        if let Some(place) = self.filed.iter().position(|(key, s)| *s == i && *key != tuple) {
            self.filed.remove(place);
            self.filed.insert(0, (tuple, i));
        }
    }

    fn file(&mut self, i: usize) {
        if !self.filed.iter().any(|(_, s)| *s == i) {
            // One that is filed stays in a group that a later bind put it into.
            if self.quirks.left_group {
                self.leave_group(i);
            }
            self.filed.insert(0, (self.socks[i].tuple(), i));
        } else if !self.quirks.stale_hash4 {
            self.refile(i);
        }
    }

    pub(super) fn unhash(&mut self, i: usize) {
        self.leave_group(i);
        for list in self.by_port.values_mut().chain(self.by_address.values_mut()) {
            list.retain(|other| *other != i);
        }
        self.filed.retain(|(_, s)| *s != i);
        self.socks[i].port = 0;
    }
}
