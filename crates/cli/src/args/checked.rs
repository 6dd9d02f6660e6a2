//! The command line as it is meant: checked types, made from the plain values.
//!
//! Always true: every refusal names the flag, the value and what is allowed.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use rxsteer_core::dissect::{Mode, Options, VlanHash};
use rxsteer_core::steer::{KernelVersion, PolicyKind};
use rxsteer_core::{CpuSet, PortSet};
use rxsteer_lab::consumer::Prefix;
use rxsteer_lab::host::{Mask, rps_flow_cnt, rps_sock_flow_entries};
use rxsteer_lab::replay::LocalRule;

use super::{FlowsArgs, Format, HashArgs, InputArgs, ReplayArgs, quantity};

/// Most points of a sweep: each is a replay.
pub const MOST_SWEEP_POINTS: usize = 32;

/// Seed where none is given.
pub const DEFAULT_SEED: u64 = 1;

/// Number of CPUs where neither a number nor a host is given.
const DEFAULT_CPUS: u32 = 8;

/// A value on the command line that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageError {
    /// The flag, such as `--policy`.
    pub flag: &'static str,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl UsageError {
    fn new(flag: &'static str, message: impl fmt::Display) -> Self {
        Self { flag, message: message.to_string() }
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.flag, self.message)
    }
}

impl std::error::Error for UsageError {}

/// What is read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Inputs {
    /// The built-in sample.
    Sample,
    /// These files.
    Files(Vec<PathBuf>),
}

/// Where the host model comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HostChoice {
    /// Nothing was said about it.
    Default,
    /// Made from two numbers.
    Simple {
        /// Ids of its CPUs.
        cpus: Box<CpuSet>,
        /// Its receive queues, if they were named.
        queues: Option<u32>,
    },
    /// Read from a file.
    File(PathBuf),
}

/// What makes the flow hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hashing {
    /// How a frame is read.
    pub options: Options,
    /// Seed.
    pub seed: u64,
}

impl TryFrom<&HashArgs> for Hashing {
    type Error = UsageError;

    fn try_from(args: &HashArgs) -> Result<Self, UsageError> {
        let options = Options {
            ignore_flow_label: !flow_label(&args.flow_label)?,
            vlan: vlan(&args.vlan)?,
            outer_only: args.outer,
            wireguard_index: args.wireguard_index,
            ..Options::new(mode(&args.mode)?)
        };
        if options.wireguard_index && options.mode == Mode::Kernel {
            return Err(UsageError::new("--wireguard-index", "needs --mode inner"));
        }
        Ok(Self { options, seed: seed(&args.seed)? })
    }
}

/// What `replay` does.
#[derive(Clone, Debug)]
pub struct Replay {
    /// What is read.
    pub inputs: Inputs,
    /// Policies, in the order in which they are shown.
    pub policies: Vec<PolicyKind>,
    /// Version of Linux for the policy `rfs`.
    pub kernel: KernelVersion,
    /// Entries of the flow tables, rounded as Linux does; `None` for those of the host.
    pub table_entries: Option<u32>,
    /// Entries of each queue's table, rounded; `None` for those of the host.
    pub flow_cnt: Option<u32>,
    /// Table sizes to try.
    pub sweep: Vec<u32>,
    /// What makes the flow hash.
    pub hash: Hashing,
    /// Under `rps`, a flow changes its CPU only when the old one is done with its packets.
    pub drain: bool,
    /// Later fragments follow the ports of the first.
    pub track_fragments: bool,
    /// Each packet of an IPsec tunnel goes to the next CPU.
    pub spread_esp: bool,
    /// The host.
    pub host: HostChoice,
    /// RPS CPUs of every queue; `None` for those of the host.
    pub rps_cpus: Option<Mask>,
    /// Output of `ethtool -x`.
    pub ethtool: Option<PathBuf>,
    /// Consumers file.
    pub consumers: Option<PathBuf>,
    /// Which side of the packets is the host.
    pub local: LocalRule,
    /// Readers of each unconnected UDP port that the consumers say nothing of.
    pub workers: u32,
    /// Unconnected UDP ports that carry flows.
    pub flow_ports: PortSet,
    /// A capture that ends early is exit code 2.
    pub strict: bool,
    /// Form of the result.
    pub form: Format,
    /// JSON with line breaks.
    pub pretty: bool,
    /// The page with plots.
    pub html: Option<PathBuf>,
    /// The file of decisions.
    pub decisions: Option<PathBuf>,
}

/// What `flows` does.
#[derive(Clone, Debug)]
pub struct Flows {
    /// Captures.
    pub files: Vec<PathBuf>,
    /// What makes the flow hash.
    pub hash: Hashing,
    /// Check checksums.
    pub verify: bool,
    /// A capture that ends early is exit code 2.
    pub strict: bool,
    /// Form of the lines.
    pub form: Format,
    /// JSON with line breaks.
    pub pretty: bool,
}

impl TryFrom<&ReplayArgs> for Replay {
    type Error = UsageError;

    fn try_from(args: &ReplayArgs) -> Result<Self, UsageError> {
        let (host, mask_word) = host(args)?;
        let rps_cpus = match &args.rps_cpus {
            Some(text) => Some(parse("--rps-cpus", text)?),
            None => mask_word,
        };
        let table_entries = args.table_entries.as_deref().map(|text| {
            let entries = quantity(text).map_err(|e| UsageError::new("--table-entries", e))?;
            rps_sock_flow_entries(entries).map_err(|e| UsageError::new("--table-entries", e))
        });
        let flow_cnt = args.flow_cnt.as_deref().map(|text| {
            let entries = quantity(text).map_err(|e| UsageError::new("--flow-cnt", e))?;
            rps_flow_cnt(entries).map_err(|e| UsageError::new("--flow-cnt", e))
        });
        if args.html.as_deref().is_some_and(|file| file.as_os_str() == "-")
            && args.output.form() != Format::Text
        {
            let message = "- prints the page in place of the result; for both, --html FILE";
            return Err(UsageError::new("--html", message));
        }
        let workers = args.workers.as_deref().map(|text| positive("--workers", text, 4096));
        Ok(Self {
            inputs: match files(&args.input)? {
                files if files.is_empty() => Inputs::Sample,
                files => Inputs::Files(files),
            },
            policies: policies(&args.policy)?,
            kernel: optional("--kernel", &args.kernel)?.unwrap_or_default(),
            table_entries: table_entries.transpose()?,
            flow_cnt: flow_cnt.transpose()?,
            sweep: args.sweep.as_deref().map(sweep).transpose()?.unwrap_or_default(),
            hash: Hashing::try_from(&args.hash)?,
            drain: args.drain,
            track_fragments: args.track_fragments,
            spread_esp: args.spread_esp,
            host,
            rps_cpus,
            ethtool: args.ethtool.clone(),
            consumers: args.consumers.clone(),
            local: local(&args.local)?,
            workers: workers.transpose()?.unwrap_or(1),
            flow_ports: optional("--flow-ports", &args.flow_ports)?.unwrap_or_default(),
            strict: args.strict,
            form: args.output.form(),
            pretty: args.output.pretty,
            html: args.html.clone(),
            decisions: args.decisions.clone(),
        })
    }
}

impl TryFrom<&FlowsArgs> for Flows {
    type Error = UsageError;

    fn try_from(args: &FlowsArgs) -> Result<Self, UsageError> {
        let files = files(&args.input)?;
        if files.is_empty() {
            return Err(UsageError::new("FILE", "name a capture, or - for the standard input"));
        }
        Ok(Self {
            files,
            hash: Hashing::try_from(&args.hash)?,
            verify: args.verify,
            strict: args.strict,
            form: args.output.form(),
            pretty: args.output.pretty,
        })
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(flag: &'static str, text: &str) -> Result<T, UsageError> {
    text.parse().map_err(|error: T::Err| {
        let error = error.to_string();
        if error.contains(&format!("`{text}`")) {
            UsageError::new(flag, error)
        } else {
            UsageError::new(flag, format_args!("`{text}`: {error}"))
        }
    })
}

fn optional<T: FromStr<Err: fmt::Display>>(
    flag: &'static str,
    text: &Option<String>,
) -> Result<Option<T>, UsageError> {
    text.as_deref().map(|text| parse(flag, text)).transpose()
}

fn files(input: &InputArgs) -> Result<Vec<PathBuf>, UsageError> {
    let files: Vec<_> = input.read.iter().chain(&input.files).cloned().collect();
    if files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
        return Err(UsageError::new("FILE", "the standard input (-) can be read only once"));
    }
    Ok(files)
}

fn policies(names: &[String]) -> Result<Vec<PolicyKind>, UsageError> {
    if names.is_empty() {
        return Ok(PolicyKind::ALL.to_vec());
    }
    let mut wanted = Vec::new();
    for name in names {
        if name.trim() == "all" {
            wanted.extend(PolicyKind::ALL);
        } else {
            wanted.push(parse("--policy", name.trim())?);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    wanted.retain(|kind| seen.insert(*kind));
    Ok(wanted)
}

fn mode(text: &Option<String>) -> Result<Mode, UsageError> {
    match text.as_deref() {
        None | Some("kernel") => Ok(Mode::Kernel),
        Some("inner") => Ok(Mode::Inner),
        Some(other) => Err(UsageError::new(
            "--mode",
            format_args!("`{other}` is no mode; allowed are kernel, inner"),
        )),
    }
}

fn flow_label(text: &Option<String>) -> Result<bool, UsageError> {
    match text.as_deref() {
        None | Some("use") => Ok(true),
        Some("ignore") => Ok(false),
        Some(other) => Err(UsageError::new(
            "--flow-label",
            format_args!("`{other}` is unknown; allowed are use, ignore"),
        )),
    }
}

fn vlan(text: &Option<String>) -> Result<VlanHash, UsageError> {
    match text.as_deref() {
        None | Some("tag") => Ok(VlanHash::Tag),
        Some("tag-unless-priority") => Ok(VlanHash::TagUnlessPriority),
        Some("ignore") => Ok(VlanHash::Ignore),
        Some(other) => Err(UsageError::new(
            "--vlan",
            format_args!("`{other}` is unknown; allowed are tag, tag-unless-priority, ignore"),
        )),
    }
}

fn seed(text: &Option<String>) -> Result<u64, UsageError> {
    let Some(text) = text.as_deref() else { return Ok(DEFAULT_SEED) };
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| {
        UsageError::new(
            "--seed",
            format_args!("`{text}` is no seed; allowed are 0 to 2^64 - 1, also as 0x1f"),
        )
    })
}

fn positive(flag: &'static str, text: &str, most: u32) -> Result<u32, UsageError> {
    let number = quantity(text).map_err(|error| UsageError::new(flag, error))?;
    match u32::try_from(number) {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(UsageError::new(flag, format_args!("{text} is not within 1 to {most}"))),
    }
}

/// Returns the host, and the mask if `--cpus` was given a word.
fn host(args: &ReplayArgs) -> Result<(HostChoice, Option<Mask>), UsageError> {
    let mut mask = None;
    let mut cpus = None;
    for text in &args.cpus {
        let text = text.trim();
        if ["all", "none", "local", "housekeeping"].contains(&text) {
            mask = Some(parse("--cpus", text)?);
        } else if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            let count = positive("--cpus", text, rxsteer_core::CpuId::LIMIT.into())?;
            cpus = Some(CpuSet::first_n(count));
        } else {
            let set = CpuSet::from_list(text).map_err(|error| {
                let allowed = "allowed are a number (16), a list of ids (0-3,8), all, none, local";
                UsageError::new("--cpus", format_args!("`{text}`: {error}; {allowed}"))
            })?;
            cpus = Some(not_empty("--cpus", set)?);
        }
    }
    if let Some(text) = &args.cpu_mask {
        let set = CpuSet::from_mask(text, rxsteer_core::CpuId::LIMIT.into()).map_err(|error| {
            let allowed = "allowed are hex digits with a comma each 32 bits, such as 3,ffffffff";
            UsageError::new("--cpu-mask", format_args!("`{text}`: {error}; {allowed}"))
        })?;
        cpus = Some(not_empty("--cpu-mask", set)?);
    }
    let queues = args
        .queues
        .as_deref()
        .map(|text| positive("--queues", text, rxsteer_lab::host::Host::MAX_QUEUES));
    let queues = queues.transpose()?;
    let choice = match (&args.host, cpus, queues) {
        (Some(file), _, _) => HostChoice::File(file.clone()),
        (None, None, None) => HostChoice::Default,
        (None, cpus, queues) => HostChoice::Simple {
            cpus: Box::new(cpus.unwrap_or_else(|| CpuSet::first_n(DEFAULT_CPUS))),
            queues,
        },
    };
    Ok((choice, mask))
}

fn not_empty(flag: &'static str, set: CpuSet) -> Result<CpuSet, UsageError> {
    if set.is_empty() {
        return Err(UsageError::new(flag, "no CPU is named; a host has at least one"));
    }
    Ok(set)
}

fn sweep(text: &str) -> Result<Vec<u32>, UsageError> {
    let refused = |message: String| {
        let allowed = "allowed are table-entries=1k..1M (doubling) and table-entries=1k,8k,64k";
        UsageError::new("--sweep", format_args!("`{text}`: {message}; {allowed}"))
    };
    let Some((name, range)) = text.split_once('=') else {
        return Err(refused("no `=`".into()));
    };
    if name != "table-entries" {
        return Err(refused(format!("`{name}` cannot be swept")));
    }
    let size = |text: &str| {
        let entries = quantity(text.trim()).map_err(|error| refused(error.to_string()))?;
        if entries == 0 {
            return Err(refused("a table of 0 entries".into()));
        }
        rps_sock_flow_entries(entries).map_err(|error| refused(error.to_string()))
    };
    let mut sizes = Vec::new();
    if let Some((from, to)) = range.split_once("..") {
        let (from, to) = (size(from)?, size(to.trim_start_matches('='))?);
        if from > to {
            return Err(refused(format!("{from} is more than {to}")));
        }
        // Both are powers of two.
        let doubled = |n: &u32| n.checked_mul(2).filter(|n| *n <= to);
        sizes.extend(std::iter::successors(Some(from), doubled));
    } else {
        for part in range.split(',') {
            sizes.push(size(part)?);
        }
        sizes.sort_unstable();
        sizes.dedup();
    }
    if sizes.len() > MOST_SWEEP_POINTS {
        return Err(refused(format!("{} points; at most {MOST_SWEEP_POINTS}", sizes.len())));
    }
    Ok(sizes)
}

fn local(texts: &[String]) -> Result<LocalRule, UsageError> {
    if texts.is_empty() {
        return Ok(LocalRule::Infer);
    }
    if texts == ["all"] {
        return Ok(LocalRule::All);
    }
    let prefix = |text: &String| {
        text.parse::<Prefix>().map_err(|_| {
            let allowed = "allowed are all, addresses (192.0.2.10, 2001:db8::1) and prefixes \
                           (192.0.2.0/24)";
            UsageError::new("--local", format_args!("`{text}` is no address; {allowed}"))
        })
    };
    Ok(LocalRule::Prefixes(texts.iter().map(prefix).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests;
