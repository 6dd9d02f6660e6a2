//! Exceptions: single packets at which the oracle, not we, is off, each with the reason.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::table::Row;

/// The list of the project, from the root of the repository.
pub(crate) const FILE: &str = "xtask/oracle-exceptions.toml";

/// The list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// End of the capture's path: the same capture may stand in several folders.
    capture: String,
    /// Packet numbers; none means every packet of the capture.
    #[serde(default)]
    packets: Vec<u64>,
    /// Columns that are not compared.
    columns: Vec<String>,
    /// Why the oracle is off.
    reason: String,
}

impl Exceptions {
    /// Reads the list; a missing file has none.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let list: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for exception in &list.exception {
            anyhow::ensure!(
                !exception.reason.trim().is_empty(),
                "{}: the exception for {} gives no reason",
                path.display(),
                exception.capture
            );
        }
        Ok(list)
    }

    /// Returns whether a mismatch in this column is excepted.
    pub(crate) fn covers(&self, row: &Row<'_>, column: &str) -> bool {
        self.exception.iter().any(|exception| {
            row.capture().ends_with(&exception.capture)
                && (exception.packets.is_empty()
                    || exception.packets.iter().any(|packet| packet.to_string() == row.number()))
                && exception.columns.iter().any(|name| name == column)
        })
    }
}
