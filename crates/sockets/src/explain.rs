//! Why a datagram reached the socket that it did: every socket of its port, and what counted.
//!
//! Always true: an explanation has every socket that is bound to the packet's port, once, and its
//! receivers are those of a look-up of the same packet at the same instant.
//! Elsewhere: how it comes about (`table::explain`).

use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};

use crate::{Found, SocketId};

/// Why a datagram reached the socket that it did. `Display` writes it for people, one line for the
/// outcome and one a socket.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Source of the packet.
    pub source: SocketAddr,
    /// Destination of the packet.
    pub destination: SocketAddr,
    /// Who gets it; several only if it is a multicast or a broadcast.
    pub found: Vec<Found>,
    /// What decided.
    pub why: Why,
    /// All sockets of the destination port, as bind goes through them: the one bound last first, but
    /// IPv6 sockets with `SO_REUSEPORT` last.
    pub sockets: Vec<Judged>,
}

/// What decided who gets a datagram.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Why {
    /// No socket fits.
    Nobody,
    /// A group's selector refused it.
    Refused,
    /// Early demultiplexing: the head of the address list is connected to exactly the source, or a
    /// multicast has one taker.
    EarlyDemux,
    /// It is connected to exactly the source, and found by that before any score.
    FourTuple {
        /// Others connected to the same source, which were filed before it.
        twins: Vec<SocketId>,
    },
    /// It has the highest score.
    Score {
        /// Others on its list with the same score: Linux takes the one that it meets first, which
        /// is the last bound, but nothing promises that.
        ties: Vec<SocketId>,
    },
    /// Its reuseport group picked it.
    Group {
        /// Members of the group.
        members: usize,
        /// What the pick went by.
        by: PickedBy,
        /// Sockets that are connected to exactly the source and did not get it: the fault of
        /// kernels before 5.2.17.
        passed_over: Vec<SocketId>,
    },
    /// Every socket that takes the multicast or broadcast gets it.
    EveryTaker,
}

/// What the pick of a reuseport group went by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PickedBy {
    /// The hash of the 4-tuple.
    Hash,
    /// Its incoming CPU is the packet's.
    Cpu,
    /// The selector of the group, or the hash where the selector left it to that.
    Selector,
}

/// A socket of the port, and how well it fits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Judged {
    /// The socket.
    pub socket: SocketId,
    /// Its local address and port.
    pub local: SocketAddr,
    /// Its remote end, if it is connected.
    pub remote: Option<SocketAddr>,
    /// The list that it is on.
    pub place: Place,
    /// Whether it is in the 4-tuple table, where lists are not needed.
    pub filed: bool,
    /// Number of its reuseport group, if it is a member of one.
    pub group: Option<u32>,
    /// What it scores, or why it does not fit.
    pub score: Result<Score, Mismatch>,
}

/// Where a look-up meets a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Among those with the packet's destination as their address.
    Address,
    /// Among those without an address, which are asked if none of the others fits.
    Wildcard,
    /// Not at all.
    Elsewhere,
}

/// What counts for a socket; a look-up takes the highest sum.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Score {
    /// IPv4 only: 2 for an IPv4 socket, 1 for an IPv6 one.
    pub family: u8,
    /// Its remote address is the packet's: 4 for IPv4, 1 for IPv6.
    pub remote_address: u8,
    /// The same for the remote port.
    pub remote_port: u8,
    /// The same for the device.
    pub device: u8,
    /// 1 if its incoming CPU is the packet's.
    pub cpu: u8,
}

impl Score {
    /// Returns the sum.
    pub const fn total(self) -> i32 {
        let Self { family, remote_address, remote_port, device, cpu } = self;
        family as i32 + remote_address as i32 + remote_port as i32 + device as i32 + cpu as i32
    }
}

/// Why a socket does not fit a packet at all.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Mismatch {
    /// It is at another local address.
    LocalAddress,
    /// It takes no packets of the family.
    Family,
    /// It has another remote address, or keeps one of an earlier connection.
    RemoteAddress,
    /// It is connected to another port.
    RemotePort,
    /// It is bound to another device.
    Device,
    /// It did not join the multicast group, or filters out the source.
    NotJoined,
}

impl Mismatch {
    /// Returns a few words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LocalAddress => "another local address",
            Self::Family => "not of this family",
            Self::RemoteAddress => "another remote address",
            Self::RemotePort => "another remote port",
            Self::Device => "another device",
            Self::NotJoined => "did not join, or filters the source out",
        }
    }
}

impl Explanation {
    /// Writes the explanation with names of the caller's for the sockets.
    pub fn text(&self, name: impl Fn(SocketId) -> String) -> String {
        let mut text = format!("{} > {}: ", self.source, self.destination);
        // Writing to a string does not fail.
        let _ = self.outcome(&mut text, &name);
        for judged in &self.sockets {
            let _ = judged.line(&mut text, &name);
        }
        text
    }

    fn outcome(&self, text: &mut String, name: &impl Fn(SocketId) -> String) -> fmt::Result {
        let all = |sockets: &[SocketId]| {
            sockets.iter().map(|socket| name(*socket)).collect::<Vec<_>>().join(", ")
        };
        let found: Vec<_> = self.found.iter().map(|found| found.socket).collect();
        if !found.is_empty() {
            write!(text, "{}, ", all(&found))?;
        }
        match &self.why {
            Why::Nobody => write!(text, "nobody: no socket fits"),
            Why::Refused => write!(text, "nobody: the group's selector refuses it"),
            Why::EarlyDemux => write!(text, "by early demultiplexing, before any look-up"),
            Why::FourTuple { twins } => {
                write!(text, "connected to exactly this source")?;
                if !twins.is_empty() {
                    write!(text, ", and later than {}", all(twins))?;
                }
                Ok(())
            }
            Why::Score { ties } => {
                write!(text, "of the highest score")?;
                if !ties.is_empty() {
                    write!(text, ", as {}: the kernel picks one; not defined", all(ties))?;
                }
                Ok(())
            }
            Why::Group { members, by, passed_over } => {
                let by = match by {
                    PickedBy::Hash => "hash",
                    PickedBy::Cpu => "CPU",
                    PickedBy::Selector => "selector",
                };
                match members {
                    1 => write!(text, "the only member of its group")?,
                    _ => write!(text, "picked by {by} of a group of {members}")?,
                }
                if !passed_over.is_empty() {
                    write!(
                        text,
                        "; {} is connected to exactly this source and passed over: kernels before \
                         5.2.17 deliver by group",
                        all(passed_over)
                    )?;
                }
                Ok(())
            }
            Why::EveryTaker => write!(text, "every socket that takes it"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|socket| socket.to_string()))
    }
}

impl Judged {
    fn line(&self, text: &mut String, name: &impl Fn(SocketId) -> String) -> fmt::Result {
        write!(text, "\n    {}  {}", name(self.socket), self.local)?;
        if let Some(remote) = self.remote {
            write!(text, " < {remote}")?;
        }
        match self.score {
            Ok(score) => {
                write!(text, "  score {}", score.total())?;
                let parts = [
                    ("family", score.family),
                    ("remote address", score.remote_address),
                    ("remote port", score.remote_port),
                    ("device", score.device),
                    ("CPU", score.cpu),
                ];
                let mut before = " = ";
                for (what, points) in parts.into_iter().filter(|(_, points)| *points != 0) {
                    write!(text, "{before}{what} {points}")?;
                    before = " + ";
                }
            }
            Err(mismatch) => write!(text, "  does not fit: {}", mismatch.words())?,
        }
        if self.filed {
            write!(text, ", in the 4-tuple table")?;
        } else if self.place == Place::Wildcard {
            write!(text, ", on the wildcard's list")?;
        }
        match self.group {
            Some(group) => write!(text, ", in group {group}"),
            None => Ok(()),
        }
    }
}

/// Returns an address and port as one.
pub(crate) fn end((address, port): (IpAddr, u16)) -> SocketAddr {
    SocketAddr::new(address, port)
}
