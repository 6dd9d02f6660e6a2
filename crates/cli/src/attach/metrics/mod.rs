//! What was counted, as metrics in the text format of Prometheus.
//!
//! Labels are the device, the policy, CPUs, classes and reasons: their number does not grow with
//! flows. Counters are those of the attachment, from its beginning.
//!
//! Always true: each family is there from the first scrape on, with zeros for each CPU that is online or
//! may take packets: the rate of a counter that appears with its first packet lacks that packet.
//!
//! Source: the text-based exposition format 0.0.4 of Prometheus and its page on naming.

mod http;
mod place;

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder as _, TextEncoder};
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_kernel::{Counters, CpuCounters};

pub(super) use http::Server;
pub(super) use place::Place;

/// What is served, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    pub(super) device: String,
    pub(super) policy: &'static str,
    pub(super) mode: String,
    pub(super) counters: Counters,
    /// CPUs on which packets can come in.
    pub(super) online: CpuSet,
    /// CPUs that may take packets.
    pub(super) serving: CpuSet,
    pub(super) flows: [usize; 2],
    pub(super) table_entries: u32,
    pub(super) uptime: Duration,
    /// Reloads that were taken, and those that were refused.
    pub(super) reloads: [u64; 2],
}

/// Labels and the value.
type Sample<'a> = (Vec<(&'a str, String)>, f64);

impl Scrape {
    /// Returns the text.
    pub(super) fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.families(), &mut text)?;
        Ok(text)
    }

    fn families(&self) -> Vec<MetricFamily> {
        let counters = &self.counters;
        let policy = || ("policy", self.policy.to_owned());
        let of = |class: Class, reason: Reason| counters.packets[class.index()][reason.index()];
        let each_class = |sum: &dyn Fn(Class) -> u64| -> Vec<Sample<'_>> {
            let sample =
                |class: Class| (vec![("class", class.name().to_owned())], sum(class) as f64);
            Class::ALL.into_iter().map(sample).collect()
        };
        let of_class = |reasons: &'static [Reason]| {
            each_class(&|class| reasons.iter().map(|reason| of(class, *reason)).sum())
        };
        let packets = Class::ALL.into_iter().flat_map(|class| {
            Reason::ALL.into_iter().map(move |reason| {
                let labels = vec![
                    policy(),
                    ("class", class.name().to_owned()),
                    ("reason", reason.name().to_owned()),
                ];
                (labels, of(class, reason) as f64)
            })
        });
        let by_cpu = with_zeros(&counters.cpus, &self.serving);
        let cpus = |value: &dyn Fn(&CpuCounters) -> u64| -> Vec<Sample<'_>> {
            let all = by_cpu.iter();
            all.map(|(cpu, of_cpu)| (vec![("cpu", cpu.to_string())], value(of_cpu) as f64))
                .collect()
        };
        let drops = by_cpu.iter().flat_map(|(cpu, of_cpu)| {
            [
                ("queue_full", of_cpu.lost_full),
                ("refused", of_cpu.lost_refused),
                ("no_memory", of_cpu.lost_memory),
            ]
            .map(|(reason, lost)| {
                (vec![("cpu", cpu.to_string()), ("reason", reason.to_owned())], lost as f64)
            })
        });
        let arrived = with_zeros(&counters.arrived, &self.online).into_iter();
        let arrived = arrived.map(|(cpu, n)| (vec![("cpu", cpu.to_string())], n as f64)).collect();
        let records = Recorded::NAMES.iter().zip(counters.records);
        let records =
            records.map(|(name, n)| (vec![("result", (*name).to_owned())], n as f64)).collect();
        let answers = counters.answers.results().into_iter();
        let answers =
            answers.map(|(name, n)| (vec![("result", name.to_owned())], n as f64)).collect();
        let tables = |values: [f64; 2]| {
            let named = ["tcp", "udp"].into_iter().zip(values);
            named.map(|(table, value)| (vec![("table", table.to_owned())], value)).collect()
        };
        let reloads = ["taken", "refused"].into_iter().zip(self.reloads);
        let reloads = reloads.map(|(result, n)| (vec![("result", result.to_owned())], n as f64));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        vec![
            self.counter(
                "packets_total",
                "Packets by class and the reason of their CPU; each packet has one.",
                packets.collect(),
            ),
            self.counter(
                "rfs_hit_total",
                "Packets of flows that the table knows.",
                of_class(&[Reason::Hit, Reason::Held, Reason::Beside]),
            ),
            self.counter(
                "rfs_miss_total",
                "Packets for which the table was asked and had no flow.",
                of_class(&[Reason::Miss]),
            ),
            self.counter(
                "rfs_move_total",
                "Times that a flow in a table was given another CPU, after its reader moved.",
                vec![(Vec::new(), counters.records[Recorded::Moved.index()] as f64)],
            ),
            self.counter(
                "rfs_move_blocked_total",
                "Packets that went to the former CPU of their flow, for order, after its reader moved.",
                of_class(&[Reason::Held]),
            ),
            self.counter(
                "rps_fallback_total",
                "Packets that were spread by hash.",
                of_class(&[Reason::Miss, Reason::NoFlow, Reason::Spilled]),
            ),
            self.counter(
                "overload_drops_total",
                "Packets dropped early, for sockets without room.",
                vec![(
                    vec![("reason", Reason::Shed.name().to_owned())],
                    counters.reason(Reason::Shed) as f64,
                )],
            ),
            self.counter("received_total", "Packets by the CPU on which they came in.", arrived),
            self.counter(
                "processed_total",
                "Packets by the CPU that processed them after steering.",
                cpus(&|cpu| cpu.taken),
            ),
            self.counter(
                "cpumap_drops_total",
                "Packets lost between the decision and their CPU.",
                drops.collect(),
            ),
            self.gauge("cpumap_queue_len", "Packets that wait for a CPU.", cpus(&|cpu| cpu.waiting())),
            self.counter(
                "flow_records_total",
                "What came of hearing a socket read or write.",
                records,
            ),
            self.counter(
                "answers_total",
                "Answers from UDP ports declared for flows, by what came of them.",
                answers,
            ),
            self.gauge("flow_table_flows", "Flows in a table.", tables(self.flows.map(|n| n as f64))),
            self.gauge(
                "flow_table_entries",
                "Flows that a table can hold.",
                tables([f64::from(self.table_entries); 2]),
            ),
            self.counter(
                "config_reload_total",
                "Times that the file of settings was read again.",
                reloads.collect(),
            ),
            self.gauge(
                "attached_seconds",
                "Time since the attachment.",
                vec![(Vec::new(), self.uptime.as_secs_f64().floor())],
            ),
            self.gauge(
                "build_info",
                "Version of the command that steers, how it is attached, and what decides.",
                vec![(vec![("version", version), ("mode", self.mode.clone()), policy()], 1.0)],
            ),
        ]
    }

    fn counter(&self, name: &str, help: &str, samples: Vec<Sample<'_>>) -> MetricFamily {
        self.family(name, help, MetricType::COUNTER, samples)
    }

    fn gauge(&self, name: &str, help: &str, samples: Vec<Sample<'_>>) -> MetricFamily {
        self.family(name, help, MetricType::GAUGE, samples)
    }

    fn family(
        &self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: Vec<Sample<'_>>,
    ) -> MetricFamily {
        let metric = |(labels, value): Sample<'_>| {
            let device = ("device", self.device.clone());
            let pairs = std::iter::once(device).chain(labels).map(|(name, value)| {
                let mut pair = LabelPair::default();
                pair.set_name(name.to_owned());
                pair.set_value(value);
                pair
            });
            let mut metric = Metric::from_label(pairs.collect());
            if kind == MetricType::COUNTER {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            metric
        };
        let mut family = MetricFamily::default();
        family.set_name(format!("rxsteer_{name}"));
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(samples.into_iter().map(metric).collect());
        family
    }
}

/// Returns what was counted by CPU, and nothing for those besides of which nothing is known yet.
fn with_zeros<T: Copy + Default>(counted: &[(CpuId, T)], besides: &CpuSet) -> BTreeMap<CpuId, T> {
    let mut all: BTreeMap<CpuId, T> = besides.iter().map(|cpu| (cpu, T::default())).collect();
    all.extend(counted.iter().copied());
    all
}

#[cfg(test)]
mod tests {
    use prometheus_parse::Value;

    use super::*;

    /// A power of two for each reason.
    const ALL_PACKETS: u64 = (1 << Reason::COUNT) - 1;

    fn scrape() -> Scrape {
        let mut counters = Counters::default();
        for (n, reason) in Reason::ALL.into_iter().enumerate() {
            counters.packets[Class::Udp.index()][reason.index()] = 1 << n;
        }
        let of_cpu = CpuCounters { sent: 9, taken: 7, lost_full: 2, ..CpuCounters::default() };
        counters.cpus = vec![(CpuId(0), CpuCounters::default()), (CpuId(3), of_cpu)];
        counters.arrived = vec![(CpuId(0), ALL_PACKETS)];
        Scrape {
            // The kernel allows both in a name.
            device: "a\"\\b".into(),
            policy: "flow-aware",
            mode: "native".into(),
            counters,
            online: CpuSet::first_n(4),
            serving: CpuSet::from_list("0,3").unwrap(),
            flows: [1, 2],
            table_entries: 64,
            uptime: Duration::from_millis(2500),
            reloads: [3, 1],
        }
    }

    /// Reads the text by a parser that is not ours.
    fn parsed(scrape: &Scrape) -> prometheus_parse::Scrape {
        let text = String::from_utf8(scrape.text().unwrap()).unwrap();
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        prometheus_parse::Scrape::parse(lines).unwrap()
    }

    #[test]
    fn another_parser_reads_every_sample_with_its_kind_and_labels() {
        let scrape = scrape();
        let text = String::from_utf8(scrape.text().unwrap()).unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        let parsed = parsed(&scrape);
        assert_eq!(parsed.samples.len(), samples);
        assert!(samples > 40, "{text}");
        let mut seen = std::collections::BTreeSet::new();
        for sample in &parsed.samples {
            assert!(sample.metric.starts_with("rxsteer_"), "{sample:?}");
            assert!(parsed.docs.contains_key(&sample.metric), "{sample:?} has no help");
            let is_counter = matches!(sample.value, Value::Counter(_));
            // The rule of names: a counter ends so, and nothing else does.
            assert_eq!(is_counter, sample.metric.ends_with("_total"), "{sample:?}");
            assert!(is_counter || matches!(sample.value, Value::Gauge(_)), "{sample:?}");
            assert!(seen.insert(format!("{} {:?}", sample.metric, sorted(sample))), "{sample:?}");
        }
    }

    #[test]
    fn before_the_first_packet_every_family_is_there_with_zeros() {
        let before = Scrape { counters: Counters::default(), ..scrape() };
        let parsed = parsed(&before);
        let of = |name: &str| -> Vec<(Option<&str>, Option<&str>)> {
            let samples = parsed.samples.iter().filter(|sample| sample.metric == name);
            let samples = samples.inspect(|sample| match sample.value {
                Value::Counter(value) | Value::Gauge(value) => assert!(value == 0.0, "{sample:?}"),
                _ => panic!("{sample:?}"),
            });
            samples.map(|sample| (sample.labels.get("cpu"), sample.labels.get("reason"))).collect()
        };
        let cpu = |name| -> Vec<&str> { of(name).into_iter().filter_map(|(cpu, _)| cpu).collect() };
        assert_eq!(cpu("rxsteer_received_total"), ["0", "1", "2", "3"]);
        assert_eq!(cpu("rxsteer_processed_total"), ["0", "3"]);
        assert_eq!(cpu("rxsteer_cpumap_queue_len"), ["0", "3"]);
        let causes = ["queue_full", "refused", "no_memory"];
        let lost: Vec<_> = ["0", "3"]
            .into_iter()
            .flat_map(|cpu| causes.map(|cause| (Some(cpu), Some(cause))))
            .collect();
        assert_eq!(of("rxsteer_cpumap_drops_total"), lost);
        assert_eq!(of("rxsteer_packets_total").len(), Class::COUNT * Reason::COUNT);
        for family in before.families() {
            let name = family.name();
            assert!(parsed.samples.iter().any(|sample| sample.metric == name), "{name}");
        }
    }

    #[test]
    fn a_cpu_that_has_counted_is_told_also_when_it_is_gone() {
        let gone = Scrape { online: CpuSet::first_n(2), serving: CpuSet::first_n(2), ..scrape() };
        let parsed = parsed(&gone);
        let processed = |cpu| {
            let is_it = |sample: &&prometheus_parse::Sample| {
                sample.metric == "rxsteer_processed_total" && sample.labels.get("cpu") == Some(cpu)
            };
            parsed.samples.iter().find(is_it).map(|sample| sample.value.clone())
        };
        assert_eq!(processed("1"), Some(Value::Counter(0.0)));
        assert_eq!(processed("3"), Some(Value::Counter(7.0)));
        assert_eq!(processed("2"), None);
    }

    fn sorted(sample: &prometheus_parse::Sample) -> BTreeMap<String, String> {
        sample.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    #[test]
    fn the_documentation_lists_every_metric_and_no_other() {
        let documented = include_str!("../../../../../docs/attach.md");
        let names: std::collections::BTreeSet<&str> = documented
            .split('`')
            .filter(|word| word.starts_with("rxsteer_") && !word.contains('*'))
            .collect();
        let families = scrape().families();
        let ours: std::collections::BTreeSet<&str> =
            families.iter().map(MetricFamily::name).collect();
        assert_eq!(names, ours);
    }

    #[test]
    fn the_alerts_use_metrics_that_there_are() {
        let rules = include_str!("../../../../../contrib/rxsteer.rules.yml");
        let families = scrape().families();
        let names: Vec<&str> = families.iter().map(MetricFamily::name).collect();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let used: Vec<&str> = rules
            .lines()
            .flat_map(|expression| expression.split(|c| !is_part(c)))
            .filter(|word| word.starts_with("rxsteer_"))
            .collect();
        assert_eq!(used.len(), 7, "{used:?}");
        assert!(used.iter().all(|name| names.contains(name)), "{used:?}");
    }

    #[test]
    fn the_sum_over_reasons_is_all_packets() {
        let parsed = parsed(&scrape());
        let sum: f64 = parsed
            .samples
            .iter()
            .filter(|sample| sample.metric == "rxsteer_packets_total")
            .map(|sample| match sample.value {
                Value::Counter(value) => value,
                _ => f64::NAN,
            })
            .sum();
        assert!((sum - ALL_PACKETS as f64).abs() < f64::EPSILON, "{sum}");
    }

    #[test]
    fn a_quote_in_the_name_of_a_device_is_escaped() {
        let text = String::from_utf8(scrape().text().unwrap()).unwrap();
        assert!(
            text.contains(r#"rxsteer_cpumap_queue_len{cpu="3",device="a\"\\b"} 2"#)
                || text.contains(r#"rxsteer_cpumap_queue_len{device="a\"\\b",cpu="3"} 2"#),
            "{text}"
        );
    }
}
