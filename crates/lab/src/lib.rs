//! Captures, host models, workloads and replay.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod capture;
pub mod config;
pub mod consumer;
pub mod experiment;
pub mod generate;
pub mod host;
pub mod listing;
pub mod replay;
pub mod report;
pub mod rss;
pub mod verdict;
