//! Connected sockets by 4-tuple: the third table.
//!
//! A bucket is one cache line: seven words, each the upper half of a hash and the number of a
//! record, and a count of entries that found the bucket full and went on to the next. A record is
//! one cache line too and holds all that is compared. So a look-up follows two dependent loads,
//! bucket and record, at any size. Sockets with one 4-tuple are chained from the one filed last.
//!
//! A record is written while nothing leads to it, and its sequence number is odd meanwhile. A
//! reader that was led to it before compares the number around its loads; if it changed, the
//! bucket no longer leads there and the reader starts again. No reader waits for a writer, and no
//! memory is ever freed under one: buckets of smaller sizes stay when the table grows, which adds
//! less than the size of the table.
//!
//! Always true: `count` of a slot is the number of records whose local address and port have that
//! slot; a bucket's overflow count is the number of entries that passed it by.
//! Source: spec of the receive path, "Tables"; the buckets are ours.

use std::sync::OnceLock;

use crate::{DeviceId, SocketId};

use super::entry::Entry;
use super::segments::Segments;
use super::sock::Filed;
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use super::tuple::{Tuple, TupleHash};

/// Entries of a bucket.
const WAYS: usize = 7;

/// Slots of the second table, each with the number of connected sockets in it.
const SLOTS: usize = if cfg!(loom) { 1 } else { 4096 };

/// A socket as the table has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FiledSocket {
    pub(super) tuple: Tuple,
    pub(super) order: u64,
    pub(super) socket: SocketId,
    pub(super) device: u32,
    pub(super) flags: u16,
}

impl FiledSocket {
    pub(super) fn new(entry: &Entry, filed: &Filed) -> Self {
        Self {
            tuple: filed.tuple,
            order: filed.order,
            socket: entry.socket,
            device: entry.device,
            flags: entry.flags,
        }
    }
}

/// What a record gives to a look-up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Hit {
    pub(super) socket: SocketId,
    pub(super) flags: u16,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Record {
    /// Odd while the record is free or being written.
    sequence: AtomicU32,
    ports: AtomicU32,
    local: [AtomicU64; 2],
    remote: [AtomicU64; 2],
    socket: AtomicU64,
    device: AtomicU32,
    flags: AtomicU32,
    /// The record with the same 4-tuple that was filed before, plus one; 0: none.
    next: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    words: [AtomicU64; WAYS],
    overflow: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Record>() == 64 && size_of::<Bucket>() == 64);

impl Bucket {
    /// Returns the places of words with the upper half of this hash. Compares all without a branch:
    /// which of them it is cannot be foreseen, and a wrong guess costs more.
    #[inline]
    fn matches(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mut matches = 0_u32;
        for (place, word) in self.words.iter().enumerate() {
            matches |= u32::from(word.load(Ordering::Relaxed) >> 32 == hash >> 32) << place;
        }
        std::iter::from_fn(move || {
            let place = matches.trailing_zeros();
            matches &= matches.wrapping_sub(1);
            (place < u32::BITS).then_some(place as usize)
        })
    }
}

/// What writers keep of the table.
#[derive(Debug, Default)]
pub(super) struct Records {
    vacant: Vec<u32>,
    /// Number of the filing of each record.
    orders: Vec<u64>,
    /// 4-tuples in the table.
    words: usize,
}

/// The table.
#[derive(Debug)]
pub(super) struct Four {
    sizes: [OnceLock<Box<[Bucket]>>; 32],
    /// Which of the sizes is in use.
    current: AtomicU32,
    records: Segments<Record>,
    counts: Box<[AtomicU32; SLOTS]>,
}

/// A record changed while it was read: start again.
struct Changed;

impl Four {
    pub(super) fn new(capacity: usize) -> Self {
        let buckets = (capacity / 3).next_power_of_two().clamp(1, 1 << 26);
        let table = Self {
            sizes: [const { OnceLock::new() }; 32],
            current: AtomicU32::new(buckets.trailing_zeros()),
            records: Segments::new(),
            counts: Box::new(std::array::from_fn(|_| AtomicU32::new(0))),
        };
        table.make(buckets.trailing_zeros());
        table
    }

    fn make(&self, size: u32) -> &[Bucket] {
        let make = || std::iter::repeat_with(Bucket::default).take(1 << size).collect();
        self.sizes[size as usize].get_or_init(make)
    }

    #[inline]
    fn buckets(&self) -> &[Bucket] {
        let current = self.current.load(Ordering::Acquire);
        self.sizes[current as usize].get().expect("a size is made before it is in use")
    }

    /// Returns whether a connected socket may be at this local address and port.
    #[inline]
    pub(super) fn may_hold(&self, local: u128, port: u16) -> bool {
        self.counts[slot(local, port)].load(Ordering::Acquire) != 0
    }

    /// Loads from the bucket of a hash, so that it is near when it is looked up.
    #[inline]
    pub(super) fn touch_bucket(&self, hash: u64) -> u64 {
        let buckets = self.buckets();
        buckets[hash as usize & (buckets.len() - 1)].overflow.load(Ordering::Relaxed)
    }

    /// Returns the record that the bucket of a hash leads to, plus one; 0: none.
    #[inline]
    pub(super) fn leads_to(&self, hash: u64) -> u32 {
        let buckets = self.buckets();
        let bucket = &buckets[hash as usize & (buckets.len() - 1)];
        let first = bucket.matches(hash).next();
        first.map_or(0, |place| bucket.words[place].load(Ordering::Relaxed) as u32)
    }

    /// Loads from a record, given plus one.
    #[inline]
    pub(super) fn touch_record(&self, record: u32) -> u64 {
        let record = record.checked_sub(1).and_then(|record| self.records.at(record));
        record.map_or(0, |record| u64::from(record.sequence.load(Ordering::Relaxed)))
    }

    /// Returns the socket filed last of those with this 4-tuple whose device fits.
    #[inline]
    pub(super) fn lookup(&self, hash: u64, tuple: &Tuple, device: DeviceId) -> Option<Hit> {
        let mut found = None;
        self.each(hash, tuple, device, |hit| {
            found = Some(hit);
            false
        });
        found
    }

    /// Calls `take` for the sockets with this 4-tuple whose device fits, the one filed last first,
    /// until it returns `false`. May call it again for the same ones if a writer interferes.
    #[inline]
    pub(super) fn each(
        &self,
        hash: u64,
        tuple: &Tuple,
        device: DeviceId,
        mut take: impl FnMut(Hit) -> bool,
    ) {
        while self.try_each(hash, tuple, device, &mut take).is_err() {}
    }

    #[inline]
    fn try_each(
        &self,
        hash: u64,
        tuple: &Tuple,
        device: DeviceId,
        take: &mut impl FnMut(Hit) -> bool,
    ) -> Result<(), Changed> {
        let buckets = self.buckets();
        let mask = buckets.len() - 1;
        for step in 0..buckets.len() {
            let bucket = &buckets[(hash as usize).wrapping_add(step) & mask];
            for place in bucket.matches(hash) {
                let word = bucket.words[place].load(Ordering::Acquire);
                if word >> 32 != hash >> 32 || word as u32 == 0 {
                    continue;
                }
                let Some((mut read, mut next)) = self.read(word as u32 - 1, tuple)? else {
                    continue; // another 4-tuple with the same half of its hash
                };
                loop {
                    if (read.device == 0 || read.device == device.0)
                        && !take(Hit { socket: read.socket, flags: read.flags })
                    {
                        return Ok(());
                    }
                    if next == 0 {
                        return Ok(());
                    }
                    // All of a chain have one 4-tuple; if this has not, it was moved to another.
                    (read, next) = self.read(next - 1, tuple)?.ok_or(Changed)?;
                }
            }
            if bucket.overflow.load(Ordering::Acquire) == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Counts the buckets and records that a look-up reads until it finds the 4-tuple, or does not.
    pub(super) fn walk(&self, hash: u64, tuple: &Tuple, walk: &mut crate::Walk) {
        let buckets = self.buckets();
        let mask = buckets.len() - 1;
        for step in 0..buckets.len() {
            let bucket = &buckets[(hash as usize).wrapping_add(step) & mask];
            walk.buckets += 1;
            for place in bucket.matches(hash) {
                let word = bucket.words[place].load(Ordering::Acquire);
                if word >> 32 != hash >> 32 || word as u32 == 0 {
                    continue;
                }
                walk.records += 1;
                if matches!(self.read(word as u32 - 1, tuple), Ok(Some(_))) {
                    return;
                }
            }
            if bucket.overflow.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// Reads a record; `None` if it has another 4-tuple.
    #[inline]
    fn read(&self, record: u32, tuple: &Tuple) -> Result<Option<(FiledSocket, u32)>, Changed> {
        let record = self.records.at(record).ok_or(Changed)?;
        let sequence = record.sequence.load(Ordering::Acquire);
        if sequence & 1 != 0 {
            return Err(Changed);
        }
        let halves = |[low, high]: &[AtomicU64; 2]| {
            u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64
        };
        let same = record.ports.load(Ordering::Relaxed) == tuple.ports()
            && halves(&record.local) == tuple.local
            && halves(&record.remote) == tuple.remote;
        let socket = record.socket.load(Ordering::Relaxed);
        let read = FiledSocket {
            tuple: *tuple,
            order: 0,
            socket: SocketId { index: socket as u32, generation: (socket >> 32) as u32 },
            device: record.device.load(Ordering::Relaxed),
            flags: record.flags.load(Ordering::Relaxed) as u16,
        };
        let next = record.next.load(Ordering::Acquire);
        fence(Ordering::Acquire);
        if record.sequence.load(Ordering::Relaxed) != sequence {
            return Err(Changed);
        }
        Ok(same.then_some((read, next)))
    }

    /// Files a socket, after those with the same 4-tuple and a higher order; returns its record.
    pub(super) fn insert(
        &self,
        records: &mut Records,
        filed: &FiledSocket,
        hash: TupleHash,
    ) -> u32 {
        self.counts[slot(filed.tuple.local, filed.tuple.local_port)].fetch_add(1, Ordering::AcqRel);
        let hashed = hash.of(&filed.tuple);
        let new = records.vacant.pop().unwrap_or_else(|| {
            records.orders.push(0);
            records.orders.len() as u32 - 1
        });
        records.orders[new as usize] = filed.order;
        let record = self.records.at_or_make(new);
        // A record that was taken out is odd since, and stays so: a reader that sees this must also
        // see that nothing leads to it, as it does from the Release in `remove`. One that was never
        // used is even, and no reader can be there.
        let mut sequence = record.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 0 {
            sequence += 1;
            record.sequence.store(sequence, Ordering::Relaxed);
        }
        fence(Ordering::Release);
        record.ports.store(filed.tuple.ports(), Ordering::Relaxed);
        for (half, word) in record.local.iter().enumerate() {
            word.store((filed.tuple.local >> (64 * half)) as u64, Ordering::Relaxed);
        }
        for (half, word) in record.remote.iter().enumerate() {
            word.store((filed.tuple.remote >> (64 * half)) as u64, Ordering::Relaxed);
        }
        let socket = u64::from(filed.socket.index) | u64::from(filed.socket.generation) << 32;
        record.socket.store(socket, Ordering::Relaxed);
        record.device.store(filed.device, Ordering::Relaxed);
        record.flags.store(u32::from(filed.flags), Ordering::Relaxed);

        let word = hashed >> 32 << 32 | u64::from(new + 1);
        match self.word_of(hashed, &filed.tuple) {
            None => {
                record.next.store(0, Ordering::Relaxed);
                record.sequence.store(sequence.wrapping_add(1), Ordering::Release);
                records.words += 1;
                // Above half full, 3.5 of 7 on average, too many buckets would overflow.
                if records.words * 2 > self.buckets().len() * WAYS {
                    self.grow(hash);
                }
                put(self.buckets(), hashed, word);
            }
            Some(place) => {
                let mut after = None;
                let mut at = place.load(Ordering::Relaxed) as u32;
                while at != 0 && records.orders[at as usize - 1] > filed.order {
                    after = Some(at - 1);
                    at = self.records.at_or_make(at - 1).next.load(Ordering::Relaxed);
                }
                record.next.store(at, Ordering::Relaxed);
                record.sequence.store(sequence.wrapping_add(1), Ordering::Release);
                match after {
                    Some(after) => {
                        self.records.at_or_make(after).next.store(new + 1, Ordering::Release);
                    }
                    None => place.store(word, Ordering::Release),
                }
            }
        }
        new
    }

    /// Returns whether a record says this of a socket; for the writer.
    pub(super) fn holds(&self, records: &Records, record: u32, filed: &FiledSocket) -> bool {
        let read = self.read(record, &filed.tuple);
        let same =
            |(read, _): (FiledSocket, u32)| FiledSocket { order: filed.order, ..read } == *filed;
        records.orders[record as usize] == filed.order
            && matches!(read, Ok(Some(read)) if same(read))
    }

    /// Takes a record out.
    pub(super) fn remove(&self, records: &mut Records, record: u32, hash: TupleHash) {
        let tuple = self.tuple_of(record);
        let hashed = hash.of(&tuple);
        let place = self.word_of(hashed, &tuple).expect("a filed socket is in the table");
        let own = self.records.at_or_make(record);
        let next = own.next.load(Ordering::Relaxed);
        let head = place.load(Ordering::Relaxed);
        if head as u32 == record + 1 {
            if next == 0 {
                records.words -= 1;
                take(self.buckets(), hashed, head);
            } else {
                place.store(head >> 32 << 32 | u64::from(next), Ordering::Release);
            }
        } else {
            let mut at = head as u32 - 1;
            loop {
                let before = self.records.at_or_make(at);
                let following = before.next.load(Ordering::Relaxed);
                if following == record + 1 {
                    before.next.store(next, Ordering::Release);
                    break;
                }
                assert_ne!(following, 0, "a filed socket is on the chain of its 4-tuple");
                at = following - 1;
            }
        }
        // Readers that were led here before see from now on that they must start again.
        own.sequence.fetch_add(1, Ordering::AcqRel);
        records.vacant.push(record);
        self.counts[slot(tuple.local, tuple.local_port)].fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the word that leads to the records of a 4-tuple; for the writer.
    fn word_of(&self, hash: u64, tuple: &Tuple) -> Option<&AtomicU64> {
        let buckets = self.buckets();
        for step in 0..buckets.len() {
            let bucket = &buckets[(hash as usize).wrapping_add(step) & (buckets.len() - 1)];
            for place in &bucket.words {
                let word = place.load(Ordering::Relaxed);
                if word >> 32 == hash >> 32
                    && word as u32 != 0
                    && matches!(self.read(word as u32 - 1, tuple), Ok(Some(_)))
                {
                    return Some(place);
                }
            }
            if bucket.overflow.load(Ordering::Relaxed) == 0 {
                return None;
            }
        }
        None
    }

    /// Doubles the number of buckets. Readers go on in the old ones until the new are complete.
    fn grow(&self, hash: TupleHash) {
        let size = self.current.load(Ordering::Relaxed);
        let old = self.buckets();
        let new = self.make(size + 1);
        for word in old.iter().flat_map(|bucket| &bucket.words) {
            let word = word.load(Ordering::Relaxed);
            if word as u32 != 0 {
                put(new, hash.of(&self.tuple_of(word as u32 - 1)), word);
            }
        }
        self.current.store(size + 1, Ordering::Release);
    }

    fn tuple_of(&self, record: u32) -> Tuple {
        let record = self.records.at_or_make(record);
        let halves = |[low, high]: &[AtomicU64; 2]| {
            u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64
        };
        let ports = record.ports.load(Ordering::Relaxed);
        Tuple {
            local: halves(&record.local),
            remote: halves(&record.remote),
            local_port: (ports >> 16) as u16,
            remote_port: ports as u16,
        }
    }
}

/// Returns the slot of a local address and port in the second table. Of an IPv6 address the last 32
/// bits tell: every look-up comes here, and a shared slot costs no more than a look in vain.
#[inline]
fn slot(local: u128, port: u16) -> usize {
    let mixed = (local as u32 ^ u32::from(port) << 16).wrapping_mul(0x9e37_79b1); // 2^32 / φ
    (mixed >> 20) as usize % SLOTS
}

/// Puts a word into the first bucket from its own on that has room.
fn put(buckets: &[Bucket], hash: u64, word: u64) {
    for step in 0..buckets.len() {
        let bucket = &buckets[(hash as usize).wrapping_add(step) & (buckets.len() - 1)];
        let free = bucket.words.iter().find(|place| place.load(Ordering::Relaxed) as u32 == 0);
        if let Some(place) = free {
            place.store(word, Ordering::Release);
            return;
        }
        bucket.overflow.fetch_add(1, Ordering::AcqRel);
    }
    unreachable!("the table grows before it is full");
}

/// Takes a word out of the bucket it is in.
fn take(buckets: &[Bucket], hash: u64, word: u64) {
    for step in 0..buckets.len() {
        let bucket = &buckets[(hash as usize).wrapping_add(step) & (buckets.len() - 1)];
        let own = bucket.words.iter().find(|place| place.load(Ordering::Relaxed) == word);
        if let Some(place) = own {
            place.store(0, Ordering::Release);
            for passed in 0..step {
                let at = (hash as usize).wrapping_add(passed) & (buckets.len() - 1);
                buckets[at].overflow.fetch_sub(1, Ordering::AcqRel);
            }
            return;
        }
    }
    unreachable!("a filed socket is in the table");
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
