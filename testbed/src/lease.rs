//! Names that say whose they are: `rxs-<pid>-<start time>-<pid namespace>-<number>`.
//!
//! A process that is killed removes nothing. The next one reads the lease in each name: if no
//! process with this id and this start time lives, the owner is gone and the thing may be removed.
//! A process id alone would not do, since ids come again; the start time tells them apart. An owner
//! in another pid namespace cannot be seen from here, so it is taken to be alive.
//!
//! Always true: a name that does not parse is nobody's of ours.
//! Source: proc_pid_stat(5), field 22 (`starttime`); pid_namespaces(7).

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

/// What each of our names begins with.
const PREFIX: &str = "rxs";

/// Numbers of the leases of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A process, told from a later one of the same id.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Owner {
    /// Process id, as seen in its pid namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Inode of its pid namespace.
    pub pid_namespace: u64,
}

impl Owner {
    /// Returns this process.
    ///
    /// # Errors
    /// If `/proc` is not there or cannot be read.
    pub fn this_process() -> io::Result<Self> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid)?.ok_or_else(|| {
            io::Error::other("/proc/self/stat does not tell when this process started")
        })?;
        Ok(Self { pid, start_ticks, pid_namespace: pid_namespace()? })
    }

    /// Returns whether this process is known to have ended.
    ///
    /// `false` for an owner in another pid namespace, which cannot be seen from here, and where the
    /// kernel does not say, such as to a process that may open no more files.
    pub fn is_gone(&self) -> bool {
        match pid_namespace() {
            Ok(ours) if ours == self.pid_namespace => {
                start_ticks(self.pid).is_ok_and(|ticks| ticks != Some(self.start_ticks))
            }
            _ => false,
        }
    }
}

/// The name of a thing that belongs to a process.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lease {
    /// Whose it is.
    pub owner: Owner,
    /// Counts the things of this owner.
    pub number: u32,
}

impl Lease {
    /// Returns a lease of this process that it has not given before.
    ///
    /// # Errors
    /// Those of [`Owner::this_process`].
    pub fn next() -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { owner: Owner::this_process()?, number })
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { pid, start_ticks, pid_namespace } = self.owner;
        write!(f, "{PREFIX}-{pid}-{start_ticks}-{pid_namespace}-{}", self.number)
    }
}

/// A name that is not one of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotOurs;

impl FromStr for Lease {
    type Err = NotOurs;

    fn from_str(name: &str) -> Result<Self, NotOurs> {
        let mut words = name.split('-');
        if words.next() != Some(PREFIX) {
            return Err(NotOurs);
        }
        let lease = Self {
            owner: Owner {
                pid: number(words.next())?,
                start_ticks: number(words.next())?,
                pid_namespace: number(words.next())?,
            },
            number: number(words.next())?,
        };
        // What is written otherwise, such as with a sign or zeros before it, we did not write.
        if words.next().is_none() && lease.to_string() == name { Ok(lease) } else { Err(NotOurs) }
    }
}

fn number<T: FromStr>(word: Option<&str>) -> Result<T, NotOurs> {
    word.and_then(|word| word.parse().ok()).ok_or(NotOurs)
}

/// Returns when a process started; `None` if there is none of this id.
fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(start_ticks_in(&stat)),
        // It may end between being opened and being read.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

fn start_ticks_in(stat: &str) -> Option<u64> {
    // The second field is the name in parentheses, which may hold spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    // A dead process that nobody waited for yet holds nothing any more.
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // Field 22 of all; the state, just taken, is field 3.
    fields.nth(18)?.parse().ok()
}

fn pid_namespace() -> io::Result<u64> {
    let link = fs::read_link("/proc/self/ns/pid")?;
    let text = link.to_string_lossy();
    let inode = text.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']'));
    inode
        .and_then(|inode| inode.parse().ok())
        .ok_or_else(|| io::Error::other(format!("/proc/self/ns/pid is {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let lease = Lease {
            owner: Owner { pid: 7, start_ticks: 123_456, pid_namespace: 4_026_531_836 },
            number: 2,
        };
        assert_eq!(lease.to_string(), "rxs-7-123456-4026531836-2");
        assert_eq!(lease.to_string().parse(), Ok(lease));
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for name in [
            "",
            "rxs",
            "rxs-",
            "eth0",
            "rxs-1-2-3",
            "rxs-1-2-3-4-5",
            "rxs-1-2-3-x",
            "rxs-+1-2-3-4",
            "rxs-01-2-3-4",
            "rxsteer-1-2-3-4",
            "rxs-99999999999-2-3-4",
            "rxs-1-2-3-4 ",
        ] {
            assert_eq!(name.parse::<Lease>(), Err(NotOurs), "{name}");
        }
    }

    #[test]
    fn the_start_is_read_behind_a_name_with_parentheses() {
        let fields: Vec<String> = (4..=52).map(|n| (n * 10).to_string()).collect();
        let stat = format!("42 (a) (b 1) S {}", fields.join(" "));
        assert_eq!(start_ticks_in(&stat), Some(220));
        assert_eq!(start_ticks_in(&stat.replace(" S ", " Z ")), None);
        assert_eq!(start_ticks_in("42 (a"), None);
    }

    #[test]
    fn this_process_lives_and_its_successor_of_the_same_id_is_another() {
        let owner = Owner::this_process().unwrap();
        assert!(!owner.is_gone());
        assert!(Owner { start_ticks: owner.start_ticks + 1, ..owner }.is_gone());
        assert!(!Owner { pid_namespace: 1, pid: u32::MAX, ..owner }.is_gone());
        let first = Lease::next().unwrap();
        assert_ne!(first, Lease::next().unwrap());
    }

    #[test]
    fn a_process_that_ended_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start_ticks = start_ticks(child.id()).unwrap().unwrap();
        let owner = Owner { pid: child.id(), start_ticks, ..Owner::this_process().unwrap() };
        assert!(!owner.is_gone());
        child.kill().unwrap();
        // Also before anybody has waited for it, it holds nothing.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while !owner.is_gone() {
            assert!(std::time::Instant::now() < deadline, "a killed process counts as alive");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(owner.is_gone());
    }
}
