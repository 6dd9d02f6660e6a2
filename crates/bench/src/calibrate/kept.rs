//! Steps that keep their defaults, each with its reason.

use rxsteer_lab::host::{Costs, Host};
use serde::Serialize;

use super::Cost;

/// A step that keeps its default.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Kept {
    /// Its name in the host file.
    pub name: &'static str,
    /// The default, in ns.
    pub ns: u32,
    /// Why it was not measured.
    pub why: &'static str,
}

/// Returns all costs that are not among those measured; `hidden` ones were tried.
pub(super) fn all(measured: &[Cost], hidden: &[&'static str], two_cpus: bool) -> Vec<Kept> {
    let default = Host::simple(1, 1).expect("a host of one CPU and queue is allowed").costs;
    let is_measured = |name: &str| measured.iter().any(|cost| cost.name == name);
    named(&default)
        .into_iter()
        .filter(|(name, _)| !is_measured(name))
        .map(|(name, ns)| {
            let why = if hidden.contains(&name) { HIDDEN } else { reason(name, two_cpus) };
            Kept { name, ns, why }
        })
        .collect()
}

const HIDDEN: &str = "tried, but noise hid it";

fn reason(name: &str, two_cpus: bool) -> &'static str {
    match name {
        "gro" => {
            "a sender of one flow would have to be told apart from the merging it brings about"
        }
        "record" => "a word is written when a reader changes its CPU, and a bound reader does not",
        "work" => "of the application: each workload says its own",
        _ if !two_cpus => "there is no other CPU",
        "hop_near" | "read_near" => "the two CPUs that were measured do not share a cache",
        "hop_far" | "read_far" => "the two CPUs that were measured share a cache",
        _ => "not measured",
    }
}

/// Returns every cost of the model by its name.
fn named(costs: &Costs) -> [(&'static str, u32); 26] {
    // Without `..`, so that a new cost cannot be forgotten.
    let Costs {
        interrupt,
        take,
        hash,
        choose,
        probe,
        backlog,
        signal_send,
        signal_reach,
        signal_take,
        hop_near,
        hop_far,
        protocol_tcp,
        protocol_udp,
        protocol_other,
        gro,
        wake_local,
        wake_remote,
        idle_exit,
        switch,
        read,
        read_next,
        copy_per_kib,
        read_near,
        read_far,
        work,
        record,
    } = *costs;
    [
        ("interrupt", interrupt),
        ("take", take),
        ("hash", hash),
        ("choose", choose),
        ("probe", probe),
        ("backlog", backlog),
        ("signal_send", signal_send),
        ("signal_reach", signal_reach),
        ("signal_take", signal_take),
        ("hop_near", hop_near),
        ("hop_far", hop_far),
        ("protocol_tcp", protocol_tcp),
        ("protocol_udp", protocol_udp),
        ("protocol_other", protocol_other),
        ("gro", gro),
        ("wake_local", wake_local),
        ("wake_remote", wake_remote),
        ("idle_exit", idle_exit),
        ("switch", switch),
        ("read", read),
        ("read_next", read_next),
        ("copy_per_kib", copy_per_kib),
        ("read_near", read_near),
        ("read_far", read_far),
        ("work", work),
        ("record", record),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_is_measured_or_kept_once() {
        let measured = [Cost { name: "take", ns: 7, how: "somehow" }];
        let kept = all(&measured, &["probe"], true);
        assert_eq!(kept.len(), 25);
        assert!(kept.iter().all(|kept| kept.name != "take" && !kept.why.is_empty()));
        let of = |name: &str| kept.iter().find(|kept| kept.name == name).unwrap();
        assert_eq!((of("probe").why, of("probe").ns), (HIDDEN, Costs::default().probe));
        assert!(of("hop_far").why.contains("share a cache"));
    }

    /// The names are those of the file: each is taken, and changes the cost of that name.
    #[test]
    fn the_names_are_those_of_the_host_file() {
        for (name, ns) in named(&Costs::default()) {
            let text = format!("[costs]\n{name} = {}\n", ns + 1);
            let host = Host::from_toml("here.toml", &text).unwrap();
            let changed = named(&host.costs);
            let default = named(&Costs::default());
            let of = |all: &[(&str, u32)]| all.iter().find(|(n, _)| *n == name).unwrap().1;
            assert_eq!(of(&changed), of(&default) + 1, "{name}");
        }
    }
}
