//! Standing in for the compiler, so that one source gives one object wherever it is built.
//!
//! Cargo gives each crate a number that it makes from the crate's place on the disk, the compiler
//! puts it into every symbol, and the order of symbols decides how LLVM allots registers. Our
//! crates get one fixed number instead.

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// Set in the environment of a build: this program is called as `RUSTC_WRAPPER`.
pub(super) const MARK: &str = "RXSTEER_XTASK_IS_RUSTC_WRAPPER";

/// Runs the compiler in place of the chores if Cargo called this program for that.
pub(crate) fn run_if_called() -> Option<Result<ExitCode>> {
    env::var_os(MARK)?;
    Some(run(env::args_os().skip(1).collect()))
}

fn run(args: Vec<OsString>) -> Result<ExitCode> {
    let (rustc, args) = args.split_first().context("the compiler's path is missing")?;
    let status = Command::new(rustc).args(fixed(args)).status().context("starting the compiler")?;
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}

fn fixed(args: &[OsString]) -> Vec<OsString> {
    let name = args.iter().position(|arg| arg == "--crate-name").and_then(|at| args.get(at + 1));
    let is_ours = name.is_some_and(|name| name.to_string_lossy().starts_with("rxsteer_"));
    let fix = |arg: &OsString| {
        if is_ours && arg.to_string_lossy().starts_with("metadata=") {
            "metadata=rxsteer".into()
        } else {
            arg.clone()
        }
    };
    args.iter().map(fix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_crates_get_the_fixed_number() {
        let args = |name: &str| ["--crate-name", name, "-C", "metadata=1f"].map(OsString::from);
        assert_eq!(fixed(&args("core")), args("core"));
        assert_eq!(fixed(&args("rxsteer_core"))[3], "metadata=rxsteer");
    }
}
