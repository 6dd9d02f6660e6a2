//! The checked form of an experiment: every run with its host and traffic, and its size.

use std::collections::BTreeSet;

use rxsteer_core::dissect::Mode;
use rxsteer_core::steer::{KernelVersion, PolicyKind};
use toml::{Spanned, Table, Value};

use super::compare::{Claim, Figure, Place};
use super::file::{CaseFile, ExperimentFile, OptionsFile, PlotFile};
use super::lookups::{self, Lookups};
use super::measure;
use super::patch::{self, Setting};
use super::traffic::{self, Kind, Traffic};
use crate::config::{ConfigError, Source};
use crate::consumer::{Scenario, parse_duration_ns};
use crate::host::Host;
use crate::replay::{LocalRule, ReplayOptions, ServiceKind};

/// Bounds of all experiments.
pub(super) struct Limits;

impl Limits {
    /// Most runs: cases times values of a sweep.
    pub(super) const MOST_RUNS: usize = 128;
    /// Most packets of one run, about.
    pub(super) const MOST_PACKETS: u64 = 50_000_000;
    /// Most packets of all runs and policies.
    pub(super) const MOST_WORK: u64 = 2_000_000_000;
    /// Longest simulated time of one run: an hour.
    pub(super) const MOST_NS: u64 = 3_600_000_000_000;
    /// Most memory of one run, about.
    pub(super) const MOST_BYTES: u64 = 4 << 30;
}

/// How much an experiment is, told before it runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    /// Runs: cases, each with every value of the sweep.
    pub runs: usize,
    /// Packets of all runs and policies together, about.
    pub packets: u64,
    /// Most memory at a time in bytes, about: runs come one after another.
    pub bytes: u64,
}

/// A checked experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is about.
    pub about: String,
    /// What it reproduces, if that was published.
    pub reproduces: Option<String>,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Settings that took the place of values of its file.
    pub settings: Vec<Setting>,
    /// Measures that are shown, in order.
    pub show: Vec<String>,
    pub(super) runs: Vec<Run>,
    pub(super) figures: Vec<Figure>,
    pub(super) claims: Vec<Claim>,
    pub(super) plots: Vec<Plot>,
    pub(super) sweep: Option<String>,
}

/// One host with one workload, under some policies.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) case: String,
    /// Value of the swept quantity.
    pub(super) x: Option<f64>,
    pub(super) host: Host,
    pub(super) options: ReplayOptions,
    pub(super) traffic: Vec<Traffic>,
    pub(super) duration_ns: u64,
    /// In place of traffic.
    pub(super) lookups: Option<Lookups>,
}

#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) measure: String,
    pub(super) form: PlotForm,
    pub(super) case: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PlotForm {
    /// A group of bars a case, a bar a policy.
    Bars,
    /// A line a policy against the swept quantity; of one case of several, if it is named.
    Lines,
    /// A line a policy over time, of one case.
    Time,
}

impl Experiment {
    /// Reads an experiment from the text of a TOML file; `name` is its name in messages.
    ///
    /// # Errors
    /// What is wrong, with line, column and key; also what is right in form and absurd in size.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_lab::experiment::Experiment;
    /// let text = r#"
    /// name = "flood"
    /// title = "A flood"
    /// about = "Datagrams from everywhere."
    /// duration = "10ms"
    /// policies = ["rps", "flow-aware"]
    /// show = ["received_per_s", "reordered"]
    /// [host]
    /// cpus = 4
    /// [[traffic]]
    /// kind = "udp-flood"
    /// per_second = 100_000
    /// port = 9
    /// "#;
    /// let experiment = Experiment::from_toml("flood.toml", text, &[])?;
    /// assert_eq!(experiment.size().packets, 2 * 1000);
    /// let error = Experiment::from_toml("flood.toml", &text.replace("port", "prot"), &[]);
    /// assert!(error.unwrap_err().to_string().starts_with("flood.toml:13:1: traffic.prot"));
    /// # Ok::<(), rxsteer_lab::config::ConfigError>(())
    /// ```
    pub fn from_toml(name: &str, text: &str, settings: &[Setting]) -> Result<Self, ConfigError> {
        let source = Source::new(name, text);
        let mut file: ExperimentFile = source.parse()?;
        let mut table: Table = source.parse()?;
        let mut patched = String::new();
        let mut source = source;
        let mut source_name = String::new();
        if !settings.is_empty() {
            // The file as it stands must be right before values are put in place of others.
            runs(source, &file, &table)?;
            for setting in settings {
                patch::put(&mut table, &setting.key, &setting.value)
                    .map_err(|e| ConfigError::whole("--set", e.to_string()))?;
            }
            patched = text_of(&table, source)?;
            let list: Vec<String> = settings.iter().map(Setting::to_string).collect();
            source_name = format!("{name} with {}", list.join(", "));
            source = Source::new(&source_name, &patched);
            file = source.parse()?;
        }
        let _ = (&patched, &source_name);
        let runs = runs(source, &file, &table)?;
        let show = measures(source, &file.show)?;
        let place = Place { source, runs: &runs };
        let figures: Result<_, _> = file.figure.iter().map(|f| place.figure(f)).collect();
        let claims: Result<_, _> = file.claim.iter().map(|c| place.claim(c)).collect();
        let plots: Result<_, _> = file.plot.iter().map(|p| plot(source, p, &file, &runs)).collect();
        let sweep = file.sweep.as_ref().map(|sweep| source.one_line(&sweep.label));
        let reproduces = file.reproduces.as_ref().map(|text| source.one_line(text));
        let experiment = Self {
            name: plain_name(source, &file.name)?,
            title: source.one_line(&file.title)?.to_owned(),
            about: file.about.trim().to_owned(),
            reproduces: reproduces.transpose()?.map(str::to_owned),
            seed: file.seed.unwrap_or(1),
            settings: settings.to_vec(),
            show,
            figures: figures?,
            claims: claims?,
            plots: plots?,
            sweep: sweep.transpose()?.map(str::to_owned),
            runs,
        };
        experiment.check_size(source)?;
        Ok(experiment)
    }

    /// Returns how much it is.
    pub fn size(&self) -> Size {
        let packets = |run: &Run| {
            if let Some(lookups) = &run.lookups {
                return lookups.packets * lookups.variants.len() as u64;
            }
            let each: u64 = run.traffic.iter().map(Traffic::packets).sum();
            each.saturating_mul(run.options.policies.len() as u64)
        };
        Size {
            runs: self.runs.len(),
            packets: self.runs.iter().map(packets).fold(0, u64::saturating_add),
            bytes: self.runs.iter().map(Run::bytes).max().unwrap_or(0),
        }
    }

    fn check_size(&self, source: Source<'_>) -> Result<(), ConfigError> {
        let size = self.size();
        if size.packets > Limits::MOST_WORK {
            let message = format!(
                "about {} packets in {} runs and their policies: allowed are {}",
                size.packets,
                size.runs,
                Limits::MOST_WORK
            );
            return Err(ConfigError::whole(source.file, message));
        }
        if size.bytes > Limits::MOST_BYTES {
            let message = format!(
                "a run needs about {} bytes of memory: allowed are {}",
                size.bytes,
                Limits::MOST_BYTES
            );
            return Err(ConfigError::whole(source.file, message));
        }
        Ok(())
    }
}

impl Run {
    /// Returns the names of what is compared.
    pub(super) fn policies(&self) -> Vec<&'static str> {
        match &self.lookups {
            Some(lookups) => lookups.variants.iter().map(|variant| variant.name()).collect(),
            None => self.options.policies.iter().map(|kind| kind.name()).collect(),
        }
    }

    /// Returns the bytes of memory that it takes, about: tables, flows, sockets, senders.
    fn bytes(&self) -> u64 {
        // A flow and a socket of the front and of each policy's ledger, by their sizes.
        const FLOW: u64 = 160;
        const SOCKET: u64 = 150;
        const OF_POLICY: u64 = 20 + 80;
        if let Some(lookups) = &self.lookups {
            return lookups.bytes();
        }
        let tables = crate::replay::table_bytes(&self.host, &self.options).unwrap_or(u64::MAX);
        let flows: u64 = self.traffic.iter().map(Traffic::packets).sum();
        let flows = flows.min(self.options.flow_limit as u64);
        let policies = self.options.policies.len() as u64;
        let senders: u64 = self.traffic.iter().map(Traffic::bytes).sum();
        tables
            .saturating_add(flows * (FLOW + SOCKET + policies * OF_POLICY))
            .saturating_add(senders)
            .saturating_add(64 << 20)
    }
}

fn text_of(table: &Table, source: Source<'_>) -> Result<String, ConfigError> {
    toml::to_string(table).map_err(|error| ConfigError::whole(source.file, error.to_string()))
}

fn plain_name(source: Source<'_>, name: &Spanned<String>) -> Result<String, ConfigError> {
    let text = name.get_ref();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > 40 || !text.chars().all(plain) {
        let message = "a name has 1 to 40 of the characters a-z, 0-9 and -";
        return Err(source.refuse(name, message));
    }
    Ok(text.clone())
}

/// Makes the runs: every case with every value of the sweep.
fn runs(source: Source<'_>, file: &ExperimentFile, table: &Table) -> Result<Vec<Run>, ConfigError> {
    // Without cases or beside them: what stands in the file must be right by itself.
    let base = run(source, file, "all", None, true)?;
    if file.case.is_empty() && file.sweep.is_none() {
        return Ok(vec![base]);
    }
    let cases: Vec<Option<&CaseFile>> =
        if file.case.is_empty() { vec![None] } else { file.case.iter().map(Some).collect() };
    let values: Vec<Option<i64>> = match &file.sweep {
        None => vec![None],
        Some(sweep) if sweep.values.get_ref().is_empty() => {
            return Err(source.refuse(&sweep.values, "a sweep has one value at least"));
        }
        Some(sweep) => sweep.values.get_ref().iter().map(|n| Some(*n.get_ref())).collect(),
    };
    if let Some(sweep) = &file.sweep {
        let mut seen = BTreeSet::new();
        if let Some(twice) = sweep.values.get_ref().iter().find(|n| !seen.insert(*n.get_ref())) {
            return Err(source.refuse(twice, format!("{} is swept twice", twice.get_ref())));
        }
    }
    if cases.len() * values.len() > Limits::MOST_RUNS {
        let message = format!("{} runs", cases.len() * values.len());
        let message = format!("{message}: allowed are {}", Limits::MOST_RUNS);
        return Err(match &file.sweep {
            Some(sweep) => source.refuse(&sweep.values, message),
            None => ConfigError::whole(source.file, message),
        });
    }
    let mut names = BTreeSet::new();
    let mut made = Vec::new();
    for case in cases {
        let mut name = "all".to_owned();
        let mut document = table.clone();
        if let Some(case) = case {
            source.one_line(&case.name)?.clone_into(&mut name);
            if name.contains('/') || !names.insert(name.clone()) {
                let message = "the name of a case is its own, and has no `/`";
                return Err(source.refuse(&case.name, message));
            }
            if let Some(policies) = &case.policies {
                let names = policies.get_ref().iter();
                let names = names.map(|name| Value::String(name.get_ref().clone())).collect();
                document.insert("policies".into(), Value::Array(names));
            }
            for (key, value) in &case.set {
                patch::put(&mut document, key, value.get_ref())
                    .map_err(|error| source.refuse(value, error.to_string()))?;
            }
        }
        for value in &values {
            let mut document = document.clone();
            let mut full = name.clone();
            if let (Some(sweep), Some(value)) = (&file.sweep, value) {
                patch::put(&mut document, sweep.key.get_ref(), &Value::Integer(*value))
                    .map_err(|error| source.refuse(&sweep.key, error.to_string()))?;
                full = if case.is_none() { value.to_string() } else { format!("{name}, {value}") };
            }
            made.push(variant(source, file, case, &document, &full, *value)?);
        }
    }
    Ok(made)
}

/// Makes the run of a document in which values took the place of others; its faults are told at
/// the case or sweep that brought them.
fn variant(
    source: Source<'_>,
    file: &ExperimentFile,
    case: Option<&CaseFile>,
    document: &Table,
    name: &str,
    value: Option<i64>,
) -> Result<Run, ConfigError> {
    let text = text_of(document, source)?;
    let inner = Source::new(source.file, &text);
    let made = inner
        .parse::<ExperimentFile>()
        .and_then(|changed| run(inner, &changed, name, value, false));
    made.map_err(|error| {
        let message = format!("with the values of `{name}`: {}: {}", error.key, error.message);
        match (case, &file.sweep) {
            (Some(case), _) => source.refuse(&case.name, message),
            (None, Some(sweep)) => source.refuse(&sweep.values, message),
            (None, None) => ConfigError::whole(source.file, message),
        }
    })
}

/// Makes one run. As it stands in the file (`base`) it may lack traffic that its cases bring.
fn run(
    source: Source<'_>,
    file: &ExperimentFile,
    case: &str,
    x: Option<i64>,
    base: bool,
) -> Result<Run, ConfigError> {
    let mut host = crate::host::make(source, &file.host)?;
    host.source = "experiment".into();
    let duration_ns = match &file.duration {
        None if file.traffic.is_empty() => 1,
        None => {
            let message = "an experiment with traffic has a duration";
            return Err(ConfigError::whole(source.file, message.into()));
        }
        Some(text) => match parse_duration_ns(text.get_ref()) {
            Ok(ns) if (1..=Limits::MOST_NS).contains(&ns) => ns,
            Ok(_) => return Err(source.refuse(text, "allowed are 1ns to 60m")),
            Err(error) => return Err(source.refuse(text, error.to_string())),
        },
    };
    let mut traffic = Vec::new();
    let mut names = BTreeSet::new();
    for given in &file.traffic {
        if let Some(name) = &given.get_ref().name
            && !names.insert(source.one_line(name)?)
        {
            return Err(source.refuse(name, "is the name of traffic before it"));
        }
        let checked = traffic::check(source, given, duration_ns)?;
        traffic::check_size(source, given, &checked)?;
        if let (Some(cpu), Some(at)) = (checked.client_cpu(), &given.get_ref().client_cpu)
            && !host.cpus.online.contains(cpu)
        {
            return Err(source.refuse(at, format!("CPU {cpu} is not online")));
        }
        traffic.push(checked);
    }
    let alone = |t: &Traffic| matches!(t.kind, Kind::RoundTrips { .. });
    if traffic.iter().any(alone)
        && let Some(other) = traffic.iter().position(|t| !alone(t))
    {
        let message = "traffic of kind `round-trips` goes with its own kind only";
        return Err(source.refuse(&file.traffic[other].get_ref().kind, message));
    }
    let mut options = options(source, &file.options)?;
    options.scenario =
        Scenario::make(source, &file.consumer, &file.event, &host, Some(duration_ns))?;
    options.seed = file.seed.unwrap_or(1);
    let mut lookups = None;
    match (&file.lookups, &file.policies) {
        (Some(_), _) if !traffic.is_empty() => {
            let message = "an experiment has [[traffic]] or [lookups], not both at a time";
            return Err(ConfigError::whole(source.file, message.into()));
        }
        (Some(given), Some(names)) => lookups = Some(lookups::check(source, given, names)?),
        (Some(_), None) => {
            let message = "an experiment on look-ups names its policies";
            return Err(ConfigError::whole(source.file, message.into()));
        }
        (None, _) if traffic.is_empty() && (!base || file.case.is_empty()) => {
            let message = "an experiment has one [[traffic]] table at least, or [lookups]";
            return Err(ConfigError::whole(source.file, message.into()));
        }
        (None, Some(given)) => options.policies = policies(source, given)?,
        (None, None) => {}
    }
    Ok(Run {
        case: case.to_owned(),
        x: x.map(|value| value as f64),
        host,
        options,
        traffic,
        duration_ns,
        lookups,
    })
}

fn options(source: Source<'_>, file: &OptionsFile) -> Result<ReplayOptions, ConfigError> {
    let word = |given: &Option<Spanned<String>>, allowed: &[&str]| match given {
        None => Ok(0),
        Some(text) => allowed.iter().position(|word| word == text.get_ref()).ok_or_else(|| {
            let message = format!("`{}`: allowed are {}", text.get_ref(), allowed.join(", "));
            source.refuse(text, message)
        }),
    };
    let kernel = match &file.kernel {
        None => KernelVersion::NEWEST,
        Some(text) => text
            .get_ref()
            .parse()
            .map_err(|_| source.refuse(text, format!("`{}` is no version", text.get_ref())))?,
    };
    Ok(ReplayOptions {
        service: [ServiceKind::Engine, ServiceKind::Instant]
            [word(&file.service, &["engine", "instant"])?],
        mode: [Mode::Kernel, Mode::Inner][word(&file.mode, &["kernel", "inner"])?],
        kernel,
        drain: file.drain,
        track_fragments: file.track_fragments,
        ignore_flow_label: file.ignore_flow_label,
        local: LocalRule::Infer,
        flow_limit: 1 << 20,
        socket_limit: 1 << 20,
        ..ReplayOptions::default()
    })
}

fn policies(
    source: Source<'_>,
    given: &Spanned<Vec<Spanned<String>>>,
) -> Result<Vec<PolicyKind>, ConfigError> {
    let mut kinds = Vec::new();
    for name in given.get_ref() {
        let kind: PolicyKind = name
            .get_ref()
            .parse()
            .map_err(|error| source.refuse(name, format!("`{}`: {error}", name.get_ref())))?;
        if kinds.contains(&kind) {
            return Err(source.refuse(name, "is named twice"));
        }
        kinds.push(kind);
    }
    if kinds.is_empty() {
        return Err(source.refuse(given, "one policy at least"));
    }
    Ok(kinds)
}

fn measures(
    source: Source<'_>,
    given: &Spanned<Vec<Spanned<String>>>,
) -> Result<Vec<String>, ConfigError> {
    if given.get_ref().is_empty() {
        return Err(source.refuse(given, "one measure at least"));
    }
    for name in given.get_ref() {
        measure::known(source, name)?;
    }
    Ok(given.get_ref().iter().map(|name| name.get_ref().clone()).collect())
}

fn plot(
    source: Source<'_>,
    given: &PlotFile,
    file: &ExperimentFile,
    runs: &[Run],
) -> Result<Plot, ConfigError> {
    let form = match given.form.get_ref().as_str() {
        "bars" => PlotForm::Bars,
        "lines" if file.sweep.is_none() => {
            return Err(source.refuse(&given.form, "lines need a [sweep]"));
        }
        "lines" => PlotForm::Lines,
        "time" => PlotForm::Time,
        other => {
            let message = format!("`{other}`: allowed are bars, lines, time");
            return Err(source.refuse(&given.form, message));
        }
    };
    if form == PlotForm::Time {
        if !measure::OVER_TIME.contains(&given.measure.get_ref().as_str()) {
            let message = format!("over time: allowed are {}", measure::OVER_TIME.join(", "));
            return Err(source.refuse(&given.measure, message));
        }
    } else {
        measure::known(source, &given.measure)?;
    }
    let case = given.case.as_ref().map(|case| case.get_ref().clone());
    if let Some(at) = &given.case {
        let name = at.get_ref();
        let known = |run: &Run| run.case == *name || run.case.starts_with(&format!("{name}, "));
        if !runs.iter().any(known) {
            return Err(source.refuse(at, format!("there is no case `{name}`")));
        }
    }
    let title = source.one_line(&given.title)?.to_owned();
    Ok(Plot { title, measure: given.measure.get_ref().clone(), form, case })
}
