//! Readers of one port: how a hash spreads them, next to what other ways would do.

use std::collections::BTreeMap;

use rxsteer_core::CpuId;

use crate::report::WorkerShare;

/// Most ports and readers that are followed.
const MOST_PORTS: usize = 16;
const MOST_SHARES: usize = 64;

/// Packets of ports that have several readers.
#[derive(Debug, Default)]
pub(super) struct Workers {
    ports: BTreeMap<u16, Port>,
    random: u64,
}

#[derive(Debug)]
struct Port {
    next: usize,
    by_hash: Vec<u64>,
    round_robin: Vec<u64>,
    random: Vec<u64>,
    by_cpu: Vec<u64>,
}

impl Workers {
    pub(super) fn new(seed: u64) -> Self {
        Self { ports: BTreeMap::new(), random: seed }
    }

    /// Counts a packet to a port with `members` readers, of which the hash chose `member`, and
    /// which the device queue of number `queue` brought.
    pub(super) fn count(&mut self, port: u16, members: u32, member: u32, queue: u16) {
        if !self.ports.contains_key(&port) && self.ports.len() >= MOST_PORTS {
            return;
        }
        let members = members as usize;
        let new = || vec![0; members];
        let of = self.ports.entry(port).or_insert_with(|| Port {
            next: 0,
            by_hash: new(),
            round_robin: new(),
            random: new(),
            by_cpu: new(),
        });
        let members = of.by_hash.len();
        of.by_hash[member as usize % members] += 1;
        of.round_robin[of.next] += 1;
        of.next = (of.next + 1) % members;
        of.by_cpu[usize::from(queue) % members] += 1;
        // SplitMix64 (Steele, Lea and Flood, 2014): good enough to show what chance does.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        of.random[((z ^ z >> 31) % members as u64) as usize] += 1;
    }

    /// Returns the shares, port by port, the largest first; `cpu` tells where a reader starts.
    pub(super) fn report(&self, cpu: impl Fn(u16, u32) -> CpuId) -> Vec<WorkerShare> {
        let mut shares = Vec::new();
        for (port, of) in &self.ports {
            let total = of.by_hash.iter().sum::<u64>().max(1) as f64;
            let mut of_port: Vec<WorkerShare> = (0..of.by_hash.len())
                .map(|worker| WorkerShare {
                    port: *port,
                    worker: worker as u32,
                    cpu: cpu(*port, worker as u32).0,
                    by_hash: of.by_hash[worker],
                    share: of.by_hash[worker] as f64 / total,
                    round_robin: of.round_robin[worker] as f64 / total,
                    random: of.random[worker] as f64 / total,
                    by_cpu: of.by_cpu[worker] as f64 / total,
                })
                .collect();
            of_port.sort_by_key(|share| (std::cmp::Reverse(share.by_hash), share.worker));
            shares.extend(of_port);
        }
        shares.truncate(MOST_SHARES);
        shares
    }
}
