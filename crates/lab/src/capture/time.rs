//! Times of a capture in nanoseconds since the epoch, whatever their unit.
//!
//! Source: pcapng draft (draft-ietf-opsawg-pcapng), section 4.2, options if_tsresol and if_tsoffset.

/// The unit in which an interface gives its times, and what to add to them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Clock {
    unit: Unit,
    offset_s: i64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Unit {
    /// The unit is this many nanoseconds.
    Nanoseconds(u64),
    /// A nanosecond is this many units.
    PerNanosecond(u64),
    /// A second is 2 to this power of units.
    PowerOfTwo(u8),
}

impl Clock {
    /// Microseconds: what pcapng has unless an interface says otherwise.
    pub(super) const MICROSECONDS: Self = Self { unit: Unit::Nanoseconds(1000), offset_s: 0 };

    /// Sets the unit from the value of if_tsresol: a negative power of 10, or of 2 with bit 7 set.
    pub(super) fn set_resolution(&mut self, value: u8) {
        self.unit = match value {
            0..=9 => Unit::Nanoseconds(10u64.pow(9 - u32::from(value))),
            // From 10^-29 s on, 64 bits of units are less than a nanosecond.
            10..=127 => match 10u64.checked_pow(u32::from(value) - 9) {
                Some(per_ns) => Unit::PerNanosecond(per_ns),
                None => Unit::PowerOfTwo(127),
            },
            128.. => Unit::PowerOfTwo(value & 0x7f),
        };
    }

    /// Sets the seconds to add, from the value of if_tsoffset.
    pub(super) fn set_offset(&mut self, seconds: i64) {
        self.offset_s = seconds;
    }

    /// Returns the time in nanoseconds since the epoch and whether it fits; if it does not, the
    /// nearest that does.
    #[inline]
    pub(super) fn to_ns(self, units: u64) -> (u64, bool) {
        let ns = match self.unit {
            Unit::Nanoseconds(1) if self.offset_s == 0 => return (units, true),
            Unit::Nanoseconds(each) => u128::from(units) * u128::from(each),
            Unit::PerNanosecond(count) => u128::from(units / count),
            Unit::PowerOfTwo(power) => (u128::from(units) * 1_000_000_000) >> power,
        };
        if self.offset_s == 0 {
            return u64::try_from(ns).map_or((u64::MAX, false), |ns| (ns, true));
        }
        // Below 2^94 and 2^93: the sum of both fits.
        let ns = ns as i128 + i128::from(self.offset_s) * 1_000_000_000;
        match u64::try_from(ns) {
            Ok(ns) => (ns, true),
            Err(_) if ns < 0 => (0, false),
            Err(_) => (u64::MAX, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(resolution: u8, offset_s: i64) -> Clock {
        let mut clock = Clock::MICROSECONDS;
        clock.set_resolution(resolution);
        clock.set_offset(offset_s);
        clock
    }

    #[test]
    fn resolutions_are_powers_of_ten_and_of_two() {
        assert_eq!(Clock::MICROSECONDS.to_ns(1_500_000), (1_500_000_000, true));
        assert_eq!(clock(0, 0).to_ns(3), (3_000_000_000, true));
        assert_eq!(clock(6, 0), Clock::MICROSECONDS);
        assert_eq!(clock(9, 0).to_ns(u64::MAX), (u64::MAX, true));
        assert_eq!(clock(12, 0).to_ns(5_999), (5, true));
        assert_eq!(clock(28, 0).to_ns(u64::MAX), (1, true));
        assert_eq!(clock(127, 0).to_ns(u64::MAX), (0, true));
        assert_eq!(clock(0x80, 0).to_ns(2), (2_000_000_000, true));
        assert_eq!(clock(0x80 | 10, 0).to_ns(1536), (1_500_000_000, true));
        assert_eq!(clock(0xff, 0).to_ns(u64::MAX), (0, true));
    }

    #[test]
    fn times_that_do_not_fit_are_the_nearest_that_does() {
        assert_eq!(clock(0, 0).to_ns(u64::MAX), (u64::MAX, false));
        assert_eq!(clock(0, -5).to_ns(4), (0, false));
        assert_eq!(clock(0, -5).to_ns(5), (0, true));
        assert_eq!(clock(9, 2).to_ns(7), (2_000_000_007, true));
        assert_eq!(clock(9, i64::MAX).to_ns(7), (u64::MAX, false));
        assert_eq!(clock(0, i64::MIN).to_ns(u64::MAX), (u64::MAX, false));
        assert_eq!(clock(0xff, i64::MIN).to_ns(0), (0, false));
    }
}
