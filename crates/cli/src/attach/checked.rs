//! From what was typed, or stands in a file, to the settings of an attachment.

use std::ops::RangeInclusive;
use std::path::Path;

use rxsteer_core::CpuSet;
use rxsteer_core::cpu::CpuStates;
use rxsteer_kernel::Settings;
use serde::Deserialize;

use super::args::AttachArgs;
use crate::args::checked::UsageError;
use crate::args::quantity;

/// The settings, and what was left out of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Asked {
    /// What the attachment is told.
    pub settings: Settings,
    /// CPUs that were asked for and cannot take packets, with the reasons; empty if there are none.
    pub left_out: String,
}

/// The settings in a file: the flags without their dashes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    interface: Option<String>,
    cpus: Option<String>,
    mode: Option<String>,
    policy: Option<String>,
    table_entries: Option<Count>,
    qsize: Option<Count>,
    all_namespaces: bool,
}

/// A number as TOML has it, or as a flag takes it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(untagged)]
enum Count {
    Number(i64),
    Text(String),
}

impl Count {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

impl Asked {
    /// Checks what was typed, on a host with these CPUs; `read` returns the text of a file.
    ///
    /// # Errors
    /// [`UsageError`] with the flag, also for what stands in the file.
    pub fn new(
        args: &AttachArgs,
        host: &CpuStates,
        read: impl FnOnce(&Path) -> std::io::Result<String>,
    ) -> Result<Self, UsageError> {
        let file = match &args.config {
            Some(path) => file(path, read)?,
            None => File::default(),
        };
        let interface = args.interface.clone().or(file.interface);
        let interface = interface.ok_or_else(|| usage("IFACE", "name an interface"))?;
        let (cpus, left_out) = cpus(args.cpus.as_deref().or(file.cpus.as_deref()), host)?;
        let mut settings = Settings::new(interface, cpus);
        if let Some(mode) = args.mode.as_deref().or(file.mode.as_deref()) {
            settings.mode = mode.parse().map_err(|error| usage("--mode", error))?;
        }
        if let Some(policy) = args.policy.as_deref().or(file.policy.as_deref()) {
            settings.policy = policy.parse().map_err(|error| usage("--policy", error))?;
        }
        let count =
            |flag, typed: &Option<String>, filed: Option<Count>, range: RangeInclusive<u32>| {
                match typed.clone().or(filed.map(Count::text)) {
                    None => Ok(None),
                    Some(text) => number(flag, &text, range).map(Some),
                }
            };
        let range = Settings::ALLOWED_ENTRIES;
        let entries = count("--table-entries", &args.table_entries, file.table_entries, range)?;
        settings.table_entries = entries.unwrap_or(settings.table_entries);
        let packets = count("--qsize", &args.qsize, file.qsize, Settings::ALLOWED_PACKETS)?;
        settings.queue_packets = packets.unwrap_or(settings.queue_packets);
        settings.all_namespaces = args.all_namespaces || file.all_namespaces;
        Ok(Self { settings, left_out })
    }
}

fn file(
    path: &Path,
    read: impl FnOnce(&Path) -> std::io::Result<String>,
) -> Result<File, UsageError> {
    let at = |error: String| usage("--config", format_args!("{}: {error}", path.display()));
    let text = read(path).map_err(|error| at(error.to_string()))?;
    toml::from_str(&text).map_err(|error| at(error.to_string().trim_end().to_owned()))
}

fn cpus(asked: Option<&str>, host: &CpuStates) -> Result<(CpuSet, String), UsageError> {
    let wanted = match asked.unwrap_or("housekeeping") {
        "all" => return Ok((host.online, String::new())),
        "housekeeping" => return Ok((host.serving(), String::new())),
        list => CpuSet::from_list(list).map_err(|error| usage("--cpus", error))?,
    };
    let usable = host.usable(&wanted);
    if let Some(refusal) = usable.refusal() {
        return Err(usage("--cpus", refusal));
    }
    Ok((usable.cpus, usable.dropped.to_string()))
}

fn number(flag: &'static str, text: &str, range: RangeInclusive<u32>) -> Result<u32, UsageError> {
    let value = quantity(text).map_err(|error| usage(flag, error))?;
    match u32::try_from(value) {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => {
            let (least, most) = range.into_inner();
            Err(usage(flag, format_args!("{value} is not from {least} to {most}")))
        }
    }
}

fn usage(flag: &'static str, message: impl std::fmt::Display) -> UsageError {
    UsageError { flag, message: message.to_string() }
}

#[cfg(test)]
mod tests {
    use rxsteer_kernel::{LivePolicy, Mode};

    use super::*;

    fn asked(args: &AttachArgs, file: &str) -> Result<Asked, String> {
        let mut host = CpuStates::all(4);
        host.isolated.insert(rxsteer_core::CpuId(3));
        let asked = Asked::new(args, &host, |_| Ok(file.to_owned()));
        asked.map_err(|error| error.to_string())
    }

    fn eth0() -> AttachArgs {
        AttachArgs { interface: Some("eth0".into()), ..AttachArgs::default() }
    }

    #[test]
    fn without_a_word_all_but_isolated_cpus_serve() {
        let plain = asked(&eth0(), "").unwrap();
        let cpus = CpuSet::from_list("0-2").unwrap();
        assert_eq!(plain.settings, Settings::new("eth0", cpus));
        assert_eq!(plain.left_out, "");
        assert_eq!(asked(&AttachArgs::default(), "").unwrap_err(), "IFACE: name an interface");
    }

    #[test]
    fn a_flag_goes_before_the_file() {
        let args = AttachArgs {
            config: Some("x.toml".into()),
            mode: Some("skb".into()),
            qsize: Some("1k".into()),
            ..AttachArgs::default()
        };
        let file = "interface = 'eth1'\nmode = 'native'\npolicy = 'rps'\nqsize = 5\n\
                    table-entries = '8k'\ncpus = '1,3,9'\nall-namespaces = true\n";
        let Asked { settings, left_out } = asked(&args, file).unwrap();
        assert_eq!((settings.interface.as_str(), settings.mode), ("eth1", Mode::Skb));
        assert_eq!((settings.policy, settings.all_namespaces), (LivePolicy::Rps, true));
        assert_eq!((settings.queue_packets, settings.table_entries), (1024, 8192));
        assert_eq!(settings.cpus, CpuSet::from_list("1").unwrap());
        assert_eq!(left_out, "9 does not exist (possible 0-3), 3 is isolated");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_flag_and_place() {
        let wrong = |change: fn(&mut AttachArgs)| {
            let mut args = eth0();
            change(&mut args);
            asked(&args, "").unwrap_err()
        };
        assert!(wrong(|a| a.cpus = Some("3".into())).starts_with("--cpus: no usable CPU left"));
        assert!(wrong(|a| a.cpus = Some("1-".into())).starts_with("--cpus: "));
        assert!(wrong(|a| a.mode = Some("hw".into())).ends_with("there are auto, native, skb"));
        assert_eq!(
            wrong(|a| a.qsize = Some("16385".into())),
            "--qsize: 16385 is not from 1 to 16384"
        );
        assert_eq!(
            wrong(|a| a.table_entries = Some("268435456".into())),
            "--table-entries: 268435456 is not from 8 to 16777216"
        );
        let args = AttachArgs { config: Some("x.toml".into()), ..eth0() };
        let said = asked(&args, "mode = 'skb'\ncpu = '1'\n").unwrap_err();
        assert!(said.starts_with("--config: x.toml: ") && said.contains("line 2"), "{said}");
    }
}
