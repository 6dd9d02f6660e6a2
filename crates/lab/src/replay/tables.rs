//! The tables of one policy on one host, and the shadow that knows who wrote what.

use std::sync::atomic::{AtomicU32, AtomicU64};

use rxsteer_core::steer::{Aware, KernelVersion, LinuxRules, PolicyKind, Queue, Steering, Tables};
use rxsteer_core::table::{Bucket, FlowTable, RepeatFilter, SockTable, WAYS};
use rxsteer_core::{CpuId, CpuSet, FlowHash};

use crate::host::{Host, TableSizes};
use crate::report::TableReport;

pub(super) type OwnSteering = Steering<Vec<Bucket>, Vec<AtomicU32>>;

/// Slots of the table in which a queue keeps the order of flows under `rps --drain` and
/// `flow-aware`.
const ORDER_SLOTS: usize = 4096;

/// The tables of one policy on one host.
#[derive(Debug)]
pub(super) struct PolicyTables {
    pub(super) steering: OwnSteering,
    queues: Vec<QueueTable>,
    shadow: Shadow,
    kind: PolicyKind,
    drain: bool,
    cpu_ids: u32,
    kernel: KernelVersion,
}

#[derive(Debug)]
struct QueueTable {
    map: Vec<CpuId>,
    slots: Vec<AtomicU64>,
}

impl PolicyTables {
    pub(super) fn new(kind: PolicyKind, host: &Host, kernel: KernelVersion, drain: bool) -> Self {
        let cpu_ids = host.cpus.nr_cpu_ids();
        let rules = rules(kind, kernel);
        let aware = host.overload.map_or_else(Aware::default, |means| {
            rxsteer_engine::overload::spill::switched(means.spill, Aware::default())
        });
        let tables = tables(kind, &host.tables, cpu_ids, rules.identity);
        let steering = Steering::new(kind, rules, aware, tables);
        let mut all = Self {
            shadow: Shadow::new(&steering),
            steering,
            queues: Vec::new(),
            kind,
            drain,
            cpu_ids,
            kernel,
        };
        for queue in &host.queues {
            let map = if kind == PolicyKind::None { Vec::new() } else { packed(&queue.rps) };
            let count = all.slots_of_queue(queue.flow_cnt);
            let slots = fresh(&all.steering, count);
            all.queues.push(QueueTable { map, slots });
        }
        all
    }

    fn slots_of_queue(&self, flow_cnt: u32) -> usize {
        match self.kind {
            PolicyKind::None => 0,
            PolicyKind::Rps => {
                if self.drain {
                    ORDER_SLOTS
                } else {
                    0
                }
            }
            PolicyKind::FlowAware => ORDER_SLOTS,
            _ => flow_cnt as usize,
        }
    }

    #[inline]
    pub(super) fn queue(&self, queue: usize) -> Queue<'_> {
        let of = &self.queues[queue];
        Queue { map: &of.map, slots: &of.slots }
    }

    /// Returns whether a decision on this queue needs the hash of the packet.
    #[inline]
    pub(super) fn needs_hash(&self, queue: usize) -> bool {
        let of = &self.queues[queue];
        !(of.map.is_empty() && of.slots.is_empty())
    }

    /// Writes a new mask; all flows of the queue are spread anew at once.
    pub(super) fn set_map(&mut self, queue: usize, cpus: &CpuSet) {
        if self.kind != PolicyKind::None {
            self.queues[queue].map = packed(cpus);
        }
    }

    /// Gives the tables new sizes. Linux loses all entries; `flow-aware` keeps what fits.
    pub(super) fn resize(&mut self, sizes: &TableSizes, now: rxsteer_core::table::Epoch) {
        let identity = rules(self.kind, self.kernel).identity;
        let old = self.steering.replace_tables(tables(self.kind, sizes, self.cpu_ids, identity));
        if let (Tables::Flows(tcp, udp, _), Tables::Flows(new_tcp, new_udp, _)) =
            (&old, self.steering.tables())
        {
            tcp.copy_to(new_tcp, now);
            udp.copy_to(new_udp, now);
        }
        self.shadow = Shadow::new(&self.steering);
        if self.kind.follows() && self.kind != PolicyKind::FlowAware {
            let count = sizes.flow_cnt_per_queue(self.queues.len() as u32) as usize;
            for queue in &mut self.queues {
                queue.slots = fresh(&self.steering, count);
            }
        }
    }

    /// Returns the hash of the flow that last wrote the word which answers for `hash`, or
    /// [`FlowHash::NONE`]; `None` where entries check the whole hash.
    #[inline]
    pub(super) fn writer(&self, hash: FlowHash, tcp: bool) -> Option<FlowHash> {
        self.shadow.get(hash, tcp)
    }

    #[inline]
    pub(super) fn set_writer(&mut self, hash: FlowHash, tcp: bool, writer: FlowHash) {
        self.shadow.set(hash, tcp, writer);
    }

    /// Removes entries that are too old to be believed; to be called at each new epoch.
    pub(super) fn sweep(&self, now: rxsteer_core::table::Epoch) {
        if let Tables::Flows(tcp, udp, _) = self.steering.tables() {
            tcp.sweep(0, tcp.geometry().buckets(), now);
            udp.sweep(0, udp.geometry().buckets(), now);
        }
    }

    pub(super) fn report(&self) -> TableReport {
        let slots: usize = self.queues.iter().map(|q| q.slots.len()).sum();
        let (entries, used, bytes) = match self.steering.tables() {
            Tables::None => (0, 0, 0),
            Tables::Shared(table) => (table.capacity(), table.count(), table.capacity() * 4),
            Tables::Split(tcp, rest) => {
                let entries = tcp.capacity() + rest.capacity();
                (entries, tcp.count() + rest.count(), entries * 4)
            }
            Tables::Flows(tcp, udp, _) => {
                let entries = tcp.capacity() + udp.capacity();
                let filter = filter_words(tcp.capacity() as u32) * 4;
                (entries, tcp.count() + udp.count(), entries * 8 + filter)
            }
        };
        let bytes = (bytes + slots * 8) as u64;
        TableReport { entries: entries as u64, used: used as u64, bytes }
    }
}

/// Returns the bytes of memory that the tables of a policy take with these sizes, on a host with
/// `flow_cnts` entries in the tables of its queues.
pub(super) fn memory(kind: PolicyKind, sizes: &TableSizes, flow_cnts: u64) -> u64 {
    // A word of Linux's table and its shadow.
    let shared = u64::from(sizes.sock_flow_entries) * 8;
    match kind {
        PolicyKind::None | PolicyKind::Rps => 0,
        PolicyKind::FlowAware => {
            let entries = u64::from(sizes.flow_entries.next_power_of_two());
            2 * entries * 8 + filter_words(sizes.flow_entries) as u64 * 4
        }
        PolicyKind::RfsSplit => 2 * shared + flow_cnts * 8,
        _ => shared + flow_cnts * 8,
    }
}

fn packed(cpus: &CpuSet) -> Vec<CpuId> {
    cpus.iter().collect()
}

fn fresh(steering: &OwnSteering, count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(steering.fresh_slot())).collect()
}

fn words(count: u32) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn filter_words(entries: u32) -> usize {
    (entries / 2).next_power_of_two().max(1024) as usize
}

fn rules(kind: PolicyKind, kernel: KernelVersion) -> LinuxRules {
    match kind {
        PolicyKind::Rfs2010 => LinuxRules::first(false),
        PolicyKind::RfsClear => LinuxRules::first(true),
        _ => LinuxRules::of(kernel),
    }
}

/// Makes the tables of a policy. Each table of a policy that has two has all of the entries, so
/// that all compare at the same room for one protocol; the report tells the bytes.
fn tables(
    kind: PolicyKind,
    sizes: &TableSizes,
    cpu_ids: u32,
    identity: bool,
) -> Tables<Vec<Bucket>, Vec<AtomicU32>> {
    let sock = |entries: u32| {
        SockTable::new(words(entries), cpu_ids, identity).expect("sizes are powers of two")
    };
    let flows = |entries: u32| {
        let buckets = (entries as usize / WAYS).max(1);
        FlowTable::new((0..buckets).map(|_| Bucket::empty()).collect::<Vec<_>>())
            .expect("sizes are powers of two")
    };
    let entries = sizes.sock_flow_entries;
    match kind {
        PolicyKind::None | PolicyKind::Rps => Tables::None,
        PolicyKind::FlowAware => {
            let each = sizes.flow_entries.next_power_of_two();
            let filter = words(filter_words(sizes.flow_entries) as u32);
            let filter = RepeatFilter::new(filter).expect("sizes are powers of two");
            Tables::Flows(flows(each), flows(each), filter)
        }
        _ if entries == 0 => Tables::None,
        PolicyKind::RfsSplit => Tables::Split(sock(entries), sock(entries)),
        _ => Tables::Shared(sock(entries)),
    }
}

/// For each word of a table of Linux the whole hash of the flow that wrote it last.
///
/// Linux keeps less than that, and so can take one flow's word for another's. Two flows with one
/// 32-bit hash are one here as well.
#[derive(Debug, Default)]
struct Shadow {
    tcp: Vec<u32>,
    /// Empty if TCP shares its table.
    rest: Vec<u32>,
}

impl Shadow {
    fn new(steering: &OwnSteering) -> Self {
        match steering.tables() {
            Tables::Shared(table) => Self { tcp: vec![0; table.capacity()], rest: Vec::new() },
            Tables::Split(tcp, rest) => {
                Self { tcp: vec![0; tcp.capacity()], rest: vec![0; rest.capacity()] }
            }
            Tables::None | Tables::Flows(..) => Self::default(),
        }
    }

    #[inline]
    fn get(&self, hash: FlowHash, tcp: bool) -> Option<FlowHash> {
        let words = if tcp || self.rest.is_empty() { &self.tcp } else { &self.rest };
        let place = hash.0 as usize & words.len().wrapping_sub(1);
        words.get(place).map(|word| FlowHash(*word))
    }

    #[inline]
    fn set(&mut self, hash: FlowHash, tcp: bool, writer: FlowHash) {
        let one = tcp || self.rest.is_empty();
        let words = if one { &mut self.tcp } else { &mut self.rest };
        let place = hash.0 as usize & words.len().wrapping_sub(1);
        if let Some(word) = words.get_mut(place) {
            *word = writer.0;
        }
    }
}
