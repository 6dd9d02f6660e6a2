//! Memory that all sockets of a host may hold together (`net.ipv4.udp_mem`).
//!
//! Always true: what sockets have drawn is what they hold, rounded up to pages each; a refusal draws
//! nothing.
//! Source: spec of the receive path, "UDP receive queue and its accounting", reader, item 5; what the
//! three limits do was measured on Linux 6.18.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in a page, the unit of the account.
pub const PAGE_BYTES: u64 = 4096;

/// Limits of a [`MemoryAccount`]: `net.ipv4.udp_mem`, in pages, and `net.ipv4.udp_rmem_min`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MemoryLimits {
    /// Pages up to which every socket may draw. Above it a socket may only while it holds less than
    /// [`socket_bytes`](Self::socket_bytes), so that each has something when others hold much.
    pub min: u64,
    /// Pages from which there is pressure. Linux has this limit for UDP only because TCP has one, and
    /// refuses nothing by it; [`MemoryAccount::is_pressed`] tells those who shed load.
    pub pressure: u64,
    /// Pages above which nobody may draw.
    pub max: u64,
    /// Bytes of true size below which a socket may draw above `min`.
    pub socket_bytes: u64,
}

impl MemoryLimits {
    /// No limit.
    pub const UNLIMITED: Self = Self::hard(u64::MAX);

    /// So many pages, for all sockets alike.
    pub const fn hard(pages: u64) -> Self {
        Self { min: pages, pressure: pages, max: pages, socket_bytes: PAGE_BYTES }
    }

    /// The limits that Linux computes at boot for a host with so many free pages: an eighth of them
    /// is `pressure`, three quarters of that are `min`, twice that is `max`.
    pub const fn of_free_pages(pages: u64) -> Self {
        let eighth = pages / 8;
        let pressure = if eighth < 128 { 128 } else { eighth };
        let min = pressure / 4 * 3;
        Self { min, pressure, max: min * 2, socket_bytes: PAGE_BYTES }
    }
}

/// An account of pages. Sockets draw whole pages as they need them and give back what they hold in
/// excess when their queue has run empty.
///
/// Linux adds up per CPU first, in portions of 256 pages, so it notices a limit later than this does.
#[derive(Debug)]
pub struct MemoryAccount {
    drawn: AtomicU64,
    min: AtomicU64,
    pressure: AtomicU64,
    max: AtomicU64,
    socket_bytes: AtomicU64,
}

impl MemoryAccount {
    /// Creates an account without limit.
    pub const fn unlimited() -> Self {
        Self::with_limits(MemoryLimits::UNLIMITED)
    }

    /// Creates an account of so many pages, for all sockets alike.
    pub const fn with_limit(pages: u64) -> Self {
        Self::with_limits(MemoryLimits::hard(pages))
    }

    /// Creates an account with these limits.
    pub const fn with_limits(limits: MemoryLimits) -> Self {
        Self {
            drawn: AtomicU64::new(0),
            min: AtomicU64::new(limits.min),
            pressure: AtomicU64::new(limits.pressure),
            max: AtomicU64::new(limits.max),
            socket_bytes: AtomicU64::new(limits.socket_bytes),
        }
    }

    /// Returns the pages that sockets hold.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Returns whether sockets hold more than [`MemoryLimits::pressure`].
    pub fn is_pressed(&self) -> bool {
        self.drawn() > self.pressure.load(Ordering::Relaxed)
    }

    /// Changes the limits. Pages already drawn stay drawn. A draw at the same time may still go by
    /// some of the old ones.
    pub fn set_limits(&self, limits: MemoryLimits) {
        self.min.store(limits.min, Ordering::Relaxed);
        self.pressure.store(limits.pressure, Ordering::Relaxed);
        self.max.store(limits.max, Ordering::Relaxed);
        self.socket_bytes.store(limits.socket_bytes, Ordering::Relaxed);
    }

    /// Draws pages for a socket that holds so many bytes, all or none.
    pub(super) fn draw(&self, pages: u64, held_bytes: u64) -> bool {
        let has_little = held_bytes < self.socket_bytes.load(Ordering::Relaxed);
        let max = self.max.load(Ordering::Relaxed);
        let limit = if has_little { max } else { self.min.load(Ordering::Relaxed).min(max) };
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
