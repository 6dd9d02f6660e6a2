//! The kernel's hexadecimal notation: words of 32 bits, highest first, a comma between them.

use core::fmt;

use super::{CpuSet, CpuSetError, CpuSetReason};
use crate::CpuId;

impl CpuSet {
    /// Reads a mask for a host whose CPU ids are `0..nr_cpu_ids`, as a write to `rps_cpus` does.
    ///
    /// Takes both cases of the digits, fewer or more leading zeros and zero words, and blanks or a
    /// newline around. An `nr_cpu_ids` above [`CpuId::LIMIT`] counts as the limit.
    ///
    /// # Errors
    /// [`NoHexDigit`](CpuSetReason::NoHexDigit) for an empty text or word,
    /// [`Unexpected`](CpuSetReason::Unexpected) for any other byte,
    /// [`WordTooLong`](CpuSetReason::WordTooLong) for more than 8 digits without a comma,
    /// [`Overflow`](CpuSetReason::Overflow) for a bit at or above `nr_cpu_ids`.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_core::CpuSet;
    /// assert_eq!(CpuSet::from_mask("0F,FFFC0000", 40), CpuSet::from_list("18-35"));
    /// let error = CpuSet::from_mask("fffc0000f", 40).expect_err("9 digits");
    /// assert_eq!(
    ///     error.to_string(),
    ///     "a word of the mask has more than 32 bits (8 digits): put a comma between words (at byte 8)"
    /// );
    /// ```
    pub fn from_mask(text: &str, nr_cpu_ids: u32) -> Result<Self, CpuSetError> {
        let limit = nr_cpu_ids.min(u32::from(CpuId::LIMIT));
        let body = text.trim_ascii_start();
        let mut at = (text.len() - body.len()) as u32;
        let body = body.trim_ascii_end();
        // The words stand highest first, so the first one's number is the count of commas.
        let mut group = body.bytes().filter(|b| *b == b',').count();
        let mut set = Self::EMPTY;
        for word in body.split(',') {
            let mut bits = 0u32;
            for (place, byte) in word.bytes().enumerate() {
                let here = at + place as u32;
                let Some(digit) = char::from(byte).to_digit(16) else {
                    let reason = CpuSetReason::Unexpected(byte);
                    return Err(CpuSetError { at: here, reason });
                };
                if place == 8 {
                    return Err(CpuSetError { at: here, reason: CpuSetReason::WordTooLong });
                }
                bits = bits << 4 | digit;
            }
            if word.is_empty() {
                return Err(CpuSetError { at, reason: CpuSetReason::NoHexDigit });
            }
            if let Some(top) = bits.checked_ilog2() {
                let bit = (group as u32).saturating_mul(32).saturating_add(top);
                if bit >= limit {
                    let reason = CpuSetReason::Overflow { bit, nr_cpu_ids: limit };
                    return Err(CpuSetError { at, reason });
                }
            }
            set.or_word(group / 2, u64::from(bits) << (group % 2 * 32));
            at += word.len() as u32 + 1;
            group = group.saturating_sub(1);
        }
        Ok(set)
    }

    /// Shows the set as the kernel of a host with the CPU ids `0..nr_cpu_ids` does.
    ///
    /// The top word is only as wide as `nr_cpu_ids` needs. A set with higher ids is shown whole, so
    /// wider: no CPU is ever cut off unseen.
    pub fn mask(&self, nr_cpu_ids: u32) -> CpuMask<'_> {
        let needed = self.last().map_or(1, |cpu| u32::from(cpu.0) + 1);
        CpuMask { set: self, bits: nr_cpu_ids.min(u32::from(CpuId::LIMIT)).max(needed) }
    }
}

/// A [`CpuSet`] that is shown as a mask: `00,0003fffe`.
#[derive(Clone, Copy, Debug)]
pub struct CpuMask<'a> {
    set: &'a CpuSet,
    bits: u32,
}

impl fmt::Display for CpuMask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let top = (self.bits - 1) / 32;
        let width = ((self.bits - top * 32).div_ceil(4)) as usize;
        write!(f, "{:0width$x}", self.set.group(top as usize))?;
        for group in (0..top).rev() {
            write!(f, ",{:08x}", self.set.group(group as usize))?;
        }
        Ok(())
    }
}
