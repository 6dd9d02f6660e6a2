//! A group as look-ups see it, and the pick of a member.

use rxsteer_core::{CpuId, FlowHash};

use crate::{Packet, SocketId};

use super::{Choice, Selector};

/// Flags of a member beside those of a candidate: it has a remote IPv4 or IPv6 address.
pub(crate) const HAS_REMOTE4: u16 = 1 << 14;
pub(crate) const HAS_REMOTE6: u16 = 1 << 15;

/// A member of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Member {
    pub(crate) socket: SocketId,
    pub(crate) connected: bool,
    pub(crate) flags: u16,
}

/// A version of a group; writers publish the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupView {
    pub(crate) members: Box<[Member]>,
    /// A member connected at some time: then a pick is not final.
    pub(crate) had_connected: bool,
    /// A member was given an incoming CPU.
    pub(crate) by_cpu: bool,
    pub(crate) selector: Selector,
}

/// Where the incoming CPUs of sockets are.
pub(crate) trait CpuOf {
    /// Returns whether the socket prefers packets of this CPU.
    fn is_on(&self, socket: SocketId, cpu: CpuId) -> bool;
}

/// What came of a pick.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Picked {
    Member(Member),
    /// All members are connected.
    Nobody,
    /// The selection refuses the packet.
    Refused,
}

impl GroupView {
    /// Picks a member for a packet; the flag says that the selector's rule could not be applied.
    pub(crate) fn pick(
        &self,
        packet: &Packet<'_>,
        hash: FlowHash,
        cpus: &impl CpuOf,
    ) -> (Picked, bool) {
        let count = self.members.len();
        let choice = self.selector.choose(packet, count);
        match choice {
            Some(Choice::Refuse) => return (Picked::Refused, false),
            Some(Choice::Member(index)) => {
                // A connected member is another flow's.
                if let Some(member) = self.members.get(index).filter(|member| !member.connected) {
                    return (Picked::Member(*member), false);
                }
            }
            Some(Choice::Hash) | None => {}
        }
        let not_applied = !matches!(choice, Some(Choice::Hash));
        let (before, from) = self.members.split_at(hash.scale(count as u32) as usize);
        let mut free = from.iter().chain(before).filter(|member| !member.connected);
        let Some(first) = free.next() else { return (Picked::Nobody, not_applied) };
        let picked = if self.by_cpu {
            let mut all = std::iter::once(first).chain(free);
            all.find(|member| cpus.is_on(member.socket, packet.cpu)).unwrap_or(first)
        } else {
            first
        };
        (Picked::Member(*picked), not_applied)
    }
}
