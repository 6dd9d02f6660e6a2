//! Counts with a suffix: `512`, `64k`, `1M`.

use std::fmt;

/// Reads a count; k, M and G (of either case) are 1,024 and its powers, as table sizes want it.
///
/// # Errors
/// A text that is no such count, and a count that does not fit 64 bits.
pub fn quantity(text: &str) -> Result<u64, QuantityError> {
    let refused = || QuantityError(text.to_owned());
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    // `parse` would take a sign.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return Err(refused());
    }
    let number: u64 = digits.replace('_', "").parse().map_err(|_| refused())?;
    number.checked_mul(1 << shift).ok_or_else(refused)
}

/// A text is no count.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuantityError(String);

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no count; allowed are numbers such as 4096, 64k or 1M (k is 1024)",
            self.0
        )
    }
}

impl std::error::Error for QuantityError {}

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(quantity("0"), Ok(0));
        assert_eq!(quantity("4_096"), Ok(4096));
        assert_eq!(quantity("64K"), Ok(65_536));
        assert_eq!(quantity("1M"), Ok(1_048_576));
        assert_eq!(quantity("16383G"), Ok(16_383 << 30));
    }

    #[test]
    fn everything_else_is_refused_with_what_is_allowed() {
        for text in ["", "k", "-1", "+1", "1.5k", "1kk", "0x10", "18014398509481985k", "1 k", "é"]
        {
            let message = quantity(text).unwrap_err().to_string();
            assert!(message.contains("64k"), "{text}: {message}");
        }
    }
}
