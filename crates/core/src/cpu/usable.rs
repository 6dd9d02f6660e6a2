//! Which CPUs of a wish can take packets: those that exist, are online and are not isolated.
//!
//! A CPU outside the wish is never added; one that is left out is left out for one stated reason,
//! in the order: does not exist, offline, isolated.
//! Source: Linux removes isolated CPUs from a written `rps_cpus` mask, refuses one of which nothing
//! is left, and keeps only CPUs that are online at the time of writing (net/core/net-sysfs.c).

use core::fmt;

use super::CpuSet;
use crate::CpuId;

/// What a host says of its CPUs, as in `/sys/devices/system/cpu/{possible,online,isolated}`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuStates {
    /// CPUs that can ever exist.
    pub possible: CpuSet,
    /// CPUs that run now.
    pub online: CpuSet,
    /// CPUs that are kept free of such work (`isolcpus`, `nohz_full`).
    pub isolated: CpuSet,
}

impl CpuStates {
    /// Returns a host of `n` CPUs, `0..n`, all online and none isolated.
    pub fn all(n: u32) -> Self {
        let cpus = CpuSet::first_n(n);
        Self { possible: cpus, online: cpus, isolated: CpuSet::EMPTY }
    }

    /// Returns one more than the highest possible id: the size of a table that is indexed by CPU.
    pub fn nr_cpu_ids(&self) -> u32 {
        self.possible.last().map_or(0, |cpu| u32::from(cpu.0) + 1)
    }

    /// Returns the CPUs that can take packets: possible, online and not isolated.
    pub fn serving(&self) -> CpuSet {
        self.possible.intersection(&self.online).difference(&self.isolated)
    }

    /// Returns why `cpu` cannot take packets, or `None` if it can.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_core::cpu::{CpuSet, CpuStates};
    /// use rxsteer_core::CpuId;
    /// let mut host = CpuStates::all(6);
    /// host.online.remove(CpuId(1));
    /// let refusal = |id| host.refusal(CpuId(id)).map(|r| r.to_string());
    /// assert_eq!(refusal(0), None);
    /// assert_eq!(refusal(1).as_deref(), Some("CPU 1 is offline"));
    /// assert_eq!(refusal(6).as_deref(), Some("CPU 6 does not exist (possible 0-5)"));
    /// ```
    pub fn refusal(&self, cpu: CpuId) -> Option<CpuRefusal<'_>> {
        if !self.possible.contains(cpu) {
            Some(CpuRefusal::Missing { cpu, possible: &self.possible })
        } else if !self.online.contains(cpu) {
            Some(CpuRefusal::Offline(cpu))
        } else if self.isolated.contains(cpu) {
            Some(CpuRefusal::Isolated(cpu))
        } else {
            None
        }
    }

    /// Cuts `wanted` down to the CPUs that can take packets and keeps the reasons.
    pub fn usable(&self, wanted: &CpuSet) -> Usable {
        let existing = wanted.intersection(&self.possible);
        let online = existing.intersection(&self.online);
        Usable {
            cpus: online.difference(&self.isolated),
            dropped: Dropped {
                missing: wanted.difference(&self.possible),
                offline: existing.difference(&self.online),
                isolated: online.intersection(&self.isolated),
                possible: self.possible,
            },
        }
    }
}

/// Why one CPU cannot take packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CpuRefusal<'a> {
    /// No CPU of the host has this id.
    Missing {
        /// The id asked for.
        cpu: CpuId,
        /// The ids there are.
        possible: &'a CpuSet,
    },
    /// The CPU is not running.
    Offline(CpuId),
    /// The CPU is kept free of such work.
    Isolated(CpuId),
}

impl fmt::Display for CpuRefusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { cpu, possible } => {
                write!(f, "CPU {cpu} does not exist (possible {})", possible.list())
            }
            Self::Offline(cpu) => write!(f, "CPU {cpu} is offline"),
            Self::Isolated(cpu) => write!(f, "CPU {cpu} is isolated"),
        }
    }
}

/// The usable part of a wish, and what was left out of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Usable {
    /// The CPUs of the wish that can take packets.
    pub cpus: CpuSet,
    /// The others, each in exactly one set.
    pub dropped: Dropped,
}

impl Usable {
    /// Returns the message to refuse with if no CPU is left.
    pub fn refusal(&self) -> Option<NoUsableCpu<'_>> {
        self.cpus.is_empty().then_some(NoUsableCpu(&self.dropped))
    }
}

/// The CPUs of a wish that cannot take packets, by reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dropped {
    /// CPUs that do not exist.
    pub missing: CpuSet,
    /// CPUs that exist but do not run.
    pub offline: CpuSet,
    /// CPUs that run but are kept free.
    pub isolated: CpuSet,
    /// The ids there are, for the message.
    possible: CpuSet,
}

impl Dropped {
    /// Returns whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.offline.is_empty() && self.isolated.is_empty()
    }
}

/// Says for each reason which CPUs it left out: `52-55 are offline, 60 does not exist (possible
/// 0-55)`. Nothing left out is no text.
impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let reasons = [
            (&self.missing, "does not exist", "do not exist", true),
            (&self.offline, "is offline", "are offline", false),
            (&self.isolated, "is isolated", "are isolated", false),
        ];
        for (cpus, one, many, say_possible) in reasons {
            if cpus.is_empty() {
                continue;
            }
            let verb = if cpus.count() == 1 { one } else { many };
            write!(f, "{comma}{} {verb}", cpus.list())?;
            if say_possible {
                write!(f, " (possible {})", self.possible.list())?;
            }
            comma = ", ";
        }
        Ok(())
    }
}

/// The message for a wish of which nothing is left.
#[derive(Clone, Copy, Debug)]
pub struct NoUsableCpu<'a>(&'a Dropped);

impl fmt::Display for NoUsableCpu<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no usable CPU left: the set is empty");
        }
        write!(f, "no usable CPU left: {}", self.0)
    }
}
