//! The Internet checksum (RFC 1071): one's complement sum of 16-bit words.

/// Returns the unfolded sum of the bytes as big-endian 16-bit words; an odd last byte is the upper
/// half of a word. Sums of pieces may be added if all but the last have an even length.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // 32-bit words: their halves meet when the sum is folded, since 2^16 = 1 (mod 0xffff). No
    // overflow below 16 GiB.
    let (words, rest) = bytes.as_chunks::<4>();
    let whole: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    whole + u64::from(u32::from_be_bytes(last))
}

/// Returns the sum in 16 bits: 0 only if every word was 0.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns whether a payload completes the sum of all before it to a right checksum.
pub(crate) fn completes(partial: u16, payload: &[u8]) -> bool {
    fold(u64::from(partial) + sum(payload)) == 0xffff
}
