//! Packet by packet: where it was processed, where it was predicted to be, and why the two differ.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;

use rxsteer_core::CpuId;
use rxsteer_core::dissect::{Dissected, Options, Start, dissect};
use rxsteer_core::steer::Reason;
use rxsteer_lab::replay::Chosen;
use rxsteer_testbed::Pair;

use crate::cpus_of;
use crate::tap::Seen;
use crate::traffic::Consumer;

/// Why a prediction may differ.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Why {
    /// The flow stayed longer on its old CPU. A program in the kernel knows that a CPU is done with a
    /// packet only when its thread rests or has taken a hundred more; the model knows at once.
    MovedLater,
    /// The flow moved sooner, for the model let its reader run or its packets wait longer.
    MovedSooner,
    /// The model knows the flow, the table did not yet, or no longer.
    NotKnownLive,
    /// The table knew the flow, the model did not yet, or no longer.
    NotKnownInModel,
    /// The port led to its reader, which the model does not know of.
    ByPort,
    /// None of these.
    Unexplained,
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::MovedLater => "the flow moved later than predicted",
            Self::MovedSooner => "the flow moved sooner than predicted",
            Self::NotKnownLive => "the flow was not known, as was predicted",
            Self::NotKnownInModel => "the flow was known, which was not predicted",
            Self::ByPort => "the port of a socket without a peer led to its reader",
            Self::Unexplained => "unexplained",
        }
    }
}

/// What came of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Packets processed where predicted.
    pub(crate) agreed: u64,
    /// Packets that did not reach a tap of the receiver.
    pub(crate) not_seen: u64,
    /// Packets elsewhere than predicted.
    pub(crate) differ: BTreeMap<Why, u64>,
    /// Packets by the CPU that processed them.
    pub(crate) live_on: BTreeMap<u16, u64>,
}

impl Judged {
    pub(crate) fn compared(&self) -> u64 {
        self.agreed + self.differ.values().sum::<u64>()
    }

    pub(crate) fn agreement(&self) -> f64 {
        self.agreed as f64 / self.compared().max(1) as f64
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.agreement() * 100.0;
        write!(f, "{} of {} packets as predicted, {share:.2} %", self.agreed, self.compared())?;
        for (why, count) in &self.differ {
            write!(f, "; {count}: {}", why.text())?;
        }
        if self.not_seen > 0 {
            write!(f, "; {} not seen by the receiver", self.not_seen)?;
        }
        write!(f, "; by CPU {:?}", self.live_on)
    }
}

/// The ends of a packet: protocol, ports, and whether the receiver gets it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Ends {
    tcp: bool,
    src_port: u16,
    dst_port: u16,
    received: bool,
}

/// Returns the ends of a TCP or UDP packet.
fn ends(frame: &[u8]) -> Option<Ends> {
    let mut out = Dissected::EMPTY;
    dissect(frame, Start::Ethernet, &Options::KERNEL, &mut out).ok()?;
    let key = &out.key;
    let tcp = match key.protocol {
        6 => true,
        17 => false,
        _ => return None,
    };
    let (v4, v6) = (Pair::SINK_V4.octets(), Pair::SINK_V6.octets());
    let received = if key.ethertype == 0x0800 { key.dst[..4] == v4 } else { key.dst == v6 };
    // The label of an IPv6 flow stands in for the ports of its key; they are in the frame.
    let at = out.transport_offset as usize;
    let port = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    Some(Ends { tcp, src_port: port(at)?, dst_port: port(at + 2)?, received })
}

/// Returns for each packet the CPU that processed it; `None` for those that the receiver sent, that are
/// not compared, or that no tap saw.
pub(crate) fn live(
    packets: &[Seen],
    mut taps: HashMap<Vec<u8>, VecDeque<CpuId>>,
) -> Vec<Option<CpuId>> {
    let one = |seen: &Seen| {
        ends(&seen.frame).filter(|ends| ends.received)?;
        taps.get_mut(&seen.frame[14..])?.pop_front()
    };
    packets.iter().map(one).collect()
}

/// Fails if a socket says of a datagram that another CPU put it there than the one whose tap saw it.
pub(crate) fn check_with_sockets(packets: &[Seen], live: &[Option<CpuId>], consumers: &[Consumer]) {
    let mut by_flow: HashMap<(u16, u16), Vec<CpuId>> = HashMap::new();
    for (seen, cpu) in packets.iter().zip(live) {
        if let Some(ends) = ends(&seen.frame).filter(|ends| !ends.tcp)
            && let Some(cpu) = cpu
        {
            by_flow.entry((ends.dst_port, ends.src_port)).or_default().push(*cpu);
        }
    }
    for consumer in consumers.iter().filter(|consumer| !consumer.tcp && consumer.connected) {
        let tapped = &by_flow[&(consumer.local, consumer.remote)];
        assert_eq!(*tapped, consumer.incoming, "port {}", consumer.local);
    }
}

/// Compares the CPU of every packet with that of its prediction.
pub(crate) fn judge(
    packets: &[Seen],
    live: &[Option<CpuId>],
    chosen: &HashMap<u64, Chosen>,
    strangers: u16,
) -> Judged {
    let mut judged = Judged { live_on: cpus_of(live), ..Judged::default() };
    // Where the last packet of each flow was processed, and was predicted to be.
    let mut last: HashMap<Ends, (CpuId, CpuId)> = HashMap::new();
    for (index, (seen, cpu)) in packets.iter().zip(live).enumerate() {
        let Some(ends) = ends(&seen.frame).filter(|ends| ends.received) else { continue };
        let Some(cpu) = *cpu else {
            judged.not_seen += 1;
            continue;
        };
        let predicted = chosen.get(&(index as u64 + 1)).expect("every packet received has one");
        let before = last.insert(ends, (cpu, predicted.cpu));
        if cpu == predicted.cpu {
            judged.agreed += 1;
            continue;
        }
        let known = matches!(predicted.reason, Reason::Hit | Reason::Held | Reason::Beside);
        let why = match before {
            _ if ends.dst_port == strangers => Why::ByPort,
            Some((live, _)) if known && live == cpu => Why::MovedLater,
            Some((_, model)) if known && model == predicted.cpu => Why::MovedSooner,
            _ if known => Why::NotKnownLive,
            _ if predicted.reason == Reason::Miss => Why::NotKnownInModel,
            _ => Why::Unexplained,
        };
        *judged.differ.entry(why).or_default() += 1;
    }
    judged
}
