//! The command lines of `attach` and the verbs beside it as they were typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

// A paragraph is a line: clap breaks it for the width of the terminal.
pub(crate) const ATTACH_HELP: &str = "\
The interface is steered while this command runs; it ends with Ctrl-C, SIGTERM or `rxsteer detach`, and \
whatever ends it, packets flow as without it from then on and nothing stays attached. SIGHUP reads the \
file of --config again; without one it ends the command. Needs root, or CAP_NET_ADMIN, CAP_BPF and \
CAP_PERFMON.

Exit codes: 0 it was attached and told to end, or --check found nothing in the way; 1 an error, also if \
the interface goes away; 2 wrong usage.";

pub(crate) const DETACH_HELP: &str = "\
Asks the process that steers the interface to end, and waits until nothing is attached any more. One that \
does not listen gets SIGTERM. After a kill nothing is left to detach, and that is said.

Exit codes: 0 nothing is attached now; 1 an error.";

pub(crate) const STATUS_HELP: &str = "\
Shows the interfaces of this network namespace that some rxsteer steers now. Needs root, or CAP_SYS_ADMIN; \
without it only what the processes say of themselves is shown.

Exit codes: 0 all went well, also if nothing is attached; 1 an error, also if not all can be seen.";

pub(crate) const RELOAD_HELP: &str = "\
Does what SIGHUP does, and says what came of it. Settings that are wrong change nothing.

Exit codes: 0 the settings of the file are in force; 1 they are not, or nothing is attached.";

pub(crate) const CHECK_CONFIG_HELP: &str = "\
Says what is wrong in the file, with line and column; if all is well, what it comes to on this host.

Exit codes: 0 it may be used; 1 it may not.";

/// What `attach` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct AttachArgs {
    /// Interface whose packets are steered
    #[arg(value_name = "IFACE")]
    pub interface: Option<String>,
    /// CPUs that may take packets: all, housekeeping (without isolated ones) or a list of ids such as
    /// 0-3,8; 4 is CPU 4 alone, not four CPUs [default: housekeeping]
    #[arg(long, value_name = "CPUS", allow_negative_numbers = true)]
    pub cpus: Option<String>,
    /// Where the program runs: native (in the driver), skb (in the network stack), or auto: native if
    /// the driver can [default: auto]
    #[arg(short, long, value_name = "MODE")]
    pub mode: Option<String>,
    /// What decides: flow-aware, rps (by hash alone) or none (count only) [default: flow-aware]
    #[arg(short, long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Flows that each of the two tables, TCP's and UDP's, can hold, such as 64k, at most 16M, rounded up
    /// to a power of two; some 180 bytes of kernel memory each, with what is kept of their sockets
    /// [default: 64k]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub table_entries: Option<String>,
    /// Packets that may wait for one CPU, 1 to 16384 [default: 2048]
    #[arg(long, value_name = "PACKETS", allow_negative_numbers = true)]
    pub qsize: Option<String>,
    /// Hear the sockets of all network namespaces, not only of the interface's
    #[arg(long)]
    pub all_namespaces: bool,
    /// Lead packets of no known flow to the reader of their UDP port: on or off [default: on]
    #[arg(long, value_name = "SWITCH")]
    pub ports: Option<String>,
    /// Local UDP ports that carry flows though their sockets are not connected, such as
    /// 443,10000-10100, or none: the packets of each peer go to the CPU of the thread that answers it
    /// (Linux 6.6) [default: none]
    #[arg(long, value_name = "PORTS", allow_hyphen_values = true)]
    pub flow_ports: Option<String>,
    /// Drop early, in XDP, what its UDP socket has no room for: on or off [default: on]
    #[arg(long, value_name = "SWITCH")]
    pub shed: Option<String>,
    /// Send the packets of a CPU that does not get through to a CPU beside it, while a trial shows that
    /// more is read so: on or off [default: on]
    #[arg(long, value_name = "SWITCH")]
    pub beside: Option<String>,
    /// Serve metrics for Prometheus there, at /metrics: 127.0.0.1:9477, or :9477 for all
    /// addresses [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<String>,
    /// The same settings as TOML, one key a flag: interface, cpus, mode, policy, table-entries, qsize,
    /// all-namespaces, ports, flow-ports, shed, beside, metrics; a flag goes before it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Take over from the rxsteer that steers the interface now, without a gap and with its counters;
    /// if there is none, attach anew
    #[arg(long)]
    pub replace: bool,
    /// Say what would work and what would not; attach nothing
    #[arg(long, conflicts_with = "replace")]
    pub check: bool,
    /// With --check: JSON with a schema version
    #[arg(short, long, requires = "check")]
    pub json: bool,
}

/// What `detach` is told.
#[derive(Args, Clone, Debug, Default)]
#[group(required = true, multiple = false)]
pub struct DetachArgs {
    /// Interface that is to be let go
    #[arg(value_name = "IFACE")]
    pub interface: Option<String>,
    /// All interfaces of this network namespace that some rxsteer steers
    #[arg(long)]
    pub all: bool,
}

/// What `reload` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct ReloadArgs {
    /// Interface whose process reads its file again
    #[arg(value_name = "IFACE")]
    pub interface: String,
}

/// What `check-config` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckConfigArgs {
    /// The file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// What `status` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct StatusArgs {
    /// Only this interface
    #[arg(value_name = "IFACE")]
    pub interface: Option<String>,
    /// JSON with a schema version; with --watch one object a line
    #[arg(short, long)]
    pub json: bool,
    /// Again and again, with what happened in a second; until Ctrl-C [default of SECONDS: 1]
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    pub watch: Option<f64>,
    /// With --watch: how often [default: without end]
    #[arg(short = 'n', long, value_name = "COUNT", requires = "watch")]
    pub iterations: Option<u64>,
}
