//! A set of UDP or TCP ports, as ranges: no heap, `Copy`.

use core::fmt;
use core::str::FromStr;

/// A set of ports in at most [`PortSet::MOST`] ranges. 0 is no port.
///
/// # Examples
/// ```
/// use rxsteer_core::PortSet;
/// let set: PortSet = "443,10000-10100,444".parse().expect("a list");
/// assert!(set.contains(10_050) && !set.contains(10_101));
/// assert_eq!(set.to_string(), "443-444,10000-10100");
/// assert_eq!("none".parse(), Ok(PortSet::EMPTY));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PortSet {
    /// First and last port of each range: in order, with a port between any two.
    ranges: [(u16, u16); Self::MOST],
    count: usize,
}

impl PortSet {
    /// Most ranges.
    pub const MOST: usize = 64;

    /// The set of no port.
    pub const EMPTY: Self = Self { ranges: [(0, 0); Self::MOST], count: 0 };

    /// Returns whether the set holds `port`.
    pub fn contains(&self, port: u16) -> bool {
        self.ranges().any(|(first, last)| (first..=last).contains(&port))
    }

    /// Returns whether the set holds no port.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns first and last port of each range, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.ranges.iter().take(self.count).copied()
    }

    /// Adds the ports from `first` to `last`, and joins ranges that then touch.
    ///
    /// # Errors
    /// [`PortSetError::TooMany`]; the set is as it was then.
    pub fn insert(&mut self, mut first: u16, mut last: u16) -> Result<(), PortSetError> {
        let mut new = Self::EMPTY;
        let mut is_in = false;
        for (from, to) in self.ranges() {
            if to.saturating_add(1) < first {
                new.push(from, to)?;
            } else if from > last.saturating_add(1) {
                if !is_in {
                    new.push(first, last)?;
                    is_in = true;
                }
                new.push(from, to)?;
            } else {
                (first, last) = (first.min(from), last.max(to));
            }
        }
        if !is_in {
            new.push(first, last)?;
        }
        *self = new;
        Ok(())
    }

    fn push(&mut self, first: u16, last: u16) -> Result<(), PortSetError> {
        let place = self.ranges.get_mut(self.count).ok_or(PortSetError::TooMany)?;
        *place = (first, last);
        self.count += 1;
        Ok(())
    }
}

impl Default for PortSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Writes the set as it is read.
impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (place, (first, last)) in self.ranges().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

/// Why a text names no set of ports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PortSetError {
    /// The part at this place, from 1, is no port from 1 to 65535 and no range of them.
    NoPort(usize),
    /// The range at this place, from 1, ends before it begins.
    Backwards(usize),
    /// There are more than [`PortSet::MOST`] ranges.
    TooMany,
}

impl fmt::Display for PortSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort(part) => write!(
                f,
                "part {part} is no port from 1 to 65535 and no range; a list is such as \
                 443,10000-10100, or none"
            ),
            Self::Backwards(part) => write!(f, "the range at part {part} ends before it begins"),
            Self::TooMany => write!(f, "there are more than {} ranges", PortSet::MOST),
        }
    }
}

impl core::error::Error for PortSetError {}

impl FromStr for PortSet {
    type Err = PortSetError;

    fn from_str(text: &str) -> Result<Self, PortSetError> {
        let mut set = Self::EMPTY;
        if text.trim() == "none" {
            return Ok(set);
        }
        for (place, part) in text.split(',').enumerate() {
            let part_of_list = place + 1;
            let port = |text: &str| match text.trim().parse() {
                Ok(0) | Err(_) => Err(PortSetError::NoPort(part_of_list)),
                Ok(port) => Ok(port),
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (port(first)?, port(last)?),
                None => (port(part)?, port(part)?),
            };
            if last < first {
                return Err(PortSetError::Backwards(part_of_list));
            }
            set.insert(first, last)?;
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, PortSetError> {
        text.parse::<PortSet>().map(|set| set.to_string())
    }

    #[test]
    fn ranges_that_touch_or_cover_each_other_are_one() {
        for (text, expected) in [
            ("443", "443"),
            (" 7 , 5-6", "5-7"),
            ("9,1-3,5-7,4", "1-7,9"),
            ("10-20,12-13,1-65535", "1-65535"),
            ("65535,65534,1", "1,65534-65535"),
            ("none", "none"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_set_holds_what_its_list_names() {
        // Against a plain list of all ports.
        let parts = [(5000, 5010), (80, 80), (5011, 5020), (81, 90), (60_000, 65_535), (1, 1)];
        let mut set = PortSet::EMPTY;
        let mut all = vec![false; 1 << 16];
        for (first, last) in parts {
            set.insert(first, last).unwrap();
            all[usize::from(first)..=usize::from(last)].fill(true);
        }
        assert!((0..=u16::MAX).all(|port| set.contains(port) == all[usize::from(port)]));
        assert_eq!(set.ranges().count(), 4);
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_part() {
        for (text, error) in [
            ("", PortSetError::NoPort(1)),
            ("443,", PortSetError::NoPort(2)),
            ("0", PortSetError::NoPort(1)),
            ("1,65536", PortSetError::NoPort(2)),
            ("1-2-3", PortSetError::NoPort(1)),
            ("-5", PortSetError::NoPort(1)),
            ("http", PortSetError::NoPort(1)),
            ("5,9-8", PortSetError::Backwards(2)),
        ] {
            assert_eq!(shown(text), Err(error), "{text}");
        }
        let mut set = PortSet::EMPTY;
        for n in 0..PortSet::MOST as u16 {
            set.insert(2 * n + 1, 2 * n + 1).unwrap();
        }
        assert_eq!(set.insert(1000, 1000), Err(PortSetError::TooMany));
        // One that joins two makes room.
        set.insert(2, 2).unwrap();
        set.insert(1000, 1000).unwrap();
    }
}
