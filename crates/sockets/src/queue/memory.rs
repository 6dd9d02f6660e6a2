//! Memory that all sockets of a namespace may hold together (`udp_mem`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in a page, the unit of the account.
pub const PAGE_BYTES: u64 = 4096;

/// An account of pages. Sockets draw whole pages as they need them and give back what they hold in
/// excess when their queue has run empty.
///
/// Linux has two softer limits below this hard one, which change how sockets over TCP behave and
/// how many pages a socket may draw under pressure; here there is the hard one only.
#[derive(Debug)]
pub struct MemoryAccount {
    drawn: AtomicU64,
    limit: AtomicU64,
}

impl MemoryAccount {
    /// Creates an account without limit.
    pub const fn unlimited() -> Self {
        Self::with_limit(u64::MAX)
    }

    /// Creates an account of so many pages.
    pub const fn with_limit(pages: u64) -> Self {
        Self { drawn: AtomicU64::new(0), limit: AtomicU64::new(pages) }
    }

    /// Returns the pages that sockets hold.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Changes the limit. Pages already drawn stay drawn.
    pub fn set_limit(&self, pages: u64) {
        self.limit.store(pages, Ordering::Relaxed);
    }

    /// Draws pages, all or none.
    pub(super) fn draw(&self, pages: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        // Relaxed: the count is the only thing that is shared.
        self.drawn
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |drawn| {
                drawn.checked_add(pages).filter(|drawn| *drawn <= limit)
            })
            .is_ok()
    }

    pub(super) fn give_back(&self, pages: u64) {
        self.drawn.fetch_sub(pages, Ordering::Relaxed);
    }
}

impl Default for MemoryAccount {
    fn default() -> Self {
        Self::unlimited()
    }
}
