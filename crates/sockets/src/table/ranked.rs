//! Sockets in the order of their ranks; a single one, by far the most frequent, takes no memory.

use std::collections::BTreeMap;

/// Sockets in the order of their ranks, head first.
#[derive(Debug, Default)]
pub(super) enum Ranked {
    #[default]
    None,
    One(i64, u32),
    Many(BTreeMap<i64, u32>),
}

impl Ranked {
    pub(super) fn insert(&mut self, rank: i64, i: u32) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(rank, i),
            Self::One(other, _) if other == rank => Self::One(rank, i),
            Self::One(other, j) => Self::Many([(other, j), (rank, i)].into()),
            Self::Many(mut map) => {
                map.insert(rank, i);
                Self::Many(map)
            }
        };
    }

    pub(super) fn remove(&mut self, rank: i64) {
        match self {
            Self::None => {}
            Self::One(own, _) => {
                if *own == rank {
                    *self = Self::None;
                }
            }
            Self::Many(map) => {
                map.remove(&rank);
                if let (1, Some((rank, i))) = (map.len(), map.first_key_value()) {
                    *self = Self::One(*rank, *i);
                }
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(..) => 1,
            Self::Many(map) => map.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sockets from head to tail.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(_, i) => (Some(*i), None),
            Self::Many(map) => (None, Some(map.values().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_an_ordered_map(ops in prop::collection::vec((any::<bool>(), 0..6_i64), 0..60)) {
            let mut ranked = Ranked::default();
            let mut map = BTreeMap::new();
            for (i, (put, rank)) in (0..).zip(ops) {
                if put {
                    ranked.insert(rank, i);
                    map.insert(rank, i);
                } else {
                    ranked.remove(rank);
                    map.remove(&rank);
                }
                prop_assert_eq!(ranked.iter().collect::<Vec<_>>(), map.values().copied().collect::<Vec<_>>());
                prop_assert_eq!(ranked.len(), map.len());
                prop_assert_eq!(matches!(ranked, Ranked::Many(_)), map.len() > 1);
            }
        }
    }
}
