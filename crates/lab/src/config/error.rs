//! Why a configuration was refused, and where.

use std::fmt;

use super::Source;

/// Why a configuration was refused, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    /// The file, or the flag that held the value.
    pub file: String,
    /// Line and column, from 1; `None` if the whole file is meant.
    pub place: Option<(u32, u32)>,
    /// The key, with its table: `queue.irq_cpu`; empty if there is none.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl ConfigError {
    /// A refusal of a whole file or flag.
    pub fn whole(file: &str, message: String) -> Self {
        Self { file: file.into(), place: None, key: String::new(), message }
    }

    /// A refusal of what stands at byte `at` of the source.
    pub(crate) fn at(source: Source<'_>, at: usize, message: String) -> Self {
        let mut at = at.min(source.text.len());
        while !source.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &source.text[..at];
        let line_start = before.rfind('\n').map_or(0, |n| n + 1);
        let line = before.matches('\n').count() as u32 + 1;
        let column = before[line_start..].chars().count() as u32 + 1;
        let whole_line = source.text[line_start..].lines().next().unwrap_or("");
        Self {
            file: source.file.into(),
            place: Some((line, column)),
            key: key_of(&source.text[..line_start], whole_line),
            message,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Returns the key of a line and the table it stands in, as far as the text tells.
fn key_of(before: &str, line: &str) -> String {
    let header = |line: &str| {
        let line = line.trim();
        line.starts_with('[').then(|| {
            line.split('#').next().unwrap_or("").trim().trim_matches(['[', ']']).to_owned()
        })
    };
    if let Some(table) = header(line) {
        return table;
    }
    let table = before.lines().rev().find_map(header).unwrap_or_default();
    let key = line.split_once('=').map_or("", |(key, _)| key.trim());
    match (table.is_empty(), key.is_empty()) {
        (true, _) => key.to_owned(),
        (false, true) => table,
        (false, false) => format!("{table}.{key}"),
    }
}
