//! Packet sockets that see every packet of a device: what passed, when, and on which CPU.
//!
//! The kernel tells the CPU by a fan-out of packet sockets by CPU: each packet goes to the socket of
//! the CPU that hands it to the protocols, which is the CPU that processes it.
//!
//! Source: packet(7), `PACKET_FANOUT_CPU`, `PACKET_STATISTICS`; `SIOCGSTAMPNS` of socket(7).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rxsteer_core::CpuId;
use rxsteer_testbed::Pair;

/// `SIOCGSTAMPNS` of 64-bit Linux, asm-generic/sockios.h.
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;

/// Room for the packets of a whole run, each counted with about a kilobyte.
const ROOM: libc::c_int = 256 << 20;

/// A packet socket on one device.
pub(crate) struct Tap(OwnedFd);

/// A frame and when it passed, in ns of the clock of the day.
pub(crate) struct Seen {
    pub(crate) ns: u64,
    pub(crate) frame: Vec<u8>,
}

impl Tap {
    /// Opens one on a device of the calling thread's namespace.
    fn open(device: u32) -> Self {
        // SAFETY: makes a descriptor, which is checked and owned below.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor was made just now and nobody else has it.
        let tap = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        tap.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ROOM);
        // SAFETY: integers and bytes, for which zeroes are a value.
        let mut at: libc::sockaddr_ll = unsafe { zeroed() };
        at.sll_family = libc::AF_PACKET as u16;
        at.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        at.sll_ifindex = device as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: an address of that length, which outlives the call.
        let bound = unsafe { libc::bind(tap.0.as_raw_fd(), (&raw const at).cast(), len) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        // The first question is answered with "no packet yet", and has the packets stamped from now on.
        let _ = tap.stamp();
        tap
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: a value of that length, which outlives the call.
        let said = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), level, name, (&raw const value).cast(), len)
        };
        assert_eq!(said, 0, "{}", io::Error::last_os_error());
    }

    /// Returns when the last packet that was read had passed.
    fn stamp(&self) -> io::Result<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes a time into memory of ours.
        let said = unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCGSTAMPNS, &raw mut time) };
        if said != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Takes all packets out; fails if one found no room.
    pub(crate) fn drain(self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut buffer = vec![0; 2048];
        loop {
            // SAFETY: writes at most that many bytes into memory of ours.
            let len = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            let Ok(len) = usize::try_from(len) else { break };
            seen.push(Seen { ns: self.stamp().unwrap(), frame: buffer[..len].to_vec() });
        }
        let mut counts = [0u32; 2];
        let mut len = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: writes at most `len` bytes into memory of ours.
        let said = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        assert_eq!(said, 0, "{}", io::Error::last_os_error());
        assert_eq!(counts[1], 0, "packets found no room in a tap");
        seen
    }
}

/// Opens a tap at the sender's end of a pair: every packet before it is steered, and every answer.
pub(crate) fn on_link(pair: &Pair) -> Tap {
    pair.source.run(|| Tap::open(pair.source_device.index)).unwrap()
}

/// Taps at the receiver's end of a pair, one a CPU.
pub(crate) struct ByCpu(Vec<Tap>);

impl ByCpu {
    /// Most taps of a fan-out.
    pub(crate) const MOST: usize = 256;

    /// Opens them for CPUs below `cpus`.
    pub(crate) fn open(pair: &Pair, cpus: usize) -> Self {
        let group = (libc::PACKET_FANOUT_CPU as libc::c_int) << 16 | 1;
        let open = || {
            let tap = Tap::open(pair.sink_device.index);
            // The n-th that joins gets the packets of CPU n modulo their number.
            tap.set(libc::SOL_PACKET, libc::PACKET_FANOUT, group);
            tap
        };
        Self(pair.sink.run(|| (0..cpus).map(|_| open()).collect()).unwrap())
    }

    /// Takes all packets out: for each frame without its Ethernet header, the CPUs that processed it,
    /// once for each time that it came.
    pub(crate) fn drain(self) -> HashMap<Vec<u8>, VecDeque<CpuId>> {
        let mut cpus: HashMap<Vec<u8>, VecDeque<CpuId>> = HashMap::new();
        for (cpu, tap) in self.0.into_iter().enumerate() {
            for seen in tap.drain() {
                cpus.entry(seen.frame[14..].to_vec()).or_default().push_back(CpuId(cpu as u16));
            }
        }
        cpus
    }
}
