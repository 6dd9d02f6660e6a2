//! Receive set-ups of the host.
//!
//! Source: Documentation/networking/scaling.rst, "RPS", "RFS", "RPS Flow Limit";
//! Documentation/networking/napi.rst, "Threaded NAPI".
//! Elsewhere: what `rxsteer` attaches ([`super::steered`]).

use rxsteer_core::CpuSet;
use rxsteer_testbed::{Pair, Place, Settings};
use serde::Serialize;

use crate::BenchError;
use crate::words::words;

/// Entries of the flow table under RFS.
pub(super) const FLOW_ENTRIES: u32 = 32_768;

/// A receive set-up of the host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setup {
    /// Packets are processed on the CPU that took them.
    #[default]
    None,
    /// Spread by hash over the CPUs.
    Rps,
    /// That, and flows follow their readers.
    Rfs,
    /// A kernel thread polls the device instead of softirqs.
    Threaded,
    /// RPS, and a CPU whose backlog is half full drops packets of the largest flows.
    FlowLimit,
    /// `rxsteer` attached to the device, with its usual settings.
    Rxsteer,
}

words!(Setup: "none" Setup::None, "rps" Setup::Rps, "rfs" Setup::Rfs,
    "threaded" Setup::Threaded, "flow-limit" Setup::FlowLimit,
    "rxsteer" Setup::Rxsteer);

impl Setup {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Rps, Self::Rfs, Self::Threaded, Self::FlowLimit, Self::Rxsteer];

    /// Makes its settings at the receiving end of a pair, and those that are of the whole host.
    pub(super) fn apply(
        self,
        pair: &Pair,
        cpus: &CpuSet,
        settings: &mut Settings,
    ) -> Result<(), BenchError> {
        let inside = Place::from(&pair.sink);
        let device = format!("/sys/class/net/{}", Pair::SINK_DEVICE);
        let queues = pair.sink_device.rx_queues;
        let ids = cpus.last().map_or(1, |last| u32::from(last.0) + 1);
        let mask = cpus.mask(ids).to_string();
        if matches!(self, Self::Rps | Self::Rfs | Self::FlowLimit) {
            for queue in 0..queues {
                settings.set(&inside, &format!("{device}/queues/rx-{queue}/rps_cpus"), &mask)?;
            }
        }
        match self {
            Self::None | Self::Rps | Self::Rxsteer => {}
            Self::Rfs => {
                let entries = "/proc/sys/net/core/rps_sock_flow_entries";
                settings.set(&Place::Host, entries, &FLOW_ENTRIES.to_string())?;
                let each = (FLOW_ENTRIES / queues.next_power_of_two()).max(1).to_string();
                for queue in 0..queues {
                    let path = format!("{device}/queues/rx-{queue}/rps_flow_cnt");
                    settings.set(&inside, &path, &each)?;
                }
            }
            Self::Threaded => settings.set(&inside, &format!("{device}/threaded"), "1")?,
            Self::FlowLimit => {
                let bitmap = "/proc/sys/net/core/flow_limit_cpu_bitmap";
                settings.set(&Place::Host, bitmap, &mask)?;
            }
        }
        Ok(())
    }
}
