//! The programs: context, core call, XDP action.

use core::cell::Cell;

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS};
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_coarse_ns};
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::{Array, CpuMap, PerCpuArray};
use aya_ebpf::programs::XdpContext;
use rxsteer_core::bytes::{FORGET_CELLS, View};
use rxsteer_core::dissect::{Dissected, Start, dissect};
use rxsteer_core::steer::{
    Class, Decision, Packet, PortRule, Queue, Reason, choose_flow_aware, enqueued_flow_aware,
};
use rxsteer_core::table::{Epoch, Lookup, Probe, place_entry};
use rxsteer_core::{Bytes, CpuId, FlowHash, FlowKey};
use rxsteer_ebpf::{Config, MAX_CPUS, OPTIONS, Seen, live, reason_index};

use crate::backlog;
use crate::credits;
use crate::flows::{Flows, swap};
use crate::frame::XdpFrame;
use crate::host::{MapHost, queue, slots_of_ports, spread};
use crate::ports::{self, Names};

/// What a program keeps outside its stack of 512 bytes, and outside the verifier's eyes.
#[repr(C)]
pub(crate) struct Scratch {
    /// What was read of the frame.
    dissected: Dissected,
    /// Cells for `Bytes::forget`.
    cells: [u32; FORGET_CELLS],
}

/// Scratch memory, one a CPU: an XDP program is not preempted by another on its CPU.
#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Settings.
#[map]
static CONFIG: Array<[u64; Config::WORDS]> = Array::with_max_entries(1, 0);

/// The CPUs that take packets.
#[map]
static CPUS: CpuMap = CpuMap::with_max_entries(MAX_CPUS as u32, 0);

/// Packets by class and by the reason of their decision.
#[map]
static REASONS: PerCpuArray<u64> =
    PerCpuArray::with_max_entries((Class::COUNT * Reason::COUNT) as u32, 0);

/// What was made of the last frame. For test runs, one at a time: CPUs would overwrite each other.
#[map]
static SEEN: Array<Seen> = Array::with_max_entries(1, 0);

/// Sends each packet to the CPU that core decides on.
#[xdp]
pub(crate) fn rxsteer_steer(ctx: XdpContext) -> u32 {
    steer(&ctx)
}

/// Records what core makes of the frame, decision included, and passes it.
#[xdp]
pub(crate) fn rxsteer_observe(ctx: XdpContext) -> u32 {
    let _ = observe(&ctx);
    XDP_PASS
}

/// Spreads by a hash of addresses and ports at their usual places: what a program for CPUMAP does
/// that knows neither tunnels nor flows. For measurement.
#[xdp]
pub(crate) fn rxsteer_bare(ctx: XdpContext) -> u32 {
    bare(&ctx).unwrap_or(XDP_PASS)
}

/// Does nothing: the floor of every measurement.
#[xdp]
pub(crate) fn rxsteer_pass(_ctx: XdpContext) -> u32 {
    XDP_PASS
}

/// Returns the settings.
#[inline(always)]
pub(crate) fn config() -> Option<Config> {
    Some(Config::from_words(CONFIG.get(0)?))
}

#[inline(always)]
fn steer(ctx: &XdpContext) -> u32 {
    let Some(Decided { hash, class, queue, decision }) = decided(ctx) else {
        // A queue beyond the maps: without a say of ours, and counted all the same.
        count(Class::Other, Reason::Local);
        return XDP_PASS;
    };
    let Decision { cpu, reason, .. } = decision;
    if reason == Reason::Shed {
        count(class, reason);
        return XDP_DROP;
    }
    if reason == Reason::Local {
        count(class, reason);
        return XDP_PASS;
    }
    let Ok(action) = CPUS.redirect(u32::from(cpu.0), u64::from(XDP_PASS)) else {
        // No such entry: it was taken out a moment ago.
        count(class, Reason::Local);
        return XDP_PASS;
    };
    enqueued_flow_aware(&queue, hash, &decision, backlog::put(cpu));
    count(class, reason);
    action
}

/// A decision and what it is about.
struct Decided {
    hash: FlowHash,
    class: Class,
    queue: Queue<'static>,
    decision: Decision,
}

#[inline(always)]
fn decided(ctx: &XdpContext) -> Option<Decided> {
    let config = config()?;
    let read = read(ctx, &config)?;
    decide(ctx, &config, &read)
}

#[inline(always)]
fn count(class: Class, reason: Reason) {
    if let Some(count) = REASONS.get_ptr_mut(reason_index(class, reason) as u32) {
        // SAFETY: a value of a per-CPU map, which only this CPU writes.
        unsafe { *count += 1 };
    }
}

#[inline(always)]
fn observe(ctx: &XdpContext) -> Option<()> {
    let config = config()?;
    let read = read(ctx, &config)?;
    let Decided { decision, .. } = decide(ctx, &config, &read)?;
    let seen = SEEN.get_ptr_mut(0)?;
    // SAFETY: a map value of plain integers, which lives as long as the program.
    unsafe { (*seen).write(read.out, read.stopped, read.hash, &decision) };
    Some(())
}

#[inline(always)]
fn bare(ctx: &XdpContext) -> Option<u32> {
    const ETHERNET: usize = 14;
    let cells = [const { Cell::new(0) }; FORGET_CELLS];
    let frame = XdpFrame::new(ctx, &cells);
    let (addresses, ports) = match frame.u16(12)? {
        0x0800 => {
            let header = frame.view::<24>(ETHERNET)?;
            (header.u32(12) ^ header.u32(16), header.u32(20))
        }
        0x86dd => {
            let header = frame.view::<44>(ETHERNET)?;
            let words = [8, 12, 16, 20, 24, 28, 32, 36].map(|at| header.u32(at));
            (words.iter().fold(0, |sum, word| sum ^ word), header.u32(40))
        }
        _ => return None,
    };
    let hash = FlowHash((addresses ^ ports ^ ports >> 16).wrapping_mul(0x9e37_79b1));
    let cpu = spread(ctx.rx_queue_index(), hash)?;
    CPUS.redirect(u32::from(cpu.0), u64::from(XDP_PASS)).ok()
}

/// What was read of a frame.
struct Read<'a> {
    out: &'a Dissected,
    stopped: u32,
    hash: FlowHash,
}

#[inline(always)]
fn read<'a>(ctx: &XdpContext, config: &Config) -> Option<Read<'a>> {
    let scratch = SCRATCH.get_ptr_mut(0)?;
    // SAFETY: the value lives as long as the program, only this CPU uses it, and it starts as
    // zeroes, of which every field has a value.
    let (out, cells) = unsafe { (&mut (*scratch).dissected, cells(&raw mut (*scratch).cells)) };
    let frame = XdpFrame::new(ctx, cells);
    let stopped = Seen::stopped(dissect(&frame, Start::Ethernet, &OPTIONS, out));
    let stopped = frame.forget(0, stopped);
    let hash = if out.has_key() {
        FlowHash(frame.forget(1, config.hasher.hash_symmetric(&out.key).0))
    } else {
        FlowHash::NONE
    };
    Some(Read { out, stopped, hash })
}

#[inline(always)]
fn decide(ctx: &XdpContext, config: &Config, read: &Read<'_>) -> Option<Decided> {
    // SAFETY: the helpers have no conditions.
    let (cpu, ns) = unsafe { (bpf_get_smp_processor_id(), bpf_ktime_get_coarse_ns()) };
    let key = &read.out.key;
    let class = Class::new(key.protocol, read.out.tcp_flags, false);
    let now = Epoch::from_ns(ns);
    let flows = Flows::of(config, class)?;
    let mut known = match class.may_be_flow() {
        true => flows.lookup(read.hash, now),
        false => Lookup::missed(Probe::NotAsked, false),
    };
    let mut refused = false;
    if class == Class::Udp && read.out.has_ports() && ports::live(live::PRESENT) != 0 {
        (known, refused) = ask_port(known, read.hash, key, ctx.rx_queue_index(), ns);
    }
    // The one bucket that may be written, found here once for all ways that lead there.
    let bucket = match known.by_port {
        true => ports::bucket(known.bucket()),
        false => flows.bucket(known.bucket()),
    };
    let packet = Packet {
        hash: read.hash,
        class,
        rule: PortRule::default(),
        arrived_on: CpuId(cpu as u16),
        refused,
    };
    let mut queue = queue(ctx.rx_queue_index(), read.hash)?;
    if known.by_port {
        // Packets of one port may come in by several queues.
        queue.slots = slots_of_ports()?.slots;
    }
    let decision = choose_flow_aware(
        &config.aware,
        &queue,
        &packet,
        &MapHost,
        now,
        |_, _| known,
        |place, seen, cpu, moving| {
            place_entry(
                place,
                seen,
                cpu,
                moving,
                |_| bucket,
                |word, old, new| swap(word.as_ptr(), old, new),
            )
        },
    );
    Some(Decided { hash: read.hash, class, queue, decision })
}

/// Returns what is known with what the local port says, and whether the socket has no room.
#[inline(always)]
fn ask_port(known: Lookup, hash: FlowHash, key: &FlowKey, queue: u32, ns: u64) -> (Lookup, bool) {
    let now = Epoch::from_ns(ns);
    let names = Names::of(key);
    let with_port = ports::consult(known, &names, queue, ns, now);
    if !credits::are_pressed() || !credits::are_on() {
        return (with_port, false);
    }
    // What a connected socket gets is no affair of the others on its port.
    let refused = if known.entry().is_some() {
        credits::refuses(hash, ns, || true)
    } else {
        credits::refuses(names.bound, ns, || true)
            || credits::refuses(names.wild, ns, || credits::is_local(key))
    };
    (with_port, refused)
}

/// # Safety
/// `cells` points to memory that lives as long as the program and that nothing else borrows.
#[inline(always)]
unsafe fn cells(cells: *mut [u32; FORGET_CELLS]) -> &'static [Cell<u32>; FORGET_CELLS] {
    // SAFETY: the caller's duty; `Cell<u32>` has the layout of `u32`.
    unsafe { &*cells.cast() }
}

/// The verifier has proved that no path leads here.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Asks the kernel for the helpers that it keeps for GPL-compatible programs; MIT is one.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
