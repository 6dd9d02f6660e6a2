//! Removing what a killed process left behind.
//!
//! Settings first, since some are of namespaces that are then removed.

use std::fs;
use std::io;

use crate::error::During as _;
use crate::namespace::{NETNS_DIR, path_of, remove_name};
use crate::settings::JOURNAL_DIR;
use crate::{Lease, Restored, TestbedError, restore};

/// What a process that ended had left.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reaped {
    /// Names of the namespaces that were removed.
    pub namespaces: Vec<String>,
    /// Namespaces that could not be removed: name, and what the kernel said.
    pub namespaces_left: Vec<(String, String)>,
    /// Settings that were put back.
    pub settings: Restored,
}

impl Reaped {
    /// Returns whether there was nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Puts back the settings and removes the namespaces of owners that are gone.
///
/// Only names that carry a lease of ours are looked at, and of those only the ones whose owner has
/// ended. Two processes may do this at once.
///
/// # Errors
/// If the directories cannot be read. What is wrong with a journal is told in [`Restored::left`], and
/// what cannot be removed in [`Reaped::namespaces_left`].
pub fn reap() -> Result<Reaped, TestbedError> {
    let settings = restore(JOURNAL_DIR.as_ref())?;
    let (mut namespaces, mut namespaces_left) = (Vec::new(), Vec::new());
    for name in names_in(NETNS_DIR).during(|| format!("list {NETNS_DIR}"))? {
        if name.parse::<Lease>().is_ok_and(|lease| lease.owner.is_gone()) {
            match remove_name(&path_of(&name)) {
                Ok(()) => namespaces.push(name),
                Err(error) => namespaces_left.push((name, error.to_string())),
            }
        }
    }
    namespaces.sort();
    namespaces_left.sort();
    Ok(Reaped { namespaces, namespaces_left, settings })
}

/// Returns the names in a directory; none where there is no directory.
pub(crate) fn names_in(dir: impl AsRef<std::path::Path>) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    Ok(names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}
