//! The modelled host: its CPUs, caches, queues, tables, limits and costs.
//!
//! A host is made by [`Host::simple`] from two numbers, or read from a TOML file by
//! [`Host::from_toml`]. Masks are cut down as the kernel does when one is written: CPUs that do
//! not exist, are offline or isolated are left out. Table sizes are rounded as the kernel rounds.
//!
//! Always true: every queue has an IRQ CPU that serves; a mask holds only CPUs that serve.
//! Elsewhere: which queue a packet goes to ([`crate::rss`]); which CPU ([`rxsteer_core::steer`]).
//! Source: Linux, Documentation/networking/scaling.rst (RPS, RFS) for the meaning of the sizes and
//! masks. That a queue without a mask gets the CPUs of its IRQ CPU's cache is ours; Linux leaves
//! RPS off there.

mod engine;
mod file;
mod mask;
mod overload;
mod sizes;

use rxsteer_core::cpu::{CpuStates, Dropped};
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_engine::virtual_time::Topology;

pub(crate) use file::{HostFile, make};
pub use mask::{Mask, MaskError};
pub use rxsteer_engine::overload::Means;
pub use rxsteer_engine::{Costs, Mode, Settings};
pub use sizes::{SizeError, TableSizes, rps_flow_cnt, rps_sock_flow_entries};

use crate::rss::Rss;

/// A modelled host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where the model came from, for the report.
    pub source: String,
    /// CPUs that exist, are online, are isolated.
    pub cpus: CpuStates,
    /// CPUs that share a cache, by group; a CPU in no group shares with nobody.
    pub caches: Vec<CpuSet>,
    /// Receive queues, at least one.
    pub queues: Vec<Queue>,
    /// How packets are spread over the queues.
    pub rss: Rss,
    /// Sizes of the flow tables.
    pub tables: TableSizes,
    /// Bounds of queues and buffers.
    pub limits: Limits,
    /// Who runs when; what [`Self::limits`] and [`Self::merge`] say as well is said there (see
    /// [`settings`](Self::settings)).
    pub engine: Settings,
    /// Which packets are merged.
    pub merge: Merge,
    /// The means against overload of `flow-aware`; `None`: it sheds by the credit of the socket and
    /// spills, and that is all.
    pub overload: Option<Means>,
    /// Time per step.
    pub costs: Costs,
    /// Sizes that the kernel would round up.
    pub rounded: Vec<Rounded>,
}

/// A size that was asked for and the one that the kernel would make of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rounded {
    /// Name of the setting.
    pub name: String,
    /// Value asked for.
    pub asked: u64,
    /// Value that it will act as.
    pub kept: u64,
}

/// One receive queue of the host's device.
#[derive(Clone, Debug)]
pub struct Queue {
    /// CPU that takes the queue's interrupts.
    pub irq_cpu: CpuId,
    /// The mask as it was asked for.
    pub wanted: Mask,
    /// The mask as the kernel would keep it; empty for none.
    pub rps: CpuSet,
    /// CPUs that were asked for and left out.
    pub left_out: Option<Dropped>,
    /// `rps_flow_cnt` of this queue, rounded.
    pub flow_cnt: u32,
}

/// Which packets are merged on their way (GRO). A capture often has them merged already, so by
/// default none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Merge {
    /// Segments of TCP connections, as Linux does by default.
    pub tcp: bool,
    /// Datagrams of UDP flows, as Linux does for sockets that ask for it (`UDP_GRO`).
    pub udp: bool,
}

/// Bounds of queues and buffers, and the shares of work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// `net.core.netdev_max_backlog`: a packet is refused when more than this many wait.
    pub max_backlog: u32,
    /// Packets in the ring of one queue.
    pub ring: u32,
    /// Receive buffer of a UDP socket in bytes (`net.core.rmem_default`).
    pub udp_receive_buffer: u64,
    /// Receive buffer of a TCP socket in bytes (last value of `net.ipv4.tcp_rmem`).
    pub tcp_receive_buffer: u64,
    /// `net.core.netdev_budget`: packets per pass of the receive softirq.
    pub budget: u32,
    /// `net.core.dev_weight`: packets per poll.
    pub weight: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_backlog: 1000,
            ring: 1024,
            udp_receive_buffer: 212_992,
            tcp_receive_buffer: 6_291_456,
            budget: 300,
            weight: 64,
        }
    }
}

impl Host {
    /// Most receive queues.
    pub const MAX_QUEUES: u32 = 1024;

    /// Returns a host of `cpus` CPUs and `queues` queues, everything else at its default.
    ///
    /// All CPUs are online; groups of eight share a cache. The interrupts of the queues are spread
    /// evenly over the CPUs. Queues have the mask [`Mask::Local`].
    ///
    /// # Errors
    /// A number that is 0 or above [`CpuId::LIMIT`] or [`Self::MAX_QUEUES`].
    ///
    /// # Examples
    /// ```
    /// use rxsteer_lab::host::Host;
    /// let host = Host::simple(8, 2)?;
    /// assert_eq!(host.queues[1].irq_cpu.0, 4);
    /// assert_eq!(host.queues[1].rps.list().to_string(), "0-7");
    /// # Ok::<(), rxsteer_lab::host::HostError>(())
    /// ```
    pub fn simple(cpus: u32, queues: u32) -> Result<Self, HostError> {
        if cpus == 0 || cpus > u32::from(CpuId::LIMIT) {
            return Err(HostError::CpuCount(cpus));
        }
        if queues == 0 || queues > Self::MAX_QUEUES {
            return Err(HostError::QueueCount(queues));
        }
        let states = CpuStates::all(cpus);
        let mut host = Self {
            source: format!("{cpus} cpus, {queues} queues"),
            caches: groups_of_eight(&states.possible),
            queues: Vec::new(),
            rss: Rss::default(),
            tables: TableSizes::default(),
            limits: Limits::default(),
            engine: Settings::default(),
            merge: Merge::default(),
            overload: None,
            costs: Costs::default(),
            rounded: Vec::new(),
            cpus: states,
        };
        host.spread_queues(queues);
        host.set_masks(&Mask::Local)?;
        Ok(host)
    }

    /// Reads a host from the text of a TOML file; `name` is the name of the file in messages.
    ///
    /// The keys are documented in `docs/replay.md`; an empty file is a host of one CPU and one
    /// queue.
    ///
    /// # Errors
    /// What is wrong, with its line, column and key.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, crate::config::ConfigError> {
        file::read(name, text)
    }

    /// Returns the CPUs, their caches and the queues as the engine knows them.
    pub fn topology(&self) -> Topology {
        Topology {
            cpus: self.cpus,
            cache_numbers: self.cache_numbers(),
            irq_cpus: self.queues.iter().map(|queue| queue.irq_cpu).collect(),
        }
    }

    /// Returns the settings of the engine, with the bounds of this host.
    pub fn settings(&self) -> Settings {
        let Limits { max_backlog, ring, budget, weight, .. } = self.limits;
        let limits =
            rxsteer_engine::Limits { max_backlog, ring, budget, weight, ..self.engine.limits };
        Settings { limits, gro: self.merge.tcp || self.merge.udp, ..self.engine }
    }

    /// Gives the flow tables other sizes, those of the queues included.
    pub fn set_tables(&mut self, tables: TableSizes) {
        let flow_cnt = tables.flow_cnt_per_queue(self.queues.len() as u32);
        self.queues.iter_mut().for_each(|queue| queue.flow_cnt = flow_cnt);
        self.tables = tables;
    }

    /// Gives every queue the same mask.
    ///
    /// # Errors
    /// The mask leaves no usable CPU, as the kernel answers EINVAL.
    pub fn set_masks(&mut self, mask: &Mask) -> Result<(), HostError> {
        for queue in 0..self.queues.len() {
            self.set_mask(queue, mask.clone())?;
        }
        Ok(())
    }

    /// Gives one queue a mask, cut down as the kernel does.
    ///
    /// # Errors
    /// A set of which no usable CPU is left. [`Mask::Local`] never fails: the IRQ CPU serves.
    pub fn set_mask(&mut self, queue: usize, mask: Mask) -> Result<(), HostError> {
        let (rps, left_out) = self.resolve(queue, &mask)?;
        let queue = &mut self.queues[queue];
        (queue.wanted, queue.rps, queue.left_out) = (mask, rps, left_out);
        Ok(())
    }

    /// Returns what the kernel would make of a mask for one queue, with what it leaves out.
    ///
    /// # Errors
    /// See [`Self::set_mask`].
    pub fn resolve(
        &self,
        queue: usize,
        mask: &Mask,
    ) -> Result<(CpuSet, Option<Dropped>), HostError> {
        let wanted = match mask {
            Mask::None => return Ok((CpuSet::EMPTY, None)),
            Mask::Local => self.shares_cache_with(self.queues[queue].irq_cpu),
            Mask::All | Mask::Housekeeping => self.cpus.serving(),
            Mask::Set(set) => **set,
        };
        let usable = self.cpus.usable(&wanted);
        if let Some(refusal) = usable.refusal() {
            return Err(HostError::Mask { queue, reason: refusal.to_string() });
        }
        // That the rest of a cache group does not serve is no mistake of the user's.
        let told = matches!(mask, Mask::Set(_)) && !usable.dropped.is_empty();
        Ok((usable.cpus, told.then_some(usable.dropped)))
    }

    /// Returns the CPUs that share a cache with `cpu`, itself included.
    pub fn shares_cache_with(&self, cpu: CpuId) -> CpuSet {
        self.caches
            .iter()
            .find(|group| group.contains(cpu))
            .copied()
            .unwrap_or_else(|| CpuSet::from_iter([cpu]))
    }

    /// Returns the number of the cache group of each CPU, indexed by id; CPUs outside every group
    /// have a number of their own.
    pub fn cache_numbers(&self) -> Vec<u32> {
        let count = self.cpus.nr_cpu_ids();
        (0..count)
            .map(|id| {
                let group = self.caches.iter().position(|g| g.contains(CpuId(id as u16)));
                group.map_or(self.caches.len() as u32 + id, |g| g as u32)
            })
            .collect()
    }

    /// Spreads the interrupts of `count` new queues evenly over the serving CPUs.
    fn spread_queues(&mut self, count: u32) {
        let serving: Vec<CpuId> = self.cpus.serving().iter().collect();
        let flow_cnt = self.tables.flow_cnt_per_queue(count);
        let place = |q: u32| {
            let index = u64::from(q) * serving.len() as u64 / u64::from(count);
            serving[index as usize]
        };
        let make = |q| Queue {
            irq_cpu: place(q),
            wanted: Mask::None,
            rps: CpuSet::EMPTY,
            left_out: None,
            flow_cnt,
        };
        self.queues = (0..count).map(make).collect();
    }
}

/// Why a host cannot be modelled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HostError {
    /// Not a number of CPUs.
    CpuCount(u32),
    /// Not a number of queues.
    QueueCount(u32),
    /// A mask that leaves no CPU.
    Mask {
        /// The queue.
        queue: usize,
        /// Which CPUs were left out, and why.
        reason: String,
    },
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CpuCount(n) => write!(f, "{n} CPUs: allowed are 1 to {}", CpuId::LIMIT),
            Self::QueueCount(n) => write!(f, "{n} queues: allowed are 1 to {}", Host::MAX_QUEUES),
            Self::Mask { queue, reason } => write!(f, "mask of queue {queue}: {reason}"),
        }
    }
}

impl std::error::Error for HostError {}

fn groups_of_eight(cpus: &CpuSet) -> Vec<CpuSet> {
    let ids: Vec<CpuId> = cpus.iter().collect();
    ids.chunks(8).map(|group| group.iter().copied().collect()).collect()
}

#[cfg(test)]
mod tests;
