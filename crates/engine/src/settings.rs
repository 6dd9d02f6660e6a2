//! Who runs when, and how much.
//!
//! Source: Linux, Documentation/admin-guide/sysctl/net.rst (`netdev_budget`, `dev_weight`,
//! `netdev_max_backlog`); the limits of a softirq run are those of kernel/softirq.c.

use crate::overload::GovernorSettings;

/// Who does the packet work of a CPU when that CPU has readers too.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Mode {
    /// Packet work runs ahead of every task, at each packet boundary: Linux before 4.9 and since
    /// 6.5.
    #[default]
    Inline,
    /// As soon as a run had to stop with work left, a thread does the rest in fair competition with
    /// the readers, and nothing runs ahead of them until it is through: Linux 4.9 to 6.4.
    Ksoftirqd,
    /// Each queue and each backlog has a thread of its own, in fair competition with the readers.
    Threaded,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Ksoftirqd, Self::Threaded];

    /// Returns the name in files and outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Ksoftirqd => "ksoftirqd",
            Self::Threaded => "threaded",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or(UnknownMode)
    }
}

/// The name of no [`Mode`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownMode;

impl std::fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("allowed are inline, ksoftirqd, threaded")
    }
}

impl std::error::Error for UnknownMode {}

/// Bounds of queues and shares of work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Packets in the ring of one queue.
    pub ring: u32,
    /// `net.core.netdev_max_backlog`: a packet is refused when more than this many wait.
    pub max_backlog: u32,
    /// `net.core.netdev_budget`: packets per pass over the poll list.
    pub budget: u32,
    /// `net.core.netdev_budget_usecs`, in ns: time for one pass over the poll list.
    pub budget_ns: u64,
    /// `net.core.dev_weight`: packets per poll of one queue or backlog.
    pub weight: u32,
    /// Passes per run.
    pub passes: u32,
    /// No further pass begins after this time in ns.
    pub run_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ring: 1024,
            max_backlog: 1000,
            budget: 300,
            budget_ns: 2_000_000,
            weight: 64,
            passes: 10,
            run_ns: 2_000_000,
        }
    }
}

/// How an engine works. The default is Linux as it is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Who does the packet work.
    pub mode: Mode,
    /// Bounds.
    pub limits: Limits,
    /// The device puts an interrupt off for so long (`rx-usecs`), in ns; 0 for not at all.
    pub interrupt_delay_ns: u64,
    /// … but not beyond so many waiting packets (`rx-frames`).
    pub interrupt_packets: u32,
    /// Messages that a reader takes per turn; at least 1.
    pub read_batch: u32,
    /// Merge packets of a flow, where [`Stages::segment`](crate::Stages::segment) allows it.
    pub gro: bool,
    /// `gro_flush_timeout` in ns: so long a queue that is through holds packets for merging; 0:
    /// nothing is held beyond the end of a poll. A backlog never holds longer.
    pub gro_flush_ns: u64,
    /// Buckets of the flow limit (`net.core.flow_limit_table_len`), a power of two; 0 for none.
    pub flow_limit_buckets: u32,
    /// Holds rings back while taking their packets would be in vain and a reader of their CPU could
    /// run; `None`: never, as Linux. In virtual time only: threads compete with readers fairly and
    /// cannot know who could run, so they refuse it
    /// ([`SetupError::Governed`](crate::threads::SetupError::Governed)).
    pub govern: Option<GovernorSettings>,
    /// Time that a task runs before another that is as entitled gets its turn, in ns.
    pub slice_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Inline,
            limits: Limits::default(),
            interrupt_delay_ns: 0,
            interrupt_packets: 64,
            read_batch: 1,
            gro: true,
            gro_flush_ns: 0,
            flow_limit_buckets: 0,
            govern: None,
            slice_ns: 3_000_000,
        }
    }
}
