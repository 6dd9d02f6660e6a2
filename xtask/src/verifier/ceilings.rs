//! How many instructions the verifier may walk: room to grow, far from its own limit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Where the ceilings are recorded, from the root of the repository.
pub(super) const PATH: &str = "crates/kernel/object/ceilings.toml";

/// Ceiling of each program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ceilings {
    verified_instructions: BTreeMap<String, u32>,
}

impl Ceilings {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(root.join(PATH)).with_context(|| format!("reading {PATH}"))?;
        toml::from_str(&text).with_context(|| format!("in {PATH}"))
    }

    /// Returns the ceiling of a program; one without is above it.
    pub(super) fn of(&self, program: &str) -> Option<u32> {
        self.verified_instructions.get(program).copied()
    }
}
