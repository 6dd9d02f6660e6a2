//! The running kernel: loads the eBPF programs, attaches them to interfaces, and asks the verifier
//! about them.
//!
//! The programs are built from `crates/ebpf` by `cargo xtask ebpf` and committed as `object/`, so
//! that nobody needs LLVM to build this crate.
//!
//! Elsewhere: what the programs decide (`rxsteer-core`); the layout of their maps
//! (`rxsteer-ebpf`).

mod attach;
mod btf;
mod capabilities;
mod host;
mod link;
mod load;
mod object;
mod testrun;
mod twin;
mod verifier;

pub use attach::{
    Answers, AttachError, AttachedMode, Attachment, Change, Counters, CpuCounters, Finding,
    Handover, Holder, KernelSteering, LivePolicy, Mode, NoSuchChoice, OnInterface, Settings,
    Status, StatusError, Weight, check_attachment, holders, lists_programs, look_at_interface,
    programs_on_interfaces, status,
};
pub use btf::BtfError;
pub use capabilities::{Capability, missing_capabilities};
pub use host::host_cpus;
pub use object::OBJECT;
pub use testrun::{Action, Run, Setup, TestBed, TestRunError};
pub use twin::Twin;
pub use verifier::{ProgramReport, VerifyError, verify};
