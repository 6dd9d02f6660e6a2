//! One word of a filter that tells hashes that come back from others: a function of the word alone, so
//! that it serves a map in eBPF as well.
//!
//! Elsewhere: the filter, and why it works so ([`super::RepeatFilter`]).

use crate::FlowHash;

/// Bits of a word that count; the others are those of the hash.
pub(super) const COUNT_MASK: u32 = 0xf;

/// Returns the word of a filter as a sighting of `hash` leaves it, and how many there were, this one
/// included, as far as the word remembers: 1 to 15.
#[inline(always)]
pub const fn sight_in_word(word: u32, hash: FlowHash) -> (u32, u32) {
    let (tag, count) = (word & !COUNT_MASK, word & COUNT_MASK);
    let own = hash.0 & !COUNT_MASK;
    if count > 0 && tag == own {
        let count = if count < COUNT_MASK { count + 1 } else { count };
        (own | count, count)
    } else {
        (if count > 1 { tag | (count - 1) } else { own | 1 }, 1)
    }
}
