//! What this process may do, as the kernel says it.
//!
//! Source: capabilities(7); `CapEff` in proc_pid_status(5).

use std::fmt;

/// A capability that loading or running the programs needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Capability {
    /// Network administration: XDP programs and their test run.
    NetAdmin,
    /// Performance monitoring: pointer arithmetic in programs, and reading their listing.
    Perfmon,
    /// Creating maps and loading programs.
    Bpf,
}

impl Capability {
    const ALL: [Self; 3] = [Self::NetAdmin, Self::Perfmon, Self::Bpf];

    /// Bit in the kernel's capability word.
    const fn bit(self) -> u32 {
        match self {
            Self::NetAdmin => 12,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        })
    }
}

/// Returns which of the needed capabilities this process lacks; empty if it may load programs.
///
/// A `/proc` that cannot be read counts as none at hand.
pub fn missing_capabilities() -> Vec<Capability> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    missing_in(&status)
}

fn missing_in(status: &str) -> Vec<Capability> {
    const CAP_SYS_ADMIN: u32 = 21;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|word| u64::from_str_radix(word.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    // CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON, from before the kernel had them (5.8).
    let granted = |capability: Capability| {
        has(capability.bit()) || (capability != Capability::NetAdmin && has(CAP_SYS_ADMIN))
    };
    Capability::ALL.into_iter().filter(|capability| !granted(*capability)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_lacks_nothing_and_a_plain_user_lacks_all() {
        assert_eq!(missing_in("Name:\tx\nCapEff:\t000001ffffffffff\n"), []);
        assert_eq!(missing_in("CapEff:\t0000000000000000\n"), Capability::ALL);
        assert_eq!(missing_in(""), Capability::ALL);
    }

    #[test]
    fn sys_admin_stands_for_the_two_younger_ones_only() {
        assert_eq!(missing_in("CapEff:\t0000000000200000\n"), [Capability::NetAdmin]);
    }

    #[test]
    fn bpf_alone_is_not_enough() {
        let missing = missing_in("CapEff:\t0000008000000000\n");
        assert_eq!(missing, [Capability::NetAdmin, Capability::Perfmon]);
        assert_eq!(missing[1].to_string(), "CAP_PERFMON");
    }
}
