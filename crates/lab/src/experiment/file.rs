//! The TOML form of an experiment: plain values with their places, nothing checked but the shape.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::config::{some_table, table};
use crate::consumer::{ConsumerFile, EventFile};
use crate::host::HostFile;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentFile {
    pub(super) name: Spanned<String>,
    pub(super) title: Spanned<String>,
    pub(super) about: String,
    pub(super) reproduces: Option<Spanned<String>>,
    pub(super) seed: Option<u64>,
    pub(super) duration: Option<Spanned<String>>,
    pub(super) policies: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) show: Spanned<Vec<Spanned<String>>>,
    #[serde(default, deserialize_with = "table")]
    pub(super) options: OptionsFile,
    #[serde(default, deserialize_with = "table")]
    pub(super) host: HostFile,
    #[serde(default)]
    pub(super) traffic: Vec<Spanned<TrafficFile>>,
    #[serde(default, deserialize_with = "some_table")]
    pub(super) lookups: Option<LookupsFile>,
    #[serde(default)]
    pub(super) consumer: Vec<ConsumerFile>,
    #[serde(default)]
    pub(super) event: Vec<EventFile>,
    #[serde(default)]
    pub(super) case: Vec<CaseFile>,
    #[serde(default, deserialize_with = "some_table")]
    pub(super) sweep: Option<SweepFile>,
    #[serde(default)]
    pub(super) figure: Vec<FigureFile>,
    #[serde(default)]
    pub(super) claim: Vec<ClaimFile>,
    #[serde(default)]
    pub(super) plot: Vec<PlotFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OptionsFile {
    pub(super) service: Option<Spanned<String>>,
    pub(super) mode: Option<Spanned<String>>,
    pub(super) kernel: Option<Spanned<String>>,
    pub(super) drain: bool,
    pub(super) track_fragments: bool,
    pub(super) ignore_flow_label: bool,
}

/// One sender, or a set of equal ones. Which keys go with which kind is checked afterwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficFile {
    pub(super) kind: Spanned<String>,
    /// For `set` only.
    pub(super) name: Option<Spanned<String>>,
    pub(super) flows: Option<Spanned<u64>>,
    pub(super) per_second: Option<Spanned<u64>>,
    pub(super) port: Option<Spanned<u16>>,
    pub(super) bytes: Option<Spanned<u32>>,
    pub(super) response_bytes: Option<Spanned<u32>>,
    pub(super) start: Option<Spanned<String>>,
    pub(super) stop: Option<Spanned<String>>,
    pub(super) protocol: Option<Spanned<String>>,
    pub(super) migrate_after: Option<Spanned<u32>>,
    pub(super) tunnel: Option<Spanned<String>>,
    pub(super) entropy: Option<Spanned<bool>>,
    pub(super) at_random: Option<Spanned<bool>>,
    pub(super) round_trip: Option<Spanned<String>>,
    pub(super) window: Option<Spanned<u32>>,
    pub(super) burst: Option<Spanned<u32>>,
    pub(super) one_client: Option<Spanned<bool>>,
    pub(super) flow_label: Option<Spanned<u32>>,
    pub(super) burst_gap_ns: Option<Spanned<u32>>,
    pub(super) client_cpu: Option<Spanned<u16>>,
    pub(super) client_work_ns: Option<Spanned<u32>>,
}

/// Sockets on one port, and look-ups of packets for them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookupsFile {
    pub(super) connected: Option<Spanned<u32>>,
    pub(super) unconnected: Option<Spanned<u32>>,
    pub(super) packets: Option<Spanned<u32>>,
    pub(super) to: Option<Spanned<String>>,
    pub(super) migrate_after: Option<Spanned<u32>>,
    pub(super) packet_ns: Option<Spanned<f64>>,
    pub(super) touch_ns: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    pub(super) name: Spanned<String>,
    pub(super) policies: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) set: BTreeMap<String, Spanned<toml::Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepFile {
    pub(super) key: Spanned<String>,
    /// What the swept quantity is called.
    pub(super) label: Spanned<String>,
    pub(super) values: Spanned<Vec<Spanned<i64>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FigureFile {
    pub(super) what: Spanned<String>,
    pub(super) source: Spanned<String>,
    pub(super) measure: Spanned<String>,
    pub(super) of: Spanned<String>,
    pub(super) over: Option<Spanned<String>>,
    pub(super) published: Spanned<f64>,
    pub(super) within: Option<Spanned<f64>>,
    pub(super) why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimFile {
    pub(super) what: Spanned<String>,
    pub(super) measure: Spanned<String>,
    pub(super) of: Spanned<String>,
    pub(super) over: Option<Spanned<String>>,
    pub(super) at_least: Option<Spanned<f64>>,
    pub(super) at_most: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlotFile {
    pub(super) title: Spanned<String>,
    pub(super) measure: Spanned<String>,
    pub(super) form: Spanned<String>,
    pub(super) case: Option<Spanned<String>>,
}
