//! From what was typed, or stands in a file, to the settings of an attachment.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

use rxsteer_core::CpuSet;
use rxsteer_core::cpu::CpuStates;
use rxsteer_kernel::Settings;

use super::args::AttachArgs;
use super::given::{Given, Place, Word};
use crate::args::quantity;

/// The settings, and what was left out of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Asked {
    /// What the attachment is told.
    pub settings: Settings,
    /// CPUs that were asked for and cannot take packets, with the reasons; empty if there are none.
    pub left_out: String,
    /// What to say of a number by itself that was typed for the CPUs, which is an id here and how many
    /// there are in `replay`; empty if there is none.
    pub one_cpu: String,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Where that was said: the flag, or file, line, column and key; empty if it was not.
    pub metrics_place: String,
}

/// All that is wrong with what was typed or stands in the file, a line each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wrong(pub Vec<String>);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Wrong {}

impl Asked {
    /// Checks what was typed, on a host with these CPUs; `read` returns the text of a file.
    ///
    /// # Errors
    /// All that is wrong, each with the flag or the place in the file.
    pub fn new(
        args: &AttachArgs,
        host: &CpuStates,
        read: impl FnOnce(&Path) -> std::io::Result<String>,
    ) -> Result<Self, Wrong> {
        let typed = Given::from_args(args);
        let given = match &args.config {
            Some(path) => typed.or(file(path, read)?),
            None => typed,
        };
        if given.get("interface").is_none() {
            return Err(Wrong(vec![
                "IFACE: name an interface, such as eth0 (`ip -br link` lists them)".to_owned(),
            ]));
        }
        Self::of(&given, host)
    }

    /// Checks a file by itself; an interface need not be named there.
    ///
    /// # Errors
    /// All that is wrong in it.
    pub fn of_file(
        path: &Path,
        host: &CpuStates,
        read: impl FnOnce(&Path) -> std::io::Result<String>,
    ) -> Result<Self, Wrong> {
        Self::of(&file(path, read)?, host)
    }

    fn of(given: &Given, host: &CpuStates) -> Result<Self, Wrong> {
        let mut wrong = Vec::new();
        let mut keep = |word: &Word, error: String| wrong.push(format!("{}: {error}", word.place));
        let mut cpus = (host.serving(), String::new());
        let mut one_cpu = String::new();
        if let Some(word) = given.get("cpus") {
            one_cpu = not_how_many(word);
            match usable(&word.text, host) {
                Ok(these) => cpus = these,
                Err(error) if one_cpu.is_empty() => keep(word, error),
                Err(error) => keep(word, format!("{error}; {one_cpu}")),
            }
        }
        let interface = given.get("interface").map_or("", |word| &word.text);
        let mut settings = Settings::new(interface, cpus.0);
        if let Some(word) = given.get("interface")
            && let Err(error) = interface_name(&word.text)
        {
            keep(word, error.to_owned());
        }
        if let Some(word) = given.get("mode") {
            match word.text.parse() {
                Ok(mode) => settings.mode = mode,
                Err(error) => keep(word, format!("{error}")),
            }
        }
        if let Some(word) = given.get("policy") {
            match word.text.parse() {
                Ok(policy) => settings.policy = policy,
                Err(error) => keep(word, format!("{error}")),
            }
        }
        for (key, range, into) in [
            ("table-entries", Settings::ALLOWED_ENTRIES, &mut settings.table_entries),
            ("qsize", Settings::ALLOWED_PACKETS, &mut settings.queue_packets),
        ] {
            if let Some(word) = given.get(key) {
                match number(&word.text, range) {
                    Ok(number) => *into = number,
                    Err(error) => keep(word, error),
                }
            }
        }
        for (key, into) in [
            ("all-namespaces", &mut settings.all_namespaces),
            ("ports", &mut settings.ports),
            ("shed", &mut settings.shed),
            ("beside", &mut settings.beside),
        ] {
            match given.get(key).map(|word| (word, word.text.as_str())) {
                None => {}
                Some((_, "on" | "true")) => *into = true,
                Some((_, "off" | "false")) => *into = false,
                Some((word, _)) => keep(word, "there are on, off (or true, false)".to_owned()),
            }
        }
        if let Some(word) = given.get("flow-ports") {
            match word.text.parse() {
                Ok(ports) => settings.flow_ports = ports,
                Err(error) => keep(word, format!("{error}")),
            }
        }
        let (mut metrics, mut metrics_place) = (None, String::new());
        if let Some(word) = given.get("metrics") {
            metrics_place = word.place.to_string();
            match address(&word.text) {
                Ok(address) => metrics = Some(address),
                Err(error) => keep(word, error),
            }
        }
        if wrong.is_empty() {
            Ok(Self { settings, left_out: cpus.1, one_cpu, metrics, metrics_place })
        } else {
            Err(Wrong(wrong))
        }
    }
}

fn file(path: &Path, read: impl FnOnce(&Path) -> std::io::Result<String>) -> Result<Given, Wrong> {
    let text = read(path).map_err(|error| Wrong(vec![format!("{}: {error}", path.display())]))?;
    Given::from_toml(path, &text).map_err(Wrong)
}

/// The kernel's rule for names of interfaces (ip-link(8)), which also keeps them out of paths.
fn interface_name(name: &str) -> Result<(), &'static str> {
    let is_fine = (1..16).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if is_fine { Ok(()) } else { Err("no interface can have that name") }
}

/// Returns the CPUs of a set that can take packets, and those that cannot with the reasons.
fn usable(asked: &str, host: &CpuStates) -> Result<(CpuSet, String), String> {
    let wanted = match asked {
        "all" => return Ok((host.online, String::new())),
        "housekeeping" => return Ok((host.serving(), String::new())),
        list => CpuSet::from_list(list).map_err(|error| error.to_string())?,
    };
    let usable = host.usable(&wanted);
    if let Some(refusal) = usable.refusal() {
        return Err(refusal.to_string());
    }
    Ok((usable.cpus, usable.dropped.to_string()))
}

/// Returns what to say where a number by itself was typed for CPUs: it names one, and here how many was
/// probably meant. In a file it is a text then, as an error asks for.
fn not_how_many(word: &Word) -> String {
    match (&word.place, word.text.parse::<u16>()) {
        (Place::Flag(_), Ok(number @ 2..)) => {
            format!(
                "{number} means CPU {number} alone, the first {number} CPUs are 0-{}",
                number - 1
            )
        }
        _ => String::new(),
    }
}

fn number(text: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    let value = quantity(text).map_err(|error| error.to_string())?;
    match u32::try_from(value) {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => Err(format!("{value} is not from {} to {}", range.start(), range.end())),
    }
}

/// Reads an address as `--web.listen-address` of the exporters of Prometheus has it: without a host it
/// means all addresses.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = |port: &str| port.parse::<u16>().ok();
    let found = match text.rsplit_once(':') {
        Some(("", number)) => port(number).map(|port| (any(), port).into()),
        Some(("localhost", number)) => {
            port(number).map(|port| (IpAddr::V4(Ipv4Addr::LOCALHOST), port).into())
        }
        _ => text.parse().ok(),
    };
    found.ok_or_else(|| {
        format!("{text:?} is not ADDRESS:PORT, such as 127.0.0.1:9477, [::1]:9477 or :9477")
    })
}

/// Returns the address that stands for all: of IPv6, which takes IPv4 as well, where there is IPv6.
fn any() -> IpAddr {
    if Path::new("/proc/net/if_inet6").exists() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

#[cfg(test)]
mod tests {
    use rxsteer_kernel::{LivePolicy, Mode};

    use super::*;

    fn host() -> CpuStates {
        let mut host = CpuStates::all(4);
        host.isolated.insert(rxsteer_core::CpuId(3));
        host
    }

    fn asked(args: &AttachArgs, file: &str) -> Result<Asked, String> {
        let asked = Asked::new(args, &host(), |_| Ok(file.to_owned()));
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
        assert_eq!((plain.left_out.as_str(), plain.metrics), ("", None));
        let one = asked(&AttachArgs { cpus: Some("2".into()), ..eth0() }, "").unwrap();
        assert_eq!(one.settings.cpus, CpuSet::from_list("2").unwrap());
        assert_eq!(one.one_cpu, "2 means CPU 2 alone, the first 2 CPUs are 0-1");
        assert_eq!(
            asked(&AttachArgs::default(), "").unwrap_err(),
            "IFACE: name an interface, such as eth0 (`ip -br link` lists them)"
        );
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
                    table-entries = '8k'\ncpus = '1,3,9'\nall-namespaces = true\nports = false\n\
                    flow-ports = [443, '5000-5009']\nbeside = 'off'\n";
        let Asked { settings, left_out, .. } = asked(&args, file).unwrap();
        assert_eq!((settings.interface.as_str(), settings.mode), ("eth1", Mode::Skb));
        assert_eq!((settings.policy, settings.all_namespaces), (LivePolicy::Rps, true));
        assert_eq!((settings.ports, settings.shed, settings.beside), (false, true, false));
        assert_eq!(settings.flow_ports.to_string(), "443,5000-5009");
        assert_eq!((settings.queue_packets, settings.table_entries), (1024, 8192));
        assert_eq!(settings.cpus, CpuSet::from_list("1").unwrap());
        assert_eq!(left_out, "9 does not exist (possible 0-3), 3 is isolated");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_flag() {
        let wrong = |change: fn(&mut AttachArgs)| {
            let mut args = eth0();
            change(&mut args);
            asked(&args, "").unwrap_err()
        };
        assert!(wrong(|a| a.cpus = Some("3".into())).starts_with("--cpus: no usable CPU left"));
        assert!(wrong(|a| a.cpus = Some("1-".into())).starts_with("--cpus: "));
        let said = wrong(|a| a.flow_ports = Some("443,quic".into()));
        assert!(said.starts_with("--flow-ports: part 2 is no port"), "{said}");
        let many = wrong(|a| a.cpus = Some("4".into()));
        assert!(many.ends_with("; 4 means CPU 4 alone, the first 4 CPUs are 0-3"), "{many}");
        assert_eq!(
            wrong(|a| a.ports = Some("1".into())),
            "--ports: there are on, off (or true, false)"
        );
        assert!(wrong(|a| a.mode = Some("hw".into())).ends_with("there are auto, native, skb"));
        // loxilb-io/loxilb#661: refused here, never by the kernel.
        for (packets, said) in [
            ("0", "--qsize: 0 is not from 1 to 16384"),
            ("16385", "--qsize: 16385 is not from 1 to 16384"),
        ] {
            let args = AttachArgs { qsize: Some(packets.into()), ..eth0() };
            assert_eq!(asked(&args, "").unwrap_err(), said);
        }
        assert!(wrong(|a| a.qsize = Some("abc".into())).starts_with("--qsize: "));
        assert_eq!(
            wrong(|a| a.table_entries = Some("268435456".into())),
            "--table-entries: 268435456 is not from 8 to 16777216"
        );
        for name in ["", "..", "a/b", "sixteen-letters-", "a b"] {
            let args = AttachArgs { interface: Some(name.into()), ..AttachArgs::default() };
            assert_eq!(asked(&args, "").unwrap_err(), "IFACE: no interface can have that name");
        }
    }

    #[test]
    fn all_that_is_wrong_in_a_file_is_told_at_once_with_its_place() {
        let said = Asked::of_file(Path::new("x.toml"), &host(), |_| {
            Ok("mode = 'hw'\nqsize = 0\npolicy = 'rps'\nmetrics = '9477'\n".to_owned())
        });
        let Wrong(lines) = said.unwrap_err();
        assert_eq!(
            lines,
            [
                "x.toml:1:8: mode: there are auto, native, skb",
                "x.toml:2:9: qsize: 0 is not from 1 to 16384",
                "x.toml:4:11: metrics: \"9477\" is not ADDRESS:PORT, such as 127.0.0.1:9477, [::1]:9477 \
                 or :9477"
            ]
        );
        let args = AttachArgs { config: Some("x.toml".into()), ..eth0() };
        let said = asked(&args, "mode = 'skb'\ncpu = '1'\n").unwrap_err();
        assert_eq!(said, "x.toml:2:1: cpu: there is no such key; did you mean cpus?");
        let gone = Asked::of_file(Path::new("x.toml"), &host(), |_| {
            Err(std::io::Error::from(std::io::ErrorKind::NotFound))
        });
        assert_eq!(gone.unwrap_err().0, ["x.toml: entity not found"]);
    }

    #[test]
    fn addresses_are_read_as_exporters_do() {
        let read = |text| address(text).map(|address| address.to_string()).unwrap_or_default();
        assert_eq!(read("127.0.0.1:9477"), "127.0.0.1:9477");
        assert_eq!(read("[::1]:9477"), "[::1]:9477");
        assert_eq!(read("localhost:80"), "127.0.0.1:80");
        let all = address(":9100").unwrap();
        assert!(all.ip().is_unspecified() && all.port() == 9100, "{all}");
        for text in ["", "9100", ":", ":x", ":65536", "127.0.0.1", "eth0:9100", "::1:9100x"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
