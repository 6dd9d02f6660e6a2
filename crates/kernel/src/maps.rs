//! File descriptors of the maps that the programs use.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use aya::maps::Map;

/// Returns the descriptor of a map of one of the kinds that the programs declare.
pub(crate) fn raw_fd(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(data) | Map::PerCpuArray(data) | Map::CpuMap(data) => {
            Some(data.fd().as_fd().as_raw_fd())
        }
        _ => None,
    }
}
