//! The cpulist notation: `0-3,8`, strides as `0-7:2/4` (of each 4 ids the first 2).
//!
//! Reading is stricter than Linux in two points: an empty item (`1,,2`) and a stride that takes no
//! CPU are errors here, since both are slips of the hand.

use core::fmt;

use super::{CpuSet, CpuSetError, CpuSetReason};
use crate::CpuId;

impl CpuSet {
    /// Reads a cpulist.
    ///
    /// Blanks and newlines may stand around each item; a text of nothing else is the empty set.
    ///
    /// # Errors
    /// The byte and the reason: no number, a range that runs backwards, a stride that takes no CPU
    /// or more than there are, an id at or above [`CpuId::LIMIT`], any other byte.
    ///
    /// # Examples
    /// ```
    /// use rxsteer_core::CpuSet;
    /// let set = CpuSet::from_list("0-7:2/4,8\n").expect("a list");
    /// assert_eq!(set.list().to_string(), "0-1,4-5,8");
    /// let error = CpuSet::from_list("3-1").expect_err("backwards");
    /// assert_eq!(error.to_string(), "the range 3-1 ends below its start (at byte 0)");
    /// ```
    pub fn from_list(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::EMPTY;
        let mut rest = Cursor { bytes: text.as_bytes(), at: 0 };
        rest.skip_blanks();
        if rest.peek().is_none() {
            return Ok(set);
        }
        loop {
            rest.skip_blanks();
            rest.item(&mut set)?;
            rest.skip_blanks();
            match rest.peek() {
                None => return Ok(set),
                Some(b',') => rest.at += 1,
                Some(other) => return Err(rest.error(CpuSetReason::Unexpected(other))),
            }
        }
    }

    /// Shows the set as a cpulist, shortest form, without strides; the empty set is no text.
    pub fn list(&self) -> CpuList<'_> {
        CpuList(self)
    }

    /// Adds the ids `first..=last`, both below the limit, word by word.
    fn insert_range(&mut self, first: u32, last: u32) {
        for place in first / 64..=last / 64 {
            let from = first.saturating_sub(place * 64);
            let to = (last - place * 64).min(63);
            self.or_word(place as usize, u64::MAX << from & u64::MAX >> (63 - to));
        }
    }
}

/// A [`CpuSet`] that is shown as a cpulist: `0-3,8`.
#[derive(Clone, Copy, Debug)]
pub struct CpuList<'a>(&'a CpuSet);

impl fmt::Display for CpuList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.0.iter().map(|cpu| cpu.0).peekable();
        let mut comma = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

/// A place in the text.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn error(&self, reason: CpuSetReason) -> CpuSetError {
        CpuSetError { at: self.at as u32, reason }
    }

    /// Returns the number that starts here, `u32::MAX` for all that is larger.
    fn number(&mut self) -> Result<u32, CpuSetError> {
        let start = self.at;
        let mut value = 0u32;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
            self.at += 1;
        }
        if self.at == start { Err(self.error(CpuSetReason::NoNumber)) } else { Ok(value) }
    }

    /// Returns the CPU id that starts here.
    fn id(&mut self) -> Result<u32, CpuSetError> {
        let start = self.at as u32;
        let id = self.number()?;
        if id >= u32::from(CpuId::LIMIT) {
            return Err(CpuSetError { at: start, reason: CpuSetReason::AboveLimit(id) });
        }
        Ok(id)
    }

    /// Reads `N`, `N-M` or `N-M:used/group` into `set`.
    fn item(&mut self, set: &mut CpuSet) -> Result<(), CpuSetError> {
        let start = self.at as u32;
        let first = self.id()?;
        if self.peek() != Some(b'-') {
            set.insert_range(first, first);
            return Ok(());
        }
        self.at += 1;
        let last = self.id()?;
        if last < first {
            return Err(CpuSetError { at: start, reason: CpuSetReason::Backwards { first, last } });
        }
        if self.peek() != Some(b':') {
            set.insert_range(first, last);
            return Ok(());
        }
        self.at += 1;
        let stride = self.at as u32;
        let used = self.number()?;
        match self.peek() {
            Some(b'/') => self.at += 1,
            Some(other) => return Err(self.error(CpuSetReason::Unexpected(other))),
            None => return Err(self.error(CpuSetReason::NoNumber)),
        }
        let group = self.number()?;
        if used == 0 || used > group {
            return Err(CpuSetError {
                at: stride,
                reason: CpuSetReason::BadStride { used, group },
            });
        }
        let mut from = first;
        while from <= last {
            set.insert_range(from, last.min(from.saturating_add(used - 1)));
            from = from.saturating_add(group);
        }
        Ok(())
    }
}
