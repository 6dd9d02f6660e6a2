//! The kernel's own steering of an interface, beside which ours works: RPS, RFS, threaded NAPI, flow
//! limit, merging; and whether they fight.
//!
//! A packet that we move comes out of a CPUMAP, which keeps no number of its receive queue; so for
//! the kernel it is one of queue 0, and of RPS and RFS only the settings of rx-0 act on it.
//!
//! Source: Documentation/networking/scaling.rst, napi.rst; Documentation/ABI/testing/sysfs-class-net
//! and sysfs-class-net-queues; merging in a CPUMAP: Linux 6.15.

use std::fs;
use std::path::Path;

use rxsteer_core::{CpuId, CpuSet};

use super::LivePolicy;
use super::check::{Finding, Weight};
use super::interface::index_of;
use super::peer::offloads_of;

/// What the kernel is set to do with the packets of an interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KernelSteering {
    /// Whether `/sys` shows this interface; else what stands there is not known.
    pub is_visible: bool,
    /// CPUs of the RPS mask of each receive queue.
    pub rps: Vec<CpuSet>,
    /// Entries of the RFS table of each receive queue.
    pub rfs_queue_entries: Vec<u32>,
    /// Entries of the RFS table of all.
    pub rfs_entries: u32,
    /// CPUs of the XPS mask of each transmit queue; it is about packets that are sent.
    pub xps: Vec<CpuSet>,
    /// Whether polls run in threads of their own.
    pub threaded: Option<bool>,
    /// CPUs with a flow limit on their backlog.
    pub flow_limit: CpuSet,
    /// Packets that a backlog may hold.
    pub backlog_packets: Option<u32>,
    /// Names of the offloads that the interface has on, as ethtool calls them.
    pub offloads: Vec<String>,
    /// Version of the kernel, such as `6.12.9-amd64`.
    pub release: String,
}

impl KernelSteering {
    /// Reads the settings of an interface of the namespace of the calling thread.
    ///
    /// What cannot be read counts as off.
    pub fn of(interface: &str) -> Self {
        let class = Path::new("/sys/class/net").join(interface);
        let mut found = Self::below(&class, Path::new("/proc/sys/net/core"));
        found.release = text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        found.offloads = offloads_of(interface).unwrap_or_default();
        // A mount of /sys shows the interfaces of the namespace where it was mounted.
        let index = number(&class.join("ifindex"));
        if index.is_none() || index != index_of(interface) {
            Self {
                is_visible: false,
                rps: Vec::new(),
                rfs_queue_entries: Vec::new(),
                xps: Vec::new(),
                threaded: None,
                ..found
            }
        } else {
            found
        }
    }

    fn below(class: &Path, core: &Path) -> Self {
        let queues = class.join("queues");
        let mask = |path: &Path| {
            let text = text(path).unwrap_or_default();
            CpuSet::from_mask(&text, u32::from(CpuId::LIMIT)).unwrap_or(CpuSet::EMPTY)
        };
        let each = |kind: &str, file: &str| {
            let queue = |index: u32| queues.join(format!("{kind}-{index}")).join(file);
            (0..).map(queue).take_while(|path| path.exists()).collect::<Vec<_>>()
        };
        Self {
            is_visible: true,
            rps: each("rx", "rps_cpus").iter().map(|path| mask(path)).collect(),
            rfs_queue_entries: each("rx", "rps_flow_cnt")
                .iter()
                .map(|path| number(path).unwrap_or(0))
                .collect(),
            rfs_entries: number(&core.join("rps_sock_flow_entries")).unwrap_or(0),
            xps: each("tx", "xps_cpus").iter().map(|path| mask(path)).collect(),
            threaded: number(&class.join("threaded")).map(|on| on != 0),
            flow_limit: mask(&core.join("flow_limit_cpu_bitmap")),
            backlog_packets: number(&core.join("netdev_max_backlog")),
            offloads: Vec::new(),
            release: String::new(),
        }
    }

    /// Returns whether an offload is on, by the name that ethtool has for it.
    pub fn has(&self, offload: &str) -> bool {
        self.offloads.iter().any(|on| on == offload)
    }

    /// Returns whether the CPUMAP merges packets of a flow before the stack sees them.
    pub fn merges_in_cpumap(&self) -> bool {
        is_at_least(&self.release, (6, 15))
    }

    /// Says which of these settings act on packets that this policy has steered already, or would have
    /// been expected to and do not.
    pub fn fights(&self, policy: LivePolicy) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut say = |weight, about, text| findings.push(Finding { weight, about, text });
        if policy == LivePolicy::None {
            return findings;
        }
        if !self.is_visible {
            say(
                Weight::Note,
                "RPS, RFS",
                "/sys does not show this interface (it is not mounted, or shows another network namespace, \
                 as in some containers): whether the kernel's own steering is on cannot be seen"
                    .into(),
            );
        }
        let rps = self.rps.first().copied().unwrap_or(CpuSet::EMPTY);
        let rfs = self.rfs_entries > 0 && self.rfs_queue_entries.first().is_some_and(|n| *n > 0);
        if rfs {
            say(
                Weight::Note,
                "RFS",
                format!(
                    "RFS is on ({} entries, {} for rx-0) and fights with ours: it also follows the reader, \
                     by a table without identities, and sends a packet from the CPU that was chosen to \
                     another. Write 0 to queues/rx-0/rps_flow_cnt of this interface",
                    self.rfs_entries, self.rfs_queue_entries[0]
                ),
            );
        } else if !rps.is_empty() {
            say(
                Weight::Note,
                "RPS",
                format!(
                    "RPS is on (rx-0: CPUs {}) and fights with ours: a packet is sent once more, from the \
                     CPU that was chosen to one by its hash. Write 0 to queues/rx-0/rps_cpus of this \
                     interface",
                    rps.list()
                ),
            );
        }
        if rps.is_empty() && self.rps.iter().skip(1).any(|mask| !mask.is_empty()) {
            say(
                Weight::Fine,
                "RPS",
                "RPS is on for other queues than rx-0: it does nothing to packets that are steered, which \
                 all count as of rx-0"
                    .into(),
            );
        }
        if self.rfs_entries > 0 && !rfs && self.is_visible {
            let text = format!(
                "rps_sock_flow_entries is {}; without rps_flow_cnt of rx-0 it does nothing here",
                self.rfs_entries
            );
            say(Weight::Fine, "RFS", text);
        }
        if self.threaded == Some(true) {
            say(
                Weight::Note,
                "threaded NAPI",
                "polls run in threads, which the scheduler moves: packets come in on changing CPUs. They do \
                 not fight: each goes to its CPU all the same"
                    .into(),
            );
        }
        if !self.flow_limit.is_empty() {
            let text = format!(
                "the flow limit of CPUs {} is about backlogs: packets that are steered do not pass them",
                self.flow_limit.list()
            );
            say(Weight::Fine, "flow limit", text);
        }
        if self.has("rx-gro") && !self.release.is_empty() && !self.merges_in_cpumap() {
            let text = format!(
                "Linux {} merges no packets that come out of a CPUMAP (6.15 and later do): streams of TCP \
                 cost more here than without steering",
                self.release
            );
            say(Weight::Note, "merging", text);
        }
        findings
    }
}

/// Returns whether a release is of this version or a later one; no release is of none.
pub(super) fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= version,
        _ => false,
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<u32> {
    text(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abouts(of: &KernelSteering) -> Vec<(Weight, &'static str)> {
        let found = of.fights(LivePolicy::FlowAware);
        found.iter().map(|finding| (finding.weight, finding.about)).collect()
    }

    fn seen() -> KernelSteering {
        KernelSteering { is_visible: true, release: "6.18.0".into(), ..KernelSteering::default() }
    }

    #[test]
    fn only_what_acts_on_queue_0_fights() {
        let one = CpuSet::from_list("1").unwrap();
        let rps = KernelSteering { rps: vec![one, CpuSet::EMPTY], ..seen() };
        assert_eq!(abouts(&rps), [(Weight::Note, "RPS")]);
        let other = KernelSteering { rps: vec![CpuSet::EMPTY, one], ..seen() };
        assert_eq!(abouts(&other), [(Weight::Fine, "RPS")]);
        // RFS acts without a mask (scaling.rst asks for both sizes only).
        let rfs =
            KernelSteering { rfs_entries: 32_768, rfs_queue_entries: vec![4096, 0], ..seen() };
        assert_eq!(abouts(&rfs), [(Weight::Note, "RFS")]);
        let table = KernelSteering { rfs_queue_entries: vec![0, 4096], ..rfs };
        assert_eq!(abouts(&table), [(Weight::Fine, "RFS")]);
        assert_eq!(abouts(&seen()), []);
        assert_eq!(table.fights(LivePolicy::None), []);
    }

    #[test]
    fn a_sysfs_of_another_namespace_is_said() {
        let hidden = KernelSteering { is_visible: false, ..seen() };
        assert_eq!(abouts(&hidden), [(Weight::Note, "RPS, RFS")]);
        assert!(!KernelSteering::of("no-such-device").is_visible);
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, is) in [
            ("6.15.0", true),
            ("6.9.12-amd64", false),
            ("6.15-rc1", true),
            ("10.0.1", true),
            ("5.15.0-91-generic", false),
            ("", false),
        ] {
            assert_eq!(is_at_least(release, (6, 15)), is, "{release}");
        }
    }

    #[test]
    fn settings_are_read_queue_by_queue() {
        let dir = std::env::temp_dir().join(format!("rxsteer-own-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (queue, mask) in [(0, "5\n"), (1, "0\n"), (10, "2\n")] {
            write(&format!("net/queues/rx-{queue}/rps_cpus"), mask);
            write(&format!("net/queues/rx-{queue}/rps_flow_cnt"), "2048\n");
        }
        write("net/threaded", "1\n");
        write("core/rps_sock_flow_entries", "4096\n");
        let found = KernelSteering::below(&dir.join("net"), &dir.join("core"));
        fs::remove_dir_all(&dir).unwrap();
        let mask = |list| CpuSet::from_list(list).unwrap();
        assert_eq!(found.rps, [mask("0,2"), CpuSet::EMPTY]);
        assert_eq!((found.rfs_queue_entries.as_slice(), found.rfs_entries), (&[2048; 2][..], 4096));
        assert_eq!((found.threaded, found.backlog_packets), (Some(true), None));
    }
}
