//! Numbers for people: grouped, short, with a unit.

/// Returns a count of at most seven characters: `12,345`, `1.23M`, `4.5G`.
pub fn count(n: u64) -> String {
    match n {
        0..=999_999 => grouped(n),
        1_000_000..=999_999_999_999 => {
            let (unit, suffix) = if n < 1_000_000_000 { (1e6, 'M') } else { (1e9, 'G') };
            let value = n as f64 / unit;
            let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
            format!("{value:.decimals$}{suffix}")
        }
        _ => format!("{:.1e}", n as f64),
    }
}

/// Returns all digits of a count, in groups of three.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a share of 0 to 1 in percent with one decimal. A share that is not all and not nothing
/// is shown neither as 100 nor as 0.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        return "<0.1 %".into();
    }
    if (99.95..100.0).contains(&percent) {
        return ">99.9 %".into();
    }
    format!("{percent:.1} %")
}

/// Returns a time with a fitting unit: `850 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 1e3 => return format!("{ns:.0} ns"),
        _ if ns < 1e6 => (ns / 1e3, "µs"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// Returns a number of bytes with a fitting unit of 1,024: `512 B`, `256 KiB`.
pub fn bytes(n: u64) -> String {
    let (unit, name) = match n {
        0..=1023 => return format!("{n} B"),
        1024..=1_048_575 => (1024.0, "KiB"),
        1_048_576..=1_073_741_823 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    };
    let value = n as f64 / unit;
    let decimals = usize::from(value < 100.0 && value.fract() > 0.0);
    format!("{value:.decimals$} {name}")
}

/// Returns a word with its number: `1 queue`, `2 queues`.
pub fn plural(n: u64, one: &str) -> String {
    format!("{} {one}{}", grouped(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_within_seven_characters() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(12_345), "12,345");
        assert_eq!(count(999_999), "999,999");
        assert_eq!(count(1_234_567), "1.23M");
        assert_eq!(count(123_456_789), "123M");
        assert_eq!(count(4_500_000_000), "4.50G");
        for n in (0..64).map(|bits| (1u64 << bits) - 1) {
            assert!(count(n).len() <= 7, "{n}: {}", count(n));
        }
    }

    #[test]
    fn a_share_that_is_not_all_is_not_shown_as_all() {
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(percent(0.9999), ">99.9 %");
        assert_eq!(percent(0.0), "0.0 %");
        assert_eq!(percent(0.0001), "<0.1 %");
        assert_eq!(percent(0.456), "45.6 %");
    }

    #[test]
    fn times_and_bytes_get_the_unit_that_fits() {
        assert_eq!(time(850.0), "850 ns");
        assert_eq!(time(12_345.0), "12.3 µs");
        assert_eq!(time(4_560_000.0), "4.56 ms");
        assert_eq!(time(1.2e9), "1.20 s");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(262_144), "256 KiB");
        assert_eq!(bytes(1_572_864), "1.5 MiB");
        assert_eq!(plural(1, "queue"), "1 queue");
        assert_eq!(plural(2000, "queue"), "2,000 queues");
    }
}
