//! Local UDP ports whose sockets are not connected: what names one, and who reads it.
//!
//! Such a socket gets packets of any peer, so no flow says where its reader runs; its local port
//! does, as long as one thread reads there. A port is named by a hash of its number, of the local
//! address if the socket is bound to one, and of the family, and stands in a flow table of its own
//! under that name, so that it moves to another CPU as a flow does: order kept, nothing written per
//! packet. Of several readers none is right: their port is spread by hash ([`MANY`]).
//!
//! Always true: a name is never [`FlowHash::NONE`]; what [`Readers`] is told more often than every
//! 8 ms by readers that take turns changes nothing in it, so their CPUs share the word unwritten.
//! Elsewhere: the table of ports (the eBPF programs); choosing ([`super::choose_flow_aware`]).

use crate::{CpuId, FlowHash};

/// In place of the wanted CPU of a port: several threads read it on several CPUs.
pub const MANY: CpuId = CpuId(0xffe);

/// Names a local port: `address` in the words of the packet or socket, `None` for any address.
///
/// Not keyed: who can bind ports on this host may as well have them collide.
#[inline(always)]
pub const fn port_name(port: u16, is_v6: bool, address: Option<[u32; 4]>) -> FlowHash {
    let mut mixed = port as u32 | (is_v6 as u32) << 16;
    mixed = mixed.wrapping_mul(0x9e37_79b1);
    if let Some([a, b, c, d]) = address {
        mixed ^= a.wrapping_mul(0x85eb_ca6b) ^ 0x5bd1_e995;
        if is_v6 {
            mixed ^= b.wrapping_mul(0xc2b2_ae35)
                ^ c.wrapping_mul(0x27d4_eb2f)
                ^ d.wrapping_mul(0x1656_67b1);
        }
    }
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x7feb_352d);
    mixed = (mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b);
    FlowHash::from_software((mixed ^ mixed >> 16) as u64)
}

/// Who reads a port, in one word.
///
/// A thread that moves from CPU to CPU is one reader. Threads that take turns on different CPUs are
/// several, from the fourth turn on that comes within [`Self::MEMORY`] of the one before; and one again
/// when one CPU alone was heard for as long.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(transparent)]
pub struct Readers(pub u64);

impl Readers {
    /// How long a change of reader counts, in units of 4 ms: a second.
    pub const MEMORY: u16 = 250;
    /// Changes within their time that make several readers.
    const SEVERAL: u64 = 4;
    const MOST: u64 = 15;
    /// Units between two notes of readers that are known to be several.
    const SELDOM: u16 = 2;

    /// Hears that `thread` read the port on `cpu`; `now` is in units of 4 ms. Returns the word as it
    /// should be, the same if nothing needs writing, and where the port's packets should go.
    #[inline(always)]
    pub fn hear(self, port: FlowHash, thread: u32, cpu: CpuId, now: u16) -> (Self, CpuId) {
        let name = (port.0 >> 16) as u16;
        let thread = (thread ^ thread >> 16) as u16;
        let fresh = |changes: u64| {
            Self(
                (name as u64) << 48
                    | (thread as u64) << 32
                    | (cpu.0 as u64 & 0xfff) << 20
                    | changes << 16
                    | now as u64,
            )
        };
        let changes = self.0 >> 16 & 0xf;
        let past = now.wrapping_sub(self.0 as u16);
        let is_old = past >= Self::MEMORY;
        if (self.0 >> 48) as u16 != name || self.0 == 0 {
            return (fresh(0), cpu);
        }
        let same_cpu = self.0 >> 20 & 0xfff == cpu.0 as u64 & 0xfff;
        let same_thread = (self.0 >> 32) as u16 == thread;
        if same_cpu || same_thread {
            let several = changes >= Self::SEVERAL;
            if is_old && changes > 0 {
                return (fresh(0), cpu);
            }
            if !same_cpu && !several {
                return (fresh(changes), cpu);
            }
            return (self, if several { MANY } else { cpu });
        }
        if changes == Self::MOST && past < Self::SELDOM {
            return (self, MANY);
        }
        let changes = if is_old { 1 } else { changes + (changes < Self::MOST) as u64 };
        (fresh(changes), if changes >= Self::SEVERAL { MANY } else { cpu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: FlowHash = port_name(53, false, None);

    #[test]
    fn ports_families_and_addresses_have_names_of_their_own() {
        let mut names = std::collections::BTreeSet::new();
        for port in [0, 1, 53, 443, u16::MAX] {
            for is_v6 in [false, true] {
                names.insert(port_name(port, is_v6, None).0);
                for at in 0..4 {
                    let mut address = [0; 4];
                    names.insert(port_name(port, is_v6, Some(address)).0);
                    address[at] = 0x0100_007f;
                    // Of an IPv4 address only the first word says something.
                    if is_v6 || at == 0 {
                        names.insert(port_name(port, is_v6, Some(address)).0);
                    }
                }
            }
        }
        assert_eq!(names.len(), 5 * (2 + 2 + 5));
        assert!(!names.contains(&0));
    }

    #[test]
    fn all_ports_of_a_host_have_different_names() {
        let names: std::collections::BTreeSet<u32> =
            (0..=u16::MAX).map(|port| port_name(port, true, None).0).collect();
        assert_eq!(names.len(), 1 << 16);
    }

    #[test]
    fn a_thread_that_moves_is_one_reader() {
        let mut readers = Readers::default();
        for n in 0..1000u16 {
            let cpu = CpuId(n % 7);
            let (next, goes) = readers.hear(PORT, 77, cpu, n);
            assert_eq!(goes, cpu);
            readers = next;
        }
        // And where it stays, it writes nothing.
        let (next, _) = readers.hear(PORT, 77, CpuId(999 % 7), 1100);
        assert_eq!(next, readers);
    }

    #[test]
    fn threads_that_take_turns_are_several_and_seldom_write() {
        let mut readers = Readers::default();
        let (mut many, mut writes) = (0, 0);
        for n in 0..10_000u32 {
            // 100 turns in a unit of time.
            let (next, goes) = readers.hear(PORT, n % 3, CpuId((n % 3) as u16), (n / 100) as u16);
            many += u32::from(goes == MANY);
            writes += u32::from(next != readers);
            readers = next;
        }
        assert!(many > 9_990 && writes < 200, "{many} {writes}");
        // One goes on alone: one reader again after a second.
        let (next, goes) = readers.hear(PORT, 1, CpuId(1), 105);
        assert_eq!(goes, MANY);
        let (next, goes) = next.hear(PORT, 1, CpuId(1), 200);
        assert_eq!(goes, MANY);
        let (next, goes) = next.hear(PORT, 1, CpuId(1), 105 + Readers::MEMORY);
        assert_eq!(goes, CpuId(1));
        assert_eq!(next.hear(PORT, 1, CpuId(1), 106 + Readers::MEMORY), (next, CpuId(1)));
    }

    #[test]
    fn threads_on_one_cpu_are_where_one_reader_would_be() {
        let mut readers = Readers::default();
        for n in 0..100u32 {
            let (next, goes) = readers.hear(PORT, n, CpuId(5), n as u16);
            assert_eq!(goes, CpuId(5));
            readers = next;
        }
    }

    #[test]
    fn a_reader_that_takes_over_is_the_one_reader() {
        let (readers, _) = Readers::default().hear(PORT, 1, CpuId(1), 0);
        let (readers, goes) = readers.hear(PORT, 2, CpuId(2), 1);
        assert_eq!(goes, CpuId(2));
        assert_eq!(readers.hear(PORT, 2, CpuId(2), 2).1, CpuId(2));
        // The word of another port says nothing.
        let other = FlowHash(!PORT.0);
        assert_eq!(readers.hear(other, 9, CpuId(3), 3).1, CpuId(3));
    }
}
