//! The steering of a host: one policy's tables, the masks of its queues, rules of ports.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rxsteer_core::dissect::Options;
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{
    Aware, KernelVersion, LinuxRules, PolicyKind, PortRule, Queue, Steering, Tables,
};
use rxsteer_core::table::{Bucket, FlowTable, RepeatFilter, SockTable, WAYS};
use rxsteer_core::{CpuId, QueueId};

/// What a [`Plane`] is made with.
#[derive(Clone, Debug)]
pub struct PlaneSettings {
    /// The policy.
    pub policy: PolicyKind,
    /// The Linux whose rules the policies of Linux follow.
    pub kernel: KernelVersion,
    /// How `flow-aware` works.
    pub aware: Aware,
    /// Entries of each flow table, rounded up to a power of two; at least 8.
    pub flow_entries: u32,
    /// Key of the software hash; live, 128 random bits.
    pub hasher: SoftHasher,
    /// What is read of frames.
    pub options: Options,
    /// The CPU mask of each queue, in the order of CPU ids.
    pub masks: Vec<Vec<CpuId>>,
    /// Rules of local ports.
    pub rules: Vec<(u16, PortRule)>,
}

impl Default for PlaneSettings {
    /// `flow-aware` with 32,768 entries and one queue without a mask.
    fn default() -> Self {
        Self {
            policy: PolicyKind::FlowAware,
            kernel: KernelVersion::default(),
            aware: Aware::default(),
            flow_entries: 32_768,
            hasher: SoftHasher { k0: 0, k1: 0 },
            options: Options::KERNEL,
            masks: vec![Vec::new()],
            rules: Vec::new(),
        }
    }
}

/// The steering of a host, shared by its threads.
pub struct Plane {
    pub(super) steering: Steering<Vec<Bucket>, Vec<AtomicU32>>,
    pub(super) hasher: SoftHasher,
    pub(super) options: Options,
    queues: Vec<PlaneQueue>,
    /// By port; empty without rules.
    rules: Box<[PortRule]>,
}

#[derive(Debug)]
struct PlaneQueue {
    slots: Vec<AtomicU64>,
    mask: RwLock<Arc<[CpuId]>>,
    /// Changes of the mask; written under its lock.
    version: AtomicU32,
}

/// The masks as one thread last saw them, so that it takes a lock only after a change.
#[derive(Debug)]
pub(super) struct Masks(Vec<(u32, Arc<[CpuId]>)>);

/// Slots of the table in which a queue keeps the order of flows under `flow-aware` and `rps`.
const ORDER_SLOTS: usize = 4096;

impl Plane {
    /// Makes the tables of a policy, all empty.
    pub fn new(settings: &PlaneSettings) -> Self {
        let (kind, entries) = (settings.policy, settings.flow_entries.max(8).next_power_of_two());
        let rules = match kind {
            PolicyKind::Rfs2010 => LinuxRules::first(false),
            PolicyKind::RfsClear => LinuxRules::first(true),
            _ => LinuxRules::of(settings.kernel),
        };
        let tables = tables(kind, entries, rules.identity);
        let steering = Steering::new(kind, rules, settings.aware, tables);
        let slots = match kind {
            PolicyKind::None | PolicyKind::Rps => 0,
            PolicyKind::FlowAware => ORDER_SLOTS,
            _ => entries as usize,
        };
        let queue = |mask: &Vec<CpuId>| PlaneQueue {
            slots: (0..slots).map(|_| AtomicU64::new(steering.fresh_slot())).collect(),
            mask: RwLock::new(mask.as_slice().into()),
            version: AtomicU32::new(0),
        };
        let queues = settings.masks.iter().map(queue).collect();
        let mut rules = Box::default();
        if !settings.rules.is_empty() {
            rules = vec![PortRule::Learn; 1 << 16].into_boxed_slice();
            settings.rules.iter().for_each(|(port, rule)| rules[usize::from(*port)] = *rule);
        }
        let PlaneSettings { hasher, options, .. } = *settings;
        Self { steering, hasher, options, queues, rules }
    }

    /// Returns the policy.
    pub fn policy(&self) -> PolicyKind {
        self.steering.kind()
    }

    /// Gives a queue another mask, from the next packet on. Flows that go by hash move at once, as
    /// in Linux.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn set_mask(&self, queue: QueueId, mask: &[CpuId]) {
        let queue = &self.queues[queue.index()];
        let mut current = queue.mask.write().unwrap_or_else(PoisonError::into_inner);
        *current = mask.into();
        queue.version.fetch_add(1, Ordering::Release);
    }

    /// Returns what is known of a local port.
    #[inline]
    pub(super) fn rule(&self, port: u16) -> PortRule {
        self.rules.get(usize::from(port)).copied().unwrap_or_default()
    }

    pub(super) fn masks(&self) -> Masks {
        Masks(self.queues.iter().map(PlaneQueue::current).collect())
    }

    /// Returns a queue as the decision sees it.
    #[inline]
    pub(super) fn queue<'a>(&'a self, masks: &'a mut Masks, queue: QueueId) -> Queue<'a> {
        let (at, seen) = (&self.queues[queue.index()], &mut masks.0[queue.index()]);
        if at.version.load(Ordering::Acquire) != seen.0 {
            *seen = at.current();
        }
        Queue { map: &seen.1, slots: &at.slots }
    }
}

impl PlaneQueue {
    fn current(&self) -> (u32, Arc<[CpuId]>) {
        let mask = self.mask.read().unwrap_or_else(PoisonError::into_inner);
        (self.version.load(Ordering::Acquire), Arc::clone(&mask))
    }
}

fn tables(kind: PolicyKind, entries: u32, identity: bool) -> Tables<Vec<Bucket>, Vec<AtomicU32>> {
    let words = |count: u32| (0..count).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
    let sock = || {
        SockTable::new(words(entries), u32::from(CpuId::LIMIT), identity).expect("a power of two")
    };
    let flows = || {
        let buckets = (0..entries as usize / WAYS).map(|_| Bucket::empty()).collect();
        FlowTable::new(buckets).expect("a power of two")
    };
    match kind {
        PolicyKind::None | PolicyKind::Rps => Tables::None,
        PolicyKind::FlowAware => {
            let filter = RepeatFilter::new(words((entries / 2).max(1024))).expect("a power of two");
            Tables::Flows(flows(), flows(), filter)
        }
        PolicyKind::RfsSplit => Tables::Split(sock(), sock()),
        _ => Tables::Shared(sock()),
    }
}

impl fmt::Debug for Plane {
    /// Leaves the key of the hash out: whoever reads it in a log could choose its CPU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane")
            .field("policy", &self.policy())
            .field("queues", &self.queues.len())
            .finish_non_exhaustive()
    }
}
