//! A fixed bit set of CPU ids: no heap, `Copy`, one word of 64 ids at a time.

use core::fmt;
use core::iter::FusedIterator;

use crate::CpuId;

/// 64-bit words of a set: `CpuId::LIMIT` bits.
const WORDS: usize = CpuId::LIMIT as usize / 64;

/// A set of CPU ids below [`CpuId::LIMIT`]; ids may have gaps. 512 bytes.
///
/// # Examples
/// ```
/// use rxsteer_core::{CpuId, CpuSet};
/// let set = CpuSet::from_list("1-17").expect("a list");
/// assert_eq!(set.count(), 17);
/// assert_eq!(set.mask(40).to_string(), "00,0003fffe");
/// assert_eq!(CpuSet::from_mask("3fffe\n", 40), Ok(set));
/// assert!(!set.contains(CpuId(0)));
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// The set of no CPU.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// Returns the set of the ids `0..n`; an `n` above [`CpuId::LIMIT`] counts as the limit.
    pub fn first_n(n: u32) -> Self {
        let mut set = Self::EMPTY;
        for (place, word) in set.words.iter_mut().enumerate() {
            *word = match n.saturating_sub(place as u32 * 64) {
                64.. => u64::MAX,
                below => (1 << below) - 1,
            };
        }
        set
    }

    /// Adds `cpu` and returns whether it is new.
    ///
    /// An id at or above [`CpuId::LIMIT`] is not added and returns `false`.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let new = cpu.0 < CpuId::LIMIT && !self.contains(cpu);
        self.or_word(cpu.index() / 64, 1 << (cpu.index() % 64));
        new
    }

    /// Takes `cpu` out and returns whether it was there.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let was = self.contains(cpu);
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.index() % 64));
        }
        was
    }

    /// Returns whether the set holds `cpu`; never for an id at or above [`CpuId::LIMIT`].
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|w| w >> (cpu.index() % 64) & 1 == 1)
    }

    /// Returns how many CPUs the set holds.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns whether the set holds no CPU.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Returns the lowest id.
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// Returns the highest id. One more than that of the possible CPUs is Linux's `nr_cpu_ids`.
    pub fn last(&self) -> Option<CpuId> {
        let (place, word) = self.words.iter().enumerate().rfind(|(_, w)| **w != 0)?;
        Some(CpuId((place as u32 * 64 + word.ilog2()) as u16))
    }

    /// Returns the id that has `n` lower ones in the set: RPS's pick from the packed list.
    pub fn nth(&self, n: usize) -> Option<CpuId> {
        let mut left = n;
        for (place, &word) in self.words.iter().enumerate() {
            let here = word.count_ones() as usize;
            if left < here {
                let mut word = word;
                for _ in 0..left {
                    word &= word - 1;
                }
                return Some(CpuId((place as u32 * 64 + word.trailing_zeros()) as u16));
            }
            left -= here;
        }
        None
    }

    /// Returns the CPUs that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// Returns the CPUs that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// Returns the CPUs of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Returns whether `other` holds every CPU of this set.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Iterates over the ids, lowest first.
    pub fn iter(&self) -> Iter<'_> {
        Iter { words: &self.words, place: 0, left: self.words.first().copied().unwrap_or(0) }
    }

    /// Returns the 32 ids from `32 * group` on, lowest bit first; 0 beyond the limit.
    pub(super) fn group(&self, group: usize) -> u32 {
        self.words.get(group / 2).map_or(0, |w| (w >> (group % 2 * 32)) as u32)
    }

    /// Adds the ids of the set bits of `bits`, counted from `64 * place`.
    pub(super) fn or_word(&mut self, place: usize, bits: u64) {
        if let Some(word) = self.words.get_mut(place) {
            *word |= bits;
        }
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut out = *self;
        for (word, &b) in out.words.iter_mut().zip(&other.words) {
            *word = join(*word, b);
        }
        out
    }
}

impl Default for CpuSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Shows the cpulist, since 64 words say nothing to a reader of a failed test.
impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({})", self.list())
    }
}

/// Leaves out ids at or above [`CpuId::LIMIT`], as [`CpuSet::insert`] does.
impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(ids: I) -> Self {
        let mut set = Self::EMPTY;
        set.extend(ids);
        set
    }
}

impl Extend<CpuId> for CpuSet {
    fn extend<I: IntoIterator<Item = CpuId>>(&mut self, ids: I) {
        for cpu in ids {
            self.insert(cpu);
        }
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = CpuId;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The ids of a [`CpuSet`], lowest first.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    words: &'a [u64; WORDS],
    place: usize,
    left: u64,
}

impl Iterator for Iter<'_> {
    type Item = CpuId;

    fn next(&mut self) -> Option<CpuId> {
        while self.left == 0 {
            self.place += 1;
            self.left = *self.words.get(self.place)?;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(CpuId((self.place as u32 * 64 + bit) as u16))
    }
}

impl FusedIterator for Iter<'_> {}
