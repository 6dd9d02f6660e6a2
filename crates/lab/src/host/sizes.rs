//! Sizes of the flow tables, rounded as Linux rounds them.
//!
//! Source: Documentation/networking/scaling.rst, "RFS configuration"; the ceilings are those of
//! Linux 7.x (net/core/sysctl_net_core.c, net/core/net-sysfs.c): 2^29 words, 2^27 entries.

/// Sizes of the flow tables of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableSizes {
    /// `net.core.rps_sock_flow_entries`, rounded; 0 for no table.
    pub sock_flow_entries: u32,
    /// Entries of each of the two flow-aware tables, of TCP and of UDP (8 bytes each), rounded;
    /// at least 8.
    pub flow_entries: u32,
    /// `rps_flow_cnt` of each queue as asked for; `None` for the share of
    /// [`Self::sock_flow_entries`].
    pub flow_cnt: Option<u32>,
}

impl Default for TableSizes {
    fn default() -> Self {
        Self { sock_flow_entries: 32_768, flow_entries: 32_768, flow_cnt: None }
    }
}

impl TableSizes {
    /// Sizes for `entries` flows; the tables of the queues get their shares.
    ///
    /// # Errors
    /// More than the kernel takes.
    pub fn for_entries(entries: u64) -> Result<Self, SizeError> {
        let sock_flow_entries = rps_sock_flow_entries(entries)?;
        Ok(Self { sock_flow_entries, flow_entries: sock_flow_entries.max(8), flow_cnt: None })
    }

    /// Returns the entries of the table of each of `queues` queues, rounded.
    ///
    /// The documented share: all entries divided by the number of queues, rounded up.
    pub fn flow_cnt_per_queue(&self, queues: u32) -> u32 {
        match self.flow_cnt {
            Some(count) => count,
            None if self.sock_flow_entries == 0 => 0,
            None => {
                let share = self.sock_flow_entries.div_ceil(queues.max(1));
                share.next_power_of_two().min(MAX_FLOW_CNT)
            }
        }
    }
}

const MAX_SOCK_FLOW_ENTRIES: u32 = 1 << 29;
const MAX_FLOW_CNT: u32 = 1 << 27;

/// Returns what the kernel makes of a value written to `net.core.rps_sock_flow_entries`.
///
/// # Errors
/// Above 2^29: the kernel answers EINVAL.
///
/// # Examples
/// ```
/// use rxsteer_lab::host::rps_sock_flow_entries;
/// assert_eq!(rps_sock_flow_entries(3), Ok(4));
/// assert_eq!(rps_sock_flow_entries(0), Ok(0)); // no table
/// assert!(rps_sock_flow_entries((1 << 29) + 1).is_err());
/// ```
pub fn rps_sock_flow_entries(value: u64) -> Result<u32, SizeError> {
    round(value, MAX_SOCK_FLOW_ENTRIES, "rps_sock_flow_entries")
}

/// Returns what the kernel makes of a value written to a queue's `rps_flow_cnt`.
///
/// # Errors
/// Above 2^27 after rounding: the kernel answers EINVAL.
pub fn rps_flow_cnt(value: u64) -> Result<u32, SizeError> {
    round(value, MAX_FLOW_CNT, "rps_flow_cnt")
}

fn round(value: u64, max: u32, name: &'static str) -> Result<u32, SizeError> {
    match u32::try_from(value) {
        Ok(0) => Ok(0),
        Ok(n) if n <= max => Ok(n.next_power_of_two()),
        _ => Err(SizeError { name, value, max }),
    }
}

/// A table size that the kernel refuses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SizeError {
    name: &'static str,
    value: u64,
    max: u32,
}

impl std::fmt::Display for SizeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, value, max } = self;
        write!(f, "{name} {value}: the kernel refuses more than {max} (EINVAL)")
    }
}

impl std::error::Error for SizeError {}
