//! The command line as it was typed: plain values, nothing checked but the shape.
//!
//! Elsewhere: turning the values into checked types ([`checked`]).

pub mod checked;
mod lab;
mod quantity;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

pub use lab::{LabListArgs, LabRunArgs, LabShowArgs, LabVerb};
pub use quantity::{QuantityError, quantity};

// A paragraph is a line: clap breaks it for the width of the terminal.
const AFTER_HELP: &str = "\
Results go to the standard output, messages to the standard error.

Exit codes: 0 all went well; 1 an error; 2 wrong usage.";

const CAPTURE_HELP: &str = "\
Results go to the standard output, messages to the standard error. A fault inside a capture is an error; \
the result of the packets before it is printed all the same. An interrupt (Ctrl-C) ends the reading, \
with the result so far and exit code 1; a second one ends at once, with 130.

Exit codes: 0 all went well; 1 an error; 2 wrong usage, or --strict and a capture that ends early.";

const EXAMPLES: &str = "\
Examples:
  rxsteer replay                                   the built-in sample: a first look
  rxsteer replay dump.pcapng --cpus 16 --queues 4  my traffic on a host like mine
  rxsteer replay -p rps,rfs dump.pcapng --ethtool rss.txt --rps-cpus 0-7
  tcpdump -i eth0 -s 128 -w - | rxsteer replay -   from a pipe (ends with tcpdump)
  rxsteer flows dump.pcapng | head                 what is read of each packet
  rxsteer lab run idle-tcp                         an experiment beside its published figures";

/// Receive steering for Linux: what would RPS, RFS or another policy do to my traffic?
#[derive(Clone, Debug, Parser)]
#[command(name = "rxsteer", version, propagate_version = true, after_help = AFTER_HELP)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{AFTER_HELP}"), max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// Options of every verb.
    #[command(flatten)]
    pub global: Global,
}

/// Options of every verb.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// No colours; the environment variable NO_COLOR says the same [default: colours on a terminal]
    #[arg(long, global = true, help_heading = "Output", display_order = 900)]
    pub no_color: bool,
    /// Show more of a replay: rows in which every policy has 0, all readers of a port; other commands
    /// have nothing more to show
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Output")]
    #[arg(display_order = 901)]
    pub verbose: u8,
    /// Say nothing on the standard error but errors; no progress bar
    #[arg(short, long, global = true, help_heading = "Output", display_order = 902)]
    pub quiet: bool,
}

/// The verbs.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Replay captures on a modelled host under several policies, compare, and recommend
    #[command(after_help = CAPTURE_HELP, after_long_help = format!("{EXAMPLES}\n\n{CAPTURE_HELP}"))]
    Replay(Box<ReplayArgs>),
    /// Show what is read of each packet: layers, flow key, class, hash, flow; one line each
    #[command(after_help = CAPTURE_HELP)]
    Flows(FlowsArgs),
    /// Run experiments: workloads and hosts of public discussions, beside their published figures
    #[command(subcommand, after_help = AFTER_HELP)]
    Lab(LabVerb),
    /// Send, receive and compare real packets in network namespaces of its own; needs root
    #[cfg(target_os = "linux")]
    #[command(subcommand, after_help = crate::bench::args::AFTER_HELP)]
    Bench(crate::bench::args::BenchVerb),
    /// Steer the packets of an interface to their consumers, while this runs
    #[cfg(target_os = "linux")]
    #[command(after_help = crate::attach::args::ATTACH_HELP)]
    Attach(Box<crate::attach::args::AttachArgs>),
    /// Stop steering an interface, and wait until nothing is attached to it
    #[cfg(target_os = "linux")]
    #[command(after_help = crate::attach::args::DETACH_HELP)]
    Detach(crate::attach::args::DetachArgs),
    /// Show what is attached: settings, packets by reason, CPUs, and the kernel's own steering
    #[cfg(target_os = "linux")]
    #[command(after_help = crate::attach::args::STATUS_HELP)]
    Status(crate::attach::args::StatusArgs),
    /// Have the process that steers an interface read its file of settings again
    #[cfg(target_os = "linux")]
    #[command(after_help = crate::attach::args::RELOAD_HELP)]
    Reload(crate::attach::args::ReloadArgs),
    /// Say what is wrong in a file of settings of attach
    #[cfg(target_os = "linux")]
    #[command(after_help = crate::attach::args::CHECK_CONFIG_HELP)]
    CheckConfig(crate::attach::args::CheckConfigArgs),
    /// Print the completions of a shell
    #[command(after_help = AFTER_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Which captures to read.
#[derive(Args, Clone, Debug, Default)]
pub struct InputArgs {
    /// Captures: pcap or pcapng, plain, gzip or zstd; several are merged by time; - is the standard
    /// input. Without one, replay takes its built-in sample; flows needs one
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// The same, as tcpdump takes it; may be given several times
    #[arg(short, long = "read", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub read: Vec<PathBuf>,
}

/// What makes the flow hash.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow hash")]
pub struct HashArgs {
    /// Fields that make the flow hash: kernel (as Linux) or inner (innermost readable flow)
    /// [default: kernel]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Whether an IPv6 flow label takes the place of the ports: use (as Linux) or ignore
    /// [default: use]
    #[arg(long, value_name = "USE")]
    pub flow_label: Option<String>,
    /// How the outermost VLAN tag takes part: tag (as Linux), tag-unless-priority (a tag with id 0
    /// counts as none) or ignore [default: tag]
    #[arg(long, value_name = "USE")]
    pub vlan: Option<String>,
    /// Hash the outermost IP header only, whatever it carries
    #[arg(long)]
    pub outer: bool,
    /// Put WireGuard's receiver index into the hash (mode inner): it separates peers behind one
    /// address
    #[arg(long)]
    pub wireguard_index: bool,
    /// Seed of the flow hash and of all else that is drawn [default: 1]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub seed: Option<String>,
}

/// What `replay` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct ReplayArgs {
    /// Captures [default: the built-in sample]
    #[command(flatten)]
    pub input: InputArgs,

    /// Policies to compare, with commas: none, rps, rfs-2010, rfs-clear, rfs, rfs-split, rfs-tcp,
    /// flow-aware, or all [default: all]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', help_heading = "Policies")]
    pub policy: Vec<String>,
    /// Version of Linux whose RFS the policy rfs models, from 2.6.35 on [default: the newest known]
    #[arg(long, value_name = "VERSION", help_heading = "Policies", allow_negative_numbers = true)]
    pub kernel: Option<String>,
    /// Entries of the flow tables (rps_sock_flow_entries), such as 32k [default: 32k, or the host's]
    #[arg(long, value_name = "COUNT", help_heading = "Policies", allow_negative_numbers = true)]
    pub table_entries: Option<String>,
    /// Entries of each queue's table (rps_flow_cnt) [default: table entries / queues, or the host's]
    #[arg(long, value_name = "COUNT", help_heading = "Policies", allow_negative_numbers = true)]
    pub flow_cnt: Option<String>,
    /// Replay again for each size and report the curve: table-entries=1k..1M (doubling) or
    /// table-entries=1k,8k,64k
    #[arg(long, value_name = "NAME=RANGE", help_heading = "Policies")]
    pub sweep: Option<String>,
    /// Under the policy rps, let a flow change its CPU only when the old one is done with its packets
    #[arg(long, help_heading = "Policies")]
    pub drain: bool,
    /// Let later fragments follow the ports of the first (Linux does not)
    #[arg(long, help_heading = "Policies")]
    pub track_fragments: bool,
    /// Send each packet of an IPsec tunnel to the next CPU in turn, and count the reordering
    #[arg(long, help_heading = "Policies")]
    pub spread_esp: bool,

    /// What makes the flow hash
    #[command(flatten)]
    pub hash: HashArgs,

    /// CPUs of the host: how many (16 means CPUs 0 to 15), or a list of ids (0-3,8); a word is taken as
    /// --rps-cpus [default: 8]
    #[arg(
        long,
        value_name = "CPUS",
        help_heading = "Host",
        conflicts_with = "host",
        allow_negative_numbers = true
    )]
    pub cpus: Vec<String>,
    /// CPUs of the host as the kernel's hexadecimal mask: ff, or 3,ffffffff
    #[arg(long, value_name = "MASK", help_heading = "Host")]
    #[arg(conflicts_with_all = ["cpus", "host"])]
    pub cpu_mask: Option<String>,
    /// Receive queues of the device [default: those of --ethtool, or 1]
    #[arg(
        long,
        value_name = "COUNT",
        help_heading = "Host",
        conflicts_with = "host",
        allow_negative_numbers = true
    )]
    pub queues: Option<String>,
    /// Host model as TOML: CPUs, caches, queues, tables, limits, costs
    #[arg(long, value_name = "FILE", help_heading = "Host", value_hint = ValueHint::FilePath)]
    pub host: Option<PathBuf>,
    /// RSS key and indirection table: the output of ethtool -x DEV
    #[arg(long, value_name = "FILE", help_heading = "Host", value_hint = ValueHint::FilePath)]
    pub ethtool: Option<PathBuf>,
    /// CPUs that RPS may use, for every queue: all, none, local (those that share a cache with the
    /// queue's IRQ CPU), housekeeping, or a list [default: local, or the host's]
    #[arg(long, value_name = "CPUS", help_heading = "Host", allow_negative_numbers = true)]
    pub rps_cpus: Option<String>,

    /// Sockets and their readers as TOML [default: inferred from the capture]
    #[arg(long, value_name = "FILE", help_heading = "Consumers", value_hint = ValueHint::FilePath)]
    pub consumers: Option<PathBuf>,
    /// Addresses of the host, with commas; prefixes such as 192.0.2.0/24 too; all: every packet was
    /// received (a router, a mirror port) [default: inferred]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', help_heading = "Consumers")]
    pub local: Vec<String>,
    /// Readers of each unconnected UDP port [default: 1]
    #[arg(long, value_name = "COUNT", help_heading = "Consumers", allow_negative_numbers = true)]
    pub workers: Option<String>,
    /// Unconnected UDP ports that carry flows, such as 443,10000-10100, or none; as for attach
    /// [default: none]
    #[arg(long, value_name = "PORTS", help_heading = "Consumers", allow_hyphen_values = true)]
    pub flow_ports: Option<String>,

    /// Exit with 2 if a capture ends early
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// How to print the result
    #[command(flatten)]
    pub output: OutputArgs,
    /// Write a page with plots to this file; - prints it instead of the text
    #[arg(long, value_name = "FILE", help_heading = "Output", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write a line for each decision of each policy to this file, as CSV: number of the packet, policy,
    /// time since the first packet, CPU that took it, CPU that was chosen, reason
    #[arg(long, value_name = "FILE", help_heading = "Output", value_hint = ValueHint::FilePath)]
    pub decisions: Option<PathBuf>,
}

/// How to print a result.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Form of the result [default: text]
    #[arg(long, value_enum, help_heading = "Output")]
    pub format: Option<Format>,
    /// The same as --format json
    #[arg(short, long, help_heading = "Output", conflicts_with_all = ["csv", "format"])]
    pub json: bool,
    /// JSON with line breaks
    #[arg(long, help_heading = "Output")]
    pub pretty: bool,
    /// The same as --format csv
    #[arg(long, help_heading = "Output", conflicts_with = "format")]
    pub csv: bool,
}

impl OutputArgs {
    /// Returns the form that was asked for.
    pub fn form(&self) -> Format {
        match (self.format, self.json || self.pretty, self.csv) {
            (Some(format), _, _) => format,
            (None, _, true) => Format::Csv,
            (None, true, _) => Format::Json,
            (None, false, false) => Format::Text,
        }
    }
}

/// A form of output.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// Tables for people.
    #[default]
    Text,
    /// JSON with a schema version.
    Json,
    /// Comma-separated values.
    Csv,
}

/// What `flows` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct FlowsArgs {
    /// Captures
    #[command(flatten)]
    pub input: InputArgs,
    /// Check the outermost IP header and the lengths and checksum of UDP, where a packet was captured
    /// whole (packets that the capturing host sent often have no checksum yet)
    #[arg(long)]
    pub verify: bool,
    /// What makes the flow hash
    #[command(flatten)]
    pub hash: HashArgs,
    /// Exit with 2 if a capture ends early
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// How to print the lines
    #[command(flatten)]
    pub output: OutputArgs,
}
