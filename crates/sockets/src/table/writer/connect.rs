//! Connecting and disconnecting: the address, its list and the 4-tuple follow.

use std::net::IpAddr;

use crate::{Family, SocketError, SocketId};

use super::Writer;
use crate::table::publish::{Published, Touched, When};
use crate::table::sock::{Filed, STAND_IN, listed};
use crate::table::tuple::{is_v4, wide};

impl Writer {
    pub(crate) fn connect(
        &mut self,
        published: &Published,
        id: SocketId,
        to: IpAddr,
        to_port: u16,
        source: IpAddr,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let sock = self.sock(i);
        if sock.family == Family::V4 && to.is_ipv6() {
            return Err(SocketError::FamilyNotSupported);
        }
        if to_port == 0 || to.is_unspecified() {
            return Err(SocketError::Invalid);
        }
        let (to, source) = (wide(to), wide(source));
        let v4 = is_v4(to);
        let wildcard = match sock.family {
            Family::V4 => sock.local4 == 0,
            Family::V6 if v4 => listed(sock.local6) == 0,
            Family::V6 => sock.local6 == 0,
        };
        let reachable = match sock.family {
            Family::V4 => true,
            // Linux lets a socket that a connect gave an IPv6 address go on to an IPv4 remote.
            Family::V6 if v4 => {
                !sock.options.v6only && (wildcard || sock.is_mapped() || self.quirks.placeholder4)
            }
            Family::V6 => wildcard || !sock.is_mapped(),
        };
        if !reachable {
            return Err(match v4 {
                true => SocketError::NetworkUnreachable,
                false => SocketError::FamilyNotSupported,
            });
        }
        // The local address becomes the one that routing selects, which must be of the family.
        if wildcard && (is_v4(source) != v4 || listed(source) == 0) {
            return Err(SocketError::AddressNotAvailable);
        }
        let mut touched = Touched::new(published);
        if sock.port == 0 {
            self.take_port(i, 0, &mut touched)?;
        }
        self.rekey(i, |sock| {
            sock.remote_port = to_port;
            if sock.family == Family::V6 {
                sock.remote6 = to;
            }
            if v4 {
                sock.remote4 = to as u32;
            }
            if wildcard {
                sock.local4 = if v4 { source as u32 } else { STAND_IN };
                if sock.family == Family::V6 {
                    sock.local6 = source;
                }
            }
        });
        let home = self.sock(i).home;
        if wildcard {
            self.rehash(i, &mut touched);
        } else if let Some(group) = self.groups.get_mut(&home) {
            group.had_connected = !self.quirks.by_group;
            touched.group(home, When::Before);
        }
        self.sock_mut(i).connected = true;
        if self.quirks.three_tables {
            self.file(i, &mut touched);
        }
        if !self.quirks.left_group {
            self.go_away(i, &mut touched);
        }
        touched.socket(i);
        touched.publish(self);
        Ok(())
    }

    pub(crate) fn disconnect(
        &mut self,
        published: &Published,
        id: SocketId,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let quirks = self.quirks;
        let mut touched = Touched::new(published);
        let old_device = self.sock(i).device;
        self.rekey(i, |sock| {
            sock.connected = false;
            sock.remote4 = 0;
            sock.remote_port = 0;
            sock.device = 0;
            if !quirks.stale_remote6 {
                sock.remote6 = 0;
            }
            if !quirks.stale_hash4 {
                sock.filed = None;
            }
            if !sock.address_named {
                (sock.local4, sock.local6) = (0, 0);
            }
        });
        let sock = self.sock(i);
        if !sock.port_named {
            self.unhash(i, &mut touched);
        } else if !sock.address_named {
            self.rehash(i, &mut touched);
        }
        let sock = self.sock(i);
        let (home, away) = (sock.home, sock.home != sock.group);
        if sock.device != old_device {
            self.regroup(i, old_device, &mut touched)?;
        } else if away {
            self.come_back(i, home, &mut touched)?;
        }
        touched.socket(i);
        touched.publish(self);
        Ok(())
    }

    /// A change of local address or device: the list of the address and the 4-tuple follow.
    pub(super) fn rehash(&mut self, i: u32, touched: &mut Touched<'_>) {
        if self.sock(i).port == 0 {
            return;
        }
        if self.quirks.left_group {
            self.leave_group(i, touched);
        }
        self.move_to_address(i);
        self.refile(i);
    }

    /// Puts a socket at the head of the list of its local address unless it is on it.
    fn move_to_address(&mut self, i: u32) {
        let sock = self.sock(i);
        let (port, rank, reuseaddr) = (sock.port, sock.rank, sock.reuseaddr);
        let address = sock.list_address();
        if sock.listed_at == address {
            return;
        }
        let old = (sock.listed_at, port);
        self.off_address(old, rank);
        let rank = self.head_rank();
        let sock = self.sock_mut(i);
        (sock.rank, sock.listed_at) = (rank, address);
        self.addresses.entry((address, port)).or_default().insert(rank, i, reuseaddr);
    }

    /// Files a connected socket, which keeps its place if it is filed already and either Linux is
    /// followed or the 4-tuple is the same.
    fn file(&mut self, i: u32, touched: &mut Touched<'_>) {
        if self.sock(i).filed.is_none() {
            // One that is filed stays in a group that a later bind put it into.
            if self.quirks.left_group {
                self.leave_group(i, touched);
            }
            self.file_anew(i);
        } else if !self.quirks.stale_hash4 {
            self.refile(i);
        }
    }

    /// Files a filed socket anew if its 4-tuple is another by now.
    fn refile(&mut self, i: u32) {
        let sock = self.sock(i);
        if cfg!(feature = "hash4") && sock.filed.is_some_and(|f| !f.is_under(&sock.tuple())) {
            self.file_anew(i);
        }
    }

    fn file_anew(&mut self, i: u32) {
        self.filings += 1;
        #[cfg(feature = "hash4")]
        let order = self.filings;
        let sock = self.sock_mut(i);
        sock.filed = Some(Filed {
            #[cfg(feature = "hash4")]
            tuple: sock.tuple(),
            #[cfg(feature = "hash4")]
            order,
        });
    }
}
