//! Reuseport groups: who joins which one, who leaves, and what look-ups see of them.

use crate::SocketError;
use crate::group::{GroupView, HAS_REMOTE4, HAS_REMOTE6, MOST_MEMBERS, Member, Selector};

use super::Writer;
use crate::table::publish::{Touched, When};
use crate::table::ranked::Ranked;
use crate::table::sock::Sock;

/// A reuseport group; ids start at 1.
#[derive(Debug, Default)]
pub(super) struct Group {
    members: Vec<u32>,
    /// Sockets that belong to it, but are connected at present.
    away: usize,
    pub(super) had_connected: bool,
    /// Linux's count of members with a CPU. It goes up when one joins with a CPU or is given its
    /// first by its user, and down when one leaves with a CPU or is relieved of it by its user: so
    /// it misses CPUs that members took on, and falls below 0 when these leave.
    with_cpu: u16,
    pub(super) selector: Selector,
}

impl Group {
    pub(super) fn count_cpu(&mut self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => self.with_cpu = self.with_cpu.wrapping_add(1),
            (true, false) => self.with_cpu = self.with_cpu.wrapping_sub(1),
            (false, false) | (true, true) => {}
        }
    }
}

impl Writer {
    /// Joins the group of the first socket of the port with the same key, which founds one if it
    /// is in none.
    pub(super) fn join_at_bind(
        &mut self,
        i: u32,
        touched: &mut Touched<'_>,
    ) -> Result<(), SocketError> {
        let key = self.sock(i).group_key(!self.quirks.left_group);
        let first = self.by_key.get(&key).and_then(|map| map.iter().next());
        let group = match first.map(|first| (first, self.sock(first).home)) {
            Some((first, 0)) => {
                let group = self.found_group();
                self.add_to_group(first, group, touched)?;
                group
            }
            Some((_, group)) => group,
            None => self.found_group(),
        };
        self.add_to_group(i, group, touched)
    }

    /// Without `left_group` a socket whose device changes goes to the group of its new key.
    pub(super) fn regroup(
        &mut self,
        i: u32,
        old_device: u32,
        touched: &mut Touched<'_>,
    ) -> Result<(), SocketError> {
        let sock = self.sock(i);
        if self.quirks.left_group || sock.home == 0 || sock.device == old_device {
            return Ok(());
        }
        let key = sock.group_key(true);
        self.leave_group(i, touched);
        let others = self.by_key.get(&key).into_iter().flat_map(Ranked::iter);
        let homes = others.filter(|other| *other != i).map(|other| self.sock(other).home);
        let group = homes.into_iter().find(|group| *group != 0);
        let group = group.unwrap_or_else(|| self.found_group());
        self.come_back(i, group, touched)?;
        if self.sock(i).connected {
            self.go_away(i, touched);
        }
        Ok(())
    }

    /// Takes a socket that connects out of its group, to which it still belongs.
    pub(super) fn go_away(&mut self, i: u32, touched: &mut Touched<'_>) {
        let home = self.sock(i).group;
        if home != 0 {
            self.groups.entry(home).or_default().away += 1;
            self.leave_group(i, touched);
            self.sock_mut(i).home = home;
        }
    }

    /// Makes a socket a member of a group to which it may belong already.
    pub(super) fn come_back(
        &mut self,
        i: u32,
        group: u32,
        touched: &mut Touched<'_>,
    ) -> Result<(), SocketError> {
        if self.add_to_group(i, group, touched).is_ok() {
            return Ok(());
        }
        // The group is full by now: it stands alone.
        self.leave_group(i, touched);
        let group = self.found_group();
        self.add_to_group(i, group, touched)
    }

    fn found_group(&mut self) -> u32 {
        loop {
            self.last_group = self.last_group.wrapping_add(1);
            if self.last_group != 0 && !self.groups.contains_key(&self.last_group) {
                self.groups.insert(self.last_group, Group::default());
                return self.last_group;
            }
        }
    }

    fn add_to_group(
        &mut self,
        i: u32,
        group: u32,
        touched: &mut Touched<'_>,
    ) -> Result<(), SocketError> {
        let was_away = self.sock(i).home == group;
        let own = self.groups.entry(group).or_default();
        if own.members.len() >= MOST_MEMBERS {
            return Err(SocketError::AddressInUse); // what Linux 6.18 says to the next one
        }
        own.members.push(i);
        own.away -= usize::from(was_away);
        own.count_cpu(false, touched.has_cpu(i));
        let sock = self.sock_mut(i);
        (sock.home, sock.group) = (group, group);
        touched.group(group, When::Before);
        touched.socket(i);
        Ok(())
    }

    /// Takes a socket out of its group for good.
    pub(super) fn leave_group(&mut self, i: u32, touched: &mut Touched<'_>) {
        let sock = self.sock_mut(i);
        let (home, member) = (std::mem::take(&mut sock.home), std::mem::take(&mut sock.group));
        let Some(group) = self.groups.get_mut(&home) else { return };
        if member == 0 {
            group.away -= 1;
        } else if let Some(place) = group.members.iter().position(|member| *member == i) {
            group.members.swap_remove(place);
            group.count_cpu(touched.has_cpu(i), false);
        }
        if group.members.is_empty() && group.away == 0 {
            self.groups.remove(&home);
        }
        touched.group(home, When::After);
    }

    /// Returns a group as look-ups see it; `None` if it is no more.
    pub(in crate::table) fn group_view(&self, group: u32) -> Option<GroupView> {
        let group = self.groups.get(&group)?;
        let members = group.members.iter().map(|i| self.member(*i)).collect();
        let by_cpu = match self.quirks.left_group {
            true => self.quirks.group_asks_cpu && group.with_cpu != 0,
            false => group.members.iter().any(|i| self.sock(*i).cpu_given),
        };
        Some(GroupView {
            members,
            had_connected: group.had_connected,
            by_cpu,
            selector: group.selector.clone(),
        })
    }

    /// Returns what a group says of its member.
    pub(in crate::table) fn member(&self, i: u32) -> Member {
        let sock = self.sock(i);
        let remotes = if sock.remote4 != 0 { HAS_REMOTE4 } else { 0 }
            | if sock.remote6 != 0 { HAS_REMOTE6 } else { 0 };
        let connected = sock.connected && !self.quirks.by_group;
        Member { socket: self.id(i), connected, flags: sock.flags() | remotes }
    }

    /// Changes what a group key consists of.
    pub(super) fn rekey(&mut self, i: u32, change: impl FnOnce(&mut Sock)) {
        self.unlink_key(i);
        change(self.sock_mut(i));
        self.link_key(i);
    }

    pub(super) fn link_key(&mut self, i: u32) {
        let sock = self.sock(i);
        if sock.port != 0 && sock.reuseport {
            let key = sock.group_key(!self.quirks.left_group);
            let rank = sock.port_rank;
            self.by_key.entry(key).or_default().insert(rank, i);
        }
    }

    pub(super) fn unlink_key(&mut self, i: u32) {
        let sock = self.sock(i);
        if sock.port != 0 && sock.reuseport {
            let key = sock.group_key(!self.quirks.left_group);
            let rank = sock.port_rank;
            if let Some(map) = self.by_key.get_mut(&key) {
                map.remove(rank);
                if map.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::table::Published;
    use crate::{Config, Family, Owner, SocketId, SocketOption};

    use super::*;

    /// Opens a socket with `SO_REUSEPORT` and binds it to port 53 without telling look-ups: the next
    /// version of a group for each of its members would take too long here.
    fn bind(writer: &mut Writer, published: &Published) -> Result<SocketId, SocketError> {
        let id = writer.open(published, Family::V4, Owner(0))?;
        writer.set(published, id, SocketOption::ReusePort(true))?;
        writer.take_port(id.index, 53, &mut Touched::new(published))?;
        Ok(id)
    }

    /// On Linux 6.18 two processes with 18,000 and 14,768 sockets were let in, and the next bind was
    /// refused with `EADDRINUSE`, until one of them closed.
    #[test]
    fn a_group_takes_32768_members_and_refuses_the_next() {
        let config = Config::default();
        let (published, mut writer) = (Published::new(&config), Writer::new(&config));
        let members: Vec<_> = (0..32_768).map(|_| bind(&mut writer, &published).unwrap()).collect();
        let group = writer.sock(members[0].index).group;
        assert!(members.iter().all(|member| writer.sock(member.index).group == group));
        assert_eq!(bind(&mut writer, &published), Err(SocketError::AddressInUse));
        let mut touched = Touched::new(&published);
        writer.unhash(members[7].index, &mut touched);
        let late = bind(&mut writer, &published).unwrap();
        assert_eq!(writer.sock(late.index).group, group);
        assert_eq!(bind(&mut writer, &published), Err(SocketError::AddressInUse));
        let view = writer.group_view(group).unwrap();
        assert_eq!(view.members.len(), 32_768);
        // The last one took the place of the one that left (spec, "Reuseport groups", 2).
        assert_eq!(view.members[7].socket, members[32_767]);
        assert_eq!(view.members[32_767].socket, late);
    }
}
