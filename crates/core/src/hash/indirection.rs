//! The RSS indirection table: from hash to receive queue.
//!
//! Always true: there is at least one entry, so every packet has a queue; a packet without a hash
//! goes to the queue of entry 0.
//! Source: Microsoft, "RSS hashing" (low bits of the hash choose the entry); Linux,
//! Documentation/networking/scaling.rst ("RSS"), where most devices have 128 entries, some 64 to
//! 4,096, and the default is equal weight.

use core::fmt;

use super::FlowHash;
use crate::QueueId;

/// A map from hash to queue over borrowed or owned entries; entry `hash % size` decides.
///
/// # Examples
/// ```
/// use rxsteer_core::hash::{FlowHash, IndirectionTable};
/// use rxsteer_core::QueueId;
/// let mut storage = [QueueId(0); 128];
/// let table = IndirectionTable::equal(&mut storage, 8).expect("entries and queues");
/// assert_eq!(table.queue(FlowHash(0x51cc_c178)), QueueId(0)); // 0x78 is 120, and 120 % 8 is 0
/// assert_eq!(table.queue(FlowHash(0x51cc_c17d)), QueueId(5));
/// assert_eq!(table.queue(FlowHash::NONE), QueueId(0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct IndirectionTable<T> {
    entries: T,
    /// `size - 1` if the size is a power of two, else 0: the division is then needed.
    mask: u32,
    /// The queue of entry 0.
    first: QueueId,
}

impl<T: AsRef<[QueueId]>> IndirectionTable<T> {
    /// Takes the entries as `ethtool -x` lists them.
    ///
    /// # Errors
    /// No entries, or more than 2^32 - 1.
    pub fn new(entries: T) -> Result<Self, EmptyTable> {
        let slice = entries.as_ref();
        let size = u32::try_from(slice.len()).map_err(|_| EmptyTable)?;
        let first = *slice.first().ok_or(EmptyTable)?;
        let mask = if size.is_power_of_two() { size - 1 } else { 0 };
        Ok(Self { entries, mask, first })
    }

    /// Returns the queue of a packet with this hash.
    #[inline]
    pub fn queue(&self, hash: FlowHash) -> QueueId {
        let entries = self.entries.as_ref();
        let size = entries.len() as u32;
        let place = match self.mask {
            0 => hash.0.checked_rem(size).unwrap_or(0),
            mask => hash.0 & mask,
        };
        entries.get(place as usize).copied().unwrap_or(self.first)
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[QueueId] {
        self.entries.as_ref()
    }
}

impl<T: AsRef<[QueueId]> + AsMut<[QueueId]>> IndirectionTable<T> {
    /// Fills the entries with `0..queues` in turn: the default of a device, equal weight for all.
    ///
    /// # Errors
    /// No entries or no queues.
    pub fn equal(mut entries: T, queues: u16) -> Result<Self, EmptyTable> {
        if queues == 0 {
            return Err(EmptyTable);
        }
        for (entry, queue) in entries.as_mut().iter_mut().zip((0..queues).cycle()) {
            *entry = QueueId(queue);
        }
        Self::new(entries)
    }
}

/// The table would have no entry, or no queue to name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EmptyTable;

impl fmt::Display for EmptyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an indirection table needs at least one entry and one queue")
    }
}

impl core::error::Error for EmptyTable {}
