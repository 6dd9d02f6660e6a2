//! Captures, host models, workloads and replay.
