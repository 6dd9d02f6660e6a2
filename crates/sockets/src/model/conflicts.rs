//! Who may share a port.

use std::net::Ipv6Addr;

use super::{Model, Sock};
use crate::Family;

impl Model {
    /// Whether two sockets on one port exclude each other, and if they meet at all.
    fn meet(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.socks[a], &self.socks[b]);
        let devices_differ = a.device.is_some() && b.device.is_some() && a.device != b.device;
        let both_share = a.reuseaddr && b.reuseaddr;
        !both_share && !devices_differ && overlap(a, b)
    }

    fn may_share(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.socks[a], &self.socks[b]);
        a.reuseport && b.reuseport && a.owner == b.owner
    }

    /// Whether the first socket met on a list refuses `i`.
    fn first_met_refuses(&self, i: usize, list: &[usize]) -> bool {
        list.iter().find(|other| self.meet(i, **other)).is_some_and(|met| !self.may_share(i, *met))
    }

    pub(super) fn conflicts(&self, i: usize, port: u16) -> bool {
        let empty = Vec::new();
        let on_port = self.by_port.get(&port).unwrap_or(&empty);
        let address = self.socks[i].list_address();
        if on_port.len() > 10 && !address.is_unspecified() {
            let list = |address| self.by_address.get(&(address, port)).unwrap_or(&empty);
            return self.first_met_refuses(i, list(address))
                || self.first_met_refuses(i, list(Ipv6Addr::UNSPECIFIED));
        }
        self.first_met_refuses(i, on_port)
    }

    pub(super) fn automatic_port_is_free(&self, i: usize, port: u16) -> bool {
        let empty = Vec::new();
        let on_port = self.by_port.get(&port).unwrap_or(&empty);
        on_port.iter().all(|other| !self.meet(i, *other) || self.may_share(i, *other))
    }
}

/// Whether two local addresses overlap: equal, or one a wildcard that covers the other.
fn overlap(a: &Sock, b: &Sock) -> bool {
    let covers = |wild: &Sock, other: &Sock| match wild.family {
        Family::V4 => wild.local4.is_unspecified() && !other.options.v6only,
        Family::V6 if wild.is_mapped() => {
            wild.local4.is_unspecified()
                && !other.options.v6only
                && (other.family == Family::V4 || other.is_mapped())
        }
        Family::V6 => {
            wild.local6.is_unspecified()
                && !(wild.options.v6only && (other.family == Family::V4 || other.is_mapped()))
        }
    };
    let equal = match (a.family, b.family) {
        (Family::V6, Family::V6) => a.local6 == b.local6,
        _ => !a.options.v6only && !b.options.v6only && a.local4 == b.local4,
    };
    equal || covers(a, b) || covers(b, a)
}
