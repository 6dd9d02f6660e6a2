//! Whose rules: Linux as it is or was, or Linux without what its own data show to be faults.

use std::fmt;
use std::str::FromStr;

/// Whose rules a namespace follows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Profile {
    /// As Linux 6.18 does it, faults included: for predicting a kernel.
    Linux,
    /// As that release of Linux does it, as far as the rules of the look-up changed: see
    /// [`KernelRules`].
    LinuxOf(KernelRelease),
    /// Linux without its faults (see `docs/sockets.md` for each): for stacks of one's own.
    #[default]
    Rxsteer,
    /// As [`Rxsteer`](Self::Rxsteer), but with these faults of Linux.
    Keeping(Faults),
}

impl Profile {
    /// Returns the traits in which the profiles differ.
    pub(crate) fn quirks(self) -> Quirks {
        let (faults, rules) = match self {
            Self::Linux => (Faults::ALL, KernelRules::NEWEST),
            Self::LinuxOf(release) => (Faults::ALL, KernelRules::of(release)),
            Self::Rxsteer => (Faults::NONE, KernelRules::NEWEST),
            Self::Keeping(faults) => (faults, KernelRules::NEWEST),
        };
        Quirks {
            early_demux: faults.early_demux,
            stale_hash4: faults.stale_hash4,
            stale_remote6: faults.stale_remote6,
            placeholder4: faults.placeholder4,
            port_stage: faults.placeholder4 && rules.three_tables,
            left_group: faults.left_group,
            three_tables: rules.three_tables,
            group_asks_cpu: rules.group_asks_cpu,
            by_group: !rules.connected_beats_group,
        }
    }
}

/// Traits of Linux that the data of its own behaviour show to be faults. `true`: as Linux.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Faults {
    /// Packets from a device try a shortcut before the look-up.
    pub early_demux: bool,
    /// A socket that reconnects stays filed under its first 4-tuple.
    pub stale_hash4: bool,
    /// Disconnecting leaves the remote IPv6 address.
    pub stale_remote6: bool,
    /// A connected IPv6 socket answers for 127.0.0.6.
    pub placeholder4: bool,
    /// A socket that left its reuseport group does not come back.
    pub left_group: bool,
}

impl Faults {
    /// No fault.
    pub const NONE: Self = Self {
        early_demux: false,
        stale_hash4: false,
        stale_remote6: false,
        placeholder4: false,
        left_group: false,
    };

    /// All of them.
    pub const ALL: Self = Self {
        early_demux: true,
        stale_hash4: true,
        stale_remote6: true,
        placeholder4: true,
        left_group: true,
    };

    /// Returns the names of those that are there, as in `docs/sockets.md`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("early_demux", self.early_demux),
            ("stale_hash4", self.stale_hash4),
            ("stale_remote6", self.stale_remote6),
            ("placeholder4", self.placeholder4),
            ("left_group", self.left_group),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(name, _)| name)
    }
}

/// A release of Linux: major, minor, patch.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KernelRelease(pub u16, pub u16, pub u16);

impl KernelRelease {
    /// Returns the last release before this one; that before 6.0 is the last of all of 5.
    pub const fn before(self) -> Self {
        match self {
            Self(major, minor, patch) if patch > 0 => Self(major, minor, patch - 1),
            Self(major, minor, _) if minor > 0 => Self(major, minor - 1, u16::MAX),
            Self(major, ..) => Self(major.saturating_sub(1), u16::MAX, u16::MAX),
        }
    }
}

/// A text is no release of Linux, such as `6.18` or `5.2.17`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadKernelRelease;

impl fmt::Display for BadKernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a release of Linux, such as 6.18 or 5.2.17")
    }
}

impl std::error::Error for BadKernelRelease {}

impl FromStr for KernelRelease {
    type Err = BadKernelRelease;

    /// Reads `6.18`, `5.2.17` or `6.18.44-anything`.
    fn from_str(text: &str) -> Result<Self, BadKernelRelease> {
        let numbers = text.trim().split_once('-').map_or(text.trim(), |(numbers, _)| numbers);
        let mut parts = numbers.split('.');
        let mut number = || parts.next().map(|part| part.parse().map_err(|_| BadKernelRelease));
        let major = number().ok_or(BadKernelRelease)??;
        let minor = number().ok_or(BadKernelRelease)??;
        let patch = number().unwrap_or(Ok(0))?;
        if parts.next().is_some() { Err(BadKernelRelease) } else { Ok(Self(major, minor, patch)) }
    }
}

/// In what the look-ups of Linux's releases differ. Releases are those of the main line: older
/// stable branches got some of it later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelRules {
    /// Connected sockets are found by 4-tuple, and leave their group when they are filed there
    /// (since 6.13). Before, they are candidates, and members that a group does not pick.
    pub three_tables: bool,
    /// Groups heed `SO_INCOMING_CPU` (since 6.2).
    pub group_asks_cpu: bool,
    /// A group picks no connected member, and is no end of the scan once one connected (since
    /// 5.2.17). Before, any member met hands the packet to the group, and the hash picks among all of
    /// them: packets of a connected member reach its siblings.
    pub connected_beats_group: bool,
}

impl KernelRules {
    const NEWEST: Self =
        Self { three_tables: true, group_asks_cpu: true, connected_beats_group: true };

    /// Returns the rules of a release.
    pub fn of(release: KernelRelease) -> Self {
        Self {
            three_tables: release >= KernelRelease(6, 13, 0),
            group_asks_cpu: release >= KernelRelease(6, 2, 0),
            // 5.3 had come out before the fix was in a stable release.
            connected_beats_group: release >= KernelRelease(5, 2, 17)
                && release != KernelRelease(5, 3, 0),
        }
    }
}

/// Rules that differ from profile to profile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Quirks {
    pub(crate) early_demux: bool,
    pub(crate) stale_hash4: bool,
    pub(crate) stale_remote6: bool,
    pub(crate) placeholder4: bool,
    /// The last resort of a look-up is by port alone, which finds the stand-in address.
    pub(crate) port_stage: bool,
    pub(crate) left_group: bool,
    pub(crate) three_tables: bool,
    pub(crate) group_asks_cpu: bool,
    /// Groups pick among connected members too, and their pick is always final.
    pub(crate) by_group: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_and_ordered() {
        for (text, release) in [
            ("6.18", Ok(KernelRelease(6, 18, 0))),
            (" 5.2.17\n", Ok(KernelRelease(5, 2, 17))),
            ("6.18.44-fc-v595", Ok(KernelRelease(6, 18, 44))),
            ("6", Err(BadKernelRelease)),
            ("", Err(BadKernelRelease)),
            ("6.x", Err(BadKernelRelease)),
            ("6.1.70000", Err(BadKernelRelease)),
            ("6.1.2.3", Err(BadKernelRelease)),
            ("-6.1", Err(BadKernelRelease)),
        ] {
            assert_eq!(text.parse(), release, "{text:?}");
        }
        assert_eq!(KernelRelease(5, 2, 17).before(), KernelRelease(5, 2, 16));
        for next in [KernelRelease(5, 3, 0), KernelRelease(6, 0, 0), KernelRelease(6, 13, 0)] {
            assert!(next.before() < next && next.before() > KernelRelease(5, 2, 99), "{next:?}");
        }
        assert_eq!(KernelRelease(0, 0, 0).before().0, 0, "nothing is before the first");
    }

    #[test]
    fn rules_change_with_the_release_that_history_names() {
        let rules = |text: &str| {
            let rules = KernelRules::of(text.parse().unwrap());
            (rules.connected_beats_group, rules.group_asks_cpu, rules.three_tables)
        };
        assert_eq!(rules("5.2.16"), (false, false, false));
        assert_eq!(rules("5.2.17"), (true, false, false));
        assert_eq!(rules("6.1.99"), (true, false, false));
        assert_eq!(rules("6.2"), (true, true, false));
        assert_eq!(rules("6.12"), (true, true, false));
        assert_eq!(rules("6.13"), (true, true, true));
        assert_eq!(Profile::LinuxOf(KernelRelease(6, 18, 0)).quirks(), Profile::Linux.quirks());
        assert_eq!(Profile::Keeping(Faults::ALL).quirks(), Profile::Linux.quirks());
        assert_eq!(Profile::Keeping(Faults::NONE).quirks(), Profile::Rxsteer.quirks());
        assert_eq!(Faults::ALL.names().count(), 5);
        assert_eq!(Faults::NONE.names().count(), 0);
    }
}
