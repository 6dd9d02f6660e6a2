//! Reading the project's TOML files: every refusal names file, line, column, key and what is
//! allowed.

mod error;

pub use error::ConfigError;

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
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

    /// Refuses a name or title that is empty, or is not one line.
    pub(crate) fn one_line(self, text: &Spanned<String>) -> Result<&str, ConfigError> {
        let line = text.get_ref().as_str();
        if line.trim().is_empty() || line.contains(char::is_control) {
            return Err(self.refuse(text, "one line is allowed, and something must be in it"));
        }
        Ok(line)
    }

    /// Refuses a value, with its place.
    pub(crate) fn refuse<T>(self, value: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self, value.span().start, message.into())
    }
}

/// Takes a table alone: of a list, serde takes the elements in the order of the fields.
pub(crate) fn table<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Table<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Table(PhantomData))
}

/// The same where the table may be missing.
pub(crate) fn some_table<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    table(from).map(Some)
}

/// Says what the names of Rust's types in a message mean to those who write TOML.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 10] = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0 on"),
        ("expected usize", "expected a whole number from 0 on"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected a table"),
    ];
    // Numbers beyond 64 bits are told with the type that holds them.
    let message = message.replace(" as i128", "").replace(" as u128", "");
    let message =
        message.replace("type: sequence", "type: list").replace("type: map", "type: table");
    let (found, expected) = message.rsplit_once("expected ").unwrap_or((&message, ""));
    if expected.starts_with("struct ") {
        return format!("{found}expected a table");
    }
    let known = WORDS.iter().find(|(name, _)| message.ends_with(name));
    known.map_or(message.clone(), |(name, words)| message.replace(name, words))
}

#[cfg(test)]
mod tests;
