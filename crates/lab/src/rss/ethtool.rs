//! Reads what `ethtool -x DEV` prints.

use std::fmt;

use super::{Rss, Spreading};

/// Why a text is not the output of `ethtool -x`, and on which line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EthtoolError {
    /// Line, from 1; 0 if something is missing from the whole.
    pub line: u32,
    /// What is wrong.
    pub reason: EthtoolReason,
}

/// What is wrong with a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EthtoolReason {
    /// The line is of no known kind.
    Unknown(String),
    /// A row of the table does not start with the index that comes next.
    WrongIndex {
        /// Index that comes next.
        expected: usize,
        /// Index that stands there.
        found: String,
    },
    /// A queue of the table is no number.
    NoQueue(String),
    /// A byte of the key is not two hexadecimal digits.
    NoKeyByte(String),
    /// The key has fewer than the 40 bytes that the longest input needs.
    ShortKey(usize),
    /// The table has more entries than any device.
    LongTable,
    /// The device hashes with something else than Toeplitz.
    OtherFunction(String),
    /// There is neither a table nor a key.
    Nothing,
}

impl fmt::Display for EthtoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        self.reason.fmt(f)
    }
}

impl fmt::Display for EthtoolReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                write!(f, "`{text}` is no line of `ethtool -x` that is known here")
            }
            Self::WrongIndex { expected, found } => {
                write!(f, "the row starts at `{found}`, but index {expected} comes next")
            }
            Self::NoQueue(text) => write!(f, "`{text}` is not the number of a queue"),
            Self::NoKeyByte(text) => {
                write!(f, "`{text}` is not a byte of a key, two hexadecimal digits")
            }
            Self::ShortKey(len) => {
                write!(f, "the key has {len} bytes; at least 40 are needed")
            }
            Self::LongTable => {
                write!(f, "the table has more than {} entries", Rss::MAX_TABLE_LEN)
            }
            Self::OtherFunction(name) => {
                write!(f, "the device hashes with {name}; only toeplitz can be modelled")
            }
            Self::Nothing => f.write_str("neither an indirection table nor a hash key is there"),
        }
    }
}

impl std::error::Error for EthtoolError {}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Part {
    Start,
    Table,
    Key,
    Function,
}

pub(super) fn parse(text: &str) -> Result<Rss, EthtoolError> {
    let mut part = Part::Start;
    let mut table: Vec<u16> = Vec::new();
    let mut key: Option<Vec<u8>> = None;
    for (index, raw) in text.lines().enumerate() {
        let at = |reason| EthtoolError { line: index as u32 + 1, reason };
        let line = raw.trim();
        let unknown = || at(EthtoolReason::Unknown(line.chars().take(60).collect()));
        if line.is_empty() {
            continue;
        }
        let lower = line.to_ascii_lowercase();
        if lower.starts_with("rx flow hash indirection table") {
            part = Part::Table;
        } else if lower.starts_with("rss hash key") {
            part = Part::Key;
        } else if lower.starts_with("rss hash function")
            || lower.starts_with("rss input transformation")
        {
            part = Part::Function;
        } else if lower.contains("not supported") || lower.contains("not configurable") {
            // Stands in the place of a part that the device does not tell.
        } else {
            match part {
                Part::Start => return Err(unknown()),
                Part::Table => row(line, &mut table).map_err(at)?,
                Part::Key => {
                    if key.is_some() {
                        return Err(unknown());
                    }
                    key = Some(key_bytes(line).map_err(at)?);
                }
                Part::Function => {
                    let (name, state) = line.split_once(':').ok_or_else(unknown)?;
                    if state.trim() == "on" && !matches!(name.trim(), "toeplitz" | "symmetric-xor")
                    {
                        return Err(at(EthtoolReason::OtherFunction(name.trim().into())));
                    }
                }
            }
        }
    }
    if table.is_empty() && key.is_none() {
        return Err(EthtoolError { line: 0, reason: EthtoolReason::Nothing });
    }
    Ok(Rss {
        spreading: Spreading::Toeplitz,
        key: key.unwrap_or_else(|| Rss::DEFAULT_KEY.to_vec()),
        table,
        udp_ports: true,
    })
}

fn row(line: &str, table: &mut Vec<u16>) -> Result<(), EthtoolReason> {
    let (index, queues) =
        line.split_once(':').ok_or_else(|| EthtoolReason::Unknown(line.into()))?;
    if index.trim().parse() != Ok(table.len()) {
        let found = index.trim().to_owned();
        return Err(EthtoolReason::WrongIndex { expected: table.len(), found });
    }
    for queue in queues.split_whitespace() {
        table.push(queue.parse().map_err(|_| EthtoolReason::NoQueue(queue.into()))?);
        if table.len() > Rss::MAX_TABLE_LEN {
            return Err(EthtoolReason::LongTable);
        }
    }
    Ok(())
}

fn key_bytes(line: &str) -> Result<Vec<u8>, EthtoolReason> {
    let key = line
        .split(':')
        .map(|byte| match byte.as_bytes() {
            // from_str_radix would take a sign.
            [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                u8::from_str_radix(byte, 16).map_err(|_| byte)
            }
            _ => Err(byte),
        })
        .collect::<Result<Vec<u8>, _>>()
        .map_err(|byte| EthtoolReason::NoKeyByte(byte.into()))?;
    if key.len() < 40 { Err(EthtoolReason::ShortKey(key.len())) } else { Ok(key) }
}
