//! Skipping where there are no rights.

use rxsteer_testbed::{Testbed, TestbedError};

/// Returns a testbed; `None`, and says why, where this process may not have one.
pub(crate) fn testbed(test: &str) -> Option<Testbed> {
    match Testbed::new() {
        Ok(testbed) => Some(testbed),
        Err(TestbedError::Privilege(missing)) => {
            eprintln!("skipped {test}: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
