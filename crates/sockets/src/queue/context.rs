//! What the queues of a namespace share.

use std::sync::Arc;

use super::memory::MemoryAccount;
use super::segment::SegmentPool;
use crate::counters::UdpCounters;

/// What the receive queues of a namespace share: counters, room for waiting datagrams, and
/// perhaps an account of memory.
pub struct QueueContext<P> {
    pub(super) counters: Arc<UdpCounters>,
    pub(super) memory: Option<Arc<MemoryAccount>>,
    pub(super) segments: SegmentPool<P>,
}

impl<P> QueueContext<P> {
    /// Creates a context that counts in these counters and does not limit memory.
    pub fn new(counters: Arc<UdpCounters>) -> Self {
        Self { counters, memory: None, segments: SegmentPool::new() }
    }

    /// Makes the queues draw their memory from an account, which other namespaces may share (in
    /// Linux, all do).
    #[must_use]
    pub fn with_memory(mut self, account: Arc<MemoryAccount>) -> Self {
        self.memory = Some(account);
        self
    }

    /// Returns the counters.
    pub fn counters(&self) -> &UdpCounters {
        &self.counters
    }

    /// Returns how many segments (room for 4 or 32 datagrams) the pool keeps for later.
    pub fn kept_segments(&self) -> usize {
        self.segments.kept()
    }
}

impl<P> Default for QueueContext<P> {
    fn default() -> Self {
        Self::new(Arc::new(UdpCounters::new()))
    }
}
