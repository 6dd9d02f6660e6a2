//! Sets of CPUs: the set itself, its two notations in Linux, and which CPUs of a wish are usable.
//!
//! `set` holds [`CpuSet`]; `list` reads and writes the cpulist notation (`0-3,8`); `mask` the
//! hexadecimal one (`00,0003fffe`); `usable` cuts a wish down to what the host offers, with reasons.
//!
//! Always true: a set has no order and no text of its own; two texts are equal when their sets are.
//! Elsewhere: which CPU a packet gets ([`crate::steer`]).
//! Source: Linux, Documentation/core-api (bitmaps, `bitmap_parselist`), Documentation/
//! admin-guide/cputopology.rst, Documentation/networking/scaling.rst (`rps_cpus`).

mod error;
mod list;
mod mask;
mod set;
mod usable;

pub use error::{CpuSetError, CpuSetReason};
pub use list::CpuList;
pub use mask::CpuMask;
pub use set::{CpuSet, Iter};
pub use usable::{CpuRefusal, CpuStates, Dropped, NoUsableCpu, Usable};

#[cfg(test)]
mod field_reports;
#[cfg(test)]
mod tests;
