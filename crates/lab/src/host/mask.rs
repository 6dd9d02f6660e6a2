//! Which CPUs a queue may use, as a user says it.

use std::str::FromStr;

use rxsteer_core::CpuSet;
use rxsteer_core::cpu::CpuSetError;

/// Which CPUs a queue may use.
///
/// # Examples
/// ```
/// use rxsteer_lab::host::Mask;
/// assert_eq!("local".parse(), Ok(Mask::Local));
/// assert!(matches!("0-3,8".parse(), Ok(Mask::Set(_))));
/// assert!("2-1".parse::<Mask>().is_err());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mask {
    /// No RPS.
    None,
    /// Every CPU that shares a cache with the queue's IRQ CPU.
    Local,
    /// Every CPU that serves.
    All,
    /// Every CPU that is online and not isolated: the same as `All`, said the other way.
    Housekeeping,
    /// These.
    Set(Box<CpuSet>),
}

impl Mask {
    /// The words that stand for a mask.
    pub const WORDS: &'static str = "none, local, all, housekeeping";
}

impl FromStr for Mask {
    type Err = MaskError;

    fn from_str(text: &str) -> Result<Self, MaskError> {
        match text.trim() {
            "none" => Ok(Self::None),
            "local" => Ok(Self::Local),
            "all" => Ok(Self::All),
            "housekeeping" => Ok(Self::Housekeeping),
            list => match CpuSet::from_list(list) {
                Ok(set) if set.is_empty() => Ok(Self::None),
                Ok(set) => Ok(Self::Set(Box::new(set))),
                Err(reason) => Err(MaskError { text: list.to_owned(), reason }),
            },
        }
    }
}

/// Why a text is not a mask.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MaskError {
    text: String,
    reason: CpuSetError,
}

impl std::fmt::Display for MaskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { text, reason } = self;
        write!(f, "`{text}`: {reason}; allowed are {} or a list such as 0-3,8", Mask::WORDS)
    }
}

impl std::error::Error for MaskError {}
