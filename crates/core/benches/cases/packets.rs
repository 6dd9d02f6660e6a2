//! The way of a packet: dissect, hash, probe, decide, step by step and all together.
//!
//! In cache: 256 frames of one shape in random order and a table of 65,536 entries that knows their flows, on a
//! host of 64 CPUs; each flow is where its consumer is. Beyond it: 8 M flows in 16 M entries, each
//! packet of a flow drawn at random, its source address written into one of 32 frames.

use std::hint::black_box;
use std::rc::Rc;

use etherparse::{
    EtherType, Ethernet2Slice, IpNumber, Ipv4Slice, Ipv6Slice, NetSlice, SlicedPacket, TcpSlice,
    TransportSlice, UdpSlice,
};
use rxsteer_core::dissect::{Dissected, Options, Start, dissect};
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{
    Aware, Class, Decision, Host, KernelVersion, LinuxRules, Packet, PolicyKind, PortRule, Queue,
    Steering, Tables,
};
use rxsteer_core::table::{Bucket, Epoch, RepeatFilter};
use rxsteer_core::{CpuId, FlowHash};

use super::hashes::{K0, K1};
use super::{Case, Random, probes};

const FRAMES: usize = 256;
const BURST: usize = 32;
/// Packets of one run beyond the cache.
const RUN: usize = 4096;
const NOW: Epoch = Epoch(1);
const HASHER: SoftHasher = SoftHasher { k0: K0, k1: K1 };

type Policy = Steering<Vec<Bucket>, Vec<std::sync::atomic::AtomicU32>>;

/// 64 CPUs, all online, backlogs empty.
struct Idle {
    online: u64,
}

impl Host for Idle {
    fn is_online(&self, cpu: CpuId) -> bool {
        self.online >> (cpu.0 & 63) & 1 == 1
    }

    fn head(&self, _: CpuId) -> u32 {
        0
    }

    fn tail(&self, _: CpuId) -> u32 {
        0
    }
}

/// Returns a frame of 64 bytes, or as many as its headers need: VLAN tags, IP, UDP or TCP.
pub(crate) fn frame(tags: usize, ipv6: bool, protocol: u8, flow: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in 0..tags {
        frame.extend([0x81, 0, 0, tag as u8 + 1]);
    }
    let transport: &[u8] = if protocol == 6 {
        &[4, 0, 1, 187, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]
    } else {
        &[4, 0, 1, 187, 0, 26, 0, 0]
    };
    if ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, protocol, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(flow.to_be_bytes());
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    } else {
        frame.extend([0x08, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(flow.to_be_bytes());
        frame.extend([198, 51, 100, 1]);
    }
    frame.extend(transport);
    frame.resize(frame.len().max(64), 0);
    frame
}

/// Sets the source address of an untagged IPv4 frame.
fn set_flow(frame: &mut [u8], flow: u32) {
    if let Some(address) = frame.get_mut(26..30) {
        address.copy_from_slice(&flow.to_be_bytes());
    }
}

/// Reads a frame in place: to return the result by value would copy it while it is still on its
/// way to memory, which costs more than to make it.
#[inline(always)]
fn read(frame: &[u8], out: &mut Dissected) {
    *out = Dissected::EMPTY;
    // A frame that ends early still has the hash of what was read, as in Linux.
    let _ = dissect(frame, Start::Ethernet, &Options::KERNEL, out);
}

#[inline(always)]
fn class(read: &Dissected, frame: &[u8]) -> Class {
    let flags = if read.key.protocol == 6 {
        frame.get(read.transport_offset as usize + 13).copied().unwrap_or(0)
    } else {
        0
    };
    Class::new(read.key.protocol, flags, false)
}

#[inline(always)]
fn hash(frame: &[u8]) -> FlowHash {
    let mut out = Dissected::EMPTY;
    read(frame, &mut out);
    HASHER.hash_symmetric(&out.key)
}

#[inline(always)]
fn hash_and_class(frame: &[u8]) -> (FlowHash, Class) {
    let mut out = Dissected::EMPTY;
    read(frame, &mut out);
    (HASHER.hash_symmetric(&out.key), class(&out, frame))
}

/// The `flow-aware` policy with a table of `entries` for each class that knows `flows`.
fn policy(entries: usize, flows: impl Iterator<Item = FlowHash> + Clone, tcp: bool) -> Policy {
    let known = probes::table(entries, flows);
    let other = probes::table(8, std::iter::empty());
    let (tcp, udp) = if tcp { (known, other) } else { (other, known) };
    let filter = RepeatFilter::new((0..64).map(|_| 0.into()).collect()).expect("a power of two");
    let rules = LinuxRules::of(KernelVersion::NEWEST);
    Steering::new(PolicyKind::FlowAware, rules, Aware::default(), Tables::Flows(tcp, udp, filter))
}

struct Place {
    host: Idle,
    map: Vec<CpuId>,
    slots: Vec<std::sync::atomic::AtomicU64>,
}

impl Place {
    fn new() -> Self {
        let slots = (0..256).map(|_| 0.into()).collect();
        Self {
            host: Idle { online: black_box(u64::MAX) },
            map: (0..64).map(CpuId).collect(),
            slots,
        }
    }

    #[inline(always)]
    fn steer(&self, policy: &Policy, hash: FlowHash, class: Class) -> Decision {
        let queue = Queue { map: &self.map, slots: &self.slots };
        let rule = PortRule::Learn;
        let packet = Packet { hash, class, rule, arrived_on: CpuId(0), refused: false };
        policy.steer(&queue, &packet, &self.host, NOW)
    }
}

fn sum(decision: Decision) -> u64 {
    u64::from(decision.cpu.0) + decision.reason.index() as u64
}

fn each(
    group: &str,
    name: &'static str,
    frames: &Rc<[Vec<u8>]>,
    run: impl Fn(&[u8]) -> u64 + 'static,
) -> Case {
    let frames = Rc::clone(frames);
    let order = order();
    let mut turn = 0;
    Case::new(group, name, RUN, move || {
        turn = (turn + RUN) % order.len();
        let order = black_box(&order[turn..turn + RUN]);
        order.iter().fold(0, |sum, n| sum.wrapping_add(run(&frames[usize::from(*n)])))
    })
}

/// The same for 32 packets at a time, step by step: what a receive loop that gets bursts would do.
fn in_bursts(group: &str, frames: &Rc<[Vec<u8>]>, policy: Rc<Policy>) -> Case {
    let (frames, place) = (Rc::clone(frames), Place::new());
    let order = order();
    let mut turn = 0;
    Case::new(group, "all four, burst of 32", RUN, move || {
        turn = (turn + RUN) % order.len();
        let mut reads = [Dissected::EMPTY; BURST];
        let mut told = [(FlowHash::NONE, Class::Other); BURST];
        let mut total = 0;
        for burst in black_box(&order[turn..turn + RUN]).chunks(BURST) {
            // A loop for each step: the shorter its body, the more packets are under way at once.
            for (out, n) in reads.iter_mut().zip(burst) {
                read(&frames[usize::from(*n)], out);
            }
            for ((told, out), n) in told.iter_mut().zip(&reads).zip(burst) {
                let frame = &frames[usize::from(*n)];
                *told = (HASHER.hash_symmetric(&out.key), class(out, frame));
            }
            for (hash, class) in told {
                total += sum(place.steer(&policy, hash, class));
            }
        }
        total
    })
}

/// Random numbers of frames: the same 256 in turn would teach the branch predictor what comes.
fn order() -> Vec<u8> {
    let mut random = Random(3);
    (0..RUN * 8).map(|_| (random.next() % FRAMES as u64) as u8).collect()
}

/// Reads the fields of untagged IPv4 from fixed places: no decision but one comparison.
fn plain_loop(frame: &[u8]) -> u64 {
    let Some(header) = frame.first_chunk::<38>() else { return 0 };
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let ethertype = u16::from_be_bytes([header[12], header[13]]);
    if ethertype != 0x0800 {
        return 1;
    }
    u64::from(word(26)) + u64::from(word(30)) + u64::from(word(34)) + u64::from(header[23])
}

/// The same fields by way of `etherparse`.
fn by_etherparse(frame: &[u8]) -> u64 {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return 0 };
    let addresses = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            u64::from(u32::from_ne_bytes(header.source()))
                + u64::from(u32::from_ne_bytes(header.destination()))
        }
        Some(NetSlice::Ipv6(ip)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            u64::from(src[15]) + u64::from(dst[15])
        }
        _ => 0,
    };
    let ports = match &packet.transport {
        Some(TransportSlice::Udp(udp)) => {
            u32::from(udp.source_port()) + u32::from(udp.destination_port())
        }
        Some(TransportSlice::Tcp(tcp)) => {
            u32::from(tcp.source_port()) + u32::from(tcp.destination_port())
        }
        _ => 0,
    };
    addresses + u64::from(ports)
}

/// The same by way of `etherparse`'s slices of single headers, for frames without tags: the least
/// that it can do, since the caller knows what comes next.
fn by_headers(frame: &[u8]) -> u64 {
    let fields = || {
        let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).ok()?;
        let packet = ethernet.payload().payload;
        let (protocol, payload) = if ethernet.ether_type() == EtherType::IPV4 {
            let ip = Ipv4Slice::from_slice(packet).ok()?;
            (ip.payload_ip_number(), ip.payload().payload)
        } else {
            let ip = Ipv6Slice::from_slice(packet).ok()?;
            (ip.payload().ip_number, ip.payload().payload)
        };
        let ports = if protocol == IpNumber::UDP {
            let udp = UdpSlice::from_slice(payload).ok()?;
            (udp.source_port(), udp.destination_port())
        } else {
            let tcp = TcpSlice::from_slice(payload).ok()?;
            (tcp.source_port(), tcp.destination_port())
        };
        Some(u64::from(ports.0) + u64::from(ports.1))
    };
    fields().unwrap_or(0)
}

/// In the cache, by shape of the packet.
pub(crate) fn in_cache() -> Vec<Case> {
    let shapes: [(&str, usize, bool, u8); 4] = [
        ("ipv4_udp/64B", 0, false, 17),
        ("ipv4_tcp/64B", 0, false, 6),
        ("ipv6_udp/64B", 0, true, 17),
        ("two_vlans_ipv4_udp/64B", 2, false, 17),
    ];
    let mut cases = Vec::new();
    for (shape, tags, ipv6, protocol) in shapes {
        let group = format!("packet/{shape}");
        let frames: Rc<[Vec<u8>]> =
            (0..FRAMES as u32).map(|n| frame(tags, ipv6, protocol, 0xc000_0200 + n)).collect();
        let flows = frames.iter().map(|frame| hash(frame));
        if shape == "ipv4_udp/64B" {
            cases.push(each(&group, "floor: plain loop", &frames, plain_loop));
        }
        cases.push(each(&group, "etherparse, SlicedPacket", &frames, by_etherparse));
        if tags == 0 {
            cases.push(each(&group, "etherparse, header by header", &frames, by_headers));
        }
        cases.push(each(&group, "dissect", &frames, |frame| {
            let mut out = Dissected::EMPTY;
            read(frame, &mut out);
            // All of it, not only what the next line reads.
            black_box(&out);
            u64::from(out.key.ports())
        }));
        cases.push(each(&group, "dissect + hash", &frames, |frame| u64::from(hash(frame).0)));
        let policy = Rc::new(policy(65_536, flows, protocol == 6));
        let (one, place) = (Rc::clone(&policy), Place::new());
        cases.push(each(&group, "dissect + hash + probe + decide", &frames, move |frame| {
            let (hash, class) = hash_and_class(frame);
            sum(place.steer(&one, hash, class))
        }));
        cases.push(in_bursts(&group, &frames, policy));
    }
    cases
}

/// A table of 16 M entries with 8 M flows: memory, not cache.
pub(crate) fn beyond_cache() -> Vec<Case> {
    const ENTRIES: usize = 1 << 24;
    const FLOWS: u32 = 1 << 23;
    let group = "packet/ipv4_udp/64B/16M entries";
    let mut template = frame(0, false, 17, 0);
    let flows = (0..FLOWS).map(move |flow| {
        set_flow(&mut template, flow);
        hash(&template)
    });
    let policy = Rc::new(policy(ENTRIES, flows, false));
    let case = |name, touch: bool, burst: usize| {
        let (policy, place) = (Rc::clone(&policy), Place::new());
        let mut random = Random(7);
        let mut frames: Vec<_> = (0..BURST).map(|_| frame(0, false, 17, 0)).collect();
        let mut reads = [Dissected::EMPTY; BURST];
        Case::new(group, name, RUN, move || {
            let mut total = 0;
            for _ in 0..RUN / BURST {
                for frame in &mut frames {
                    set_flow(frame, random.next() as u32 % FLOWS);
                }
                let mut told = [(FlowHash::NONE, Class::Other); BURST];
                for (frames, told) in
                    black_box(&frames[..]).chunks(burst).zip(told.chunks_mut(burst))
                {
                    for (frame, out) in frames.iter().zip(&mut reads) {
                        read(frame, out);
                    }
                    for ((frame, out), told) in frames.iter().zip(&reads).zip(told.iter_mut()) {
                        *told = (HASHER.hash_symmetric(&out.key), class(out, frame));
                    }
                    if touch {
                        // A loop of its own: a load that waits lets only so many instructions pass.
                        told.iter().for_each(|(hash, class)| policy.touch(*hash, *class));
                    }
                    for (hash, class) in told.iter() {
                        total += sum(place.steer(&policy, *hash, *class));
                    }
                }
            }
            total
        })
    };
    vec![
        case("all, one by one", false, 1),
        case("all, burst of 32, not touched", false, BURST),
        case("all, burst of 32, touched", true, BURST),
    ]
}
