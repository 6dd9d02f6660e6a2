//! Telling the service manager: ready, reloading, alive, ending, and a line of what happens.
//!
//! Does nothing where none listens. Source: sd_notify(3), systemd.service(5) "Type=notify".

use std::time::Duration;

use sd_notify::NotifyState;

/// What is told to the service manager that started this process, if one did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notifier {
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Looks for the watchdog that the manager keeps.
    pub(super) fn new() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled() }
    }

    /// Returns how long the manager waits for a sign of life.
    pub(super) fn watchdog(self) -> Option<Duration> {
        self.watchdog
    }

    /// The interface is attached, or the settings are read again.
    pub(super) fn ready(self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The settings are being read again.
    pub(super) fn reloading(self) {
        // `Type=notify-reload` wants to know since when.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    /// This process ends of its own accord.
    pub(super) fn stopping(self) {
        tell(&[NotifyState::Stopping]);
    }

    /// The loop goes round.
    pub(super) fn alive(self) {
        if self.watchdog.is_some() {
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// What happens, in a line.
    pub(super) fn status(self, line: &str) {
        tell(&[NotifyState::Status(line)]);
    }
}

fn tell(state: &[NotifyState<'_>]) {
    // A manager that does not listen is not this process's concern.
    let _ = sd_notify::notify(state);
}
