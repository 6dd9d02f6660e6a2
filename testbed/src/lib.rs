//! Network namespaces with real devices in them, for live tests and benchmarks.
//!
//! A [`Testbed`] makes namespaces, veth pairs between them, VLAN and VXLAN devices, addresses and
//! routes, all through netlink, and takes them away again when it is dropped. What a killed
//! process left behind is taken away by the next one: every name carries a lease that says whose
//! it is. Beside it: pinning, CPU time, counters of the kernel, and settings that are put back.
//!
//! Always true: nothing is made or changed outside the own namespaces, except through
//! [`Settings`], which keeps a journal; a name that does not carry a lease of ours is not touched.
//! Elsewhere: packets and their receivers (`rxsteer-bench`).
#![forbid(unsafe_code)]

mod address;
mod counters;
mod cpu;
mod error;
mod lease;
mod link;
mod namespace;
mod offload;
mod pair;
mod privilege;
mod reap;
mod settings;
mod testbed;

pub use counters::{
    CpuTimes, DeviceCounters, Snmp, Softnet, SoftnetCpu, snmp_now, softirq_now, softnet_now,
};
pub use cpu::{Busy, allowed_cpus, pin_thread, process_cpu_time, thread_cpu_time};
pub use error::{TestbedError, limit_hint};
pub use lease::{Lease, Owner};
pub use link::{Device, VethEnd, VethSpec, VxlanSpec};
pub use namespace::Namespace;
pub use offload::Offloads;
pub use pair::{Pair, PairSpec};
pub use privilege::{MissingPrivileges, Privilege, missing_privileges};
pub use reap::{Reaped, reap};
pub use settings::{Change, Journal, Place, Restored, Settings, restore};
pub use testbed::Testbed;
