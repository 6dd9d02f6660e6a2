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
use rxsteer_core::steer::Class;
use rxsteer_core::table::{Epoch, Recorded};
use rxsteer_core::{CpuId, FlowHash, FlowKey};
use rxsteer_ebpf::{Config, Offsets, place};

use crate::flows::Flows;
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

/// Places in the kernel's structures; the loader writes them before the programs are loaded.
#[unsafe(no_mangle)]
static OFFSETS: [u32; Offsets::WORDS] = [0; Offsets::WORDS];

/// Number of the namespace whose sockets are heard; 0: all.
#[unsafe(no_mangle)]
static NAMESPACE: u32 = 0;

/// What each connected socket is responsible for, by its cookie: hash, and above it 1 for TCP.
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
    fn cookie(self) -> u64 {
        // SAFETY: the verifier knows the pointer as that of a socket.
        unsafe { bpf_get_socket_cookie(self.0.cast_mut()) }
    }
}

/// Hears that a socket sent or received on this CPU.
#[inline(always)]
pub(crate) fn spoke(sock: *const c_void) {
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
            forget(sock.cookie());
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
    count(recorded);
    // What is in the table already was noted when it got there.
    if matches!(recorded, Recorded::Inserted | Recorded::Evicted(_)) {
        answer_for(&config, sock.cookie(), hash, class);
    }
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

/// Notes which flow a socket is responsible for, and withdraws the one before.
#[inline(always)]
fn answer_for(config: &Config, cookie: u64, hash: FlowHash, class: Class) {
    let word = u64::from(hash.0) | if class.is_tcp() { IS_TCP } else { 0 };
    // SAFETY: a word of a map that is read whole.
    match unsafe { SOCKETS.get(&cookie) }.copied() {
        Some(old) if old == word => return,
        Some(old) => withdraw(config, old),
        None => {}
    }
    // Without room for it the entry grows old instead of being withdrawn.
    let _ = SOCKETS.insert(&cookie, &word, 0);
}

/// Withdraws the flow of a socket, if it has one.
#[inline(always)]
fn forget(cookie: u64) {
    // SAFETY: a word of a map that is read whole.
    let Some(word) = (unsafe { SOCKETS.get(&cookie) }).copied() else { return };
    let _ = SOCKETS.remove(&cookie);
    if let Some(config) = config() {
        withdraw(&config, word);
    }
}

#[inline(always)]
fn withdraw(config: &Config, word: u64) {
    let class = if word & IS_TCP != 0 { Class::Tcp } else { Class::Udp };
    if let Some(flows) = Flows::of(config, class)
        && flows.withdraw(FlowHash(word as u32))
    {
        count(Recorded::Cleared);
    }
}

#[inline(always)]
fn count(recorded: Recorded) {
    if let Some(count) = RECORDS.get_ptr_mut(recorded.index() as u32) {
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
