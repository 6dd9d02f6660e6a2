//! Who has been here before: prefixes and flows that come back, in fixed memory.
//!
//! A flood from random sources consists of strangers: each of its prefixes is seen once, or a few
//! times far apart. A client comes back. [`Familiar`] keeps hashes in buckets of eight entries, one
//! cache line each: two on *probation*, six *protected*. A new hash enters probation by taking one
//! from the count of the weaker entry there, and takes its place at 0 (Misra and Gries, 1982). After
//! [`FamiliarSettings::sightings`] in at least [`FamiliarSettings::epochs`] different epochs it is
//! familiar and moves to the protected entries, where it replaces the one not seen for longest.
//!
//! Always true: a stream of hashes that never come back changes nothing in a protected entry, so
//! who is familiar stays so through any flood of strangers. Who stays away stays familiar until
//! others became so in its bucket.
//!
//! Not so: a newcomer that sends less than a flood puts on its bucket (flood / buckets) may not get
//! off probation while the flood lasts; a sender that forges few prefixes makes them familiar.

/// When a hash counts as familiar.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FamiliarSettings {
    /// Sightings, 1 to 255.
    pub sightings: u8,
    /// Epochs in which they were, 1 to 255.
    pub epochs: u8,
    /// Length of an epoch in ns, at least 1.
    pub epoch_ns: u64,
    /// Buckets of eight; rounded up to a power of two.
    pub buckets: u32,
}

impl Default for FamiliarSettings {
    /// 8 sightings in 2 epochs of 32 ms; 1,024 buckets: 8,192 hashes, 64 KiB.
    fn default() -> Self {
        Self { sightings: 8, epochs: 2, epoch_ns: 32_000_000, buckets: 1024 }
    }
}

/// The table of hashes that come back.
#[derive(Clone, Debug)]
pub struct Familiar {
    settings: FamiliarSettings,
    buckets: Vec<Bucket>,
    epoch: u16,
    epoch_ends_ns: u64,
}

const WAYS: usize = 8;
const PROBATION: usize = 2;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket([Entry; WAYS]);

/// One hash. A tag of 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u32,
    count: u8,
    epochs: u8,
    /// Epoch of the last sighting; wraps.
    seen: u16,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Familiar {
    /// Makes an empty table.
    pub fn new(settings: FamiliarSettings) -> Self {
        let settings = FamiliarSettings {
            sightings: settings.sightings.max(1),
            epochs: settings.epochs.max(1),
            epoch_ns: settings.epoch_ns.max(1),
            buckets: settings.buckets.clamp(1, 1 << 24).next_power_of_two(),
        };
        let buckets = vec![Bucket::default(); settings.buckets as usize];
        Self { settings, buckets, epoch: 0, epoch_ends_ns: settings.epoch_ns }
    }

    /// Returns the bytes of the table.
    pub fn memory_bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Returns the epoch of a time, for [`sight`](Self::sight). Time that goes back is taken as
    /// standing still.
    #[inline]
    pub fn epoch(&mut self, now_ns: u64) -> u16 {
        if now_ns >= self.epoch_ends_ns {
            let epoch = now_ns / self.settings.epoch_ns;
            self.epoch = epoch as u16;
            self.epoch_ends_ns = (epoch + 1).saturating_mul(self.settings.epoch_ns);
        }
        self.epoch
    }

    /// Notes a sighting of a keyed hash and returns whether it is familiar.
    #[inline]
    pub fn sight(&mut self, hash: u64, epoch: u16) -> bool {
        let mask = self.buckets.len() - 1;
        let tag = (hash as u32).max(1);
        let FamiliarSettings { sightings, epochs, .. } = self.settings;
        let Some(Bucket(ways)) = self.buckets.get_mut((hash >> 32) as usize & mask) else {
            return false;
        };
        match ways.iter().position(|entry| entry.tag == tag) {
            Some(way) if way >= PROBATION => {
                ways[way].seen = epoch;
                true
            }
            Some(way) => {
                let entry = &mut ways[way];
                entry.sighted(epoch);
                if entry.count < sightings || entry.epochs < epochs {
                    return false;
                }
                protect(ways, way, epoch);
                true
            }
            None => {
                let entry = Entry { tag, count: 1, epochs: 1, seen: epoch };
                let way = usize::from(ways[1].count < ways[0].count);
                if ways[way].count <= 1 {
                    ways[way] = entry;
                } else {
                    ways[way].count -= 1;
                }
                if sightings == 1 && epochs == 1 && ways[way].tag == tag {
                    protect(ways, way, epoch);
                    return true;
                }
                false
            }
        }
    }

    /// Returns whether a hash is familiar, and notes nothing.
    pub fn knows(&self, hash: u64) -> bool {
        let mask = self.buckets.len() - 1;
        let tag = (hash as u32).max(1);
        let bucket = self.buckets.get((hash >> 32) as usize & mask);
        bucket.is_some_and(|b| b.0[PROBATION..].iter().any(|entry| entry.tag == tag))
    }
}

impl Entry {
    fn sighted(&mut self, epoch: u16) {
        self.count = self.count.saturating_add(1);
        if self.seen != epoch {
            self.epochs = self.epochs.saturating_add(1);
            self.seen = epoch;
        }
    }
}

/// Moves an entry off probation; the protected one that was not seen for longest is forgotten.
#[cold]
fn protect(ways: &mut [Entry; WAYS], way: usize, epoch: u16) {
    let age = |entry: &Entry| match entry.tag {
        0 => u32::MAX,
        _ => u32::from(epoch.wrapping_sub(entry.seen)),
    };
    let oldest = (PROBATION..WAYS).max_by_key(|at| age(&ways[*at])).unwrap_or(WAYS - 1);
    ways[oldest] = ways[way];
    ways[way] = Entry::default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(buckets: u32) -> Familiar {
        Familiar::new(FamiliarSettings { buckets, ..FamiliarSettings::default() })
    }

    /// SplitMix64: independent hashes from a counter.
    fn mix(n: u64) -> u64 {
        let z = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ z >> 31
    }

    #[test]
    fn eight_sightings_in_two_epochs_make_a_hash_familiar() {
        let mut table = table(4);
        for _ in 0..100 {
            assert!(!table.sight(7, 0));
        }
        assert!(table.sight(7, 1) && table.knows(7));
        let short = (0..7).map(|n| table.sight(9, n)).collect::<Vec<_>>();
        assert!(!short.contains(&true) && table.sight(9, 7));
    }

    #[test]
    fn a_flood_of_strangers_does_not_displace_who_is_familiar() {
        let mut table = table(4);
        let clients: Vec<u64> = (0..8).map(|n| n << 32 | (n + 1)).collect();
        for n in 0..10 {
            for client in &clients {
                table.sight(*client, n);
            }
        }
        for n in 0..100_000 {
            table.sight(mix(n), (n / 1000) as u16);
        }
        assert!(clients.iter().all(|client| table.knows(*client)));
    }

    #[test]
    fn random_hashes_are_strangers() {
        let mut table = table(1024);
        let familiar = (0..1_000_000u64).filter(|n| table.sight(mix(*n), (n / 30_000) as u16));
        assert_eq!(familiar.count(), 0);
    }

    #[test]
    fn a_newcomer_that_sends_more_than_the_flood_in_its_bucket_gets_known() {
        let mut table = table(64);
        let mut n = 0;
        let known = (0..10_000).position(|packet| {
            // 32 strangers per packet, one for every second of the buckets.
            (0..32).for_each(|_| {
                n += 1;
                table.sight(mix(n), (packet / 100) as u16);
            });
            table.sight(0xabcd_0000_1234, (packet / 100) as u16)
        });
        assert!(known.is_some_and(|packet| packet < 400), "{known:?}");
    }

    #[test]
    fn the_protected_entry_that_was_not_seen_for_longest_makes_room() {
        let mut table = table(1);
        let become_known = |table: &mut Familiar, hash: u64, from: u16| {
            for n in 0..8 {
                table.sight(hash, from + n);
            }
            assert!(table.knows(hash));
        };
        (1..=6).for_each(|hash| become_known(&mut table, hash, 10 * hash as u16));
        table.sight(1, 90); // so that 2 is the oldest
        become_known(&mut table, 7, 100);
        let known: Vec<u64> = (1..=7).filter(|hash| table.knows(*hash)).collect();
        assert_eq!(known, [1, 3, 4, 5, 6, 7]);
    }
}
