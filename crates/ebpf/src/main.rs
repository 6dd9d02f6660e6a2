//! The eBPF programs: read the context, call core, map the answer to an XDP action; and hear what
//! sockets and CPUs do.
//!
//! Built for `bpfel-unknown-none` by `cargo xtask ebpf`; on any other target this is an empty
//! program, so that tools which walk over every package still build it.
//!
//! Always true: unknown traffic passes; the panic handler loops for ever, so the verifier refuses
//! a program in which a panic can be reached.
//! Elsewhere: names and layouts of the maps (the library of this crate).
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(
    target_arch = "bpf",
    feature(asm_experimental_arch, core_intrinsics, adt_const_params),
    allow(internal_features, reason = "compare-and-swap has no other name on this target")
)]
#![warn(missing_docs, unreachable_pub)]

#[cfg(target_arch = "bpf")]
mod answers;
#[cfg(target_arch = "bpf")]
mod backlog;
#[cfg(target_arch = "bpf")]
mod credits;
#[cfg(target_arch = "bpf")]
mod events;
#[cfg(target_arch = "bpf")]
mod flows;
#[cfg(target_arch = "bpf")]
mod frame;
#[cfg(target_arch = "bpf")]
mod host;
#[cfg(target_arch = "bpf")]
mod ports;
#[cfg(target_arch = "bpf")]
mod programs;
#[cfg(target_arch = "bpf")]
mod sockets;

#[cfg(not(target_arch = "bpf"))]
fn main() {}
