//! Where threads run, and the CPU time that they used.
//!
//! Times are what the scheduler charged, to the nanosecond; the part of it in user mode is a
//! share by ticks. Work that the kernel did in interrupts is charged to whoever was interrupted,
//! unless the kernel accounts for it apart ([`crate::softirq_now`] tells what it knows of it).
//!
//! Source: sched_setaffinity(2), clock_gettime(2), getrusage(2); Documentation/scheduler/
//! sched-stats.rst, `/proc/PID/schedstat`.

use std::fs;
use std::io;
use std::time::Duration;

use nix::sched::{CpuSet as Affinity, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rxsteer_core::{CpuId, CpuSet};

/// Returns the CPUs on which the calling thread may run.
///
/// # Errors
/// What the kernel said.
pub fn allowed_cpus() -> io::Result<CpuSet> {
    let affinity = sched_getaffinity(Pid::from_raw(0))?;
    let mut set = CpuSet::EMPTY;
    for cpu in 0..Affinity::count() {
        if affinity.is_set(cpu)? {
            set.insert(CpuId(cpu as u16));
        }
    }
    Ok(set)
}

/// Binds the calling thread, and those that it starts, to one CPU.
///
/// # Errors
/// If there is no such CPU, it is offline, or this process may not use it.
pub fn pin_thread(cpu: CpuId) -> io::Result<()> {
    let mut affinity = Affinity::new();
    affinity.set(usize::from(cpu.0))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &affinity)?)
}

/// Returns the CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    // The clock is always there; without an answer, no time has passed.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Returns the CPU time that all living threads of a process have used.
///
/// # Errors
/// If there is no such process, or the kernel has no scheduler statistics.
pub fn process_cpu_time(pid: u32) -> io::Result<Duration> {
    let mut total = Duration::ZERO;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between being listed and being read.
        let Ok(text) = fs::read_to_string(entry?.path().join("schedstat")) else { continue };
        let ns = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        let ns = ns.ok_or_else(|| io::Error::other("schedstat does not begin with a number"))?;
        total += Duration::from_nanos(ns);
    }
    Ok(total)
}

/// What this process has used, all its threads together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Busy {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Times a thread waited for something.
    pub voluntary_switches: u64,
    /// Times a thread was made to wait.
    pub forced_switches: u64,
}

impl Busy {
    /// Returns what this process has used up to now.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn now() -> io::Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        Ok(Self {
            user: duration(usage.user_time()),
            system: duration(usage.system_time()),
            voluntary_switches: usage.voluntary_context_switches().try_into().unwrap_or(0),
            forced_switches: usage.involuntary_context_switches().try_into().unwrap_or(0),
        })
    }

    /// Returns what was used since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            forced_switches: self.forced_switches.saturating_sub(earlier.forced_switches),
        }
    }

    /// Returns user and kernel time together.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }
}

fn duration(time: TimeVal) -> Duration {
    let us = time.tv_sec() * 1_000_000 + time.tv_usec();
    Duration::from_micros(us.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_pinned_thread_may_run_on_one_cpu() {
        let allowed = allowed_cpus().unwrap();
        let last = allowed.last().unwrap();
        std::thread::spawn(move || {
            pin_thread(last).unwrap();
            let now = allowed_cpus().unwrap();
            assert_eq!(now.iter().collect::<Vec<_>>(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus().unwrap(), allowed);
        assert!(pin_thread(CpuId(1023)).is_err());
    }

    #[test]
    fn work_is_charged_to_the_thread_and_to_its_process() {
        let (thread, process) = (thread_cpu_time(), process_cpu_time(std::process::id()).unwrap());
        let usage = Busy::now().unwrap();
        let start = Instant::now();
        // The clock of the thread itself says when enough was done, so nothing is timed here.
        while thread_cpu_time() - thread < Duration::from_millis(30) {
            std::hint::black_box(start.elapsed());
        }
        let worked = process_cpu_time(std::process::id()).unwrap() - process;
        assert!(worked >= Duration::from_millis(20), "{worked:?}");
        let used = Busy::now().unwrap().since(&usage);
        assert!(used.total() >= Duration::from_millis(20), "{used:?}");
    }
}
