//! What an attachment is told.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::Aware;
use rxsteer_core::{CpuSet, PortSet};

use super::AttachedMode;

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// In the driver if it can, else in the network stack.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the network stack.
    Skb,
}

/// What decides.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LivePolicy {
    /// Flows go to their consumers, all else is spread by hash.
    #[default]
    FlowAware,
    /// All is spread by hash: no socket is heard.
    Rps,
    /// Every packet stays where it came in; it is counted.
    None,
}

/// A text names none of the choices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoSuchChoice(&'static str);

impl fmt::Display for NoSuchChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there are {}", self.0)
    }
}

impl std::error::Error for NoSuchChoice {}

impl Mode {
    /// Returns the mode's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Skb => "skb",
        }
    }

    /// Returns whether this is a way to be attached that was asked for.
    pub(super) const fn allows(self, mode: AttachedMode) -> bool {
        match self {
            Self::Auto => matches!(mode, AttachedMode::Native | AttachedMode::Skb),
            Self::Native => matches!(mode, AttachedMode::Native),
            Self::Skb => matches!(mode, AttachedMode::Skb),
        }
    }
}

impl FromStr for Mode {
    type Err = NoSuchChoice;

    fn from_str(text: &str) -> Result<Self, NoSuchChoice> {
        let found =
            [Self::Auto, Self::Native, Self::Skb].into_iter().find(|mode| mode.name() == text);
        found.ok_or(NoSuchChoice("auto, native, skb"))
    }
}

impl LivePolicy {
    /// Returns the policy's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlowAware => "flow-aware",
            Self::Rps => "rps",
            Self::None => "none",
        }
    }
}

impl FromStr for LivePolicy {
    type Err = NoSuchChoice;

    fn from_str(text: &str) -> Result<Self, NoSuchChoice> {
        let all = [Self::FlowAware, Self::Rps, Self::None];
        let found = all.into_iter().find(|policy| policy.name() == text);
        found.ok_or(NoSuchChoice("flow-aware, rps, none"))
    }
}

/// What an attachment is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Name of the interface, in the network namespace of the calling thread.
    pub interface: String,
    /// Where the program runs.
    pub mode: Mode,
    /// What decides.
    pub policy: LivePolicy,
    /// CPUs that may take packets; they must be online.
    pub cpus: CpuSet,
    /// Flows that each of the two tables, TCP's and UDP's, can hold: 8 to 2^24, rounded up to a
    /// power of two; 8 bytes each.
    pub table_entries: u32,
    /// Packets that may wait for one CPU: 1 to 16,384.
    pub queue_packets: u32,
    /// Settings of the decision.
    pub aware: Aware,
    /// Hear sockets of all network namespaces, not only of the interface's.
    pub all_namespaces: bool,
    /// Key of the flow hash; `None` for a random one, as it should be. A key that senders can guess
    /// lets them choose the CPU that they load; a replay that predicts this run has to know it. A change
    /// keeps the key that there is.
    pub hasher: Option<SoftHasher>,
    /// Lead packets of no known flow to the reader of their UDP port.
    pub ports: bool,
    /// Local UDP ports that carry flows though their sockets are not connected: each peer that is answered
    /// again is a flow, which goes to the CPU of the thread that answers. Needs Linux 6.6.
    pub flow_ports: PortSet,
    /// Drop in XDP what its UDP socket has no room for.
    pub shed: bool,
    /// Send the packets of CPUs that cannot carry them to CPUs beside them, where a trial shows that
    /// sockets read and send more by it: by [`Attachment::relieve`](super::Attachment::relieve).
    pub beside: bool,
}

impl Settings {
    /// Flows of each table, if nothing else is said.
    pub const TABLE_ENTRIES: u32 = 65_536;
    /// Packets that may wait for one CPU, if nothing else is said.
    pub const QUEUE_PACKETS: u32 = 2048;

    /// Returns the usual settings for an interface.
    pub fn new(interface: impl Into<String>, cpus: CpuSet) -> Self {
        Self {
            interface: interface.into(),
            mode: Mode::default(),
            policy: LivePolicy::default(),
            cpus,
            table_entries: Self::TABLE_ENTRIES,
            queue_packets: Self::QUEUE_PACKETS,
            aware: Aware::default(),
            all_namespaces: false,
            hasher: None,
            ports: true,
            flow_ports: PortSet::EMPTY,
            shed: true,
            beside: true,
        }
    }

    /// Flows that each of the two tables may hold. The map of connected sockets has room for both, at
    /// some 80 bytes each in the kernel, and kernels before 5.11 make no map of 4 GiB or more.
    pub const ALLOWED_ENTRIES: RangeInclusive<u32> = 8..=1 << 24;

    /// Packets that may wait for one CPU.
    pub const ALLOWED_PACKETS: RangeInclusive<u32> = 1..=16_384;

    /// Returns whether answers of sockets that are not connected are to be heard.
    pub(super) fn hears_answers(&self) -> bool {
        self.policy == LivePolicy::FlowAware && !self.flow_ports.is_empty()
    }

    /// Returns the flows for which each table has room: what was asked for, rounded up to a power of
    /// two.
    pub fn table_room(&self) -> u32 {
        let (least, most) = (*Self::ALLOWED_ENTRIES.start(), *Self::ALLOWED_ENTRIES.end());
        self.table_entries.clamp(least, most).next_power_of_two()
    }

    /// Returns the buckets of each table.
    pub(super) fn buckets(&self) -> u32 {
        self.table_room() / rxsteer_core::table::WAYS as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_are_refused_with_the_choices() {
        assert_eq!("skb".parse(), Ok(Mode::Skb));
        assert_eq!("flow-aware".parse(), Ok(LivePolicy::FlowAware));
        let said = "rfs".parse::<LivePolicy>().map_err(|error| error.to_string());
        assert_eq!(said, Err("there are flow-aware, rps, none".to_owned()));
        assert!("fast".parse::<Mode>().is_err());
    }

    #[test]
    fn a_table_has_room_for_at_least_what_was_asked_for() {
        let buckets = |table_entries| {
            Settings { table_entries, ..Settings::new("x", CpuSet::EMPTY) }.buckets()
        };
        assert_eq!([0, 8, 9, 65_536].map(buckets), [1, 1, 2, 8192]);
        assert_eq!(buckets(u32::MAX), (1 << 24) / 8);
    }
}
