//! The start of every live test and bench: rights checked, remains of the dead removed.

use crate::privilege::require;
use crate::{Namespace, Privilege, Reaped, TestbedError, reap};

/// The right to make namespaces here, and what was found left behind.
#[derive(Debug)]
pub struct Testbed {
    reaped: Reaped,
}

impl Testbed {
    /// Checks that this process may make namespaces, and removes what dead processes left.
    ///
    /// # Errors
    /// [`TestbedError::Privilege`] with the capabilities that are missing.
    pub fn new() -> Result<Self, TestbedError> {
        require(&Privilege::TESTBED)?;
        Ok(Self { reaped: reap()? })
    }

    /// Returns what was left behind and is removed now.
    pub fn reaped(&self) -> &Reaped {
        &self.reaped
    }

    /// Makes a namespace.
    ///
    /// # Errors
    /// [`TestbedError::Step`].
    pub fn namespace(&self) -> Result<Namespace, TestbedError> {
        Namespace::new()
    }
}
