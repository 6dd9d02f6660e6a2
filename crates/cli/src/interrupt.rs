//! Ctrl-C, a polite kill or a closed terminal: the first asks for the result so far and that what was
//! set is put back, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that is set by the first interrupt.
///
/// Where the signal cannot be taken, the flag stays as it is and an interrupt ends the program.
pub(crate) fn watch() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        use signal_hook::flag::{register, register_conditional_shutdown};
        // In this order: the second one looks whether the first one was there before.
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let code = 128 + signal;
            let shutdown = register_conditional_shutdown(signal, code, Arc::clone(&flag));
            if shutdown.is_ok() {
                let _ = register(signal, Arc::clone(&flag));
            }
        }
    }
    flag
}
