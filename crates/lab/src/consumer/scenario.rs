//! Consumers and events as a user gives them, in TOML.

use rxsteer_core::dissect::AddrKind;
use rxsteer_core::steer::PortRule;
use rxsteer_core::{CpuId, CpuSet};
use serde::Deserialize;
use toml::Spanned;

use super::{AddrPattern, parse_duration_ns};
use crate::config::{ConfigError, Source};
use crate::host::{Host, Mask, TableSizes};

/// Consumers that are known, and events that happen during a replay.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// Rules for consumers; the first that matches a socket's first packet has it.
    pub consumers: Vec<ConsumerRule>,
    /// Events, in order of time.
    pub events: Vec<Event>,
}

/// Transport protocol of a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP and UDP-Lite.
    Udp,
}

/// A known consumer.
#[derive(Clone, Debug)]
pub struct ConsumerRule {
    /// Protocol; `None` for both.
    pub protocol: Option<Protocol>,
    /// Local address and port.
    pub local: AddrPattern,
    /// Remote address and port.
    pub remote: AddrPattern,
    /// Whether UDP sockets are connected, one for each pair of ends; `None` to infer it.
    pub connected: Option<bool>,
    /// Unconnected sockets for each local address and port (a reuseport group); `None` for the
    /// replay's `workers`.
    pub sockets: Option<u32>,
    /// CPUs of the threads that read, in turn by socket; empty for all that serve.
    pub cpus: Vec<CpuId>,
    /// Work on each packet in ns; `None` for the host's cost `work`.
    pub work_ns: Option<u32>,
    /// What is known of the port.
    pub port_rule: PortRule,
}

impl ConsumerRule {
    /// Returns whether the rule is for a socket of these ends.
    pub fn matches(
        &self,
        protocol: Protocol,
        kind: AddrKind,
        local: (&[u8; 16], u16),
        remote: (&[u8; 16], u16),
    ) -> bool {
        self.protocol.is_none_or(|p| p == protocol)
            && self.local.matches(kind, local.0, local.1)
            && self.remote.matches(kind, remote.0, remote.1)
    }
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub struct Event {
    /// Time since the first packet in ns.
    pub at_ns: u64,
    /// What happens.
    pub change: Change,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Change {
    /// The mask of a queue (or of all) is written.
    Mask {
        /// The queue; `None` for all.
        queue: Option<u16>,
        /// The mask.
        mask: Mask,
    },
    /// A CPU goes offline.
    Offline(CpuId),
    /// A CPU comes back. Masks do not change by that.
    Online(CpuId),
    /// The flow tables get another size.
    Resize(TableSizes),
    /// The threads of a consumer go to other CPUs.
    Migrate {
        /// Index of the rule.
        rule: usize,
        /// The CPUs from now on.
        cpus: Vec<CpuId>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    consumer: Vec<ConsumerFile>,
    #[serde(default)]
    event: Vec<EventFile>,
}

/// A consumer as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsumerFile {
    protocol: Option<Spanned<String>>,
    local: Option<Spanned<String>>,
    remote: Option<Spanned<String>>,
    connected: Option<bool>,
    sockets: Option<Spanned<u32>>,
    cpus: Option<Spanned<String>>,
    work_ns: Option<Spanned<u32>>,
    port: Option<Spanned<String>>,
    #[serde(default)]
    migrate: Vec<MigrateFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MigrateFile {
    at: Spanned<String>,
    cpus: Spanned<String>,
}

/// An event as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventFile {
    at: Spanned<String>,
    queue: Option<Spanned<u16>>,
    cpus: Option<Spanned<String>>,
    offline: Option<Spanned<u16>>,
    online: Option<Spanned<u16>>,
    table_entries: Option<Spanned<u64>>,
}

impl Scenario {
    /// Most readers of one unconnected port.
    pub const MAX_SOCKETS: u32 = 4096;

    /// Reads consumers and events from the text of a TOML file; `name` is its name in messages.
    ///
    /// # Errors
    /// What is wrong, with line, column and key. CPUs and queues must be those of `host`.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_lab::consumer::Scenario;
    /// use rxsteer_lab::host::Host;
    /// let text = r#"
    /// [[consumer]]
    /// protocol = "udp"
    /// local = ":443"
    /// connected = false
    /// sockets = 2
    /// cpus = "2-3"
    /// port = "flows"
    ///
    /// [[event]]
    /// at = "50ms"
    /// queue = 0
    /// cpus = "2-3"
    /// "#;
    /// let scenario = Scenario::from_toml("quic.toml", text, &Host::simple(4, 1).unwrap())?;
    /// assert_eq!(scenario.consumers[0].sockets, Some(2));
    /// assert_eq!(scenario.events[0].at_ns, 50_000_000);
    /// # Ok::<(), rxsteer_lab::config::ConfigError>(())
    /// ```
    pub fn from_toml(name: &str, text: &str, host: &Host) -> Result<Self, ConfigError> {
        let source = Source::new(name, text);
        let file: File = source.parse()?;
        Self::make(source, &file.consumer, &file.event, host, None)
    }

    /// Makes consumers and events of their plain forms, which may be a part of a larger file; events
    /// are before `end_ns`, where the end is known.
    pub(crate) fn make(
        source: Source<'_>,
        consumers: &[ConsumerFile],
        events: &[EventFile],
        host: &Host,
        end_ns: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let mut rules = Vec::new();
        let mut happens = Vec::new();
        for (index, given) in consumers.iter().enumerate() {
            rules.push(rule(source, given, host)?);
            for migrate in &given.migrate {
                let cpus = cpus(source, &migrate.cpus, host)?;
                let change = Change::Migrate { rule: index, cpus };
                let at_ns = time(source, &migrate.at, end_ns)?;
                happens.push((Event { at_ns, change }, &migrate.at));
            }
        }
        for given in events {
            happens.push((event(source, given, host, end_ns)?, &given.at));
        }
        happens.sort_by_key(|(event, _)| event.at_ns);
        some_cpu_stays(source, &happens, host.cpus.online)?;
        let events = happens.into_iter().map(|(event, _)| event).collect();
        Ok(Self { consumers: rules, events })
    }
}

/// Refuses the event that takes the last CPU offline; events are in order of time.
fn some_cpu_stays(
    source: Source<'_>,
    events: &[(Event, &Spanned<String>)],
    mut online: CpuSet,
) -> Result<(), ConfigError> {
    for (event, at) in events {
        match event.change {
            Change::Offline(cpu) => {
                online = online.difference(&CpuSet::from_iter([cpu]));
                if online.is_empty() {
                    let message = format!("CPU {cpu} is the last one online then, and stays");
                    return Err(source.refuse(at, message));
                }
            }
            Change::Online(cpu) => online = online.union(&CpuSet::from_iter([cpu])),
            _ => {}
        }
    }
    Ok(())
}

fn rule(
    source: Source<'_>,
    given: &ConsumerFile,
    host: &Host,
) -> Result<ConsumerRule, ConfigError> {
    let pattern = |given: &Option<Spanned<String>>| match given {
        None => Ok(AddrPattern::default()),
        Some(text) => text
            .get_ref()
            .parse()
            .map_err(|error: super::AddressError| source.refuse(text, error.to_string())),
    };
    let protocol = match &given.protocol {
        None => None,
        Some(text) => Some(match text.get_ref().as_str() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            other => {
                return Err(source.refuse(text, format!("`{other}`: allowed are tcp, udp")));
            }
        }),
    };
    let port_rule = match &given.port {
        None => PortRule::Learn,
        Some(text) => match text.get_ref().as_str() {
            "learn" => PortRule::Learn,
            "flows" => PortRule::Flows,
            "requests" => PortRule::Requests,
            other => {
                let message = format!("`{other}`: allowed are learn, flows, requests");
                return Err(source.refuse(text, message));
            }
        },
    };
    let sockets = match &given.sockets {
        None => None,
        Some(n) if (1..=Scenario::MAX_SOCKETS).contains(n.get_ref()) => Some(*n.get_ref()),
        Some(n) => {
            let message = format!("allowed are 1 to {}", Scenario::MAX_SOCKETS);
            return Err(source.refuse(n, message));
        }
    };
    let work_ns = match &given.work_ns {
        Some(n) if *n.get_ref() > 1_000_000_000 => {
            return Err(source.refuse(n, "allowed are 0 to 1000000000 (1 s)"));
        }
        other => other.as_ref().map(|n| *n.get_ref()),
    };
    Ok(ConsumerRule {
        protocol,
        local: pattern(&given.local)?,
        remote: pattern(&given.remote)?,
        connected: given.connected,
        sockets,
        cpus: match &given.cpus {
            Some(list) => cpus(source, list, host)?,
            None => Vec::new(),
        },
        work_ns,
        port_rule,
    })
}

fn event(
    source: Source<'_>,
    given: &EventFile,
    host: &Host,
    end_ns: Option<u64>,
) -> Result<Event, ConfigError> {
    let at_ns = time(source, &given.at, end_ns)?;
    let queue = match &given.queue {
        Some(queue) if usize::from(*queue.get_ref()) >= host.queues.len() => {
            let message = format!("the host has queues 0 to {}", host.queues.len() - 1);
            return Err(source.refuse(queue, message));
        }
        other => other.as_ref().map(|q| *q.get_ref()),
    };
    if let (Some(queue), None) = (&given.queue, &given.cpus) {
        return Err(source.refuse(queue, "a queue goes with cpus only"));
    }
    let change = match (&given.cpus, &given.offline, &given.online, &given.table_entries) {
        (Some(text), None, None, None) => {
            let mask = text.get_ref().parse();
            let mask: Mask =
                mask.map_err(|e: crate::host::MaskError| source.refuse(text, e.to_string()))?;
            for queue in 0..host.queues.len() {
                host.resolve(queue, &mask).map_err(|e| source.refuse(text, e.to_string()))?;
            }
            Change::Mask { queue, mask }
        }
        (None, Some(cpu), None, None) => Change::Offline(existing(source, cpu, host)?),
        (None, None, Some(cpu), None) => Change::Online(existing(source, cpu, host)?),
        (None, None, None, Some(n)) => Change::Resize(
            TableSizes::for_entries(*n.get_ref()).map_err(|e| source.refuse(n, e.to_string()))?,
        ),
        _ => {
            let message = "an event has exactly one of cpus (with queue, if one only is meant), \
                           offline, online, table_entries";
            return Err(source.refuse(&given.at, message));
        }
    };
    Ok(Event { at_ns, change })
}

fn existing(source: Source<'_>, cpu: &Spanned<u16>, host: &Host) -> Result<CpuId, ConfigError> {
    let id = CpuId(*cpu.get_ref());
    if host.cpus.possible.contains(id) {
        return Ok(id);
    }
    let message = host.cpus.refusal(id).map_or(String::new(), |refusal| refusal.to_string());
    Err(source.refuse(cpu, message))
}

fn time(
    source: Source<'_>,
    text: &Spanned<String>,
    end_ns: Option<u64>,
) -> Result<u64, ConfigError> {
    match parse_duration_ns(text.get_ref()) {
        Ok(ns) if end_ns.is_some_and(|end_ns| ns >= end_ns) => {
            Err(source.refuse(text, "is not before the end, so nothing would come of it"))
        }
        Ok(ns) => Ok(ns),
        Err(error) => Err(source.refuse(text, error.to_string())),
    }
}

/// Consumers may run on isolated CPUs: that is what those are for.
fn cpus(
    source: Source<'_>,
    text: &Spanned<String>,
    host: &Host,
) -> Result<Vec<CpuId>, ConfigError> {
    let set = CpuSet::from_list(text.get_ref()).map_err(|error| {
        let message = format!("`{}`: {error}; a list such as 0-3,8 is allowed", text.get_ref());
        source.refuse(text, message)
    })?;
    let unknown = set.difference(&host.cpus.possible);
    if set.is_empty() || !unknown.is_empty() {
        let message = format!(
            "allowed are one or more of the CPUs of the host ({})",
            host.cpus.possible.list()
        );
        return Err(source.refuse(text, message));
    }
    Ok(set.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Scenario, ConfigError> {
        Scenario::from_toml("c", text, &Host::simple(4, 2).unwrap())
    }

    #[test]
    fn rules_migrations_and_events_are_read_in_order_of_time() {
        let scenario = read(
            "[[consumer]]\nprotocol = \"udp\"\nlocal = \"192.0.2.1:443\"\nconnected = true\n\
             cpus = \"1,3\"\nwork_ns = 9\n[[consumer.migrate]]\nat = \"2s\"\ncpus = \"2\"\n\
             [[event]]\nat = \"1s\"\noffline = 3\n[[event]]\nat = \"3s\"\ntable_entries = 1000\n",
        )
        .unwrap();
        assert_eq!(scenario.consumers[0].cpus, [CpuId(1), CpuId(3)]);
        let times: Vec<u64> = scenario.events.iter().map(|e| e.at_ns / 1_000_000_000).collect();
        assert_eq!(times, [1, 2, 3]);
        assert!(matches!(scenario.events[0].change, Change::Offline(CpuId(3))));
        assert!(
            matches!(&scenario.events[2].change, Change::Resize(s) if s.sock_flow_entries == 1024)
        );
    }

    #[test]
    fn the_event_that_would_take_the_last_cpu_is_refused_in_order_of_time() {
        let offline = |at: u32, cpu: u32| format!("[[event]]\nat = \"{at}s\"\noffline = {cpu}\n");
        let four = format!("{}{}{}{}", offline(4, 3), offline(1, 0), offline(2, 1), offline(3, 2));
        let error = read(&four).unwrap_err().to_string();
        assert_eq!(error, "c:2:6: event.at: CPU 3 is the last one online then, and stays");
        let back = format!("{four}[[event]]\nat = \"1500ms\"\nonline = 0\n");
        assert_eq!(read(&back).unwrap().events.len(), 5);
        let twice = [offline(1, 0), offline(2, 0), offline(3, 1), offline(4, 2)].concat();
        assert!(read(&twice).is_ok(), "a CPU that is off already takes no other along");
    }

    #[test]
    fn a_rule_matches_its_ends_only() {
        let scenario = read("[[consumer]]\nprotocol = \"udp\"\nlocal = \":443\"\n").unwrap();
        let (a, b) = ([1; 16], [2; 16]);
        let matches = |protocol, port| {
            scenario.consumers[0].matches(protocol, AddrKind::V6, (&a, port), (&b, 9))
        };
        assert!(matches(Protocol::Udp, 443));
        assert!(!matches(Protocol::Udp, 444));
        assert!(!matches(Protocol::Tcp, 443));
    }

    #[test]
    fn what_is_refused_is_named_with_its_place() {
        let cases = [
            ("[[consumer]]\nprotcol = \"udp\"\n", "c:2:1: consumer.protcol: unknown field"),
            ("[[consumer]]\nprotocol = \"sctp\"\n", "allowed are tcp, udp"),
            ("[[consumer]]\nlocal = \"web\"\n", "c:2:9: consumer.local: `web`: an address"),
            ("[[consumer]]\ncpus = \"7\"\n", "the CPUs of the host (0-3)"),
            ("[[consumer]]\nsockets = 0\n", "allowed are 1 to 4096"),
            ("[[consumer]]\nport = \"dns\"\n", "allowed are learn, flows, requests"),
            ("[[consumer]]\nwork_ns = 4000000000\n", "allowed are 0 to"),
            ("[[event]]\nat = \"soon\"\noffline = 1\n", "c:2:6: event.at: `soon`"),
            ("[[event]]\nat = \"1s\"\n", "exactly one of"),
            ("[[event]]\nat = \"1s\"\noffline = 9\n", "CPU 9 does not exist (possible 0-3)"),
            ("[[event]]\nat = \"1s\"\nqueue = 2\ncpus = \"all\"\n", "queues 0 to 1"),
            (
                "[[event]]\nat = \"1s\"\nqueue = 1\noffline = 3\n",
                "c:3:9: event.queue: a queue goes",
            ),
            ("[[event]]\nat = \"1s\"\ncpus = \"8\"\n", "no usable CPU left"),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
