//! Values that are named by a word, on the command line and in the output.

use std::fmt;

/// A word that names nothing here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownWord {
    word: String,
    allowed: String,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: allowed are {}", self.word, self.allowed)
    }
}

impl std::error::Error for UnknownWord {}

macro_rules! words {
    ($type:ty: $($word:literal $value:expr),+ $(,)?) => {
        impl std::str::FromStr for $type {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, $crate::words::UnknownWord> {
                const ALL: &[&str] = &[$($word),+];
                match word {
                    $($word => Ok($value),)+
                    _ => Err($crate::words::UnknownWord::new(word, ALL)),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(if *self == $value {
                    return f.pad($word);
                })+
                unreachable!("every value has a word")
            }
        }
    };
}
pub(crate) use words;

impl UnknownWord {
    pub(crate) fn new(word: &str, all: &[&str]) -> Self {
        Self { word: word.to_owned(), allowed: all.join(", ") }
    }
}
