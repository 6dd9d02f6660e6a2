//! The TOML form of a host.

use rxsteer_core::cpu::CpuStates;
use rxsteer_core::{CpuId, CpuSet};
use serde::Deserialize;
use toml::Spanned;

use super::{
    Costs, Host, Limits, Mask, Queue, Rounded, TableSizes, groups_of_eight, rps_flow_cnt,
    rps_sock_flow_entries,
};
use crate::config::{ConfigError, Source, some_table, table};
use crate::rss::{Rss, Spreading};

/// A host as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostFile {
    cpus: Option<Spanned<Cpus>>,
    online: Option<Spanned<String>>,
    isolated: Option<Spanned<String>>,
    caches: Option<Vec<Spanned<String>>>,
    queues: Option<Spanned<u32>>,
    #[serde(default)]
    queue: Vec<QueueFile>,
    #[serde(default, deserialize_with = "table")]
    rss: RssFile,
    #[serde(default, deserialize_with = "table")]
    tables: TablesFile,
    #[serde(default, deserialize_with = "table")]
    limits: LimitsFile,
    #[serde(default, deserialize_with = "table")]
    engine: super::engine::EngineFile,
    #[serde(default, deserialize_with = "some_table")]
    overload: Option<super::overload::OverloadFile>,
    costs: Option<Spanned<Costs>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a number of CPUs or a list such as \"0-3,8\"")]
enum Cpus {
    Count(u32),
    List(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueFile {
    irq_cpu: Option<Spanned<u16>>,
    cpus: Option<Spanned<String>>,
    cpu_mask: Option<Spanned<String>>,
    rps_flow_cnt: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RssFile {
    spreading: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    table: Option<Spanned<Vec<u16>>>,
    ethtool: Option<Spanned<String>>,
    udp_ports: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TablesFile {
    rps_sock_flow_entries: Option<Spanned<u64>>,
    rps_flow_cnt: Option<Spanned<u64>>,
    flow_entries: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsFile {
    netdev_max_backlog: Option<u32>,
    ring: Option<Spanned<u32>>,
    udp_receive_buffer: Option<u64>,
    tcp_receive_buffer: Option<u64>,
    netdev_budget: Option<Spanned<u32>>,
    dev_weight: Option<Spanned<u32>>,
}

pub(super) fn read(name: &str, text: &str) -> Result<Host, ConfigError> {
    let source = Source::new(name, text);
    make(source, &source.parse()?)
}

/// Makes a host of its plain form, which may be a part of a larger file.
pub(crate) fn make(source: Source<'_>, file: &HostFile) -> Result<Host, ConfigError> {
    let cpus = states(source, file)?;
    let overload = file.overload.as_ref().map(|file| super::overload::means(source, file));
    let mut host = Host {
        source: source.file.into(),
        caches: caches(source, file.caches.as_deref(), &cpus)?,
        cpus,
        queues: Vec::new(),
        rss: Rss::default(),
        tables: tables(source, &file.tables)?,
        limits: limits(source, &file.limits)?,
        engine: super::engine::settings(source, &file.engine)?,
        merge: file.engine.merge(),
        overload: overload.transpose()?,
        costs: costs(source, file)?,
        rounded: Vec::new(),
    };
    queues(source, file, &mut host)?;
    host.rss = rss(source, &file.rss, host.queues.len())?;
    host.rounded = rounded(file, &host);
    Ok(host)
}

fn states(source: Source<'_>, file: &HostFile) -> Result<CpuStates, ConfigError> {
    let possible = match &file.cpus {
        None => CpuSet::first_n(1),
        Some(given) => match given.get_ref() {
            Cpus::Count(n @ 1..=4096) => CpuSet::first_n(*n),
            Cpus::Count(n) => {
                return Err(source.refuse(given, format!("{n} CPUs: allowed are 1 to 4096")));
            }
            Cpus::List(list) => match list.trim().parse::<u16>() {
                Ok(number @ 2..) => {
                    let message = format!(
                        "the text \"{number}\" could be how many or which CPU: write {number}, without \
                         quotes, for {number} CPUs, \"{number}-{number}\" for CPU {number} alone"
                    );
                    return Err(source.refuse(given, message));
                }
                _ => set(source, given, list)?,
            },
        },
    };
    let mut states = CpuStates { possible, online: possible, isolated: CpuSet::EMPTY };
    for (given, which) in
        [(&file.online, &mut states.online), (&file.isolated, &mut states.isolated)]
    {
        let Some(given) = given else { continue };
        *which = set(source, given, given.get_ref())?;
        let unknown = which.difference(&possible);
        if !unknown.is_empty() {
            let message = format!(
                "{} are not among the CPUs of the host ({})",
                unknown.list(),
                possible.list()
            );
            return Err(source.refuse(given, message));
        }
    }
    if states.serving().is_empty() {
        let message = "no CPU is left that is online and not isolated";
        return Err(match (&file.online, &file.isolated, &file.cpus) {
            (Some(given), _, _) | (_, Some(given), _) => source.refuse(given, message),
            (_, _, Some(given)) => source.refuse(given, message),
            _ => ConfigError::whole(source.file, message.into()),
        });
    }
    Ok(states)
}

fn set<T>(source: Source<'_>, at: &Spanned<T>, list: &str) -> Result<CpuSet, ConfigError> {
    CpuSet::from_list(list).map_err(|error| {
        source.refuse(at, format!("`{list}`: {error}; a list such as 0-3,8 is allowed"))
    })
}

fn caches(
    source: Source<'_>,
    given: Option<&[Spanned<String>]>,
    cpus: &CpuStates,
) -> Result<Vec<CpuSet>, ConfigError> {
    let Some(given) = given else { return Ok(groups_of_eight(&cpus.possible)) };
    let mut groups: Vec<CpuSet> = Vec::new();
    for text in given {
        let group = set(source, text, text.get_ref())?;
        let unknown = group.difference(&cpus.possible);
        if !unknown.is_empty() {
            let message = format!("{} are not among the CPUs of the host", unknown.list());
            return Err(source.refuse(text, message));
        }
        if let Some(twice) = groups.iter().find(|g| !g.intersection(&group).is_empty()) {
            let both = twice.intersection(&group);
            let message = format!("{} are in an earlier group already", both.list());
            return Err(source.refuse(text, message));
        }
        groups.push(group);
    }
    Ok(groups)
}

fn tables(source: Source<'_>, file: &TablesFile) -> Result<TableSizes, ConfigError> {
    let mut sizes = TableSizes::default();
    if let Some(value) = &file.rps_sock_flow_entries {
        sizes.sock_flow_entries = rps_sock_flow_entries(*value.get_ref())
            .map_err(|error| source.refuse(value, error.to_string()))?;
        sizes.flow_entries = sizes.sock_flow_entries.max(8);
    }
    if let Some(value) = &file.rps_flow_cnt {
        sizes.flow_cnt = Some(
            rps_flow_cnt(*value.get_ref())
                .map_err(|error| source.refuse(value, error.to_string()))?,
        );
    }
    if let Some(value) = &file.flow_entries {
        sizes.flow_entries = match *value.get_ref() {
            n @ 8..=0x0800_0000 => (n as u32).next_power_of_two(),
            n => {
                let message = format!("{n} entries: allowed are 8 to 134217728 (2^27)");
                return Err(source.refuse(value, message));
            }
        };
    }
    Ok(sizes)
}

/// Sizes that were asked for and are no powers of two.
fn rounded(file: &HostFile, host: &Host) -> Vec<Rounded> {
    let mut all = Vec::new();
    let mut compare = |name: String, asked: &Option<Spanned<u64>>, kept: u32| {
        if let Some(asked) = asked.as_ref().map(|n| *n.get_ref()).filter(|n| *n != u64::from(kept))
        {
            all.push(Rounded { name, asked, kept: kept.into() });
        }
    };
    let tables = &file.tables;
    let sizes = &host.tables;
    compare("rps_sock_flow_entries".into(), &tables.rps_sock_flow_entries, sizes.sock_flow_entries);
    compare("rps_flow_cnt".into(), &tables.rps_flow_cnt, sizes.flow_cnt.unwrap_or(0));
    for (number, (given, queue)) in file.queue.iter().zip(&host.queues).enumerate() {
        compare(format!("rx-{number} rps_flow_cnt"), &given.rps_flow_cnt, queue.flow_cnt);
    }
    all
}

/// Costs above a second are refused, so that no sum of them overflows.
fn costs(source: Source<'_>, file: &HostFile) -> Result<Costs, ConfigError> {
    let Some(given) = &file.costs else { return Ok(Costs::default()) };
    match given.get_ref().largest() {
        0..=1_000_000_000 => Ok(*given.get_ref()),
        n => Err(source.refuse(given, format!("{n} ns: allowed are 0 to 1000000000 (1 s)"))),
    }
}

fn limits(source: Source<'_>, file: &LimitsFile) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let positive = |value: &Option<Spanned<u32>>, otherwise: u32| match value {
        None => Ok(otherwise),
        Some(value) if (1..=1 << 20).contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => Err(source.refuse(value, "allowed are 1 to 1048576")),
    };
    Ok(Limits {
        max_backlog: file.netdev_max_backlog.unwrap_or(default.max_backlog),
        ring: positive(&file.ring, default.ring)?,
        udp_receive_buffer: file.udp_receive_buffer.unwrap_or(default.udp_receive_buffer),
        tcp_receive_buffer: file.tcp_receive_buffer.unwrap_or(default.tcp_receive_buffer),
        budget: positive(&file.netdev_budget, default.budget)?,
        weight: positive(&file.dev_weight, default.weight)?,
    })
}

fn queues(source: Source<'_>, file: &HostFile, host: &mut Host) -> Result<(), ConfigError> {
    match (&file.queues, file.queue.as_slice()) {
        (Some(count), []) => {
            let n = *count.get_ref();
            if n == 0 || n > Host::MAX_QUEUES {
                let message = format!("{n} queues: allowed are 1 to {}", Host::MAX_QUEUES);
                return Err(source.refuse(count, message));
            }
            host.spread_queues(n);
        }
        (Some(count), given) if *count.get_ref() as usize != given.len() => {
            let message = format!("{} [[queue]] tables follow; leave one of both out", given.len());
            return Err(source.refuse(count, message));
        }
        (_, []) => host.spread_queues(1),
        (_, given) => {
            if given.len() > Host::MAX_QUEUES as usize {
                let message = format!("more than {} [[queue]] tables", Host::MAX_QUEUES);
                return Err(ConfigError::whole(source.file, message));
            }
            host.spread_queues(given.len() as u32);
        }
    }
    for (index, given) in file.queue.iter().enumerate() {
        queue(source, given, &mut host.queues[index], &host.cpus)?;
    }
    for index in 0..host.queues.len() {
        let given = file.queue.get(index);
        let (mask, at) = match given.map(|g| (&g.cpus, &g.cpu_mask)) {
            Some((Some(_), Some(twice))) => {
                return Err(source.refuse(twice, "give either cpus or cpu_mask"));
            }
            Some((Some(words), None)) => {
                let mask = words.get_ref().parse::<Mask>();
                (mask.map_err(|error| source.refuse(words, error.to_string()))?, Some(words))
            }
            Some((None, Some(hex))) => {
                let set = CpuSet::from_mask(hex.get_ref(), host.cpus.nr_cpu_ids());
                let set = set.map_err(|error| source.refuse(hex, error.to_string()))?;
                (if set.is_empty() { Mask::None } else { Mask::Set(Box::new(set)) }, Some(hex))
            }
            _ => (Mask::Local, None),
        };
        host.set_mask(index, mask).map_err(|error| match at {
            Some(at) => source.refuse(at, error.to_string()),
            None => ConfigError::whole(source.file, error.to_string()),
        })?;
    }
    Ok(())
}

fn queue(
    source: Source<'_>,
    given: &QueueFile,
    queue: &mut Queue,
    cpus: &CpuStates,
) -> Result<(), ConfigError> {
    if let Some(irq) = &given.irq_cpu {
        queue.irq_cpu = CpuId(*irq.get_ref());
        // Interrupts of a device may go to an isolated CPU, but not to one that is off.
        if !cpus.possible.contains(queue.irq_cpu) || !cpus.online.contains(queue.irq_cpu) {
            let refusal = cpus.refusal(queue.irq_cpu).map_or(String::new(), |r| r.to_string());
            return Err(source.refuse(irq, refusal));
        }
    }
    if let Some(count) = &given.rps_flow_cnt {
        queue.flow_cnt = rps_flow_cnt(*count.get_ref())
            .map_err(|error| source.refuse(count, error.to_string()))?;
    }
    Ok(())
}

fn rss(source: Source<'_>, file: &RssFile, queues: usize) -> Result<Rss, ConfigError> {
    let mut rss = match &file.ethtool {
        Some(text) => Rss::from_ethtool(text.get_ref())
            .map_err(|error| source.refuse(text, error.to_string()))?,
        None => Rss::default(),
    };
    if let Some(spreading) = &file.spreading {
        rss.spreading = match spreading.get_ref().as_str() {
            "toeplitz" => Spreading::Toeplitz,
            "recorded" => Spreading::Recorded,
            other => {
                let message = format!("`{other}`: allowed are toeplitz, recorded");
                return Err(source.refuse(spreading, message));
            }
        };
    }
    if let Some(key) = &file.key {
        let text = format!("RSS hash key:\n{}", key.get_ref());
        rss.key = Rss::from_ethtool(&text)
            .map_err(|error| source.refuse(key, error.reason.to_string()))?
            .key;
    }
    if let Some(table) = &file.table {
        rss.table = table.get_ref().clone();
        if rss.table.is_empty() || rss.table.len() > Rss::MAX_TABLE_LEN {
            let message = format!("allowed are 1 to {} entries", Rss::MAX_TABLE_LEN);
            return Err(source.refuse(table, message));
        }
    }
    if let Some(queue) = rss.table.iter().find(|q| usize::from(**q) >= queues) {
        let message = format!("the table names queue {queue}, but the host has {queues}");
        return Err(match (&file.table, &file.ethtool) {
            (Some(at), _) => source.refuse(at, message),
            (None, Some(at)) => source.refuse(at, message),
            (None, None) => ConfigError::whole(source.file, message),
        });
    }
    if let Some(ports) = file.udp_ports {
        rss.udp_ports = ports;
    }
    Ok(rss)
}
