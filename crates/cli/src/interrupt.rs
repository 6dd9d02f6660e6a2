//! Ctrl-C, a polite kill or a closed terminal: the first asks for the result so far and that what was
//! set is put back, the second ends at once.
//!
//! Always true: who starts this program with SIGINT or SIGHUP ignored (`nohup`, `&` of a shell without
//! job control) has it ignored to the end.
//! Source: signal(7), "Signal dispositions"; nohup(1); proc_pid_status(5), `SigIgn`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that is set by the first interrupt.
///
/// Where the signal cannot be taken, the flag stays as it is and an interrupt ends the program.
pub(crate) fn watch() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    {
        use signal_hook::flag::{register, register_conditional_shutdown};
        // In this order: the second one looks whether the first one was there before.
        for signal in heard() {
            let code = 128 + signal;
            let shutdown = register_conditional_shutdown(signal, code, Arc::clone(&flag));
            if shutdown.is_ok() {
                let _ = register(signal, Arc::clone(&flag));
            }
        }
    }
    flag
}

/// Returns the signals that end a run, without those that it was started to ignore; to be asked before
/// any is taken.
#[cfg(unix)]
pub(crate) fn heard() -> Vec<i32> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored_in(&status);
    let is_heard = |signal: &i32| *signal == SIGTERM || ignored & (1 << (signal - 1)) == 0;
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard).collect()
}

/// Returns the mask of ignored signals, bit 0 for signal 1; none where it is not told.
#[cfg(unix)]
fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_a_process() {
        // SIGHUP is 1, SIGINT 2, SIGPIPE 13 (signal(7)).
        let status = "Name:\tx\nSigBlk:\tffff\nSigIgn:\t0000000000001003\nSigCgt:\t0\n";
        assert_eq!(ignored_in(status), 1 | 1 << 1 | 1 << 12);
        assert_eq!(ignored_in("SigIgn: x"), 0);
        assert_eq!(ignored_in(""), 0);
    }
}
