//! Payload buffers, lent by a pool shared by any number of sockets.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use super::item::Payload;
use crate::datagram::completes;

/// Sizes of buffers: a short request, a full Ethernet frame, a jumbo frame, the largest datagram.
const SIZES: [usize; 4] = [256, 2048, 16_384, 65_536];

/// A shared pool of payload buffers in four sizes.
///
/// Buffers come into being when needed and are kept for later up to a bound; what is lent is
/// limited, so that many sockets together cannot take all memory.
///
/// # Examples
/// ```
/// use rxsteer_sockets::queue::BufferPool;
/// let pool = BufferPool::new(1 << 20, 1 << 16); // lend 1 MiB at most, keep 64 KiB
/// let buffer = pool.copy(b"payload").expect("there is room");
/// assert_eq!((&buffer[..], pool.lent_bytes()), (&b"payload"[..], 256));
/// drop(buffer);
/// assert_eq!(pool.lent_bytes(), 0);
/// ```
#[derive(Clone)]
pub struct BufferPool {
    inner: Arc<Inner>,
}

struct Inner {
    kept: [ArrayQueue<Box<[u8]>>; SIZES.len()],
    lent: AtomicU64,
    limit: u64,
}

impl BufferPool {
    /// Creates a pool that lends at most `limit` bytes at a time and keeps about `keep` bytes of each
    /// size (at least one buffer) when they come back.
    pub fn new(limit: u64, keep: usize) -> Self {
        let kept = SIZES.map(|size| ArrayQueue::new((keep / size).max(1)));
        Self { inner: Arc::new(Inner { kept, lent: AtomicU64::new(0), limit }) }
    }

    /// Lends a buffer of `len` bytes, whose contents are whatever an earlier user left. `None` if
    /// the limit is reached or `len` is above 65,536.
    pub fn lend(&self, len: usize) -> Option<Buffer> {
        let class = SIZES.iter().position(|size| len <= *size)?;
        let size = SIZES[class];
        // Relaxed: the sum is all that is shared.
        self.inner
            .lent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lent| {
                lent.checked_add(size as u64).filter(|lent| *lent <= self.inner.limit)
            })
            .ok()?;
        let bytes =
            self.inner.kept[class].pop().unwrap_or_else(|| vec![0; size].into_boxed_slice());
        Some(Buffer { bytes, len, class, pool: Arc::clone(&self.inner) })
    }

    /// Lends a buffer with a copy of these bytes; `None` as for [`lend`](Self::lend).
    pub fn copy(&self, bytes: &[u8]) -> Option<Buffer> {
        let mut buffer = self.lend(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Some(buffer)
    }

    /// Returns the bytes that are lent now, slack included.
    pub fn lent_bytes(&self) -> u64 {
        self.inner.lent.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("lent_bytes", &self.lent_bytes())
            .field("limit", &self.inner.limit)
            .finish_non_exhaustive()
    }
}

/// Bytes lent by a [`BufferPool`]; dropped, they go back.
pub struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    class: usize,
    pool: Arc<Inner>,
}

impl Buffer {
    /// Returns the bytes it takes in memory, which is what counts against limits.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Makes it shorter; longer than it is has no effect.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Payload for Buffer {
    fn len(&self) -> usize {
        self.len
    }

    fn held_len(&self) -> usize {
        self.capacity()
    }

    fn completes(&self, partial: u16) -> bool {
        completes(partial, self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        drop(self.pool.kept[self.class].push(bytes)); // full: freed
        self.pool.lent.fetch_sub(SIZES[self.class] as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}
