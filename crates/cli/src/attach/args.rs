//! The command line of `attach` and `status` as it was typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const ATTACH_HELP: &str = "\
The interface is steered while this command runs; it ends with Ctrl-C or SIGTERM, and whatever ends it,
packets flow as without it from then on and nothing stays attached. Needs root, or CAP_NET_ADMIN,
CAP_BPF and CAP_PERFMON.
Exit codes: 0 it was attached, or --check found nothing in the way; 1 an error; 2 wrong usage.";

pub(crate) const STATUS_HELP: &str = "\
Shows the interfaces of this network namespace that some rxsteer steers now. Needs root.
Exit codes: 0 all went well, also if nothing is attached; 1 an error.";

/// What `attach` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct AttachArgs {
    /// Interface whose packets are steered
    #[arg(value_name = "IFACE")]
    pub interface: Option<String>,
    /// CPUs that may take packets: all, housekeeping (without isolated ones) or a list such as 0-3,8
    /// [default: housekeeping]
    #[arg(long, value_name = "CPUS", allow_negative_numbers = true)]
    pub cpus: Option<String>,
    /// Where the program runs: native (in the driver), skb (in the network stack), or auto: native if
    /// the driver can [default: auto]
    #[arg(short, long, value_name = "MODE")]
    pub mode: Option<String>,
    /// What decides: flow-aware, rps (by hash alone) or none (count only) [default: flow-aware]
    #[arg(short, long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Flows that each of the two tables, TCP's and UDP's, can hold, such as 64k, at most 16M; some 180
    /// bytes of kernel memory each, with what is kept of their sockets [default: 64k]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub table_entries: Option<String>,
    /// Packets that may wait for one CPU, 1 to 16384 [default: 2048]
    #[arg(long, value_name = "PACKETS", allow_negative_numbers = true)]
    pub qsize: Option<String>,
    /// Hear the sockets of all network namespaces, not only of the interface's
    #[arg(long)]
    pub all_namespaces: bool,
    /// The same settings as TOML, one key a flag: interface, cpus, mode, policy, table-entries, qsize,
    /// all-namespaces; a flag goes before it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Say what would work and what would not; attach nothing
    #[arg(long)]
    pub check: bool,
}

/// What `status` is told.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct StatusArgs {
    /// JSON with a schema version
    #[arg(short, long)]
    pub json: bool,
}
