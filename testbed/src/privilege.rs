//! What this process may do, as the kernel says it.
//!
//! Source: capabilities(7); `CapEff` in proc_pid_status(5); namespaces(7) on what `setns` needs.

use std::fmt;

/// A capability that a testbed or a bench needs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Privilege {
    /// `CAP_SYS_ADMIN`: namespaces and mounts.
    SysAdmin,
    /// `CAP_NET_ADMIN`: devices, addresses, network settings.
    NetAdmin,
    /// `CAP_NET_RAW`: frames of our own making.
    NetRaw,
}

impl Privilege {
    /// What a [`crate::Testbed`] needs.
    pub const TESTBED: [Self; 3] = [Self::SysAdmin, Self::NetAdmin, Self::NetRaw];

    const fn bit(self) -> u32 {
        match self {
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
            Self::SysAdmin => 21,
        }
    }

    const fn what_for(self) -> &'static str {
        match self {
            Self::SysAdmin => "network namespaces",
            Self::NetAdmin => "network devices",
            Self::NetRaw => "packet sockets",
        }
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
        })
    }
}

/// This process lacks capabilities.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MissingPrivileges(pub Vec<Privilege>);

impl fmt::Display for MissingPrivileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this process lacks ")?;
        for (index, missing) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{missing} (for {})", missing.what_for())?;
        }
        f.write_str("; run it as root")
    }
}

impl std::error::Error for MissingPrivileges {}

/// Returns which of these capabilities this thread lacks; empty if it has all.
///
/// A `/proc` that cannot be read counts as none at hand.
pub fn missing_privileges(needed: &[Privilege]) -> Vec<Privilege> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    missing_in(&status, needed)
}

/// Says what is missing, if anything is.
pub(crate) fn require(needed: &[Privilege]) -> Result<(), MissingPrivileges> {
    let missing = missing_privileges(needed);
    if missing.is_empty() { Ok(()) } else { Err(MissingPrivileges(missing)) }
}

fn missing_in(status: &str, needed: &[Privilege]) -> Vec<Privilege> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|word| u64::from_str_radix(word.trim(), 16).ok())
        .unwrap_or(0);
    needed.iter().copied().filter(|needed| effective >> needed.bit() & 1 == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(effective: u64) -> Vec<Privilege> {
        let status = format!("Name:\tx\nCapPrm:\t{:016x}\nCapEff:\t{effective:016x}\n", u64::MAX);
        missing_in(&status, &Privilege::TESTBED)
    }

    #[test]
    fn each_missing_capability_is_named() {
        assert_eq!(missing(u64::MAX), []);
        assert_eq!(missing(1 << 21 | 1 << 13), [Privilege::NetAdmin]);
        assert_eq!(missing(0), Privilege::TESTBED);
        assert_eq!(missing_in("", &Privilege::TESTBED), Privilege::TESTBED);
    }

    #[test]
    fn the_message_says_what_each_is_for() {
        let error = MissingPrivileges(missing(1 << 12));
        assert_eq!(
            error.to_string(),
            "this process lacks CAP_SYS_ADMIN (for network namespaces), CAP_NET_RAW (for packet \
             sockets); run it as root"
        );
    }
}
