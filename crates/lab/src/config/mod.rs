//! Reading the project's TOML files: every refusal names file, line, column, key and what is
//! allowed.

mod error;

pub use error::ConfigError;

use serde::de::DeserializeOwned;
use toml::Spanned;

/// Most bytes of a configuration file.
pub const MAX_BYTES: usize = 1 << 20;

/// The text of a file while it is turned into values, to say where something stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text }
    }

    /// Reads the whole file into its plain form.
    pub(crate) fn parse<T: DeserializeOwned>(self) -> Result<T, ConfigError> {
        if self.text.len() > MAX_BYTES {
            return Err(ConfigError::whole(
                self.file,
                format!("the file has {} bytes; at most {MAX_BYTES} are read", self.text.len()),
            ));
        }
        toml::from_str(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            ConfigError::at(self, at, in_words(error.message()))
        })
    }

    /// Refuses a value, with its place.
    pub(crate) fn refuse<T>(self, value: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self, value.span().start, message.into())
    }
}

/// Says what the names of Rust's types in a message mean to those who write TOML.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0 on"),
        ("expected usize", "expected a whole number from 0 on"),
    ];
    let known = WORDS.iter().find(|(name, _)| message.ends_with(name));
    known.map_or(message.to_owned(), |(name, words)| message.replace(name, words))
}

#[cfg(test)]
mod tests;
