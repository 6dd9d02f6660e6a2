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
            ConfigError::at(self, at, error.message().to_owned())
        })
    }

    /// Refuses a value, with its place.
    pub(crate) fn refuse<T>(self, value: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self, value.span().start, message.into())
    }
}

#[cfg(test)]
mod tests;
