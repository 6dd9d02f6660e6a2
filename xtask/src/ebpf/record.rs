//! What is recorded beside the object: its hash and the tools that made it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::toolchain::Toolchain;

/// Content of the file beside the object.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// SHA-256 of the object, in hex.
    pub(super) sha256: String,
    /// Compiler.
    pub(super) rustc: String,
    /// Linker.
    pub(super) linker: String,
}

impl Record {
    pub(super) fn new(object: &[u8], toolchain: &Toolchain) -> Self {
        Self {
            sha256: sha256(object),
            rustc: toolchain.rustc_version.clone(),
            linker: toolchain.linker_version.clone(),
        }
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let body = toml::to_string(self).context("writing the record as TOML")?;
        let text = format!("# Written by `cargo xtask ebpf`.\n{body}");
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

/// Returns the SHA-256 in lower-case hex.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_that_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            super::sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
