//! The TOML form of how a host works: who runs when, and how much at a time.

use rxsteer_engine::overload::GovernorSettings;
use rxsteer_engine::{Mode, Settings};
use serde::Deserialize;
use toml::Spanned;

use super::Merge;
use crate::config::{ConfigError, Source};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EngineFile {
    mode: Option<Spanned<String>>,
    read_batch: Option<Spanned<u32>>,
    gro: bool,
    udp_gro: bool,
    gro_flush_timeout: Option<Spanned<u64>>,
    flow_limit_table_len: Option<Spanned<u32>>,
    rx_usecs: Option<Spanned<u64>>,
    rx_frames: Option<Spanned<u32>>,
    slice_us: Option<Spanned<u64>>,
    netdev_budget_usecs: Option<Spanned<u64>>,
    govern: Option<bool>,
}

/// A second: no wait of the engine is longer.
const SECOND_US: u64 = 1_000_000;

impl EngineFile {
    pub(super) const fn merge(&self) -> Merge {
        Merge { tcp: self.gro, udp: self.udp_gro }
    }
}

pub(super) fn settings(source: Source<'_>, file: &EngineFile) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    if let Some(mode) = &file.mode {
        settings.mode = mode
            .get_ref()
            .parse::<Mode>()
            .map_err(|error| source.refuse(mode, format!("`{}`: {error}", mode.get_ref())))?;
    }
    let within = |value: &Option<Spanned<u64>>, least: u64, most: u64, otherwise: u64| match value {
        None => Ok(otherwise),
        Some(value) if (least..=most).contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => Err(source.refuse(value, format!("allowed are {least} to {most}"))),
    };
    let count = |value: &Option<Spanned<u32>>, otherwise: u32| match value {
        None => Ok(otherwise),
        Some(value) if (1..=65_536).contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => Err(source.refuse(value, "allowed are 1 to 65536")),
    };
    settings.read_batch = count(&file.read_batch, settings.read_batch)?;
    settings.interrupt_packets = count(&file.rx_frames, settings.interrupt_packets)?;
    settings.interrupt_delay_ns = 1000 * within(&file.rx_usecs, 0, SECOND_US, 0)?;
    settings.gro_flush_ns = within(&file.gro_flush_timeout, 0, 1000 * SECOND_US, 0)?;
    settings.slice_ns = 1000 * within(&file.slice_us, 1, SECOND_US, settings.slice_ns / 1000)?;
    let budget_us = settings.limits.budget_ns / 1000;
    settings.limits.budget_ns = 1000 * within(&file.netdev_budget_usecs, 1, SECOND_US, budget_us)?;
    if let Some(buckets) = &file.flow_limit_table_len {
        settings.flow_limit_buckets = match *buckets.get_ref() {
            0 => 0,
            n if n.is_power_of_two() && n <= 1 << 20 => n,
            _ => {
                let message = "allowed are 0 (off) and powers of two up to 1048576";
                return Err(source.refuse(buckets, message));
            }
        };
    }
    if file.govern == Some(true) {
        settings.govern = Some(GovernorSettings::default());
    }
    Ok(settings)
}
