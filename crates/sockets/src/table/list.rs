//! The candidates of one address and port, head first, as look-ups walk them.
//!
//! A list is never changed in place: a writer makes the next version and publishes it in one
//! store. Entries are in chunks of at most [`CHUNK`], which versions share, so that a change costs
//! one chunk and not the list.
//!
//! Always true: ranks rise from head to tail and no two are equal; no chunk is empty.

use std::sync::Arc;

use super::entry::Entry;

/// Most entries of a chunk.
const CHUNK: usize = 128;

/// A version of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    entries: Entries,
    /// The head of all sockets of the address, those in the 4-tuple table too, if it is connected;
    /// only where early demultiplexing asks for it.
    pub(super) head: Option<Box<Entry>>,
}

/// One candidate is by far the most frequent, and costs no further load.
#[derive(Clone, Debug, Default)]
enum Entries {
    #[default]
    None,
    One(Entry),
    Chunks(Arc<[Arc<[Entry]>]>),
}

impl List {
    /// Returns whether nothing would be lost without the list.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.entries, Entries::None) && self.head.is_none()
    }

    /// Returns whether there is just one candidate.
    #[inline]
    pub(super) fn single(&self) -> Option<&Entry> {
        match &self.entries {
            Entries::One(entry) => Some(entry),
            Entries::None | Entries::Chunks(_) => None,
        }
    }

    /// Walks the candidates from head to tail.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let (one, chunks): (&[Entry], &[Arc<[Entry]>]) = match &self.entries {
            Entries::None => (&[], &[]),
            Entries::One(entry) => (std::slice::from_ref(entry), &[]),
            Entries::Chunks(chunks) => (&[], chunks),
        };
        one.iter().chain(chunks.iter().flat_map(|chunk| chunk.iter()))
    }

    /// Returns whether an entry is on the list as it is.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        match &self.entries {
            Entries::None => false,
            Entries::One(one) => one == entry,
            Entries::Chunks(chunks) => {
                let chunk = &chunks[chunk_of(chunks, entry.rank)];
                let place = chunk.binary_search_by_key(&entry.rank, |entry| entry.rank);
                place.is_ok_and(|place| chunk[place] == *entry)
            }
        }
    }

    /// Puts an entry in the place of its rank; replaces the one that has it.
    pub(super) fn put(&mut self, entry: Entry) {
        match &self.entries {
            Entries::None => self.entries = Entries::One(entry),
            Entries::One(one) if one.rank == entry.rank => self.entries = Entries::One(entry),
            Entries::One(one) => {
                let mut both = [*one, entry];
                both.sort_unstable_by_key(|entry| entry.rank);
                self.entries = Entries::Chunks(Arc::new([Arc::new(both)]));
            }
            Entries::Chunks(chunks) => {
                let mut chunks = chunks.to_vec();
                let at = chunk_of(&chunks, entry.rank);
                let mut chunk = chunks[at].to_vec();
                match chunk.binary_search_by_key(&entry.rank, |entry| entry.rank) {
                    Ok(place) => chunk[place] = entry,
                    Err(place) => chunk.insert(place, entry),
                }
                if chunk.len() > CHUNK {
                    // Most additions are at the head: leave the other chunk well filled.
                    let cut = if at == 0 { chunk.len() / 4 } else { chunk.len() / 2 };
                    chunks.insert(at + 1, chunk.split_off(cut).into());
                }
                chunks[at] = chunk.into();
                self.entries = Entries::Chunks(chunks.into());
            }
        }
    }

    /// Takes out the entry of a rank.
    pub(super) fn remove(&mut self, rank: i64) {
        match &self.entries {
            Entries::None => {}
            Entries::One(one) => {
                if one.rank == rank {
                    self.entries = Entries::None;
                }
            }
            Entries::Chunks(chunks) => {
                let mut chunks = chunks.to_vec();
                let at = chunk_of(&chunks, rank);
                let Ok(place) = chunks[at].binary_search_by_key(&rank, |entry| entry.rank) else {
                    return;
                };
                let mut chunk = chunks[at].to_vec();
                chunk.remove(place);
                if chunk.is_empty() {
                    chunks.remove(at);
                } else {
                    chunks[at] = chunk.into();
                }
                self.entries = match chunks.as_slice() {
                    [] => Entries::None,
                    [only] if only.len() == 1 => Entries::One(only[0]),
                    _ => Entries::Chunks(chunks.into()),
                };
            }
        }
    }
}

/// Returns the chunk in which a rank is or belongs.
fn chunk_of(chunks: &[Arc<[Entry]>], rank: i64) -> usize {
    let after = chunks.partition_point(|chunk| chunk[0].rank <= rank);
    after.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::SocketId;

    fn entry(rank: i64, index: u32) -> Entry {
        Entry {
            rank,
            socket: SocketId { index, generation: 0 },
            remote6: 0,
            remote4: 0,
            device: 0,
            group: 0,
            remote_port: 0,
            flags: 0,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_list_is_an_ordered_map(ops in prop::collection::vec((any::<bool>(), 0..300_i64), 0..900)) {
            let mut list = List::default();
            let mut map = BTreeMap::new();
            for (index, (put, rank)) in ops.into_iter().enumerate() {
                if put {
                    list.put(entry(rank, index as u32));
                    map.insert(rank, index as u32);
                } else {
                    list.remove(rank);
                    map.remove(&rank);
                }
                let walked: Vec<_> = list.iter().map(|e| (e.rank, e.socket.index)).collect();
                prop_assert_eq!(walked, map.iter().map(|(r, i)| (*r, *i)).collect::<Vec<_>>());
                prop_assert_eq!(list.is_empty(), map.is_empty());
                prop_assert_eq!(list.single().is_some(), map.len() == 1);
            }
        }
    }

    #[test]
    fn a_long_list_shares_all_but_one_chunk_with_its_next_version() {
        let mut list = List::default();
        for index in 0..10_000 {
            list.put(entry(-i64::from(index), index));
        }
        let before = list.clone();
        list.put(entry(-10_000, 10_000));
        let (Entries::Chunks(old), Entries::Chunks(new)) = (&before.entries, &list.entries) else {
            panic!("a long list is in chunks");
        };
        let shared = new.iter().filter(|chunk| old.iter().any(|o| Arc::ptr_eq(o, chunk))).count();
        assert!(new.len() - shared <= 2, "{shared} of {} shared", new.len());
        assert!(new.len() < 10_000 / 64, "{} chunks", new.len());
    }
}
