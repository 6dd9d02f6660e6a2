//! The atomics and the ring of the shared backlog: the standard ones, or what Loom can follow.

#[cfg(not(loom))]
pub(super) use crossbeam_queue::ArrayQueue as Ring;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(super) use std::thread::yield_now;

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(super) use loom::thread::yield_now;
#[cfg(loom)]
pub(super) use ring::Ring;

/// A bounded queue under a lock, in place of the lock-free one, whose inside Loom cannot see.
#[cfg(loom)]
mod ring {
    use std::collections::VecDeque;

    use loom::sync::Mutex;

    #[derive(Debug)]
    pub(in crate::backlog) struct Ring<T> {
        packets: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> Ring<T> {
        pub(in crate::backlog) fn new(capacity: usize) -> Self {
            Self { packets: Mutex::new(VecDeque::new()), capacity }
        }

        pub(in crate::backlog) fn push(&self, packet: T) -> Result<(), T> {
            let mut packets = self.packets.lock().expect("no panic under the lock");
            if packets.len() == self.capacity {
                return Err(packet);
            }
            packets.push_back(packet);
            Ok(())
        }

        pub(in crate::backlog) fn pop(&self) -> Option<T> {
            self.packets.lock().expect("no panic under the lock").pop_front()
        }

        pub(in crate::backlog) fn is_empty(&self) -> bool {
            self.packets.lock().expect("no panic under the lock").is_empty()
        }
    }
}
