//! Reuseport groups.

use rxsteer_core::CpuId;

use super::Model;
use crate::DeviceId;

#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    pub(super) had_connected: bool,
    /// Linux's count of members with a CPU. It goes up when one joins with a CPU or is given its
    /// first by its user, and down when one leaves with a CPU or is relieved of it by its user: so
    /// it misses CPUs that members took on, and falls below 0 when these leave.
    pub(super) with_cpu: u16,
}

impl Group {
    pub(super) fn count_cpu(&mut self, before: Option<CpuId>, after: Option<CpuId>) {
        match (before, after) {
            (None, Some(_)) => self.with_cpu = self.with_cpu.wrapping_add(1),
            (Some(_), None) => self.with_cpu = self.with_cpu.wrapping_sub(1),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}

impl Model {
    fn same_group_key(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.socks[a], &self.socks[b]);
        if !self.quirks.left_group {
            return a.group_key() == b.group_key();
        }
        a.family == b.family
            && a.options.v6only == b.options.v6only
            && a.port == b.port
            && a.device == b.device
            && a.owner == b.owner
            && a.address() == b.address()
    }

    pub(super) fn join_group_at_bind(&mut self, i: usize) {
        let port = self.socks[i].port;
        let on_port = self.by_port.get(&port).cloned().unwrap_or_default();
        let mut same = on_port.into_iter().filter(|other| {
            *other != i && self.socks[*other].reuseport && self.same_group_key(i, *other)
        });
        let first = same.next();
        let group = match first.map(|other| (other, self.socks[other].home)) {
            Some((_, Some(group))) => group,
            Some((other, None)) => {
                let group = self.found_group();
                self.add_to_group(other, group);
                group
            }
            None => self.found_group(),
        };
        self.add_to_group(i, group);
    }

    fn found_group(&mut self) -> usize {
        self.groups.push(Group::default());
        self.groups.len() - 1
    }

    fn add_to_group(&mut self, i: usize, group: usize) {
        self.groups[group].members.push(i);
        self.groups[group].count_cpu(None, self.socks[i].cpu);
        self.socks[i].group = Some(group);
        self.socks[i].home = Some(group);
    }

    pub(super) fn leave_group(&mut self, i: usize) {
        self.socks[i].home = None;
        if let Some(group) = self.socks[i].group.take() {
            let members = &mut self.groups[group].members;
            if let Some(place) = members.iter().position(|member| *member == i) {
                members.swap_remove(place);
                self.groups[group].count_cpu(self.socks[i].cpu, None);
            }
        }
    }

    /// Without `left_group` a connected socket is no member, but belongs to its group.
    pub(super) fn go_away(&mut self, i: usize) {
        if !self.quirks.left_group && self.socks[i].connected {
            let home = self.socks[i].home;
            self.leave_group(i);
            self.socks[i].home = home;
        }
    }

    pub(super) fn come_back(&mut self, i: usize) {
        if let (None, Some(home)) = (self.socks[i].group, self.socks[i].home) {
            self.add_to_group(i, home);
        }
    }

    /// Without `left_group` a member whose device changes goes to the group of its new key.
    pub(super) fn regroup(&mut self, i: usize, old_device: Option<DeviceId>) {
        let sock = &self.socks[i];
        if self.quirks.left_group || sock.home.is_none() || sock.device == old_device {
            return;
        }
        self.leave_group(i);
        let on_port = self.by_port.get(&self.socks[i].port).into_iter().flatten();
        let group = on_port
            .filter(|other| **other != i && self.socks[**other].reuseport)
            .filter(|other| self.same_group_key(i, **other))
            .find_map(|other| self.socks[*other].home);
        let group = group.unwrap_or_else(|| self.found_group());
        self.add_to_group(i, group);
        self.go_away(i);
    }
}
