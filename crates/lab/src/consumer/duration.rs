//! Times as people write them: `250us`, `1.5s`.

/// Reads a time such as `1.5s`, `20ms`, `7us` or `300ns` and returns it in ns.
///
/// # Errors
/// No number, no unit, or more than 2^62 ns.
///
/// # Examples
/// ```
/// use rxsteer_lab::consumer::parse_duration_ns;
/// assert_eq!(parse_duration_ns("1.5s"), Ok(1_500_000_000));
/// assert!(parse_duration_ns("5").is_err());
/// ```
pub fn parse_duration_ns(text: &str) -> Result<u64, DurationError> {
    let refuse = || DurationError(text.chars().take(40).collect());
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
    let (number, unit) = text.split_at(split);
    let scale: u64 = match unit.trim() {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        _ => return Err(refuse()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.contains('.') || (number.contains('.') && part.is_empty()) {
        return Err(refuse());
    }
    let whole: u64 = whole.parse().map_err(|_| refuse())?;
    let mut ns = whole.checked_mul(scale).ok_or_else(refuse)?;
    let mut place = scale;
    for digit in part.bytes() {
        place /= 10;
        ns = ns.checked_add(u64::from(digit - b'0') * place).ok_or_else(refuse)?;
    }
    if ns > 1 << 62 { Err(refuse()) } else { Ok(ns) }
}

/// A text is no time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DurationError(String);

impl std::fmt::Display for DurationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`: a number with one of the units ns, us, ms, s, m is allowed", self.0)
    }
}

impl std::error::Error for DurationError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_fractions_are_exact() {
        let ns = |text| parse_duration_ns(text).unwrap();
        assert_eq!(ns("0.1s"), 100_000_000);
        assert_eq!(ns("12.345 ms"), 12_345_000);
        assert_eq!(ns("1.9999999999ns"), 1);
        assert_eq!(ns("2m"), 120_000_000_000);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "s", "1", "1h", "-1s", "1..2s", "1.s", ".5s", "99999999999999999999s"] {
            assert!(parse_duration_ns(text).is_err(), "{text}");
        }
    }
}
