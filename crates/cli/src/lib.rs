//! The `rxsteer` command: arguments, verbs, and how results are shown.
//!
//! What a replay does is in `rxsteer-lab`; here is only how it is asked for and printed. It is a
//! library so that the man pages can be made from the same description of the arguments.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod args;
pub mod render;
