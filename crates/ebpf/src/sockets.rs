//! What sockets tell of their flows.
//!
//! A connected socket's flow has one key, which is in the socket: the key of the packets that it
//! receives. So its hash needs no packet. At the end of a connection the kernel has partly taken the
//! key away already, and for UDP it tells neither of a disconnect nor of a new peer: so the hash that
//! each socket is responsible for is kept ([`SOCKETS`]). It is withdrawn when TCP says that the
//! connection is closed, when a UDP socket is next heard of without a peer or with another, and when
//! a UDP socket is closed for good.
//!
//! Always true: only sockets of the namespace that the loader named are heard, if it named one: the
//! two ends of a connection between namespaces of one machine have the same hash. A socket is
//! responsible for at most one entry.
//! Elsewhere: places in the kernel's structures ([`rxsteer_ebpf::Offsets`]).

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_get_socket_cookie, bpf_ktime_get_ns,
};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{LruHashMap, PerCpuArray};
use rxsteer_core::dissect::AddrKind;
use rxsteer_core::steer::{Class, port_name};
use rxsteer_core::table::{Epoch, Recorded};
use rxsteer_core::{CpuId, FlowHash, FlowKey};
use rxsteer_ebpf::{Config, Offsets, live, place};

use crate::answers;
use crate::credits::{self, Room};
use crate::flows::Flows;
use crate::frame::opaque;
use crate::ports;
use crate::programs::config;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const TCP: u16 = 6;
const UDP: u16 = 17;
const UDP_LITE: u16 = 136;
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE_WAIT: u8 = 8;

/// How far the cheap clock of the XDP programs may be behind this one's: two slow ticks. An entry must
/// not be confirmed in an epoch that has not begun for them.
const SLACK_NS: u64 = 20_000_000;

/// Of a word in [`SOCKETS`].
const IS_TCP: u64 = 1 << 32;
/// Of a word in [`SOCKETS`]: the hash is the name of a port.
const IS_PORT: u64 = 1 << 33;
/// Of a word in [`SOCKETS`]: an IPv6 socket that takes IPv4 too, on the port in the upper 16 bits.
const IS_DUAL: u64 = 1 << 34;
const PORT_SHIFT: u32 = 48;

const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Places in the kernel's structures; the loader writes them before the programs are loaded.
#[unsafe(no_mangle)]
static OFFSETS: [u32; Offsets::WORDS] = [0; Offsets::WORDS];

/// Number of the namespace whose sockets are heard; 0: all.
#[unsafe(no_mangle)]
static NAMESPACE: u32 = 0;

/// Numbers of the namespace and of the interface whose ports are served; 0: any.
#[unsafe(no_mangle)]
static PLACE: [u32; 2] = [0; 2];

/// What each socket is responsible for, by its cookie: a hash, and above it what kind it is.
#[map]
static SOCKETS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(65_536, 0);

/// What came of hearing sockets, by [`Recorded::index`].
#[map]
static RECORDS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Recorded::COUNT as u32, 0);

/// A socket of the kernel, as a tracepoint hands it over.
#[derive(Clone, Copy)]
struct Sock(*const c_void);

impl Sock {
    #[inline(always)]
    fn load<T: Copy>(self, place: usize, more: usize) -> T {
        let offset = offset(place).wrapping_add(more);
        // SAFETY: the verifier knows the type of the pointer, and lets a load pass only if it is
        // of a field of that type; a load that faults reads as 0.
        unsafe { self.0.cast::<u8>().add(offset).cast::<T>().read_volatile() }
    }

    #[inline(always)]
    fn is_heard(self) -> bool {
        // SAFETY: a global; volatile, so that the loader's value is read.
        let wanted = unsafe { (&raw const NAMESPACE).read_volatile() };
        if wanted == 0 {
            return true;
        }
        let namespace = Self(self.load::<*const c_void>(place::NAMESPACE, 0));
        namespace.load::<u32>(place::NAMESPACE_NUMBER, 0) == wanted
    }

    /// Returns whether packets of the interface may reach this socket by its port alone.
    #[inline(always)]
    fn is_served(self) -> bool {
        // SAFETY: as above.
        let [wanted, device] = unsafe { (&raw const PLACE).read_volatile() };
        let namespace = Self(self.load::<*const c_void>(place::NAMESPACE, 0));
        let number: u32 = namespace.load(place::NAMESPACE_NUMBER, 0);
        let bound: u32 = self.load(place::BOUND_DEVICE, 0);
        (wanted == 0 || number == wanted) && (bound == 0 || bound == device)
    }

    /// Returns the names of the socket's port.
    #[inline(always)]
    fn port(self) -> Port {
        let port: u16 = self.load(place::OWN_PORT, 0);
        if port == 0 {
            return Port::NONE;
        }
        let v4 = |address: u32| match address {
            0 => (port_name(port, false, None), live::WILD),
            _ => (port_name(port, false, Some([address, 0, 0, 0])), live::BOUND),
        };
        if self.load::<u16>(place::FAMILY, 0) == AF_INET {
            let (name, flag) = v4(self.load(place::OWN_V4, 0));
            return Port { name, flag, dual: FlowHash::NONE };
        }
        let words = [0, 4, 8, 12].map(|more| self.load::<u32>(place::OWN_V6, more));
        match words {
            [0, 0, 0, 0] => {
                let only: u8 = self.load(place::V6_ONLY, 0);
                let takes_v4 = u32::from(only) & offset(place::V6_ONLY_MASK) as u32 == 0;
                let dual = if takes_v4 { v4(0).0 } else { FlowHash::NONE };
                Port { name: port_name(port, true, None), flag: live::WILD, dual }
            }
            [0, 0, mapped, address] if mapped == 0xffff_u32.to_be() => {
                let (name, flag) = v4(address);
                Port { name, flag, dual: FlowHash::NONE }
            }
            _ => Port {
                name: port_name(port, true, Some(words)),
                flag: live::BOUND,
                dual: FlowHash::NONE,
            },
        }
    }

    /// Returns whether other sockets get packets that this one could get: one of a group that
    /// shares the port, or one that listens to a group of hosts.
    #[inline(always)]
    fn shares(self) -> bool {
        let group = Self(self.load::<*const c_void>(place::GROUP, 0));
        if !group.0.is_null() && group.load::<u16>(place::GROUP_SIZE, 0) > 1 {
            return true;
        }
        if self.load::<u16>(place::FAMILY, 0) == AF_INET {
            return u32::from_be(self.load(place::OWN_V4, 0)) >> 28 == 0xe;
        }
        self.load::<u8>(place::OWN_V6, 0) == 0xff
    }

    #[inline(always)]
    fn is_ip(self) -> bool {
        matches!(self.load::<u16>(place::FAMILY, 0), AF_INET | AF_INET6)
    }

    /// Returns the hash of the packets that a connected socket receives.
    #[inline(always)]
    fn hash(self, config: &Config, protocol: u16) -> FlowHash {
        let mut key = FlowKey::EMPTY;
        key.src_port = u16::from_be(self.load(place::PEER_PORT, 0));
        key.dst_port = self.load(place::OWN_PORT, 0);
        key.protocol = protocol as u8;
        if key.src_port == 0 {
            return FlowHash::NONE;
        }
        if self.load::<u16>(place::FAMILY, 0) == AF_INET {
            self.v4(&mut key);
        } else {
            let words = |at| [0, 4, 8, 12].map(|more| self.load::<u32>(at, more));
            let (src, dst) = (words(place::PEER_V6), words(place::OWN_V6));
            if src[0] == 0 && src[1] == 0 && src[2] == 0xffff_u32.to_be() {
                // An IPv6 socket that talks IPv4; its IPv4 fields are filled in too.
                self.v4(&mut key);
            } else {
                key.ethertype = 0x86dd;
                key.addr_kind = AddrKind::V6;
                key.src = bytes(src);
                key.dst = bytes(dst);
            }
        }
        config.hasher.hash_symmetric(&key)
    }

    #[inline(always)]
    fn v4(self, key: &mut FlowKey) {
        key.ethertype = 0x0800;
        key.addr_kind = AddrKind::V4;
        key.src = bytes([self.load(place::PEER_V4, 0), 0, 0, 0]);
        key.dst = bytes([self.load(place::OWN_V4, 0), 0, 0, 0]);
    }

    #[inline(always)]
    fn room(self) -> Room {
        Room {
            queued_bytes: self.load(place::QUEUED_BYTES, 0),
            buffer_bytes: self.load(place::BUFFER_BYTES, 0),
        }
    }

    #[inline(always)]
    fn cookie(self) -> u64 {
        // SAFETY: the verifier knows the pointer as that of a socket.
        unsafe { bpf_get_socket_cookie(self.0.cast_mut()) }
    }
}

/// The names of a socket's port.
#[derive(Clone, Copy)]
struct Port {
    name: FlowHash,
    /// [`live::WILD`] or [`live::BOUND`].
    flag: u64,
    /// That of IPv4, of an IPv6 socket that takes both.
    dual: FlowHash,
}

impl Port {
    const NONE: Self = Self { name: FlowHash::NONE, flag: 0, dual: FlowHash::NONE };
}

/// What a socket was heard to do.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Said {
    /// It took a packet off its queue.
    Read,
    /// It looked into its queue, or waited there in vain.
    Asked,
    /// It sent.
    Sent,
}

/// Hears what a socket did on this CPU.
#[inline(always)]
pub(crate) fn spoke(sock: *const c_void, said: Said) {
    let sock = Sock(sock);
    if !sock.is_ip() {
        return;
    }
    let protocol = sock.load::<u16>(place::PROTOCOL, 0);
    let state = sock.load::<u8>(place::STATE, 0);
    let class = match protocol {
        TCP => Class::Tcp,
        UDP | UDP_LITE => Class::Udp,
        _ => return,
    };
    let is_connected = state == TCP_ESTABLISHED || protocol == TCP && state == TCP_CLOSE_WAIT;
    if !is_connected {
        if protocol != TCP {
            spoke_for_port(sock, said);
        }
        return;
    }
    if !sock.is_heard() {
        return;
    }
    let Some(config) = config() else { return };
    let hash = sock.hash(&config, protocol);
    // SAFETY: the helpers have no conditions.
    let (cpu, ns) = unsafe { (bpf_get_smp_processor_id(), bpf_ktime_get_ns()) };
    let Some(flows) = Flows::of(&config, class) else { return };
    let recorded =
        flows.record(hash, CpuId(cpu as u16), Epoch::from_ns(ns.saturating_sub(SLACK_NS)));
    let recorded = some(recorded.index() as u64, ns) as usize;
    count_at(recorded);
    // What is in the table already was noted when it got there.
    if is_new(recorded) {
        let kind = if class.is_tcp() { IS_TCP } else { 0 };
        answer_for(sock.cookie(), u64::from(hash.0) | kind);
    }
    if said == Said::Read && protocol != TCP && credits::are_pressed() {
        credits::read(hash, sock.room(), ns);
    }
}

/// Hears what a UDP socket did that is not connected.
#[inline(always)]
fn spoke_for_port(sock: Sock, said: Said) {
    let cookie = sock.cookie();
    // SAFETY: a word of a map that is read whole.
    let old = unsafe { SOCKETS.get(&cookie) }.copied();
    if old.is_some_and(|word| word & IS_PORT == 0) {
        forget(cookie);
    }
    if said == Said::Sent {
        // SAFETY: the helper has no conditions.
        let now = || Epoch::from_ns(unsafe { bpf_ktime_get_ns() }.saturating_sub(SLACK_NS));
        if let Some(recorded) = answers::sent(cookie, now, || sock.is_heard()) {
            count(recorded);
        }
        return;
    }
    let is_off = ports::live(live::SWITCHES) & live::PORTS == 0;
    if is_off || !sock.is_served() {
        return;
    }
    let Port { name, flag, dual } = sock.port();
    let room = sock.room();
    let (queued, buffer) = (room.queued_bytes, room.buffer_bytes);
    let told = some(flag | u64::from(said == Said::Read) << READ_SHIFT, cookie);
    let (name, dual) = (some(u64::from(name.0), cookie), some(u64::from(dual.0), cookie));
    let (name, dual) = (FlowHash(name as u32), FlowHash(dual as u32));
    let is_new = some(hear_port(name.0, told, queued, buffer), cookie);
    if !dual.is_none() {
        hear_port(dual.0, told, queued, buffer);
    }
    if is_new != 0 {
        let kind = if dual.is_none() { IS_PORT } else { IS_PORT | IS_DUAL };
        let port: u16 = sock.load(place::OWN_PORT, 0);
        answer_for(cookie, u64::from(name.0) | kind | u64::from(port) << PORT_SHIFT);
    }
}

/// Of what [`hear_port`] is told: the socket took a packet off its queue.
const READ_SHIFT: u32 = 32;

/// Hears that the calling thread reads a port; returns 1 if the port was not known.
///
/// A function of its own in eBPF, as it is called twice: the verifier has a limit.
#[inline(never)]
fn hear_port(name: u32, told: u64, queued_bytes: u32, buffer_bytes: u32) -> u64 {
    // SAFETY: the helpers have no conditions.
    let (cpu, ns) = unsafe { (bpf_get_smp_processor_id(), bpf_ktime_get_ns()) };
    let epoch = Epoch::from_ns(ns.saturating_sub(SLACK_NS));
    let name = FlowHash(name);
    let recorded = ports::heard(name, told as u32 as u64, CpuId(cpu as u16), ns, epoch);
    let recorded = some(recorded.index() as u64, ns);
    count_at(recorded as usize);
    if told >> READ_SHIFT != 0 && credits::are_pressed() {
        credits::read(name, Room { queued_bytes, buffer_bytes }, ns);
    }
    u64::from(is_new(recorded as usize))
}

/// Returns `value`, of which neither LLVM nor the verifier then knows what it may be: so all ways that
/// lead here go on as one. `any` is a number that neither knows.
#[inline(always)]
fn some(value: u64, any: u64) -> u64 {
    opaque((value ^ any) as usize) as u64 ^ any
}

#[inline(always)]
const fn is_new(recorded: usize) -> bool {
    recorded == Recorded::Inserted.index() || recorded == Recorded::Evicted(FlowHash::NONE).index()
}

/// Hears that a UDP socket had no room for a packet.
#[inline(always)]
pub(crate) fn full(sock: *const c_void, packet: *const c_void) {
    let (sock, packet) = (Sock(sock), Sock(packet));
    if !sock.is_ip() || !credits::are_on() {
        return;
    }
    // SAFETY: the helper has no conditions.
    let ns = unsafe { bpf_ktime_get_ns() };
    let true_size: u32 = packet.load(place::TRUE_SIZE, 0);
    if sock.load::<u8>(place::STATE, 0) == TCP_ESTABLISHED {
        let Some(config) = config() else { return };
        if sock.is_heard() {
            let protocol = sock.load::<u16>(place::PROTOCOL, 0);
            credits::full(sock.hash(&config, protocol), sock.room(), true_size, ns);
        }
        return;
    }
    // Without ports nobody hears that such a socket reads.
    let is_off = ports::live(live::SWITCHES) & live::PORTS == 0;
    if is_off || !sock.is_served() || sock.shares() {
        return;
    }
    let Port { name, dual, .. } = sock.port();
    let is_v4 = packet.load::<u16>(place::ETHERTYPE, 0) != ETHERTYPE_IPV6.to_be();
    let name = if is_v4 && !dual.is_none() { dual } else { name };
    credits::full(name, sock.room(), true_size, ns);
}

/// Hears that a socket goes to the closed state.
#[inline(always)]
pub(crate) fn closed(sock: *const c_void) {
    let sock = Sock(sock);
    if sock.is_ip() && sock.load::<u16>(place::PROTOCOL, 0) == TCP {
        forget(sock.cookie());
    }
}

/// Hears that a socket is closed for good.
#[inline(always)]
pub(crate) fn released(sock: *mut c_void) {
    // SAFETY: the context of a program for sockets, which the helper takes.
    forget(unsafe { bpf_get_socket_cookie(sock) });
}

/// Notes which flow or port a socket is responsible for, and withdraws the one before.
///
/// Not inlined, like [`forget`] and [`withdraw`]: the verifier has a limit.
#[inline(never)]
fn answer_for(cookie: u64, word: u64) {
    // SAFETY: a word of a map that is read whole.
    match unsafe { SOCKETS.get(&cookie) }.copied() {
        Some(old) if old == word => return,
        Some(old) => withdraw(old),
        None => {}
    }
    // Without room for it the entry grows old instead of being withdrawn.
    let _ = SOCKETS.insert(&cookie, &word, 0);
}

/// Withdraws the flow or the port of a socket, if it has one.
#[inline(never)]
fn forget(cookie: u64) {
    // SAFETY: a word of a map that is read whole.
    let Some(word) = (unsafe { SOCKETS.get(&cookie) }).copied() else { return };
    let _ = SOCKETS.remove(&cookie);
    withdraw(word);
}

#[inline(never)]
fn withdraw(word: u64) {
    let hash = FlowHash(word as u32);
    if word & IS_TCP == 0 {
        credits::forget(hash);
    }
    if word & IS_PORT != 0 {
        let dual = port_name((word >> PORT_SHIFT) as u16, false, None);
        let found = ports::withdraw(hash);
        if word & IS_DUAL != 0 {
            credits::forget(dual);
            ports::withdraw(dual);
        }
        if found {
            count(Recorded::Cleared);
        }
        return;
    }
    let class = if word & IS_TCP != 0 { Class::Tcp } else { Class::Udp };
    if let Some(config) = config()
        && let Some(flows) = Flows::of(&config, class)
        && flows.withdraw(hash)
    {
        count(Recorded::Cleared);
    }
}

#[inline(always)]
fn count(recorded: Recorded) {
    count_at(recorded.index());
}

#[inline(always)]
fn count_at(recorded: usize) {
    if let Some(count) = RECORDS.get_ptr_mut(recorded as u32) {
        // SAFETY: a value of a per-CPU map. A program that interrupts this one may take a count
        // with it; these are statistics of sockets, packets are counted elsewhere.
        unsafe { *count += 1 };
    }
}

#[inline(always)]
fn offset(place: usize) -> usize {
    // SAFETY: in bounds for all places; volatile, so that the loader's value is read.
    unsafe { (&raw const OFFSETS).cast::<u32>().add(place).read_volatile() as usize }
}

#[inline(always)]
fn bytes(words: [u32; 4]) -> [u8; 16] {
    let [a, b, c, d] = words.map(u32::to_ne_bytes);
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a, b);
    let ([c0, c1, c2, c3], [d0, d1, d2, d3]) = (c, d);
    [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3]
}
