//! The version of each port, by which a look-up knows that nothing moved while it read.
//!
//! A writer publishes what is new, raises the version, and takes away what is old. If a reader saw
//! neither the new (it read before it was there) nor the old (it read after it was gone), then the
//! version went up between its first and its last load, and it reads again.
//!
//! Always true: a reader that returns saw everything that was published when it began, in its old
//! place or its new one; it reads again only after a writer got further, so one of the two always
//! does (lock-free), but no number of times is the most (not wait-free).

use super::sync::{AtomicU32, Ordering, fence};

/// Versions that are kept; two ports that share one only make a look-up start again in vain.
const VERSIONS: usize = if cfg!(loom) { 1 } else { 4096 };

/// The versions of all ports.
#[derive(Debug)]
pub(super) struct Versions {
    versions: Box<[AtomicU32]>,
}

impl Versions {
    pub(super) fn new() -> Self {
        Self { versions: std::iter::repeat_with(AtomicU32::default).take(VERSIONS).collect() }
    }

    /// Tells readers that what was published before this is in its new place.
    pub(super) fn raise(&self, port: u16) {
        self.versions[usize::from(port) % VERSIONS].fetch_add(1, Ordering::AcqRel);
    }

    /// Begins to read what is published of a port.
    #[inline]
    pub(super) fn begin(&self, port: u16) -> Reading<'_> {
        let version = &self.versions[usize::from(port) % VERSIONS];
        Reading { version, before: version.load(Ordering::Acquire) }
    }

    /// Reads until nothing moved meanwhile. `read` loads what writers publish with Acquire, or
    /// stronger.
    #[inline]
    pub(super) fn read<T>(&self, port: u16, mut read: impl FnMut() -> T) -> T {
        loop {
            let reading = self.begin(port);
            let read = read();
            if reading.holds() {
                return read;
            }
        }
    }
}

/// A port that is being read.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    version: &'a AtomicU32,
    before: u32,
}

impl Reading<'_> {
    /// Returns whether nothing moved since the beginning, so that what was read is all there was.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == self.before
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;

    #[test]
    fn what_moves_is_seen_in_its_old_place_or_in_its_new_one() {
        loom::model(|| {
            let places = Arc::new((AtomicBool::new(true), AtomicBool::new(false)));
            let versions = Arc::new(Versions::new());
            let reader = {
                let (places, versions) = (Arc::clone(&places), Arc::clone(&versions));
                thread::spawn(move || {
                    versions.read(53, || {
                        // The new place first, as look-ups go from the address to the wildcard.
                        let new = places.1.load(Ordering::Acquire);
                        new || places.0.load(Ordering::Acquire)
                    })
                })
            };
            places.1.store(true, Ordering::Release);
            versions.raise(53);
            places.0.store(false, Ordering::Release);
            // And back again.
            places.0.store(true, Ordering::Release);
            versions.raise(53);
            places.1.store(false, Ordering::Release);
            assert!(reader.join().unwrap(), "seen in neither place");
        });
    }
}
