//! Sizes of payload: one, or several in a fixed mixture.

use std::fmt;
use std::str::FromStr;

/// Bytes of payload, in a cycle that repeats.
///
/// # Examples
/// ```
/// use rxsteer_bench::Sizes;
/// let sizes: Sizes = "20,1472x2".parse().unwrap();
/// assert_eq!(sizes.cycle(), [20, 1472, 1472]);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sizes(Vec<u16>);

impl Sizes {
    /// Most bytes of payload.
    pub const LARGEST: u16 = 9000;

    /// Most sizes in a cycle.
    pub const LONGEST: usize = 1000;

    /// One size for all.
    pub fn fixed(bytes: u16) -> Self {
        Self(vec![bytes.min(Self::LARGEST)])
    }

    /// Returns the sizes in the order in which they come, again and again.
    pub fn cycle(&self) -> &[u16] {
        &self.0
    }

    /// Returns the largest.
    pub fn largest(&self) -> u16 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Returns the only size, if there is one.
    pub fn only(&self) -> Option<u16> {
        let first = *self.0.first()?;
        self.0.iter().all(|size| *size == first).then_some(first)
    }
}

/// Sizes that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SizesError(String);

impl fmt::Display for SizesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (largest, longest) = (Sizes::LARGEST, Sizes::LONGEST);
        write!(
            f,
            "`{}`: allowed are sizes of 0 to {largest} bytes with commas, each with how often it \
             comes, such as 20 or 20x7,548x4,1472 (at most {longest} altogether)",
            self.0
        )
    }
}

impl std::error::Error for SizesError {}

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        let refuse = || SizesError(text.to_owned());
        let mut cycle = Vec::new();
        for word in text.split(',') {
            let (size, times) = word.split_once('x').unwrap_or((word, "1"));
            let size: u16 = size.parse().map_err(|_| refuse())?;
            let times: usize = times.parse().map_err(|_| refuse())?;
            let fits = (1..=Self::LONGEST).contains(&times) && size <= Self::LARGEST;
            if !fits || cycle.len() + times > Self::LONGEST {
                return Err(refuse());
            }
            cycle.extend(std::iter::repeat_n(size, times));
        }
        Ok(Self(cycle))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.0.chunk_by(|a, b| a == b).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", run[0])?;
            if run.len() > 1 && self.only().is_none() {
                write!(f, "x{}", run.len())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixtures_are_read_and_shown() {
        let sizes = |text: &str| text.parse::<Sizes>();
        assert_eq!(sizes("20").unwrap(), Sizes::fixed(20));
        let imix = sizes("20x7,548x4,1472").unwrap();
        assert_eq!((imix.cycle().len(), imix.largest(), imix.only()), (12, 1472, None));
        assert_eq!(imix.to_string(), "20x7,548x4,1472");
        assert_eq!(sizes("0,0").unwrap().only(), Some(0));
        for wrong in ["", "x", "9001", "-1", "20,", "20x0", "20x1001", "1x600,2x600", "1x1x1"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }
}
