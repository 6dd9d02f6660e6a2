//! Flows over UDP sockets that are not connected, on ports that were declared for flows.
//!
//! What such a socket receives and sends says nothing of its peer, so the packet itself must be seen: a
//! program on the way out sees it, on the CPU of the thread that sends. But not surely so: a packet that
//! waited, for an address to be resolved or in a queue, is sent from wherever that ended; and a packet of
//! another network namespace can pass by. So that program only notes the flow, and it is recorded when
//! the tracepoint tells, on the same CPU, that this socket has just sent.
//!
//! Always true: a port that was not declared costs a look at a bit; a peer that is answered once gets no
//! entry, and none in use goes for one that is answered again.
//! Elsewhere: what is counted ([`rxsteer_ebpf::answer`]); hearing the sockets ([`crate::sockets`]).

use core::cell::Cell;

use aya_ebpf::bindings::{__sk_buff, bpf_sock};
use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_get_socket_cookie, bpf_sk_fullsock,
};
use aya_ebpf::macros::{classifier, map};
use aya_ebpf::maps::{Array, PerCpuArray};
use aya_ebpf::programs::TcContext;
use rxsteer_core::bytes::FORGET_CELLS;
use rxsteer_core::dissect::{AddrKind, Dissected, Start, dissect};
use rxsteer_core::steer::Class;
use rxsteer_core::table::{Epoch, Recorded, sight_in_word};
use rxsteer_core::{Bytes as _, CpuId, FlowHash};
use rxsteer_ebpf::{Config, OPTIONS, answer, live};

use crate::flows::Flows;
use crate::frame::SkbFrame;
use crate::ports;
use crate::programs::config;

const UDP: u32 = 17;
const UDP_LITE: u32 = 136;
const ESTABLISHED: u32 = 1;
/// Verdict of a program on the way out: the next one is asked (`TCX_NEXT`).
const NEXT: i32 = -1;

/// Ports that were declared for flows, a bit each.
#[map]
static FLOW_PORTS: Array<u64> = Array::with_max_entries(answer::PORT_WORDS, 0);

/// The last answer that this CPU has seen: the cookie of its socket, and the hash of its flow.
#[map]
static ANSWER: PerCpuArray<[u64; answer::WORDS]> = PerCpuArray::with_max_entries(1, 0);

/// Peers that were answered, by a few bits of their hash.
#[map]
static SIGHTINGS: Array<[u32; answer::SIGHTINGS_A_VALUE as usize]> =
    Array::with_max_entries(answer::SIGHTINGS / answer::SIGHTINGS_A_VALUE, 0);

/// What became of answers, by the places in [`answer`].
#[map]
static ANSWERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(answer::COUNT as u32, 0);

/// What the program keeps outside its stack: as for XDP.
#[repr(C)]
struct Scratch {
    dissected: Dissected,
    cells: [u32; FORGET_CELLS],
}

/// Scratch memory, one a CPU: packets go out with softirqs held off, so one at a time.
#[map]
static OUT_SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Sees each packet that the interface is to send.
#[classifier]
pub(crate) fn rxsteer_out(ctx: TcContext) -> i32 {
    note(ctx.skb.skb);
    NEXT
}

/// Notes an answer of a socket that is not connected, if its port was declared.
#[inline(always)]
fn note(skb: *mut __sk_buff) -> Option<()> {
    let port = port_of(skb)?;
    let bits = FLOW_PORTS.get(u32::from(port >> 6))?;
    if *bits >> (port & 63) & 1 == 0 {
        return None;
    }
    count(answer::HEARD);
    let Some(hash) = hash(skb, port) else {
        count(answer::UNREAD);
        return None;
    };
    let slot = ANSWER.get_ptr_mut(0)?;
    // SAFETY: the context of this program, which the helper takes; a value of a per-CPU map.
    unsafe { *slot = [bpf_get_socket_cookie(skb.cast()), u64::from(hash.0)] };
    Some(())
}

/// Returns the port of the UDP socket that sends a packet, if the socket has no peer. A packet that came
/// in by another interface has no socket, or is one of another namespace: it is not sent here.
#[inline(always)]
fn port_of(skb: *mut __sk_buff) -> Option<u16> {
    // SAFETY: fields of the context, loaded whole, as the verifier wants it.
    let (sk, came_by) = unsafe {
        let sk = (&raw const (*skb).__bindgen_anon_2).cast::<*mut bpf_sock>().read_volatile();
        (sk, (&raw const (*skb).ingress_ifindex).read_volatile())
    };
    if sk.is_null() || came_by != 0 {
        return None;
    }
    // SAFETY: a pointer that the verifier knows as one of a socket, and not null.
    let sk = unsafe { bpf_sk_fullsock(sk) };
    if sk.is_null() {
        return None;
    }
    // SAFETY: fields of a socket, loaded whole.
    let (protocol, state, peer, own) = unsafe {
        (
            (&raw const (*sk).protocol).read_volatile(),
            (&raw const (*sk).state).read_volatile(),
            (&raw const (*sk).dst_port).read_volatile(),
            (&raw const (*sk).src_port).read_volatile(),
        )
    };
    let is_one = matches!(protocol, UDP | UDP_LITE) && state != ESTABLISHED && peer == 0;
    is_one.then_some(own as u16)
}

/// Returns the hash of the flow of a packet that is sent from `port`: that of its other direction too.
#[inline(always)]
fn hash(skb: *mut __sk_buff, port: u16) -> Option<FlowHash> {
    let config = config()?;
    let scratch = OUT_SCRATCH.get_ptr_mut(0)?;
    // SAFETY: the value lives as long as the program, only this CPU uses it, and it starts as zeroes, of
    // which every field has a value; `Cell<u32>` has the layout of `u32`.
    let (out, cells) = unsafe {
        let cells: *mut [Cell<u32>; FORGET_CELLS] = (&raw mut (*scratch).cells).cast();
        (&mut (*scratch).dissected, &*cells)
    };
    let frame = SkbFrame::of(skb, cells);
    // What stopped it shows in what it found.
    let _ = dissect(&frame, Start::Ethernet, &OPTIONS, out);
    let key = &out.key;
    let is_ip = matches!(key.addr_kind, AddrKind::V4 | AddrKind::V6);
    let is_udp = matches!(u32::from(key.protocol), UDP | UDP_LITE);
    // Of another port: a tunnel's outer packet, or one that was translated.
    if !out.has_ports() || !is_ip || !is_udp || key.src_port != port {
        return None;
    }
    Some(FlowHash(frame.forget(1, config.hasher.hash_symmetric(key).0)))
}

/// Hears that a socket without a peer has sent, on the CPU of the calling thread; `is_heard` says whether
/// it is of a namespace that is heard. Returns what came of it, if it was an answer.
#[inline(always)]
pub(crate) fn sent(
    cookie: u64,
    now: impl FnOnce() -> Epoch,
    is_heard: impl FnOnce() -> bool,
) -> Option<Recorded> {
    if ports::live(live::SWITCHES) & live::FLOW_PORTS == 0 {
        return None;
    }
    let slot = ANSWER.get_ptr_mut(0)?;
    // SAFETY: a value of a per-CPU map. A program that interrupts this one leaves another socket's
    // answer there, or one of this socket: both are whole.
    let [of, hash] = unsafe { *slot };
    if of != cookie || !is_heard() {
        return None;
    }
    // SAFETY: as above.
    unsafe { (*slot)[0] = 0 };
    let config = config()?;
    // SAFETY: the helper has no conditions.
    let cpu = CpuId(unsafe { bpf_get_smp_processor_id() } as u16);
    Some(record(&config, FlowHash(hash as u32), cpu, now()))
}

/// Records the flow of an answer, and counts what came of it.
#[inline(always)]
fn record(config: &Config, hash: FlowHash, cpu: CpuId, now: Epoch) -> Recorded {
    let mut is_strange = false;
    let may_enter = || {
        is_strange = sightings(hash) < config.aware.flows_after;
        !is_strange
    };
    let Some(flows) = Flows::of(config, Class::Udp) else { return Recorded::NotAFlow };
    let recorded = flows.record_if(hash, cpu, now, may_enter);
    count(match recorded {
        Recorded::NotAFlow if is_strange => answer::STRANGE,
        Recorded::NotAFlow => answer::FULL,
        Recorded::Inserted | Recorded::Evicted(_) => answer::ENTERED,
        _ => answer::KNOWN,
    });
    recorded
}

/// Notes that a peer was answered, and returns how often it was, as far as is remembered.
#[inline(always)]
fn sightings(hash: FlowHash) -> u32 {
    let place = hash.mix(answer::SIGHTINGS.ilog2());
    let Some(words) = SIGHTINGS.get_ptr_mut(place / answer::SIGHTINGS_A_VALUE) else { return 1 };
    // SAFETY: in bounds of a map value. Of two writers at a time one is not heard: it will speak again.
    unsafe {
        let word = words.cast::<u32>().add((place % answer::SIGHTINGS_A_VALUE) as usize);
        let (new, count) = sight_in_word(word.read_volatile(), hash);
        word.write_volatile(new);
        count
    }
}

#[inline(always)]
fn count(place: u32) {
    if let Some(count) = ANSWERS.get_ptr_mut(place) {
        // SAFETY: a value of a per-CPU map; see the counts of records.
        unsafe { *count += 1 };
    }
}
