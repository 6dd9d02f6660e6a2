//! The answers of sockets that are not connected, on the ports that were declared for flows.
//!
//! Each generation has a program of its own on the way out, and so has each of two processes while one
//! takes over from the other: what both record is the same.
//!
//! Elsewhere: the program (`rxsteer-ebpf`), what is counted of answers ([`rxsteer_ebpf::answer`]).

use std::os::fd::OwnedFd;

use aya::programs::{SchedClassifier, TcAttachType};
use rxsteer_core::PortSet;
use rxsteer_ebpf::{answer, map, program};

use super::check::Weight;
use super::generation::{MapFds, Programs};
use super::maps::in_map;
use super::own::is_at_least;
use super::{AttachError, Settings};
use crate::link;

/// The first version of Linux on which several programs may see what an interface sends, each held by its
/// process.
const NEEDS: (u32, u32) = (6, 6);

/// Hears answers from now on, if the settings want it; the link holds the program.
pub(super) fn hear(
    programs: &mut Programs,
    fds: &MapFds,
    settings: &Settings,
    interface: u32,
) -> Result<Option<OwnedFd>, AttachError> {
    if !settings.hears_answers() {
        return Ok(None);
    }
    for (place, word) in words(&settings.flow_ports) {
        fds.set(map::FLOW_PORTS, place, word)?;
    }
    let program = programs.fd(program::OUT).map_err(in_map(program::OUT))?;
    let attached = link::attach_out(&program, interface);
    let interface = || settings.interface.clone();
    attached.map(Some).map_err(|said| AttachError::Answers { interface: interface(), said })
}

/// Returns the words of the map of declared ports that are not 0, with their places.
fn words(ports: &PortSet) -> impl Iterator<Item = (u32, u64)> + '_ {
    (0..answer::PORT_WORDS).filter_map(|place| {
        let bit = |bit: u32| u64::from(ports.contains((place * 64 + bit) as u16)) << bit;
        let word = (0..64).map(bit).sum();
        (word != 0).then_some((place, word))
    })
}

/// Returns the ports of which a map says that they were declared; `word` returns a word of it.
pub(super) fn declared<E>(mut word: impl FnMut(u32) -> Result<u64, E>) -> Result<PortSet, E> {
    let mut ports = PortSet::EMPTY;
    for place in 0..answer::PORT_WORDS {
        let word = word(place)?;
        let first = (place * 64) as u16;
        for port in (0..64).filter(|bit| word >> bit & 1 != 0).map(|bit| first + bit) {
            // A map of more ranges than a set can have was written by another version.
            let _ = ports.insert(port, port);
        }
    }
    Ok(ports)
}

/// Says whether answers can be heard on this kernel, and who else sees what the interface sends.
pub(super) fn check(settings: &Settings, release: &str) -> Option<(Weight, String)> {
    if settings.flow_ports.is_empty() {
        return None;
    }
    if !settings.hears_answers() {
        let text = format!("under --policy {} no port carries flows", settings.policy.name());
        return Some((Weight::Note, text));
    }
    if !release.is_empty() && !is_at_least(release, NEEDS) {
        let text = format!(
            "Linux {release} is too old for --flow-ports: 6.6 is the first on which a program can see \
             what an interface sends (TCX) and is gone with its process"
        );
        return Some((Weight::Blocks, text));
    }
    let others = SchedClassifier::query_tcx(&settings.interface, TcAttachType::Egress);
    let others = match others {
        Ok((_, programs)) if !programs.is_empty() => {
            let names = programs.iter().map(|program| match program.name_as_str() {
                Some(name) if !name.is_empty() => name.to_owned(),
                _ => "one without a name".to_owned(),
            });
            let names = names.collect::<Vec<_>>().join(", ");
            format!("; ahead of {names}, which see all packets as before")
        }
        _ => String::new(),
    };
    let text = format!(
        "answers from UDP ports {} are looked at on their way out{others}",
        settings.flow_ports
    );
    Some((Weight::Fine, text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use rxsteer_core::CpuSet;

    use super::*;
    use crate::LivePolicy;

    #[test]
    fn ports_are_in_the_map_as_they_were_declared() {
        for text in ["443,4433,10000-10100", "1-65535", "63-64,65535", "none"] {
            let ports: PortSet = text.parse().unwrap();
            let map: BTreeMap<u32, u64> = words(&ports).collect();
            let bits: u32 = map.values().map(|word| word.count_ones()).sum();
            let expected: u32 =
                ports.ranges().map(|(from, to)| u32::from(to) - u32::from(from) + 1).sum();
            assert_eq!(bits, expected, "{text}");
            let read = declared(|place| Ok::<_, Infallible>(map.get(&place).copied().unwrap_or(0)));
            assert_eq!(read, Ok(ports), "{text}");
        }
    }

    #[test]
    fn a_kernel_without_tcx_is_refused_beforehand_and_only_if_ports_are_declared() {
        let settings = Settings::new("no-such-device", CpuSet::EMPTY);
        assert_eq!(check(&settings, "5.15.0"), None);
        let flow_ports = "443".parse().unwrap();
        let settings = Settings { flow_ports, ..settings };
        let (weight, text) = check(&settings, "6.5.0-14-generic").unwrap();
        assert_eq!(weight, Weight::Blocks);
        assert!(text.starts_with("Linux 6.5.0-14-generic is too old for --flow-ports"), "{text}");
        let (weight, text) = check(&settings, "6.6.0").unwrap();
        assert_eq!(weight, Weight::Fine);
        assert_eq!(text, "answers from UDP ports 443 are looked at on their way out");
        let settings = Settings { policy: LivePolicy::Rps, ..settings };
        assert_eq!(check(&settings, "5.15.0").unwrap().0, Weight::Note);
    }
}
