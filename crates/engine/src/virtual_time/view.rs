//! The CPUs as a decision sees them, and what they did.

use rxsteer_core::cpu::CpuStates;
use rxsteer_core::steer::Host;
use rxsteer_core::{CpuId, CpuSet};

use crate::stages::Cpus;

/// What one CPU did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuLoad {
    /// Packets taken from rings.
    pub taken: u64,
    /// Packets whose protocol work is done.
    pub processed: u64,
    /// Packets read.
    pub read: u64,
    /// Packets dropped at its rings or its backlog.
    pub dropped: u64,
    /// Signals sent to other CPUs.
    pub signals: u64,
    /// Readers woken by its packets.
    pub wakeups: u64,
    /// Passes over the poll list that stopped for their budget or time.
    pub squeezed: u64,
    /// Runs of the softirq that stopped with work left.
    pub deferred: u64,
    /// Most packets that waited on the backlog.
    pub max_backlog: u32,
    /// Time in interrupts and in the softirq, ahead of all tasks, in ns.
    pub softirq_ns: u64,
    /// Time in `ksoftirqd` and in the threads of queues and backlogs, in ns.
    pub thread_ns: u64,
    /// Time in readers, in ns.
    pub reader_ns: u64,
}

impl CpuLoad {
    /// Returns the time spent working in ns.
    pub const fn busy_ns(&self) -> u64 {
        self.softirq_ns + self.thread_ns + self.reader_ns
    }
}

/// The CPUs, indexed by id.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) states: Vec<CpuState>,
    groups: Vec<Vec<CpuId>>,
    numbers: Vec<u32>,
    online: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuState {
    pub(super) exists: bool,
    pub(super) online: bool,
    pub(super) head: u32,
    pub(super) tail: u32,
    /// What waits: packets in its rings and on its backlog, messages for its readers.
    pub(super) waiting: u32,
    pub(super) load: CpuLoad,
}

impl View {
    /// Packets and messages that wait, above which a CPU is taken to be unable to carry its
    /// consumers and their packets together.
    pub const OVERLOAD_DEPTH: u32 = 192;

    /// Makes the CPUs of a host; `numbers` are the cache groups by CPU id.
    pub(super) fn new(host: &CpuStates, numbers: Vec<u32>) -> Self {
        let state = |id: u32| {
            let cpu = CpuId(id as u16);
            let exists = host.possible.contains(cpu);
            CpuState { exists, online: exists && host.online.contains(cpu), ..Default::default() }
        };
        let states: Vec<CpuState> = (0..host.nr_cpu_ids()).map(state).collect();
        let mut groups = vec![Vec::new(); numbers.iter().max().map_or(0, |n| *n as usize + 1)];
        for cpu in &host.possible {
            groups[numbers[cpu.index()] as usize].push(cpu);
        }
        let online = states.iter().filter(|s| s.online).count();
        Self { states, groups, numbers, online }
    }

    /// Returns the online CPU nearest to `cpu`: itself, one of its cache, or the lowest.
    pub fn nearest_online(&self, cpu: CpuId) -> CpuId {
        if self.is_online(cpu) {
            return cpu;
        }
        let group = self.numbers.get(cpu.index()).map(|n| &self.groups[*n as usize]);
        let near = group.and_then(|g| g.iter().copied().find(|c| self.is_online(*c)));
        near.unwrap_or_else(|| {
            let lowest = self.states.iter().position(|s| s.online);
            CpuId(lowest.expect("the last online CPU stays") as u16)
        })
    }

    /// Returns the CPUs that are online.
    pub fn online(&self) -> CpuSet {
        let ids = self.states.iter().enumerate().filter(|(_, s)| s.online);
        ids.map(|(id, _)| CpuId(id as u16)).collect()
    }

    /// Changes whether a CPU is online; refuses to take the last one offline.
    pub(super) fn set_online(&mut self, cpu: CpuId, online: bool) -> bool {
        let Some(state) = self.states.get_mut(cpu.index()).filter(|s| s.exists) else {
            return false;
        };
        if state.online == online || (!online && self.online == 1) {
            return false;
        }
        state.online = online;
        self.online = if online { self.online + 1 } else { self.online - 1 };
        true
    }
}

impl Host for View {
    #[inline]
    fn is_online(&self, cpu: CpuId) -> bool {
        self.states.get(cpu.index()).is_some_and(|s| s.online)
    }

    #[inline]
    fn head(&self, cpu: CpuId) -> u32 {
        self.states.get(cpu.index()).map_or(0, |s| s.head)
    }

    #[inline]
    fn tail(&self, cpu: CpuId) -> u32 {
        self.states.get(cpu.index()).map_or(0, |s| s.tail)
    }

    #[inline]
    fn beside(&self, cpu: CpuId) -> Option<CpuId> {
        let waiting = self.states.get(cpu.index())?.waiting;
        if waiting <= Self::OVERLOAD_DEPTH {
            return None;
        }
        let group = &self.groups[*self.numbers.get(cpu.index())? as usize];
        let others = group.iter().copied().filter(|c| *c != cpu && self.is_online(*c));
        let least = others.min_by_key(|c| (self.states[c.index()].waiting, c.0))?;
        (self.states[least.index()].waiting < waiting / 2).then_some(least)
    }
}

impl Cpus for View {
    #[inline]
    fn busy_ns(&self, cpu: CpuId) -> u64 {
        self.states.get(cpu.index()).map_or(0, |s| s.load.busy_ns())
    }

    #[inline]
    fn readers_ns(&self, cpu: CpuId) -> u64 {
        self.states.get(cpu.index()).map_or(0, |s| s.load.reader_ns)
    }

    #[inline]
    fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        match (self.numbers.get(a.index()), self.numbers.get(b.index())) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}
