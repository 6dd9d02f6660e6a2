//! Ctrl-C in a long replay: the first asks for the result so far, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that is set by the first interrupt.
///
/// Where the signal cannot be taken, the flag stays as it is and an interrupt ends the program.
pub(crate) fn watch() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    {
        use signal_hook::consts::SIGINT;
        use signal_hook::flag::{register, register_conditional_shutdown};
        // In this order: the second one looks whether the first one was there before.
        let shutdown = register_conditional_shutdown(SIGINT, 130, Arc::clone(&flag));
        if shutdown.is_ok() {
            let _ = register(SIGINT, Arc::clone(&flag));
        }
    }
    flag
}
