//! How an explanation comes about: the look-up, and then every socket of the port by itself.
//!
//! Runs under the lock of the namespace, so nothing moves between the look-up and the rest.
//!
//! Always true: what a socket is said to score is what [`Entry::score`] gives it.

use crate::explain::{Explanation, Judged, Mismatch, PickedBy, Place, Score, Why, end};
use crate::group::{CpuOf, Selector};
use crate::{Cast, Found, Packet, SocketId, Stage};

use super::entry::{CONNECTED, Entry, IS_V4, REUSEPORT, TAKES_V4, TAKES_V6};
use super::publish::Published;
use super::tuple::Tuple;
use super::writer::Writer;

impl Writer {
    /// Looks a packet up and says why it went where it did.
    pub(crate) fn explain(&self, published: &Published, packet: &Packet<'_>) -> Explanation {
        let tuple = Tuple::of(packet);
        let mut found = Vec::new();
        published.deliver(packet, false, |receiver| found.push(receiver));
        let on_port = self.ports.get(&packet.dst_port).into_iter();
        let on_port: Vec<u32> = on_port.flat_map(|chain| chain.all.iter()).collect();
        let stage = found.first().map(|found| found.stage);
        let sockets: Vec<_> =
            on_port.iter().map(|i| self.judge(*i, published, packet, &tuple, stage)).collect();
        Explanation {
            source: end((packet.src, packet.src_port)),
            destination: end((packet.dst, packet.dst_port)),
            why: self.why(published, packet, &tuple, &found, &sockets),
            found,
            sockets,
        }
    }

    fn judge(
        &self,
        i: u32,
        published: &Published,
        packet: &Packet<'_>,
        tuple: &Tuple,
        stage: Option<Stage>,
    ) -> Judged {
        let sock = self.sock(i);
        let socket = self.id(i);
        let mut entry = sock.entry(socket);
        let mut place = match sock.listed_at {
            address if address == tuple.local => Place::Address,
            0 => Place::Wildcard,
            _ => Place::Elsewhere,
        };
        if stage == Some(Stage::Port) && sock.has_stand_in() {
            (entry, place) = (sock.stand_in_entry(socket), Place::Address);
        }
        let score = match place {
            Place::Elsewhere => Err(Mismatch::LocalAddress),
            Place::Address | Place::Wildcard => {
                let on_cpu = published.is_on(socket, packet.cpu);
                let score = judge(&entry, packet, on_cpu);
                debug_assert_eq!(
                    score.ok().map(Score::total),
                    entry.score(packet, || on_cpu),
                    "both ways to a score"
                );
                match packet.cast {
                    Cast::Unicast => score,
                    _ if published.takes(socket, entry.flags, packet) => score,
                    _ => score.and(Err(Mismatch::NotJoined)),
                }
            }
        };
        Judged {
            socket,
            local: end((sock.local(), sock.port)),
            remote: sock.remote_end().map(end),
            place,
            filed: sock.connected && sock.filed.is_some_and(|f| f.is_under(&sock.tuple())),
            group: (sock.group != 0).then_some(sock.group),
            score,
        }
    }

    fn why(
        &self,
        published: &Published,
        packet: &Packet<'_>,
        tuple: &Tuple,
        found: &[Found],
        sockets: &[Judged],
    ) -> Why {
        let exactly: Vec<SocketId> = sockets
            .iter()
            .filter(|judged| judged.remote == Some(end((packet.src, packet.src_port))))
            .filter(|judged| judged.score.is_ok() && judged.place == Place::Address)
            .map(|judged| judged.socket)
            .filter(|socket| found.iter().all(|found| found.socket != *socket))
            .collect();
        let Some(first) = found.first() else {
            // Somebody fits, but nobody was found: only a selector does that.
            let fits = sockets.iter().any(|judged| judged.score.is_ok());
            return if fits && packet.cast == Cast::Unicast { Why::Refused } else { Why::Nobody };
        };
        match first.stage {
            Stage::EarlyDemux => Why::EarlyDemux,
            Stage::Flood => Why::EveryTaker,
            Stage::FourTuple => {
                let filed = |socket: &SocketId| {
                    self.sock(socket.index).filed.is_some_and(|filed| filed.is_under(tuple))
                };
                Why::FourTuple { twins: exactly.into_iter().filter(filed).collect() }
            }
            Stage::Address | Stage::Wildcard | Stage::Port => {
                if first.stage != Stage::Port
                    && let Some((members, by)) = self.picked(published, packet, first)
                {
                    return Why::Group { members, by, passed_over: exactly };
                }
                let own = sockets.iter().find(|judged| judged.socket == first.socket);
                let ties = own.map_or_else(Vec::new, |own| {
                    let rivals = sockets.iter().filter(|judged| {
                        sum(judged) == sum(own)
                            && judged.place == own.place
                            && judged.socket != own.socket
                    });
                    rivals.map(|judged| judged.socket).collect()
                });
                Why::Score { ties }
            }
        }
    }

    /// Returns the size of the group that picked a socket, and by what it did; `None` if it was
    /// met itself.
    fn picked(
        &self,
        published: &Published,
        packet: &Packet<'_>,
        found: &Found,
    ) -> Option<(usize, PickedBy)> {
        let i = found.socket.index;
        let group = self.sock(i).group;
        let view = self.group_view(group)?;
        let asks = |member: u32| {
            let flags = self.sock(member).flags();
            flags & REUSEPORT != 0 && (flags & CONNECTED == 0 || published.by_group)
        };
        let mut members = view.members.iter().map(|member| member.socket.index);
        if found.connected && !published.by_group || !members.any(asks) {
            return None;
        }
        let by = match view.selector {
            Selector::Hash if view.by_cpu && published.is_on(found.socket, packet.cpu) => {
                PickedBy::Cpu
            }
            Selector::Hash => PickedBy::Hash,
            _ => PickedBy::Selector,
        };
        Some((view.members.len(), by))
    }
}

fn sum(judged: &Judged) -> Option<i32> {
    judged.score.ok().map(Score::total)
}

/// As [`Entry::score`], with what counts and what does not fit kept apart.
fn judge(entry: &Entry, packet: &Packet<'_>, on_cpu: bool) -> Result<Score, Mismatch> {
    let v4 = packet.src.is_ipv4();
    let weight = if v4 { 4 } else { 1 };
    let mut score = Score { cpu: u8::from(on_cpu), ..Score::default() };
    if !entry.has(if v4 { TAKES_V4 } else { TAKES_V6 }) {
        return Err(Mismatch::Family);
    }
    if v4 {
        score.family = if entry.has(IS_V4) { 2 } else { 1 };
    }
    if entry.has_remote(v4) {
        let same = match packet.src {
            std::net::IpAddr::V4(src) => entry.remote4 == src.to_bits(),
            std::net::IpAddr::V6(src) => entry.remote6 == src.to_bits(),
        };
        if !same {
            return Err(Mismatch::RemoteAddress);
        }
        score.remote_address = weight;
    }
    if entry.remote_port != 0 {
        if entry.remote_port != packet.src_port {
            return Err(Mismatch::RemotePort);
        }
        score.remote_port = weight;
    }
    if entry.device != 0 {
        if !entry.fits_device(packet.device) {
            return Err(Mismatch::Device);
        }
        score.device = weight;
    }
    Ok(score)
}
